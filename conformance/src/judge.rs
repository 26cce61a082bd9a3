//! Runs one history, and compares every reply with the model, with the bound over every interval, and with earlier replies.

use tidegate::{algorithm::NUMBER_MAX, policy::Algorithm, time::Nanos};

use crate::{
    history::{Cost, Gap, History, HistoryOp, HistoryStep, Pick},
    model::{Model, UsageBound},
    subject::{
        CheckOutcome, CheckReply, Implementation, KEYS, LimitNumbers, Moment, Subject, SubjectCall, SubjectReply,
    },
};

/// End of all histories, in 2262.
const END: Nanos = 1 << 63;

/// Counts of what a run exercised. They prove that the run has tested something.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Coverage {
    /// Algorithms of the limits that the implementation accepted.
    pub taken: Vec<Algorithm>,
    /// Histories whose numbers the implementation accepted.
    pub histories: u64,
    /// Histories with calendar windows.
    pub calendars: u64,
    /// Checks and reservations that were allowed.
    pub allowed: u64,
    /// Checks and reservations that were denied for now.
    pub later: u64,
    /// Checks and reservations that were denied permanently.
    pub never: u64,
    /// Calls with a stale clock reading.
    pub stalled: u64,
    /// Calls that were allowed exactly at the retry-after instant of a denial.
    pub waited: u64,
    /// Calls that were denied a nanosecond before such an instant.
    pub one_short: u64,
    /// Peeks that were followed by the same check.
    pub foretold: u64,
    /// Refunds and settlements that visibly gave tokens back.
    pub gave_back: u64,
    /// Settlements above the estimate.
    pub excesses: u64,
    /// Resets.
    pub resets: u64,
    /// Changes of the numbers.
    pub publishes: u64,
    /// Turns: consecutive admissions by different threads.
    pub turns: u64,
}

/// A statement of the subject that holds until another call is admitted: from this instant on it admits up to this cost.
#[derive(Clone, Copy, Debug)]
struct Promise {
    from: Nanos,
    cost: u64,
    /// Set for a retry-after, unset for a reset-after.
    is_retry: bool,
}

/// A key: its model, and the subject's latest statements about it.
#[derive(Clone, Debug)]
struct KeyState {
    model: Model,
    /// The newest clock value of a call.
    latest: Nanos,
    promises: Vec<Promise>,
    /// At this instant the subject admits costs up to this one, and none above it until tokens are given back.
    left: Option<(Nanos, u64)>,
    /// The latest reported remaining tokens.
    remaining: u64,
    retry_at: Nanos,
    reset_at: Nanos,
    has_given_back: bool,
}

/// A reservation that was neither settled nor refunded.
#[derive(Clone, Copy, Debug)]
struct OpenReservation {
    id: usize,
    key: usize,
    cost: u64,
}

struct Judge<'a> {
    subject: Box<dyn Subject>,
    keys: Vec<KeyState>,
    now: Nanos,
    /// Time of the last change other than a charge. No call has a clock reading from before it: the suite does not say
    /// whether such a change advances the limiter's clock.
    changed_at: Nanos,
    charges: usize,
    open: Vec<OpenReservation>,
    seen: &'a mut Coverage,
}

/// Runs one history and adds to `seen` what it exercised: nothing if the implementation does not accept the numbers.
pub(crate) fn judge(implementation: &dyn Implementation, history: &History, seen: &mut Coverage) -> Result<(), String> {
    let Some(subject) = implementation.subject(&history.numbers) else { return Ok(()) };
    let keys = (0..KEYS).map(|_| KeyState::new(history.numbers, history.start)).collect();
    if !seen.taken.contains(&history.numbers.algorithm) {
        seen.taken.push(history.numbers.algorithm);
    }
    seen.histories += 1;
    seen.calendars += u64::from(history.numbers.calendar.is_some());
    let mut judge = Judge { subject, keys, now: history.start, changed_at: 0, charges: 0, open: Vec::new(), seen };
    for (index, step) in history.steps.iter().enumerate() {
        judge.step(step).map_err(|why| format!("step {index}, {step:?}, at {}: {why}", judge.now))?;
    }
    Ok(())
}

