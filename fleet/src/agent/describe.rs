//! Describes the state of a limit in plain words, and formats the numbers and durations of such a description.

use tidegate::{
    InspectedLimit, Outcome,
    policy::{Algorithm, Sharing},
};

/// Describes a limit: its algorithm, what of it is used, and when all of it is free again. For a shared limit the text
/// also says which nodes it covers; `is_asked` means that there is a store and that it was asked.
#[must_use]
pub fn standing(limit: &InspectedLimit<'_>, is_asked: bool) -> String {
    let who = match (limit.sharing, limit.is_stored) {
        (Sharing::Local, _) => "",
        (_, false) if is_asked => "The store does not answer. On this node alone: ",
        (_, false) => "On this node alone: ",
        (Sharing::Leased, true) => "Of all nodes, with what they have on lease: ",
        (_, true) => "Of all nodes: ",
    };
    format!("{who}{}", counted(limit))
}

fn counted(limit: &InspectedLimit<'_>) -> String {
    let state = &limit.state;
    let Some(algorithm) = state.algorithm() else {
        let is_block = limit.limit_id.contains("/client:") && limit.limit_id.ends_with("/blocked");
        let text = if is_block { "Blocked: every request is denied." } else { "It denies every request." };
        return text.to_owned();
    };
    let (most, left) = (state.limit(), state.remaining());
    let used = most.saturating_sub(left);
    let (all, back) = (count(most), length(state.reset_after().as_nanos()));
    let is_unused = state.reset_after().is_zero();
    match algorithm {
        Algorithm::TokenBucket => {
            let (tokens, pace) = (plural(most, "token"), pace(state, "comes back", "come back"));
            if is_unused {
                format!("Token bucket: full with {tokens}; {pace}.")
            } else {
                format!(
                    "Token bucket: {} of {tokens} {} left; {pace}; full in {back}.",
                    some(left),
                    verb(left, "is", "are")
                )
            }
        }
        Algorithm::LeakyBucket => {
            let pace = pace(state, "leaves", "leave");
            if is_unused {
                format!("Leaky bucket: the queue is empty and has {}; {pace}.", plural(most, "place"))
            } else {
                let (places, are) = (plural(most, "place"), verb(used, "is", "are"));
                format!("Leaky bucket: {} of {places} in the queue {are} taken; {pace}; empty in {back}.", some(used))
            }
        }
        Algorithm::FixedWindow if is_unused => format!("Fixed window: none of {all} is used in this window."),
        Algorithm::FixedWindow => {
            let are = verb(used, "is", "are");
            format!("Fixed window: {} of {all} {are} used in this window, which ends in {back}.", some(used))
        }
        Algorithm::SlidingWindowCounter if is_unused => format!("Sliding window counter: none of {all} counts now."),
        Algorithm::SlidingWindowCounter => format!(
            "Sliding window counter: {} of {all} {} now, those of the window before by the part of it that is not over; none \
             does in {back}.",
            some(used),
            verb(used, "counts", "count")
        ),
        Algorithm::SlidingWindowLog => {
            let (were, period) = (verb(used, "was", "were"), length(state.period().as_nanos()));
            let newest = if is_unused { String::new() } else { format!("; the newest is forgotten in {back}") };
            format!("Sliding window log: {} of {all} {were} used within the last {period}{newest}.", some(used))
        }
        // An algorithm that is newer than this text.
        _ => format!("{} of {all} {} left; all is back in {back}.", some(left), verb(left, "is", "are")),
    }
}

fn some(number: u64) -> String {
    if number == 0 { "none".to_owned() } else { count(number) }
}

fn verb(number: u64, one: &'static str, more: &'static str) -> &'static str {
    if number <= 1 { one } else { more }
}

fn plural(number: u64, what: &str) -> String {
    format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Describes how fast tokens come back: one in a period, where that is a whole number of milliseconds or longer than a
/// second; otherwise a number a second.
fn pace(state: &Outcome, one: &str, more: &str) -> String {
    // The time of each token was rounded by at most a nanosecond; that of all tokens of a fast bucket together may be
    // rounded to nothing.
    let (tokens, whole_ns) = (u128::from(state.limit()), state.period().as_nanos().max(1));
    let each_ms = (whole_ns + tokens * 500_000) / (tokens * 1_000_000);
    if each_ms > 0 && (each_ms * tokens * 1_000_000).abs_diff(whole_ns) <= tokens {
        return format!("one {one} every {}", length(each_ms * 1_000_000));
    }
    if whole_ns >= tokens * SECOND_NS {
        return format!("one {one} every {}", length(whole_ns / tokens));
    }
    let a_second = (tokens * SECOND_NS + whole_ns / 2) / whole_ns;
    let is_exact = (a_second * whole_ns).abs_diff(tokens * SECOND_NS) <= a_second * (tokens + 1);
    let about = if is_exact { "" } else { "about " };
    let a_second = u64::try_from(a_second).unwrap_or(u64::MAX);
    format!("{about}{} {} a second", count(a_second), if a_second == 1 { one } else { more })
}

const SECOND_NS: u128 = 1_000_000_000;

/// Formats a number with commas between the thousands.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let grouped = digits.bytes().enumerate().flat_map(|(at, digit)| {
        let comma = (at > 0 && (digits.len() - at).is_multiple_of(3)).then_some(',');
        comma.into_iter().chain([char::from(digit)])
    });
    grouped.collect()
}

