//! The pure steps against a slow, exact model, and each rule that limiters get wrong as a test of its own.

use std::time::Duration;

use proptest::prelude::*;
use tidegate::{
    algorithm::{Carry, FixedWindow, Meter, NUMBER_MAX, SlidingWindowCounter, SlidingWindowLog, TokenBucket},
    internals::{Receipt, Verdict},
};

const SECOND: u64 = 1_000_000_000;
/// Somewhere in 2026.
const NOW: u64 = 1_790_000_000 * SECOND;

fn bucket(limit: u64, period_ns: u64, burst: u64) -> Meter {
    Meter::TokenBucket(TokenBucket::new(limit, Duration::from_nanos(period_ns), burst).expect("fits"))
}

fn window(limit: u64, period_ns: u64) -> Meter {
    Meter::FixedWindow(FixedWindow::new(limit, Duration::from_nanos(period_ns)).expect("fits"))
}

fn sliding(limit: u64, period_ns: u64) -> Meter {
    Meter::SlidingWindowCounter(SlidingWindowCounter::new(limit, Duration::from_nanos(period_ns)).expect("fits"))
}

/// A bucket or window with its word, as a user would hold it.
struct MeteredWord {
    meter: Meter,
    word: u64,
}

impl MeteredWord {
    fn new(meter: Meter) -> Self {
        Self { meter, word: 0 }
    }

    fn charge(&mut self, now: u64, cost: u64) -> Verdict {
        let verdict = self.meter.step(self.word, now, cost);
        if let Verdict::Admit(word) = verdict {
            self.word = word;
        }
        verdict
    }

    fn admits(&mut self, now: u64, cost: u64) -> bool {
        matches!(self.charge(now, cost), Verdict::Admit(_))
    }
}

/// Every admission, and the bound checked over every interval by brute force, in exact arithmetic.
struct Admissions(Vec<(u64, u64)>);

impl Admissions {
    /// At most `burst + limit * t / period` in any interval of length t.
    fn assert_token_bound(&self, limit: u64, period_ns: u64, burst: u64) {
        for first in 0..self.0.len() {
            let mut sum = 0u128;
            for &(at, cost) in &self.0[first..] {
                sum += u128::from(cost);
                let t = u128::from(at - self.0[first].0);
                // sum <= b + n*t/p, without a division.
                let excess = sum.saturating_sub(u128::from(burst)) * u128::from(period_ns);
                assert!(
                    excess <= u128::from(limit) * t,
                    "{sum} in {t} ns at {limit} per {period_ns} ns, burst {burst}"
                );
            }
        }
    }
}

/// Small, human and extreme rates.
fn rates() -> impl Strategy<Value = (u64, u64)> {
    let limit = prop_oneof![1..20u64, 1..2_000u64, 1..3_000_000_000u64, 1..=NUMBER_MAX];
    let period = prop_oneof![Just(1_000_000u64), Just(SECOND), Just(60 * SECOND), 1_000_000..=366 * 86_400 * SECOND];
    (limit, period)
}

fn bursts() -> impl Strategy<Value = u64> {
    prop_oneof![1..5u64, 1..2_000u64, 1..=NUMBER_MAX]
}

/// 1, `max`, and what is between.
fn up_to(max: u64) -> impl Strategy<Value = u64> {
    prop_oneof![Just(1), Just(max), 1..=max, 1..=max.min(1 << 24)]
}

