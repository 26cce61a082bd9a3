//! Divides the time of a thread among its peers, so that a peer with a thousand connections has no more of it than one with a
//! single connection.
//!
//! A thread polls its tasks in the order in which they were woken. So other tasks would wait for a poll of each connection of a
//! busy peer. Therefore the tasks of a peer share an allowance of time: once it is used, they wait, in their order. A round is over
//! when every other task that was ready has been polled; then each peer has a new allowance. Where no other task is ready, the next
//! round begins at once, so a peer that is alone may use all of the time.
//!
//! A task that holds what other peers wait for must not wait for a turn meanwhile: it [hurries](hurry).

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    fmt,
    pin::Pin,
    rc::{Rc, Weak},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    task::{spawn_local, yield_now},
    time::Instant,
};

use crate::peer::PeerNetwork;

/// The time that the tasks of a peer have in a round: about sixty requests over HTTP.
const ALLOWANCE: Duration = Duration::from_micros(500);
/// The longest time beyond its allowance that counts for later rounds. A poll that takes longer was interrupted by the system, or
/// parsed much.
const DEBT_MAX: Duration = Duration::from_millis(4);

/// The turns of all peers on one thread.
pub struct Turns {
    now: Box<dyn Fn() -> Instant>,
    /// Peers that have a task.
    peers: RefCell<HashMap<PeerNetwork, Weak<PeerTurns>>>,
    /// Peers that have used their allowance. While there are any, a task renews allowances.
    spent: RefCell<Vec<Rc<PeerTurns>>>,
}

impl Turns {
    /// Makes the turns of a thread that runs a [`LocalSet`](tokio::task::LocalSet).
    #[must_use]
    pub fn new() -> Rc<Self> {
        Self::with_clock(Instant::now)
    }

    /// Makes the turns of a thread, which measure time by this clock.
    fn with_clock(now: impl Fn() -> Instant + 'static) -> Rc<Self> {
        Rc::new(Self { now: Box::new(now), peers: RefCell::default(), spent: RefCell::default() })
    }

    /// Returns the turns of a peer.
    pub fn peer_turns(self: &Rc<Self>, peer: PeerNetwork) -> Rc<PeerTurns> {
        let mut peers = self.peers.borrow_mut();
        if let Some(turns) = peers.get(&peer).and_then(Weak::upgrade) {
            return turns;
        }
        let turns = Rc::new(PeerTurns {
            thread: Rc::clone(self),
            peer,
            used: Cell::new(Duration::ZERO),
            waiting: RefCell::default(),
        });
        peers.insert(peer, Rc::downgrade(&turns));
        turns
    }

    /// Renews allowances, round by round, until each peer has one.
    async fn renew(self: Rc<Self>) {
        while !self.spent.borrow().is_empty() {
            yield_now().await;
            let spent = self.spent.take();
            for peer in spent {
                peer.used.update(|used| used.saturating_sub(ALLOWANCE));
                if peer.is_spent() {
                    self.spent.borrow_mut().push(peer);
                } else {
                    peer.call_next();
                }
            }
        }
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").field("peers", &self.peers.borrow().len()).finish_non_exhaustive()
    }
}

/// The turns of one peer on one thread.
pub struct PeerTurns {
    thread: Rc<Turns>,
    peer: PeerNetwork,
    /// The time that its tasks have taken of their allowance, and beyond it.
    used: Cell<Duration>,
    /// Tasks that wait for a turn. While there are any, either the allowance is used or one task is called to its turn.
    waiting: RefCell<VecDeque<Rc<QueueEntry>>>,
}

impl PeerTurns {
    /// Wraps the root future of a task, so that it is polled in turns of this peer. A task that is called to its turn and does not
    /// poll it would hold up the other tasks of the peer.
    pub fn run<F: Future>(self: &Rc<Self>, future: F) -> InTurns<F> {
        InTurns { peer: Rc::clone(self), entry: Rc::default(), future: Box::pin(future) }
    }

    fn is_spent(&self) -> bool {
        self.used.get() >= ALLOWANCE
    }

    /// Counts time that a task has taken.
    fn spend(self: &Rc<Self>, took: Duration) {
        let was_spent = self.is_spent();
        self.used.update(|used| (used + took).min(ALLOWANCE + DEBT_MAX));
        if self.is_spent() && !was_spent {
            let is_first = self.thread.spent.borrow().is_empty();
            self.thread.spent.borrow_mut().push(Rc::clone(self));
            if is_first {
                drop(spawn_local(Rc::clone(&self.thread).renew()));
            }
        }
    }

    /// Calls the task that has waited longest to its turn, unless the allowance is used.
    fn call_next(&self) {
        if self.is_spent() {
            return;
        }
        let next = self.waiting.borrow_mut().pop_front();
        if let Some(entry) = next
            && let State::Waiting(waker) = entry.state.replace(State::Called)
        {
            waker.wake();
        }
    }
}

