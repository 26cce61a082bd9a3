//! Deadline of tests that wait for an event.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Far longer than any event takes, also on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_mins(3);

/// Time at which a test stops waiting for an event: three minutes after the deadline was created.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// Returns a deadline that begins now.
    #[must_use]
    pub fn new() -> Self {
        Self(now() + LIMIT)
    }

    /// Returns whether the test must stop waiting.
    #[must_use]
    pub fn has_passed(self) -> bool {
        now() >= self.0
    }

    /// Waits until `is_so` returns true, and lets other threads run meanwhile.
    ///
    /// # Panics
    ///
    /// The deadline passes first; the message names `event`.
    pub fn wait_until(self, event: &str, mut is_so: impl FnMut() -> bool) {
        while !is_so() {
            assert!(!self.has_passed(), "waited for {event} until the deadline");
            thread::yield_now();
        }
    }
}

impl Default for Deadline {
    fn default() -> Self {
        Self::new()
    }
}

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "tests give up after a period of real time")]
    Instant::now()
}
