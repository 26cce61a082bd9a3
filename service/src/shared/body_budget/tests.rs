//! Tests of the ledger with a virtual time, and of permits.

use std::{
    net::Ipv4Addr,
    pin::pin,
    task::{Context, Poll, Wake, Waker},
};

use futures_util::FutureExt;
use proptest::prelude::*;

use super::{ledger::BodyHolder, *};

const GRACE: Duration = Duration::from_secs(1);
const BODY: Duration = Duration::from_secs(5);
const RESPONSE: Duration = Duration::from_mins(1);

const LIMITS: BudgetLimits =
    BudgetLimits { budget: 100, peer: 40, connection: 20, grace: GRACE, body: BODY, answer: RESPONSE };

fn peer(number: u8) -> PeerNetwork {
    IpAddr::from([192, 0, 2, number]).into()
}

/// A ledger with a virtual time.
struct TimedLedger {
    ledger: BudgetLedger,
    now: Instant,
}

impl TimedLedger {
    fn new() -> Self {
        Self { ledger: BudgetLedger::new(LIMITS), now: Instant::now() }
    }

    /// Admits a new holder of a connection, whose hundreds are the number of its peer. Returns its number, or the refusal.
    fn admit(&mut self, connection: u64, bytes: usize) -> Result<u64, BudgetRefusal> {
        let peer = peer(u8::try_from(connection / 100).expect("a peer"));
        let state = Arc::default();
        let holder = BodyHolder { peer, connection, bytes, phase: PermitPhase::Body, since: self.now, state };
        self.ledger.admit(holder).map(|(number, _)| number)
    }

    fn resize(&mut self, number: u64, bytes: usize) -> Result<usize, BudgetRefusal> {
        self.ledger.resize(number, bytes, self.now)
    }

    fn numbers(&self) -> Vec<u64> {
        self.ledger.holders.keys().copied().collect()
    }
}

#[test]
fn a_connection_a_peer_and_all_have_their_bounds() {
    let mut budget = TimedLedger::new();
    let first = budget.admit(101, 20).expect("room");
    assert_eq!(budget.admit(101, 1), Err(BudgetRefusal::Connection));
    assert_eq!(budget.resize(first, 21), Err(BudgetRefusal::Connection));
    budget.admit(102, 20).expect("room");
    assert_eq!(budget.admit(103, 1), Err(BudgetRefusal::Peer));
    for connection in [201, 202, 301] {
        budget.admit(connection, 20).expect("another peer has its share");
    }
    assert_eq!(budget.admit(302, 20), Err(BudgetRefusal::Budget));
    assert_eq!((budget.ledger.by_peer.sum(), budget.ledger.refused), (100, [2, 1, 1, 0, 0]));
    // What is given back is there for others.
    budget.resize(first, 10).expect("it is less");
    budget.admit(401, 10).expect("room");
    budget.ledger.set_bytes(first, 0);
    budget.admit(103, 10).expect("its peer has room, too");
    assert_eq!(budget.ledger.by_peer.sum(), 100);
}

#[test]
fn the_oldest_is_dropped_first_of_its_connection_then_of_its_peer() {
    let mut budget = TimedLedger::new();
    let [other, _, second, third] = [301, 101, 101, 102].map(|connection| budget.admit(connection, 10).expect("room"));
    budget.now += GRACE;
    // The connection has 20 of 20, the peer 30 of 40.
    let fourth = budget.admit(101, 10).expect("the oldest of the connection makes room");
    assert_eq!(budget.numbers(), [other, second, third, fourth]);
    let fifth = budget.admit(103, 20).expect("the oldest of the peer makes room");
    assert_eq!(budget.numbers(), [other, third, fourth, fifth]);
    budget.now += GRACE;
    assert_eq!(budget.resize(fifth, 20), Ok(0), "it has that");
    assert_eq!(budget.resize(fourth, 20), Ok(1), "the peer makes room");
    assert_eq!(budget.resize(fourth, 21), Err(BudgetRefusal::Connection), "it is not dropped for itself");
    assert_eq!(budget.ledger.refused, [1, 0, 0, 3, 0]);
}

