//! Tests of the judge, over histories that are made by hand or at random.

use proptest::prelude::*;
use tidegate::time::SECOND_NS;

use super::*;

const MS: Nanos = 1_000_000;
const START: Nanos = 1_790_035_200 * SECOND_NS;

/// Returns the history of a limit of ten a second with a burst of ten.
fn history(sharing: Sharing, algorithm: Algorithm) -> KeyHistory {
    let numbers = LimitNumbers { limit: 10, burst: 10 };
    KeyHistory {
        sharing,
        algorithm,
        period_ns: SECOND_NS,
        lease_ns: 2 * SECOND_NS,
        under_way_ns: 0,
        in_force: vec![InForce { numbers, from: 0, everywhere_from: 0, until: Nanos::MAX }],
        losses: Vec::new(),
        admissions: Vec::new(),
    }
}

/// Returns an admission in the millisecond before this one.
fn at(ms: Nanos, cost: u64) -> RecordedAdmission {
    let latest = START + ms * MS;
    RecordedAdmission { node: 0, cost, earliest: latest - MS, latest, uncovered: 0 }
}

fn by(node: usize, uncovered: u64, it: RecordedAdmission) -> RecordedAdmission {
    RecordedAdmission { node, uncovered, ..it }
}

fn loss(ms: Nanos) -> StoreLoss {
    StoreLoss { from: START + ms * MS, until: START + (ms + 1) * MS }
}

impl KeyHistory {
    fn with(&self, admissions: &[RecordedAdmission]) -> Self {
        Self { admissions: admissions.to_vec(), ..self.clone() }
    }

    fn admits(&self, admissions: &[RecordedAdmission]) -> bool {
        judge(&self.with(admissions)).is_ok()
    }
}

#[test]
fn a_bucket_has_its_burst_and_what_came_back() {
    for (sharing, algorithm) in [
        (Sharing::Strict, Algorithm::TokenBucket),
        (Sharing::Strict, Algorithm::LeakyBucket),
        (Sharing::Leased, Algorithm::TokenBucket),
    ] {
        let it = history(sharing, algorithm);
        assert!(it.admits(&[at(100, 10)]));
        assert!(!it.admits(&[at(100, 11)]), "one more");
        // Two tokens come back in 200 ms, and a third after 300.
        assert!(it.admits(&[at(100, 10), at(299, 2)]));
        assert!(!it.admits(&[at(100, 10), at(299, 3)]), "one more");
        assert!(it.admits(&[at(100, 10), at(399, 3)]));
        // A pause saves up no more than a burst.
        assert!(it.admits(&[at(100, 10), at(90_000, 10)]));
        assert!(!it.admits(&[at(100, 10), at(90_000, 11)]), "one more");
    }
}

#[test]
fn an_admission_that_may_lie_outside_of_a_stretch_is_no_alarm() {
    let it = history(Sharing::Strict, Algorithm::TokenBucket);
    // The second admission may have happened at the end of its interval, when ten tokens had come back.
    let late = RecordedAdmission { latest: START + 1_200 * MS, ..at(101, 10) };
    assert!(it.admits(&[at(100, 10), late]));
    assert!(!it.admits(&[at(100, 10), late, at(1_199, 3)]), "in 1,100 ms there are 21 at most");
}

#[test]
fn the_stretch_nearest_to_its_bound_is_reported() {
    let it = history(Sharing::Strict, Algorithm::TokenBucket).with(&[at(100, 7), at(5_000, 4)]);
    assert_eq!(judge(&it), Ok(Headroom { least_left: 3, of_bound: 10 }));
    let why = judge(&it.with(&[at(100, 7), at(5_000, 11)])).expect_err("one more");
    assert_eq!((why.admitted, why.bound, why.until), (11, 10, START + 5_000 * MS));
}

#[test]
fn a_window_has_its_limit() {
    for sharing in [Sharing::Strict, Sharing::Leased] {
        let it = history(sharing, Algorithm::FixedWindow);
        assert!(it.admits(&[at(900, 10), at(1_100, 10), at(1_999, 0)]));
        assert!(!it.admits(&[at(900, 10), at(1_100, 10), at(1_999, 1)]), "one more");
        // Begun in the window before.
        assert!(it.admits(&[at(900, 10), at(1_000, 1), at(1_999, 10)]));
    }
}

