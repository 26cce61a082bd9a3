//! Requests: identities, endpoint, method, cost. Parsed once; a request that exists is valid.

use std::fmt;

use crate::algorithm::NUMBER_MAX;

/// The most identities that a request may carry.
pub const IDENTITIES_MAX: usize = 8;
/// The longest name of a kind, in bytes.
pub(crate) const KIND_BYTES_MAX: usize = 32;
/// The longest value of an identity, in bytes.
pub const VALUE_BYTES_MAX: usize = 1_024;

/// The bytes of a longer value that stay before its digest, where a listener makes one of it: a condition on a longer prefix does
/// not hold for such a value.
pub const BEGINNING_BYTES_MAX: usize = VALUE_BYTES_MAX - DIGEST_BYTES;

/// The bytes of `~sha256:` and a digest in hexadecimal digits.
const DIGEST_BYTES: usize = 8 + 64;
/// The longest endpoint, in bytes.
pub const ENDPOINT_BYTES_MAX: usize = 8_192;
/// The domain of requests that name none.
pub const DEFAULT_DOMAIN: &str = "default";

/// Who is counted: a kind and a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity<'a> {
    pub(crate) kind: &'a str,
    pub(crate) value: &'a str,
}

impl<'a> Identity<'a> {
    /// `kind` is `ip`, `user`, `api_key` or any `[a-z][a-z0-9_]{0,31}`; `value` has 1 to 1,024 bytes.
    pub fn new(kind: &'a str, value: &'a str) -> Result<Self, RequestError> {
        if !is_kind(kind) {
            return Err(RequestError::Kind(kind.to_owned()));
        }
        if value.is_empty() || value.len() > VALUE_BYTES_MAX {
            return Err(RequestError::Value { kind: kind.to_owned(), bytes: value.len() });
        }
        Ok(Self { kind, value })
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> &'a str {
        self.kind
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &'a str {
        self.value
    }
}

/// True for the name of an identity's kind.
pub(crate) fn is_kind(kind: &str) -> bool {
    let bytes = kind.as_bytes();
    bytes.len() <= KIND_BYTES_MAX
        && bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_')
}

/// One request: what a check decides.
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

/// What a request says, to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RequestParts<'a> {
    /// Who comes, in the order in which they are checked.
    pub identities: &'a [Identity<'a>],
    /// The domain.
    pub domain: &'a str,
    /// Where to, as it was given.
    pub endpoint: Option<&'a str>,
    /// The method.
    pub method: Option<&'a str>,
    /// The cost; 0 asks what is left.
    pub cost: u64,
    /// The tier that it names itself.
    pub tier: Option<&'a str>,
    /// Was it made by [`Request::exactly`]?
    pub is_exact: bool,
}

impl<'a> Request<'a> {
    /// A request of these identities (one to eight, each kind once), checked in this order: put the cheapest first.
    pub fn new(identities: &'a [Identity<'a>]) -> Result<Self, RequestError> {
        if identities.is_empty() {
            return Err(RequestError::Identities(0));
        }
        Ok(Self { is_exact: false, ..Self::exactly(identities)? })
    }

    /// A request of exactly these identities together, eight at most, each kind once. It meets the rules that name this set
    /// of kinds in `per` and `where` together, and no part of it; of one identity its tier's limits too; of none the rules
    /// for everyone. Where the domain says [`Descriptors::Subset`](crate::policy::Descriptors), it meets what any other
    /// request with these identities does.
    ///
    /// That is how [Envoy's descriptors](https://www.envoyproxy.io/docs/envoy/latest/api-v3/extensions/common/ratelimit/v3/ratelimit.proto)
    /// are meant.
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

    /// To this path. Rules see it without query and fragment, with dot segments removed.
    pub fn endpoint(mut self, endpoint: &'a str) -> Result<Self, RequestError> {
        if endpoint.len() > ENDPOINT_BYTES_MAX {
            return Err(RequestError::Endpoint(endpoint.len()));
        }
        self.endpoint = Some(endpoint);
        Ok(self)
    }

    /// With this method.
    #[must_use]
    pub fn method(mut self, method: &'a str) -> Self {
        self.method = Some(method);
        self
    }

    /// Of this cost, in tokens: 1 to 2^53 - 1.
    pub fn cost(mut self, cost: u64) -> Result<Self, RequestError> {
        if cost == 0 || cost > NUMBER_MAX {
            return Err(RequestError::Cost(cost));
        }
        self.cost = cost;
        Ok(self)
    }

    /// Of no cost: for asking what is left. A check of it charges nothing, as a peek.
    #[must_use]
    pub fn without_cost(mut self) -> Self {
        self.cost = 0;
        self
    }

    /// What it says.
    #[must_use]
    pub fn parts(&self) -> RequestParts<'a> {
        let Self { identities, domain, endpoint, method, cost, tier, is_exact } = *self;
        RequestParts { identities, domain, endpoint, method, cost, tier, is_exact }
    }

    /// In this domain instead of `default`.
    #[must_use]
    pub fn domain(mut self, domain: &'a str) -> Self {
        self.domain = domain;
        self
    }

    /// Naming its own tier: heard only where the domain sets `tier_hint`, for identities that nobody assigned.
    #[must_use]
    pub fn tier(mut self, tier: &'a str) -> Self {
        self.tier = Some(tier);
        self
    }
}

/// A request that cannot be decided: the caller's mistake. Nothing was charged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RequestError {
    /// None, or more than eight identities; how many.
    Identities(usize),
    /// Two identities of this kind.
    RepeatedKind(String),
    /// Not the name of a kind.
    Kind(String),
    /// A value that is empty or too long.
    Value {
        /// The identity's kind.
        kind: String,
        /// The value's length.
        bytes: usize,
    },
    /// A value of the kind `ip` that is no address.
    Address(String),
    /// An endpoint that is too long; its bytes.
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