/// Formats a duration in the largest unit of which it has at least two, or exactly one; rounded up to a tenth.
#[must_use]
pub fn length(ns: u128) -> String {
    const UNITS: [(&str, u128); 5] = [("days", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];
    let ms = ns.div_ceil(1_000_000);
    let fits = |(_, unit): &&(&str, u128)| ms >= 2 * unit || ms == *unit;
    let &(name, unit) = UNITS.iter().find(fits).unwrap_or(&UNITS[4]);
    let tenths = (10 * ms).div_ceil(unit);
    let name = if name == "days" && tenths == 10 { "day" } else { name };
    match tenths % 10 {
        0 => format!("{} {name}", count(u64::try_from(tenths / 10).unwrap_or(u64::MAX))),
        tenth => format!("{}.{tenth} {name}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use tidegate::{Engine, Identity, Request, Snapshot, clock::ManualClock, time::Timestamp};

    use super::*;

    /// Midnight, at which windows of a minute, an hour and a day begin.
    const MIDNIGHT: u64 = 1_790_035_200_000_000_000;

    /// Describes a limit of which `used` tokens were used at once, `ago_ms` milliseconds ago.
    fn described(limit: &str, used: u64, ago_ms: u64) -> String {
        let clock = ManualClock::at(Timestamp::from_nanos(MIDNIGHT));
        let engine = Engine::for_simulation(8, clock.clone(), 7);
        let policy = serde_json::from_str(&format!(
            r#"{{"domains": {{"default": {{"defaults": {{"user": "t"}}, "tiers": [{{"id": "t", "limits": [{limit}]}}]}}}}}}"#
        ));
        engine.publish(Snapshot::compile(&policy.expect("JSON")).expect("valid")).expect("it fits");
        let who = [Identity::new("user", "ada").expect("valid")];
        let request = Request::new(&who).expect("valid");
        if used > 0 {
            assert!(engine.check(&request.cost(used).expect("in range")).is_allowed());
        }
        clock.advance(Duration::from_millis(ago_ms));
        let found = engine.inspect(&request);
        standing(&found.limits[0], false)
    }

    fn limit(algorithm: &str, most: u64, period: &str, more: &str) -> String {
        format!(r#"{{"id": "x", "algorithm": "{algorithm}", "limit": {most}, "period": "{period}"{more}}}"#)
    }

    #[test]
    fn the_state_of_every_algorithm_is_described() {
        let tokens = limit("token_bucket", 20, "1s", r#", "burst": 200"#);
        let (many, one) = (limit("token_bucket", 60, "1s", r#", "burst": 1200"#), limit("token_bucket", 1, "1h", ""));
        let queue = limit("leaky_bucket", 6_000, "1m", r#", "burst": 20"#);
        let (minute, day) = (limit("fixed_window", 1_000, "1m", ""), limit("fixed_window", 9, "day", ""));
        let counter = limit("sliding_window_counter", 60, "1m", "");
        let log = limit("sliding_window_log", 5, "10s", "");
        for (limit, used, ago_ms, expected) in [
            (&tokens, 0, 0, "Token bucket: full with 200 tokens; one comes back every 50 ms."),
            (
                &tokens,
                200,
                1_850,
                "Token bucket: 37 of 200 tokens are left; one comes back every 50 ms; full in 8.2 s.",
            ),
            (&tokens, 200, 0, "Token bucket: none of 200 tokens is left; one comes back every 50 ms; full in 10 s."),
            (&many, 1_199, 0, "Token bucket: 1 of 1,200 tokens is left; 60 come back a second; full in 20 s."),
            (&one, 0, 0, "Token bucket: full with 1 token; one comes back every 1 h."),
            (&queue, 0, 0, "Leaky bucket: the queue is empty and has 20 places; one leaves every 10 ms."),
            (
                &queue,
                12,
                0,
                "Leaky bucket: 12 of 20 places in the queue are taken; one leaves every 10 ms; empty in 120 ms.",
            ),
            (&minute, 1_000, 18_000, "Fixed window: 1,000 of 1,000 are used in this window, which ends in 42 s."),
            (&minute, 1, 0, "Fixed window: 1 of 1,000 is used in this window, which ends in 1 min."),
            (&minute, 1_000, 61_000, "Fixed window: none of 1,000 is used in this window."),
            (&day, 9, 0, "Fixed window: 9 of 9 are used in this window, which ends in 1 day."),
            (
                &counter,
                60,
                90_000,
                "Sliding window counter: 30 of 60 count now, those of the window before by the part of it that is not over; \
                 none does in 30 s.",
            ),
            (&counter, 60, 120_000, "Sliding window counter: none of 60 counts now."),
            (
                &log,
                3,
                2_750,
                "Sliding window log: 3 of 5 were used within the last 10 s; the newest is forgotten in 7.3 s.",
            ),
            (&log, 3, 10_001, "Sliding window log: none of 5 was used within the last 10 s."),
            (&limit("token_bucket", 0, "1s", ""), 0, 0, "It denies every request."),
            (
                &limit("fixed_window", 5, "1s", r#", "sharing": "strict", "on_failure": {"local": 1.0}"#),
                0,
                0,
                "On this node alone: Fixed window: none of 5 is used in this window.",
            ),
        ] {
            assert_eq!(described(limit, used, ago_ms), expected);
        }
    }

    #[test]
    fn a_blocked_client_is_described_as_blocked() {
        let engine = Engine::for_simulation(8, ManualClock::at(Timestamp::from_nanos(MIDNIGHT)), 7);
        let policy = r#"{"domains": {"default": {"clients": [
            {"kind": "user", "value": "eve", "override": {"blocked": true}}]}}}"#;
        let policy = serde_json::from_str(policy).expect("JSON");
        engine.publish(Snapshot::compile(&policy).expect("valid")).expect("it fits");
        let who = [Identity::new("user", "eve").expect("valid")];
        let found = engine.inspect(&Request::new(&who).expect("valid"));
        assert_eq!(standing(&found.limits[0], false), "Blocked: every request is denied.");
    }

    #[test]
    fn an_inexact_pace_is_described_as_about() {
        for (most, period, burst, expected) in [
            (3, "1s", 1, "3 come back a second"),
            (7, "1m", 7, "one comes back every 8.6 s"),
            (100, "1m", 100, "one comes back every 600 ms"),
            (10_000, "1s", 10, "10,000 come back a second"),
            (9_999_999, "1s", 1, "10,000,000 come back a second"),
            (700, "3s", 700, "about 233 come back a second"),
            (1, "1ms", 1, "one comes back every 1 ms"),
        ] {
            let described = described(&limit("token_bucket", most, period, &format!(r#", "burst": {burst}"#)), 0, 0);
            assert!(described.ends_with(&format!("; {expected}.")), "{described}");
        }
    }

    proptest! {
        /// The numbers in a description are those of the engine, for every algorithm, use and time.
        #[test]
        fn descriptions_have_the_numbers_of_the_engine(
            algorithm in prop::sample::select(
                &["token_bucket", "leaky_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log"][..],
            ),
            most in 1_u64..4_000,
            share in 0.0_f64..=1.0,
            ago_ms in 0_u64..120_000,
        ) {
            #[expect(clippy::cast_sign_loss, reason = "a part of a whole number is not negative")]
            let used = (most as f64 * share) as u64;
            let clock = ManualClock::at(Timestamp::from_nanos(MIDNIGHT));
            let engine = Engine::for_simulation(8, clock.clone(), 7);
            let policy = serde_json::from_str(&format!(
                r#"{{"domains": {{"default": {{"defaults": {{"user": "t"}}, "tiers": [{{"id": "t", "limits": [{}]}}]}}}}}}"#,
                limit(algorithm, most, "1m", "")
            ));
            engine.publish(Snapshot::compile(&policy.expect("JSON")).expect("valid")).expect("it fits");
            let who = [Identity::new("user", "ada").expect("valid")];
            let request = Request::new(&who).expect("valid");
            if used > 0 {
                prop_assert!(engine.check(&request.cost(used).expect("in range")).is_allowed());
            }
            clock.advance(Duration::from_millis(ago_ms));
            let found = engine.inspect(&request);
            let state = found.limits[0].state;
            let text = standing(&found.limits[0], false);
            let number = if algorithm == "token_bucket" { state.remaining() } else { most - state.remaining() };
            if state.reset_after().is_zero() {
                prop_assert_eq!(state.remaining(), most);
                prop_assert!(!text.contains(" in ") || text.contains(" in this window"), "{}", text);
            } else {
                prop_assert!(text.contains(&format!(": {} of {}", some(number), count(most))), "{}", text);
                prop_assert!(text.ends_with(&format!(" in {}.", length(state.reset_after().as_nanos()))), "{}", text);
            }
        }
    }

    #[test]
    fn durations_are_in_a_readable_unit() {
        for (ms, expected) in [
            (1, "1 ms"),
            (1_999, "1,999 ms"),
            (2_000, "2 s"),
            (1_000, "1 s"),
            (3_333, "3.4 s"),
            (60_000, "1 min"),
            (90_000, "90 s"),
            (7_200_000, "2 h"),
            (86_400_000, "1 day"),
            (216_000_000, "2.5 days"),
        ] {
            assert_eq!(length(ms * 1_000_000), expected, "{ms} ms");
        }
    }
}
