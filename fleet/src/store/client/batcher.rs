//! Batches requests to the store: requests that wait for the same slot go out together. A circuit breaker skips a store
//! that does not answer.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tidegate::time::Nanos;
use tidegate_net::breaker::{Breaker, CallOutcome, CallPermit, State};
use tokio::{
    runtime,
    sync::{Notify, oneshot},
    time::{Instant, sleep, timeout, timeout_at},
};

use crate::{
    lock::lock,
    store::{
        client::{
            clock_reading::ClockReading,
            epoch::Epochs,
            fault_log::FaultLog,
            queue::{BACKGROUND, MovingSlots, PendingReply, QueuedRequest, SlotQueue},
            redis_client::ANSWER_IN,
            store_connection::{StoreConnection, has_moved},
        },
        config::StoreSettings,
        key::KeyNames,
        script::{
            decode::{KeyReply, OpOutcome, replies_of},
            encode::ScriptCall,
            plan::{KeyRequest, SlotRequest},
        },
        stats::WaitCounters,
    },
};

/// The queue for background requests to a single server, and the time for which they gather unless a check waits for
/// one.
const GATHERED: &str = "~";
const GATHER: Duration = Duration::from_millis(5);

/// The pause after a server answered that a slot has moved.
const MOVED: Duration = Duration::from_millis(2);

/// The prefix of the queues for operators' requests, which gather too, so that all requests of a query go out together.
const FOR_OPERATORS: &str = "?";

pub(crate) struct Batcher {
    pub(crate) connection: StoreConnection,
    pub(crate) keys: KeyNames,
    pub(crate) settings: StoreSettings,
    pub(crate) epochs: Epochs,
    pub(crate) faults: Arc<FaultLog>,
    moving: MovingSlots,
    breaker: Breaker,
    state: Mutex<State>,
    /// Whether the state is open; read by each check of a view.
    is_open: AtomicBool,
    slots: Mutex<HashMap<String, SlotQueue>>,
    /// The time at which the store answered last, by this node's clock, and how far its own clock is ahead of that. Until it
    /// answers, its time is unknown (0), and the script refuses operations for which the time matters.
    heard_at: AtomicU64,
    ahead: AtomicU64,
    /// The number of connections when the circuit breaker opened, or when it tried a new connection.
    tried_connections: AtomicU64,
    began: Instant,
    /// The runtime for tasks that no caller waits for.
    pub(crate) runtime: runtime::Handle,
    pub(crate) counts: ScriptCounts,
}

/// The counts of [`StoreStats`](crate::store::StoreStats) that the client keeps.
#[derive(Debug, Default)]
pub(crate) struct ScriptCounts {
    pub(crate) asked: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) took_ns: AtomicU64,
    /// The number of times that the circuit breaker opened.
    pub(crate) opened: AtomicU64,
    pub(crate) waits: WaitCounters,
}

impl Batcher {
    pub(crate) fn new(connection: StoreConnection, keys: KeyNames, settings: StoreSettings) -> Self {
        let breaker = Breaker { failures_max: settings.failures_max, pause: settings.pause };
        let (epochs, faults) = (Epochs::new(&keys, connection.is_cluster()), Arc::clone(&connection.faults));
        Self {
            connection,
            keys,
            settings,
            epochs,
            faults,
            moving: MovingSlots::default(),
            breaker,
            state: Mutex::default(),
            is_open: AtomicBool::new(false),
            slots: Mutex::default(),
            heard_at: AtomicU64::new(0),
            ahead: AtomicU64::new(0),
            tried_connections: AtomicU64::new(0),
            began: Instant::now(),
            runtime: runtime::Handle::current(),
            counts: ScriptCounts::default(),
        }
    }

    pub(crate) fn lease_ns(&self) -> Nanos {
        nanos(self.settings.lease).max(1)
    }

