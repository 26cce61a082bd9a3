//! Runs any sequence of operations on an engine: a peek agrees with the check, a denial costs nothing, waiting for the stated time
//! is enough, and no user gets more at one instant than a limit holds.

use arbitrary::{Arbitrary, Unstructured};
use tidegate::{
    Decision, Engine, Identity, Publish, Request, Reservation, Retry, Snapshot,
    algorithm::Carry,
    clock::{Clock, ManualClock},
    internals::{BeginResult, StoreAnswer, Verdict},
    policy::{Algorithm, Domain, Limit, Mode, OnFailure, Policy, Sharing, Tier},
    time::{SECOND_NS, Timestamp},
};

const USERS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// The latest time of the clock, in the year 2518. The buckets then still have room for 36 years.
const LAST: u64 = u64::MAX - (1 << 60);

/// The smallest table: eight slots for the twelve keys of six users and two limits, so that overflow buckets are used. Each limit
/// has more overflow buckets than there are users. With fewer, both limits of a request could need the last free bucket: a peek
/// would find it for each of them, but a check gives it to the first limit only.
const MAX_KEYS: usize = 1;

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Operation {
    Check { user: u8, cost: Cost, waits: bool },
    Batch { user: u8, cost: Cost, times: u8 },
    Reserve { user: u8, cost: Cost },
    Settle { which: u8, actual: Cost },
    Refund { which: u8 },
    Drop { which: u8 },
    Reset { user: u8 },
    Begin { user: u8, cost: Cost, answers: [Option<(u8, u64, u64)>; 2] },
    Publish { limits: [LimitNumbers; 2], carry: u8 },
    Advance { ns: u64 },
    AdvanceALittle { ns: u16 },
}

/// A cost, mostly a small one that limits can hold.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Cost {
    Small(u8),
    Any(u64),
}