#[test]
fn in_a_full_budget_the_peer_with_most_makes_room_then_the_same_peer_then_any() {
    let mut budget = TimedLedger::new();
    let [_, first, second, third, fourth] =
        [101, 102, 201, 301, 401].map(|connection| budget.admit(connection, 20).expect("room"));
    let fifth = budget.admit(501, 10).expect("another peer has more, and makes room at any age");
    assert_eq!(budget.numbers(), [first, second, third, fourth, fifth]);
    let sixth = budget.admit(502, 10).expect("there is room");
    // Each of the five peers has 20, and none has waited for the grace.
    assert_eq!(budget.admit(503, 10), Err(BudgetRefusal::Budget));
    budget.now += GRACE;
    let seventh = budget.admit(503, 10).expect("the same peer makes room");
    assert_eq!(budget.numbers(), [first, second, third, fourth, sixth, seventh]);
    let eighth = budget.admit(504, 20).expect("what the peer has is not enough, so the oldest of all goes as well");
    assert_eq!(budget.numbers(), [second, third, fourth, seventh, eighth]);
    assert_eq!(budget.ledger.refused, [0, 0, 1, 4, 0]);
}

#[test]
fn young_holders_and_those_that_do_not_wait_for_their_caller_are_not_dropped() {
    let mut budget = TimedLedger::new();
    let working = budget.admit(101, 10).expect("room");
    budget.ledger.enter(working, PermitPhase::Work, budget.now);
    budget.now += GRACE;
    let young = budget.admit(101, 10).expect("room");
    assert_eq!(budget.admit(101, 1), Err(BudgetRefusal::Connection));
    assert_eq!(budget.numbers(), [working, young]);
    budget.now += GRACE;
    // One is old enough, which is not enough.
    assert_eq!(budget.admit(101, 11), Err(BudgetRefusal::Connection));
    assert_eq!(budget.numbers(), [working, young], "none is dropped in vain");
    // The time of another phase begins with it.
    budget.ledger.enter(young, PermitPhase::Response, budget.now);
    assert_eq!(budget.admit(101, 1), Err(BudgetRefusal::Connection));
    budget.now += GRACE;
    budget.ledger.enter(young, PermitPhase::Response, budget.now);
    budget.admit(101, 1).expect("the phase was the same");
}

#[test]
fn overdue_holders_are_revoked() {
    let mut budget = TimedLedger::new();
    let [body, answer, working] = [101, 201, 301].map(|connection| budget.admit(connection, 10).expect("room"));
    budget.ledger.enter(answer, PermitPhase::Response, budget.now);
    budget.ledger.enter(working, PermitPhase::Work, budget.now);
    let state = Arc::clone(&budget.ledger.holders[&body].state);
    for (period, left) in [
        (BODY.saturating_sub(Duration::from_nanos(1)), vec![body, answer, working]),
        (Duration::from_nanos(1), vec![answer, working]),
        (RESPONSE.saturating_sub(BODY), vec![working]),
        (RESPONSE, vec![working]),
    ] {
        budget.now += period;
        budget.ledger.sweep(budget.now);
        assert_eq!(budget.numbers(), left);
    }
    assert_eq!(state.refusal.get(), Some(&BudgetRefusal::Overdue));
    assert_eq!((budget.ledger.by_peer.sum(), budget.ledger.refused[4]), (10, 2));
}

proptest! {
    #[test]
    fn no_bound_is_exceeded_and_shares_add_up(
        steps in prop::collection::vec((0_u64..12, 0_usize..25, 0_u64..1_500), 1..200)
    ) {
        let mut budget = TimedLedger::new();
        for (choice, bytes, pause_ms) in steps {
            budget.now += Duration::from_millis(pause_ms);
            let numbers = budget.numbers();
            let chosen = numbers.get(choice as usize).copied();
            // Either may be refused.
            if let Some(number) = chosen.filter(|_| choice % 3 > 0) {
                let _ = budget.resize(number, bytes);
            } else if choice == 0 {
                budget.ledger.sweep(budget.now);
            } else if bytes > 0 {
                let _ = budget.admit(100 * (choice / 3) + choice, bytes);
            }
            let ledger = &budget.ledger;
            let sum = |is_of: &dyn Fn(&BodyHolder) -> bool| {
                ledger.holders.values().filter(|&holder| is_of(holder)).map(|holder| holder.bytes).sum::<usize>()
            };
            prop_assert_eq!(ledger.by_peer.sum(), sum(&|_| true));
            prop_assert!(ledger.by_peer.sum() <= LIMITS.budget);
            for (peer, taken) in ledger.by_peer.iter() {
                prop_assert_eq!(taken, sum(&|holder| holder.peer == *peer));
                prop_assert!((1..=LIMITS.peer).contains(&taken));
            }
            for (connection, taken) in ledger.by_connection.iter() {
                prop_assert_eq!(taken, sum(&|holder| holder.connection == *connection));
                prop_assert!((1..=LIMITS.connection).contains(&taken));
            }
            prop_assert_eq!(ledger.by_peer.sum(), ledger.by_connection.sum());
            prop_assert!(ledger.holders.values().all(|holder| holder.bytes > 0));
        }
    }
}

