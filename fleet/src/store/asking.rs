//! Asks the store: questions that wait for the same slot go out together, and a breaker leaves a store alone that does not
//! answer.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::RedisResult;
use tidegate::time::Nanos;
use tidegate_middleware::breaker::{Breaker, Permit, State};
use tokio::{
    runtime,
    sync::oneshot,
    time::{Instant, sleep, timeout},
};

use super::{
    StoreSettings,
    ask::{Done, Part, Question, Telling, Told, hear},
    lease::Moment,
    link::{ANSWER_IN, Link, has_moved},
    lock,
    waits::WaitCounts,
};

/// Questions that go out together.
const TOGETHER: usize = 64;

/// The slot of questions that nobody waits for, and how long they gather.
const GATHERED: &str = "~";
const GATHER: Duration = Duration::from_millis(10);

/// Before the slots of what people ask; it gathers too, so that all of it goes out together.
const FOR_PEOPLE: &str = "?";

/// People rather wait than not know.
const PEOPLE: Duration = Duration::from_millis(500);

/// So long is asked again for what lost a race for its word, or came to a server that its slot had left.
const TRIES_FOR: Duration = Duration::from_secs(1);

/// Nobody waits for what is asked in the background, so it is waited for longer.
pub(super) const BACKGROUND: Duration = Duration::from_millis(50);

pub(super) struct Store {
    link: Link,
    settings: StoreSettings,
    breaker: Breaker,
    state: Mutex<State>,
    /// Whether that is open: each check of a view asks.
    is_open: AtomicBool,
    /// Of each slot that is being asked, who waits for the next question.
    slots: Mutex<HashMap<String, VecDeque<Waiting>>>,
    /// When it answered last, by this node's clock, and how far its own clock is ahead of that. Before it answered nothing is
    /// known of its time (0), and the script refuses what matters.
    heard_at: AtomicU64,
    ahead: AtomicU64,
    began: Instant,
    runtime: runtime::Handle,
    pub(super) counts: Counts,
}

/// What was asked, since the start.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) asked: AtomicU64,
    pub(super) failed: AtomicU64,
    /// Nanoseconds that answers took, in all.
    pub(super) took_ns: AtomicU64,
    /// How often the breaker opened.
    pub(super) opened: AtomicU64,
    /// For how long checks waited.
    pub(super) waits: WaitCounts,
}

/// A question that waits for its turn.
struct Waiting {
    question: Question,
    /// When it was answered in vain first.
    since: Option<Instant>,
    patience: Duration,
    /// `None`: nobody waits, and it is asked all the same.
    answer: Option<oneshot::Sender<Vec<Told>>>,
    heard: Heard,
}

/// When a question was asked, and when the store answered it last, whatever it said (0: never), by this node's clock.
#[derive(Clone, Debug)]
struct Heard {
    asked_at: Nanos,
    at: Arc<AtomicU64>,
}

impl Heard {
    fn new(asked_at: Nanos) -> Self {
        Self { asked_at, at: Arc::default() }
    }

    fn note(&self, now: Nanos) {
        self.at.store(now, Ordering::Relaxed);
    }

    fn silent_for(&self, now: Nanos) -> Duration {
        Duration::from_nanos(now.saturating_sub(self.asked_at.max(self.at.load(Ordering::Relaxed))))
    }

    fn is_within(&self, time: Duration, now: Nanos) -> bool {
        self.at.load(Ordering::Relaxed) > 0 && self.silent_for(now) < time
    }
}

impl Waiting {
    /// Whoever has gone is not charged for.
    fn is_wanted(&self) -> bool {
        self.answer.as_ref().is_none_or(|answer| !answer.is_closed())
    }

    fn is_asked_again(&mut self) -> bool {
        self.since.get_or_insert_with(Instant::now).elapsed() < TRIES_FOR
    }
}

