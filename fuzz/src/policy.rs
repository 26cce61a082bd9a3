//! Reads any text as a policy: it is valid and decides requests, or is rejected with its problems.

use tidegate::{
    Engine, Identity, Request, Snapshot,
    clock::ManualClock,
    formats::Format,
    policy::Policy,
    time::{SECOND_NS, Timestamp},
};

/// Reads `data` as a document: the first byte chooses the format.
///
/// # Panics
///
/// If a property does not hold.
pub fn policy(data: &[u8]) {
    let Some((format, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let format = [Format::Toml, Format::Yaml, Format::Json][usize::from(*format) % 3];
    match Snapshot::parse(text, format) {
        Err(problems) => {
            // A single carriage return ends a line in YAML.
            let lines = text.split(['\n', '\r']).count();
            assert!(problems.iter().next().is_some(), "rejected without a problem");
            for problem in problems.iter() {
                assert!(!problem.message.is_empty(), "a problem without a message: {problem:?}");
                assert!(problem.line.is_none_or(|line| line <= lines), "{problem:?} of {lines} lines");
            }
        }
        Ok(snapshot) => {
            assert_round_trip(text, format);
            assert_decides(snapshot);
        }
    }
}

/// Asserts that a policy is the same after it is written and read in each format.
fn assert_round_trip(text: &str, format: Format) {
    let policy = Policy::parse(text, format).expect("it was read before");
    let stored = serde_json::to_string(&policy).expect("a policy can be stored");
    assert_eq!(Policy::parse(&stored, Format::Json).as_ref(), Ok(&policy));
    for format in [Format::Toml, Format::Yaml, Format::Json] {
        let written = policy.write(format).expect("a policy can be written");
        let read = Policy::parse(&written, format).expect("what was written can be read");
        assert_eq!(read, policy);
        Snapshot::compile(&read).expect("it compiled before");
    }
}

/// Asserts that an engine decides by the policy, and that a peek agrees with the check.
fn assert_decides(snapshot: Snapshot) {
    let engine = Engine::for_simulation(64, ManualClock::at(Timestamp::from_nanos(1_790_035_200 * SECOND_NS)), 1);
    let domains = ["default", "payments"];
    engine.publish(snapshot).expect("an engine without limits has room");
    for (kind, value) in [("user", "ada"), ("ip", "192.0.2.7"), ("ip", "2001:db8::1"), ("key", "a/b")] {
        let who = [Identity::new(kind, value).expect("a kind and a value")];
        for (endpoint, domain) in [("/users/7/", domains[0]), ("/api/v1/search?q=1", domains[1]), ("", domains[0])] {
            let request = Request::new(&who).and_then(|request| request.endpoint(endpoint)).expect("a request");
            let request = request.domain(domain).method("GET");
            let (peeked, checked) = (engine.peek(&request), engine.check(&request));
            assert_eq!((peeked.is_allowed(), peeked.retry()), (checked.is_allowed(), checked.retry()));
            assert!(checked.remaining() <= checked.limit(), "{checked:?}");
        }
    }
}
