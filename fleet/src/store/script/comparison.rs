//! Compares the model of the script with the script on a real server: each batch of requests is run by both.

use tidegate::{
    internals::Receipt,
    time::{Nanos, SECOND_NS},
};

use crate::store::{
    config::LEASE_NS,
    script::{
        argument::ScriptArgument,
        decode::OpOutcome,
        encode::{SCRIPT, ScriptCall},
        grant::LeaseRequest,
        op::ScriptOp,
        plan::{Intent, KeyRequest, SlotRequest},
        record::{Record, StoredRecord, VersionedMeter},
        script_model::ScriptModel,
    },
};

/// A request of a comparison for one key, from a node that knows the record as it was some scripts ago.
#[derive(Clone, Debug)]
pub struct ComparedStep {
    /// The index of the intent, from 0 to 8.
    pub what: usize,
    /// The tokens of the intent.
    pub tokens: u64,
    /// The age of the record that the node knows, in scripts.
    pub ago: usize,
    /// The version of the node's policy.
    pub version: u64,
    /// Whether that version has the second set of numbers.
    pub has_other_numbers: bool,
    /// Whether the limit is in shadow mode.
    pub is_shadow: bool,
    /// The tokens that are left of a lease.
    pub left: u64,
}

/// The requests of one script, from a node whose idea of the time is late.
#[derive(Clone, Debug)]
pub struct ComparedBatch {
    /// The requests, each with one step for each of its keys.
    pub requests: Vec<Vec<ComparedStep>>,
    /// The lateness in microseconds.
    pub late_us: u64,
}

/// The number of keys of a comparison.
pub const KEYS: usize = 3;

/// Two sets of numbers for each algorithm, small enough to be used up.
const NUMBERS: [[&str; 2]; 5] = [
    ["token_bucket/100/1000000000/60", "token_bucket/1000/1000000000/90"],
    ["leaky_bucket/100/1000000000/60", "leaky_bucket/1000/1000000000/90"],
    ["fixed_window/60/1000000000", "fixed_window/90/1000000000"],
    ["sliding_window_counter/60/1000000000", "sliding_window_counter/90/1000000000"],
    ["sliding_window_log/5/1000000000", "sliding_window_log/7/1000000000"],
];

impl ComparedStep {
    fn intent(&self, key: &str, known: Option<&Record>, now: Nanos) -> Intent {
        let tokens = self.tokens;
        match self.what {
            0 => Intent::Look(tokens),
            1 => Intent::Reset,
            // Up to three limits at once, with and without a largest debt.
            2 => {
                let max_debt = if self.version < 3 { u64::MAX } else { 2 * tokens };
                Intent::Overcharge { tokens: tokens * (1 + self.left), max_debt }
            }
            6 => {
                let word = known.map_or(0, |held| held.word);
                Intent::GiveBack(Receipt { cost: tokens, charged_at: now, word, moved_ns: u64::MAX })
            }
            3 => Intent::Delta { sent: format!("{key}:sent:{}", self.left % 2), number: self.version, tokens },
            4 | 5 => {
                let (out, epoch) = (tokens * self.left, (now / LEASE_NS).saturating_sub(u64::from(self.ago == 3)));
                let left = out.min(self.left);
                let ends = known.map_or(0, |held| held.under.meter.window_end(held.word));
                Intent::Lease(LeaseRequest { epoch, ends, out, left, keep: left / 2, want: tokens, need: tokens % 3 })
            }
            _ => Intent::Charge(tokens),
        }
    }
}

fn kind(op: &ScriptOp) -> &'static str {
    match op {
        ScriptOp::Look => "look",
        ScriptOp::Clear => "clear",
        ScriptOp::Swap { .. } => "swap",
        ScriptOp::Add { .. } => "add",
        ScriptOp::Take { .. } => "take",
        ScriptOp::Lend { .. } => "lend",
    }
}

/// A comparison of the model with a real store: each batch is run by both.
#[derive(Debug)]
pub struct ScriptComparison {
    numbers: usize,
    keys: Vec<String>,
    model: ScriptModel,
    before: Vec<[String; KEYS]>,
    heard: Nanos,
    asked: Vec<SlotRequest>,
    call: ScriptCall,
    /// The number of times that a key lived longer because of a debt.
    debts: usize,
}

impl ScriptComparison {
    /// Makes a comparison. The number of the case is part of its keys, so it must be used once.
    #[must_use]
    pub fn new(case: usize) -> Self {
        Self {
            numbers: case % NUMBERS.len(),
            keys: (0..KEYS).map(|at| format!("{{{case}}}{at}")).collect(),
            model: ScriptModel::default(),
            before: vec![Default::default()],
            heard: 0,
            asked: Vec::new(),
            call: ScriptCall::default(),
            debts: 0,
        }
    }

