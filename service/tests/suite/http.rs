//! The HTTP door, over real sockets: what is answered, what is refused, how connections are treated, what is counted.

mod attacks;
mod authorize;
mod batches;
mod browsers;
mod checks;
mod connections;
mod counts;
pub(crate) mod failures;
mod headers;
mod listening;
mod refusals;
mod reservations;
mod retries;
mod spans;
pub(crate) mod support;

/// Every user gets 100 a minute.
pub(crate) const HUNDRED: &str = r#"
    [domains.default]
    defaults = { user = "free" }
    [[domains.default.tiers]]
    id = "free"
    limits = [{ id = "minute", algorithm = "fixed_window", limit = 100, period = "1m" }]
"#;

/// A check of one user at the usual cost.
pub(crate) fn user(value: &str) -> String {
    format!(r#"{{"identities":[{{"kind":"user","value":"{value}"}}]}}"#)
}