impl Store {
    pub(super) fn new(link: Link, settings: StoreSettings) -> Self {
        let breaker = Breaker { failures_max: settings.failures_max, pause: settings.pause };
        Self {
            link,
            settings,
            breaker,
            state: Mutex::new(State::Closed { failures: 0 }),
            is_open: AtomicBool::new(false),
            slots: Mutex::default(),
            heard_at: AtomicU64::new(0),
            ahead: AtomicU64::new(0),
            began: Instant::now(),
            runtime: runtime::Handle::current(),
            counts: Counts::default(),
        }
    }

    /// Where work goes on that nobody waits for.
    pub(super) fn runtime(&self) -> &runtime::Handle {
        &self.runtime
    }

    pub(super) fn id(&self) -> u64 {
        self.link.id()
    }

    pub(super) fn timeout(&self) -> Duration {
        self.settings.timeout
    }

    /// Asks for each question of a check that began to wait then, those of one slot together; answers in their order, as far as
    /// there are answers within the timeout.
    pub(super) async fn ask(
        self: &Arc<Self>,
        questions: Vec<(String, Question)>,
        began: Instant,
    ) -> Vec<Option<Vec<Told>>> {
        let patience = self.settings.timeout;
        let mut told: Vec<_> = questions.iter().map(|_| None).collect();
        let Some(permit) = self.permit() else { return told };
        let heard = Heard::new(nanos(began - self.began));
        let put = |(slot, question)| self.put(slot, question, patience, &heard);
        let asked: Vec<_> = questions.into_iter().map(put).collect();
        let waited = timeout(patience.saturating_sub(began.elapsed()), async {
            for (place, answered) in asked.into_iter().enumerate() {
                told[place] = answered.await.ok();
            }
        });
        drop(waited.await);
        // Who lost every race was not answered, but heard of it.
        let now = self.now();
        let is_there = told.iter().any(Option::is_some) || heard.is_within(patience, now);
        self.learn(permit, heard.silent_for(now), 1, is_there);
        told
    }

    /// Asks one thing that no check waits for, for so long.
    pub(super) async fn ask_in_background(
        self: &Arc<Self>,
        permit: Permit,
        slot: String,
        part: Part,
        patience: Duration,
    ) -> Option<Told> {
        // What gathers goes out later.
        let gathers = if slot == GATHERED { GATHER } else { Duration::ZERO };
        let heard = Heard::new(self.now() + nanos(gathers));
        // However long others are before it: asked twice, it would only be longer.
        let mut answered = self.put(slot, vec![part], patience.max(self.settings.timeout), &heard);
        let mut wait = gathers + self.notices_in();
        loop {
            let told = timeout(wait, &mut answered).await;
            let is_there = matches!(told, Ok(Ok(_)));
            self.learn(permit, heard.silent_for(self.now()), self.settings.failures_max, is_there);
            match (told, permit) {
                (Ok(told), _) => return told.ok()?.pop(),
                // It may have lost a race after it was asked, and not be heard of since.
                (Err(_), Permit::Usual) => wait = self.notices_in(),
                (Err(_), Permit::Trial) => return answered.await.ok()?.pop(),
            }
        }
    }

    /// After such a silence the store is left alone.
    fn notices_in(&self) -> Duration {
        self.settings.timeout * self.settings.failures_max
    }

    /// Where nothing was heard of the store for a while, sees whether it is there, until that is known.
    pub(super) async fn probe(&self) {
        while self.moment().own.saturating_sub(self.heard_at.load(Ordering::Relaxed)) > nanos(BACKGROUND)
            && !self.is_open()
            && let Some(permit) = self.permit()
        {
            let began = Instant::now();
            let is_there = self.greet(self.notices_in()).await.is_ok();
            self.learn(permit, began.elapsed(), self.settings.failures_max, is_there);
        }
    }

