//! Batches requests to the store: those that wait for the same slot go out together. A circuit breaker leaves a store
//! alone that does not answer.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tidegate::time::Nanos;
use tidegate_net::breaker::{Breaker, Outcome, Permit, State};
use tokio::{
    runtime,
    sync::{Notify, oneshot},
    time::{Instant, sleep, timeout, timeout_at},
};

use crate::{
    lock::lock,
    store::{
        client::{
            clock::ClockReading,
            connect::ANSWER_IN,
            connection::{Connection, has_moved},
            epoch::Epochs,
            fault_log::FaultLog,
            queue::{BACKGROUND, MovingSlots, QueuedRequest, SlotQueue},
        },
        config::StoreSettings,
        key::KeyNames,
        script::{
            decode::{KeyReply, OpOutcome, hear},
            encode::ScriptCall,
            plan::{KeyRequest, SlotRequest},
        },
        stats::WaitCounters,
    },
};

/// The slot of what one server is asked in the background, and how long that gathers, unless somebody waits for one of it.
const GATHERED: &str = "~";
const GATHER: Duration = Duration::from_millis(5);

/// After a server said that a slot is at another.
const MOVED: Duration = Duration::from_millis(2);

/// Before the slots of what people ask; it gathers too, so that all of it goes out together.
const FOR_PEOPLE: &str = "?";

pub(crate) struct Batcher {
    pub(crate) connection: Connection,
    pub(crate) keys: KeyNames,
    pub(crate) settings: StoreSettings,
    pub(crate) epochs: Epochs,
    pub(crate) faults: Arc<FaultLog>,
    moving: MovingSlots,
    breaker: Breaker,
    state: Mutex<State>,
    /// Whether that is open: each check of a view asks.
    is_open: AtomicBool,
    /// Those that are being asked.
    slots: Mutex<HashMap<String, SlotQueue>>,
    /// When it answered last, by this node's clock, and how far its own clock is ahead of that. Before it answered nothing is
    /// known of its time (0), and the script refuses what matters.
    heard_at: AtomicU64,
    ahead: AtomicU64,
    /// How many connections had been made when the store was left alone, or tried over a new one.
    tried_connections: AtomicU64,
    began: Instant,
    runtime: runtime::Handle,
    pub(crate) counts: Counts,
}

/// What was asked, since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) asked: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Nanoseconds that answers took, in all.
    pub(crate) took_ns: AtomicU64,
    /// How often the breaker opened.
    pub(crate) opened: AtomicU64,
    /// For how long checks waited.
    pub(crate) waits: WaitCounters,
}

/// A question that was put to a slot.
pub(crate) struct PendingReply {
    answer: oneshot::Receiver<Vec<KeyReply>>,
    at: Nanos,
    heard_at: Arc<AtomicU64>,
}

impl PendingReply {
    /// Since it was put, or its slot heard of the store: it may wait behind others.
    fn silent_for(&self, now: Nanos) -> Duration {
        Duration::from_nanos(now.saturating_sub(self.at.max(self.heard_at.load(Ordering::Relaxed))))
    }

    /// Has its slot heard of the store since?
    fn is_within(&self, time: Duration, now: Nanos) -> bool {
        self.heard_at.load(Ordering::Relaxed) > self.at && self.silent_for(now) < time
    }
}

