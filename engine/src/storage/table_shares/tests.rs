//! Tests of the counts of slots, and of the shares that bound them.

use proptest::prelude::*;

use super::*;
use crate::storage::layout::{BucketState, KeyBits};

/// Makes five limits, two of one domain and three of the other, and one limit that no policy has.
fn shares() -> (SlotShares, [u32; 2]) {
    let shares = SlotShares::new(OVERFLOW_BUCKETS);
    let domains = [(); 2].map(|()| shares.add_domain());
    for limit in 0..5 {
        assert_eq!(shares.add(), limit);
        shares.bind(limit, domains[usize::from(limit > 1)]);
    }
    (shares, domains)
}

/// Moves a slot from one limit to another.
fn pass(shares: &SlotShares, before: Option<u32>, after: Option<u32>) {
    shares.passed(shares.owner(slot(before)), shares.owner(slot(after)));
}

/// Returns the number of slots that the limits of each of these domains hold.
fn by_domain(shares: &SlotShares, domains: [u32; 2]) -> [u64; 2] {
    domains.map(|domain| shares.domains.get(domain as usize).map_or(0, Gauge::get))
}

fn slot(limit: Option<u32>) -> Slot {
    limit.map_or(Slot::EMPTY, |limit| Slot::active(KeyBits::new(limit, 7), BucketState::default()))
}

proptest! {
    #[test]
    fn a_count_is_the_number_of_slots_that_name_the_limit(
        changes in proptest::collection::vec((0..20_usize, proptest::option::of(0..6_u32)), 0..200),
    ) {
        let (shares, domains) = shares();
        let mut slots = [None; 20];
        for (place, after) in changes {
            pass(&shares, slots[place], after);
            slots[place] = after;
        }
        let held = |limits: std::ops::Range<u32>| {
            slots.iter().flatten().filter(|limit| limits.contains(*limit)).count() as u64
        };
        for limit in 0..6 {
            prop_assert_eq!(shares.held(limit), held(limit..limit + 1));
        }
        prop_assert_eq!(shares.held.get(), held(0..6));
        prop_assert_eq!(by_domain(&shares, domains), [held(0..2), held(2..5)]);
    }

    #[test]
    fn a_part_is_the_percentage_and_at_least_a_few_slots(slots in 8..3_000_000_000_usize, percent in 1..100_u8) {
        let part = part(slots, percent);
        prop_assert!(part >= SLOTS_MIN && part <= slots as u64);
        let exact = slots as f64 * f64::from(percent) / 100.0;
        prop_assert!(part == SLOTS_MIN || (exact - part as f64).abs() <= 1.0);
    }

    #[test]
    fn only_a_limit_or_domain_that_holds_its_share_is_bounded(
        held in proptest::array::uniform5(0..40_u32), limit in 0..5_u32, owner in proptest::option::of(0..5_u32),
    ) {
        let (mut shares, _) = shares();
        shares.set(TableShares { limit_percent: 20, domain_percent: 40 }, 100);
        shares.come_into_force(5, 5, 2);
        for (limit, held) in held.iter().enumerate() {
            (0..*held).for_each(|_| pass(&shares, None, Some(limit as u32)));
        }
        let domain = if limit < 2 { 0..2 } else { 2..5 };
        let of_domain: u32 = domain.clone().map(|limit| held[limit as usize]).sum();
        // 15 of 100 slots are kept, five for each of three limits.
        let shortage = match held[limit as usize] {
            20.. => Some(Shortage::Limit),
            0..5 => None,
            _ if of_domain >= 40 => Some(Shortage::Domain),
            _ => (held.iter().sum::<u32>() >= 85).then_some(Shortage::All),
        };
        prop_assert_eq!(shares.shortage(limit), shortage);
        let may = match shortage {
            Some(Shortage::Limit | Shortage::All) => owner == Some(limit),
            Some(Shortage::Domain) => owner.is_some_and(|owner| domain.contains(&owner)),
            None => true,
        };
        prop_assert_eq!(shares.may_take(limit, shortage, slot(owner)), may);
    }
}

/// Another limit takes the last slot of a limit, and counts that when another name has the limit's id.
#[test]
fn a_slot_that_is_counted_late_counts_for_its_domain_of_before() {
    let (shares, domains) = shares();
    pass(&shares, None, Some(0));
    let before = shares.owner(slot(Some(0)));
    shares.bind(0, domains[1]);
    shares.passed(before, shares.owner(slot(Some(2))));
    assert_eq!(([0, 2].map(|limit| shares.held(limit)), by_domain(&shares, domains)), ([0, 1], [0, 1]));
    pass(&shares, None, Some(0));
    assert_eq!(by_domain(&shares, domains), [0, 2]);
}

/// A limit that holds nothing may take what is left, however many limits there are and however little is kept.
#[test]
fn kept_slots_are_for_any_limit_that_holds_nothing() {
    for (count, limits) in [(16, 6), (16, 1_000), (100, 200), (1_023, 157), (1_023, 100_000)] {
        let bounds = ShareBounds::none();
        bounds.set(count, TableShares::default(), limits, limits);
        let all = count as u64 * 85 / 100;
        assert_eq!(bounds.shortage(0, all), None, "{limits} limits of {count}");
        assert_eq!(bounds.shortage(all / 2, all), Some(Shortage::All), "{limits} limits of {count}");
        assert_eq!(bounds.shortage(all / 2, all - 1), None, "{limits} limits of {count}");
    }
}

#[test]
fn a_limit_or_domain_that_is_alone_may_hold_all_slots() {
    let (mut shares, _) = shares();
    shares.set(TableShares::default(), 15_000);
    (0..14_000).for_each(|_| pass(&shares, None, Some(0)));
    for (limits, domains, shortage) in
        [(1, 1, None), (2, 1, Some(Shortage::Limit)), (5, 2, Some(Shortage::Limit)), (0, 0, None)]
    {
        shares.come_into_force(limits, limits, domains);
        assert_eq!(shares.shortage(0), shortage, "{limits} limits, {domains} domains");
    }
    shares.come_into_force(5, 5, 2);
    assert_eq!([1, 2].map(|limit| shares.shortage(limit)), [None; 2], "neither limit holds a slot");
    for limit in [1, 2] {
        (0..15_000 * 15 / 100 / 3).for_each(|_| pass(&shares, None, Some(limit)));
    }
    assert_eq!(shares.shortage(1), Some(Shortage::Domain), "another limit took the share of its domain");
    assert_eq!(shares.shortage(2), Some(Shortage::All), "another domain took all slots that are not kept");
    shares.set(TableShares::WHOLE, 15_000);
    shares.come_into_force(5, 5, 2);
    assert_eq!(shares.shortage(0), None);
}
