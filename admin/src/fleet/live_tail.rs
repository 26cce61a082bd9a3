//! Who is watched just now: the decisions about one identity, as nodes make them, gathered once for all who look. Nodes are asked
//! again and again, and go on where they were. Readers take from here at their own pace; nobody waits for them.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque, hash_map::Entry},
    mem, slice,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use tidegate::Identity;
use tidegate_fleet::wire::{
    Decisions, NodeQuery, NodeReply, QueryIdentity, SeenDecision, SeenIdentity, WATCH_MS_MAX, WatchCursor,
};
use tidegate_listener::OwnerCounts;
use tokio::{
    sync::watch::{Receiver, Sender},
    task::spawn_local,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use crate::{
    base::event_log::Events,
    domain::privacy::Privacy,
    fleet::registry::{Fleet, Outcome},
    metrics::collector::Figures,
    store::database::Store,
};

/// Identities at once: a node watches so many.
const WATCHES_MAX: usize = 8;
/// Identities that one user and the tokens that they made watch at once.
const WATCHES_OF_USER: usize = 4;
const OWN_ARE_TOO_MANY: &str = "you and your tokens watch 4 identities already: stop watching one";
/// Decisions that are kept of one, for readers that are slow or open their stream anew.
const KEPT_MAX: usize = 50;
/// How often readers are told.
const TELL_EVERY: Duration = Duration::from_millis(250);
/// How often is looked which nodes there are.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Whoever looked last may be opening his stream anew.
const LINGERS: Duration = Duration::from_secs(5);

/// All of them.
#[derive(Debug)]
pub(crate) struct Watches {
    open: Mutex<Open>,
    context: TailContext,
}

/// What the live tail needs of the server.
#[derive(Debug)]
pub(crate) struct TailContext {
    pub(crate) events: Arc<Events>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) store: Store,
    pub(crate) figures: Arc<Figures>,
    pub(crate) privacy: Privacy,
    /// True when the server is being stopped.
    pub(crate) stopping: Receiver<bool>,
}

#[derive(Debug, Default)]
struct Open {
    by_who: HashMap<QueryIdentity, Arc<Watch>>,
    /// How many there ever were.
    opened: u64,
}

/// One of them.
#[derive(Debug)]
struct Watch {
    who: QueryIdentity,
    /// Among the nodes.
    name: String,
    since: Timestamp,
    gathered: Mutex<Gathered>,
    news: Sender<()>,
    /// How many readers each user has, with the tokens that they made.
    readers: Mutex<OwnerCounts<String>>,
}

#[derive(Debug, Default)]
struct Gathered {
    /// The newest, in the order in which they came.
    rows: VecDeque<Row>,
    /// Number of the newest decision, whether it is kept or was only counted.
    last: u64,
    nodes: BTreeMap<String, NodeWatch>,
    /// Nodes of other servers, which cannot be asked.
    elsewhere: Vec<String>,
    has_news: bool,
}

#[derive(Clone, Debug, Serialize)]
struct Row {
    number: u64,
    node: String,
    #[serde(flatten)]
    decision: SeenDecision,
}

/// What a node sees.
#[derive(Debug, Default)]
struct NodeWatch {
    /// Which watch it is, by the node's clock; 0: it has not said so yet.
    node_since_ms: u64,
    /// Since when it sees all, Unix milliseconds.
    since_ms: i64,
    /// Number of the last decision that it told or counted.
    after: u64,
    how: How,
}

#[derive(PartialEq, Debug, Default)]
enum How {
    /// It is being asked for the first time.
    #[default]
    Asked,
    Sees,
    Fails(String),
    Silent,
}

/// A reader of a watch.
#[derive(Debug)]
pub(crate) struct Looking {
    watch: Arc<Watch>,
    /// The user who looks, or made the token that does.
    user: String,
    news: Receiver<()>,
    /// Number up to which he was told.
    told: u64,
    state: Value,
}

impl Watches {
    /// Creates a live tail that nobody reads.
    pub(crate) fn new(context: TailContext) -> Self {
        Self { open: Mutex::default(), context }
    }

