//! The door of the Redis protocol, over real sockets: what is answered, what is refused, how connections are treated.

mod attacks;
mod commands;
mod connections;
mod failures;
mod listening;
pub(crate) mod support;

/// Every user gets 100 a minute.
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
