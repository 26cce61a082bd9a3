//! Time in the engine: whole nanoseconds since the Unix epoch in a `u64`, which last until the year 2554, and periods as
//! policies write them.

/// Nanoseconds since the Unix epoch.
pub type Nanos = u64;

/// The nanoseconds of a second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// The shortest period that a policy may name, in nanoseconds: one millisecond.
pub const PERIOD_MIN_NS: u64 = 1_000_000;

/// The longest period that a policy may name, in nanoseconds: 366 days.
pub const PERIOD_MAX_NS: u64 = 366 * 86_400 * SECOND_NS;

/// Reads a period as policies write it: a whole number and one of `ms`, `s`, `m`, `h`, `d`.
///
/// Returns nanoseconds. The error says what was wrong and what is right.
///
/// ```
/// assert_eq!(tidegate::time::parse_period("15m"), Ok(900_000_000_000));
/// assert!(tidegate::time::parse_period("0s").is_err());
/// ```
pub fn parse_period(text: &str) -> Result<u64, String> {
    const FORM: &str = "write a whole number and a unit: 250ms, 1s, 15m, 1h, 1d";
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_ns = match unit {
        "ms" => 1_000_000,
        "s" => SECOND_NS,
        "m" => 60 * SECOND_NS,
        "h" => 3_600 * SECOND_NS,
        "d" => 86_400 * SECOND_NS,
        "" => return Err(format!("`{text}` has no unit; {FORM}")),
        _ => return Err(format!("`{text}` is not a period; {FORM}")),
    };
    if digits == 0 {
        return Err(format!("`{text}` is not a period; {FORM}"));
    }
    let period_ns = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_ns));
    match period_ns {
        Some(0) => Err("a period of zero has no rate; the shortest period is 1ms".to_owned()),
        Some(ns) if ns <= PERIOD_MAX_NS => Ok(ns),
        _ => Err(format!("`{text}` is longer than the longest period, 366d")),
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    #[test]
    fn periods_have_units_and_bounds() {
        for (text, ns) in [
            ("1ms", PERIOD_MIN_NS),
            ("250ms", 250_000_000),
            ("1s", SECOND_NS),
            ("15m", 900 * SECOND_NS),
            ("1h", 3_600 * SECOND_NS),
            ("366d", PERIOD_MAX_NS),
        ] {
            assert_eq!(parse_period(text), Ok(ns), "{text}");
        }
        for text in
            ["", "0s", "0ms", "s", "1", "1.5s", "-1s", "1 s", "1w", "367d", "99999999999999999999d", "1µs", "١s"]
        {
            assert!(parse_period(text).is_err(), "{text}");
        }
    }
}
