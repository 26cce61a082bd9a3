//! The sliding window counter's step against a slow, exact model and its stated bounds.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use tidegate::{
    algorithm::{Carry, Meter, SlidingWindowCounter},
    internals::{Receipt, Verdict},
};

const SECOND: u64 = 1_000_000_000;
/// The beginning of a minute and of a day in 2026.
const NOW: u64 = 1_790_035_200 * SECOND;

/// The counts of all windows: a slow model that forgets nothing.
#[derive(Default)]
struct Model {
    windows: BTreeMap<u64, u64>,
}

impl Model {
    /// Returns what is used at `now`, exactly, as a fraction of `period`.
    fn used(&self, now: u64, period: u64) -> u128 {
        let window = now / period;
        let count = |window| u128::from(self.windows.get(&window).copied().unwrap_or(0));
        let left = u128::from((window + 1) * period - now);
        count(window) * u128::from(period) + count(window.wrapping_sub(1)) * left
    }
}

fn limits() -> impl Strategy<Value = u64> {
    prop_oneof![1..20u64, 1..1u64 << 14, 1..=1u64 << 20]
}

/// Calls: share of a period since the last one, in 1/1,000, and share of the limit, in 1/100.
fn calls() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec(
        (prop_oneof![Just(0), 0..100u64, 0..2_500u64], prop_oneof![Just(0), 0..40u64, 0..=110u64]),
        1..80,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn it_decides_as_the_exact_model_or_a_little_stricter(
        limit in limits(), seconds in prop_oneof![1..100u64, 1..=366 * 86_400u64], offset: u64, calls in calls(),
    ) {
        let period = seconds * SECOND;
        let meter = Meter::SlidingWindowCounter(SlidingWindowCounter::new(limit, Duration::from_nanos(period)).expect("fits"));
        let (mut word, mut now, mut model) = (0, NOW + offset % period, Model::default());
        for (gap, share) in calls {
            now += (u128::from(period) * u128::from(gap) / 1_000) as u64;
            let cost = (limit * share / 100).max(1);
            let fits = model.used(now, period) + u128::from(cost) * u128::from(period) <= u128::from(limit) * u128::from(period);
            match meter.step(word, now, cost) {
                Verdict::Admit(after) => {
                    prop_assert!(fits, "{cost} of {limit} was admitted over the model");
                    *model.windows.entry(now / period).or_default() += cost;
                    word = after;
                }
                Verdict::Later { wait_ns } => {
                    prop_assert!(cost <= limit && wait_ns >= 1);
                    // Exact up to 2^14; above, at most 0.4 % of the limit is counted too much.
                    let slack = if limit < 1 << 14 { 0 } else { u128::from(limit) * u128::from(period) / 250 };
                    let used = model.used(now, period) + u128::from(cost) * u128::from(period) + slack;
                    prop_assert!(used > u128::from(limit) * u128::from(period), "{cost} of {limit} was refused under the model");
                    let admitted = |now| matches!(meter.step(word, now, cost), Verdict::Admit(_));
                    prop_assert!(admitted(now + wait_ns), "waiting as told is enough");
                    prop_assert!(!admitted(now + wait_ns - 1), "nothing shorter is");
                }
                Verdict::Never => prop_assert!(cost > limit),
            }
            let remaining = meter.remaining(word, now);
            prop_assert!(remaining == 0 || matches!(meter.step(word, now, remaining), Verdict::Admit(_)));
            prop_assert!(!matches!(meter.step(word, now, remaining + 1), Verdict::Admit(_)));
            let reset = meter.reset_after_ns(word, now);
            prop_assert_eq!(meter.remaining(word, now + reset), limit);
            prop_assert!(reset == 0 || word >= now + reset, "a live bucket looks idle");
        }
    }

    /// Fewer than twice the limit in any interval of a period; at most the limit in an aligned window.
    #[test]
    fn it_never_admits_more_than_its_bound(limit in 1..50u64, gaps in prop::collection::vec(0..400u64, 1..300)) {
        let meter = Meter::SlidingWindowCounter(SlidingWindowCounter::new(limit, Duration::from_secs(1)).expect("fits"));
        let (mut word, mut now, mut admitted) = (0, NOW, Vec::new());
        for gap in gaps {
            now += gap * 1_000_000;
            if let Verdict::Admit(after) = meter.step(word, now, 1) {
                word = after;
                admitted.push(now);
            }
        }
        for (place, &from) in admitted.iter().enumerate() {
            let within = admitted[place..].iter().take_while(|at| **at - from < SECOND).count() as u64;
            prop_assert!(within < 2 * limit || limit == 1 && within <= 1 || within <= limit);
            let aligned = admitted[place..].iter().take_while(|at| **at / SECOND == from / SECOND).count() as u64;
            prop_assert!(aligned <= limit);
        }
    }

    /// Charges and refunds come in any order: the charges that were not given back keep the model's bound.
    #[test]
    fn giving_back_never_mints(
        limit in limits(), events in prop::collection::vec((0..700u64, 1..=60u64, any::<prop::sample::Index>(), any::<bool>()), 1..60),
    ) {
        let meter = Meter::SlidingWindowCounter(SlidingWindowCounter::new(limit, Duration::from_secs(1)).expect("fits"));
        let (mut word, mut now, mut standing, mut model) = (0, NOW, Vec::<Receipt>::new(), Model::default());
        for (gap, share, pick, give) in events {
            now += gap * 1_000_000;
            let cost = (limit * share / 100).max(1);
            if give && !standing.is_empty() {
                let receipt = standing.remove(pick.index(standing.len()));
                word = meter.give_back(word, now, &receipt).unwrap_or(word);
                *model.windows.get_mut(&(receipt.charged_at / SECOND)).expect("charged") -= receipt.cost;
            } else if let Verdict::Admit(after) = meter.step(word, now, cost) {
                word = after;
                standing.push(Receipt { cost, charged_at: now, word, moved_ns: u64::MAX });
                *model.windows.entry(now / SECOND).or_default() += cost;
            }
            let left = u128::from(limit) * u128::from(SECOND) - model.used(now, SECOND).min(u128::from(limit) * u128::from(SECOND));
            prop_assert!(u128::from(meter.remaining(word, now)) * u128::from(SECOND) <= left, "more remains than is left");
        }
    }

    /// The same windows under another limit keep both counts.
    #[test]
    fn a_new_limit_keeps_what_was_used(old in limits(), new in limits(), first in 0..=100u64, second in 0..=100u64, at in 0..1_000u64) {
        let meter = |limit| Meter::SlidingWindowCounter(SlidingWindowCounter::new(limit, Duration::from_secs(1)).expect("fits"));
        let (from, to) = (meter(old), meter(new));
        let mut word = 0;
        for (now, share) in [(NOW, first), (NOW + SECOND, second)] {
            if let Verdict::Admit(after) = from.step(word, now, (old * share / 100).max(1)) {
                word = after;
            }
        }
        let now = NOW + SECOND + at * 1_000_000;
        let used = old - from.remaining(word, now);
        let carried = from.carry_over(word, now, &to, Carry::Keep);
        let remaining = to.remaining(carried, now);
        // What was used, but for what is above the new limit and what either limit rounds.
        let (least, slack) = (used.min(new), old / 250 + new / 250 + 2);
        prop_assert!(old > new || remaining <= new - least + slack, "{remaining} of {new} with {used} used");
        prop_assert!(remaining + used + slack >= new, "{remaining} of {new} with {used} used");
    }
}

#[test]
fn a_burst_at_a_boundary_is_not_forgotten() {
    let meter = Meter::SlidingWindowCounter(SlidingWindowCounter::new(100, Duration::from_mins(1)).expect("fits"));
    let end = NOW + 60 * SECOND;
    let Verdict::Admit(word) = meter.step(0, end - 1, 100) else { panic!("an empty window refused") };
    assert_eq!(meter.step(word, end, 1), Verdict::Later { wait_ns: 60 * SECOND / 100 });
    assert_eq!(meter.remaining(word, end + 30 * SECOND), 50);
    assert_eq!(meter.reset_after_ns(word, end + 30 * SECOND), 30 * SECOND);
}

#[test]
fn time_going_backwards_mints_nothing() {
    let meter = Meter::SlidingWindowCounter(SlidingWindowCounter::new(3, Duration::from_mins(1)).expect("fits"));
    let Verdict::Admit(word) = meter.step(0, NOW, 3) else { panic!("an empty window refused") };
    for back in [1, SECOND, 61 * SECOND, 121 * SECOND, NOW] {
        assert!(!matches!(meter.step(word, NOW - back, 1), Verdict::Admit(_)), "{back} ns back");
    }
}
