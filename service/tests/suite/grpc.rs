//! The gRPC door, asked by tonic's own client: what is answered, what is refused, how connections are treated, what is counted.

pub(crate) mod attacks;
mod batches;
mod checks;
mod connections;
mod envoy;
mod health;
mod refusals;
mod reservations;
mod spans;
mod streams;
pub(crate) mod support;

/// Every user gets 100 a minute.
const HUNDRED: &str = r#"
    [domains.default]
    defaults = { user = "free" }
    [[domains.default.tiers]]
    id = "free"
    limits = [{ id = "minute", algorithm = "fixed_window", limit = 100, period = "1m" }]
"#;
