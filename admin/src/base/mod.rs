//! Small general parts: time, secrets, addresses, callers, the event log, and what can go wrong at the start.

pub(crate) mod addresses;
pub(crate) mod caller;
pub(crate) mod event_log;
pub(crate) mod periods;
pub(crate) mod secrets;
pub(crate) mod sha256;
pub(crate) mod startup_error;
pub(crate) mod user_turns;