    /// Adds a reader, of this user, of the decisions about an identity. The error says why that cannot be.
    pub(crate) fn look(self: &Arc<Self>, user: &str, who: QueryIdentity) -> Result<Looking, &'static str> {
        let mut open = self.lock();
        let Open { by_who, opened } = &mut *open;
        let of_user = by_who.values().filter(|watch| watch.who != who && watch.readers().of(user) > 0).count();
        if of_user >= WATCHES_OF_USER {
            return Err(OWN_ARE_TOO_MANY);
        }
        if by_who.len() >= WATCHES_MAX && !by_who.contains_key(&who) {
            // One that nobody looks at any more has to go.
            let idle = by_who.values().find(|watch| watch.news.receiver_count() == 0).map(|watch| watch.who.clone());
            by_who.remove(&idle.ok_or("too many are watched at once")?);
        }
        let watch = match by_who.entry(who) {
            Entry::Occupied(known) => Arc::clone(known.get()),
            Entry::Vacant(new) => {
                *opened += 1;
                let watch = Arc::new(Watch {
                    who: new.key().clone(),
                    name: self.context.events.id(*opened),
                    since: Timestamp::now(),
                    gathered: Mutex::default(),
                    news: Sender::new(()),
                    readers: Mutex::default(),
                });
                spawn_local(gather(Arc::clone(self), Arc::clone(&watch)));
                Arc::clone(new.insert(watch))
            }
        };
        Ok(Looking::new(watch, user))
    }

    /// Ends one that nobody looks at, for so long, or whose place another one has; is it over?
    fn close(&self, watch: &Arc<Watch>, idle: Duration) -> bool {
        let mut open = self.lock();
        // Nobody comes to look meanwhile.
        if watch.news.receiver_count() > 0 {
            return false;
        }
        let has_place = open.by_who.get(&watch.who).is_some_and(|known| Arc::ptr_eq(known, watch));
        if has_place && idle >= LINGERS {
            open.by_who.remove(&watch.who);
        }
        !has_place || idle >= LINGERS
    }

    /// Identities that were seen in traffic, as they may be shown; whom somebody named, he knows.
    pub(crate) fn shown(&self, mut outcome: Outcome, named: Option<&QueryIdentity>) -> Outcome {
        let TailContext { figures, privacy, .. } = &self.context;
        let identity = named.and_then(|QueryIdentity { kind, value }| Identity::new(kind, value).ok());
        let values = identity.map(|identity| figures.engine().counted_values(identity)).unwrap_or_default();
        let is_named =
            |who: &SeenIdentity| identity.is_some_and(|named| named.kind() == who.kind) && values.contains(&who.value);
        for told in outcome.answers.values_mut() {
            let (NodeReply::Watch(decisions) | NodeReply::Sample(decisions)) = told else { continue };
            for decision in &mut decisions.decisions {
                for who in decision.identities.iter_mut().filter(|who| !is_named(who)) {
                    who.value = privacy.show(&who.kind, &who.value);
                }
                decision.limit_id = decision.limit_id.take().map(|limit| figures.shown(&limit));
                // A path may name somebody.
                if named.is_none() && !privacy.is_clear() {
                    decision.endpoint = None;
                }
            }
        }
        outcome
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // Nothing in here panics.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Looking {
    fn new(watch: Arc<Watch>, user: &str) -> Self {
        watch.readers().add(user.to_owned(), 1);
        Self { news: watch.news.subscribe(), watch, user: user.to_owned(), told: 0, state: Value::Null }
    }

    /// Waits until there is something to tell.
    pub(crate) async fn has_news(&mut self) {
        // The sender lives as long as the watch, which this has.
        let _ = self.news.changed().await;
    }

    /// Events that this reader was not told yet.
    pub(crate) fn news(&mut self) -> Vec<(&'static str, Value)> {
        self.news.borrow_and_update();
        let gathered = self.watch.gathered();
        let mut events = Vec::new();
        let state = gathered.state(&self.watch);
        if self.state != state {
            self.state = state.clone();
            events.push(("key", state));
        }
        if gathered.last > self.told {
            let rows: Vec<&Row> = gathered.rows.iter().filter(|row| row.number > self.told).collect();
            let missed = gathered.last - self.told - rows.len() as u64;
            events.push(("decision", json!({ "who": self.watch.who, "decisions": rows, "missed": missed })));
            self.told = gathered.last;
        }
        events
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.watch.readers().subtract(&self.user, 1);
    }
}