impl Judge<'_> {
    fn step(&mut self, step: &HistoryStep) -> Result<(), String> {
        let place = usize::from(step.key % KEYS);
        let key = &self.keys[place];
        let then = self.now.saturating_add(key.ns_of(step.gap, self.now));
        self.now = if then <= END { then } else { self.now };
        let lag = u128::from(step.lag) * u128::from(key.model.numbers().period_ns) / 1_000;
        let lag = if self.subject.can_stall() { lag as u64 } else { 0 };
        let read = self.now.saturating_sub(lag).max(self.changed_at);
        let moment = Moment { now: self.now, read };
        match step.op {
            HistoryOp::Check(cost) => self.check(moment, place, key.tokens(cost).max(1), false).map(drop),
            HistoryOp::Reserve(cost) => self.check(moment, place, key.tokens(cost).max(1), true).map(drop),
            HistoryOp::Peek(cost) => self.peek(moment, place, key.tokens(cost)).map(drop),
            HistoryOp::PeekThenCheck(cost) => {
                let cost = key.tokens(cost).max(1);
                let foretold = self.peek(moment, place, cost)?;
                let answer = self.check(moment, place, cost, false)?;
                match (foretold, answer) {
                    (Some(foretold), Some(answer)) if foretold.at == answer.at => {
                        self.seen.foretold += 1;
                        agree(foretold == answer, || format!("the peek replied {foretold:?}, the check {answer:?}"))
                    }
                    _ => Ok(()),
                }
            }
            HistoryOp::Settle(pick, actual) => {
                let actual = key.tokens(actual);
                self.settle(pick, actual);
                Ok(())
            }
            HistoryOp::Refund(pick) => {
                self.refund(pick);
                Ok(())
            }
            HistoryOp::Reset => {
                if self.does(&SubjectCall::Reset { key: place as u8 }) {
                    self.keys[place] = KeyState::new(*self.keys[place].model.numbers(), self.now);
                    self.seen.resets += 1;
                }
                Ok(())
            }
            HistoryOp::Publish(numbers) => {
                if self.does(&SubjectCall::Publish { numbers }) {
                    self.keys.iter_mut().for_each(|key| key.publish(self.now, numbers));
                    self.open.clear();
                    self.seen.publishes += 1;
                }
                Ok(())
            }
        }
    }

    /// Executes a call without a reply; returns whether the subject supports it.
    fn does(&mut self, call: &SubjectCall) -> bool {
        let is_done = self.subject.call(Moment { now: self.now, read: self.now }, call) == SubjectReply::Done;
        self.changed_at = if is_done { self.now } else { self.changed_at };
        is_done
    }

    fn check(
        &mut self,
        moment: Moment,
        place: usize,
        cost: u64,
        is_reserved: bool,
    ) -> Result<Option<CheckReply>, String> {
        let (key, id) = (place as u8, self.charges);
        self.charges += 1;
        let call = if is_reserved {
            SubjectCall::Reserve { key, estimate: cost, charge: id }
        } else {
            SubjectCall::Check { key, cost }
        };
        let SubjectReply::Check(answer) = self.subject.call(moment, &call) else { return Ok(None) };
        self.seen.stalled += u64::from(moment.read < moment.now);
        self.keys[place].judge(moment, id, cost, answer, self.seen)?;
        if is_reserved && answer.outcome == CheckOutcome::Allowed {
            self.open.push(OpenReservation { id, key: place, cost });
        }
        Ok(Some(answer))
    }

    /// Checks a peek as the check that it predicts, on a copy of the key's state.
    fn peek(&mut self, moment: Moment, place: usize, cost: u64) -> Result<Option<CheckReply>, String> {
        let SubjectReply::Check(answer) = self.subject.call(moment, &SubjectCall::Peek { key: place as u8, cost })
        else {
            return Ok(None);
        };
        let mut key = self.keys[place].clone();
        key.judge(moment, self.charges, cost, answer, &mut Coverage::default())?;
        Ok(Some(answer))
    }

    fn settle(&mut self, pick: Pick, actual: u64) {
        let Some(open) = self.pick(pick) else { return };
        if !self.does(&SubjectCall::Settle { charge: open.id, actual }) {
            return;
        }
        self.open.retain(|other| other.id != open.id);
        let key = &mut self.keys[open.key];
        if actual <= open.cost {
            key.give_back(open.id, actual);
            return;
        }
        // Charged without a check: later calls wait.
        key.model.force(self.charges, self.now, actual - open.cost);
        self.charges += 1;
        key.clear_promises();
        self.seen.excesses += 1;
    }

    fn refund(&mut self, pick: Pick) {
        let Some(open) = self.pick(pick) else { return };
        if self.does(&SubjectCall::Refund { charge: open.id }) {
            self.open.retain(|other| other.id != open.id);
            self.keys[open.key].give_back(open.id, 0);
        }
    }

    fn pick(&self, pick: Pick) -> Option<OpenReservation> {
        self.open.get(usize::from(pick).checked_rem(self.open.len())?).copied()
    }
}

