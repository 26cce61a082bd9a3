//! Runs one history: every answer is held against the model, against the bound over every interval, and against what the
//! subject said before.

use tidegate::{algorithm::NUMBER_MAX, policy::Algorithm, time::Nanos};

use crate::{
    history::{Cost, Gap, History, Op, Pick, Step},
    model::{Model, Side},
    subject::{Answer, Call, Implementation, KEYS, Moment, Numbers, Outcome, Reply, Subject},
};

/// No history goes on after this instant, in 2262.
const END: Nanos = 1 << 63;

/// What was seen: the evidence that a run has shown something.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Coverage {
    /// Algorithms of which the subject took a limit.
    pub taken: Vec<Algorithm>,
    /// Histories whose numbers the subject took.
    pub histories: u64,
    /// Those whose windows are of the calendar.
    pub calendars: u64,
    /// Checks and reservations that were allowed.
    pub allowed: u64,
    /// Those that were refused for now.
    pub later: u64,
    /// Those that were refused for ever.
    pub never: u64,
    /// Calls with an old reading of the clock.
    pub stalled: u64,
    /// Calls that were allowed at the very instant that a refusal had named.
    pub waited: u64,
    /// Calls that were refused a nanosecond before it.
    pub one_short: u64,
    /// Peeks that were followed by the check that they foretold.
    pub foretold: u64,
    /// Refunds and settlements that were seen to give something back.
    pub gave_back: u64,
    /// Settlements above the estimate.
    pub excesses: u64,
    /// Resets.
    pub resets: u64,
    /// Changes of the numbers.
    pub publishes: u64,
    /// How often threads took turns: another one was admitted than the last time.
    pub turns: u64,
}

impl Coverage {
    pub(crate) fn add(&mut self, other: Self) {
        self.taken
            .extend(other.taken.into_iter().filter(|algorithm| !self.taken.contains(algorithm)).collect::<Vec<_>>());
        self.histories += other.histories;
        self.calendars += other.calendars;
        self.allowed += other.allowed;
        self.later += other.later;
        self.never += other.never;
        self.stalled += other.stalled;
        self.waited += other.waited;
        self.one_short += other.one_short;
        self.foretold += other.foretold;
        self.gave_back += other.gave_back;
        self.excesses += other.excesses;
        self.resets += other.resets;
        self.publishes += other.publishes;
        self.turns += other.turns;
    }
}

/// What the subject said that holds until somebody else is admitted: from this instant on it admits up to this cost.
#[derive(Clone, Copy, Debug)]
struct Promise {
    from: Nanos,
    cost: u64,
    /// By a refusal.
    is_retry: bool,
}

/// A key: its model, and what the subject said of it.
#[derive(Clone, Debug)]
struct Key {
    model: Model,
    /// The newest clock value at which it was asked.
    latest: Nanos,
    promises: Vec<Promise>,
    /// At this instant costs up to this one are admitted, and none above unless something is given back.
    left: Option<(Nanos, u64)>,
    /// Last told.
    remaining: u64,
    retry_at: Nanos,
    reset_at: Nanos,
    has_given_back: bool,
}

/// A reservation that stands.
#[derive(Clone, Copy, Debug)]
struct Open {
    id: usize,
    key: usize,
    cost: u64,
}

struct Judge {
    subject: Box<dyn Subject>,
    keys: Vec<Key>,
    now: Nanos,
    /// When something was last changed other than by a charge. No call stalls since before that: whether such a change
    /// takes the clock along is left open.
    changed_at: Nanos,
    charges: usize,
    open: Vec<Open>,
    seen: Coverage,
}

/// Nothing was seen when the subject does not take the numbers.
pub(crate) fn judge(implementation: &dyn Implementation, history: &History) -> Result<Coverage, String> {
    let Some(subject) = implementation.subject(&history.numbers) else { return Ok(Coverage::default()) };
    let keys = (0..KEYS).map(|_| Key::new(history.numbers, history.start)).collect();
    let seen = Coverage {
        taken: vec![history.numbers.algorithm],
        histories: 1,
        calendars: history.numbers.calendar.is_some().into(),
        ..Coverage::default()
    };
    let mut judge = Judge { subject, keys, now: history.start, changed_at: 0, charges: 0, open: Vec::new(), seen };
    for (place, step) in history.steps.iter().enumerate() {
        judge.step(step).map_err(|why| format!("step {place}, {step:?}, at {}: {why}", judge.now))?;
    }
    Ok(judge.seen)
}