impl Cost {
    fn tokens(self) -> u64 {
        match self {
            Self::Small(cost) => cost.into(),
            Self::Any(cost) => cost,
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct LimitNumbers {
    algorithm: u8,
    limit: Cost,
    period: u8,
    burst: Option<Cost>,
    is_shadow: bool,
    is_shared: bool,
    /// Chooses `max_debt` as well, so that seeds keep their length.
    on_failure: u8,
}

impl LimitNumbers {
    fn limit(self, id: &str) -> Limit {
        let algorithms = [
            Algorithm::TokenBucket,
            Algorithm::LeakyBucket,
            Algorithm::FixedWindow,
            Algorithm::SlidingWindowCounter,
            Algorithm::SlidingWindowLog,
        ];
        let periods = ["1ms", "250ms", "1s", "7s", "1m", "1h", "1d", "366d", "day", "week", "month"];
        let debts = [self.burst, None, Some(self.limit), Some(Cost::Small(self.on_failure))];
        let failures = [OnFailure::Local(0.5), OnFailure::Local(1.0), OnFailure::Open, OnFailure::Closed];
        Limit {
            id: id.to_owned(),
            algorithm: algorithms[usize::from(self.algorithm) % algorithms.len()],
            limit: self.limit.tokens(),
            period: periods[usize::from(self.period) % periods.len()].to_owned(),
            burst: self.burst.map(Cost::tokens),
            max_debt: debts[usize::from(self.on_failure >> 2) % debts.len()].map(Cost::tokens),
            mode: if self.is_shadow { Mode::Shadow } else { Mode::default() },
            sharing: if self.is_shared { Sharing::Strict } else { Sharing::default() },
            on_failure: self.is_shared.then(|| failures[usize::from(self.on_failure) % failures.len()]),
        }
    }
}

/// The tokens admitted for each user at this instant, since the last operation that could return some.
type Admitted = [u64; USERS.len()];

struct Run {
    engine: Engine<ManualClock>,
    clock: ManualClock,
    reservations: Vec<Reservation>,
    admitted: Admitted,
    /// The least capacity of the limits that deny.
    capacity: u64,
}

/// Runs `data` as a sequence of operations.
///
/// # Panics
///
/// If a property does not hold.
pub fn operations(data: &[u8]) {
    let clock = ManualClock::at(Timestamp::from_nanos(1_790_035_200 * SECOND_NS));
    let engine = Engine::for_simulation(MAX_KEYS, clock.clone(), 1);
    let mut run = Run { engine, clock, reservations: Vec::new(), admitted: Admitted::default(), capacity: u64::MAX };
    let mut input = Unstructured::new(data);
    while !input.is_empty() {
        let Ok(operation) = Operation::arbitrary(&mut input) else { return };
        run.does(operation);
    }
}

impl Run {
    fn does(&mut self, operation: Operation) {
        match operation {
            Operation::Check { user, cost, waits } => self.check(user, cost, waits),
            Operation::Batch { user, cost, times } => self.batch(user, cost, times),
            Operation::Reserve { user, cost } => with_request(user, cost, |request, user| {
                let (decision, reservation) = self.engine.reserve(request);
                assert_eq!(reservation.is_some(), decision.is_allowed() && cost.tokens() > 0);
                if decision.is_allowed() {
                    self.admitted[user] = self.admitted[user].saturating_add(cost.tokens());
                }
                self.reservations.extend(reservation);
            }),
            Operation::Settle { which, actual } => self.with_reservation(which, |engine, reservation| {
                engine.settle(reservation, actual.tokens());
            }),
            Operation::Refund { which } => self.with_reservation(which, Engine::refund),
            Operation::Drop { which } => self.with_reservation(which, |_, reservation| drop(reservation)),
            Operation::Reset { user } => with_request(user, Cost::Small(1), |request, _| {
                self.engine.reset(request);
                self.admitted = Admitted::default();
            }),
            Operation::Begin { user, cost, answers } => self.begin(user, cost, answers),
            Operation::Publish { limits, carry } => self.publish(limits, carry),
            Operation::Advance { ns } => self.advance(ns),
            Operation::AdvanceALittle { ns } => self.advance(ns.into()),
        }
        for (admitted, user) in self.admitted.iter().zip(USERS) {
            assert!(*admitted <= self.capacity, "{admitted} of {} at once for {user}", self.capacity);
        }
    }

    fn check(&mut self, user: u8, cost: Cost, waits: bool) {
        with_request(user, cost, |request, user| {
            let (before, peeked) = (self.remaining(request), self.engine.peek(request));
            let checked = self.engine.check(request);
            assert_eq!(says(&peeked), says(&checked), "a peek answers as the check would");
            if let (Some(remaining), Some(limit)) = (checked.remaining(), checked.limit()) {
                assert!(remaining <= limit, "{checked:?}");
            }
            if checked.is_allowed() {
                self.admitted[user] = self.admitted[user].saturating_add(cost.tokens());
                return;
            }
            assert_eq!(self.remaining(request), before, "a rejected request costs nothing");
            let Retry::After(wait) = checked.retry() else { return };
            assert!(!wait.is_zero(), "blocked, and told to come back at once");
            let refused = checked.limit_id().map(str::to_owned);
            let ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
            // The end of a store's outage is unknown, so the wait of a degraded decision may be too short.
            if waits && ns < LAST - self.clock.now().as_nanos() && checked.degraded().is_none() {
                self.advance(ns);
                let again = self.engine.peek(request);
                let same = !again.is_allowed() && again.limit_id() == refused.as_deref();
                assert!(!same, "waited {wait:?} as told, and is refused by the same limit: {again:?}");
            }
        });
    }

    fn batch(&mut self, user: u8, cost: Cost, times: u8) {
        with_request(user, cost, |request, user| {
            let requests = vec![*request; usize::from(times % 8)];
            let mut decisions = Vec::new();
            self.engine.check_batch(&requests, &mut decisions);
            assert_eq!(decisions.len(), requests.len());
            let allowed = decisions.iter().filter(|decision| decision.is_allowed()).count() as u64;
            self.admitted[user] = self.admitted[user].saturating_add(allowed.saturating_mul(cost.tokens()));
        });
    }

    fn begin(&mut self, user: u8, cost: Cost, answers: [Option<(u8, u64, u64)>; 2]) {
        with_request(user, cost, |request, user| {
            let decision = match self.engine.begin(request) {
                BeginResult::Decided(decision) => decision,
                BeginResult::Pending(pending) => {
                    let answer = |(kind, word, now): (u8, u64, u64)| {
                        let verdicts = [Verdict::Admit(word), Verdict::Later { wait_ns: word.max(1) }, Verdict::Never];
                        StoreAnswer::Decided { verdict: verdicts[usize::from(kind) % 3], word, now }
                    };
                    let answers = answers.map(|answered| answered.map_or(StoreAnswer::Failed, answer));
                    let (decision, give_back) = self.engine.finish(pending, &answers);
                    assert!(give_back.is_none() || !decision.is_allowed(), "what was admitted stays charged");
                    decision
                }
            };
            let _ = (decision.remaining(), decision.reset_after(), decision.reset_at(), decision.retry());
            // This node's bounds do not apply to tokens that the store admits.
            if decision.is_allowed() {
                self.admitted[user] = 0;
            }
        });
    }

    fn publish(&mut self, numbers: [LimitNumbers; 2], carry: u8) {
        let limits: Vec<Limit> = numbers.iter().zip(["first", "second"]).map(|(it, id)| it.limit(id)).collect();
        let tier = Tier::new("free", limits.clone());
        let domain = Domain {
            defaults: [("user".to_owned(), "free".to_owned())].into(),
            tiers: vec![tier],
            timezone: Some("Australia/Lord_Howe".to_owned()),
            ..Domain::default()
        };
        let policy = Policy { domains: [("default".to_owned(), domain)].into() };
        // A policy that is out of range is rejected.
        let Ok(snapshot) = Snapshot::compile(&policy) else { return };
        let carry = [Carry::Keep, Carry::Proportional, Carry::Reset][usize::from(carry) % 3];
        self.engine.publish(Publish::of(snapshot).carrying(carry)).expect("two limits have room");
        let denies = limits.iter().filter(|limit| limit.mode != Mode::Shadow && limit.on_failure.is_none());
        self.capacity = denies.map(|limit| limit.burst.unwrap_or(limit.limit)).min().unwrap_or(u64::MAX);
        self.admitted = Admitted::default();
    }

    fn advance(&mut self, ns: u64) {
        self.clock.set(Timestamp::from_nanos(self.clock.now().as_nanos().saturating_add(ns).min(LAST)));
        self.admitted = Admitted::default();
    }

    /// Returns the least remaining tokens of the request's limits.
    fn remaining(&self, request: &Request<'_>) -> Option<u64> {
        self.engine.peek(&request.without_cost()).remaining()
    }

    fn with_reservation(&mut self, which: u8, takes: impl FnOnce(&Engine<ManualClock>, Reservation)) {
        if !self.reservations.is_empty() {
            let place = usize::from(which) % self.reservations.len();
            takes(&self.engine, self.reservations.swap_remove(place));
            self.admitted = Admitted::default();
        }
    }
}

fn says<'e>(decision: &Decision<'e>) -> (bool, Retry, Option<&'e str>) {
    (decision.is_allowed(), decision.retry(), decision.limit_id())
}

/// Calls `does` with a request of this user. A cost that no request can have is skipped.
fn with_request(user: u8, cost: Cost, mut does: impl FnMut(&Request<'_>, usize)) {
    let user = usize::from(user) % USERS.len();
    let who = [Identity::new("user", USERS[user]).expect("a kind and a value")];
    let request = Request::new(&who).expect("one identity");
    match cost.tokens() {
        0 => does(&request.without_cost(), user),
        cost => {
            if let Ok(request) = request.cost(cost) {
                does(&request, user);
            }
        }
    }
}