impl KeyState {
    fn new(numbers: LimitNumbers, now: Nanos) -> Self {
        Self {
            model: Model::new(numbers),
            latest: now,
            promises: Vec::new(),
            left: None,
            remaining: numbers.capacity(),
            retry_at: now,
            reset_at: now,
            has_given_back: false,
        }
    }

    fn ns_of(&self, gap: Gap, now: Nanos) -> u64 {
        let numbers = self.model.numbers();
        let until = |at: Nanos, more: i8| at.saturating_add_signed(more.into()).saturating_sub(now);
        match gap {
            Gap::Zero => 0,
            Gap::Ns(ns) => ns,
            Gap::Part(share) => (u128::from(numbers.period_ns) * u128::from(share) / 1_000) as u64,
            Gap::Token(more) => (numbers.period_ns / numbers.limit.max(1)).saturating_add_signed(more.into()),
            Gap::Boundary(more) => until(numbers.window(now).end, more),
            Gap::Retry(more) => until(self.retry_at, more),
            Gap::Full(more) => until(self.reset_at, more),
            Gap::Days(days) => u64::from(days) * 86_400_000_000_000,
        }
    }

    fn tokens(&self, cost: Cost) -> u64 {
        let capacity = self.model.numbers().capacity();
        let tokens = match cost {
            Cost::Tokens(tokens) => tokens,
            Cost::Share(share) => (u128::from(capacity) * u128::from(share)).div_ceil(1_000) as u64,
            Cost::Remaining(more) => self.remaining.saturating_add_signed(more.into()),
            Cost::Capacity(more) => capacity.saturating_add_signed(more.into()),
            Cost::Max => NUMBER_MAX,
        };
        tokens.min(NUMBER_MAX)
    }

    /// Compares the reply to a call of `cost` with the model and with earlier replies, and remembers it.
    fn judge(
        &mut self,
        moment: Moment,
        id: usize,
        cost: u64,
        answer: CheckReply,
        seen: &mut Coverage,
    ) -> Result<(), String> {
        let at = answer.at.unwrap_or(moment.read);
        agree((moment.read..=moment.now).contains(&at), || format!("decided at {at}, which is not in {moment:?}"))?;
        // With a clock reading older than the newest one, reported instants may be later than in the model.
        let is_late = at < self.latest;
        self.latest = self.latest.max(at);
        let judge_ns = |what: &str, ns: u64, from: Option<Nanos>, to: Option<Nanos>| {
            // Debts that last until after the end are all the same.
            let is_early = from.is_some_and(|from| at.saturating_add(ns) < from.min(END));
            let is_beyond = to.is_some_and(|to| ns > to - at);
            let expected = || format!("{what} is {ns} ns; from {from:?} to {to:?} less {at} would be right");
            agree(is_late || !(is_early || is_beyond), expected)
        };
        let capacity = self.model.numbers().capacity();
        let queue_empty = UsageBound::BOTH.map(|bound| self.model.room_from(at, capacity, bound));
        // A call without cost only reads what is left.
        if cost > 0 {
            self.judge_outcome(id, at, cost, answer.outcome, seen)?;
            if let CheckOutcome::Later { wait_ns } = answer.outcome {
                let [from, to] = UsageBound::BOTH.map(|bound| self.model.room_from(at, cost, bound));
                judge_ns("retry-after", wait_ns, from, to)?;
                self.retry_at = at.saturating_add(wait_ns);
                self.promises.push(Promise { from: self.retry_at, cost, is_retry: true });
            }
        }
        if let Some(remaining) = answer.remaining {
            let [may, must] = UsageBound::BOTH.map(|bound| self.model.room(at, bound));
            agree((must..=may).contains(&remaining), || format!("{remaining} remain; from {must} to {may} are left"))?;
            seen.gave_back += u64::from(self.has_given_back && remaining > must + 1 + capacity / 100);
            self.remaining = remaining;
            self.left = Some((at, remaining));
        }
        if let Some(ns) = answer.reset_after_ns {
            let [from, to] = UsageBound::BOTH.map(|bound| self.model.room_from(at, capacity, bound));
            let slack_ns = self.model.reset_slack_ns();
            judge_ns("reset-after", ns, from, to.map(|to| to.saturating_add(slack_ns)))?;
            self.reset_at = at.saturating_add(ns);
            let from = self.reset_at.saturating_add(slack_ns);
            self.promises.push(Promise { from, cost: capacity, is_retry: false });
        }
        let is_queued = cost > 0
            && answer.outcome == CheckOutcome::Allowed
            && self.model.numbers().algorithm == Algorithm::LeakyBucket;
        match answer.delay_ns {
            Some(ns) if is_queued => judge_ns("the delay", ns, queue_empty[0], queue_empty[1]),
            Some(ns) => agree(ns == 0 || cost == 0, || format!("a delay of {ns} ns where there is no queue")),
            None => Ok(()),
        }
    }

