//! How often a caller may try to sign in, or show a token that is none: limited by our own engines. Strangers are limited by
//! network, by address, by address and name, and by name. Where a limit has its share of their table in keys that count,
//! newcomers get one of its eight overflow buckets or are denied: none comes through uncounted, and a key that has a place keeps
//! it. Browsers that are known, and people who are signed in, are counted apart, each by itself; those of one name also
//! together, so that a user with many browsers or sessions takes no more of what hashes passwords than their share.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tidegate::{Engine, Identity, Request, Retry, Snapshot, formats::Format};

use crate::{base::addresses::network, domain::error::Problem};

/// Networks, addresses and names that count just now: a try does for some seconds, a name that is tried often for ten minutes.
const KEYS: usize = 100_000;
/// Known browsers, sessions, and names with the right password that count just now: a caller without a password makes none.
const KNOWN_KEYS: usize = 10_000;

const SIGN_IN: &str = "/sign-in";
const SECRET: &str = "/secret";
const KNOWN: &str = "/known";
const CODE: &str = "/code";

/// `address` is an IPv4 address or 64 bits of IPv6; `network`, of which who has one has 65,536 of these, 48 bits of IPv6.
const STRANGERS: &str = r#"
[domains.default]
[[domains.default.rules]]
id = "name"
endpoint = "/sign-in"
per = ["address", "name"]
limits = [{ id = "tries", algorithm = "token_bucket", limit = 10, period = "1m" }]
[[domains.default.rules]]
id = "everywhere"
endpoint = "/sign-in"
per = "name"
limits = [{ id = "tries", algorithm = "token_bucket", limit = 30, period = "10m" }]
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

/// Full name of the limit of tries under a name.
const BY_NAME: &str = "default/rule:everywhere/tries";

const OF_KNOWN: &str = r#"
[domains.default]
[[domains.default.rules]]
id = "known"
endpoint = "/known"
per = "caller"
limits = [{ id = "tries", algorithm = "token_bucket", limit = 10, period = "1m" }]
[[domains.default.rules]]
id = "known-name"
endpoint = "/known"
per = "name"
limits = [{ id = "tries", algorithm = "token_bucket", limit = 30, period = "1m" }]
[[domains.default.rules]]
id = "code"
endpoint = "/code"
per = "caller"
limits = [{ id = "tries", algorithm = "token_bucket", limit = 10, period = "1h" }]
[[domains.default.rules]]
id = "code-name"
endpoint = "/code"
per = "name"
limits = [{ id = "tries", algorithm = "token_bucket", limit = 30, period = "1h" }]
"#;

/// Names of which it is remembered that a refusal was reported.
const REPORTED_MAX: usize = 1_000;
/// How long no other refusal of a name is reported, in seconds: until its bucket would be full again.
const REPORTED_FOR_S: i64 = 600;

/// Tries.
#[derive(Debug)]
pub(crate) struct Tries {
    strangers: Engine,
    /// An engine of its own, which strangers cannot fill.
    known: Engine,
    /// Names of which a refusal was reported, and until when no other is, in Unix seconds.
    reported: Mutex<HashMap<String, i64>>,
}

/// A try that is refused, and when the next may come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooManyTries {
    pub(crate) retry_after_s: u64,
    /// The name was tried too often, from all addresses together.
    pub(crate) is_by_name: bool,
}

impl From<TooManyTries> for Problem {
    fn from(TooManyTries { retry_after_s, .. }: TooManyTries) -> Self {
        Self::TooMany { retry_after_s }
    }
}

impl Tries {
    pub(crate) fn new() -> Self {
        Self::with_keys(KEYS)
    }

    fn with_keys(keys: usize) -> Self {
        let (strangers, known) = (engine(keys, STRANGERS), engine(KNOWN_KEYS, OF_KNOWN));
        Self { strangers, known, reported: Mutex::default() }
    }

    /// Counts a stranger's try to sign in, and answers how many more there may be at once: the same for a name without a user.
    pub(crate) fn count(&self, address: &str, name: &str) -> Result<u64, TooManyTries> {
        self.count_stranger(SIGN_IN, address, Some(name))
    }

    /// Counts a token or a cookie that is none. One that is good is never counted, so whoever has one comes in from the same
    /// address all the same.
    pub(crate) fn count_secret(&self, address: &str) -> Result<(), TooManyTries> {
        self.count_stranger(SECRET, address, None).map(drop)
    }

