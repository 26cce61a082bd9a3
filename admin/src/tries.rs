//! How often somebody may try to sign in: limited by our own engine, by address, and by address and name.

use std::{
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

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
        let network = network(address);
        let who: Vec<_> = [counted("address", &network), counted("name", name)].into_iter().flatten().collect();
        let Ok(request) = Request::new(&who) else { return Ok(()) };
        match self.0.check(&request).retry() {
            Retry::Now => Ok(()),
            Retry::After(wait) => Err(Problem::TooMany { retry_after_s: whole_seconds(wait) }),
            Retry::Never => Err(Problem::TooMany { retry_after_s: 60 }),
        }
    }
}

/// Rounded up, and never none: who comes at once would come too early.
fn whole_seconds(wait: Duration) -> u64 {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    seconds.max(1)
}

/// Whom an address is counted as: of IPv6 its network of 64 bits, since whoever has one has them all.
fn network(address: &str) -> String {
    match address.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V6(address)) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).to_string(),
        Ok(address) => address.to_string(),
        Err(_) => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_in_whole_seconds() {
        for (ns, seconds) in [(0, 1), (1, 1), (999_999, 1), (1_000_000_000, 1), (1_000_000_001, 2), (6_000_000_000, 6)]
        {
            assert_eq!(whole_seconds(Duration::from_nanos(ns)), seconds, "{ns}");
        }
    }

    #[test]
    fn tries_are_limited_by_address_and_name() {
        let tries = Tries::new();
        let allowed = |address: &str, name: &str| (0..100).filter(|_| tries.count(address, name).is_ok()).count();
        assert_eq!(allowed("192.0.2.1", "ana"), 10);
        assert_eq!(allowed("192.0.2.1", "ben"), 10, "another name");
        assert_eq!(allowed("192.0.2.2", "ana"), 10, "another address");
        assert_eq!(allowed("192.0.2.1", &"x".repeat(5_000)), 40, "what is left of the address");
        assert!(matches!(tries.count("192.0.2.1", "carl"), Err(Problem::TooMany { retry_after_s: 1 })));
        assert_eq!(allowed("2001:db8::1", "ana"), 10);
        assert_eq!(allowed("2001:db8::2", "ana"), 0, "of the same network");
        assert_eq!(allowed("2001:db8:0:1::2", "ana"), 10, "of another");
        assert_eq!(allowed("::ffff:192.0.2.1", "carl"), 0, "the same as before");
    }
}
