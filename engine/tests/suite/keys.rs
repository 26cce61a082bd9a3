//! The equality of keys, in a keyed limiter and through a handle.

use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    num::NonZeroU32,
    sync::{Arc, Mutex},
};

use proptest::prelude::*;
use tidegate::{
    Engine, Identity, Key, KeyHash, KeyHasher, KeyedLimiter, Observed, Observer, Prehashed, Rate, Request, Snapshot,
    formats::Format,
};

/// A token an hour for each key, so that a key is admitted once in a test.
fn once_each() -> KeyedLimiter {
    KeyedLimiter::with_max_keys(Rate::per_hour(1), 10_000)
}

#[test]
fn keys_that_differ_have_buckets_of_their_own() {
    let limiter = once_each();
    let mut keys = 0;
    let mut new = |what: &str, is_allowed: bool| {
        keys += 1;
        assert!(is_allowed, "{what} met one before it");
    };
    macro_rules! each_new {
        ($($key:expr),* $(,)?) => { $( new(stringify!($key), limiter.check($key).is_allowed()); )* };
    }
    let v4 = Ipv4Addr::new(192, 0, 2, 7);
    let v6: Ipv6Addr = "2001:db8::7".parse().expect("an address");
    each_new![
        "",
        "7",
        "ada",
        "192.0.2.7",
        "2001:db8::7",
        7_u64,
        7_u64.to_le_bytes(),
        7_u64.to_be_bytes(),
        u64::MAX,
        u128::from(u64::MAX) + 1,
        u128::MAX,
        7_u128 << 64,
        (7_u128 << 64).to_ne_bytes(),
        Prehashed(7),
        Prehashed(0),
        v4,
        v4.octets(),
        u32::from(v4),
        v6,
        v6.octets(),
        u128::from(v6),
        // Compatible, not mapped: another address.
        Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0xC000, 0x0207),
        ("a_b", "c"),
        ("a", "b_c"),
        ("a", "b", "c"),
        (("a", "b"), "c"),
        ("a", ("b", "c")),
        ("c", "b", "a"),
        ("", ""),
        ("", "", ""),
        ("ada", 7_u64),
        (7_u64, "ada"),
        (7_u64, 7_u64),
        (Prehashed(7), Prehashed(7)),
    ];
    assert_eq!(keys, 34);
}

#[test]
fn keys_that_are_the_same_share_a_bucket() {
    let limiter = once_each();
    macro_rules! same {
        ($first:expr, $($other:expr),+ $(,)?) => {
            assert!(limiter.check($first).is_allowed(), stringify!($first));
            $( assert!(!limiter.check($other).is_allowed(), "{} is another than {}", stringify!($other), stringify!($first)); )+
        };
    }
    let ada = String::from("ada");
    same!("ada", &ada, ada.clone(), b"ada", *b"ada", &b"ada"[..], &&"ada");
    same!(7_u8, 7_u16, 7_u32, 7_u64, 7_usize, 7_u128, &7_u64);
    same!(u128::MAX, &u128::MAX);
    let v4 = Ipv4Addr::new(192, 0, 2, 7);
    same!(v4, IpAddr::V4(v4), v4.to_ipv6_mapped(), IpAddr::V6(v4.to_ipv6_mapped()));
    same!(Ipv6Addr::LOCALHOST, IpAddr::V6(Ipv6Addr::LOCALHOST));
    same!(("ada", 7_u8), (ada.clone(), 7_u64), (b"ada", &7_u128));
    same!((1_u8, "x", v4), (1_u64, b"x", IpAddr::V4(v4)));
    same!(Prehashed(9), Prehashed(9));
}

#[test]
fn a_type_of_ones_own_is_the_key_that_stands_for_it() {
    struct Tenant(u64);
    impl Key for Tenant {
        fn key_hash(&self, hasher: &KeyHasher) -> KeyHash {
            ("tenant", self.0).key_hash(hasher)
        }
    }
    let limiter = once_each();
    assert!(limiter.check(Tenant(1)).is_allowed());
    assert!(limiter.check(Tenant(2)).is_allowed());
    assert!(!limiter.check(("tenant", 1_u64)).is_allowed());
    assert!(limiter.check((Tenant(1), "search")).is_allowed());
}

const POLICY: &str = r#"
    [domains.default]
    defaults = { user = "t", ip = "t" }
    [[domains.default.tiers]]
    id = "t"
    limits = [{ id = "hour", algorithm = "token_bucket", limit = 2, period = "1h" }]
"#;

