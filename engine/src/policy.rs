//! The policy document: plain types, as people write it. `Snapshot::compile` says whether it is right.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, Visitor},
};

use crate::algorithm::NUMBER_MAX;

/// The whole document.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Domains by name. Requests that name none are in `default`.
    #[serde(deserialize_with = "each_key_once")]
    pub domains: BTreeMap<String, Domain>,
}

/// One domain: a name space of tiers, clients and rules.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Domain {
    /// Per kind of identity, the tier of those that nobody assigned.
    #[serde(deserialize_with = "each_key_once", skip_serializing_if = "BTreeMap::is_empty")]
    pub defaults: BTreeMap<String, String>,
    /// May a request name its own tier?
    pub tier_hint: bool,
    /// What a door answers when it cannot decide.
    pub on_error: OnError,
    /// The response headers of a door.
    pub headers: Headers,
    /// What `X-RateLimit-Reset` carries.
    pub reset: Reset,
    /// IANA name of the time zone of calendar periods, such as `Europe/Berlin`; UTC unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// Tiers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<Tier>,
    /// Clients that were given a tier or an override.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<Client>,
    /// Rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
}

/// What a domain asks of the doors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DoorSettings {
    /// What they answer when they cannot decide.
    pub on_error: OnError,
    /// Their response headers.
    pub headers: Headers,
    /// What `X-RateLimit-Reset` carries.
    pub reset: Reset,
}

/// What a door answers when it cannot decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// Allow.
    #[default]
    Open,
    /// Deny.
    Closed,
}

/// A family of response headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Headers {
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset`.
    #[default]
    XRatelimit,
    /// `RateLimit` and `RateLimit-Policy` of the IETF draft.
    Ietf,
    /// No headers.
    None,
}

/// What `X-RateLimit-Reset` carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reset {
    /// Unix seconds.
    #[default]
    Epoch,
    /// Seconds from now.
    Delta,
}

/// A named list of limits that a class of clients gets.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tier {
    /// `[a-z][a-z0-9_-]{0,63}`.
    pub id: String,
    /// Its limits, checked in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    /// Instead of limits.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unlimited: bool,
}

/// A limit.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Unique within the tier, rule or client.
    pub id: String,
    /// How it counts.
    pub algorithm: Algorithm,
    /// Tokens per period; 0 denies everything.
    #[serde(deserialize_with = "whole")]
    pub limit: u64,
    /// `250ms`, `1s`, `15m`, `1h`, `1d`; for fixed windows also `day`, `week` (begins on Monday) and `month`, by the calendar
    /// in the domain's time zone.
    pub period: String,
    /// Most tokens at once, for the buckets; the limit unless given.
    #[serde(default, deserialize_with = "some_whole", skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// Does it deny, or only count what it would deny?
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: Mode,
    /// How nodes share it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sharing: Sharing,
    /// What happens when sharing fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
}

/// How a limit counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// A bucket that refills at a constant rate.
    TokenBucket,
    /// A queue that drains at a constant rate.
    LeakyBucket,
    /// A count per window; windows end together for everyone.
    FixedWindow,
    /// Two windows, weighted.
    SlidingWindowCounter,
    /// Every admission remembered.
    SlidingWindowLog,
}

/// Does a limit deny?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Yes.
    #[default]
    Enforce,
    /// No: it only counts what it would have denied.
    Shadow,
}

/// How nodes share a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sharing {
    /// Each node counts alone.
    #[default]
    Local,
    /// Every check swaps the state in the store.
    Strict,
    /// A node takes tokens ahead.
    Leased,
    /// Nodes exchange what they counted.
    Synced,
}

/// What happens to a shared limit when the store is gone.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// Allow.
    Open,
    /// Deny.
    Closed,
    /// Count alone, with this fraction of the limit.
    Local(f64),
}

/// An identity that was given a tier or an override.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// Kind of the identity.
    pub kind: String,
    /// Its value, a prefix with `*` at the end, or for `ip` a CIDR block. The longest wins.
    pub value: String,
    /// Its tier; the default of its kind unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// A note for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What it gets for a while instead of what its tier says.
    #[serde(default, rename = "override", skip_serializing_if = "Option::is_none")]
    pub exception: Option<Override>,
}

/// What a client gets for a while: exactly one of `blocked`, `unlimited` and `limits`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Override {
    /// Every request is denied.
    #[serde(skip_serializing_if = "is_false")]
    pub blocked: bool,
    /// The tier's limits do not apply.
    #[serde(skip_serializing_if = "is_false")]
    pub unlimited: bool,
    /// These replace the tier's limits of the same id, and the others are added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    /// RFC 3339 instant at which it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Limits of an endpoint.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// `[a-z][a-z0-9_-]{0,63}`.
    pub id: String,
    /// `/exact`, `/users/{id}`, `/api/*` or `*`.
    pub endpoint: String,
    /// Only requests with this method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Whom it counts.
    pub per: Per,
    /// Only requests with an identity of one of these tiers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tiers: Option<Vec<String>>,
    /// Only requests whose identities of these kinds have these values; a `*` at the end matches the rest.
    #[serde(default, rename = "where", deserialize_with = "each_key_once", skip_serializing_if = "BTreeMap::is_empty")]
    pub condition: BTreeMap<String, String>,
    /// Multiplies the request's cost.
    #[serde(default = "one", deserialize_with = "whole", skip_serializing_if = "is_one")]
    pub cost: u64,
    /// Its limits, checked in this order.
    pub limits: Vec<Limit>,
    /// Off when false.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub enabled: bool,
}

/// Whom a rule counts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a kind, a list of kinds, or \"everyone\"")]
pub enum Per {
    /// One kind, or `everyone`.
    One(String),
    /// Each combination of values of these kinds.
    Each(Vec<String>),
}

fn one() -> u64 {
    1
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_true(flag: &bool) -> bool {
    *flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_one(number: &u64) -> bool {
    *number == 1
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A whole number, with one message in every format for what is none.
struct Whole(u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WholeVisitor;

        impl Visitor<'_> for WholeVisitor {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from 0 to {NUMBER_MAX}")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Whole, E> {
                self.visit_i128(number.into())
            }

            fn visit_i128<E: de::Error>(self, number: i128) -> Result<Whole, E> {
                let whole = u64::try_from(number).map(Whole);
                whole.map_err(|_| {
                    E::custom(format!("{number} is out of range; expected a whole number from 0 to {NUMBER_MAX}"))
                })
            }

            fn visit_u128<E: de::Error>(self, number: u128) -> Result<Whole, E> {
                self.visit_i128(i128::try_from(number).unwrap_or(i128::MAX))
            }
        }

        deserializer.deserialize_any(WholeVisitor)
    }
}

fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Whole::deserialize(deserializer).map(|Whole(number)| number)
}

fn some_whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    whole(deserializer).map(Some)
}

/// A map in which a repeated key is an error rather than a silent replacement.
fn each_key_once<'de, D, T>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct EachKeyOnce<T>(std::marker::PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for EachKeyOnce<T> {
        type Value = BTreeMap<String, T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
            let mut map = BTreeMap::new();
            while let Some(key) = entries.next_key::<String>()? {
                if map.contains_key(&key) {
                    return Err(de::Error::custom(format!("`{key}` stands here twice")));
                }
                map.insert(key, entries.next_value()?);
            }
            Ok(map)
        }
    }

    deserializer.deserialize_map(EachKeyOnce(std::marker::PhantomData))
}
