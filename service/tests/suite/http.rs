//! Tests of the HTTP API over real sockets: responses, rejections, connections, and counts.

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
mod rejections;
mod request_ids;
mod reservations;
mod spans;
pub(crate) mod support;

/// A policy of 100 requests a minute for each user.
pub(crate) const HUNDRED: &str = r#"
    [domains.default]
    defaults = { user = "free" }
    [[domains.default.tiers]]
    id = "free"
    limits = [{ id = "minute", algorithm = "fixed_window", limit = 100, period = "1m" }]
"#;

/// Returns a check of one user at the usual cost.
pub(crate) fn user(value: &str) -> String {
    format!(r#"{{"identities":[{{"kind":"user","value":"{value}"}}]}}"#)
}