impl Drop for PeerTurns {
    fn drop(&mut self) {
        self.thread.peers.borrow_mut().remove(&self.peer);
    }
}

impl fmt::Debug for PeerTurns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerTurns").field("peer", &self.peer).field("used", &self.used).finish_non_exhaustive()
    }
}

/// The turn in which the present task is polled.
struct PresentTurn {
    began: Instant,
    /// The number of guards for which the task [hurries](hurry).
    hurries: Arc<AtomicUsize>,
}

thread_local! {
    static PRESENT: RefCell<Option<PresentTurn>> = const { RefCell::new(None) };
}

/// Returns when the turn began in which the present task is polled, which costs no reading of the clock. It is earlier than now
/// by the time that the poll has taken, and so is a deadline that is counted from it: deadlines are seconds, polls microseconds.
/// In a task without turns it is the time now.
pub(crate) fn turn_time() -> Instant {
    PRESENT.with_borrow(|turn| turn.as_ref().map(|turn| turn.began)).unwrap_or_else(Instant::now)
}

/// Has the present task polled without waiting for its turn, as long as the guard exists: it holds, or is the next to have, what
/// tasks of other peers wait for. The time that it takes counts all the same. In a task without turns this does nothing.
#[must_use = "the task waits again when this is dropped"]
pub fn hurry() -> Hurry {
    let guards = PRESENT.with_borrow(|turn| turn.as_ref().map(|turn| Arc::clone(&turn.hurries)));
    if let Some(guards) = &guards {
        guards.fetch_add(1, Ordering::Relaxed);
    }
    Hurry(guards)
}

/// A guard for a task that [hurries](hurry); it may be dropped by another thread.
#[derive(Debug)]
pub struct Hurry(Option<Arc<AtomicUsize>>);

impl Drop for Hurry {
    fn drop(&mut self) {
        if let Some(guards) = &self.0 {
            guards.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The entry of a task in the queue of its peer.
#[derive(Default)]
struct QueueEntry {
    state: Cell<State>,
    /// The number of guards for which it [hurries](hurry).
    hurries: Arc<AtomicUsize>,
}

#[derive(Default)]
enum State {
    /// It may take a turn if the allowance is not used and no other task waits.
    #[default]
    Free,
    Waiting(Waker),
    /// It is its turn.
    Called,
}

/// A future that is polled in the turns of its peer.
pub struct InTurns<F> {
    peer: Rc<PeerTurns>,
    entry: Rc<QueueEntry>,
    future: Pin<Box<F>>,
}

impl<F> fmt::Debug for InTurns<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InTurns").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl<F: Future> Future for InTurns<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let hurries = self.entry.hurries.load(Ordering::Relaxed) > 0;
        let is_called = match self.entry.state.take() {
            State::Called => true,
            State::Free if hurries => false,
            State::Free if self.peer.is_spent() || !self.peer.waiting.borrow().is_empty() => {
                self.peer.waiting.borrow_mut().push_back(Rc::clone(&self.entry));
                self.entry.state.set(State::Waiting(context.waker().clone()));
                return Poll::Pending;
            }
            State::Free => false,
            State::Waiting(mut waker) => {
                waker.clone_from(context.waker());
                self.entry.state.set(State::Waiting(waker));
                return Poll::Pending;
            }
        };
        let began = (self.peer.thread.now)();
        let outer = PRESENT.replace(Some(PresentTurn { began, hurries: Arc::clone(&self.entry.hurries) }));
        let turn = Turn { began, peer: Rc::clone(&self.peer), is_called, outer };
        let polled = self.future.as_mut().poll(context);
        drop(turn);
        polled
    }
}

impl<F> Drop for InTurns<F> {
    fn drop(&mut self) {
        match self.entry.state.take() {
            State::Free => {}
            State::Waiting(_) => self.peer.waiting.borrow_mut().retain(|entry| !Rc::ptr_eq(entry, &self.entry)),
            State::Called => self.peer.call_next(),
        }
    }
}

/// A turn that is being taken. It ends when this is dropped, also by a panic.
struct Turn {
    began: Instant,
    peer: Rc<PeerTurns>,
    is_called: bool,
    /// The turn of the task in whose poll this one is polled, if there is one.
    outer: Option<PresentTurn>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        PRESENT.set(self.outer.take());
        let took = (self.peer.thread.now)().saturating_duration_since(self.began);
        self.peer.spend(took);
        if self.is_called {
            self.peer.call_next();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        net::IpAddr,
        panic::{AssertUnwindSafe, catch_unwind},
    };

    use proptest::prelude::*;
    use tokio::{
        runtime,
        task::{JoinHandle, LocalSet},
        time::timeout,
    };

    use super::*;