#[test]
fn sliding_windows_have_their_own_bounds() {
    let it = history(Sharing::Strict, Algorithm::SlidingWindowCounter);
    assert!(it.admits(&[at(900, 10), at(1_500, 9)]));
    assert!(!it.admits(&[at(900, 10), at(1_500, 10)]), "twice the limit in a period");
    assert!(it.admits(&[at(900, 10), at(1_950, 10)]));
    assert!(!it.admits(&[at(900, 11)]), "one more in a window");
    let it = history(Sharing::Strict, Algorithm::SlidingWindowLog);
    assert!(it.admits(&[at(900, 6), at(1_500, 4), at(1_900, 6)]));
    assert!(!it.admits(&[at(900, 6), at(1_500, 5)]), "one more");
    assert!(!it.admits(&[at(900, 6), at(1_898, 5)]), "one more in a period");
}

#[test]
fn each_loss_allows_one_more_burst() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindowLog] {
        let it = KeyHistory { losses: vec![loss(200), loss(300)], ..history(Sharing::Strict, algorithm) };
        assert!(it.admits(&[at(100, 10), at(250, 10), at(350, 10)]), "{algorithm:?}");
        assert!(!it.admits(&[at(100, 11)]), "{algorithm:?}: before it");
        assert!(!it.admits(&[at(250, 11)]), "{algorithm:?}: between them");
        assert!(!it.admits(&[at(350, 11)]), "{algorithm:?}: after them");
        assert!(!it.admits(&[at(100, 10), at(102, 1)]), "{algorithm:?}: before them");
    }
}

#[test]
fn leases_of_a_lost_store_are_spent_for_a_while() {
    let strict = KeyHistory { losses: vec![loss(200)], ..history(Sharing::Strict, Algorithm::TokenBucket) };
    let it = KeyHistory { losses: vec![loss(200)], ..history(Sharing::Leased, Algorithm::TokenBucket) };
    assert!(!strict.admits(&[at(300, 11)]));
    assert!(it.admits(&[at(300, 12)]), "a quarter was out");
    assert!(!it.admits(&[at(300, 13)]), "one more");
    assert!(it.admits(&[at(4_200, 12)]));
    assert!(!it.admits(&[at(4_203, 11)]), "two lives later");
}

#[test]
fn numbers_count_while_they_are_in_force() {
    let seconds = |from: Nanos, until: Nanos, limit| {
        let numbers = LimitNumbers { limit, burst: limit };
        let (from, until) = (START + from * SECOND_NS, START + until * SECOND_NS);
        InForce { numbers, from, everywhere_from: from + SECOND_NS, until }
    };
    let it = history(Sharing::Strict, Algorithm::TokenBucket);
    let it = KeyHistory { in_force: vec![seconds(0, 11, 10), seconds(10, 21, 4), seconds(20, 99, 8)], ..it };
    assert!(it.admits(&[at(5_000, 10)]) && !it.admits(&[at(5_000, 11)]));
    assert!(it.admits(&[at(15_000, 4)]) && !it.admits(&[at(15_000, 5)]));
    assert!(it.admits(&[at(25_000, 8)]) && !it.admits(&[at(25_000, 9)]));
    // What was above the smaller limit is forgotten: six, where four may be used then.
    assert!(it.admits(&[at(10_000, 10), at(10_990, 15)]));
    assert!(!it.admits(&[at(10_000, 10), at(10_990, 16)]), "one more");
    // Four a second from the twelfth on.
    assert!(it.admits(&[at(12_000, 4), at(13_001, 4)]) && !it.admits(&[at(12_000, 4), at(12_990, 4)]));
}

#[test]
fn a_loss_allows_a_burst_of_the_numbers_of_its_time() {
    let numbers = |limit| LimitNumbers { limit, burst: limit };
    let from = START + 10 * SECOND_NS;
    let before = InForce { numbers: numbers(10), from: 0, everywhere_from: 0, until: from };
    let after = InForce { numbers: numbers(4), from, everywhere_from: from, until: Nanos::MAX };
    let it = history(Sharing::Strict, Algorithm::TokenBucket);
    let it = KeyHistory { in_force: vec![before, after], losses: vec![loss(20_000)], ..it };
    assert!(it.admits(&[at(19_900, 4), at(20_100, 4)]));
    assert!(!it.admits(&[at(19_900, 4), at(20_100, 5)]), "one more");
}