    /// Sends the requests of a check that began to wait at `began`, those of one slot together. Returns the replies in
    /// the same order, as far as they arrive within the timeout.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        slot_requests: Vec<(String, SlotRequest)>,
        began: Instant,
    ) -> Vec<Option<Vec<KeyReply>>> {
        let patience = self.settings.timeout;
        let mut replies: Vec<_> = slot_requests.iter().map(|_| None).collect();
        let Some(permit) = self.permit() else { return replies };
        let mut asked: Vec<_> = slot_requests
            .into_iter()
            .map(|(slot, slot_request)| self.enqueue(slot, slot_request, patience, true))
            .collect();
        let waited = timeout(patience.saturating_sub(began.elapsed()), async {
            for (asked, reply) in asked.iter_mut().zip(&mut replies) {
                *reply = (&mut asked.answer).await.ok();
            }
        });
        let has_failed = waited.await.is_ok();
        // A request that lost every race, or waited behind others, has no reply, but its slot shows that the store
        // answers.
        let now = self.now();
        let is_there = replies.iter().any(Option::is_some) || asked.iter().any(|it| it.is_within(patience, now));
        let silent_for = asked.iter().map(|it| it.silent_for(now)).max().unwrap_or_default();
        // A check that had waited for something else first says nothing of a store that did not answer at once.
        if is_there || has_failed || silent_for > patience / 2 || permit == CallPermit::Trial {
            self.record(permit, silent_for, 1, is_there);
        }
        replies
    }

    /// Sends one request in the background. It goes on when the check that waits for it has given up. [`Batcher::wait_for`]
    /// waits for the reply.
    pub(crate) fn ask_in_background(
        self: &Arc<Self>,
        slot: String,
        request: KeyRequest,
        patience: Duration,
        is_urgent: bool,
    ) -> PendingReply {
        // A request that waits behind others is not sent twice: that would only lengthen the queue.
        self.enqueue(slot, vec![request], patience.max(self.settings.timeout), is_urgent)
    }

    /// Waits for the reply to a background request, and records the outcome for the circuit breaker.
    pub(crate) async fn wait_for(&self, permit: CallPermit, mut asked: PendingReply) -> Option<KeyReply> {
        let notices_in = self.notices_in();
        loop {
            // By this time a silence shows. A request that gathers is sent later.
            let asked_at = asked.at.max(asked.heard_at.load(Ordering::Relaxed));
            let silent_at = self.began + Duration::from_nanos(asked_at) + notices_in;
            let mut reply = timeout_at(silent_at, &mut asked.answer).await;
            if reply.is_err() && silent_at.elapsed() > self.settings.timeout / 2 {
                // This machine may have been paused: the reply may have arrived without being read.
                reply = timeout(self.settings.timeout, &mut asked.answer).await;
            }
            let now = self.now();
            let silent_for = asked.silent_for(now);
            let is_there = matches!(reply, Ok(Ok(_))) || asked.is_within(notices_in, now);
            if reply.is_ok() || silent_for >= notices_in {
                // One server of a cluster may be silent alone.
                let heard_for = now.saturating_sub(self.heard_at.load(Ordering::Relaxed));
                let is_heard = heard_for < nanos(notices_in);
                self.record(permit, silent_for, if is_heard { 1 } else { self.settings.failures_max }, is_there);
                let reply = if let Ok(reply) = reply { reply } else { asked.answer.await };
                return reply.ok()?.pop();
            }
        }
    }

    /// Returns the silence after which the circuit breaker opens.
    fn notices_in(&self) -> Duration {
        self.settings.timeout * self.settings.failures_max
    }

    /// Probes a store that has not answered for a while, until it is known whether it is there.
    pub(crate) async fn probe(&self) {
        while self.clock_reading().own.saturating_sub(self.heard_at.load(Ordering::Relaxed)) > nanos(BACKGROUND)
            && !self.is_open()
            && let Some(permit) = self.permit()
        {
            let probe = self.probe_at(self.epochs.next_place(), self.notices_in());
            if !self.record_probe(permit, probe).await {
                // It may have refused at once.
                sleep(MOVED).await;
            }
        }
    }

    /// Sends the requests of an operator's query, all together: to a single server in one script as far as it has room,
    /// to a cluster slot by slot. Works also while the circuit breaker is open, and does not affect it.
    pub(crate) async fn ask_for_operators(
        self: &Arc<Self>,
        requests: Vec<(String, KeyRequest)>,
    ) -> Vec<Option<KeyReply>> {
        let patience = self.settings.operator_timeout.max(self.settings.timeout);
        let queue = |slot| {
            if self.connection.is_cluster() { format!("{FOR_OPERATORS}{slot}") } else { FOR_OPERATORS.to_owned() }
        };
        let mut replies: Vec<_> = requests.iter().map(|_| None).collect();
        let asked: Vec<_> = requests
            .into_iter()
            .map(|(slot, request)| self.enqueue(queue(slot), vec![request], patience, false))
            .collect();
        let waited = timeout(patience, async {
            for (reply, asked) in replies.iter_mut().zip(asked) {
                *reply = asked.answer.await.ok().and_then(|mut reply| reply.pop());
            }
        });
        drop(waited.await);
        replies
    }

    /// Returns for how long the reply to a lease request is awaited: a lease without a reply counts as out for its
    /// whole life. A single server that was paused goes on; in a cluster another server may take over, which is asked
    /// again.
    pub(crate) fn patience_of_leases(&self) -> Duration {
        if self.connection.is_cluster() { BACKGROUND } else { ANSWER_IN }
    }

    /// Sends a request whose reply no caller waits for.
    pub(crate) fn send_detached(self: &Arc<Self>, slot: String, request: KeyRequest) {
        let slot_request = vec![request];
        // A slow store must still take it: otherwise what is given back would be lost.
        let patience = BACKGROUND.max(self.settings.timeout);
        self.queue(slot, QueuedRequest { slot_request, since: None, patience, is_urgent: false, answer: None });
    }

    /// Makes the queued request for a key urgent, because a check now waits for it.
    pub(crate) fn hurry(&self, slot: &str, key: &str) {
        if let Some(slot) = lock(&self.slots).get_mut(slot) {
            slot.hurry(key);
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Returns whether the circuit breaker is open, or the store has never answered.
    pub(crate) fn is_away(&self) -> bool {
        self.is_open() || self.heard_at.load(Ordering::Relaxed) == 0
    }

    /// Returns a permit to ask the store, unless the circuit breaker is open. Then only the health monitor tries the
    /// store: requests of checks may need no write, and would not show that the store takes none.
    pub(crate) fn permit(&self) -> Option<CallPermit> {
        if self.is_open() { None } else { self.trial() }
    }

    /// Returns a permit as [`permit`](Self::permit) does, also for a trial of an open circuit breaker when its pause is
    /// over.
    pub(crate) fn trial(&self) -> Option<CallPermit> {
        self.step(|breaker, state| breaker.ask(state, Instant::now()))
    }

    /// Brings the next trial of an open circuit breaker forward if there has been a new connection since.
    pub(crate) fn try_new_connection(&self) {
        let made = self.connection.connections();
        if self.tried_connections.swap(made, Ordering::Relaxed) != made {
            let now = Instant::now();
            self.step(|_, state| match state {
                State::Open { trial_at, hurried } => (State::Open { trial_at: trial_at.min(now), hurried }, ()),
                State::Closed { .. } => (state, ()),
            });
        }
    }

    /// Records an answer, or a silence of this length, for the circuit breaker. A silence counts as one failure for
    /// each timeout in it, at least one and at most `most`. So a background request, which waits longer than a check,
    /// shows as soon that the store is gone.
    pub(crate) fn record(&self, permit: CallPermit, silent_for: Duration, most: u32, is_there: bool) {
        let now = Instant::now();
        self.step(|breaker, state| {
            let timeouts = silent_for.as_nanos() / self.settings.timeout.as_nanos().max(1);
            let failures = u32::try_from(timeouts).unwrap_or(u32::MAX).clamp(1, most.max(1));
            let since = now.checked_sub(silent_for).unwrap_or(self.began);
            let outcome = if is_there { CallOutcome::Answered } else { CallOutcome::Failed { since, failures } };
            let next = breaker.learn(state, permit, outcome, now);
            if matches!((state, next), (State::Closed { .. }, State::Open { .. })) {
                self.counts.opened.fetch_add(1, Ordering::Relaxed);
                self.tried_connections.store(self.connection.connections(), Ordering::Relaxed);
                tracing::warn!("the store is left alone; limits that nodes share are decided without it");
            } else if matches!((state, next), (State::Open { .. }, State::Closed { .. })) {
                self.faults.end_all();
                tracing::info!("the store answers again");
            }
            (next, ())
        });
    }

    /// Queues a request for as long as a caller waits for the reply.
    fn enqueue(
        self: &Arc<Self>,
        slot: String,
        slot_request: SlotRequest,
        patience: Duration,
        is_urgent: bool,
    ) -> PendingReply {
        // A request that gathers goes out later.
        let at = self.now() + if slot == GATHERED && !is_urgent { nanos(GATHER) } else { 0 };
        let (sender, answer) = oneshot::channel();
        let heard_at =
            self.queue(slot, QueuedRequest { slot_request, since: None, patience, is_urgent, answer: Some(sender) });
        PendingReply { answer, at, heard_at }
    }

    /// Adds a request to the queue of its slot; the first one starts a task that serves the queue. Returns the time at
    /// which the slot last had an answer.
    fn queue(self: &Arc<Self>, name: String, mut queued: QueuedRequest) -> Arc<AtomicU64> {
        let lease_ns = self.lease_ns();
        queued.slot_request.iter_mut().for_each(|request| request.lease_ns = lease_ns);
        let mut slots = lock(&self.slots);
        if let Some(slot) = slots.get_mut(&name) {
            slot.push(queued);
            return Arc::clone(&slot.heard_at);
        }
        let mut slot = SlotQueue::default();
        slot.push(queued);
        let (heard_at, wake) = (Arc::clone(&slot.heard_at), Arc::clone(&slot.wake));
        slots.insert(name.clone(), slot);
        drop(slots);
        let (store, served) = (Arc::clone(self), Arc::clone(&heard_at));
        self.runtime.spawn(async move { store.serve(&name, &wake, &served).await });
        heard_at
    }

    /// Sends what waits in a queue until it is empty.
    async fn serve(&self, name: &str, wake: &Notify, heard_at: &AtomicU64) {
        let mut again = Vec::new();
        loop {
            // A request that lost a race knows the value as it is now, so it goes out at once: after a pause it would
            // lose the next race too.
            if again.is_empty() && (name == GATHERED || name.starts_with(FOR_OPERATORS)) {
                let until = Instant::now() + GATHER;
                let is_early = || lock(&self.slots).get(name).is_some_and(|slot| !slot.is_full());
                // An old notification may wake the task early; then it sends early.
                while is_early() && timeout_at(until, wake.notified()).await.is_ok() {}
            }
            let batch = {
                let mut slots = lock(&self.slots);
                let Some(slot) = slots.get_mut(name) else { return };
                for queued in again.drain(..).rev() {
                    slot.queue_of(&queued).push_front(queued);
                }
                let batch = slot.take();
                if batch.is_empty() && slot.urgent.is_empty() && slot.others.is_empty() {
                    slots.remove(name);
                    return;
                }
                batch
            };
            if !batch.is_empty() {
                again = self.run_script(name, batch, heard_at).await;
            }
        }
    }

    /// Runs one script, and delivers the replies. Returns the requests that must be sent again.
    async fn run_script(&self, name: &str, mut batch: Vec<QueuedRequest>, heard_at: &AtomicU64) -> Vec<QueuedRequest> {
        let (now, mut call) = (self.clock_reading().store, ScriptCall::default());
        for queued in &mut batch {
            call.add(&mut queued.slot_request, now);
        }
        let patience = batch.iter().map(|queued| queued.patience).max().unwrap_or_default();
        let began = Instant::now();
        self.counts.asked.fetch_add(1, Ordering::Relaxed);
        let reply = match self.connection.run(&call.keys, &call.arguments, patience).await {
            Ok(reply) => reply,
            Err(error) if has_moved(&error) && !self.moving.is_lasting(name) => {
                heard_at.store(self.now(), Ordering::Relaxed);
                // The client soon knows where the slot is now.
                sleep(MOVED).await;
                // A request that was queued meanwhile has not waited for a silent store.
                heard_at.store(self.now(), Ordering::Relaxed);
                batch.retain_mut(QueuedRequest::is_asked_again);
                return batch;
            }
            Err(error) => {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                self.faults.meet(&error);
                tracing::debug!(%error, "the store did not answer");
                return Vec::new();
            }
        };
        self.moving.has_settled(name);
        self.counts.took_ns.fetch_add(nanos(began.elapsed()), Ordering::Relaxed);
        heard_at.store(self.now(), Ordering::Relaxed);
        let mut reply = reply.into_iter();
        let Some(now) = self.record_time(reply.next().as_ref()) else { return Vec::new() };
        let mut next = || Some((OpOutcome::named(&reply.next()?)?, reply.next()?));
        let mut again = Vec::new();
        for mut queued in batch {
            let done = queued.slot_request.iter().map(|_| next()).collect::<Option<Vec<_>>>();
            let Some(done) = done else { return again };
            match replies_of(&mut queued.slot_request, done, now) {
                // A send error is ignored: the receiver may have timed out.
                Some(answers) => drop(queued.answer.map(|answer| answer.send(answers))),
                None if queued.is_asked_again() => again.push(queued),
                None => {}
            }
        }
        again
    }

    /// Records the time of the store's clock, which the script returns in microseconds.
    pub(crate) fn record_time(&self, said: Option<&String>) -> Option<Nanos> {
        let now = said?.parse::<u64>().ok()? * 1_000;
        let heard_at = self.now();
        self.ahead.store(now.saturating_sub(heard_at), Ordering::Relaxed);
        self.heard_at.store(heard_at, Ordering::Relaxed);
        Some(now)
    }

    /// Returns the time of this node's own clock, which never jumps.
    fn now(&self) -> Nanos {
        nanos(self.began.elapsed())
    }

    /// Returns the store's time or a little before it, from the last answer and its age, and this node's own time.
    pub(crate) fn clock_reading(&self) -> ClockReading {
        let own = self.now();
        ClockReading { store: own.saturating_add(self.ahead.load(Ordering::Relaxed)), own }
    }

    fn step<T>(&self, step: impl FnOnce(Breaker, State) -> (State, T)) -> T {
        let mut state = lock(&self.state);
        let (next, answer) = step(self.breaker, *state);
        *state = next;
        self.is_open.store(matches!(next, State::Open { .. }), Ordering::Relaxed);
        answer
    }

    /// Returns the queue for background requests about a slot: the slot's own in a cluster, which is asked slot by
    /// slot; one queue for all keys of a single server.
    pub(crate) fn background_slot(&self, slot: &str) -> String {
        if self.connection.is_cluster() { slot.to_owned() } else { GATHERED.to_owned() }
    }
}

fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
