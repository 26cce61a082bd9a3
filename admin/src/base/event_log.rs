//! What open streams are told: the state of each topic, and what happened lately, numbered over all topics. Sources post
//! here, readers take from here at their own pace; nobody waits for anybody.

use std::{
    collections::{HashMap, VecDeque},
    str::FromStr,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::watch;

/// Events of a topic that can still be told, where the newest says all that the ones before it did.
const STATES_MAX: usize = 32;
/// Of another topic: a reader may be behind by so many.
const CHANGES_MAX: usize = 1_024;
/// Bytes of a topic's events.
const KEPT_BYTES: usize = 1 << 20;

/// What a stream can be about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Topic {
    /// Publishes: every stream is told.
    Policy,
    Metrics,
    MetricsTier,
    MetricsRule,
    Top,
    Node,
    Alerts,
    Audit,
}

/// Something that readers are told.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) sequence: u64,
    pub(crate) name: &'static str,
    /// A JSON object.
    data: LazyLock<Bytes, Writing>,
}

/// Writes what an event says when a stream needs it.
type Writing = Box<dyn FnOnce() -> Bytes + Send>;

/// All of it.
#[derive(Debug)]
pub(crate) struct Events {
    /// Tells the numbers of this process from another's.
    origin: String,
    posted: Mutex<Posted>,
    newest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Posted {
    sequence: u64,
    topics: HashMap<Topic, Channel>,
}

#[derive(Debug, Default)]
struct Channel {
    /// What tells a newcomer how things are.
    state: Vec<Arc<Event>>,
    kept: VecDeque<Arc<Event>>,
    bytes: usize,
    /// Number of the newest that is not kept any more.
    forgotten: u64,
}

/// What a reader is told next.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) event: Arc<Event>,
    /// Something before it was left out.
    pub(crate) is_gap: bool,
}

impl Topic {
    /// Those that a stream can ask for.
    pub(crate) const ALL: [Self; 7] =
        [Self::Metrics, Self::MetricsTier, Self::MetricsRule, Self::Top, Self::Node, Self::Alerts, Self::Audit];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Metrics => "metrics",
            Self::MetricsTier => "metrics.tier",
            Self::MetricsRule => "metrics.rule",
            Self::Top => "top",
            Self::Node => "node",
            Self::Alerts => "alerts",
            Self::Audit => "audit",
        }
    }

    /// Does the newest event say all that the ones before it did?
    fn is_state(self) -> bool {
        !matches!(self, Self::Policy | Self::Node | Self::Alerts | Self::Audit)
    }

    /// Does what a newcomer is told stand for all events that were missed?
    fn has_whole(self) -> bool {
        self == Self::Node
    }

    fn kept_max(self) -> usize {
        if self.is_state() || self.has_whole() { STATES_MAX } else { CHANGES_MAX }
    }
}

impl FromStr for Topic {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|topic| topic.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.into_iter().map(Self::name).collect();
            format!("there is no topic `{name}`; there are {}", names.join(", "))
        })
    }
}

impl Event {
    /// Returns its parts as the stream carries them, under this id. All streams share what it says.
    pub(crate) fn parts(&self, id: &str, is_gap: bool) -> [Bytes; 3] {
        let (name, data) = (self.name, &*self.data);
        let head = format!("event: {name}\nid: {id}\ndata: ").into();
        match data.strip_suffix(b"}") {
            Some(rest) if is_gap => {
                let comma = if rest.ends_with(b"{") { "" } else { "," };
                [head, data.slice(..rest.len()), format!("{comma}\"gap\":true}}\n\n").into()]
            }
            _ => [head, data.clone(), Bytes::from_static(b"\n\n")],
        }
    }

    #[cfg(test)]
    pub(crate) fn text(&self, id: &str, is_gap: bool) -> String {
        String::from_utf8(self.parts(id, is_gap).concat()).expect("text")
    }
}

impl Events {
    /// `origin`: of letters and digits, another for each process.
    pub(crate) fn new(origin: String) -> Self {
        Self { origin, posted: Mutex::default(), newest: watch::Sender::new(0) }
    }

    /// Tells of a topic; a newcomer is told the newest alone.
    pub(crate) fn post(&self, topic: Topic, name: &'static str, data: &impl Serialize) {
        self.put(topic, name, data, |state, event| *state = vec![event]);
    }

