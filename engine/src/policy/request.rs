//! Requests: the identities, endpoint, method and cost that a check decides about. Constructors validate, so every request is
//! valid.

use std::fmt;

use crate::algorithm::NUMBER_MAX;

/// The most identities that a request may carry.
pub const IDENTITIES_MAX: usize = 8;
/// The longest name of a kind, in bytes.
pub(crate) const KIND_BYTES_MAX: usize = 32;
/// The longest value of an identity, in bytes.
pub const VALUE_BYTES_MAX: usize = 1_024;

/// The bytes at the beginning of a longer value that a listener keeps before the digest of the whole. A condition on a longer
/// prefix does not match such a value.
pub const BEGINNING_BYTES_MAX: usize = VALUE_BYTES_MAX - DIGEST_BYTES;

/// The bytes of `~sha256:` and a digest in hexadecimal digits.
const DIGEST_BYTES: usize = 8 + 64;
/// The longest endpoint, in bytes.
pub const ENDPOINT_BYTES_MAX: usize = 8_192;
/// The domain of requests that name none.
pub const DEFAULT_DOMAIN: &str = "default";

/// An identity: a kind such as `user`, and a value. Limits count by identities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity<'a> {
    pub(crate) kind: &'a str,
    pub(crate) value: &'a str,
}

impl<'a> Identity<'a> {
    /// Creates an identity. `kind` is `ip`, `user`, `api_key` or any `[a-z][a-z0-9_]{0,31}`; `value` has 1 to 1,024 bytes.
    pub fn new(kind: &'a str, value: &'a str) -> Result<Self, RequestError> {
        if !is_kind(kind) {
            return Err(RequestError::Kind(kind.to_owned()));
        }
        if value.is_empty() || value.len() > VALUE_BYTES_MAX {
            return Err(RequestError::Value { kind: kind.to_owned(), bytes: value.len() });
        }
        Ok(Self { kind, value })
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> &'a str {
        self.kind
    }

    /// Returns the value.
    #[must_use]
    pub fn value(&self) -> &'a str {
        self.value
    }
}

/// Returns whether a text can be the kind of an identity.
pub(crate) fn is_kind(kind: &str) -> bool {
    let bytes = kind.as_bytes();
    bytes.len() <= KIND_BYTES_MAX
        && bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_')
}

/// A request, which a check decides about.
///
/// ```
/// use tidegate::{Identity, Request};
///
/// let who = [Identity::new("ip", "192.0.2.7")?, Identity::new("user", "ada")?];
/// let request = Request::new(&who)?.endpoint("/api/v1/search")?.method("GET").cost(3)?;
/// # Ok::<(), tidegate::RequestError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub(crate) identities: &'a [Identity<'a>],
    pub(crate) domain: &'a str,
    pub(crate) endpoint: Option<&'a str>,
    pub(crate) method: Option<&'a str>,
    pub(crate) cost: u64,
    pub(crate) tier: Option<&'a str>,
    pub(crate) is_exact: bool,
}

/// The fields of a request, for reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RequestParts<'a> {
    /// The identities, in the order in which they are checked.
    pub identities: &'a [Identity<'a>],
    /// The domain.
    pub domain: &'a str,
    /// The endpoint as it was given.
    pub endpoint: Option<&'a str>,
    /// The method.
    pub method: Option<&'a str>,
    /// The cost; 0 for a request that only asks how much is left.
    pub cost: u64,
    /// The tier that the request names.
    pub tier: Option<&'a str>,
    /// Whether the request was made by [`Request::exactly`].
    pub is_exact: bool,
}

impl<'a> Request<'a> {
    /// Creates a request of these identities (one to eight, each kind once). They are checked in this order: put the cheapest
    /// first.
    pub fn new(identities: &'a [Identity<'a>]) -> Result<Self, RequestError> {
        if identities.is_empty() {
            return Err(RequestError::Identities(0));
        }
        Ok(Self { is_exact: false, ..Self::exactly(identities)? })
    }

    /// Creates a request of exactly these identities together, eight at most, each kind once.
    ///
    /// Only the rules apply whose `per` and `where` together name exactly this set of kinds; to a single identity its tier's limits
    /// apply too; to none, the rules that count everyone together. In a domain with
    /// [`Descriptors::Subset`](crate::policy::Descriptors), the same limits apply as to any other request with these identities.
    ///
    /// [Envoy's descriptors](https://www.envoyproxy.io/docs/envoy/latest/api-v3/extensions/common/ratelimit/v3/ratelimit.proto)
    /// have this meaning.
    pub fn exactly(identities: &'a [Identity<'a>]) -> Result<Self, RequestError> {
        if identities.len() > IDENTITIES_MAX {
            return Err(RequestError::Identities(identities.len()));
        }
        for (place, identity) in identities.iter().enumerate() {
            if identities[..place].iter().any(|earlier| earlier.kind == identity.kind) {
                return Err(RequestError::RepeatedKind(identity.kind.to_owned()));
            }
        }
        let (domain, is_exact) = (DEFAULT_DOMAIN, true);
        Ok(Self { identities, domain, endpoint: None, method: None, cost: 1, tier: None, is_exact })
    }

    /// Sets the path. Rules see it without query and fragment, with dot segments removed.
    pub fn endpoint(mut self, endpoint: &'a str) -> Result<Self, RequestError> {
        if endpoint.len() > ENDPOINT_BYTES_MAX {
            return Err(RequestError::Endpoint(endpoint.len()));
        }
        self.endpoint = Some(endpoint);
        Ok(self)
    }

    /// Sets the method.
    #[must_use]
    pub fn method(mut self, method: &'a str) -> Self {
        self.method = Some(method);
        self
    }

    /// Sets the cost in tokens: 1 to 2^53 - 1.
    pub fn cost(mut self, cost: u64) -> Result<Self, RequestError> {
        if cost == 0 || cost > NUMBER_MAX {
            return Err(RequestError::Cost(cost));
        }
        self.cost = cost;
        Ok(self)
    }

    /// Sets the cost to 0, to ask how much is left. A check of the request charges nothing, like a peek.
    #[must_use]
    pub fn without_cost(mut self) -> Self {
        self.cost = 0;
        self
    }

    /// Returns the fields of the request.
    #[must_use]
    pub fn parts(&self) -> RequestParts<'a> {
        let Self { identities, domain, endpoint, method, cost, tier, is_exact } = *self;
        RequestParts { identities, domain, endpoint, method, cost, tier, is_exact }
    }

    /// Sets the domain, which is `default` otherwise.
    #[must_use]
    pub fn domain(mut self, domain: &'a str) -> Self {
        self.domain = domain;
        self
    }

    /// Sets the tier that the request names. It counts only in a domain with `tier_hint`, for identities without a tier of their own.
    #[must_use]
    pub fn tier(mut self, tier: &'a str) -> Self {
        self.tier = Some(tier);
        self
    }
}

