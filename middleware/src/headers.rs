//! Headers that tell a decision to clients, in the family that the domain asks for. Names and values alone: frameworks have
//! types of their own for them.

use std::{
    fmt::{self, Write},
    time::Duration,
};

use tidegate::{
    Decision, Retry,
    policy::{DoorSettings, Headers, Reset},
};

#[cfg(feature = "guard")]
use crate::request_head::AnswerHeaders;

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

/// The most headers of a family that tell one decision.
const NUMBERS_MAX: usize = 3;
/// The most headers that tell one decision: those of its family, and `Retry-After`.
pub const COUNT_MAX: usize = NUMBERS_MAX + 1;

/// Those of the families.
pub const NUMBERS: [&str; 5] = [LIMIT, REMAINING, RESET, IETF, IETF_POLICY];

/// The largest whole number of a structured field (RFC 9651).
const INTEGER_MAX: u64 = 999_999_999_999_999;
/// `Retry-After` says up to one part in so many more than the wait.
const JITTER_PART: u64 = 10;

/// What a header says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// As digits.
    Number(u64),
    /// Printable ASCII.
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

/// What there is to tell, as text: see [`each`].
#[must_use]
pub fn of(decision: &Decision<'_>, door: DoorSettings) -> Vec<(&'static str, String)> {
    each(decision, door).map(|(name, value)| (name, value.to_string())).collect()
}

/// What there is to tell: the numbers where a limit applied, and `Retry-After` on a denial that ends. Names are of lower
/// case.
///
/// `Retry-After` is in whole seconds, the wait rounded up, and by chance up to a tenth later, so that those who were denied
/// together for ten seconds or more do not come back together; never earlier.
///
/// It yields [`COUNT_MAX`] at most.
pub fn each(decision: &Decision<'_>, door: DoorSettings) -> impl Iterator<Item = (&'static str, Value)> {
    let wait = match decision.retry() {
        Retry::After(wait) => Some(retry_after(wait, fastrand::u32(..))),
        Retry::Now | Retry::Never => None,
    };
    let numbers = match door.headers {
        Headers::XRatelimit => x_ratelimit(decision, door.reset),
        Headers::Ietf => ietf(decision, wait),
        Headers::None => [const { None }; NUMBERS_MAX],
    };
    numbers.into_iter().flatten().chain(wait.map(|wait| (RETRY_AFTER, Value::Number(wait))))
}

/// Adds those of a decision to an answer of the service, unless an inner guard told its own.
#[cfg(feature = "guard")]
pub(crate) fn add(answer: &mut impl AnswerHeaders, told: Vec<(&'static str, String)>) {
    if !NUMBERS.iter().any(|name| answer.has(name)) {
        for (name, value) in told {
            answer.add(name, value);
        }
    }
}

/// Whole seconds for `Retry-After`: the wait rounded up, at least 1, since 0 would say: now; and up to a tenth of that more, in
/// whole seconds too, so nothing below ten. `dice` is a random number.
#[must_use]
pub fn retry_after(wait: Duration, dice: u32) -> u64 {
    let most = u128::from(wait.as_secs() / JITTER_PART);
    let jitter = ((most + 1) * u128::from(dice)) >> u32::BITS;
    seconds_rounded_up(wait).max(1).saturating_add(jitter as u64)
}

type Numbers = [Option<(&'static str, Value)>; NUMBERS_MAX];

fn x_ratelimit(decision: &Decision<'_>, reset: Reset) -> Numbers {
    let reset = match reset {
        Reset::Epoch => decision.reset_at(),
        Reset::Delta => decision.reset_after(),
    };
    [(LIMIT, decision.limit()), (REMAINING, decision.remaining()), (RESET, reset.map(seconds_rounded_up))]
        .map(|(name, number)| Some((name, Value::Number(number?))))
}

/// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-10, with the limit that decided.
fn ietf(decision: &Decision<'_>, wait: Option<u64>) -> Numbers {
    let (Some(id), Some(limit), Some(remaining)) = (decision.limit_id(), decision.limit(), decision.remaining()) else {
        return [const { None }; NUMBERS_MAX];
    };
    let name = quoted(id);
    let whole = |number: u64| number.min(INTEGER_MAX);
    let period = decision.period().map(seconds_rounded_up).filter(|&seconds| seconds > 0);
    let window = period.map_or(String::new(), |seconds| format!(";w={}", whole(seconds)));
    // A client that is told to come again must not read that it has to wait longer.
    let until = wait.or(decision.reset_after().map(seconds_rounded_up)).unwrap_or_default();
    let policy = format!("{name};q={}{window}", whole(limit));
    let left = format!("{name};r={};t={}", whole(remaining), whole(until));
    [Some((IETF_POLICY, Value::Text(policy))), Some((IETF, Value::Text(left))), None]
}

/// As a string of a structured field, which is printable ASCII; of other bytes, their numbers.
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

fn seconds_rounded_up(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;
    use tidegate::{Engine, Identity, Request, Snapshot, clock::ManualClock, formats::Format};

    use super::*;

    proptest! {
        #[test]
        fn a_wait_is_never_cut_short_and_grows_by_a_tenth_at_most(ns in 1_u64.., dice: u32) {
            let told = u128::from(retry_after(Duration::from_nanos(ns), dice));
            let ns = u128::from(ns);
            prop_assert!(told >= ns.div_ceil(1_000_000_000));
            prop_assert!(told <= (ns * 11).div_ceil(10_000_000_000), "{told}");
            prop_assert_eq!(u128::from(retry_after(Duration::from_nanos(ns as u64), 0)), ns.div_ceil(1_000_000_000));
        }
    }

    /// What the headers of denials say, of a window that has `seconds` left.
    fn denials(seconds: u64, settings: &str, times: usize) -> Vec<Vec<(&'static str, String)>> {
        let clock = ManualClock::at(1_700_000_000_000_000_000 / (seconds * 1_000_000_000) * (seconds * 1_000_000_000));
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
        (0..times).map(|_| of(&engine.check(&request), engine.door_settings("default"))).collect()
    }

    #[test]
    fn those_who_were_denied_together_are_told_different_times() {
        let told = denials(1_000, "", 200);
        let waits: HashSet<u64> = told
            .iter()
            .map(|headers| {
                headers.iter().find(|(name, _)| *name == RETRY_AFTER).expect("there").1.parse().expect("seconds")
            })
            .collect();
        assert!(waits.iter().all(|wait| (1_000..=1_100).contains(wait)), "{waits:?}");
        assert!(waits.len() > 20, "{waits:?}");
    }

    #[test]
    fn t_of_the_draft_is_what_retry_after_says() {
        for headers in denials(1_000, "headers = \"ietf\"", 50) {
            let [(IETF_POLICY, _), (IETF, limit), (RETRY_AFTER, wait)] = &headers[..] else { panic!("{headers:?}") };
            assert!(limit.ends_with(&format!(";t={wait}")), "{headers:?}");
        }
    }

    #[test]
    fn names_are_those_that_are_told() {
        let told = ["", "headers = \"ietf\""].map(|settings| denials(10, settings, 1).remove(0));
        let told: HashSet<&str> = told.iter().flatten().map(|(name, _)| *name).collect();
        assert_eq!(told, NUMBERS.into_iter().chain([RETRY_AFTER]).collect());
    }
}
