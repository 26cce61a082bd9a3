//! Tests of the RESP listener over real sockets: replies, rejections, and connections.

mod attacks;
mod commands;
mod connections;
mod failures;
mod listening;
pub(crate) mod support;

/// A policy of 100 requests a minute for each user.
const HUNDRED: &str = r#"
    [domains.default]
    defaults = { user = "free" }
    [[domains.default.tiers]]
    id = "free"
    limits = [{ id = "minute", algorithm = "fixed_window", limit = 100, period = "1m" }]
    [[domains.default.rules]]
    id = "search"
    endpoint = "/search"
    per = "ip"
    limits = [{ id = "search", algorithm = "token_bucket", limit = 2, period = "1m" }]
"#;