    fn judge_outcome(
        &mut self,
        id: usize,
        at: Nanos,
        cost: u64,
        outcome: CheckOutcome,
        seen: &mut Coverage,
    ) -> Result<(), String> {
        let capacity = self.model.numbers().capacity();
        let left = self.left.filter(|(instant, _)| *instant == at).map(|(_, left)| left);
        // Counts may be rounded when a window becomes the previous one, so a promise may hold only at its instant.
        let is_lasting = self.model.counter_slack() == 0;
        let is_due =
            |promise: &&Promise| cost <= promise.cost && (promise.from == at || promise.from < at && is_lasting);
        match outcome {
            CheckOutcome::Never => {
                seen.never += 1;
                agree(cost > capacity, || format!("{cost} of {capacity} is denied permanently"))
            }
            _ if cost > capacity => Err(format!("{cost} of {capacity} is not denied permanently: {outcome:?}")),
            CheckOutcome::Allowed => {
                let may = self.model.room(at, UsageBound::Lower);
                agree(cost <= may, || format!("{cost} were admitted where {may} were left"))?;
                agree(left.is_none_or(|left| cost <= left), || {
                    format!("{cost} were admitted where {left:?} were reported to remain")
                })?;
                seen.allowed += 1;
                seen.waited += u64::from(self.promises.iter().any(|p| p.is_retry && p.from == at && cost <= p.cost));
                self.model.admit(id, at, cost);
                self.clear_promises();
                self.model.check_bound()
            }
            CheckOutcome::Later { wait_ns } => {
                agree(wait_ns > 0, || "denied with a retry-after of 0".to_owned())?;
                let must = self.model.room(at, UsageBound::Upper);
                agree(cost > must, || format!("{cost} were denied where at least {must} were left"))?;
                agree(left.is_none_or(|left| cost > left), || {
                    format!("{cost} were denied where {left:?} were reported to remain")
                })?;
                let broken = self.promises.iter().find(is_due);
                agree(broken.is_none(), || format!("{cost} were denied although {broken:?}"))?;
                seen.later += 1;
                seen.one_short +=
                    u64::from(self.promises.iter().any(|p| p.is_retry && p.from == at + 1 && cost == p.cost));
                Ok(())
            }
        }
    }

    fn clear_promises(&mut self) {
        self.promises.clear();
        self.left = None;
    }

    fn give_back(&mut self, id: usize, kept: u64) {
        self.model.give_back(id, kept);
        self.left = None;
        self.has_given_back = true;
    }

    fn publish(&mut self, at: Nanos, numbers: LimitNumbers) {
        self.model.publish(at, numbers);
        self.latest = at;
        self.has_given_back = false;
        self.clear_promises();
    }
}

fn agree(is_so: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(otherwise()) }
}