/// Calls: nanoseconds since the last one, and cost.
fn calls() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let gap = prop_oneof![Just(0u64), 0..100u64, 0..2_000_000u64, 0..3 * SECOND, 0..u64::MAX / 1_000];
    let cost = prop_oneof![Just(1u64), 1..5u64, 1..2_000u64, 1..=NUMBER_MAX];
    prop::collection::vec((gap, cost), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_token_bucket_never_admits_more_than_its_bound((limit, period) in rates(), burst in bursts(), calls in calls()) {
        let Ok(bucket) = TokenBucket::new(limit, Duration::from_nanos(period), burst) else { return Ok(()) };
        let mut held = MeteredWord::new(Meter::TokenBucket(bucket));
        let (mut now, mut admitted) = (NOW, Admissions(Vec::new()));
        for (gap, cost) in calls {
            now = now.saturating_add(gap);
            let before = held.word;
            match held.charge(now, cost) {
                Verdict::Admit(_) => admitted.0.push((now, cost)),
                Verdict::Later { wait_ns } => {
                    prop_assert_eq!(held.word, before);
                    prop_assert!(wait_ns >= 1 && cost <= burst);
                    // Waiting exactly that long is enough, and nothing shorter is.
                    prop_assert!(matches!(held.meter.step(before, now + wait_ns, cost), Verdict::Admit(_)));
                    let refused_before = matches!(held.meter.step(before, now + wait_ns - 1, cost), Verdict::Later { .. });
                    prop_assert!(refused_before);
                }
                Verdict::Never => prop_assert!(cost > burst && held.word == before),
            }
        }
        admitted.assert_token_bound(limit, period, burst);
    }

    /// The slow, exact model: tokens are counted in units of 1/period, and come back `limit` units a nanosecond. Where a
    /// token takes whole nanoseconds the bucket decides the same; elsewhere it never admits what the model would refuse.
    #[test]
    fn a_token_bucket_decides_as_the_exact_model((limit, period) in rates(), burst in bursts(), calls in calls()) {
        let Ok(bucket) = TokenBucket::new(limit, Duration::from_nanos(period), burst) else { return Ok(()) };
        let mut held = MeteredWord::new(Meter::TokenBucket(bucket));
        let (unit, full) = (u128::from(period), u128::from(burst) * u128::from(period));
        let (mut now, mut available) = (NOW, full);
        for (gap, cost) in calls {
            now = now.saturating_add(gap);
            available = full.min(available.saturating_add(u128::from(gap).saturating_mul(u128::from(limit))));
            let needed = u128::from(cost) * unit;
            let is_admitted = held.admits(now, cost);
            prop_assert!(!is_admitted || needed <= available, "admitted {} with {} of {}", cost, available / unit, burst);
            if period.is_multiple_of(limit) {
                prop_assert_eq!(is_admitted, needed <= available);
                prop_assert_eq!(u128::from(held.meter.remaining(held.word, now)), (available - if is_admitted { needed } else { 0 }) / unit);
            }
            available -= if is_admitted { needed } else { 0 };
        }
    }

    #[test]
    fn remaining_is_the_largest_cost_that_is_admitted((limit, period) in rates(), burst in bursts(), calls in calls()) {
        let Ok(bucket) = TokenBucket::new(limit, Duration::from_nanos(period), burst) else { return Ok(()) };
        let mut held = MeteredWord::new(Meter::TokenBucket(bucket));
        let mut now = NOW;
        for (gap, cost) in calls {
            now = now.saturating_add(gap);
            let _ = held.charge(now, cost);
            let remaining = held.meter.remaining(held.word, now);
            prop_assert!(remaining <= burst);
            if remaining > 0 {
                prop_assert!(matches!(held.meter.step(held.word, now, remaining), Verdict::Admit(_)));
            }
            prop_assert!(!matches!(held.meter.step(held.word, now, remaining + 1), Verdict::Admit(_)));
            let reset = held.meter.reset_after_ns(held.word, now);
            prop_assert_eq!(held.meter.remaining(held.word, now.saturating_add(reset)), burst);
        }
    }

    /// Up to a million tokens a second, a burst is exact however it is split.
    #[test]
    fn a_burst_is_exact_in_zero_time_however_it_is_split(
        limit in 1..=1_000_000u64, burst in 1..3_000u64, costs in prop::collection::vec(1..50u64, 1..3_000),
    ) {
        let mut held = MeteredWord::new(bucket(limit, SECOND, burst));
        let mut left = burst;
        for cost in costs {
            prop_assert_eq!(held.admits(NOW, cost), cost <= left);
            left -= if cost <= left { cost } else { 0 };
        }
        prop_assert_eq!(held.meter.remaining(held.word, NOW), left);
    }

    /// Below by at most a nanosecond per token up to a million a second, and per call above.
    #[test]
    fn the_under_admission_is_as_small_as_stated((limit, period) in rates(), cost in 1..1_000u64) {
        let Ok(one) = TokenBucket::new(limit, Duration::from_nanos(period), cost) else { return Ok(()) };
        let Verdict::Admit(word) = Meter::TokenBucket(one).step(0, NOW, cost) else { panic!("a full bucket refused its burst") };
        let exact_ns = |tokens: u64| u128::from(tokens) * u128::from(period) / u128::from(limit);
        let (taken, exact) = (u128::from(word - NOW), exact_ns(cost));
        prop_assert!(taken >= exact);
        let allowed = if exact_ns(1) >= 1_000 { u128::from(cost) } else { 2 };
        prop_assert!(taken - exact <= allowed, "{} ns instead of {}", taken, exact);
    }

    #[test]
    fn a_window_admits_at_most_its_limit_per_window(
        limit in prop_oneof![1..20u64, 1..=1u64 << 24], seconds in prop_oneof![1..10u64, 1..=366 * 86_400u64], calls in calls(),
    ) {
        let period = seconds * SECOND;
        let mut held = MeteredWord::new(window(limit, period));
        let (mut now, mut used) = (NOW, std::collections::HashMap::<u64, u64>::new());
        for (gap, cost) in calls {
            now = now.saturating_add(gap);
            let count = used.entry(now / period).or_default();
            let fits = cost <= limit - *count;
            match held.charge(now, cost) {
                Verdict::Admit(_) => { prop_assert!(fits); *count += cost; }
                Verdict::Later { wait_ns } => {
                    prop_assert!(!fits && cost <= limit && wait_ns >= 1);
                    let then = now.saturating_add(wait_ns);
                    prop_assert!(then == u64::MAX || matches!(held.meter.step(held.word, then, cost), Verdict::Admit(_)));
                }
                Verdict::Never => prop_assert!(cost > limit),
            }
            prop_assert_eq!(held.meter.remaining(held.word, now), limit - *count);
        }
    }

    /// Charges and give-backs in any order: those not given back keep the bound.
    #[test]
    fn giving_back_never_mints(
        limit in 1..50u64, burst in 1..1_000u64,
        events in prop::collection::vec((0..SECOND / 4, 1..200u64, any::<prop::sample::Index>(), any::<bool>()), 1..60),
    ) {
        let mut held = MeteredWord::new(bucket(limit, SECOND, burst));
        let (mut now, mut standing) = (NOW, Vec::<Receipt>::new());
        for (gap, cost, pick, give) in events {
            now += gap;
            if give && !standing.is_empty() {
                let receipt = standing.remove(pick.index(standing.len()));
                held.word = held.meter.give_back(held.word, now, &receipt).unwrap_or(held.word);
            } else if held.admits(now, cost) {
                standing.push(Receipt { cost, charged_at: now, word: held.word, moved_ns: u64::MAX });
            }
        }
        Admissions(standing.iter().map(|receipt| (receipt.charged_at, receipt.cost)).collect())
            .assert_token_bound(limit, SECOND, burst);
    }

    /// Against the exact model, in which tokens are counted in units of 1/period, and those that are owed are below 0.
    #[test]
    fn an_overcharge_leaves_no_larger_debt_than_it_may(
        (limit, period) in rates(), burst in bursts(), max_debt in prop_oneof![0..50u64, 0..=NUMBER_MAX], calls in calls(),
    ) {
        let Ok(bucket) = TokenBucket::new(limit, Duration::from_nanos(period), burst) else { return Ok(()) };
        let unit = i128::from(period);
        let full = i128::from(burst) * unit;
        let by_token = period.is_multiple_of(limit) || period / limit >= 1_000;
        let debt_ns = if by_token {
            u128::from(max_debt) * u128::from(period.div_ceil(limit))
        } else {
            u128::from(max_debt) * u128::from(period) / u128::from(limit)
        };
        for meter in [Meter::TokenBucket(bucket), Meter::LeakyBucket(bucket)] {
            let mut held = MeteredWord::new(meter);
            let (mut now, mut available) = (NOW, full);
            for &(gap, cost) in &calls {
                now = now.saturating_add(gap);
                available = full.min(available + i128::from(gap) * i128::from(limit));
                if held.admits(now, cost) {
                    available -= i128::from(cost) * unit;
                }
                let (before, room) = (held.word, meter.debt_room(held.word, now, max_debt));
                if period.is_multiple_of(limit) {
                    let fits = (available + i128::from(max_debt) * unit).max(0) / unit;
                    prop_assert_eq!(i128::from(room), fits);
                }
                held.word = meter.overcharge(before, now, cost.min(room));
                available -= i128::from(cost.min(room)) * unit;
                prop_assert!(held.word >= before, "what is owed stays owed");
                let owed_ns = u128::from(held.word.saturating_sub(now));
                let most_ns = u128::from(meter.period_ns()) + debt_ns;
                prop_assert!(owed_ns <= most_ns.max(u128::from(before.saturating_sub(now))), "{} of {}", owed_ns, most_ns);
                if held.word == u64::MAX {
                    // The debt is longer than a word can hold.
                    break;
                }
            }
        }
    }

    /// Nothing panics, with every number at any value.
    #[test]
    fn extremes_saturate(
        (limit, burst, cost) in (up_to(NUMBER_MAX), up_to(NUMBER_MAX), up_to(NUMBER_MAX)),
        period in up_to(366 * 86_400 * SECOND),
        (word, now, charged_at, receipt_word) in (up_to(u64::MAX), up_to(u64::MAX), up_to(u64::MAX), up_to(u64::MAX)),
    ) {
        let meters = [
            TokenBucket::new(limit, Duration::from_nanos(period), burst).ok().map(Meter::TokenBucket),
            TokenBucket::new(limit, Duration::from_nanos(period), burst).ok().map(Meter::LeakyBucket),
            FixedWindow::new(limit, Duration::from_nanos(period - period % SECOND)).ok().map(Meter::FixedWindow),
            SlidingWindowCounter::new(limit, Duration::from_nanos(period - period % SECOND)).ok().map(Meter::SlidingWindowCounter),
        ];
        for meter in meters.iter().flatten() {
            for now in [now, 0, u64::MAX] {
                let _ = meter.step(word, now, cost);
                let _ = meter.remaining(word, now);
                let _ = meter.reset_after_ns(word, now);
                let _ = meter.delay_ns(word, now, cost);
                let _ = meter.overcharge(word, now, meter.debt_room(word, now, cost));
                let _ = meter.overcharge(word, now, meter.debt_room(word, now, u64::MAX));
                let _ = meter.give_back(word, now, &Receipt { cost, charged_at, word: receipt_word, moved_ns: u64::MAX });
                for next in meters.iter().flatten() {
                    for carry in [Carry::Keep, Carry::Proportional, Carry::Reset] {
                        let _ = meter.carry_over(word, now, next, carry);
                    }
                }
            }
        }
    }

    /// Used quota carries over to other numbers exactly, up to the new capacity.
    #[test]
    fn used_quota_is_carried_over(old in 1..1_000u64, new in 1..1_000u64, used in 0..1_000u64, kinds in 0..4) {
        let used = used.min(old);
        let make = |is_window: bool, limit| if is_window { window(limit, 60 * SECOND) } else { bucket(limit, 60 * SECOND, limit) };
        let (from, to) = (make(kinds & 1 == 1, old), make(kinds & 2 == 2, new));
        let mut held = MeteredWord::new(from);
        if used > 0 {
            prop_assert!(held.admits(NOW, used));
        }
        let word = from.carry_over(held.word, NOW, &to, Carry::Keep);
        prop_assert_eq!(to.remaining(word, NOW), new - used.min(new));
    }
}