    /// Counts a password for a name from a caller, which is a browser that is known for it or a session of it, and answers how
    /// many more there may be at once.
    pub(crate) fn count_known(&self, name: &str, caller: &str) -> Result<u64, TooManyTries> {
        self.count_caller(KNOWN, name, caller)
    }

    /// Counts a code of a second factor after the right password for a name from a caller, which is a browser that is known for
    /// it, or the name itself for all strangers, and answers how many more there may be at once. There are a million codes, of
    /// which three are right at a time.
    pub(crate) fn count_code(&self, name: &str, caller: &str) -> Result<u64, TooManyTries> {
        self.count_caller(CODE, name, caller)
    }

    fn count_caller(&self, endpoint: &str, name: &str, caller: &str) -> Result<u64, TooManyTries> {
        let who = [Identity::new("caller", caller), Identity::new("name", name)];
        let who: Vec<_> = who.into_iter().flatten().collect();
        check(&self.known, endpoint, &who)
    }

    fn count_stranger(&self, endpoint: &str, from: &str, name: Option<&str>) -> Result<u64, TooManyTries> {
        let (address, wider) = (network(from, 64), network(from, 48));
        let counted = |kind, value| Identity::new(kind, value).ok();
        // A name that is too long for anybody is counted by its address alone; of IPv4 no network is.
        let wider = (wider != address).then(|| counted("network", &wider));
        let who = [counted("address", &address), wider.flatten(), name.and_then(|name| counted("name", name))];
        let who: Vec<_> = who.into_iter().flatten().collect();
        check(&self.strangers, endpoint, &who)
    }

    /// Returns whether to report this refusal of a try under a name: the first in a while, of so many names at a time.
    pub(crate) fn is_first_refusal(&self, name: &str, now: i64) -> bool {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.get(name).is_some_and(|until| now < *until) {
            return false;
        }
        if reported.len() >= REPORTED_MAX {
            reported.retain(|_, until| now < *until);
        }
        let has_room = reported.len() < REPORTED_MAX;
        if has_room {
            reported.insert(name.to_owned(), now + REPORTED_FOR_S);
        }
        has_room
    }
}

fn engine(keys: usize, policy: &str) -> Engine {
    let engine = Engine::with_max_keys(keys);
    if let Ok(policy) = Snapshot::parse(policy, Format::Toml) {
        // A handful of limits always has room.
        let _ = engine.publish(policy);
    }
    engine
}