    /// A clock that tasks set forward by what they take.
    #[derive(Clone, Default)]
    struct Clock(Rc<Cell<Duration>>);

    impl Clock {
        fn turns(&self) -> Rc<Turns> {
            let (clock, start) = (self.clone(), Instant::now());
            Turns::with_clock(move || start + clock.0.get())
        }

        fn take(&self, micros: u64) {
            self.0.update(|now| now + Duration::from_micros(micros));
        }

        /// Lets the tasks go on until they have taken so many milliseconds.
        async fn pass(&self, millis: u64) {
            let end = self.0.get() + Duration::from_millis(millis);
            while self.0.get() < end {
                yield_now().await;
            }
        }
    }

    fn peer(last: u8) -> PeerNetwork {
        IpAddr::from([192, 0, 2, last]).into()
    }

    /// The time that a task has taken, in so many turns, and the longest time that it waited for one of them.
    #[derive(Clone, Copy, Default, Debug)]
    struct Taken {
        time: Duration,
        turns: u32,
        longest_wait: Duration,
    }

    /// Starts a task that always has more to do, and takes so many microseconds a turn.
    fn busy(turns: &Rc<PeerTurns>, clock: &Clock, micros: u64) -> Rc<Cell<Taken>> {
        let taken = Rc::new(Cell::new(Taken::default()));
        let (clock, taken_by_task) = (clock.clone(), Rc::clone(&taken));
        let work = async move {
            let mut last = clock.0.get();
            loop {
                let waited = clock.0.get().saturating_sub(last);
                clock.take(micros);
                last = clock.0.get();
                taken_by_task.update(|Taken { time, turns, longest_wait }| Taken {
                    time: time + Duration::from_micros(micros),
                    turns: turns + 1,
                    longest_wait: longest_wait.max(waited),
                });
                yield_now().await;
            }
        };
        drop(spawn_local(turns.run(work)));
        taken
    }

    #[tokio::test]
    async fn a_peer_with_a_thousand_tasks_leaves_another_its_turns() {
        let clock = Clock::default();
        let turns = clock.turns();
        let test = async {
            let (many, one) = (turns.peer_turns(peer(1)), turns.peer_turns(peer(2)));
            let of_many: Vec<_> = (0..1_000).map(|_| busy(&many, &clock, 100)).collect();
            let of_one = busy(&one, &clock, 10);
            clock.pass(2_000).await;
            let longest = of_one.get().longest_wait;
            assert!(longest <= ALLOWANCE + Duration::from_micros(100), "{longest:?}");
            // They take turns among themselves.
            let had = of_many.iter().map(|taken| taken.get().turns);
            let (least, most) = (had.clone().min().expect("some"), had.max().expect("some"));
            assert!(least > 10 && most - least <= 1, "{least} to {most}");
        };
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test]
    async fn peers_have_the_same_time_however_long_their_turns_are() {
        let clock = Clock::default();
        let turns = clock.turns();
        let test = async {
            let (long, short) = (turns.peer_turns(peer(1)), turns.peer_turns(peer(2)));
            let of_long = busy(&long, &clock, 3_000);
            let of_short: Vec<_> = (0..10).map(|_| busy(&short, &clock, 70)).collect();
            clock.pass(2_000).await;
            let of_short: Duration = of_short.iter().map(|taken| taken.get().time).sum();
            let ratio = of_long.get().time.as_secs_f64() / of_short.as_secs_f64();
            assert!((0.8..1.25).contains(&ratio), "{ratio}");
        };
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test]
    async fn a_turn_that_was_interrupted_is_paid_for_in_part() {
        let clock = Clock::default();
        let turns = clock.turns();
        let test = async {
            let (interrupted, others) = (turns.peer_turns(peer(1)), turns.peer_turns(peer(2)));
            for _ in 0..10 {
                busy(&others, &clock, 100);
            }
            let times = Rc::new(RefCell::new(Vec::new()));
            let (clock_of_task, times_of_task) = (clock.clone(), Rc::clone(&times));
            drop(spawn_local(interrupted.run(async move {
                clock_of_task.take(300_000);
                times_of_task.borrow_mut().push(clock_of_task.0.get());
                yield_now().await;
                times_of_task.borrow_mut().push(clock_of_task.0.get());
            })));
            clock.pass(400).await;
            let [began, went_on] = times.borrow()[..] else { panic!("it goes on") };
            let waited = went_on.saturating_sub(began);
            assert!((DEBT_MAX..2 * DEBT_MAX).contains(&waited), "{waited:?}");
        };
        LocalSet::new().run_until(test).await;
    }