    /// Tells of a topic; a newcomer is told what `enter` makes of what newcomers were told before. Answers the event's number.
    pub(crate) fn put(
        &self,
        topic: Topic,
        name: &'static str,
        data: &impl Serialize,
        enter: impl FnOnce(&mut Vec<Arc<Event>>, Arc<Event>),
    ) -> u64 {
        let data = json(data);
        let sequence = {
            let mut posted = self.posted();
            posted.sequence += 1;
            let sequence = posted.sequence;
            let channel = posted.topics.entry(topic).or_default();
            channel.bytes += data.len();
            let event = Arc::new(Event { sequence, name, data: LazyLock::new(Box::new(move || data) as Writing) });
            channel.kept.push_back(Arc::clone(&event));
            while channel.kept.len() > topic.kept_max() || channel.bytes > KEPT_BYTES && channel.kept.len() > 1 {
                if let Some(gone) = channel.kept.pop_front() {
                    channel.bytes -= gone.data.len();
                    channel.forgotten = gone.sequence;
                }
            }
            enter(&mut channel.state, event);
            sequence
        };
        self.newest.send_replace(sequence);
        sequence
    }

    /// Tells what changed of a topic. A newcomer is told the whole of it, and so is a reader who missed too many changes; it is
    /// written when somebody needs it.
    pub(crate) fn post_changes(
        &self,
        topic: Topic,
        name: &'static str,
        changes: &impl Serialize,
        whole: impl Serialize + Send + 'static,
    ) {
        self.put(topic, name, changes, |state, event| {
            let data = LazyLock::new(Box::new(move || json(&whole)) as Writing);
            *state = vec![Arc::new(Event { sequence: event.sequence, name, data })];
        });
    }

    /// Changes when there is something new.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Streams that are open.
    pub(crate) fn readers(&self) -> usize {
        self.newest.receiver_count()
    }

    pub(crate) fn id(&self, sequence: u64) -> String {
        format!("{}-{sequence}", self.origin)
    }

    /// The number of an id, if it is one of this process that a reader can go on from.
    pub(crate) fn sequence(&self, id: &str) -> Option<u64> {
        let sequence: u64 = id.strip_prefix(&self.origin)?.strip_prefix('-')?.parse().ok()?;
        (1..=self.posted().sequence).contains(&sequence).then_some(sequence)
    }

    /// How things are, and the number up to which that tells everything.
    pub(crate) fn state(&self, topics: &[Topic]) -> (Vec<Arc<Event>>, u64) {
        let posted = self.posted();
        let channels = topics.iter().filter_map(|topic| posted.topics.get(topic));
        (channels.flat_map(|channel| channel.state.iter().cloned()).collect(), posted.sequence)
    }

    /// What came after `seen`, in order, and the number up to which that tells everything. Of a topic whose newest event says
    /// it all, only that one.
    pub(crate) fn since(&self, seen: u64, topics: &[Topic]) -> (Vec<Told>, u64) {
        let posted = self.posted();
        (posted.since(seen, topics, true), posted.sequence)
    }

    /// All that came after `seen`, for a reader who was away, and the number up to which that tells everything; `None` where
    /// some of it is not kept any more.
    pub(crate) fn missed(&self, seen: u64, topics: &[Topic]) -> Option<(Vec<Told>, u64)> {
        let posted = self.posted();
        let mut channels = topics.iter().filter_map(|topic| posted.topics.get(topic));
        channels.all(|channel| channel.forgotten <= seen).then(|| (posted.since(seen, topics, false), posted.sequence))
    }

    fn posted(&self) -> MutexGuard<'_, Posted> {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Posted {
    fn since(&self, seen: u64, topics: &[Topic], skips_states: bool) -> Vec<Told> {
        let mut told = Vec::new();
        for topic in topics {
            let Some(channel) = self.topics.get(topic) else { continue };
            let first = channel.kept.partition_point(|event| event.sequence <= seen);
            let mut new: VecDeque<_> = channel.kept.range(first..).cloned().collect();
            let mut is_gap = channel.forgotten > seen;
            if is_gap && topic.has_whole() {
                told.extend(channel.state.iter().cloned().map(|event| Told { event, is_gap }));
                continue;
            }
            if topic.is_state() && skips_states && new.len() > 1 {
                is_gap = true;
                new.drain(..new.len() - 1);
            }
            told.extend(new.into_iter().enumerate().map(|(place, event)| Told { event, is_gap: is_gap && place == 0 }));
        }
        told.sort_by_key(|told| told.event.sequence);
        told
    }
}