#[test]
fn a_burst_never_exceeds_b_also_after_long_idling() {
    for burst in [10, 100] {
        let mut held = MeteredWord::new(bucket(burst, SECOND, burst));
        assert!(held.admits(NOW, 1));
        let later = NOW + 1_000_000 * SECOND;
        assert_eq!((0..3 * burst).filter(|_| held.admits(later, 1)).count() as u64, burst);
    }
}

#[test]
fn a_rejected_request_costs_nothing() {
    let mut held = MeteredWord::new(bucket(1, SECOND, 1));
    assert!(held.admits(NOW, 1));
    let before = held.word;
    for _ in 0..1_000 {
        assert!(!held.admits(NOW, 1));
    }
    assert_eq!(held.word, before);
    assert!(held.admits(NOW + SECOND, 1));
}

#[test]
fn a_cost_above_the_capacity_is_never_and_not_later() {
    for meter in [bucket(10, SECOND, 5), window(5, SECOND), sliding(5, SECOND)] {
        let mut held = MeteredWord::new(meter);
        assert_eq!(held.charge(NOW, 6), Verdict::Never);
        assert_eq!(held.word, 0);
        assert!(held.admits(NOW, 5));
        assert_eq!(held.charge(NOW, 6), Verdict::Never);
    }
}