/// The error of an invalid request, which is the caller's mistake. Nothing was charged.
// Exhaustive: each listener has a code for every variant, and the compiler keeps that whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RequestError {
    /// No identities, or more than eight; this many.
    Identities(usize),
    /// Two identities of this kind.
    RepeatedKind(String),
    /// A text that cannot be a kind.
    Kind(String),
    /// A value that is empty or too long.
    Value {
        /// The identity's kind.
        kind: String,
        /// The value's length.
        bytes: usize,
    },
    /// A value of the kind `ip` that is not an address.
    Address(String),
    /// An endpoint of this many bytes, which is too long.
    Endpoint(usize),
    /// A cost of 0 or above 2^53 - 1.
    Cost(u64),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identities(count) => write!(f, "identities: {count} given; give one to {IDENTITIES_MAX}"),
            Self::RepeatedKind(kind) => write!(f, "identities: kind `{kind}` is given twice; give each kind once"),
            Self::Kind(kind) => write!(
                f,
                "kind: `{}` is not a kind; begin with a-z, go on with a-z, 0-9 and _, 32 characters at most",
                kind.chars().take(64).collect::<String>().escape_debug()
            ),
            Self::Value { kind, bytes } => {
                write!(f, "value: that of `{kind}` has {bytes} bytes; from 1 to {VALUE_BYTES_MAX} fit")
            }
            Self::Address(value) => write!(
                f,
                "value: `{}` is no IP address, which the kind `ip` needs; write one without port, brackets and spaces, such as \
                 192.0.2.7 or 2001:db8::7, or give it another kind",
                value.chars().take(64).collect::<String>().escape_debug()
            ),
            Self::Endpoint(bytes) => write!(f, "endpoint: {bytes} bytes; at most {ENDPOINT_BYTES_MAX} fit"),
            Self::Cost(0) => {
                write!(f, "cost: 0 fits only with `peek`, which charges nothing; otherwise from 1 to {NUMBER_MAX} fit")
            }
            Self::Cost(cost) => write!(f, "cost: {cost} is out of range; from 1 to {NUMBER_MAX} fit"),
        }
    }
}

impl std::error::Error for RequestError {}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    #[test]
    fn bad_requests_are_refused_with_the_field_named() {
        let identity = |kind: &'static str| Identity::new(kind, "x").expect("valid");
        let kinds = ["a", "b", "c", "d", "e", "f", "g", "h", "i"].map(identity);
        let long = "v".repeat(VALUE_BYTES_MAX + 1);
        let path = "/".repeat(ENDPOINT_BYTES_MAX + 1);
        let request = Request::new(&kinds[..8]).expect("eight are allowed");
        let refused: [(&str, RequestError); 11] = [
            ("identities", Request::new(&[]).expect_err("none")),
            ("identities", Request::new(&kinds).expect_err("nine")),
            ("identities", Request::new(&[kinds[0], kinds[1], kinds[0]]).expect_err("repeated")),
            ("kind", Identity::new("IP", "x").expect_err("capitals")),
            ("kind", Identity::new("", "x").expect_err("empty")),
            ("kind", Identity::new(&long[..33], "x").expect_err("long")),
            ("value", Identity::new("ip", "").expect_err("empty")),
            ("value", Identity::new("ip", &long).expect_err("long")),
            ("endpoint", request.endpoint(&path).expect_err("long")),
            ("cost", request.cost(0).expect_err("zero")),
            ("cost", request.cost(1 << 53).expect_err("too large")),
        ];
        for (field, error) in refused {
            assert!(error.to_string().starts_with(&format!("{field}: ")), "{error}");
        }
    }
}