fn budget_with(timeouts: &Timeouts) -> (Arc<BodyBudget>, Arc<ConnectionShare>) {
    let budget = Arc::new(BodyBudget::new(timeouts));
    let connection = ConnectionShare::new(&budget, Ipv4Addr::LOCALHOST.into());
    (budget, connection)
}

#[test]
fn a_body_is_charged_by_blocks_beyond_its_first() {
    let (budget, connection) = budget_with(&Timeouts::default());
    let mut permit = BodyPermit::new(&connection);
    for (bytes, blocks) in [(0, 0), (1, 0), (BLOCK_BYTES, 0), (BLOCK_BYTES + 1, 1), (3 * BLOCK_BYTES, 2), (10, 0)] {
        permit.hold(bytes).expect("room");
        assert_eq!(budget.taken(), blocks * BLOCK_BYTES, "{bytes}");
    }
    permit.hold(BODY_BYTES_MAX).expect("room");
    assert_eq!(permit.hold(2 * CONNECTION_BYTES), Err(BudgetRefusal::Connection));
    assert_eq!(budget.taken(), BODY_BYTES_MAX - BLOCK_BYTES, "it holds what it did");
    drop(permit);
    assert_eq!(budget.taken(), 0);
    assert_eq!(budget.refused()[0], ("connection", 1));
}

#[test]
fn the_free_blocks_of_a_connection_are_bounded() {
    let (budget, connection) = budget_with(&Timeouts::default());
    let begun = || {
        let mut permit = BodyPermit::new(&connection);
        permit.hold(BLOCK_BYTES).expect("room");
        permit
    };
    let mut permits: Vec<_> = (0..FREE_BYTES / BLOCK_BYTES).map(|_| begun()).collect();
    assert_eq!(budget.taken(), 0);
    permits.push(begun());
    assert_eq!(budget.taken(), BLOCK_BYTES);
    drop(permits.swap_remove(0));
    permits.push(begun());
    assert_eq!(budget.taken(), BLOCK_BYTES, "a free one was given back");
    let mut other = BodyPermit::new(&ConnectionShare::new(&budget, Ipv4Addr::LOCALHOST.into()));
    other.hold(BLOCK_BYTES).expect("another connection has its own");
    assert_eq!(budget.taken(), BLOCK_BYTES);
    drop(permits);
    assert_eq!((budget.taken(), connection.free.load(Ordering::Relaxed)), (0, 0));
}

#[test]
fn a_revoked_permit_holds_nothing_and_its_revocation_resolves_until_the_owner_has_seen_it() {
    let (budget, connection) = budget_with(&Timeouts { body_grace: Duration::ZERO, ..Timeouts::default() });
    let context = &mut Context::from_waker(Waker::noop());
    let mut first = BodyPermit::new(&connection);
    let revocation = first.revocation();
    assert_eq!(first.poll_wait(CONNECTION_BYTES / 2, context), Poll::Pending);
    assert_eq!(revocation.poll_unseen(context), Poll::Pending);
    let mut second = BodyPermit::new(&connection);
    second.hold(CONNECTION_BYTES).expect("the other one makes room");
    assert_eq!(budget.taken(), CONNECTION_BYTES - BLOCK_BYTES);
    assert_eq!(first.hold(1), Err(BudgetRefusal::Dropped));
    assert_eq!(revocation.poll_unseen(context), Poll::Ready(BudgetRefusal::Dropped));
    assert_eq!(first.poll_wait(1, context), Poll::Ready(BudgetRefusal::Dropped));
    assert_eq!(revocation.poll_unseen(context), Poll::Pending, "its holder ends by itself");
    drop(first);
    assert_eq!(budget.taken(), CONNECTION_BYTES - BLOCK_BYTES, "it had nothing to give back");
}

