//! Tests of leases: alone, and of three nodes with one store.

mod world;

use proptest::prelude::*;

use self::world::{Event, Node, Reply, SERVE, START, Sent, World, events};
use super::*;
use crate::store::{
    config::LEASE_NS,
    script::{
        grant::granted,
        plan::Intent,
        record::{Leases, Record, VersionedMeter},
    },
};

#[test]
fn a_request_that_is_late_for_its_window_keeps_nothing_of_the_next() {
    let meter: Meter = "fixed_window/600/10000000000".parse().expect("a meter");
    let mut world = World::new([meter; 2]);
    world.happen(&Event::WindowEnds(10));
    for _ in 0..20 {
        world.happen(&Event::Check(0, 1));
        world.happen(&SERVE);
    }
    // The node asks for more while some is left, and the store handles that after another node has used up the next
    // window.
    world.happen(&Event::Renew(0, true));
    let first = world.admitted.len();
    world.happen(&Event::WindowEnds(0));
    for _ in 0..12 {
        world.happen(&Event::UseUp(1));
        world.happen(&Event::Pass(101));
    }
    let used: u64 = world.admitted[first..].iter().map(|(_, cost)| cost).sum();
    assert_eq!((used, world.under_way.len(), world.under_way[0].node), (600, 1, 0));
    world.happen(&SERVE);
    world.happen(&Event::Check(0, 1));
    assert_eq!(world.admitted.len(), first + 600);
}

/// Returns the most tokens that were admitted above a limit with this burst and one more token in each interval.
fn above(admitted: &[(Nanos, u64)], burst: u64, every_ns: u64) -> u64 {
    let (from, mut sum) = (admitted[0].0, 0);
    let above = admitted.iter().map(|&(at, cost)| {
        sum += cost;
        sum.saturating_sub(burst + (at - from) / every_ns)
    });
    above.max().unwrap_or(0)
}

/// Returns a world with a bucket of which a node has just asked for more, a moment before its lease counts as
/// spent.
fn late_for_its_epoch() -> World {
    let mut world = World::new(["token_bucket/600/60000000000/600".parse().expect("a meter"); 2]);
    world.happen(&Event::Pass(59_900));
    world.happen(&Event::Check(0, 1));
    world.happen(&SERVE);
    world.happen(&Event::Check(0, 1));
    world.happen(&Event::Pass(59_900));
    world.happen(&Event::Renew(0, true));
    world
}

fn use_up(world: &mut World, node: usize) {
    for _ in 0..25 {
        world.happen(&Event::UseUp(node));
        world.happen(&Event::Pass(101));
    }
}

#[test]
fn a_request_that_is_late_for_its_epoch_keeps_nothing() {
    let mut world = late_for_its_epoch();
    assert!(matches!(world.under_way[0].what, Intent::Lease(LeaseRequest { keep: 8, .. })));
    // The lease is charged, and its tokens come back with time.
    world.happen(&Event::Pass(300));
    world.happen(&Event::UseUp(1));
    world.happen(&Event::Pass(40_000));
    let first = world.admitted.len();
    use_up(&mut world, 1);
    world.happen(&SERVE);
    for _ in 0..8 {
        world.happen(&Event::Check(0, 1));
    }
    assert!(world.admitted.len() >= first + 600);
    assert_eq!(above(&world.admitted[first..], 600, 100_000_000), 0);
}

#[test]
fn tokens_of_an_expired_lease_are_not_put_back_into_the_next() {
    let mut world = late_for_its_epoch();
    world.happen(&Event::Pass(50));
    for _ in 0..7 {
        world.happen(&Event::Check(0, 1));
    }
    world.happen(&Event::Pass(250));
    world.happen(&SERVE);
    assert_eq!(world.nodes[0].lease.out, 9);
    world.happen(&Event::Pass(30_000));
    let first = world.admitted.len();
    for _ in 0..7 {
        world.happen(&Event::Check(0, 1));
    }
    assert_eq!(world.admitted.len(), first + 7);
    let rest = world.nodes[0].lease.left;
    for receipt in 1..=7 {
        world.happen(&Event::PutBack(0, receipt));
    }
    assert_eq!(world.nodes[0].lease.left, rest, "the store takes them back");
    use_up(&mut world, 0);
    use_up(&mut world, 1);
    assert_eq!(above(&world.admitted[first..], 600, 100_000_000), 0);
}

