//! How often somebody may try to sign in: limited by our own engine, by address, and by address and name.

use std::time::Duration;

use tidegate::{Engine, Identity, Request, Retry, Snapshot, formats::Format};

use crate::problem::Problem;

/// Addresses and names together; a crowd beyond that shares.
const KEYS: usize = 10_000;

const POLICY: &str = r#"
[domains.default]
[[domains.default.rules]]
id = "name"
endpoint = "*"
per = ["address", "name"]
limits = [{ id = "tries", algorithm = "token_bucket", limit = 10, period = "1m" }]
[[domains.default.rules]]
id = "address"
endpoint = "*"
per = "address"
limits = [{ id = "tries", algorithm = "token_bucket", limit = 60, period = "1m" }]
"#;

/// Tries to sign in.
#[derive(Debug)]
pub(crate) struct Tries(Engine);

impl Tries {
    pub(crate) fn new() -> Self {
        let engine = Engine::with_max_keys(KEYS);
        if let Ok(policy) = Snapshot::parse(POLICY, Format::Toml) {
            // A handful of limits always has room.
            let _ = engine.publish(policy);
        }
        Self(engine)
    }

    /// Counts a try; an error says when there may be another.
    pub(crate) fn count(&self, address: &str, name: &str) -> Result<(), Problem> {
        let counted = |kind, value| Identity::new(kind, value).ok();
        // A name that is too long for anybody is counted by its address alone.
        let who: Vec<_> = [counted("address", address), counted("name", name)].into_iter().flatten().collect();
        let Ok(request) = Request::new(&who) else { return Ok(()) };
        match self.0.check(&request).retry() {
            Retry::Now => Ok(()),
            Retry::After(wait) => {
                Err(Problem::TooMany { retry_after_s: (wait + Duration::from_millis(999)).as_secs() })
            }
            Retry::Never => Err(Problem::TooMany { retry_after_s: 60 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_limited_by_address_and_name() {
        let tries = Tries::new();
        let allowed = |address: &str, name: &str| (0..100).filter(|_| tries.count(address, name).is_ok()).count();
        assert_eq!(allowed("192.0.2.1", "ana"), 10);
        assert_eq!(allowed("192.0.2.1", "ben"), 10, "another name");
        assert_eq!(allowed("192.0.2.2", "ana"), 10, "another address");
        assert_eq!(allowed("192.0.2.1", &"x".repeat(5_000)), 40, "what is left of the address");
        assert!(matches!(tries.count("192.0.2.1", "carl"), Err(Problem::TooMany { retry_after_s: 1 })));
    }
}
