//! Response headers of a decision, in the family that its domain sets. They are names and values without types of a framework.

use std::{
    fmt::{self, Write},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tidegate::{
    Decision, Retry,
    policy::{Headers, Reset, ResponseSettings},
};

#[cfg(feature = "guard")]
use crate::request_head::ResponseHeaders;

/// `X-RateLimit-Limit`.
pub const LIMIT: &str = "x-ratelimit-limit";
/// `X-RateLimit-Remaining`.
pub const REMAINING: &str = "x-ratelimit-remaining";
/// `X-RateLimit-Reset`.
pub const RESET: &str = "x-ratelimit-reset";
/// `RateLimit` of the IETF draft.
pub const IETF: &str = "ratelimit";
/// `RateLimit-Policy` of the IETF draft.
pub const IETF_POLICY: &str = "ratelimit-policy";
/// `Retry-After`.
pub const RETRY_AFTER: &str = "retry-after";

/// The largest number of headers of a family for one decision.
const NUMBERS_MAX: usize = 3;
/// The largest number of headers for one decision: those of its family, and `Retry-After`.
pub const COUNT_MAX: usize = NUMBERS_MAX + 1;

/// The headers of all families.
pub const NUMBERS: [&str; 5] = [LIMIT, REMAINING, RESET, IETF, IETF_POLICY];

/// The largest whole number of a structured field (RFC 9651).
const INTEGER_MAX: u64 = 999_999_999_999_999;
/// `Retry-After` exceeds the wait by up to one part in this many.
const JITTER_PART: u64 = 10;

/// The value of a header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A number, written in digits.
    Number(u64),
    /// A text of printable ASCII.
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Returns the headers of [`each`] as text.
#[must_use]
pub fn of(decision: &Decision<'_>, settings: ResponseSettings) -> Vec<(&'static str, String)> {
    each(decision, settings).map(|(name, value)| (name, value.to_string())).collect()
}

/// Returns the headers of a decision: the numbers if a limit applied, and `Retry-After` if the request was denied for a time. Names
/// are in lower case.
///
/// `Retry-After` is in whole seconds: the wait rounded up, and randomly up to a tenth more, never less. So clients that are denied
/// together for ten seconds or more do not return together.
///
/// The iterator has at most [`COUNT_MAX`] items.
pub fn each(decision: &Decision<'_>, settings: ResponseSettings) -> impl Iterator<Item = (&'static str, Value)> {
    let wait = match decision.retry() {
        Retry::After(wait) => Some(retry_after(wait, fastrand::u32(..))),
        Retry::Now | Retry::Never => None,
    };
    let numbers = match settings.headers {
        Headers::XRatelimit => x_ratelimit(decision, settings.reset),
        Headers::Ietf => ietf(decision, wait),
        // As for headers of a kind that is newer than this code.
        Headers::None | _ => [const { None }; NUMBERS_MAX],
    };
    numbers.into_iter().flatten().chain(wait.map(|wait| (RETRY_AFTER, Value::Number(wait))))
}

/// Adds the headers of a decision to a response of the service, unless an inner guard has added its own.
#[cfg(feature = "guard")]
pub(crate) fn add(response: &mut impl ResponseHeaders, headers: Vec<(&'static str, String)>) {
    if !NUMBERS.iter().any(|name| response.has(name)) {
        for (name, value) in headers {
            response.add(name, value);
        }
    }
}

/// Returns the seconds of `Retry-After`: the wait rounded up, at least 1, since 0 would mean now; plus up to a tenth of the wait, in
/// whole seconds too, so nothing below ten. `random` is a random number.
#[must_use]
pub fn retry_after(wait: Duration, random: u32) -> u64 {
    let most = u128::from(wait.as_secs() / JITTER_PART);
    let jitter = ((most + 1) * u128::from(random)) >> u32::BITS;
    seconds_rounded_up(wait).max(1).saturating_add(jitter as u64)
}

type Numbers = [Option<(&'static str, Value)>; NUMBERS_MAX];

fn x_ratelimit(decision: &Decision<'_>, reset: Reset) -> Numbers {
    let reset = match reset {
        Reset::Epoch => decision.reset_at().map(since_epoch),
        Reset::Delta | _ => decision.reset_after(),
    };
    [(LIMIT, decision.limit()), (REMAINING, decision.remaining()), (RESET, reset.map(seconds_rounded_up))]
        .map(|(name, number)| Some((name, Value::Number(number?))))
}

/// Returns `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-10, for the limit that decided.
fn ietf(decision: &Decision<'_>, wait: Option<u64>) -> Numbers {
    let (Some(id), Some(limit), Some(remaining)) = (decision.limit_id(), decision.limit(), decision.remaining()) else {
        return [const { None }; NUMBERS_MAX];
    };
    let name = quoted(id);
    let whole = |number: u64| number.min(INTEGER_MAX);
    let period = decision.period().map(seconds_rounded_up).filter(|&seconds| seconds > 0);
    let window = period.map_or(String::new(), |seconds| format!(";w={}", whole(seconds)));
    // `t` must not be longer than `Retry-After`.
    let until = wait.or(decision.reset_after().map(seconds_rounded_up)).unwrap_or_default();
    let policy = format!("{name};q={}{window}", whole(limit));
    let left = format!("{name};r={};t={}", whole(remaining), whole(until));
    [Some((IETF_POLICY, Value::Text(policy))), Some((IETF, Value::Text(left))), None]
}

/// Returns a string of a structured field, which is printable ASCII; other bytes become their numbers in hexadecimal digits.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' => quoted.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(quoted, "%{byte:02X}")),
        }
    }
    quoted + "\""
}

/// Returns the time since the Unix epoch.
fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn seconds_rounded_up(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;
    use tidegate::{Engine, Identity, Request, Snapshot, clock::ManualClock, formats::Format, time::Timestamp};

    use super::*;

    proptest! {
        #[test]
        fn retry_after_is_never_shorter_and_at_most_a_tenth_longer_than_the_wait(ns in 1_u64.., random: u32) {
            let seconds = u128::from(retry_after(Duration::from_nanos(ns), random));
            let ns = u128::from(ns);
            prop_assert!(seconds >= ns.div_ceil(1_000_000_000));
            prop_assert!(seconds <= (ns * 11).div_ceil(10_000_000_000), "{seconds}");
            prop_assert_eq!(u128::from(retry_after(Duration::from_nanos(ns as u64), 0)), ns.div_ceil(1_000_000_000));
        }
    }

    /// Returns the headers of each of `times` denials by a window that has `seconds` left.
    fn denials(seconds: u64, settings: &str, times: usize) -> Vec<Vec<(&'static str, String)>> {
        let clock = ManualClock::at(Timestamp::from_nanos(
            1_700_000_000_000_000_000 / (seconds * 1_000_000_000) * (seconds * 1_000_000_000),
        ));
        let engine = Engine::for_simulation(100, clock, 7);
        let policy = format!(
            r#"
            [domains.default]
            defaults = {{ user = "free" }}
            {settings}
            [[domains.default.tiers]]
            id = "free"
            limits = [{{ id = "own", algorithm = "fixed_window", limit = 0, period = "{seconds}s" }}]
            [[domains.default.clients]]
            kind = "user"
            value = "ada"
            override = {{ limits = [{{ id = "own", algorithm = "fixed_window", limit = 1, period = "{seconds}s" }}] }}
            "#
        );
        let _ = engine.publish(Snapshot::parse(&policy, Format::Toml).expect("a right policy")).expect("room");
        let who = [Identity::new("user", "ada").expect("valid")];
        let request = Request::new(&who).expect("valid");
        let _ = engine.check(&request);
        (0..times).map(|_| of(&engine.check(&request), engine.response_settings("default"))).collect()
    }

    #[test]
    fn clients_that_are_denied_together_get_different_waits() {
        let denials = denials(1_000, "", 200);
        let waits: HashSet<u64> = denials
            .iter()
            .map(|headers| {
                headers.iter().find(|(name, _)| *name == RETRY_AFTER).expect("there").1.parse().expect("seconds")
            })
            .collect();
        assert!(waits.iter().all(|wait| (1_000..=1_100).contains(wait)), "{waits:?}");
        assert!(waits.len() > 20, "{waits:?}");
    }

    #[test]
    fn t_of_the_draft_equals_retry_after() {
        for headers in denials(1_000, "headers = \"ietf\"", 50) {
            let [(IETF_POLICY, _), (IETF, limit), (RETRY_AFTER, wait)] = &headers[..] else { panic!("{headers:?}") };
            assert!(limit.ends_with(&format!(";t={wait}")), "{headers:?}");
        }
    }

    #[test]
    fn every_name_of_a_family_is_used() {
        let headers = ["", "headers = \"ietf\""].map(|settings| denials(10, settings, 1).remove(0));
        let names: HashSet<&str> = headers.iter().flatten().map(|(name, _)| *name).collect();
        assert_eq!(names, NUMBERS.into_iter().chain([RETRY_AFTER]).collect());
    }
}