#[test]
fn tokens_left_after_a_lost_answer_are_good_until_the_lease_ends() {
    let meter: Meter = "fixed_window/600/10000000000".parse().expect("a meter");
    let mut world = World::new([meter; 2]);
    for _ in 0..20 {
        world.happen(&Event::Check(0, 1));
        world.happen(&SERVE);
    }
    world.happen(&Event::Renew(0, true));
    world.happen(&Event::Serve { which: 0, reply: Reply::Lost });
    let left = world.nodes[0].lease.left;
    assert!(left > 0);
    use_up(&mut world, 1);
    // The limit has no tokens for the request.
    world.happen(&Event::Renew(0, true));
    world.happen(&SERVE);
    assert_eq!((world.nodes[0].lease.left, world.nodes[0].lease.out), (left, 0));
    let first = world.admitted.len();
    world.happen(&Event::Check(0, 1));
    assert_eq!(world.admitted.len(), first + 1);
    world.happen(&Event::WindowEnds(0));
    let Node { lease, own, .. } = &world.nodes[0];
    assert_eq!(lease.look(&own.meter, 1, world.moment(0)), None, "it is over");
}

#[test]
fn tokens_of_a_dead_node_count_as_spent() {
    let meter: Meter = "token_bucket/1600/86400000000000/1600".parse().expect("a meter");
    let held = Record { under: VersionedMeter { meter, version: 1 }, word: 0, leases: Leases::default() };
    let ask = LeaseRequest { epoch: 0, ends: 0, out: 0, left: 0, keep: 0, want: 50, need: 1 };
    let (held, grant) = granted(held, START, &ask, LEASE_NS);
    assert_eq!((grant.given, meter.remaining(held.full(START), START)), (50, 1_550));
    // While the node may live, its tokens are taken off the capacity, but not charged.
    assert_eq!(meter.remaining(held.at(START + LEASE_NS, LEASE_NS).word, START), 1_600);
    let later = START + 2 * LEASE_NS;
    let held = held.at(later, LEASE_NS);
    assert_eq!((held.leases.out(), meter.remaining(held.word, later)), (0, 1_550));
}

#[test]
fn a_lease_in_use_is_renewed_before_it_is_over_and_an_idle_one_goes_back() {
    let meter: Meter = "token_bucket/1000/1000000000/1000".parse().expect("a meter");
    let at = |seconds: u64| ClockReading { store: START + seconds * SECOND_NS, own: seconds * SECOND_NS };
    let mut lease = Lease::new();
    let ask = lease.ask(&meter, 0, true, at(0));
    let care = |lease: &Lease, seconds| lease.look_after(at(seconds), LEASE_NS);
    let empty = Record { under: VersionedMeter { meter, version: 1 }, word: START, leases: Leases::default() };
    let (_, grant) = granted(empty, START, &ask, LEASE_NS);
    lease.granted(&meter, &ask, &grant, (START, at(0)), LEASE_NS);
    assert!(grant.given > 1 && lease.out() == grant.given);
    assert_eq!((care(&lease, 10), care(&lease, 29)), (Upkeep::Keep, Upkeep::Keep));
    assert_eq!(care(&lease, 30), Upkeep::GiveBack, "no check used it");
    assert!(matches!(lease.spend(&meter, 1, at(39)), SpendResult::Answer(..)));
    assert_eq!((care(&lease, 39), care(&lease, 40)), (Upkeep::Keep, Upkeep::Renew));
    assert!(lease.left(at(59)) > 0 && lease.left(at(60)) == 0, "it is over");
    lease.out = 0;
    assert_eq!((care(&lease, 68), care(&lease, 69)), (Upkeep::Keep, Upkeep::Forget));
}

#[test]
fn at_a_steady_rate_no_check_waits_and_batches_last() {
    let meter: Meter = "token_bucket/100000/1000000000/100000".parse().expect("a meter");
    let mut world = World::new([meter; 2]);
    let (mut waited, mut batches) = (0, Vec::new());
    // A thousand checks a second for twenty seconds, over a store that answers in two milliseconds.
    for ms in 0..20_000 {
        world.happen(&Event::Pass(1));
        let admitted = world.admitted.len();
        world.happen(&Event::Check(0, 1));
        waited += usize::from(world.admitted.len() == admitted && ms > 1_000);
        if let Some(Sent { what: Intent::Lease(ask), .. }) = world.under_way.first()
            && ms % 2 == 1
        {
            batches.push(ask.keep + ask.want);
            world.happen(&SERVE);
        }
    }
    assert_eq!(waited, 0, "it is renewed ahead");
    // At most a sixteenth of the limit: 6,250, which lasts for six seconds.
    let largest = batches.iter().max().expect("some");
    assert!((4_000..=6_250).contains(largest) && batches.len() < 20, "{batches:?}");
}

#[test]
fn a_crowd_is_denied_for_a_second_at_most_while_the_store_is_silent() {
    let meter: Meter = "token_bucket/10/10000000000/10".parse().expect("a meter");
    let mut world = World::new([meter; 2]);
    for _ in 0..3 {
        for _ in 0..100 {
            world.happen(&Event::Check(0, 1));
            world.happen(&SERVE);
        }
        world.happen(&Event::Pass(50));
    }
    // The store falls silent: its last answer holds for a second while there is a crowd.
    let lease = &mut world.nodes[0].lease;
    let mut asked_at = None;
    for ms in 0..3_000_u64 {
        world.now += 1_000_000;
        let now = ClockReading { store: world.now, own: world.now };
        match lease.spend(&meter, 1, now) {
            SpendResult::Answer(_, true) => drop(lease.ask(&meter, 0, true, now)),
            SpendResult::Answer(..) => {}
            SpendResult::Ask => {
                asked_at = Some(ms);
                break;
            }
        }
    }
    assert!(asked_at.is_some_and(|ms| ms <= 1_100), "{asked_at:?}");
}