/// Asks the nodes for as long as somebody looks.
async fn gather(tail: Arc<Watches>, watch: Arc<Watch>) {
    let TailContext { fleet, store, stopping, .. } = &tail.context;
    let mut stopping = stopping.clone();
    let (mut looks, mut tells) = (interval(LOOK_EVERY), interval(TELL_EVERY));
    for ticks in [&mut looks, &mut tells] {
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    let (mut asked, mut are_asked) = (FuturesUnordered::new(), HashSet::new());
    let mut looked_at = Instant::now();
    while !*stopping.borrow() {
        tokio::select! {
            // Without its sender there is no server any more.
            Err(_) = stopping.changed() => return,
            _ = tells.tick() => watch.tell(),
            Some((node, is_well)) = asked.next() => {
                if is_well {
                    asked.push(ask(&tail, &watch, node));
                } else {
                    // With the next look again.
                    are_asked.remove(&node);
                }
            }
            _ = looks.tick() => {
                if watch.news.receiver_count() > 0 {
                    looked_at = Instant::now();
                } else if tail.close(&watch, looked_at.elapsed()) {
                    return;
                }
                let (own, elsewhere) = fleet.names(store).await;
                watch.knows(&own, elsewhere);
                for node in own {
                    if are_asked.insert(node.clone()) {
                        asked.push(ask(&tail, &watch, node));
                    }
                }
            }
        }
    }
}

/// Asks a node what it saw since it was asked last, no more often than readers are told; is it to be asked again?
async fn ask(tail: &Watches, watch: &Watch, node: String) -> (String, bool) {
    let next = Instant::now() + TELL_EVERY;
    let (at, after) = (Timestamp::now(), watch.gathered().nodes.get(&node).map_or(0, |node| node.after));
    let cursor = Some(WatchCursor { watch: watch.name.clone(), after });
    let ask = NodeQuery::Watch { who: watch.who.clone(), for_ms: WATCH_MS_MAX, cursor };
    let TailContext { fleet, store, .. } = &tail.context;
    let outcome = fleet.ask(store, Some(slice::from_ref(&node)), &ask).await;
    let told = outcome.ok().and_then(|outcome| tail.shown(outcome, Some(&watch.who)).answers.remove(&node));
    let is_well = matches!(told, Some(NodeReply::Watch(_)));
    watch.gathered().take_in(&node, told, at);
    sleep_until(next).await;
    (node, is_well)
}

impl Watch {
    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        // Nothing in here panics.
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn readers(&self) -> MutexGuard<'_, OwnerCounts<String>> {
        // Nothing in here panics.
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells readers that there is something new.
    fn tell(&self) {
        if mem::take(&mut self.gathered().has_news) {
            self.news.send_replace(());
        }
    }

    /// Which nodes there are.
    fn knows(&self, own: &[String], elsewhere: Vec<String>) {
        let mut gathered = self.gathered();
        let (before, own) = (gathered.nodes.len(), own.iter().collect::<HashSet<_>>());
        gathered.nodes.retain(|name, _| own.contains(name));
        gathered.has_news |= before != gathered.nodes.len() || gathered.elsewhere != elsewhere;
        gathered.elsewhere = elsewhere;
    }
}

impl Gathered {
    /// What a node told that was asked `at` this time; `None`: it did not answer.
    fn take_in(&mut self, name: &str, told: Option<NodeReply>, at: Timestamp) {
        let node = self.nodes.entry(name.to_owned()).or_default();
        let how = match told {
            Some(NodeReply::Watch(Decisions { decisions, seen, last, since_ms })) => {
                if node.node_since_ms != since_ms {
                    // A watch of before had ended, and what came between the two was not seen.
                    (node.node_since_ms, node.since_ms) = (since_ms, at.as_millisecond());
                    self.has_news = true;
                }
                node.after = last;
                self.has_news |= seen > 0;
                // Whatever a node says, numbers only grow.
                let seen = seen.min(u32::MAX.into());
                self.last += seen.saturating_sub(decisions.len() as u64);
                for decision in decisions {
                    self.last += 1;
                    self.rows.push_back(Row { number: self.last, node: name.to_owned(), decision });
                }
                self.rows.drain(..self.rows.len().saturating_sub(KEPT_MAX));
                How::Sees
            }
            Some(NodeReply::Failed { why }) => How::Fails(why),
            _ => How::Silent,
        };
        self.has_news |= node.how != how;
        node.how = how;
    }

    /// Since when all is seen, and of which nodes it is not.
    fn state(&self, watch: &Watch) -> Value {
        let seen = self.nodes.iter().filter(|(_, node)| node.how == How::Sees);
        let nodes: BTreeMap<&str, i64> = seen.map(|(name, node)| (name.as_str(), node.since_ms)).collect();
        let silent = self.nodes.iter().filter(|(_, node)| node.how == How::Silent).map(|(name, _)| name);
        let silent: Vec<&String> = silent.chain(&self.elsewhere).collect();
        let failed = self.nodes.iter().filter_map(|(name, node)| match &node.how {
            How::Fails(why) => Some((name.as_str(), why.as_str())),
            How::Asked | How::Sees | How::Silent => None,
        });
        let failed: BTreeMap<&str, &str> = failed.collect();
        let since_ms = watch.since.as_millisecond();
        json!({ "who": watch.who, "since_ms": since_ms, "nodes": nodes, "silent": silent, "failed": failed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(count: u64, seen: u64, last: u64, since_ms: u64) -> NodeReply {
        let decision = |at_ms| SeenDecision {
            at_ms,
            allowed: true,
            limit_id: None,
            remaining: None,
            identities: Vec::new(),
            endpoint: None,
            method: None,
            cost: Some(1),
        };
        NodeReply::Watch(Decisions { decisions: (0..count).map(decision).collect(), seen, last, since_ms })
    }

    fn looking() -> Looking {
        let who = QueryIdentity { kind: "user".to_owned(), value: "ada".to_owned() };
        let (name, since, news) = ("a".to_owned(), Timestamp::UNIX_EPOCH, Sender::new(()));
        let (gathered, readers) = (Mutex::default(), Mutex::default());
        Looking::new(Arc::new(Watch { who, name, since, gathered, news, readers }), "ana")
    }

    #[test]
    fn decisions_are_numbered_over_all_nodes_and_what_is_missed_is_counted() {
        let mut looking = looking();
        let at = |second| Timestamp::from_second(second).expect("an instant");
        let take_in = |looking: &Looking, node: &str, told| looking.watch.gathered().take_in(node, Some(told), at(5));
        take_in(&looking, "a", told(2, 2, 2, 7));
        take_in(&looking, "b", told(1, 4, 4, 8));
        let events = looking.news();
        assert_eq!((events.len(), events[0].0, events[1].0), (2, "key", "decision"));
        assert_eq!(events[0].1["nodes"], json!({ "a": 5_000, "b": 5_000 }));
        let numbers = |event: &Value| {
            let rows = event["decisions"].as_array().expect("a list").iter();
            rows.map(|row| row["number"].as_u64().expect("a number")).collect::<Vec<_>>()
        };
        assert_eq!((numbers(&events[1].1), &events[1].1["missed"]), (vec![1, 2, 6], &json!(3)));
        assert!(looking.news().is_empty());
        // The newest are kept.
        take_in(&looking, "a", told(60, 60, 62, 7));
        let events = looking.news();
        assert_eq!((events.len(), numbers(&events[0].1).len(), &events[0].1["missed"]), (1, KEPT_MAX, &json!(10)));
        assert_eq!(numbers(&events[0].1).last(), Some(&66));
        assert_eq!(looking.watch.gathered().nodes["a"].after, 62);
    }

    #[test]
    fn of_which_nodes_not_all_is_seen_is_told() {
        let mut looking = looking();
        let at = |second| Timestamp::from_second(second).expect("an instant");
        looking.watch.gathered().take_in("a", Some(told(0, 0, 0, 7)), at(5));
        looking.watch.gathered().take_in("b", None, at(5));
        looking.watch.gathered().take_in("c", Some(NodeReply::Failed { why: "so".to_owned() }), at(5));
        looking.watch.knows(&["a", "b", "c"].map(str::to_owned), vec!["d".to_owned()]);
        let state = looking.news().remove(0).1;
        assert_eq!(
            (&state["nodes"], &state["silent"], &state["failed"]),
            (&json!({ "a": 5_000 }), &json!(["b", "d"]), &json!({ "c": "so" }))
        );
        // A node that started again sees what comes from then on.
        looking.watch.gathered().take_in("a", Some(told(1, 1, 1, 9)), at(8));
        looking.watch.gathered().take_in("b", Some(told(0, 0, 0, 9)), at(8));
        looking.watch.knows(&["a", "b"].map(str::to_owned), Vec::new());
        let state = looking.news().remove(0).1;
        assert_eq!((&state["nodes"], &state["silent"]), (&json!({ "a": 8_000, "b": 8_000 }), &json!([])));
    }
}