/// The k-th of a burst waits (k-1) p/n, and what leaves the queue leaves it at the rate.
#[test]
fn a_leaky_bucket_delays_what_it_admits_so_that_it_leaves_at_the_rate() {
    let mut held = MeteredWord::new(Meter::LeakyBucket(TokenBucket::new(10, Duration::from_secs(1), 5).expect("fits")));
    let mut leaves = Vec::new();
    for now in [NOW, NOW, NOW, NOW, NOW, NOW, NOW + SECOND / 4, NOW + SECOND / 4, NOW + 3 * SECOND] {
        if let Verdict::Admit(word) = held.charge(now, 1) {
            leaves.push(now + held.meter.delay_ns(word, now, 1) - NOW);
        }
    }
    let tenths = [0, 1, 2, 3, 4, 5, 6, 30].map(|tenth| tenth * SECOND / 10);
    assert_eq!(leaves, tenths, "five at once, then two places were free");
    // A cost takes as many places.
    let mut held = MeteredWord::new(Meter::LeakyBucket(TokenBucket::new(10, Duration::from_secs(1), 5).expect("fits")));
    assert!(held.admits(NOW, 3));
    let Verdict::Admit(word) = held.charge(NOW, 2) else { panic!("two places were free") };
    assert_eq!(held.meter.delay_ns(word, NOW, 2), 3 * SECOND / 10);
}

