//! Reads an engine's counters once a second: the totals of all decisions, and the counts of each limit, tier and rule.
//! A request counts once for each of them.

use std::collections::{HashMap, HashSet};

use tidegate::{Counts, Engine, LimitIndex, Totals};

use crate::counts::{
    limit_owner::owner_of,
    sampler::Sample,
    totals::{DecisionTotals, LimitTotals},
};

/// The ticks for which a limit is still read after a publish removed it: checks that had begun may count a little
/// later.
const LINGERING: u64 = 3;

/// The counters of an engine as they were read last.
#[derive(Debug, Default)]
pub struct Counters {
    ticks: u64,
    totals: Totals,
    /// Every limit that the engine has had.
    limits: HashMap<LimitIndex, TrackedLimit>,
    /// The first limit that was seen of each tier and rule, by the full name of the tier or rule. It stands for the
    /// tier or rule.
    owners: HashMap<Box<str>, LimitIndex>,
    /// The counts of tiers and rules since the engine was made, and the part of them that was not returned yet.
    sums: HashMap<LimitIndex, [LimitTotals; 2]>,
}

#[derive(Debug)]
struct TrackedLimit {
    counts: Counts,
    owner: Option<LimitIndex>,
    /// The tick at which the policy last had the limit.
    present: u64,
}

/// The counts of one interval, from one reading of the counters to the next.
#[derive(Clone, Debug, Default)]
pub struct IntervalCounts {
    /// The totals of all decisions.
    pub whole: DecisionTotals,
    /// The limits of the policy in force, in its order.
    pub present: Vec<CountedLimit>,
    /// The tiers and rules of those limits, in the same order, each by the limit that stands for it.
    pub owners: Vec<CountedLimit>,
    /// The limits that the policy no longer has.
    pub gone: Vec<CountedLimit>,
    /// The tiers and rules that the policy no longer has.
    pub gone_owners: Vec<CountedLimit>,
}

/// The counts of one limit, tier or rule.
#[derive(Clone, Copy, Debug)]
pub struct CountedLimit {
    /// The limit; for a tier or a rule, the limit that stands for it.
    pub limit: LimitIndex,
    /// The counts since the engine was made.
    pub all: LimitTotals,
    /// The counts of the interval.
    pub new: LimitTotals,
}

impl Counters {
    /// Reads the counters of `engine`, and returns what it counted since the last reading. `sample` is the sample of
    /// the same interval.
    pub fn count<A>(&mut self, engine: &Engine, sample: &Sample<A>) -> IntervalCounts {
        self.ticks += 1;
        let totals = engine.totals();
        let before = std::mem::replace(&mut self.totals, totals);
        let whole = DecisionTotals {
            allowed: totals.allowed.saturating_sub(before.allowed),
            denied: totals.denied.saturating_sub(before.denied),
            no_limit: totals.no_limit.saturating_sub(before.no_limit),
            unknown_domain: totals.unknown_domain.saturating_sub(before.unknown_domain),
            degraded: sample.degraded,
            latency: sample.latency.clone(),
        };
        let counts = engine.limit_counts();
        let present = counts.into_iter().map(|(limit, counts)| self.count_limit(engine, limit, counts, true)).collect();
        let is_gone = |known: &TrackedLimit| known.present < self.ticks && known.present + LINGERING >= self.ticks;
        let gone = self.limits.iter().filter(|(_, known)| is_gone(known));
        let gone: Vec<_> = gone.filter_map(|(&limit, _)| Some((limit, engine.counts(limit)?))).collect();
        let gone = gone.into_iter().map(|(limit, counts)| self.count_limit(engine, limit, counts, false)).collect();
        let mut counted = IntervalCounts { whole, present, gone, ..IntervalCounts::default() };
        self.count_owners(&mut counted);
        counted
    }

    /// Registers the limits of the policy in force, with their tiers and rules.
    pub fn meet(&mut self, engine: &Engine) {
        for (limit, _) in engine.limit_counts() {
            self.known(engine, limit);
        }
    }

    /// Returns the limit that stands for a tier or a rule with this full name, if it is known.
    #[must_use]
    pub fn owner(&self, full_name: &str) -> Option<LimitIndex> {
        self.owners.get(full_name).copied()
    }

    fn known(&mut self, engine: &Engine, limit: LimitIndex) -> &mut TrackedLimit {
        let (owners, ticks) = (&mut self.owners, self.ticks);
        self.limits.entry(limit).or_insert_with(|| {
            let owner = owner_of(engine.limit_name(limit));
            let owner = owner.map(|owner| *owners.entry(owner.into()).or_insert(limit));
            TrackedLimit { counts: Counts::default(), owner, present: ticks }
        })
    }