impl Judge {
    fn step(&mut self, step: &Step) -> Result<(), String> {
        let place = usize::from(step.key % KEYS);
        let key = &self.keys[place];
        let then = self.now.saturating_add(key.ns_of(step.gap, self.now));
        self.now = if then <= END { then } else { self.now };
        let lag = u128::from(step.lag) * u128::from(key.model.numbers().period_ns) / 1_000;
        let lag = if self.subject.can_stall() { lag as u64 } else { 0 };
        let read = self.now.saturating_sub(lag).max(self.changed_at);
        let moment = Moment { now: self.now, read };
        match step.op {
            Op::Check(cost) => self.check(moment, place, key.tokens(cost).max(1), false).map(drop),
            Op::Reserve(cost) => self.check(moment, place, key.tokens(cost).max(1), true).map(drop),
            Op::Peek(cost) => self.peek(moment, place, key.tokens(cost)).map(drop),
            Op::PeekThenCheck(cost) => {
                let cost = key.tokens(cost).max(1);
                let foretold = self.peek(moment, place, cost)?;
                let answer = self.check(moment, place, cost, false)?;
                match (foretold, answer) {
                    (Some(foretold), Some(answer)) if foretold.at == answer.at => {
                        self.seen.foretold += 1;
                        agree(foretold == answer, || format!("the peek said {foretold:?}, the check {answer:?}"))
                    }
                    _ => Ok(()),
                }
            }
            Op::Settle(pick, actual) => {
                let actual = key.tokens(actual);
                self.settle(pick, actual);
                Ok(())
            }
            Op::Refund(pick) => {
                self.refund(pick);
                Ok(())
            }
            Op::Reset => {
                if self.does(&Call::Reset { key: place as u8 }) {
                    self.keys[place] = Key::new(*self.keys[place].model.numbers(), self.now);
                    self.seen.resets += 1;
                }
                Ok(())
            }
            Op::Publish(numbers) => {
                if self.does(&Call::Publish { numbers }) {
                    self.keys.iter_mut().for_each(|key| key.publish(self.now, numbers));
                    self.open.clear();
                    self.seen.publishes += 1;
                }
                Ok(())
            }
        }
    }

    /// Does a thing that has no answer; false where the subject cannot.
    fn does(&mut self, call: &Call) -> bool {
        let is_done = self.subject.call(Moment { now: self.now, read: self.now }, call) == Reply::Done;
        self.changed_at = if is_done { self.now } else { self.changed_at };
        is_done
    }

    fn check(&mut self, moment: Moment, place: usize, cost: u64, is_reserved: bool) -> Result<Option<Answer>, String> {
        let (key, id) = (place as u8, self.charges);
        self.charges += 1;
        let call =
            if is_reserved { Call::Reserve { key, estimate: cost, charge: id } } else { Call::Check { key, cost } };
        let Reply::Answer(answer) = self.subject.call(moment, &call) else { return Ok(None) };
        self.seen.stalled += u64::from(moment.read < moment.now);
        self.keys[place].judge(moment, id, cost, answer, self.subject.told_in_ns(), &mut self.seen)?;
        if is_reserved && answer.outcome == Outcome::Allowed {
            self.open.push(Open { id, key: place, cost });
        }
        Ok(Some(answer))
    }

    /// A peek is judged as the check that it foretells, in a world that is then forgotten.
    fn peek(&mut self, moment: Moment, place: usize, cost: u64) -> Result<Option<Answer>, String> {
        let Reply::Answer(answer) = self.subject.call(moment, &Call::Peek { key: place as u8, cost }) else {
            return Ok(None);
        };
        let mut key = self.keys[place].clone();
        key.judge(moment, self.charges, cost, answer, self.subject.told_in_ns(), &mut Coverage::default())?;
        Ok(Some(answer))
    }

    fn settle(&mut self, pick: Pick, actual: u64) {
        let Some(open) = self.pick(pick) else { return };
        if !self.does(&Call::Settle { charge: open.id, actual }) {
            return;
        }
        self.open.retain(|other| other.id != open.id);
        let key = &mut self.keys[open.key];
        if actual <= open.cost {
            key.give_back(open.id, actual);
            return;
        }
        // Charged without asking: later calls wait.
        key.model.force(self.charges, self.now, actual - open.cost);
        self.charges += 1;
        key.forget_what_was_said();
        self.seen.excesses += 1;
    }

    fn refund(&mut self, pick: Pick) {
        let Some(open) = self.pick(pick) else { return };
        if self.does(&Call::Refund { charge: open.id }) {
            self.open.retain(|other| other.id != open.id);
            self.keys[open.key].give_back(open.id, 0);
        }
    }

    fn pick(&self, pick: Pick) -> Option<Open> {
        self.open.get(usize::from(pick).checked_rem(self.open.len())?).copied()
    }
}

