//! Limits tries to sign in, and tokens that are none: by our own engine, by network, by address, and by address and name.
//! Where a limit has its share of the table in live keys, newcomers get one of its eight overflow buckets or are denied: none
//! comes through uncounted, and a key that has a place keeps it.

use std::time::Duration;

use tidegate::{Engine, Identity, Request, Retry, Snapshot, formats::Format};

use crate::{addresses::network, problem::Problem};

/// Networks, addresses and names that count just now: a key does for a minute at most, mostly for some seconds.
const KEYS: usize = 100_000;

const SIGN_IN: &str = "/sign-in";
const SECRET: &str = "/secret";

/// `address` is an IPv4 address or 64 bits of IPv6; `network`, of which who has one has 65,536 of these, 48 bits of IPv6.
const POLICY: &str = r#"
[domains.default]
[[domains.default.rules]]
id = "name"
endpoint = "/sign-in"
per = ["address", "name"]
limits = [{ id = "tries", algorithm = "token_bucket", limit = 10, period = "1m" }]
[[domains.default.rules]]
id = "address"
endpoint = "/sign-in"
per = "address"
limits = [{ id = "tries", algorithm = "token_bucket", limit = 60, period = "1m" }]
[[domains.default.rules]]
id = "network"
endpoint = "/sign-in"
per = "network"
limits = [{ id = "tries", algorithm = "token_bucket", limit = 300, period = "1m" }]
[[domains.default.rules]]
id = "secrets-of-address"
endpoint = "/secret"
per = "address"
limits = [{ id = "tries", algorithm = "token_bucket", limit = 1_200, period = "1m" }]
[[domains.default.rules]]
id = "secrets-of-network"
endpoint = "/secret"
per = "network"
limits = [{ id = "tries", algorithm = "token_bucket", limit = 6_000, period = "1m" }]
"#;

/// Tries.
#[derive(Debug)]
pub(crate) struct Tries(Engine);

impl Tries {
    pub(crate) fn new() -> Self {
        Self::with_keys(KEYS)
    }

    fn with_keys(keys: usize) -> Self {
        let engine = Engine::with_max_keys(keys);
        if let Ok(policy) = Snapshot::parse(POLICY, Format::Toml) {
            // A handful of limits always has room.
            let _ = engine.publish(policy);
        }
        Self(engine)
    }

    /// Counts a try to sign in, and answers how many more there may be at once: the same for a name that nobody has. An error
    /// says when there may be another.
    pub(crate) fn count(&self, address: &str, name: &str) -> Result<u64, Problem> {
        self.check(SIGN_IN, address, Some(name))
    }

    /// Counts a token or a cookie that is none. One that is good is never counted, so whoever has one comes in from the same
    /// address all the same.
    pub(crate) fn count_secret(&self, address: &str) -> Result<(), Problem> {
        self.check(SECRET, address, None).map(drop)
    }

    fn check(&self, endpoint: &str, from: &str, name: Option<&str>) -> Result<u64, Problem> {
        let (address, wider) = (network(from, 64), network(from, 48));
        let counted = |kind, value| Identity::new(kind, value).ok();
        // A name that is too long for anybody is counted by its address alone; of IPv4 no network is.
        let wider = (wider != address).then(|| counted("network", &wider));
        let who = [counted("address", &address), wider.flatten(), name.and_then(|name| counted("name", name))];
        let who: Vec<_> = who.into_iter().flatten().collect();
        let Ok(request) = Request::new(&who).and_then(|request| request.endpoint(endpoint)) else { return Ok(0) };
        let decision = self.0.check(&request);
        match decision.retry() {
            Retry::Now => Ok(decision.remaining().unwrap_or(0)),
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
        assert!((0..10).all(|made| matches!(tries.count("192.0.2.1", "ana"), Ok(left) if left == 9 - made)));
        assert_eq!(allowed("192.0.2.1", "ana"), 0);
        assert_eq!(allowed("192.0.2.1", "ben"), 10, "another name");
        assert_eq!(allowed("192.0.2.2", "ana"), 10, "another address");
        assert_eq!(allowed("192.0.2.1", &"x".repeat(5_000)), 40, "what is left of the address");
        assert!(matches!(tries.count("192.0.2.1", "carl"), Err(Problem::TooMany { retry_after_s: 1 })));
        assert_eq!(allowed("2001:db8::1", "ana"), 10);
        assert_eq!(allowed("2001:db8::2", "ana"), 0, "of the same network");
        assert_eq!(allowed("2001:db8:0:1::2", "ana"), 10, "of another");
        assert_eq!(allowed("::ffff:192.0.2.1", "carl"), 0, "the same as before");
    }

    /// Whoever has a network of 48 bits has so many addresses that they would fill the table.
    #[test]
    fn a_wide_network_tries_no_more_than_its_limit_and_takes_no_room_beyond() {
        let tries = Tries::new();
        let of = |n: u32| format!("2001:db8:7:{n:x}::1");
        let allowed = (0..60_000).filter(|n| tries.count(&of(*n), "ana").is_ok()).count();
        assert!((300..400).contains(&allowed), "{allowed}");
        assert_eq!(tries.0.overflow_charges(), 0);
        assert!(tries.count("2001:db8:8::1", "ana").is_ok() && tries.count("192.0.2.1", "ana").is_ok());
    }

    #[test]
    fn where_the_table_is_full_nobody_passes_uncounted_and_who_has_a_place_keeps_it() {
        let tries = Tries::with_keys(1_000);
        assert_eq!((0..5).filter(|_| tries.count("203.0.113.1", "ana").is_ok()).count(), 5);
        let of = |n: u32| std::net::Ipv4Addr::from_bits((10 << 24) + n).to_string();
        let mut strangers = 0..;
        while tries.0.overflow_charges() < 50 {
            let stranger = of(strangers.next().expect("another"));
            // Often enough that it counts for a minute.
            for _ in 0..10 {
                let _ = tries.count(&stranger, "ana");
            }
        }
        assert!((0..100).filter(|_| tries.count("203.0.113.1", "ana").is_ok()).count() >= 5);
        let newcomers = (0..2_000).filter(|n| tries.count(&of(15_000_000 + n), "ana").is_ok()).count();
        assert!(newcomers < 1_000, "{newcomers}");
    }

    /// Whose token ended is not kept from signing in, nor is his neighbour.
    #[test]
    fn secrets_that_are_none_are_counted_apart() {
        let tries = Tries::new();
        let allowed = (0..4_000).filter(|_| tries.count_secret("192.0.2.1").is_ok()).count();
        assert!((1_200..1_400).contains(&allowed), "{allowed}");
        assert!(tries.count_secret("192.0.2.2").is_ok() && tries.count("192.0.2.1", "ana").is_ok());
    }
}