#[test]
fn tokens_put_back_are_spent_again_once_and_never_more_than_were_lent() {
    let meter: Meter = "token_bucket/1000/1000000000/1000".parse().expect("a meter");
    let at = |ms: u64| ClockReading { store: START + ms * 1_000_000, own: ms * 1_000_000 };
    let grant = |given| Grant {
        epoch: START / LEASE_NS,
        ends: Nanos::MAX,
        is_counted: false,
        kept: 0,
        given,
        word: START,
        is_charged: false,
        is_all_out: false,
    };
    let mut lease = Lease::new();
    let ask = lease.ask(&meter, 0, true, at(0));
    lease.granted(&meter, &ask, &grant(50), (START, at(1)), LEASE_NS);
    let SpendResult::Answer(StoreAnswer::Decided { word, now, .. }, _) = lease.spend(&meter, 10, at(2)) else {
        panic!("it has")
    };
    let receipt = Receipt { cost: 10, charged_at: now, word, moved_ns: u64::MAX };
    assert_eq!((lease.put_back(&meter, &receipt, at(3)), lease.left), (0, 50));
    assert_eq!((lease.put_back(&meter, &receipt, at(3)), lease.left), (10, 50), "no more than was lent");
    let SpendResult::Answer(..) = lease.spend(&meter, 20, at(4)) else { panic!("it has") };
    let ask = lease.ask(&meter, 0, true, at(5));
    assert_eq!((ask.out, ask.left), (50, 30));
    lease.granted(&meter, &ask, &Grant { is_counted: true, kept: 30, ..grant(20) }, (START, at(6)), LEASE_NS);
    assert_eq!((lease.put_back(&meter, &receipt, at(7)), lease.left), (10, 50), "the store was told that it was spent");
}

#[test]
fn nodes_use_the_limit_while_dead_nodes_hold_all_that_may_be_lent() {
    let meter: Meter = "token_bucket/1000/1000000000/1000".parse().expect("a meter");
    let mut leases = Leases::default();
    leases.lend(START, 250, LEASE_NS);
    let dead = Record { under: VersionedMeter { meter, version: 1 }, word: START, leases };
    let mut world = World::new([meter; 2]);
    world.value = dead.write();
    // Each of three nodes is asked for half of what the limit has, in turn.
    for ms in 0..4_000 {
        world.happen(&Event::Pass(1));
        for node in (0..3).filter(|node| (ms + node) % 2 == 0) {
            world.happen(&Event::Check(node, 1));
        }
        for _ in 0..3 {
            world.happen(&SERVE);
        }
    }
    let admitted = |from: Nanos| world.admitted.iter().filter(|(at, _)| *at >= from).count();
    // The tokens of the beginning are used by then.
    let last = admitted(START + 3 * SECOND_NS);
    assert!((950..=1_001).contains(&last), "{last}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]
    #[test]
    fn nodes_never_spend_more_than_the_limit(
        events in events(),
        seconds in 1_u64..100,
        numbers in prop::array::uniform2((1_u64..100, 1_u64..100)),
        is_window in any::<bool>(),
    ) {
        let period_ns = seconds * SECOND_NS;
        let named = numbers.map(|(limit, burst)| {
            if is_window { format!("fixed_window/{limit}/{period_ns}") } else { format!("token_bucket/{limit}/{period_ns}/{burst}") }
        });
        let mut world = World::new(named.each_ref().map(|numbers| numbers.parse().expect("a meter")));
        for event in &events {
            world.happen(event);
        }
        // The larger of both: numbers that fall and rise again forget what was above them, so they change once.
        let [limit, burst] = [numbers[0].0.max(numbers[1].0), numbers[0].1.max(numbers[1].1)];
        for (first, &(from, _)) in world.admitted.iter().enumerate() {
            let mut sum = 0;
            for &(until, cost) in &world.admitted[first..] {
                let most = if is_window {
                    if from / period_ns != until / period_ns {
                        break;
                    }
                    limit
                } else {
                    // The bound of one bucket: the burst, and what came back.
                    let came_back = u128::from(until - from) * u128::from(limit) / u128::from(period_ns);
                    burst + u64::try_from(came_back).expect("few")
                };
                sum += cost;
                prop_assert!(sum <= most, "{sum} of {most} from {from} to {until}: {named:?}");
            }
        }
    }
}