#[test]
fn time_going_backwards_mints_nothing() {
    for meter in [bucket(3, 60 * SECOND, 3), window(3, 60 * SECOND)] {
        let mut held = MeteredWord::new(meter);
        assert_eq!((0..10).filter(|_| held.admits(NOW, 1)).count(), 3);
        for back in [1, SECOND, 59 * SECOND, 61 * SECOND, NOW] {
            assert!(!held.admits(NOW - back, 1), "{back} ns back");
        }
        assert!(!held.admits(NOW, 1));
    }
}

#[test]
fn retry_after_is_exact_and_never_zero_while_blocked() {
    // 7 a second: a token every 142,857,142.86 ns, so 142,857,143.
    let mut held = MeteredWord::new(bucket(7, SECOND, 1));
    assert!(held.admits(NOW, 1));
    assert_eq!(held.charge(NOW, 1), Verdict::Later { wait_ns: 142_857_143 });
    assert_eq!(held.charge(NOW + 142_857_142, 1), Verdict::Later { wait_ns: 1 });
    assert!(held.admits(NOW + 142_857_143, 1));
    let mut held = MeteredWord::new(window(1, SECOND));
    assert!(held.admits(NOW + 1, 1));
    assert_eq!(held.charge(NOW + SECOND - 1, 1), Verdict::Later { wait_ns: 1 });
}

#[test]
fn remaining_never_underflows_after_a_limit_was_lowered() {
    let (old, new) = (bucket(1_000, SECOND, 1_000), bucket(10, SECOND, 10));
    let mut held = MeteredWord::new(old);
    assert!(held.admits(NOW, 1_000));
    assert_eq!(new.remaining(held.word, NOW), 0, "even a word that was never converted");
    assert_eq!(new.remaining(old.carry_over(held.word, NOW, &new, Carry::Keep), NOW), 0);
    let (old, new) = (window(1_000, SECOND), window(10, SECOND));
    let mut held = MeteredWord::new(old);
    assert!(held.admits(NOW, 1_000));
    assert_eq!(new.remaining(held.word, NOW), 0);
}

#[test]
fn raising_a_limit_takes_effect_at_once() {
    let (old, new) = (bucket(100, 60 * SECOND, 100), bucket(1_000, 60 * SECOND, 1_000));
    let mut held = MeteredWord::new(old);
    assert!(held.admits(NOW, 100));
    assert_eq!(new.remaining(old.carry_over(held.word, NOW, &new, Carry::Keep), NOW), 900);
}

