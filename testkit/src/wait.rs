//! Waiting for an event, with a limit that no load reaches.

use std::{
    thread,
    time::{Duration, Instant},
};

/// The limit of a wait: a minute. A test that is right never comes near it, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Calls `ask` until it returns a value.
///
/// # Panics
///
/// There is none after [`PATIENCE`]; the message says `what`.
#[expect(clippy::disallowed_methods, reason = "the limit of a wait is real time")]
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "waited a minute in vain: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until `is_so` returns true.
///
/// # Panics
///
/// It does not within [`PATIENCE`]; the message says `what`.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(what, || is_so().then_some(()));
}
