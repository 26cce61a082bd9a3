//! `CountedIdentity`: the value by which an identity is counted, which is one for all spellings of an address.
//!
//! An engine counts values as texts, so that a check parses nothing. A caller that takes addresses from elsewhere
//! brings them to their one spelling first, as every listener of the server does.

use std::{borrow::Cow, collections::BTreeSet, net::IpAddr};

use crate::{
    base::{
        address::{IP, REMOTE_ADDRESS, network},
        clock::Clock,
    },
    engine::state::Engine,
    policy::request::{DEFAULT_DOMAIN, Identity, RequestError},
};

/// An identity under the value by which it is counted, made by [`Engine::counted`]; or as it was given, by [`From`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CountedIdentity<'a> {
    kind: &'a str,
    value: Cow<'a, str>,
}

impl CountedIdentity<'_> {
    /// Returns the identity, for a request.
    #[must_use]
    pub fn identity(&self) -> Identity<'_> {
        Identity { kind: self.kind, value: &self.value }
    }
}

impl<'a> From<Identity<'a>> for CountedIdentity<'a> {
    fn from(Identity { kind, value }: Identity<'a>) -> Self {
        Self { kind, value: value.into() }
    }
}

impl<C: Clock> Engine<C> {
    /// Sets how many bits of an IPv6 address [`counted`](Self::counted) keeps. The default is
    /// [`IPV6_PREFIX`](crate::IPV6_PREFIX).
    #[must_use]
    pub fn with_ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits;
        self
    }

    /// Returns how many bits of an IPv6 address [`counted`](Self::counted) keeps.
    #[must_use]
    pub fn ipv6_prefix(&self) -> u8 {
        self.ipv6_prefix
    }

    /// Returns the identity with the value by which it is counted.
    ///
    /// - For the kind `ip` that is the address in its usual spelling: in lower case, the longest run of zeros as `::`,
    ///   an IPv4 address that is mapped into IPv6 as that IPv4 address. An IPv6 address is cut to its network, as
    ///   [`with_ipv6_prefix`](Self::with_ipv6_prefix) sets; or to the smallest block that it is in, where a client or a
    ///   condition of the domain's policy names a smaller one, so that a client that is one address is found. It is cut
    ///   less where its network would begin in such a block that it is not in, so that it is not taken for that client.
    /// - For the kind `remote_address`, under which Envoy sends addresses, it is the whole address in its usual
    ///   spelling.
    /// - For any other kind it is the value itself.
    ///
    /// # Errors
    ///
    /// A value of the kind `ip` that is no address.
    ///
    /// ```
    /// use tidegate::{DEFAULT_DOMAIN, Engine, Identity};
    ///
    /// let engine = Engine::new();
    /// let counted = engine.counted(DEFAULT_DOMAIN, Identity::new("ip", "2001:DB8::1")?)?;
    /// assert_eq!(counted.identity().value(), "2001:db8::");
    /// let counted = engine.counted(DEFAULT_DOMAIN, Identity::new("ip", "::ffff:192.0.2.7")?)?;
    /// assert_eq!(counted.identity().value(), "192.0.2.7");
    /// assert!(engine.counted(DEFAULT_DOMAIN, Identity::new("ip", "192.0.2.7:443")?).is_err());
    /// # Ok::<(), tidegate::RequestError>(())
    /// ```
    pub fn counted<'i>(&self, domain: &str, identity: Identity<'i>) -> Result<CountedIdentity<'i>, RequestError> {
        let Identity { kind, value } = identity;
        if kind != IP && kind != REMOTE_ADDRESS {
            return Ok(identity.into());
        }
        let address = match value.parse() {
            Ok(IpAddr::V6(address)) => address,
            Err(_) if kind == IP => return Err(RequestError::Address(value.to_owned())),
            // An IPv4 address has one spelling.
            Ok(IpAddr::V4(_)) | Err(_) => return Ok(identity.into()),
        };
        let bits = if kind == IP {
            self.active.load().snapshot.counted_prefix_bits(domain, address, self.ipv6_prefix)
        } else {
            128
        };
        Ok(CountedIdentity { kind, value: network(address.into(), bits).to_string().into() })
    }

    /// Returns the values by which the identity is counted in the domains of the policy, as [`counted`](Self::counted)
    /// makes them; the value as it was given; and for the kind `ip` the whole address.
    pub fn counted_values(&self, identity: Identity<'_>) -> BTreeSet<String> {
        let active = self.active.load();
        let domains = active.snapshot.domains.keys().map(|domain| &**domain).chain([DEFAULT_DOMAIN]);
        let counted = domains.filter_map(|domain| self.counted(domain, identity).ok());
        let counted = counted.map(|counted| counted.identity().value().to_owned());
        let whole = (identity.kind() == IP).then(|| identity.value().parse().ok()).flatten();
        let whole = whole.map(|address| network(address, 128).to_string());
        counted.chain([identity.value().to_owned()]).chain(whole).collect()
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use std::{collections::BTreeMap, net::Ipv6Addr};

    use proptest::prelude::*;

    use super::*;
    use crate::policy::{compiled::Snapshot, document::Policy, request::Request};

    fn engine(domain: &serde_json::Value) -> Engine {
        let policy = serde_json::json!({ "domains": { "default": domain } });
        let policy: Policy = serde_json::from_value(policy).expect("a policy");
        let engine = Engine::with_max_keys(1_000);
        engine.publish(Snapshot::compile(&policy).expect("valid")).expect("there is room");
        engine
    }

    fn limit(limit: u64) -> serde_json::Value {
        serde_json::json!([{ "id": "day", "algorithm": "fixed_window", "limit": limit, "period": "1d" }])
    }

    fn counted(engine: &Engine, kind: &str, value: &str) -> String {
        let identity = Identity::new(kind, value).expect("valid");
        engine.counted("default", identity).expect("an address").identity().value().to_owned()
    }

    #[test]
    fn an_address_has_a_value_in_each_domain() {
        let client = serde_json::json!({ "kind": "ip", "value": "2001:db8::1", "tier": "free" });
        let tier = serde_json::json!({ "id": "free", "limits": limit(1) });
        let named = serde_json::json!({ "clients": [client], "tiers": [tier] });
        let policy = serde_json::json!({ "domains": { "edge": {}, "shop": named } });
        let engine = Engine::with_max_keys(1_000);
        let policy: Policy = serde_json::from_value(policy).expect("a policy");
        engine.publish(Snapshot::compile(&policy).expect("valid")).expect("there is room");
        for (kind, value, expected) in [
            ("ip", "2001:DB8::1", &["2001:DB8::1", "2001:db8::", "2001:db8::1"][..]),
            ("ip", "::ffff:192.0.2.7", &["192.0.2.7", "::ffff:192.0.2.7"]),
            ("ip", "2001:DB8:1::1", &["2001:DB8:1::1", "2001:db8:1::", "2001:db8:1::1"]),
            ("ip", "unknown", &["unknown"]),
            ("remote_address", "2001:DB8::1", &["2001:DB8::1", "2001:db8::1"]),
            ("user", "2001:DB8::1", &["2001:DB8::1"]),
        ] {
            let values = engine.counted_values(Identity::new(kind, value).expect("valid"));
            assert_eq!(values.iter().collect::<Vec<_>>(), expected, "{kind}: {value}");
        }
    }

    #[test]
    fn an_address_has_one_spelling() {
        let engine = Engine::with_max_keys(1_000);
        for (kind, value, expected) in [
            ("ip", "192.0.2.7", "192.0.2.7"),
            ("ip", "::ffff:192.0.2.7", "192.0.2.7"),
            ("ip", "::FFFF:c000:207", "192.0.2.7"),
            ("ip", "2001:DB8:0:0:0:0:0:1", "2001:db8::"),
            ("ip", "2001:db8::1", "2001:db8::"),
            ("ip", "2001:0db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("remote_address", "2001:DB8:0:0:0:0:0:1", "2001:db8::1"),
            ("remote_address", "::ffff:192.0.2.7", "192.0.2.7"),
            ("remote_address", "10.0.0.0/8", "10.0.0.0/8"),
            ("user", "2001:DB8::1", "2001:DB8::1"),
        ] {
            assert_eq!(counted(&engine, kind, value), expected, "{kind}: {value}");
        }
        let whole = Engine::with_max_keys(1_000).with_ipv6_prefix(128);
        assert_eq!(counted(&whole, "ip", "2001:DB8::1"), "2001:db8::1");
        let wide = Engine::with_max_keys(1_000).with_ipv6_prefix(48);
        assert_eq!(counted(&wide, "ip", "2001:db8:1:2::1"), "2001:db8:1::");
    }

    #[test]
    fn a_value_that_is_no_address_is_refused_with_the_field_named() {
        let engine = Engine::with_max_keys(1_000);
        for value in
            ["x", "192.0.2.7:443", "[2001:db8::7]", "192.0.2.0/24", "192.0.2.007", " 192.0.2.7", "fe80::1%eth0"]
        {
            let refused = engine.counted("default", Identity::new("ip", value).expect("valid")).expect_err(value);
            assert!(refused.to_string().starts_with(&format!("value: `{value}` is no IP address")), "{refused}");
        }
    }

    #[test]
    fn a_client_or_condition_within_a_network_is_found_in_every_spelling() {
        let engine = engine(&serde_json::json!({
            "defaults": { "ip": "one" },
            "tiers": [{ "id": "one", "limits": limit(1) }],
            "clients": [
                { "kind": "ip", "value": "2001:db8:0:0:0:0:0:66", "override": { "blocked": true } },
                { "kind": "ip", "value": "2001:DB8:0:0:7::/80", "override": { "unlimited": true } },
                { "kind": "remote_address", "value": "2001:DB8::66", "override": { "blocked": true } },
            ],
            "rules": [
                { "id": "r", "endpoint": "/r", "per": "everyone", "where": { "ip": "2001:DB8::8" }, "limits": limit(2) },
            ],
        }));
        let limit_of = |kind: &str, value: &str| {
            let counted = engine.counted("default", Identity::new(kind, value).expect("valid")).expect("an address");
            let who = [counted.identity()];
            let request = Request::new(&who).expect("valid").endpoint("/r").expect("valid");
            engine.peek(&request).limit_id().map(str::to_owned)
        };
        for spelling in ["2001:db8::66", "2001:DB8:0:0:0:0:0:66", "2001:0db8::0066"] {
            let blocked = "default/client:ip:2001:db8:0:0:0:0:0:66/blocked";
            assert_eq!(limit_of("ip", spelling).as_deref(), Some(blocked), "{spelling}");
            let blocked = "default/client:remote_address:2001:DB8::66/blocked";
            assert_eq!(limit_of("remote_address", spelling).as_deref(), Some(blocked), "{spelling}");
        }
        assert_eq!(limit_of("ip", "2001:db8::7:0:0:1"), None);
        assert_eq!(counted(&engine, "ip", "2001:db8::7:0:0:1"), "2001:db8:0:0:7::");
        assert_eq!(counted(&engine, "ip", "2001:DB8::0008"), "2001:db8::8");
        assert_eq!(counted(&engine, "ip", "2001:db8::9"), "2001:db8::");
        assert_eq!(limit_of("ip", "2001:db8::9").as_deref(), Some("default/tier:one/day"));
    }

    #[test]
    fn an_address_is_not_taken_for_a_client_at_the_start_of_its_network() {
        let engine = engine(&serde_json::json!({
            "tiers": [{ "id": "one", "limits": limit(1) }],
            "defaults": { "ip": "one" },
            "clients": [
                { "kind": "ip", "value": "2001:db8::/96", "override": { "unlimited": true } },
                { "kind": "ip", "value": "2001:db8:5::", "override": { "blocked": true } },
            ],
            "rules": [
                { "id": "r", "endpoint": "/r", "per": "everyone", "where": { "remote_address": "2001:db8:9::8" }, "limits": limit(2) },
            ],
        }));
        let limit_of = |value| {
            let counted = engine.counted("default", Identity::new("ip", value).expect("valid")).expect("an address");
            let who = [counted.identity()];
            engine.peek(&Request::new(&who).expect("valid")).limit_id().map(str::to_owned)
        };
        let of_tier = Some("default/tier:one/day");
        assert_eq!((limit_of("2001:db8::1"), limit_of("2001:db8::1:0:0:1").as_deref()), (None, of_tier));
        assert_eq!(limit_of("2001:db8:5::").as_deref(), Some("default/client:ip:2001:db8:5::/blocked"));
        assert_eq!(limit_of("2001:db8:5::7").as_deref(), of_tier);
        for (value, expected) in [
            ("2001:db8::ffff:0:0:1", "2001:db8:0:0:8000::"),
            ("2001:db8::1:0:0:1", "2001:db8:0:0:1::"),
            ("2001:db8:5::7", "2001:db8:5::4"),
            ("2001:db8:5:0:8000::7", "2001:db8:5:0:8000::"),
            ("2001:db8:9::8", "2001:db8:9::"),
        ] {
            assert_eq!(counted(&engine, "ip", value), expected, "{value}");
        }
    }

    proptest! {
        #[test]
        fn a_counted_address_meets_the_limits_of_the_whole_address(
            blocks in prop::collection::vec((0_u128..16, 120_u8..=128), 1..5),
            addresses in prop::collection::vec(0_u128..16, 1..20),
            gap in 0_u32..60,
        ) {
            let address = |low: u128| Ipv6Addr::from_bits((0x2001_0db8_u128 << 96) | (low << gap));
            let clients: BTreeMap<_, _> = blocks
                .iter()
                .map(|&(low, bits)| {
                    let bits = bits - u8::try_from(gap).expect("small");
                    let first = network(address(low).into(), bits);
                    (format!("{first}/{bits}"), serde_json::json!({
                        "kind": "ip", "value": format!("{first}/{bits}"), "override": { "blocked": true },
                    }))
                })
                .collect();
            let clients: Vec<_> = clients.into_values().collect();
            let engine = engine(&serde_json::json!({
                "tiers": [{ "id": "one", "limits": limit(1) }], "defaults": { "ip": "one" }, "clients": clients,
            }));
            let limit_of = |value: &str| {
                let who = [Identity::new("ip", value).expect("valid")];
                engine.peek(&Request::new(&who).expect("valid")).limit_id().map(str::to_owned)
            };
            for low in addresses {
                let value = address(low).to_string();
                prop_assert_eq!(limit_of(&counted(&engine, "ip", &value)), limit_of(&value), "{}", value);
            }
        }
    }
}
