//! Reads what an engine counted from second to second: all decisions together, those of limits, and those of tiers and
//! rules, each request once.

use std::collections::{HashMap, HashSet};

use tidegate::{Counts, Engine, LimitIndex, Totals};

use crate::counts::{
    owner::owner_of,
    sampler::Sample,
    totals::{Part, Whole},
};

/// Ticks for which a limit is still read that a publish took away: checks that had begun may count a little later.
const LINGERING: u64 = 3;

/// What was counted until now.
#[derive(Debug, Default)]
pub struct Counters {
    ticks: u64,
    totals: Totals,
    /// Every limit that there was.
    limits: HashMap<LimitIndex, Known>,
    /// By full name, the first limit that was seen of each tier and rule: it stands for the whole.
    owners: HashMap<Box<str>, LimitIndex>,
    /// What tiers and rules counted since the engine was made, and of that what was not told yet.
    sums: HashMap<LimitIndex, [Part; 2]>,
}

#[derive(Debug)]
struct Known {
    counts: Counts,
    owner: Option<LimitIndex>,
    /// Tick at which the policy had it last.
    present: u64,
}

/// What was counted since the time before.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// All decisions.
    pub whole: Whole,
    /// The limits of the present policy, in its order.
    pub present: Vec<Figure>,
    /// Their tiers and rules, by the limit that stands for each, in the same order.
    pub owners: Vec<Figure>,
    /// Limits that the policy does not have any more.
    pub gone: Vec<Figure>,
    /// Tiers and rules of those alone.
    pub gone_owners: Vec<Figure>,
}

/// Of one limit, tier or rule.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// The limit; of a tier or a rule, the one that stands for it.
    pub limit: LimitIndex,
    /// Since the engine was made.
    pub all: Part,
    /// Of that, since the time before.
    pub new: Part,
}

impl Counters {
    /// What `engine` counted since the call before, or since it was made; `sample`: what was seen in that time.
    pub fn count<A>(&mut self, engine: &Engine, sample: &Sample<A>) -> Counted {
        self.ticks += 1;
        let totals = engine.totals();
        let before = std::mem::replace(&mut self.totals, totals);
        let whole = Whole {
            allowed: totals.allowed.saturating_sub(before.allowed),
            denied: totals.denied.saturating_sub(before.denied),
            no_limit: totals.no_limit.saturating_sub(before.no_limit),
            unknown_domain: totals.unknown_domain.saturating_sub(before.unknown_domain),
            degraded: sample.degraded,
            latency: sample.latency.clone(),
        };
        let counts = engine.limit_counts();
        let present = counts.into_iter().map(|(limit, counts)| self.count_limit(engine, limit, counts, true)).collect();
        let is_gone = |known: &Known| known.present < self.ticks && known.present + LINGERING >= self.ticks;
        let gone = self.limits.iter().filter(|(_, known)| is_gone(known)).map(|(&limit, _)| limit);
        let gone: Vec<LimitIndex> = gone.collect();
        let gone = gone.into_iter().filter_map(|limit| {
            let counts = engine.counts(limit)?;
            Some(self.count_limit(engine, limit, counts, false))
        });
        let gone = gone.collect();
        let mut counted = Counted { whole, present, gone, ..Counted::default() };
        self.count_owners(&mut counted);
        counted
    }

    /// Knows the limits of the present policy from now on, and so its tiers and rules.
    pub fn meet(&mut self, engine: &Engine) {
        for (limit, _) in engine.limit_counts() {
            self.known(engine, limit);
        }
    }

    /// The limit that stands for a tier or a rule, by its full name, if it is known.
    #[must_use]
    pub fn owner(&self, full_name: &str) -> Option<LimitIndex> {
        self.owners.get(full_name).copied()
    }

    fn known(&mut self, engine: &Engine, limit: LimitIndex) -> &mut Known {
        let (owners, ticks) = (&mut self.owners, self.ticks);
        self.limits.entry(limit).or_insert_with(|| {
            let owner = owner_of(engine.limit_name(limit));
            let owner = owner.map(|owner| *owners.entry(owner.into()).or_insert(limit));
            Known { counts: Counts::default(), owner, present: ticks }
        })
    }

    fn count_limit(&mut self, engine: &Engine, limit: LimitIndex, counts: Counts, is_present: bool) -> Figure {
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
        let part = |Counts { allowed, denied, shadow_denied, .. }| Part { allowed, denied, shadow_denied };
        Figure { limit, all: part(counts), new: part(counts).since(part(before)) }
    }

    /// Of all whose limits were counted just now, each once.
    fn count_owners(&mut self, counted: &mut Counted) {
        let mut told_of = HashSet::new();
        for (limits, told) in [(&counted.present, &mut counted.owners), (&counted.gone, &mut counted.gone_owners)] {
            let owners = limits.iter().filter_map(|figure| self.limits.get(&figure.limit)?.owner);
            for owner in owners.filter(|owner| told_of.insert(*owner)) {
                let [all, new] = self.sums.entry(owner).or_default();
                told.push(Figure { limit: owner, all: *all, new: std::mem::take(new) });
            }
        }
    }
}

impl Counted {
    /// Limits that decided something.
    #[must_use]
    pub fn busy_limits(&self) -> Vec<(LimitIndex, Part)> {
        busy(&self.present, &self.gone)
    }

    /// How often shadows would have refused a request.
    #[must_use]
    pub fn shadow_denied(&self) -> u64 {
        self.present.iter().chain(&self.gone).map(|figure| figure.new.shadow_denied).sum()
    }

    /// Tiers and rules that did, by the limit that stands for each.
    #[must_use]
    pub fn busy_owners(&self) -> Vec<(LimitIndex, Part)> {
        busy(&self.owners, &self.gone_owners)
    }
}

fn busy(present: &[Figure], gone: &[Figure]) -> Vec<(LimitIndex, Part)> {
    let new = present.iter().chain(gone).map(|figure| (figure.limit, figure.new));
    new.filter(|(_, part)| !part.is_nothing()).collect()
}

/// What a limit adds to its tier or rule: requests that it let pass, refused, and would have refused, each once.
fn of_owner(Counts { denied, owner_allowed, owner_shadow_denied, .. }: Counts) -> Part {
    Part { allowed: owner_allowed, denied, shadow_denied: owner_shadow_denied }
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

    /// A tier whose limits come and go counts each request once, in the second in which it came.
    #[test]
    fn a_tier_has_each_request_once_while_its_limits_change() {
        let engine = Engine::with_max_keys(1_000);
        let both = [Identity::new("user", "ada").expect("valid"), Identity::new("ip", "::1").expect("valid")];
        let check = |times: usize| {
            for _ in 0..times {
                let _ = engine.check(&Request::new(&both).expect("valid"));
            }
        };
        let mut counters = Counters::default();
        let mut second = |engine: &Engine| -> Vec<(String, Part)> {
            let counted = counters.count(engine, &Sample::<()>::default());
            let owners = counted.busy_owners().into_iter();
            owners
                .map(|(limit, part)| (owner_of(engine.limit_name(limit)).unwrap_or_default().to_owned(), part))
                .collect()
        };
        let free = |allowed, denied| vec![("default/tier:free".to_owned(), Part { allowed, denied, shadow_denied: 0 })];
        engine.publish(policy(&["minute", "day"])).expect("few limits");
        check(5);
        assert_eq!(second(&engine), free(5, 0));
        // One goes and another comes, within a second.
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
