//! Random histories of calls. Gaps and costs are relative to the limit's numbers, so that a history keeps its meaning while
//! it is shrunk. Extreme values are as likely as usual ones.

use std::fmt;

use proptest::{collection::vec, prelude::*, sample::Index};
use tidegate::{
    algorithm::NUMBER_MAX,
    policy::Algorithm,
    time::{Nanos, PERIOD_MAX, PERIOD_MIN, SECOND_NS},
};

use crate::{
    calendar::{CalendarUnit, CalendarWindows},
    subject::{KEYS, LimitNumbers},
};

/// A limit, a start time and the steps that follow.
#[derive(Clone, PartialEq, Debug)]
pub struct History {
    /// The limit.
    pub numbers: LimitNumbers,
    /// First reading of the clock.
    pub start: Nanos,
    /// The steps, in this order.
    pub steps: Vec<HistoryStep>,
}

/// Prints the expression that [`replay`](crate::replay) takes; it needs the variants of [`Algorithm`], [`Gap`], [`HistoryOp`]
/// and [`Cost`] in scope.
impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "History {{\n    numbers: {:?},\n    start: {},\n    steps: vec![", self.numbers, self.start)?;
        for step in &self.steps {
            writeln!(f, "        {step:?},")?;
        }
        write!(f, "    ],\n}}")
    }
}

/// A gap in time, then an operation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HistoryStep {
    /// The key, modulo the number of keys.
    pub key: u8,
    /// Time that passes before the operation.
    pub gap: Gap,
    /// Lag of the call's first clock reading, in thousandths of the period, if the subject can stall.
    pub lag: u16,
    /// The operation.
    pub op: HistoryOp,
}

/// Time between two steps.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Gap {
    /// No time.
    Zero,
    /// Nanoseconds.
    Ns(u64),
    /// Thousandths of the period.
    Part(u16),
    /// The time of one token, plus this many nanoseconds.
    Token(i8),
    /// The time to the next boundary of an aligned window, plus this many nanoseconds.
    Boundary(i8),
    /// The time to the key's last retry-after instant, plus this many nanoseconds.
    Retry(i8),
    /// The time to the key's last reset-after instant, plus this many nanoseconds.
    Full(i8),
    /// Days.
    Days(u16),
}

/// An operation on a key or on the limit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum HistoryOp {
    /// A check.
    Check(Cost),
    /// A peek, immediately followed by the same check.
    PeekThenCheck(Cost),
    /// A peek.
    Peek(Cost),
    /// A reservation.
    Reserve(Cost),
    /// A settlement of an open reservation at this cost.
    Settle(Pick, Cost),
    /// A refund of an open reservation.
    Refund(Pick),
    /// A reset of the key.
    Reset,
    /// A change of the limit's numbers.
    Publish(LimitNumbers),
}

/// Index of an open reservation, modulo their number.
pub type Pick = u16;

/// Cost of a call.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Cost {
    /// A number of tokens; a check costs at least one.
    Tokens(u64),
    /// Thousandths of the capacity, rounded up.
    Share(u16),
    /// The key's last remaining count, plus this many tokens.
    Remaining(i8),
    /// The capacity, plus this many tokens.
    Capacity(i8),
    /// The largest cost of all.
    Max,
}

/// Returns a strategy for histories of limits with these algorithms.
pub(crate) fn histories(algorithms: Vec<Algorithm>, steps: usize) -> impl Strategy<Value = History> {
    let start = prop_oneof![
        Just(1_790_035_200 * SECOND_NS),
        1_790_000_000 * SECOND_NS..1_800_000_000 * SECOND_NS,
        Just(0),
        0..3 * SECOND_NS,
        Just(1 << 62),
    ];
    let numbers = numbers(algorithms.clone(), true);
    let steps = vec(step(algorithms), 1..=steps);
    (numbers, start, steps).prop_map(|(numbers, start, steps)| History { numbers, start, steps })
}