    /// Returns the command that runs a batch in the real store.
    ///
    /// # Panics
    ///
    /// The numbers of the comparison are invalid.
    #[must_use]
    pub fn command(&mut self, batch: ComparedBatch) -> redis::Cmd {
        let supposed = if self.heard == 0 { 1 } else { self.heard - batch.late_us * 1_000 };
        self.call = ScriptCall::default();
        self.asked.clear();
        for steps in batch.requests {
            let request = |(at, (step, key)): (usize, (&ComparedStep, &String))| {
                let meter = NUMBERS[self.numbers][usize::from(step.has_other_numbers)].parse().expect("a meter");
                let under = VersionedMeter { meter, version: step.version };
                let text = &self.before[self.before.len().saturating_sub(1 + step.ago)][at];
                let known = StoredRecord::read(text.clone(), &meter).held;
                let intent = step.intent(key, known.as_ref(), supposed);
                let mut request = KeyRequest::again(key.clone(), under, intent, Some(text));
                request.is_shadow = step.is_shadow;
                request
            };
            let mut slot_request: Vec<_> = steps.iter().zip(&self.keys).enumerate().map(request).collect();
            self.call.add(&mut slot_request, supposed);
            self.asked.push(slot_request);
        }
        let mut command = redis::cmd("EVAL");
        let ScriptCall { keys, arguments, .. } = &self.call;
        command.arg(SCRIPT).arg(keys.len()).arg(keys).arg(arguments);
        command
    }

    /// Runs the batch of the last command in the model, and compares the answer of the real store. Returns the outcome
    /// for each key, and the kind of its operation.
    ///
    /// # Panics
    ///
    /// The answers differ.
    pub fn compare(&mut self, reply: &[String]) -> Vec<(String, &'static str)> {
        self.heard = reply[0].parse::<Nanos>().expect("a time") * 1_000;
        let arguments: Vec<_> = self.call.arguments.iter().map(Vec::as_slice).collect();
        let expected = self.model.run(&self.call.keys, &arguments, self.heard);
        let mut seen = Vec::new();
        let mut key_requests = self.asked.iter().flatten();
        for ((argument, reply), expected) in
            arguments.iter().zip(reply[1..].chunks_exact(2)).zip(expected[1..].chunks_exact(2))
        {
            let (charge, request) = (ScriptArgument::read(argument), key_requests.next().expect("one for each charge"));
            assert_eq!(reply, expected, "{charge:?}");
            if reply[0] == OpOutcome::Charged.name() {
                let life_s = charge.life_s(&reply[1], self.heard);
                self.debts += usize::from(is_long_enough(request, &reply[1], life_s, self.heard));
            }
            seen.push((reply[0].clone(), kind(&charge.op)));
        }
        assert_eq!(reply.len(), expected.len());
        let value = |key: &String| self.model.value(key, self.heard).to_owned();
        self.before.push(std::array::from_fn(|at| value(&self.keys[at])));
        seen
    }

    /// Returns the keys that the last batch wrote, and how many seconds each lives.
    pub fn lives(&self) -> impl Iterator<Item = (&str, u64)> {
        self.model.written()
    }

    /// Returns how often a key lived longer because of a debt.
    #[must_use]
    pub fn debts(&self) -> usize {
        self.debts
    }
}

/// Checks the life of a value, and returns whether it is longer because of a debt.
fn is_long_enough(request: &KeyRequest, value: &str, life_s: u64, now: Nanos) -> bool {
    let Some(held) = StoredRecord::read(value.to_owned(), &request.own.meter).held else {
        assert_eq!(life_s, 1, "{value}");
        return false;
    };
    let leased_ns = if held.leases.out() > 0 { 2 * LEASE_NS } else { 0 };
    let debt_ns = held.under.meter.reset_after_ns(held.word, now);
    let known = request.found.as_ref().and_then(|found| found.held);
    let theirs = known.map_or(0, |held| held.under.meter.period_ns());
    let usual_ns = (2 * request.own.meter.period_ns().max(theirs)).max(leased_ns);
    // The script computes a debt in whole seconds.
    let expected_s = usual_ns.max(debt_ns).div_ceil(SECOND_NS) + 1;
    assert!((expected_s - 1..=expected_s + 1).contains(&life_s), "{life_s} s instead of {expected_s}: {value}");
    debt_ns > usual_ns
}