impl Batcher {
    pub(crate) fn new(connection: Connection, keys: KeyNames, settings: StoreSettings) -> Self {
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
            counts: Counts::default(),
        }
    }

    /// Where work goes on that nobody waits for.
    pub(crate) fn runtime(&self) -> &runtime::Handle {
        &self.runtime
    }

    pub(crate) fn id(&self) -> u64 {
        self.connection.id()
    }

    pub(crate) fn close_timeout(&self) -> Duration {
        self.settings.close_timeout
    }

    /// The life of a lease.
    pub(crate) fn lease_ns(&self) -> Nanos {
        nanos(self.settings.lease).max(1)
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.settings.timeout
    }

    /// Asks for each question of a check that began to wait then, those of one slot together; answers in their order, as far as
    /// there are answers within the timeout.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        questions: Vec<(String, SlotRequest)>,
        began: Instant,
    ) -> Vec<Option<Vec<KeyReply>>> {
        let patience = self.settings.timeout;
        let mut told: Vec<_> = questions.iter().map(|_| None).collect();
        let Some(permit) = self.permit() else { return told };
        let mut asked: Vec<_> =
            questions.into_iter().map(|(slot, question)| self.put(slot, question, patience, true)).collect();
        let waited = timeout(patience.saturating_sub(began.elapsed()), async {
            for (asked, told) in asked.iter_mut().zip(&mut told) {
                *told = (&mut asked.answer).await.ok();
            }
        });
        let has_failed = waited.await.is_ok();
        // Who lost every race, or waited behind others, was not answered, but heard of it.
        let now = self.now();
        let is_there = told.iter().any(Option::is_some) || asked.iter().any(|it| it.is_within(patience, now));
        let silent_for = asked.iter().map(|it| it.silent_for(now)).max().unwrap_or_default();
        // Whoever had waited for something else before it asked knows nothing of a store that did not answer at once.
        if is_there || has_failed || silent_for > patience / 2 || permit == Permit::Trial {
            self.learn(permit, silent_for, 1, is_there);
        }
        told
    }

    /// Asks one thing for so long, also when the check has gone that waits for it, if one does; [`Batcher::hear`] waits for the
    /// answer.
    pub(crate) fn ask_in_background(
        self: &Arc<Self>,
        slot: String,
        part: KeyRequest,
        patience: Duration,
        is_urgent: bool,
    ) -> PendingReply {
        // However long others are before it: asked twice, it would only be longer.
        self.put(slot, vec![part], patience.max(self.settings.timeout), is_urgent)
    }

    /// What was asked in the background by this permit.
    pub(crate) async fn hear(&self, permit: Permit, mut asked: PendingReply) -> Option<KeyReply> {
        let notices_in = self.notices_in();
        loop {
            // By when it is known that it is silent. What gathers is asked later.
            let asked_at = asked.at.max(asked.heard_at.load(Ordering::Relaxed));
            let silent_at = self.began + Duration::from_nanos(asked_at) + notices_in;
            let mut told = timeout_at(silent_at, &mut asked.answer).await;
            if told.is_err() && silent_at.elapsed() > self.settings.timeout / 2 {
                // This machine stood too: an answer may be there that was not read.
                told = timeout(self.settings.timeout, &mut asked.answer).await;
            }
            let now = self.now();
            let silent_for = asked.silent_for(now);
            let is_there = matches!(told, Ok(Ok(_))) || asked.is_within(notices_in, now);
            if told.is_ok() || silent_for >= notices_in {
                // One server of a cluster may be silent alone.
                let heard_for = now.saturating_sub(self.heard_at.load(Ordering::Relaxed));
                let is_heard = heard_for < nanos(notices_in);
                self.learn(permit, silent_for, if is_heard { 1 } else { self.settings.failures_max }, is_there);
                let told = if let Ok(told) = told { told } else { asked.answer.await };
                return told.ok()?.pop();
            }
        }
    }

    /// After such a silence the store is left alone.
    fn notices_in(&self) -> Duration {
        self.settings.timeout * self.settings.failures_max
    }

    /// Where nothing was heard of the store for a while, sees whether it is there, until that is known.
    pub(crate) async fn probe(&self) {
        while self.moment().own.saturating_sub(self.heard_at.load(Ordering::Relaxed)) > nanos(BACKGROUND)
            && !self.is_open()
            && let Some(permit) = self.permit()
        {
            let began = Instant::now();
            let is_there = self.greet_one(self.notices_in()).await.is_ok();
            self.learn(permit, began.elapsed(), self.settings.failures_max, is_there);
            if !is_there {
                // It may have refused at once.
                sleep(MOVED).await;
            }
        }
    }

    /// Asks what people want to know, or to be done, all of it together: of one server in one script as far as it has room, of a
    /// cluster slot by slot. Also while checks leave the store alone, which learn nothing from it.
    pub(crate) async fn ask_for_people(self: &Arc<Self>, parts: Vec<(String, KeyRequest)>) -> Vec<Option<KeyReply>> {
        let patience = self.settings.operator_timeout.max(self.settings.timeout);
        let queue =
            |slot| if self.connection.is_cluster() { format!("{FOR_PEOPLE}{slot}") } else { FOR_PEOPLE.to_owned() };
        let mut told: Vec<_> = parts.iter().map(|_| None).collect();
        let asked: Vec<_> =
            parts.into_iter().map(|(slot, part)| self.put(queue(slot), vec![part], patience, false)).collect();
        let waited = timeout(patience, async {
            for (told, asked) in told.iter_mut().zip(asked) {
                *told = asked.answer.await.ok().and_then(|mut told| told.pop());
            }
        });
        drop(waited.await);
        told
    }

    /// For how long a lease is waited for: one of which no answer is heard counts as out for its whole life. A server that stands
    /// goes on; of a cluster another one may come in its place, which is asked again.
    pub(crate) fn patience_of_leases(&self) -> Duration {
        if self.connection.is_cluster() { BACKGROUND } else { ANSWER_IN }
    }

    /// Sends something whose answer no caller waits for.
    pub(crate) fn tell(self: &Arc<Self>, slot: String, part: KeyRequest) {
        let question = vec![part];
        // A store that is slower than usual takes it all the same: what is given back would be lost otherwise.
        let patience = BACKGROUND.max(self.settings.timeout);
        self.queue(slot, QueuedRequest { question, since: None, patience, is_urgent: false, answer: None });
    }

    /// By now a check waits for what was asked of a key, if that has not gone out yet.
    pub(crate) fn hurry(&self, slot: &str, key: &str) {
        if let Some(slot) = lock(&self.slots).get_mut(slot) {
            slot.hurry(key);
        }
    }

    /// Is it left alone for now?
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Is it left alone for now, or was it never heard of?
    pub(crate) fn is_away(&self) -> bool {
        self.is_open() || self.heard_at.load(Ordering::Relaxed) == 0
    }

    /// Returns a permit to ask the store, unless it is left alone. Then the watch alone tries it: what checks ask may need no write, and
    /// says nothing of a store that takes none.
    pub(crate) fn permit(&self) -> Option<Permit> {
        if self.is_open() { None } else { self.trial() }
    }

    /// Returns a permit as [`permit`](Self::permit) does, also for a store that is left alone, when it is time.
    pub(crate) fn trial(&self) -> Option<Permit> {
        self.step(|breaker, state| breaker.ask(state, Instant::now()))
    }

    /// Brings the next trial of a store that is left alone forward, if it was connected to anew since.
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

    /// Learns from an answer, or from a silence of this length. A silence counts as one failure for each timeout in it: at least
    /// one, at most `most`. So a question in the background, which waits longer than a check, shows as soon that the store is
    /// gone.
    pub(crate) fn learn(&self, permit: Permit, silent_for: Duration, most: u32, is_there: bool) {
        let now = Instant::now();
        self.step(|breaker, state| {
            let timeouts = silent_for.as_nanos() / self.settings.timeout.as_nanos().max(1);
            let failures = u32::try_from(timeouts).unwrap_or(u32::MAX).clamp(1, most.max(1));
            let since = now.checked_sub(silent_for).unwrap_or(self.began);
            let outcome = if is_there { Outcome::Answered } else { Outcome::Failed { since, failures } };
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

    /// Puts a question to those of its slot, for as long as somebody waits for the answer.
    fn put(self: &Arc<Self>, slot: String, question: SlotRequest, patience: Duration, is_urgent: bool) -> PendingReply {
        // What gathers goes out later.
        let at = self.now() + if slot == GATHERED && !is_urgent { nanos(GATHER) } else { 0 };
        let (sender, answer) = oneshot::channel();
        let heard_at =
            self.queue(slot, QueuedRequest { question, since: None, patience, is_urgent, answer: Some(sender) });
        PendingReply { answer, at, heard_at }
    }

    /// The first of a slot makes a task that asks them all. Answers where it is noted when the slot hears of the store.
    fn queue(self: &Arc<Self>, name: String, mut waiting: QueuedRequest) -> Arc<AtomicU64> {
        let lease_ns = self.lease_ns();
        waiting.question.iter_mut().for_each(|part| part.set_lease(lease_ns));
        let mut slots = lock(&self.slots);
        if let Some(slot) = slots.get_mut(&name) {
            slot.push(waiting);
            return Arc::clone(&slot.heard_at);
        }
        let mut slot = SlotQueue::default();
        slot.push(waiting);
        let (heard_at, wake) = (Arc::clone(&slot.heard_at), Arc::clone(&slot.wake));
        slots.insert(name.clone(), slot);
        drop(slots);
        let (store, told) = (Arc::clone(self), Arc::clone(&heard_at));
        self.runtime.spawn(async move { store.serve(&name, &wake, &told).await });
        heard_at
    }

    /// Asks for what waits in a slot until nothing does.
    async fn serve(&self, name: &str, wake: &Notify, heard_at: &AtomicU64) {
        let mut again = Vec::new();
        loop {
            // Who lost a race knows the value as it is now, and would lose the next one by then.
            if again.is_empty() && (name == GATHERED || name.starts_with(FOR_PEOPLE)) {
                let until = Instant::now() + GATHER;
                let is_early = || lock(&self.slots).get(name).is_some_and(|slot| !slot.is_full());
                // Woken by an old notice, it goes on.
                while is_early() && timeout_at(until, wake.notified()).await.is_ok() {}
            }
            let batch = {
                let mut slots = lock(&self.slots);
                let Some(slot) = slots.get_mut(name) else { return };
                for waiting in again.drain(..).rev() {
                    slot.queue_of(&waiting).push_front(waiting);
                }
                let batch = slot.take();
                if batch.is_empty() && slot.urgent.is_empty() && slot.others.is_empty() {
                    slots.remove(name);
                    return;
                }
                batch
            };
            if !batch.is_empty() {
                again = self.round(name, batch, heard_at).await;
            }
        }
    }

    /// Asks once, and tells those who have their answer. Answers who is to be asked for again.
    async fn round(&self, name: &str, mut batch: Vec<QueuedRequest>, heard_at: &AtomicU64) -> Vec<QueuedRequest> {
        let (now, mut told) = (self.moment().store, ScriptCall::default());
        for waiting in &mut batch {
            told.question(&mut waiting.question, now);
        }
        let patience = batch.iter().map(|waiting| waiting.patience).max().unwrap_or_default();
        let began = Instant::now();
        self.counts.asked.fetch_add(1, Ordering::Relaxed);
        let told = match self.connection.run(&told.keys, &told.arguments, patience).await {
            Ok(told) => told,
            Err(error) if has_moved(&error) && !self.moving.is_lasting(name) => {
                heard_at.store(self.now(), Ordering::Relaxed);
                // Where it is now is known soon.
                sleep(MOVED).await;
                // Whoever came meanwhile has not waited for a silent store.
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
        let mut told = told.into_iter();
        let Some(now) = self.hear_time(told.next().as_ref()) else { return Vec::new() };
        let mut again = Vec::new();
        for mut waiting in batch.drain(..) {
            let mut done = Vec::with_capacity(waiting.question.len());
            for _ in 0..waiting.question.len() {
                let (Some(name), Some(text)) = (told.next(), told.next()) else { return again };
                let Some(outcome) = OpOutcome::named(&name) else { return again };
                done.push((outcome, text));
            }
            match hear(&mut waiting.question, done, now) {
                // Whoever went meanwhile learns it by nobody.
                Some(answers) => drop(waiting.answer.map(|answer| answer.send(answers))),
                None if waiting.is_asked_again() => again.push(waiting),
                None => {}
            }
        }
        again
    }

    /// What its clock said, in microseconds.
    pub(crate) fn hear_time(&self, said: Option<&String>) -> Option<Nanos> {
        let now = said?.parse::<u64>().ok()? * 1_000;
        let heard_at = self.now();
        self.ahead.store(now.saturating_sub(heard_at), Ordering::Relaxed);
        self.heard_at.store(heard_at, Ordering::Relaxed);
        Some(now)
    }

    /// By this node's own clock, which never jumps.
    fn now(&self) -> Nanos {
        nanos(self.began.elapsed())
    }

    /// The store's time, or a little before it: what it said last, and how long ago. And this node's own.
    pub(crate) fn moment(&self) -> ClockReading {
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

    /// How the slot is called where this is asked in the background. A cluster is asked slot by slot; one server for many keys at
    /// once.
    pub(crate) fn background_slot(&self, slot: &str) -> String {
        if self.connection.is_cluster() { slot.to_owned() } else { GATHERED.to_owned() }
    }
}

fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
