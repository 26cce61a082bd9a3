//! The last quarter of an hour, second by second, in memory, of this node and of those that tell it what they counted; and
//! the minute that runs, until it is over.

use std::{
    cmp::Reverse,
    collections::{HashMap, VecDeque},
    mem,
    ops::Range,
    sync::Arc,
};

use tidegate::LimitIndex;
use tidegate_fleet::owner_of;

use crate::{
    domain::metric_types::{DecisionTotals, LimitTotals, MINUTE, Minute, PARTS_MAX, Parts, Span},
    metrics::sums::Sums,
};

/// Seconds that are kept: a quarter of an hour. Each takes about 1,000 bytes, and 16 for each limit, tier and rule that
/// decided in it.
pub(crate) const SECONDS: i64 = 900;
/// Seconds of other nodes that are kept, all together.
const OTHERS_MAX: usize = 20_000;

/// One second.
#[derive(Debug)]
pub(crate) struct Second {
    /// The node that counted it; `None`: this one.
    pub(crate) node: Option<Arc<str>>,
    /// Unix seconds when it began.
    pub(crate) at: i64,
    pub(crate) whole: DecisionTotals,
    pub(crate) limits: Busy,
    /// Tiers and rules, each by the limit that stands for it.
    pub(crate) owners: Busy,
}

/// Those that decided something in a second, the first thousand by requests.
#[derive(Debug)]
pub(crate) struct Busy {
    parts: Box<[(LimitIndex, [u32; 3])]>,
    /// Those that are in the whole alone.
    pub(crate) left_out: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Ring {
    /// Of this node.
    seconds: VecDeque<Arc<Second>>,
    running: Running,
    /// Of other nodes, those in which they decided something.
    others: VecDeque<Arc<Second>>,
}

/// The minute that runs, of one node.
#[derive(Debug, Default)]
pub(crate) struct Running {
    /// Unix seconds when it began; `None` before the first second.
    minute: Option<i64>,
    sums: Sums,
}

impl Second {
    fn new(node: Option<Arc<str>>, at: i64, Sums { whole, limits, owners }: Sums) -> Self {
        Self { node, at, whole, limits: Busy::of(limits), owners: Busy::of(owners) }
    }
}

impl Busy {
    pub(crate) fn parts(&self) -> impl Iterator<Item = (LimitIndex, LimitTotals)> {
        let part = |[allowed, denied, shadow_denied]: [u32; 3]| LimitTotals {
            allowed: allowed.into(),
            denied: denied.into(),
            shadow_denied: shadow_denied.into(),
        };
        self.parts.iter().map(move |&(limit, counts)| (limit, part(counts)))
    }

    fn of(parts: HashMap<LimitIndex, LimitTotals>) -> Self {
        let mut parts: Vec<(LimitIndex, LimitTotals)> = parts.into_iter().collect();
        let left_out = parts.len().saturating_sub(PARTS_MAX);
        if left_out > 0 {
            parts.sort_by_key(|(_, part)| Reverse(part.requests()));
            parts.truncate(PARTS_MAX);
        }
        let small = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let counts = |part: LimitTotals| [part.allowed, part.denied, part.shadow_denied].map(small);
        let parts = parts.into_iter().map(|(limit, part)| (limit, counts(part))).collect();
        Self { parts, left_out: left_out as u64 }
    }
}

impl Running {
    /// Adds what was counted in the second that began at `at`; answers the minute before if that is over. A second of an
    /// earlier minute is over it too: the clock was set back, and the store adds up what falls into one minute.
    pub(crate) fn add<'n>(&mut self, at: i64, sums: &Sums, name: impl Fn(LimitIndex) -> &'n str) -> Option<Minute> {
        let minute = at - at.rem_euclid(MINUTE);
        let over = (self.minute != Some(minute)).then(|| self.finish(name)).flatten();
        self.minute = Some(minute);
        self.sums.add(sums);
        over
    }

    /// Ends the running minute before its time, if there is one.
    pub(crate) fn finish<'n>(&mut self, name: impl Fn(LimitIndex) -> &'n str) -> Option<Minute> {
        let at = self.minute.take()?;
        let Sums { whole, limits, owners } = mem::take(&mut self.sums);
        let limits = Parts::of(limits.into_iter().map(|(limit, part)| (name(limit).to_owned(), part)));
        let owners = owners.into_iter();
        let owners = Parts::of(owners.filter_map(|(limit, part)| Some((owner_of(name(limit))?.to_owned(), part))));
        Some(Minute { at, span: Span { whole, limits, owners } })
    }
}