#[test]
fn a_response_is_kept_until_it_is_taken_or_its_permit_is_revoked() {
    const ANSWER_BYTES: usize = 3 * BLOCK_BYTES - 1;
    let (budget, connection) = budget_with(&Timeouts { body_grace: Duration::ZERO, ..Timeouts::default() });
    let keep = || {
        let mut permit = BodyPermit::new(&connection);
        permit.hold(BLOCK_BYTES).expect("room");
        permit.enter(PermitPhase::Work);
        permit.keep(vec![7; ANSWER_BYTES]);
        permit
    };
    let (read, unread) = (keep(), keep());
    assert_eq!(budget.taken(), 4 * BLOCK_BYTES);
    let pieces: Vec<usize> = std::iter::from_fn(|| read.take_piece()).map(|piece| piece.len()).collect();
    assert_eq!(pieces, [BLOCK_BYTES, BLOCK_BYTES, BLOCK_BYTES - 1]);
    drop(read);
    assert_eq!(budget.taken(), 2 * BLOCK_BYTES);
    assert!(unread.take_piece().is_some());
    let mut other = BodyPermit::new(&connection);
    other.hold(CONNECTION_BYTES).expect("the oldest makes room");
    assert!(unread.take_piece().is_none() && unread.state.as_ref().is_some_and(|state| state.response().is_empty()));
}

/// A waker that counts its wakes.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn an_overdue_owner_that_is_not_polled_is_revoked() {
    let (budget, connection) = budget_with(&Timeouts::default());
    let sweeping = tokio::spawn(Arc::clone(&budget).revoke_overdue());
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let context = &mut Context::from_waker(&waker);
    let mut permit = BodyPermit::new(&connection);
    let revocation = permit.revocation();
    assert_eq!(permit.poll_wait(BODY_BYTES_MAX, context), Poll::Pending);
    assert_eq!(revocation.poll_unseen(context), Poll::Pending);
    sleep(Timeouts::default().request * 2).await;
    assert_eq!((budget.taken(), woken.0.load(Ordering::Relaxed)), (0, 1));
    assert_eq!(revocation.poll_unseen(context), Poll::Ready(BudgetRefusal::Overdue));
    sweeping.abort();
}

/// Returns a permit of a new connection of this peer.
fn permit_of(budget: &Arc<BodyBudget>, number: u8) -> BodyPermit {
    BodyPermit::new(&ConnectionShare::new(budget, IpAddr::from([192, 0, 2, number])))
}

#[test]
fn responses_that_are_being_made_have_a_part_of_the_share_of_their_peer() {
    const HALF: usize = WORK_BYTES / 2;
    let (budget, _) = budget_with(&Timeouts { body_grace: Duration::ZERO, ..Timeouts::default() });
    let [mut first, mut second, mut short] = [(); 3].map(|()| permit_of(&budget, 1));
    for permit in [&mut first, &mut second] {
        permit.begin_work(BLOCK_BYTES, HALF).now_or_never().expect("room").expect("room");
    }
    short.begin_work(0, BLOCK_BYTES).now_or_never().expect("one that is free waits for nothing").expect("room");
    let mut other = permit_of(&budget, 2);
    other.begin_work(0, WORK_BYTES).now_or_never().expect("another peer has its own").expect("room");

    // It holds what came of its batch while it waits, which others may have.
    let waiting = BLOCK_BYTES + 2 * BLOCK_BYTES;
    let [mut dropped, mut last] = [(); 2].map(|()| permit_of(&budget, 1));
    let taken = budget.taken();
    {
        let mut begun = pin!(dropped.begin_work(waiting, HALF));
        assert_eq!(begun.as_mut().now_or_never(), None);
        assert_eq!(budget.taken() - taken, 2 * BLOCK_BYTES);
        budget.ledger().sweep(Instant::now() + Duration::from_hours(1));
        assert_eq!(begun.as_mut().now_or_never(), None, "it is never overdue");
        let [mut body, mut another] = [(); 2].map(|()| permit_of(&budget, 1));
        body.hold(CONNECTION_BYTES).expect("room");
        another
            .hold(PEER_BYTES - CONNECTION_BYTES - WORK_BYTES + waiting)
            .expect("the oldest that does not work makes room");
        assert_eq!(begun.now_or_never(), Some(Err(BudgetRefusal::Dropped)));
    }
    {
        let mut begun = pin!(last.begin_work(waiting, WORK_BYTES));
        assert_eq!(begun.as_mut().now_or_never(), None);
        first.keep(vec![0; BLOCK_BYTES]);
        assert_eq!(begun.as_mut().now_or_never(), None, "half of it is not enough");
        drop(second);
        assert_eq!(begun.now_or_never(), Some(Ok(())));
    }
    drop((last, first, short, other));
    assert_eq!(budget.taken(), 0);
}

#[test]
fn peers_without_responses_under_way_take_no_memory() {
    let (budget, _) = budget_with(&Timeouts::default());
    for number in 0..=u8::MAX {
        permit_of(&budget, number).begin_work(0, WORK_BYTES).now_or_never().expect("room").expect("room");
    }
    assert!(budget.work.lock().expect("no panic").len() < 64);
}