    /// Asks what people want to know, or to be done, all of it together: of one server in one script as far as it has room, of a
    /// cluster slot by slot. Also while checks leave the store alone, which learn nothing from it.
    pub(super) async fn ask_for_people(self: &Arc<Self>, parts: Vec<(String, Part)>) -> Vec<Option<Told>> {
        let patience = PEOPLE.max(self.settings.timeout);
        let queue = |slot| if self.link.is_cluster() { format!("{FOR_PEOPLE}{slot}") } else { FOR_PEOPLE.to_owned() };
        let mut told: Vec<_> = parts.iter().map(|_| None).collect();
        let heard = Heard::new(0);
        let put = |(slot, part)| self.put(queue(slot), vec![part], patience, &heard);
        let asked: Vec<_> = parts.into_iter().map(put).collect();
        let waited = timeout(patience, async {
            for (told, answered) in told.iter_mut().zip(asked) {
                *told = answered.await.ok().and_then(|mut told| told.pop());
            }
        });
        drop(waited.await);
        told
    }

    /// For how long a lease is waited for: one of which no answer is heard counts as out for its whole life. A server that stands
    /// goes on; of a cluster another one comes in its place, which is asked again.
    pub(super) fn patience_of_leases(&self) -> Duration {
        if self.link.is_cluster() { BACKGROUND } else { ANSWER_IN }
    }

    /// Says something that nobody waits for.
    pub(super) fn tell(self: &Arc<Self>, slot: String, part: Part) {
        let (question, heard) = (vec![part], Heard::new(0));
        self.queue(slot, Waiting { question, since: None, patience: BACKGROUND, answer: None, heard });
    }

    /// Is it left alone for now?
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Is it left alone for now, or was it never heard of?
    pub(super) fn is_away(&self) -> bool {
        self.is_open() || self.heard_at.load(Ordering::Relaxed) == 0
    }

    /// May it be asked? Whoever has it learns what becomes of the question.
    pub(super) fn permit(&self) -> Option<Permit> {
        self.step(|breaker, state| breaker.ask(state, Instant::now()))
    }

    /// A silence is as many failures as timeouts have room in it, and so many at most: what is asked in the background waits for
    /// longer, but learns no later.
    fn learn(&self, permit: Permit, silent_for: Duration, most: u32, is_there: bool) {
        let timeouts = silent_for.as_nanos() / self.settings.timeout.as_nanos().max(1);
        let failures = if is_there { 1 } else { timeouts.clamp(1, most.max(1).into()) };
        for _ in 0..failures {
            self.learn_one(permit, is_there);
        }
    }

    fn learn_one(&self, permit: Permit, is_there: bool) {
        self.step(|breaker, state| {
            let next = breaker.learn(state, permit, is_there, Instant::now());
            if matches!((state, next), (State::Closed { .. }, State::Open { .. })) {
                self.counts.opened.fetch_add(1, Ordering::Relaxed);
                tracing::warn!("the store does not answer; limits that nodes share are decided without it");
            } else if matches!((state, next), (State::Open { .. }, State::Closed { .. })) {
                tracing::info!("the store answers again");
            }
            (next, ())
        });
    }

    /// Asks nothing but the time: the connection stands then, and the script is known there.
    pub(super) async fn greet(&self, patience: Duration) -> RedisResult<()> {
        let told = self.link.run(&[], &[], patience).await?;
        self.hear_time(told.first());
        Ok(())
    }

    /// Sees for ever whether a store that is left alone is back, also while nobody checks.
    pub(super) async fn try_again(store: Weak<Self>) {
        loop {
            sleep(BACKGROUND).await;
            let Some(store) = store.upgrade() else { return };
            if store.is_away()
                && let Some(permit) = store.permit()
            {
                let began = Instant::now();
                let greeted = store.greet(BACKGROUND.max(store.settings.timeout)).await;
                if let Err(error) = &greeted {
                    tracing::debug!(%error, "the store is not back");
                }
                store.learn(permit, began.elapsed(), store.settings.failures_max, greeted.is_ok());
            }
        }
    }

    /// Puts a question to those of its slot, for as long as somebody waits for the answer.
    fn put(
        self: &Arc<Self>,
        slot: String,
        question: Question,
        patience: Duration,
        heard: &Heard,
    ) -> oneshot::Receiver<Vec<Told>> {
        let (answer, answered) = oneshot::channel();
        let (answer, heard) = (Some(answer), heard.clone());
        self.queue(slot, Waiting { question, since: None, patience, answer, heard });
        answered
    }