#[test]
fn a_handle_counts_text_with_the_requests_and_every_other_key_by_itself() {
    let engine = Engine::with_max_keys(1_000);
    engine.publish(Snapshot::parse(POLICY, Format::Toml).expect("a good policy")).expect("few limits");
    let request = |kind, value| {
        let who = [Identity::new(kind, value).expect("valid")];
        engine.check(&Request::new(&who).expect("valid")).remaining()
    };
    let handle = |kind| engine.handle("default/tier:t/hour", kind).expect("is there");
    let mut user = handle("user");
    let left = |remaining: Option<u64>| remaining.expect("the limit applies");
    assert_eq!(left(request("user", "7")), 1);
    assert_eq!(left(user.check("7").remaining()), 0, "text: the bucket of the requests");
    assert!(!user.check(String::from("7")).is_allowed());
    assert_eq!(left(user.check(7_u64).remaining()), 1, "a number: another");
    assert_eq!(left(user.check(7_u8).remaining()), 0);
    assert_eq!(left(user.check(Prehashed(7)).remaining()), 1, "a hash: another");
    assert_eq!(left(user.check(("7", "7")).remaining()), 1, "a tuple: another");

    let mut ip = handle("ip");
    let address = IpAddr::from([192, 0, 2, 7]);
    assert_eq!(left(request("ip", "192.0.2.7")), 1);
    assert_eq!(left(ip.check(address).remaining()), 1, "an address is not the address written out");
    assert_eq!(left(ip.check("192.0.2.7").remaining()), 0);
    assert_eq!(left(ip.check(7_u64).remaining()), 1, "and another kind counts by itself");
}

/// An observer that keeps the values that it was shown.
#[derive(Default)]
struct Values(Mutex<Vec<Vec<u8>>>);

impl Observer for Values {
    fn observe(&self, observed: &Observed<'_>) {
        self.0.lock().expect("no panic").extend(observed.identities().map(|(_, value)| value.to_vec()));
    }
}

#[test]
fn an_observer_is_shown_the_text_of_a_key_that_is_text() {
    struct Session<'s>(&'s str, u64);
    impl Key for Session<'_> {
        fn key_hash(&self, hasher: &KeyHasher) -> KeyHash {
            (self.0, self.1).key_hash(hasher)
        }

        fn text(&self) -> &[u8] {
            self.0.as_bytes()
        }
    }
    let engine = Engine::with_max_keys(1_000);
    engine.publish(Snapshot::parse(POLICY, Format::Toml).expect("a good policy")).expect("few limits");
    let values = Arc::new(Values::default());
    engine.observe(NonZeroU32::MIN, Arc::clone(&values));
    let mut user = engine.handle("default/tier:t/hour", "user").expect("is there");
    let _ = user.check("ada");
    let _ = user.check(String::from("ben"));
    let _ = user.check(b"\xFF\x00");
    let _ = user.check(7_u64);
    let _ = user.check(("ada", "ben"));
    let _ = user.check(Session("cy", 7));
    let shown = values.0.lock().expect("no panic");
    assert_eq!(*shown, [&b"ada"[..], b"ben", b"\xFF\x00", b"", b"", b"cy"]);
}

proptest! {
    /// The texts have few letters and are short, so that joined parts are often equal.
    #[test]
    fn tuples_of_text_are_the_same_key_only_if_every_part_is(
        pairs in prop::collection::vec(("[ab_]{0,4}", "[ab_]{0,4}"), 1..60),
        triples in prop::collection::vec(("[ab_]{0,2}", "[ab_]{0,2}", "[ab_]{0,2}"), 1..60),
    ) {
        let limiter = once_each();
        let admitted = pairs.iter().filter(|(a, b)| limiter.check((a, b)).is_allowed()).count();
        prop_assert_eq!(admitted, pairs.iter().collect::<HashSet<_>>().len());
        let admitted = triples.iter().filter(|(a, b, c)| limiter.check((a, b, c)).is_allowed()).count();
        prop_assert_eq!(admitted, triples.iter().collect::<HashSet<_>>().len());
    }

    #[test]
    fn numbers_are_the_same_key_only_if_their_values_are(
        numbers in prop::collection::vec(prop_oneof![0u128..8, any::<u128>(), (0u128..4).prop_map(|high| high << 64)], 1..60),
    ) {
        let limiter = once_each();
        let admitted = numbers.iter().filter(|number| limiter.check(*number).is_allowed()).count();
        prop_assert_eq!(admitted, numbers.iter().collect::<HashSet<_>>().len());
    }
}