#[test]
fn uncovered_admissions_may_exceed_a_synced_limit() {
    let it = history(Sharing::Synced, Algorithm::TokenBucket);
    // Two nodes that did not know of each other, and what they admit when they do.
    let unseen = [by(0, 0, at(100, 10)), by(1, 0, at(101, 10))];
    assert!(it.admits(&unseen));
    let admits_after = |left: u64| {
        let after = [by(0, left, at(250, 1)), by(1, left, at(251, 1))];
        it.admits(&[&unseen[..], &after].concat())
    };
    assert!(admits_after(10), "no answer yet");
    assert!(!admits_after(0), "each was answered, and admitted all the same");
    // One of the two has an answer that covers its own ten, and admits one too many: it may not know of the other.
    assert!(it.admits(&[unseen[0], unseen[1], by(0, 0, at(250, 1))]));
    assert!(!it.admits(&[unseen[0], by(0, 0, at(150, 1)), by(0, 0, at(151, 1)), by(1, 0, at(152, 1))]));
}

#[test]
fn admissions_that_a_dead_node_had_not_exchanged_do_not_count() {
    let it = history(Sharing::Synced, Algorithm::FixedWindow);
    assert!(it.admits(&[by(0, 0, at(100, 10)), by(1, 0, at(200, 10)), by(1, 0, at(300, 0))]));
    let covered = [by(0, 0, at(100, 9)), by(0, 0, at(150, 1)), by(1, 0, at(200, 1)), by(1, 0, at(300, 0))];
    assert!(it.admits(&covered));
    let one_more = [by(0, 0, at(100, 9)), by(0, 0, at(150, 1)), by(1, 0, at(200, 2)), by(1, 0, at(300, 0))];
    assert!(!it.admits(&one_more));
}

#[test]
fn coverage_ends_when_the_store_is_lost() {
    let it = KeyHistory { losses: vec![loss(200)], ..history(Sharing::Synced, Algorithm::FixedWindow) };
    // Covered before the loss, at an admission after it.
    assert!(it.admits(&[by(0, 0, at(100, 10)), by(1, 0, at(101, 10)), by(0, 0, at(300, 9)), by(0, 0, at(400, 1))]));
    let after = [by(0, 0, at(300, 10)), by(0, 0, at(301, 0)), by(1, 0, at(302, 11)), by(1, 0, at(303, 0))];
    assert!(!it.admits(&after), "one burst more for one loss");
}

#[test]
fn a_change_cuts_the_history_of_a_synced_limit() {
    let numbers = LimitNumbers { limit: 10, burst: 10 };
    let change = |from: Nanos, until: Nanos| InForce {
        numbers,
        from: START + from * MS,
        everywhere_from: START + (from + 100) * MS,
        until: START + until * MS,
    };
    let it = history(Sharing::Synced, Algorithm::TokenBucket);
    let it = KeyHistory { in_force: vec![change(0, 1_100), change(1_000, 9_000)], ..it };
    let twice = |first, then| {
        [by(0, 0, at(first, 10)), by(0, 0, at(first + 2, 0)), by(0, 0, at(then, 10)), by(0, 0, at(then + 2, 0))]
    };
    assert!(it.admits(&twice(990, 1_150)));
    assert!(!it.admits(&twice(800, 900)) && !it.admits(&twice(1_200, 1_300)));
}

/// Judges each pair of a beginning and an end, one after the other.
fn is_kept_by_each_stretch(it: &KeyHistory) -> bool {
    let each = |a: &RecordedAdmission| {
        it.admissions.iter().all(|b| {
            let (from, until) = (a.earliest, b.latest);
            let held = it.admissions.iter().filter(|it| it.earliest >= from && it.latest <= until);
            let sum: u64 = held.map(|it| it.cost).sum();
            let losses = it.losses.iter().filter(|loss| loss.from <= until && loss.until >= from).count() as u64;
            until < from || sum.saturating_sub(10 * (1 + losses)) * SECOND_NS <= 10 * (until - from)
        })
    };
    it.admissions.iter().all(each)
}

proptest! {
    #[test]
    fn the_judge_agrees_with_one_that_checks_each_stretch(
        admissions in prop::collection::vec((0_u64..3_000, 0_u64..200, 1_u64..5), 0..40),
        losses in prop::collection::btree_set(0_u64..300, 0..3),
    ) {
        let admission = |&(ms, lasts, cost): &(u64, u64, u64)| {
            RecordedAdmission { node: 0, cost, earliest: START + ms * MS, latest: START + (ms + lasts) * MS, uncovered: 0 }
        };
        let it = history(Sharing::Strict, Algorithm::TokenBucket);
        let it = KeyHistory { losses: losses.iter().map(|ms| loss(ms * 10)).collect(), ..it };
        let it = it.with(&admissions.iter().map(admission).collect::<Vec<_>>());
        prop_assert_eq!(judge(&it).is_ok(), is_kept_by_each_stretch(&it));
    }
}