impl Key {
    fn new(numbers: Numbers, now: Nanos) -> Self {
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

    /// Holds an answer to a call of `cost` against all that is known, and remembers it.
    fn judge(
        &mut self,
        moment: Moment,
        id: usize,
        cost: u64,
        answer: Answer,
        told_in_ns: u64,
        seen: &mut Coverage,
    ) -> Result<(), String> {
        let at = answer.at.unwrap_or(moment.read);
        agree((moment.read..=moment.now).contains(&at), || format!("decided at {at}, which is not in {moment:?}"))?;
        // At an older time than one before, instants that are told may be later than the model needs.
        let is_late = at < self.latest;
        self.latest = self.latest.max(at);
        let told = |what: &str, ns: u64, from: Option<Nanos>, to: Option<Nanos>| {
            // A debt that lasts longer than that is not told apart.
            let is_early = from.is_some_and(|from| at.saturating_add(ns) < from.min(END));
            let is_beyond = to.is_some_and(|to| ns > (to - at).next_multiple_of(told_in_ns));
            let expected = || format!("{what} is {ns} ns; from {from:?} to {to:?} less {at} would be right");
            agree(is_late || !(is_early || is_beyond), expected)
        };
        let capacity = self.model.numbers().capacity();
        let queue_empty = [Side::Least, Side::Most].map(|side| self.model.room_from(at, capacity, side));
        // A call of no cost only asks what is left.
        if cost > 0 {
            self.judge_outcome(id, at, cost, answer.outcome, seen)?;
            if let Outcome::Later { wait_ns } = answer.outcome {
                let [from, to] = [Side::Least, Side::Most].map(|side| self.model.room_from(at, cost, side));
                told("retry-after", wait_ns, from, to)?;
                self.retry_at = at.saturating_add(wait_ns);
                self.promises.push(Promise { from: self.retry_at, cost, is_retry: true });
            }
        }
        if let Some(remaining) = answer.remaining {
            let [may, must] = [Side::Least, Side::Most].map(|side| self.model.room(at, side));
            agree((must..=may).contains(&remaining), || format!("{remaining} remain; from {must} to {may} are left"))?;
            seen.gave_back += u64::from(self.has_given_back && remaining > must + 1 + capacity / 100);
            self.remaining = remaining;
            self.left = Some((at, remaining));
        }
        if let Some(ns) = answer.reset_after_ns {
            let [from, to] = [Side::Least, Side::Most].map(|side| self.model.room_from(at, capacity, side));
            let slack_ns = self.model.reset_slack_ns();
            told("reset-after", ns, from, to.map(|to| to.saturating_add(slack_ns)))?;
            self.reset_at = at.saturating_add(ns);
            self.promises.push(Promise {
                from: self.reset_at.saturating_add(slack_ns),
                cost: capacity,
                is_retry: false,
            });
        }
        match answer.delay_ns {
            Some(ns)
                if answer.outcome == Outcome::Allowed
                    && self.model.numbers().algorithm == Algorithm::LeakyBucket
                    && cost > 0 =>
            {
                told("the delay", ns, queue_empty[0], queue_empty[1])
            }
            Some(ns) => agree(ns == 0 || cost == 0, || format!("a delay of {ns} ns where there is no queue")),
            None => Ok(()),
        }
    }

    fn judge_outcome(
        &mut self,
        id: usize,
        at: Nanos,
        cost: u64,
        outcome: Outcome,
        seen: &mut Coverage,
    ) -> Result<(), String> {
        let capacity = self.model.numbers().capacity();
        let left = self.left.filter(|(instant, _)| *instant == at).map(|(_, left)| left);
        // Where counts are rounded when a window becomes the one before, later may be worse than exactly then.
        let is_lasting = self.model.counter_slack() == 0;
        let is_due =
            |promise: &&Promise| cost <= promise.cost && (promise.from == at || promise.from < at && is_lasting);
        match outcome {
            Outcome::Never => {
                seen.never += 1;
                agree(cost > capacity, || format!("{cost} of {capacity} is refused for ever"))
            }
            _ if cost > capacity => Err(format!("{cost} of {capacity} is not refused for ever: {outcome:?}")),
            Outcome::Allowed => {
                let may = self.model.room(at, Side::Least);
                agree(cost <= may, || format!("{cost} were admitted where {may} were left"))?;
                agree(left.is_none_or(|left| cost <= left), || {
                    format!("{cost} were admitted where {left:?} were said to remain")
                })?;
                seen.allowed += 1;
                seen.waited += u64::from(self.promises.iter().any(|p| p.is_retry && p.from == at && cost <= p.cost));
                self.model.admit(id, at, cost);
                self.forget_what_was_said();
                self.model.check_bound()
            }
            Outcome::Later { wait_ns } => {
                agree(wait_ns > 0, || "refused, and told to come back at once".to_owned())?;
                let must = self.model.room(at, Side::Most);
                agree(cost > must, || format!("{cost} were refused where at least {must} were left"))?;
                agree(left.is_none_or(|left| cost > left), || {
                    format!("{cost} were refused where {left:?} were said to remain")
                })?;
                let broken = self.promises.iter().find(is_due);
                agree(broken.is_none(), || format!("{cost} were refused in spite of {broken:?}"))?;
                seen.later += 1;
                seen.one_short +=
                    u64::from(self.promises.iter().any(|p| p.is_retry && p.from == at + 1 && cost == p.cost));
                Ok(())
            }
        }
    }

    fn forget_what_was_said(&mut self) {
        self.promises.clear();
        self.left = None;
    }

    fn give_back(&mut self, id: usize, kept: u64) {
        self.model.give_back(id, kept);
        self.left = None;
        self.has_given_back = true;
    }

    fn publish(&mut self, at: Nanos, numbers: Numbers) {
        self.model.publish(at, numbers);
        self.latest = at;
        self.has_given_back = false;
        self.forget_what_was_said();
    }
}

fn agree(is_so: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(otherwise()) }
}