fn check(engine: &Engine, endpoint: &str, who: &[Identity<'_>]) -> Result<u64, TooManyTries> {
    let Ok(request) = Request::new(who).and_then(|request| request.endpoint(endpoint)) else { return Ok(0) };
    let decision = engine.check(&request);
    let retry_after_s = match decision.retry() {
        Retry::Now => return Ok(decision.remaining().unwrap_or(0)),
        Retry::After(wait) => whole_seconds(wait),
        Retry::Never => 60,
    };
    Err(TooManyTries { retry_after_s, is_by_name: decision.limit_id() == Some(BY_NAME) })
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
        assert_eq!(tries.count("192.0.2.1", "carl"), Err(TooManyTries { retry_after_s: 1, is_by_name: false }));
        assert_eq!(allowed("2001:db8::1", "dora"), 10);
        assert_eq!(allowed("2001:db8::2", "dora"), 0, "of the same network");
        assert_eq!(allowed("2001:db8:0:1::2", "dora"), 10, "of another");
        assert_eq!(allowed("::ffff:192.0.2.1", "carl"), 0, "the same as before");
    }

    /// Whoever has a network of 48 bits has so many addresses that they would fill the table.
    #[test]
    fn a_wide_network_tries_no_more_than_its_limit_and_takes_no_room_beyond() {
        let tries = Tries::new();
        let of = |n: u32| format!("2001:db8:7:{n:x}::1");
        // Under names enough that none of them is tried too often.
        let name = |n: u32| format!("name-{}", n % 100);
        let allowed = (0..60_000).filter(|n| tries.count(&of(*n), &name(*n)).is_ok()).count();
        assert!((300..400).contains(&allowed), "{allowed}");
        assert_eq!(tries.strangers.overflow_charges(), 0);
        assert!(tries.count("2001:db8:8::1", "ana").is_ok() && tries.count("192.0.2.1", "ana").is_ok());
    }

    #[test]
    fn where_the_table_is_full_nobody_passes_uncounted_and_who_has_a_place_keeps_it() {
        let tries = Tries::with_keys(1_000);
        assert_eq!((0..5).filter(|_| tries.count("203.0.113.1", "ana").is_ok()).count(), 5);
        let of = |n: u32| std::net::Ipv4Addr::from_bits((10 << 24) + n).to_string();
        let mut strangers = 0..;
        while tries.strangers.overflow_charges() < 50 {
            // Each under a name of its own.
            let stranger = of(strangers.next().expect("another"));
            // Often enough that it counts for a minute.
            for _ in 0..10 {
                let _ = tries.count(&stranger, &stranger);
            }
        }
        assert!((0..100).filter(|_| tries.count("203.0.113.1", "ana").is_ok()).count() >= 5);
        let newcomer = |n: u32| of(15_000_000 + n);
        let newcomers = (0..2_000).filter(|n| tries.count(&newcomer(*n), &newcomer(*n)).is_ok()).count();
        assert!(newcomers < 1_000, "{newcomers}");
        // A browser that is known has a place of its own.
        assert_eq!((0..100).filter(|_| tries.count_known("ana", "browser").is_ok()).count(), 10);
    }

    #[test]
    fn a_name_is_limited_from_all_addresses_together() {
        let tries = Tries::new();
        let of = |n: u32| std::net::Ipv4Addr::from_bits((10 << 24) + n).to_string();
        let count_all = |name: &str| (0..1_500).map(|n| tries.count(&of(n % 250), name)).collect::<Vec<_>>();
        let counted = ["ana", "nobody"].map(count_all);
        for of_name in &counted {
            let allowed = of_name.iter().filter(|try_| try_.is_ok()).count();
            // One comes back every 20 seconds.
            assert!((30..35).contains(&allowed), "{allowed}");
            let Err(wait) = of_name[1_499] else { panic!("it is refused") };
            assert!(wait.is_by_name && (1..=20).contains(&wait.retry_after_s), "{wait:?}");
        }
        assert_eq!(tries.count_known("ana", "browser"), Ok(9));
        assert!(tries.count(&of(1), "ben").is_ok(), "another name");
    }

    #[test]
    fn callers_who_are_known_are_counted_each_by_itself() {
        let tries = Tries::new();
        let allowed = |caller: &str| (0..100).filter(|_| tries.count_known("ana", caller).is_ok()).count();
        assert_eq!((allowed("one"), allowed("another")), (10, 10));
        assert_eq!((0..100).filter(|_| tries.count_code("ana", "one").is_ok()).count(), 10, "codes by themselves");
        assert!(tries.count_known("ana", "one").is_err_and(|wait| !wait.is_by_name));
    }

    /// Each sign-in makes another browser known.
    #[test]
    fn callers_of_a_name_who_are_known_are_limited_together() {
        let tries = Tries::new();
        let passwords = (0..1_000).filter(|n| tries.count_known("ana", &n.to_string()).is_ok()).count();
        let codes = (0..1_000).filter(|n| tries.count_code("ana", &n.to_string()).is_ok()).count();
        // One password comes back every two seconds.
        assert!((30..35).contains(&passwords) && codes == 30, "{passwords} {codes}");
        assert_eq!((tries.count_known("ben", "browser"), tries.count_code("ben", "browser")), (Ok(9), Ok(9)));
    }

    #[test]
    fn the_first_refusal_of_a_name_is_reported_and_of_few_names_at_a_time() {
        let tries = Tries::new();
        assert!(tries.is_first_refusal("ana", 100));
        assert!(!tries.is_first_refusal("ana", 99 + REPORTED_FOR_S));
        assert!(tries.is_first_refusal("ana", 100 + REPORTED_FOR_S));
        let reported = (0..3_000).filter(|n| tries.is_first_refusal(&n.to_string(), 200 + REPORTED_FOR_S)).count();
        assert_eq!(reported, REPORTED_MAX - 1);
        assert!(tries.is_first_refusal("ben", 200 + 2 * REPORTED_FOR_S), "the others are over");
        assert_eq!(tries.reported.lock().expect("whole").len(), 1);
    }

    #[test]
    fn names_that_are_reported_take_no_try_from_others() {
        let tries = Tries::new();
        let reported = (0..3_000).filter(|n| tries.is_first_refusal(&format!("name-{n}"), 100)).count();
        assert_eq!(reported, REPORTED_MAX);
        assert!(!tries.is_first_refusal("ana", 100), "the metric alone counts it");
        assert_eq!((0..100).filter(|_| tries.count("192.0.2.1", "ana").is_ok()).count(), 10);
        assert_eq!((0..100).filter(|_| tries.count_known("ana", "browser").is_ok()).count(), 10);
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