    /// A task of a peer with a thousand others holds what another peer waits for, over many of its turns.
    #[tokio::test]
    async fn a_task_that_hurries_does_not_wait_for_the_others_of_its_peer() {
        const TURNS: u32 = 100;
        let clock = Clock::default();
        let turns = clock.turns();
        let test = async {
            let many = turns.peer_turns(peer(1));
            let work = |hurries: bool| {
                let clock = clock.clone();
                async move {
                    // It has its first turn.
                    yield_now().await;
                    let guard = hurries.then(hurry);
                    let began = clock.0.get();
                    for _ in 0..TURNS {
                        clock.take(1);
                        yield_now().await;
                    }
                    drop(guard);
                    let held = clock.0.get();
                    yield_now().await;
                    (held.saturating_sub(began), clock.0.get().saturating_sub(held))
                }
            };
            let of_many: Vec<_> = (0..1_000).map(|_| busy(&many, &clock, 100)).collect();
            let (hurries, waits) = (spawn_local(many.run(work(true))), spawn_local(many.run(work(false))));
            let (held, after) = hurries.await.expect("it ends");
            waits.abort();
            let round = ALLOWANCE + Duration::from_micros(100);
            assert!(held <= round * TURNS, "{held:?}");
            assert!(after > round * 100, "it waits again: {after:?}");
            assert!(of_many.iter().all(|taken| taken.get().turns > 0));
        };
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test]
    async fn the_time_of_a_turn_is_its_beginning_also_after_turns_within_it() {
        let clock = Clock::default();
        let turns = clock.turns();
        let start = (turns.now)();
        let after = |micros| start + Duration::from_micros(micros);
        let test = async {
            let (outer, inner) = (turns.peer_turns(peer(1)), turns.peer_turns(peer(2)));
            let task = outer.run(async {
                clock.take(100);
                assert_eq!(turn_time(), after(0), "time has passed since");
                let nested = async {
                    clock.take(10);
                    assert_eq!(turn_time(), after(100));
                };
                inner.run(nested).await;
                assert_eq!(turn_time(), after(0), "after a turn within it");
                let mut nested = inner.run(async {
                    assert_eq!(turn_time(), after(110));
                    panic!("as it is to");
                });
                let polled = poll_fn(|context| {
                    let poll = AssertUnwindSafe(|| Pin::new(&mut nested).poll(context));
                    Poll::Ready(catch_unwind(poll))
                });
                assert!(polled.await.is_err());
                assert_eq!(turn_time(), after(0), "after a panic within it");
                yield_now().await;
                assert_eq!(turn_time(), after(110), "the next turn");
            });
            task.await;
            let before = Instant::now();
            let now = turn_time();
            assert!((before..=Instant::now()).contains(&now), "outside of turns");
        };
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test]
    async fn a_task_without_turns_may_hurry() {
        assert!(hurry().0.is_none());
    }

    /// How a task ends.
    #[derive(Clone, Copy, Debug)]
    enum End {
        Done,
        Panicked,
        /// From outside, at this turn of the task that ends it.
        Aborted(u32),
    }

    fn ends() -> impl Strategy<Value = End> {
        prop_oneof![4 => Just(End::Done), 1 => Just(End::Panicked), 2 => (0..50_u32).prop_map(End::Aborted)]
    }

    /// Runs tasks, each of a peer, with so many turns of so many microseconds, to their ends.
    async fn run_all(tasks: &[(u8, u32, u64, End)]) -> Result<(), TestCaseError> {
        let clock = Clock::default();
        let turns = clock.turns();
        let mut begun: Vec<(JoinHandle<()>, End)> = Vec::new();
        for &(number, count, micros, end) in tasks {
            let clock = clock.clone();
            let work = async move {
                for _ in 0..count {
                    clock.take(micros);
                    yield_now().await;
                }
                assert!(!matches!(end, End::Panicked), "as it is to");
            };
            begun.push((spawn_local(turns.peer_turns(peer(number)).run(work)), end));
        }
        for turn in 0..50 {
            for (task, _) in begun.iter().filter(|(_, end)| matches!(end, End::Aborted(at) if *at == turn)) {
                task.abort();
            }
            yield_now().await;
        }
        for (task, end) in begun {
            let ended = task.await;
            match end {
                End::Done => prop_assert!(ended.is_ok()),
                End::Panicked => prop_assert!(ended.is_err_and(|error| error.is_panic())),
                End::Aborted(_) => {}
            }
        }
        while !turns.spent.borrow().is_empty() {
            yield_now().await;
        }
        prop_assert!(turns.peers.borrow().is_empty());
        Ok(())
    }

    proptest! {
        /// No task waits for ever, and nothing is left in memory.
        #[test]
        fn however_tasks_end_the_others_go_on(
            tasks in prop::collection::vec((0..3_u8, 1..20_u32, 0..400_u64, ends()), 1..80)
        ) {
            let runtime = runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
            let test = async { timeout(Duration::from_mins(1), run_all(&tasks)).await };
            LocalSet::new().block_on(&runtime, test).expect("all of them end")?;
        }
    }
}
