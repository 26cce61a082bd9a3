//! Divides the time of a thread among its peers, so that a peer with a thousand connections gets no more of it than a peer with
//! one connection.
//!
//! A thread polls its tasks in the order in which they were woken, so every other task would wait for a poll of each connection of
//! a busy peer. Therefore the tasks of a peer share an allowance of time. Once it is used, they wait in a queue. A round ends when
//! every other ready task has been polled; then each peer gets a new allowance. If no other task is ready, the next round begins at
//! once, so a peer that is alone can use all of the time.
//!
//! A task that holds a resource for which other peers wait must not wait for a turn meanwhile: it [hurries](hurry).

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

/// The time that the tasks of a peer get in a round: about sixty requests over HTTP.
const ALLOWANCE: Duration = Duration::from_micros(500);
/// The longest overrun of an allowance that counts against later rounds. A poll that overruns it further was interrupted by the
/// system, or parsed much.
const DEBT_MAX: Duration = Duration::from_millis(4);

/// The turns of all peers on one thread.
pub struct Turns {
    now: Box<dyn Fn() -> Instant>,
    /// The peers that have a task.
    peers: RefCell<HashMap<PeerNetwork, Weak<PeerTurns>>>,
    /// The peers that have used their allowance. While there are any, a task renews allowances.
    spent: RefCell<Vec<Rc<PeerTurns>>>,
}

impl Turns {
    /// Returns the turns of a thread that runs a [`LocalSet`](tokio::task::LocalSet).
    #[must_use]
    pub fn new() -> Rc<Self> {
        Self::with_clock(Instant::now)
    }

    /// Returns the turns of a thread, which measure time by this clock.
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
    /// The time that its tasks have used, including an overrun of the allowance.
    used: Cell<Duration>,
    /// The queue of tasks that wait for a turn. While it is not empty, either the allowance is used or one task is called to its
    /// turn.
    waiting: RefCell<VecDeque<Rc<QueueEntry>>>,
}

impl PeerTurns {
    /// Wraps the root future of a task, so that it is polled in turns of this peer. The task must poll the wrapper when it is woken:
    /// otherwise it would block the other tasks of the peer.
    pub fn run<F: Future>(self: &Rc<Self>, future: F) -> TurnFuture<F> {
        TurnFuture { peer: Rc::clone(self), entry: Rc::default(), future: Box::pin(future) }
    }

    fn is_spent(&self) -> bool {
        self.used.get() >= ALLOWANCE
    }

    /// Counts time that a task has used.
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

/// The turn in which the current task is polled.
struct CurrentTurn {
    began: Instant,
    /// The number of [`HurryGuard`] guards of the task.
    hurries: Arc<AtomicUsize>,
}

thread_local! {
    static CURRENT: RefCell<Option<CurrentTurn>> = const { RefCell::new(None) };
}

/// Returns the start of the turn in which the current task is polled, without reading the clock. It is earlier than now by the
/// duration of the poll, and so is a deadline that is counted from it; but deadlines are seconds, and polls are microseconds. In a
/// task without turns it is the current time.
pub(crate) fn turn_time() -> Instant {
    CURRENT.with_borrow(|turn| turn.as_ref().map(|turn| turn.began)).unwrap_or_else(Instant::now)
}

/// Exempts the current task from waiting for its turn while the guard exists, because the task holds a resource for which tasks of
/// other peers wait, or is the next to get it. The time that the task uses still counts. In a task without turns this does nothing.
#[must_use = "the task waits for turns again when this is dropped"]
pub fn hurry() -> HurryGuard {
    let guards = CURRENT.with_borrow(|turn| turn.as_ref().map(|turn| Arc::clone(&turn.hurries)));
    if let Some(guards) = &guards {
        guards.fetch_add(1, Ordering::Relaxed);
    }
    HurryGuard(guards)
}

/// The guard of a task that [hurries](hurry). Another thread may drop it.
#[derive(Debug)]
pub struct HurryGuard(Option<Arc<AtomicUsize>>);

impl Drop for HurryGuard {
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
    /// The number of [`HurryGuard`] guards of the task.
    hurries: Arc<AtomicUsize>,
}

/// The state of a task in the queue of its peer.
#[derive(Default)]
enum State {
    /// The task may take a turn if the allowance is not used and no other task waits.
    #[default]
    Free,
    /// The task waits in the queue.
    Waiting(Waker),
    /// The task is called to its turn.
    Called,
}

/// A future that is polled in the turns of its peer.
pub struct TurnFuture<F> {
    peer: Rc<PeerTurns>,
    entry: Rc<QueueEntry>,
    future: Pin<Box<F>>,
}

impl<F> fmt::Debug for TurnFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnFuture").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl<F: Future> Future for TurnFuture<F> {
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
        let outer = CURRENT.replace(Some(CurrentTurn { began, hurries: Arc::clone(&self.entry.hurries) }));
        let turn = TurnGuard { began, peer: Rc::clone(&self.peer), is_called, outer };
        let polled = self.future.as_mut().poll(context);
        drop(turn);
        polled
    }
}

impl<F> Drop for TurnFuture<F> {
    fn drop(&mut self) {
        match self.entry.state.take() {
            State::Free => {}
            State::Waiting(_) => self.peer.waiting.borrow_mut().retain(|entry| !Rc::ptr_eq(entry, &self.entry)),
            State::Called => self.peer.call_next(),
        }
    }
}

/// The guard of a turn, which ends on drop, also by a panic.
struct TurnGuard {
    began: Instant,
    peer: Rc<PeerTurns>,
    is_called: bool,
    /// The turn of the task whose poll polls this one, if there is one.
    outer: Option<CurrentTurn>,
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        CURRENT.set(self.outer.take());
        let took = (self.peer.thread.now)().saturating_duration_since(self.began);
        self.peer.spend(took);
        if self.is_called {
            self.peer.call_next();
        }
    }
}

#[cfg(test)]
mod tests;
