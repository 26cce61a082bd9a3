//! Tests of the decider without a store.

use std::{
    cell::Cell,
    net::IpAddr,
    num::NonZeroU32,
    rc::Rc,
    sync::atomic::{AtomicUsize, Ordering},
};

use futures_util::FutureExt;
use tidegate::{Identity, Observed, Observer, Snapshot, clock::ManualClock, formats::Format, time::Timestamp};
use tokio::task::{LocalSet, spawn_local, yield_now};

use super::*;
use crate::shared::reservations::{Gone, OPEN_MAX, ShareTaken};

/// Returns the caller at the address `192.0.2.LAST`.
fn caller(last: u8) -> Caller {
    Caller::without_token(IpAddr::from([192, 0, 2, last]).into())
}

fn reserve_of<'d>(
    caller: &Caller,
    decider: &'d Decider<ManualClock>,
    request: &Request<'_>,
    id: Option<RequestId<'_>>,
) -> Result<CheckResult<'d>, Error> {
    decider.reserve(request, id, caller).now_or_never().expect("nothing waits without a store")
}

fn reserve<'d>(
    decider: &'d Decider<ManualClock>,
    request: &Request<'_>,
    id: Option<RequestId<'_>>,
) -> Result<CheckResult<'d>, Error> {
    reserve_of(&caller(1), decider, request, id)
}

#[test]
fn a_reservation_without_room_is_charged_and_says_that_the_charge_stands() {
    const LIMIT: u64 = 1_000_000;
    let engine =
        Arc::new(Engine::for_simulation(10, ManualClock::at(Timestamp::from_nanos(1_700_000_000_000_000_000)), 7));
    let policy = format!(
        r#"
        [domains.default]
        defaults = {{ user = "free" }}
        [[domains.default.tiers]]
        id = "free"
        limits = [{{ id = "day", algorithm = "fixed_window", limit = {LIMIT}, period = "1d" }}]
        "#
    );
    engine.publish(Snapshot::parse(&policy, Format::Toml).expect("a right policy")).expect("room");
    let decider = Decider::new(engine).expect("random numbers").with_caller_share(100);
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).expect("valid");
    let first = reserve(&decider, &request, None).expect("no id").reservation.expect("room");
    for _ in 1..OPEN_MAX {
        assert!(reserve(&decider, &request, None).expect("no id").reservation.is_some());
    }
    let repeated = RequestId::new("1").ok();
    for _ in 0..2 {
        let beyond = reserve(&decider, &request, repeated).expect("the same");
        assert!(beyond.is_allowed && beyond.reservation.is_none());
        assert_eq!(beyond.degraded, Some(Degraded::Overload));
        let remaining = beyond.decision.expect("the engine decided").remaining();
        assert_eq!(remaining, Some(LIMIT - OPEN_MAX as u64 - 1), "charged once");
    }
    assert!(decider.settle(first, 0).is_ok());
    assert!(reserve(&decider, &request, None).expect("no id").reservation.is_some());
}

#[tokio::test]
async fn a_batch_leaves_other_tasks_of_the_thread_their_turns() {
    const TURNS: usize = 10;
    let engine =
        Arc::new(Engine::for_simulation(10, ManualClock::at(Timestamp::from_nanos(1_700_000_000_000_000_000)), 7));
    let decider = Decider::new(engine).expect("random numbers");
    let who = [Identity::new("user", "ada").expect("valid")];
    let requests: Vec<_> = (0..TURNS * TURN_CHECKS).map(|_| Request::new(&who).expect("valid")).collect();
    let turns = Rc::new(Cell::new(0));
    let turns_of_other = Rc::clone(&turns);
    let other = async move {
        loop {
            turns_of_other.update(|turns| turns + 1);
            yield_now().await;
        }
    };
    let batches = async {
        let other = spawn_local(other);
        let mut told = 0;
        decider.check_batch(&requests, &caller(1), |_| told += 1).await;
        let turns_beside_first = turns.take();
        decider.decide_each(&requests, |_| async {}, |()| told += 1).await;
        assert_eq!(told, 2 * requests.len());
        assert!(turns_beside_first >= TURNS - 1 && turns.get() >= TURNS - 1, "{turns_beside_first}, {turns:?}");
        other.abort();
    };
    LocalSet::new().run_until(batches).await;
}

/// An observer that panics at each user whose name begins with `mallory`, and counts the decisions that it is shown.
struct PanicsAtMallory(Arc<AtomicUsize>);

impl Observer for PanicsAtMallory {
    fn observe(&self, observed: &Observed<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        assert!(!observed.identities().any(|(_, value)| value.starts_with(b"mallory")), "mallory was seen");
    }
}

