//! Tests of the commands over a limiter with a manual clock.

use std::time::Duration;

use proptest::prelude::*;
use tidegate::{clock::ManualClock, time::Timestamp};

use super::*;

const START: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);

fn limiter() -> (RatedLimiter<ManualClock>, ManualClock) {
    let clock = ManualClock::at(START);
    (RatedLimiter::with_clock(1_000, clock.clone()), clock)
}

fn ask(limiter: &RatedLimiter<ManualClock>, dialect: Dialect, arguments: &str) -> Result<[i64; 5], String> {
    let arguments: Vec<&[u8]> = arguments.split(' ').map(str::as_bytes).collect();
    let throttle = Throttle::read(dialect, &arguments).map_err(|error| error.to_string())?;
    Ok(throttle.reply(&throttle.charge(limiter, NonZeroU16::MIN)))
}

/// The cases of redis-cell's own tests, in their order: the time in milliseconds, and the quantity of a bucket of 5
/// with 1 a second; then limited, remaining, retry after and reset after, in whole seconds rounded up.
#[test]
fn replies_are_those_of_redis_cell() {
    let (limiter, clock) = limiter();
    let mut now_ms = 0;
    for (place, (at_ms, quantity, answer)) in [
        (0, 6, [1, 5, 5, -1, 0]),
        (0, 1, [0, 5, 4, -1, 1]),
        (0, 1, [0, 5, 3, -1, 2]),
        (0, 1, [0, 5, 2, -1, 3]),
        (0, 1, [0, 5, 1, -1, 4]),
        (0, 1, [0, 5, 0, -1, 5]),
        (0, 1, [1, 5, 0, 1, 5]),
        (3_000, 1, [0, 5, 2, -1, 3]),
        (3_100, 1, [0, 5, 1, -1, 4]),
        (4_000, 1, [0, 5, 1, -1, 4]),
        (8_000, 1, [0, 5, 4, -1, 1]),
        (9_500, 1, [0, 5, 4, -1, 1]),
        (9_500, 0, [0, 5, 4, -1, 1]),
        (9_500, 2, [0, 5, 2, -1, 3]),
        (9_500, 5, [1, 5, 2, 3, 3]),
    ]
    .into_iter()
    .enumerate()
    {
        clock.advance(Duration::from_millis(at_ms - now_ms));
        now_ms = at_ms;
        let said = ask(&limiter, Dialect::RedisCell, &format!("foo 4 1 1 {quantity}"));
        assert_eq!(said, Ok(answer), "case {place}");
    }
}

#[test]
fn the_dialect_of_throttlecrab_has_its_own_order() {
    let (limiter, _) = limiter();
    for answer in [[1, 2, 1, 30, 0], [1, 2, 0, 60, 0], [0, 2, 0, 60, 30]] {
        assert_eq!(ask(&limiter, Dialect::Throttlecrab, "ada 2 2 60"), Ok(answer));
    }
    assert_eq!(ask(&limiter, Dialect::Throttlecrab, "ada 2 2 60 3"), Ok([0, 2, 0, 60, -1]), "it never will be");
    assert_eq!(ask(&limiter, Dialect::Throttlecrab, "ada 2 2 60 0"), Ok([1, 2, 0, 60, 0]), "only asked");
}

/// Rates below a millisecond and above a million a second, at which redis-cell forgets keys or counts nothing.
#[test]
fn no_rate_is_too_fast_and_no_wait_is_too_short() {
    let (limiter, clock) = limiter();
    for _ in 0..10 {
        assert_eq!(ask(&limiter, Dialect::RedisCell, "fast 9 6000 1").map(|answer| answer[0]), Ok(0));
    }
    assert_eq!(ask(&limiter, Dialect::RedisCell, "fast 9 6000 1"), Ok([1, 10, 0, 1, 1]), "166 us are a second");
    for _ in 0..10 {
        assert_eq!(ask(&limiter, Dialect::RedisCell, "faster 9 10000000 1").map(|answer| answer[0]), Ok(0));
    }
    assert_eq!(ask(&limiter, Dialect::RedisCell, "faster 9 10000000 1"), Ok([1, 10, 0, 1, 1]));
    clock.advance(Duration::from_nanos(100));
    assert_eq!(ask(&limiter, Dialect::RedisCell, "faster 9 10000000 1"), Ok([0, 10, 0, -1, 1]));
}