impl Ring {
    /// Adds what this node counted in the second that began at `at`; answers the minute before if that is over.
    pub(crate) fn add<'n>(&mut self, at: i64, sums: Sums, name: impl Fn(LimitIndex) -> &'n str) -> Option<Minute> {
        let over = self.running.add(at, &sums, name);
        if self.seconds.len() == SECONDS as usize {
            self.seconds.pop_front();
        }
        self.seconds.push_back(Arc::new(Second::new(None, at, sums)));
        while self.others.front().is_some_and(|second| second.at <= at - SECONDS) {
            self.others.pop_front();
        }
        over
    }

    /// Adds what another node told about the second that began at `at`.
    pub(crate) fn add_of(&mut self, node: Arc<str>, at: i64, sums: Sums) {
        if self.others.len() == OTHERS_MAX {
            self.others.pop_front();
        }
        self.others.push_back(Arc::new(Second::new(Some(node), at, sums)));
    }

    /// Ends the running minute before its time, if there is one.
    pub(crate) fn finish<'n>(&mut self, name: impl Fn(LimitIndex) -> &'n str) -> Option<Minute> {
        self.running.finish(name)
    }

    /// Those that began in this range of Unix seconds: of this node in the order in which they were added, then of others.
    pub(crate) fn within(&self, range: Range<i64>) -> Vec<Arc<Second>> {
        let all = self.seconds.iter().chain(&self.others);
        all.filter(|second| range.contains(&second.at)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use tidegate::{Engine, Identity, Request, policy::Policy};

    use super::*;

    /// Names of limits are the engine's.
    fn engine() -> (Engine, LimitIndex) {
        let engine = Engine::with_max_keys(10);
        let policy: Policy = serde_json::from_str(
            r#"{"domains": {"default": {"defaults": {"user": "free"}, "tiers": [
                {"id": "free", "limits": [{"id": "minute", "algorithm": "fixed_window", "limit": 3, "period": "1m"}]}
            ]}}}"#,
        )
        .expect("JSON");
        engine.publish(tidegate::Snapshot::compile(&policy).expect("valid")).expect("it fits");
        let who = [Identity::new("user", "ada").expect("valid")];
        assert!(engine.check(&Request::new(&who).expect("valid")).is_allowed());
        let limit = engine.limit_counts()[0].0;
        (engine, limit)
    }

    #[test]
    fn seconds_make_minutes_exactly() {
        let (engine, limit) = engine();
        let name = |limit| engine.limit_name(limit);
        let (mut ring, mut minutes) = (Ring::default(), Vec::new());
        let start = 1_800_000_017;
        for second in 0..200u64 {
            let mut whole = DecisionTotals { allowed: second, denied: 1, ..DecisionTotals::default() };
            whole.latency.count(second * 1_000);
            let part = LimitTotals { allowed: second, denied: 1, shadow_denied: second % 3 };
            let parts = HashMap::from([(limit, part)]);
            let sums = Sums { whole, limits: parts.clone(), owners: parts };
            minutes.extend(ring.add(start + second.cast_signed(), sums, name));
        }
        minutes.extend(ring.finish(name));
        assert!(ring.finish(name).is_none());
        let starts: Vec<i64> = minutes.iter().map(|minute| minute.at).collect();
        assert_eq!(starts, [0, 60, 120, 180].map(|after| 1_800_000_000 + after));
        let counts: Vec<u64> = minutes.iter().map(|minute| minute.span.whole.denied).collect();
        assert_eq!(counts, [43, 60, 60, 37]);
        let second = |second: u64| LimitTotals { allowed: second, denied: 1, shadow_denied: second % 3 };
        let mut sum = LimitTotals::default();
        (43..103).for_each(|number| sum.add(second(number)));
        assert_eq!(minutes[1].span.limits.parts["default/tier:free/minute"], sum);
        assert_eq!(minutes[1].span.owners.parts["default/tier:free"], sum);
        let samples: u64 = minutes.iter().flat_map(|minute| minute.span.whole.latency.buckets()).map(|(_, n)| n).sum();
        assert_eq!(samples, 200);
    }

    #[test]
    fn a_quarter_of_an_hour_is_kept_and_a_clock_that_is_set_back_is_followed() {
        let (engine, limit) = engine();
        let name = |limit| engine.limit_name(limit);
        let mut ring = Ring::default();
        let one = LimitTotals { allowed: 1, ..LimitTotals::default() };
        for second in 0..2 * SECONDS {
            let whole = DecisionTotals { allowed: 1, ..DecisionTotals::default() };
            let sums = Sums { whole, limits: HashMap::from([(limit, one)]), ..Sums::default() };
            let _ = ring.add(second, sums, name);
        }
        let kept: Vec<i64> = ring.within(0..i64::MAX).iter().map(|second| second.at).collect();
        assert_eq!((kept.len(), kept[0]), (SECONDS as usize, SECONDS));
        assert_eq!(ring.within(1_000..1_010).len(), 10);
        // Back by ten minutes: what was counted until then is a minute, and what comes is in one that was before.
        let back = ring.add(1_200, Sums::default(), name).expect("a minute is over");
        assert_eq!((back.at, back.span.whole.allowed), (1_740, 60));
        assert_eq!(ring.within(1_200..1_201).len(), 2);
        assert_eq!(ring.finish(name).expect("one runs").at, 1_200);
    }
}
