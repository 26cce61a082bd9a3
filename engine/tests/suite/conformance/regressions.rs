//! Histories that failed once, as the suite printed them.

use tidegate::{
    algorithm::NUMBER_MAX,
    policy::Algorithm::{self, SlidingWindowLog, TokenBucket},
};
use tidegate_conformance::{
    Cost::{Max, Remaining, Tokens},
    Gap::{Boundary, Part, Token, Zero},
    History,
    HistoryOp::{Check, PeekThenCheck, Publish, Reserve, Settle},
    HistoryStep, Implementation, LimitNumbers, replay,
};

use super::{engine::Engines, step::Steps};

fn numbers(algorithm: Algorithm, limit: u64, period_ns: u64, burst: Option<u64>) -> LimitNumbers {
    LimitNumbers { algorithm, limit, period_ns, calendar: None, burst, max_debt: None }
}

/// A limit with these numbers that takes any debt.
fn indebted(numbers: LimitNumbers) -> LimitNumbers {
    LimitNumbers { max_debt: Some(NUMBER_MAX), ..numbers }
}

fn holds(implementation: &dyn Implementation, numbers: LimitNumbers, steps: Vec<HistoryStep>) {
    let history = History { numbers, start: 1_790_035_200_000_000_000, steps };
    let seen = replay(implementation, &history).expect("it holds");
    assert_eq!(seen.histories, 1);
}

/// The whole burst of the bucket comes back in less than a nanosecond.
#[test]
fn a_bucket_too_fast_for_its_burst_to_take_time_is_carried_as_unused() {
    for implementation in [&Steps as &dyn Implementation, &Engines] {
        holds(
            implementation,
            numbers(TokenBucket, 277_488_000_000_001, 1_000_000_000, Some(100)),
            vec![
                HistoryStep { key: 0, gap: Zero, lag: 0, op: Publish(numbers(TokenBucket, 1, 1_000_000_000, None)) },
                HistoryStep { key: 0, gap: Boundary(-1), lag: 0, op: Check(Tokens(1)) },
            ],
        );
    }
}

/// A debt that lasts beyond the end of time is carried as the largest one.
#[test]
fn an_excess_beyond_the_end_of_time_is_not_forgotten_by_a_publish() {
    for implementation in [&Steps as &dyn Implementation, &Engines] {
        holds(
            implementation,
            indebted(numbers(TokenBucket, 1, 31_622_400_000_000_000, None)),
            vec![
                HistoryStep { key: 0, gap: Zero, lag: 0, op: Reserve(Tokens(1)) },
                HistoryStep { key: 0, gap: Zero, lag: 0, op: Settle(0, Max) },
                HistoryStep { key: 0, gap: Zero, lag: 0, op: Publish(numbers(TokenBucket, 527, 11_000_000_000, None)) },
                HistoryStep { key: 0, gap: Token(0), lag: 0, op: Check(Tokens(1)) },
            ],
        );
    }
}

/// A refund of another charge before the publish does not end the debt.
#[test]
fn an_excess_beyond_the_end_of_time_is_not_ended_by_giving_back() {
    let fast = Publish(numbers(TokenBucket, 33_313_417_745, 60_000_000_000, None));
    let ops =
        [Reserve(Tokens(4)), Reserve(Remaining(0)), Settle(0, Max), Settle(0, Remaining(0)), fast, Check(Tokens(1))];
    let steps: Vec<_> = ops.map(|op| HistoryStep { key: 0, gap: Zero, lag: 0, op }).into();
    for implementation in [&Steps as &dyn Implementation, &Engines] {
        holds(implementation, indebted(numbers(TokenBucket, 2, 1_000_000_000, Some(7))), steps.clone());
    }
}

/// The new capacity is about the size of the debt, which is not known beyond the end of time.
#[test]
fn an_excess_beyond_the_end_of_time_may_be_more_than_was_charged() {
    for implementation in [&Steps as &dyn Implementation, &Engines] {
        holds(
            implementation,
            indebted(numbers(TokenBucket, 1, 1_000_000_000, None)),
            vec![
                HistoryStep { key: 0, gap: Zero, lag: 0, op: Reserve(Tokens(1)) },
                HistoryStep { key: 0, gap: Part(968), lag: 0, op: Settle(0, Max) },
                HistoryStep {
                    key: 0,
                    gap: Zero,
                    lag: 0,
                    op: Publish(numbers(TokenBucket, NUMBER_MAX, 18_618_970_000_000_000, None)),
                },
                HistoryStep { key: 0, gap: Zero, lag: 0, op: Check(Tokens(1)) },
            ],
        );
    }
}

/// Charges above the capacity stay used when there is room for them.
#[test]
fn an_excess_above_the_burst_stays_used_when_the_limit_is_raised() {
    for implementation in [&Steps as &dyn Implementation, &Engines] {
        holds(
            implementation,
            numbers(TokenBucket, 100, 60_000_000_000, None),
            vec![
                HistoryStep { key: 0, gap: Zero, lag: 0, op: Reserve(Tokens(100)) },
                HistoryStep { key: 0, gap: Zero, lag: 0, op: Settle(0, Tokens(150)) },
                HistoryStep {
                    key: 0,
                    gap: Zero,
                    lag: 0,
                    op: Publish(numbers(TokenBucket, 1_000, 60_000_000_000, None)),
                },
                HistoryStep { key: 0, gap: Zero, lag: 0, op: Check(Tokens(851)) },
                HistoryStep { key: 0, gap: Zero, lag: 0, op: Check(Tokens(850)) },
            ],
        );
    }
}

/// The clock of the last call stalled before the admission at the boundary was forgotten, and the slot went to another key.
#[test]
fn a_look_at_a_log_that_was_forgotten_since_is_a_look_at_the_present() {
    let step = |key, gap, lag, op| HistoryStep { key, gap, lag, op };
    holds(
        &Engines,
        numbers(SlidingWindowLog, 1_647, 1_000_000_000, None),
        vec![
            step(0, Boundary(0), 0, Check(Tokens(1))),
            step(1, Part(1_284), 0, Reserve(Tokens(1))),
            step(0, Zero, 285, PeekThenCheck(Tokens(1))),
        ],
    );
}