#[tokio::test]
async fn a_batch_decides_and_charges_each_check_once_although_some_panic() {
    let engine =
        Arc::new(Engine::for_simulation(10, ManualClock::at(Timestamp::from_nanos(1_700_000_000_000_000_000)), 7));
    let policy = r#"
        [domains.default]
        on_error = "closed"
        defaults = { user = "free" }
        [[domains.default.tiers]]
        id = "free"
        limits = [{ id = "day", algorithm = "fixed_window", limit = 1000, period = "1d" }]
    "#;
    engine.publish(Snapshot::parse(policy, Format::Toml).expect("a right policy")).expect("room");
    let shown = Arc::new(AtomicUsize::new(0));
    engine.observe(NonZeroU32::MIN, PanicsAtMallory(Arc::clone(&shown)));
    let decider = Decider::new(Arc::clone(&engine)).expect("random numbers");
    let who = ["ada", "mallory"].map(|name| [Identity::new("user", name).expect("valid")]);
    let [ada, mallory] = who.each_ref().map(|who| Request::new(who).expect("valid"));
    let is_panic = |place: usize| [0, 20, 21, 40, 127, 128, 199].contains(&place);
    let requests: Vec<_> = (0..200).map(|place| if is_panic(place) { mallory } else { ada }).collect();
    let mut answers = Vec::new();
    decider.check_batch(&requests, &caller(1), |answer| answers.push(answer)).await;
    assert_eq!((answers.len(), shown.load(Ordering::Relaxed)), (200, 200));
    for (place, answer) in answers.iter().enumerate() {
        assert_eq!((answer.is_allowed, answer.decision.is_none()), (!is_panic(place), is_panic(place)), "{place}");
    }
    let left_after_one_more = |request| engine.peek(request).remaining();
    assert_eq!([&ada, &mallory].map(left_after_one_more), [Some(999 - 193), Some(999 - 7)]);
    assert_eq!(decider.degraded.failures(), 7);
}

#[test]
fn a_caller_that_has_its_share_is_refused_and_nothing_is_charged() {
    let engine =
        Arc::new(Engine::for_simulation(10, ManualClock::at(Timestamp::from_nanos(1_700_000_000_000_000_000)), 7));
    let policy = r#"
        [domains.default]
        defaults = { user = "free" }
        [[domains.default.tiers]]
        id = "free"
        limits = [{ id = "day", algorithm = "fixed_window", limit = 1000000, period = "1d" }]
    "#;
    engine.publish(Snapshot::parse(policy, Format::Toml).expect("a right policy")).expect("room");
    let share = OPEN_MAX / 100;
    let decider = Decider::new(engine).expect("random numbers").with_caller_share(1);
    let (hostile, good) = (caller(2), caller(1));
    let of = |kind| Identity::new(kind, "ada").expect("valid");
    let (ada, stranger) = ([of("user")], [of("stranger")]);
    let (ada, stranger) = (Request::new(&ada).expect("valid"), Request::new(&stranger).expect("valid"));
    let repeated = RequestId::new("1").ok();
    let mut held = Vec::new();
    for place in 0..share {
        let answer = reserve_of(&hostile, &decider, &ada, repeated.filter(|_| place == 0)).expect("room");
        held.push(answer.reservation.expect("it was charged"));
    }
    for _ in 0..2 {
        let refused = reserve_of(&hostile, &decider, &ada, RequestId::new("2").ok());
        assert!(matches!(refused, Err(Error::ReservationShare(ShareTaken { open })) if open == share));
    }
    let repeat = reserve_of(&hostile, &decider, &ada, repeated).expect("it takes no place");
    assert_eq!(repeat.reservation, Some(held[0]));
    let unlimited = reserve_of(&hostile, &decider, &stranger, None).expect("it takes no place");
    assert!(unlimited.is_allowed && unlimited.reservation.is_none() && unlimited.degraded.is_none());

    let other = reserve_of(&good, &decider, &ada, None).expect("others have room");
    let remaining = other.decision.expect("the engine decided").remaining();
    assert_eq!(remaining, Some(1_000_000 - share as u64 - 1), "what was refused was not charged");
    assert_eq!(decider.reservations.counts().0, share + 1);
    assert!(decider.settle(held[1], 0).is_ok());
    assert!(reserve_of(&hostile, &decider, &ada, None).is_ok(), "it is below its share");
    assert_eq!(decider.reservations.refused(), [("caller", 2), ("table", 0)]);
    assert_eq!((decider.degraded.failures(), decider.request_ids.repeats()), (0, 1));
}

#[test]
fn a_reservation_is_settled_at_no_more_than_the_multiple_that_is_set() {
    let engine =
        Arc::new(Engine::for_simulation(10, ManualClock::at(Timestamp::from_nanos(1_700_000_000_000_000_000)), 7));
    let policy = r#"
        [domains.default]
        defaults = { user = "free" }
        [[domains.default.tiers]]
        id = "free"
        limits = [{ id = "minute", algorithm = "token_bucket", limit = 5, period = "1m" }]
    "#;
    engine.publish(Snapshot::parse(policy, Format::Toml).expect("a right policy")).expect("room");
    let decider = Decider::new(engine).expect("random numbers").with_settle_multiple(3);
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).and_then(|request| request.cost(4)).expect("valid");
    let id = reserve(&decider, &request, None).expect("no id").reservation.expect("room");
    assert!(matches!(decider.settle(id, 13), Err(Error::ActualAboveMax { actual: 13, max: 12 })));
    assert!(decider.settle(id, 12).is_ok());
    assert!(matches!(decider.settle(id, 13), Err(Error::Reservation(Gone::Settled))));
}