#[expect(clippy::panic, reason = "a judge without a model must not judge")]
fn numbers(algorithms: Vec<Algorithm>, with_zero: bool) -> impl Strategy<Value = LimitNumbers> {
    let zero = u32::from(with_zero);
    let limit = prop_oneof![
        zero => Just(0u64),
        3 => 1..4u64,
        6 => 1..100u64,
        4 => 1..5_000u64,
        3 => (1..50u32, 0..3u64).prop_map(|(bits, more)| (1 << bits) - 1 + more),
        3 => 1..=1u64 << 20,
        3 => 1..3_000_000_000u64,
        2 => 1..=NUMBER_MAX,
        1 => Just(NUMBER_MAX),
    ];
    let [period_min, period_max] = [PERIOD_MIN, PERIOD_MAX].map(|period| period.as_nanos() as u64);
    let period_ns = prop_oneof![
        4 => prop::sample::select(vec![1, 60, 3_600, 86_400]).prop_map(|seconds| seconds * SECOND_NS),
        2 => (1..100u64).prop_map(|seconds| seconds * SECOND_NS),
        1 => (1..=366 * 86_400u64).prop_map(|seconds| seconds * SECOND_NS),
        2 => (1..5_000u64).prop_map(|ms| ms * 1_000_000),
        1 => period_min..=period_max,
        1 => Just(period_min),
        1 => Just(period_max),
    ];
    let burst = prop_oneof![
        3 => Just(None),
        2 => (1..10u64).prop_map(Some),
        2 => (1..5_000u64).prop_map(Some),
        1 => (1..=NUMBER_MAX).prop_map(Some),
    ];
    let max_debt = prop_oneof![
        3 => Just(None),
        1 => (0..5_000u64).prop_map(Some),
        1 => Just(Some(NUMBER_MAX)),
    ];
    let parts = (prop::sample::select(algorithms), limit, period_ns, burst, max_debt, calendar());
    parts.prop_map(move |(algorithm, limit, period_ns, burst, max_debt, calendar)| {
        // Windows hold smaller limits and count in whole seconds. The subject must refuse limits a little above its maximum.
        let limit_max = match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => NUMBER_MAX,
            Algorithm::FixedWindow => 1 << 24,
            Algorithm::SlidingWindowCounter => 1 << 20,
            Algorithm::SlidingWindowLog => 1 << 12,
            other => panic!("no largest limit of {other:?}"),
        };
        let limit = if limit > limit_max { 1 + limit % limit_max } else { limit };
        let calendar = calendar.filter(|_| algorithm == Algorithm::FixedWindow);
        let period_ns = match (algorithm, calendar) {
            (_, Some(calendar)) => calendar.period_ns(),
            (Algorithm::FixedWindow | Algorithm::SlidingWindowCounter, None) => {
                period_ns.next_multiple_of(SECOND_NS).min(period_max)
            }
            _ => period_ns,
        };
        let is_bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
        let (burst, max_debt) = (burst.filter(|_| is_bucket), max_debt.filter(|_| is_bucket));
        LimitNumbers { algorithm, limit, period_ns, calendar, burst, max_debt }
    })
}

/// Returns a strategy for optional calendars, most of them `None`.
fn calendar() -> impl Strategy<Value = Option<CalendarWindows>> {
    let zones = ["UTC", "Europe/Berlin", "Asia/Kathmandu", "Africa/Cairo", "Australia/Lord_Howe", "Pacific/Apia"];
    let calendar = (
        prop::sample::select(vec![CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month]),
        prop::sample::select(zones.to_vec()),
    );
    prop::option::weighted(0.4, calendar.prop_map(|(unit, zone)| CalendarWindows { unit, zone }))
}

fn step(algorithms: Vec<Algorithm>) -> impl Strategy<Value = HistoryStep> {
    // Mostly one key, so that its history is long.
    let key = prop_oneof![5 => Just(0), 1 => 0..KEYS];
    let lag = prop_oneof![12 => Just(0u16), 1 => 1..100u16, 1 => 1..2_500u16];
    (key, gap(), lag, op(algorithms)).prop_map(|(key, gap, lag, op)| HistoryStep { key, gap, lag, op })
}

fn gap() -> impl Strategy<Value = Gap> {
    prop_oneof![
        6 => Just(Gap::Zero),
        1 => Just(Gap::Ns(1)),
        1 => (0..2_000_000u64).prop_map(Gap::Ns),
        3 => (0..1_000u16).prop_map(Gap::Part),
        1 => (0..4_000u16).prop_map(Gap::Part),
        2 => (-1..=1i8).prop_map(Gap::Token),
        2 => (-1..=1i8).prop_map(Gap::Boundary),
        4 => (-1..=1i8).prop_map(Gap::Retry),
        1 => (-1..=1i8).prop_map(Gap::Full),
        1 => (1..800u16).prop_map(Gap::Days),
    ]
}

fn op(algorithms: Vec<Algorithm>) -> impl Strategy<Value = HistoryOp> {
    let pick = || any::<Index>().prop_map(|index| index.index(1 << 16) as Pick);
    prop_oneof![
        24 => cost().prop_map(HistoryOp::Check),
        6 => cost().prop_map(HistoryOp::PeekThenCheck),
        3 => cost().prop_map(HistoryOp::Peek),
        1 => Just(HistoryOp::Peek(Cost::Tokens(0))),
        6 => cost().prop_map(HistoryOp::Reserve),
        3 => (pick(), cost()).prop_map(|(pick, cost)| HistoryOp::Settle(pick, cost)),
        3 => pick().prop_map(HistoryOp::Refund),
        1 => Just(HistoryOp::Reset),
        1 => numbers(algorithms, false).prop_map(HistoryOp::Publish),
    ]
}

fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        6 => Just(Cost::Tokens(1)),
        2 => (1..5u64).prop_map(Cost::Tokens),
        4 => (1..=1_000u16).prop_map(Cost::Share),
        4 => (-1..=1i8).prop_map(Cost::Remaining),
        2 => (-1..=1i8).prop_map(Cost::Capacity),
        1 => Just(Cost::Max),
    ]
}