/// A billion a second is a nanosecond each; more than that still counts every call, and costs in bulk are exact.
#[test]
fn rates_above_one_token_a_nanosecond_are_neither_clamped_nor_unlimited() {
    let mut held = MeteredWord::new(bucket(10_000_000_000, SECOND, 1_000));
    assert!(held.admits(NOW, 1_000));
    assert_eq!(held.charge(NOW, 1_000), Verdict::Later { wait_ns: 100 });
    assert!(held.admits(NOW + 100, 1_000));
    let mut held = MeteredWord::new(bucket(600_000_000, SECOND, 600));
    assert!(held.admits(NOW, 600));
    assert_eq!(held.charge(NOW, 600), Verdict::Later { wait_ns: 1_000 });
}

#[test]
fn large_quotas_do_not_overflow() {
    assert!(
        TokenBucket::new(1, Duration::from_hours(24), NUMBER_MAX).is_err(),
        "would take longer than a hundred years to refill"
    );
    let mut held = MeteredWord::new(bucket(NUMBER_MAX, 366 * 86_400 * SECOND, NUMBER_MAX));
    assert!(held.admits(NOW, NUMBER_MAX));
    assert!(!held.admits(NOW, NUMBER_MAX));
    assert_eq!(held.meter.remaining(held.word, NOW), 0);
    let mut held = MeteredWord::new(bucket(NUMBER_MAX, 1_000_000, NUMBER_MAX));
    assert!(held.admits(NOW, NUMBER_MAX));
    assert_eq!(held.charge(NOW, NUMBER_MAX), Verdict::Later { wait_ns: 1_000_000 });
}

#[test]
fn a_debt_that_one_period_repays_is_repaid_in_one_period() {
    // A token every six seconds.
    let mut held = MeteredWord::new(bucket(10, 60 * SECOND, 10));
    held.word = held.meter.overcharge(held.word, NOW, held.meter.debt_room(held.word, NOW, 10));
    assert_eq!(held.meter.debt_room(held.word, NOW, 10), 0);
    assert_eq!(held.charge(NOW, 1), Verdict::Later { wait_ns: 66 * SECOND });
    assert_eq!(held.meter.debt_room(held.word, NOW + 60 * SECOND, 0), 0, "empty, and nothing is owed");
    assert!(!held.admits(NOW + 66 * SECOND - 1, 1) && held.admits(NOW + 66 * SECOND, 1));
}

#[test]
fn a_window_and_a_log_forget_a_debt_within_their_periods() {
    let log = Meter::SlidingWindowLog(SlidingWindowLog::new(5, Duration::from_secs(1)).expect("fits"));
    // The window before still counts in the one after it; a log in one word rounds up.
    for (meter, seconds) in [(window(5, SECOND), 1), (sliding(5, SECOND), 2), (log, 2)] {
        let word = meter.overcharge(0, NOW, meter.debt_room(0, NOW, 0));
        assert_eq!(meter.remaining(word, NOW), 0, "{meter:?}");
        assert!(matches!(meter.step(word, NOW + seconds * SECOND, 5), Verdict::Admit(_)), "{meter:?}");
    }
}

/// The worked example: T1 charges at 0 and stalls, T2 charges at 5, T1 gives back; a third admission at 5 would be two in
/// zero time.
#[test]
fn a_late_give_back_returns_only_what_time_has_not() {
    let mut held = MeteredWord::new(bucket(1, SECOND, 1));
    assert!(held.admits(NOW, 1));
    let receipt = Receipt { cost: 1, charged_at: NOW, word: held.word, moved_ns: u64::MAX };
    let later = NOW + 5 * SECOND;
    assert!(held.admits(later, 1));
    assert_eq!(held.meter.give_back(held.word, later, &receipt), None);
    assert!(!held.admits(later, 1));
}

#[test]
fn a_give_back_goes_only_into_the_window_that_was_charged() {
    let mut held = MeteredWord::new(window(2, SECOND));
    assert!(held.admits(NOW, 1));
    let receipt = Receipt { cost: 1, charged_at: NOW, word: held.word, moved_ns: u64::MAX };
    let word = held.meter.give_back(held.word, NOW, &receipt).expect("the same window");
    assert_eq!(held.meter.remaining(word, NOW), 2);
    assert!(held.admits(NOW + SECOND, 2));
    assert_eq!(held.meter.give_back(held.word, NOW + SECOND, &receipt), None);
}