    /// The first of a slot makes a task that asks them all.
    fn queue(self: &Arc<Self>, slot: String, waiting: Waiting) {
        let mut slots = lock(&self.slots);
        if let Some(others) = slots.get_mut(&slot) {
            others.push_back(waiting);
            return;
        }
        slots.insert(slot.clone(), VecDeque::from([waiting]));
        drop(slots);
        let store = Arc::clone(self);
        self.runtime.spawn(async move { store.serve(&slot).await });
    }

    /// Asks for what waits in a slot until nothing does.
    async fn serve(&self, slot: &str) {
        let mut again = Vec::new();
        loop {
            let gathers = slot == GATHERED || slot.starts_with(FOR_PEOPLE);
            if gathers && lock(&self.slots).get(slot).is_some_and(|waiting| waiting.len() < TOGETHER) {
                sleep(GATHER).await;
            }
            let mut batch = std::mem::take(&mut again);
            batch.retain(Waiting::is_wanted);
            {
                let mut slots = lock(&self.slots);
                let Some(waiting) = slots.get_mut(slot) else { return };
                while batch.len() < TOGETHER
                    && let Some(next) = waiting.pop_front()
                {
                    if next.is_wanted() {
                        batch.push(next);
                    }
                }
                if batch.is_empty() {
                    slots.remove(slot);
                    return;
                }
            }
            again = self.round(batch).await;
        }
    }

    /// Asks once, and tells those who have their answer. Answers who is to be asked for again.
    async fn round(&self, mut batch: Vec<Waiting>) -> Vec<Waiting> {
        let (now, mut told) = (self.moment().store, Telling::default());
        for waiting in &mut batch {
            told.question(&mut waiting.question, now);
        }
        let patience = batch.iter().map(|waiting| waiting.patience).max().unwrap_or_default();
        let began = Instant::now();
        self.counts.asked.fetch_add(1, Ordering::Relaxed);
        let told = match self.link.run(&told.keys, &told.arguments, patience).await {
            Ok(told) => told,
            Err(error) if has_moved(&error) => {
                // Where it is now is known soon.
                sleep(GATHER).await;
                batch.retain_mut(Waiting::is_asked_again);
                return batch;
            }
            Err(error) => {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(%error, "the store did not answer");
                return Vec::new();
            }
        };
        self.counts.took_ns.fetch_add(nanos(began.elapsed()), Ordering::Relaxed);
        let heard_at = self.now();
        for waiting in &batch {
            waiting.heard.note(heard_at);
        }
        let mut told = told.into_iter();
        let Some(now) = self.hear_time(told.next().as_ref()) else { return Vec::new() };
        let mut again = Vec::new();
        for mut waiting in batch.drain(..) {
            let mut done = Vec::with_capacity(waiting.question.len());
            for _ in 0..waiting.question.len() {
                let (Some(name), Some(text)) = (told.next(), told.next()) else { return again };
                let Some(outcome) = Done::named(&name) else { return again };
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
    fn hear_time(&self, said: Option<&String>) -> Option<Nanos> {
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
    pub(super) fn moment(&self) -> Moment {
        let own = self.now();
        Moment { store: own.saturating_add(self.ahead.load(Ordering::Relaxed)), own }
    }

    fn step<T>(&self, step: impl FnOnce(Breaker, State) -> (State, T)) -> T {
        let mut state = lock(&self.state);
        let (next, answer) = step(self.breaker, *state);
        *state = next;
        self.is_open.store(matches!(next, State::Open { .. }), Ordering::Relaxed);
        answer
    }

    /// How the slot is called where this is asked in the background. A cluster is asked slot by slot; one server for many keys at
    /// once, and where nobody waits for the answer, more of them gather before they go out.
    pub(super) fn background_slot(&self, slot: &str, hash: u64, is_awaited: bool) -> String {
        match (self.link.is_cluster(), is_awaited) {
            (true, _) => slot.to_owned(),
            (false, true) => format!("~{}", hash % 4),
            (false, false) => GATHERED.to_owned(),
        }
    }
}

fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
