//! Tests of the gRPC API by tonic's own client: responses, rejections, connections, and counts.

pub(crate) mod attacks;
mod batches;
mod checks;
mod connections;
mod envoy;
mod health;
mod rejections;
mod reservations;
mod spans;
mod streams;
pub(crate) mod support;

/// A policy of 100 requests a minute for each user.
const HUNDRED: &str = r#"
    [domains.default]
    defaults = { user = "free" }
    [[domains.default.tiers]]
    id = "free"
    limits = [{ id = "minute", algorithm = "fixed_window", limit = 100, period = "1m" }]
"#;