#[test]
fn numbers_that_make_no_limit_are_refused_and_charge_nothing() {
    for (arguments, says) in [
        ("a", "Cell error: Usage: cl.throttle <key>"),
        ("a 1 1 1 1 1", "Cell error: Usage"),
        ("a x 1 1", "Cell error: Couldn't parse as integer: x"),
        ("a 1.5 1 1", "parse as integer: 1.5"),
        ("a 1 1 9223372036854775808", "parse as integer"),
        ("a -1 1 1", "max_burst: -1 is below 0"),
        ("a 1 0 1", "count: 0 is out of range"),
        ("a 1 -3 1", "count: -3 is below 0"),
        ("a 1 1 0", "period: 0 is out of range; from 1 to 31622400"),
        ("a 1 1 31622401", "period: 31622401"),
        ("a 1 1 9223372036854775807", "period: 9223372036854775807"),
        ("a 9223372036854775807 1 1", "max_burst: 9223372036854775808 is out of range"),
        ("a 1 9223372036854775807 1", "count: 9223372036854775807"),
        ("a 9007199254740990 1 31622400", "max_burst: 9007199254740991 tokens would take longer than a hundred years"),
        ("a 1 1 31622400", "max_burst: 2 tokens would take longer than 31622400 seconds to come back"),
        ("a 31622400 1 1", "max_burst: 31622401 tokens would take longer than 31622400 seconds"),
        ("a 1 1 1 -1", "quantity: -1 is below 0"),
    ] {
        let (limiter, _) = limiter();
        let said = ask(&limiter, Dialect::RedisCell, arguments).expect_err(arguments);
        assert!(said.contains(says), "{arguments}: {said}");
        assert_eq!(ask(&limiter, Dialect::RedisCell, "a 1 1 1 0"), Ok([0, 2, 2, -1, 0]), "{arguments}");
    }
    let (limiter, _) = limiter();
    let said = ask(&limiter, Dialect::Throttlecrab, "a 0 1 1").expect_err("it holds nothing");
    assert!(said.starts_with("ERR max_burst: 0 is out of range"), "{said}");
}

proptest! {
    /// Nothing panics with any numbers, no more than the burst is allowed at one time, and a check is allowed after the
    /// wait of its reply.
    #[test]
    fn the_burst_and_the_wait_of_a_reply_hold(
        max_burst in 0_i64..40, count in 1_i64..20_000, period in 1_i64..100_000, quantity in 1_i64..5, asks in 1_usize..60,
    ) {
        let (limiter, clock) = limiter();
        let mut allowed = 0;
        let arguments = format!("ada {max_burst} {count} {period} {quantity}");
        let mut last = [0; 5];
        for _ in 0..asks {
            last = ask(&limiter, Dialect::RedisCell, &arguments).expect("a limit");
            prop_assert_eq!(last[1], max_burst + 1);
            prop_assert!((0..=max_burst + 1).contains(&last[2]) && last[4] >= 0);
            allowed += if last[0] == 0 { quantity } else { 0 };
        }
        prop_assert!(allowed <= max_burst + 1);
        match last {
            [1, _, _, -1, _] => prop_assert!(quantity > max_burst + 1, "else there is a time"),
            [1, _, _, wait, _] => {
                clock.advance(Duration::from_secs(wait.unsigned_abs()));
                prop_assert_eq!(ask(&limiter, Dialect::RedisCell, &arguments).expect("a limit")[0], 0);
            }
            [_, _, _, wait, _] => prop_assert_eq!(wait, -1),
        }
    }

    #[test]
    fn numbers_are_read_as_rust_reads_them(text in prop_oneof!["[-+]?[0-9]{0,21}", ".{0,4}"]) {
        prop_assert_eq!(parse_integer(text.as_bytes()), text.parse().ok());
    }

    #[test]
    fn numbers_that_fit_no_limit_are_refused(numbers in [any::<i64>(); 4]) {
        let (limiter, _) = limiter();
        let arguments = numbers.map(|number| number.to_string()).join(" ");
        for dialect in [Dialect::RedisCell, Dialect::Throttlecrab] {
            match ask(&limiter, dialect, &format!("ada {arguments}")) {
                Ok(answer) => {
                    prop_assert!(answer[1..].iter().all(|number| *number >= -1), "{answer:?}");
                    let full = answer[if dialect == Dialect::RedisCell { 4 } else { 3 }];
                    prop_assert!(to_integer(PERIOD_MAX_S) >= full, "strangers may have to wait for it: {answer:?}");
                }
                Err(said) => prop_assert!(said.contains(": "), "{said}"),
            }
        }
    }
}