    fn count_limit(&mut self, engine: &Engine, limit: LimitIndex, counts: Counts, is_present: bool) -> CountedLimit {
        let ticks = self.ticks;
        let known = self.known(engine, limit);
        if is_present {
            known.present = ticks;
        }
        let before = std::mem::replace(&mut known.counts, counts);
        if let Some(owner) = known.owner {
            let new = of_owner(counts).since(of_owner(before));
            self.sums.entry(owner).or_default().iter_mut().for_each(|sum| sum.add(new));
        }
        let totals = |Counts { allowed, denied, shadow_denied, .. }| LimitTotals { allowed, denied, shadow_denied };
        CountedLimit { limit, all: totals(counts), new: totals(counts).since(totals(before)) }
    }

    /// Fills in the tiers and rules of the limits of this interval, each once.
    fn count_owners(&mut self, counted: &mut IntervalCounts) {
        let mut seen = HashSet::new();
        for (limits, counted_owners) in
            [(&counted.present, &mut counted.owners), (&counted.gone, &mut counted.gone_owners)]
        {
            let owners = limits.iter().filter_map(|figure| self.limits.get(&figure.limit)?.owner);
            for owner in owners.filter(|owner| seen.insert(*owner)) {
                let [all, new] = self.sums.entry(owner).or_default();
                counted_owners.push(CountedLimit { limit: owner, all: *all, new: std::mem::take(new) });
            }
        }
    }
}

impl IntervalCounts {
    /// Returns the limits that decided a request.
    #[must_use]
    pub fn busy_limits(&self) -> Vec<(LimitIndex, LimitTotals)> {
        busy(&self.present, &self.gone)
    }

    /// Returns how many requests limits in shadow mode would have denied.
    #[must_use]
    pub fn shadow_denied(&self) -> u64 {
        self.present.iter().chain(&self.gone).map(|figure| figure.new.shadow_denied).sum()
    }

    /// Returns the tiers and rules that decided a request, each by the limit that stands for it.
    #[must_use]
    pub fn busy_owners(&self) -> Vec<(LimitIndex, LimitTotals)> {
        busy(&self.owners, &self.gone_owners)
    }
}

fn busy(present: &[CountedLimit], gone: &[CountedLimit]) -> Vec<(LimitIndex, LimitTotals)> {
    let new = present.iter().chain(gone).map(|figure| (figure.limit, figure.new));
    new.filter(|(_, totals)| !totals.is_zero()).collect()
}

/// Returns what a limit adds to its tier or rule: the requests that it allowed, denied, and would have denied, each
/// once.
fn of_owner(Counts { denied, owner_allowed, owner_shadow_denied, .. }: Counts) -> LimitTotals {
    LimitTotals { allowed: owner_allowed, denied, shadow_denied: owner_shadow_denied }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};
    use tidegate::{Identity, Request, Snapshot};

    use super::*;

    fn policy(limits: &[&str]) -> Snapshot {
        let limits = limits.iter().map(|id| {
            let mode = if id.starts_with("try") { "shadow" } else { "enforce" };
            let limit = if *id == "few" { 1 } else { 1_000 };
            json!({ "id": id, "algorithm": "fixed_window", "limit": limit, "period": "1d", "mode": mode })
        });
        let limits: Vec<_> = limits.collect();
        let policy = from_value(json!({ "domains": { "default": {
            "defaults": { "user": "free", "ip": "free" }, "tiers": [{ "id": "free", "limits": limits }],
        } } }));
        Snapshot::compile(&policy.expect("a policy")).expect("a good policy")
    }

    /// A tier whose limits are replaced counts each request once, in the second of the request.
    #[test]
    fn a_tier_counts_each_request_once_while_its_limits_change() {
        let engine = Engine::with_max_keys(1_000);
        let both = [Identity::new("user", "ada").expect("valid"), Identity::new("ip", "::1").expect("valid")];
        let check = |times: usize| {
            for _ in 0..times {
                let _ = engine.check(&Request::new(&both).expect("valid"));
            }
        };
        let mut counters = Counters::default();
        let mut second = |engine: &Engine| -> Vec<(String, LimitTotals)> {
            let counted = counters.count(engine, &Sample::<()>::default());
            let owners = counted.busy_owners().into_iter();
            owners
                .map(|(limit, totals)| (owner_of(engine.limit_name(limit)).unwrap_or_default().to_owned(), totals))
                .collect()
        };
        let free =
            |allowed, denied| vec![("default/tier:free".to_owned(), LimitTotals { allowed, denied, shadow_denied: 0 })];
        engine.publish(policy(&["minute", "day"])).expect("few limits");
        check(5);
        assert_eq!(second(&engine), free(5, 0));
        // One limit is removed and another is added within a second.
        check(3);
        engine.publish(policy(&["day", "hour"])).expect("few limits");
        check(4);
        assert_eq!(second(&engine), free(7, 0));
        check(2);
        engine.publish(policy(&["few"])).expect("few limits");
        check(4);
        assert_eq!(second(&engine), free(3, 3));
        check(1);
        engine.publish(Snapshot::default()).expect("no limits");
        assert_eq!(second(&engine), free(0, 1), "the tier is gone, and what it did is not");
        assert_eq!(second(&engine), []);
        engine.publish(policy(&["minute"])).expect("few limits");
        check(2);
        assert_eq!(second(&engine), free(2, 0), "what was counted before is not counted again");
    }
}