fn json(data: &impl Serialize) -> Bytes {
    // Plain data with text keys: it is always JSON, on one line.
    serde_json::to_vec(data).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(told: &[Told]) -> Vec<(u64, bool)> {
        told.iter().map(|told| (told.event.sequence, told.is_gap)).collect()
    }

    #[test]
    fn a_slow_reader_is_told_the_newest_state_and_every_change() {
        let events = Events::new("a".to_owned());
        let both = [Topic::Metrics, Topic::Audit];
        for number in 1..=3 {
            events.post(Topic::Metrics, "metrics", &json!({ "n": number }));
            events.put(Topic::Audit, "audit", &json!({ "n": number }), Vec::push);
        }
        assert_eq!(names(&events.since(0, &both).0), [(2, false), (4, false), (5, true), (6, false)]);
        assert_eq!(names(&events.since(4, &both).0), [(5, false), (6, false)]);
        assert_eq!(names(&events.since(0, &[Topic::Top]).0), []);
        let state: Vec<u64> = events.state(&both).0.iter().map(|event| event.sequence).collect();
        assert_eq!(state, [5, 2, 4, 6]);
        for _ in 0..CHANGES_MAX {
            events.put(Topic::Audit, "audit", &json!({}), |_, _| {});
        }
        let told = events.since(3, &[Topic::Audit]).0;
        assert_eq!((told.len(), told[0].is_gap, told[1].is_gap), (CHANGES_MAX, true, false));
        assert_eq!(told[0].event.text("a-1", true), "event: audit\nid: a-1\ndata: {\"gap\":true}\n\n");
    }

    #[test]
    fn a_reader_that_is_behind_takes_nothing_from_another() {
        let events = Events::new("a".to_owned());
        let (mut seen, mut read) = (0, Vec::new());
        let count = 3 * CHANGES_MAX as u64;
        for _ in 0..count {
            events.put(Topic::Audit, "audit", &json!({}), Vec::push);
            let (told, up_to) = events.since(seen, &[Topic::Audit]);
            read.extend(names(&told));
            seen = up_to;
        }
        assert!(read.into_iter().eq((1..=count).map(|number| (number, false))), "it reads every event once");
        let of_slow = events.since(0, &[Topic::Audit]).0;
        assert_eq!((of_slow.len(), of_slow[0].is_gap), (CHANGES_MAX, true));
        assert!(events.missed(0, &[Topic::Audit]).is_none());
    }

    #[test]
    fn who_comes_back_is_told_all_that_it_missed_or_nothing_of_it() {
        let events = Events::new("a".to_owned());
        let both = [Topic::Metrics, Topic::Audit];
        for number in 1..=STATES_MAX {
            events.post(Topic::Metrics, "metrics", &json!({ "n": number }));
        }
        events.put(Topic::Audit, "audit", &json!({}), Vec::push);
        let missed = |seen| events.missed(seen, &both).map(|(told, _)| told.len());
        assert_eq!((missed(0), missed(31), missed(33)), (Some(33), Some(2), Some(0)));
        events.post(Topic::Metrics, "metrics", &json!({}));
        assert_eq!((missed(0), missed(1)), (None, Some(33)));
        assert_eq!(events.missed(0, &[Topic::Audit]).map(|(told, _)| names(&told)), Some(vec![(33, false)]));
    }

    #[test]
    fn what_is_kept_is_bounded_by_bytes_too() {
        let events = Events::new("a".to_owned());
        for _ in 0..10 {
            events.post(Topic::Metrics, "metrics", &json!({ "text": "x".repeat(KEPT_BYTES / 4) }));
        }
        assert_eq!(events.missed(7, &[Topic::Metrics]).map(|(told, _)| told.len()), Some(3));
    }

    #[test]
    fn ids_of_others_are_not_gone_on_from() {
        let events = Events::new("b7".to_owned());
        events.post(Topic::Top, "top", &json!({}));
        assert_eq!(events.sequence("b7-1"), Some(1));
        for id in ["b7-0", "b7-2", "b8-1", "1", "", "b7-x"] {
            assert_eq!(events.sequence(id), None, "{id}");
        }
    }
    #[test]
    fn a_reader_is_told_every_change_or_the_whole() {
        let events = Events::new("a".to_owned());
        let post = |number: usize| {
            events.post_changes(Topic::Node, "node", &json!({ "n": number }), json!({ "whole": number }));
        };
        (1..=STATES_MAX).for_each(post);
        let texts = |seen| -> Vec<String> {
            let told = events.since(seen, &[Topic::Node]).0;
            told.iter()
                .map(|told| told.event.text("", told.is_gap))
                .map(|text| text.replace("event: node\nid: \ndata: ", ""))
                .collect()
        };
        assert_eq!(texts(29), ["{\"n\":30}\n\n", "{\"n\":31}\n\n", "{\"n\":32}\n\n"]);
        assert_eq!(texts(0).len(), STATES_MAX);
        post(STATES_MAX + 1);
        assert_eq!(texts(0), ["{\"whole\":33,\"gap\":true}\n\n"], "too many for a reader that is slow");
        let (state, _) = events.state(&[Topic::Node]);
        assert_eq!((state.len(), state[0].sequence, &state[0].data[..]), (1, 33, &b"{\"whole\":33}"[..]));
    }
}
