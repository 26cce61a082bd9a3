//! Extraction of the identities of a request: the kinds that are counted, and the part of the request that has the value of each.

use std::{borrow::Cow, collections::HashSet, fmt, fmt::Write, str::FromStr, sync::Arc};

use arrayvec::ArrayVec;
use sha2::{Digest, Sha256};
use tidegate::{BEGINNING_BYTES_MAX, IDENTITIES_MAX, Identity, VALUE_BYTES_MAX, normalized_path};

use crate::{address::AddressReader, request_head::RequestHead};

/// The part of a request that has the value of an identity.
#[derive(Clone)]
pub enum IdentitySource {
    /// The client's address, of IPv6 its network: see [`AddressReader`].
    Address,
    /// The header of this name, in lower case; the first one if there are several, as most services read it.
    Header(Box<str>),
    /// The token of `Authorization: Bearer TOKEN`, as its SHA-256: 64 lower-case hexadecimal digits, as `sha256sum` prints
    /// them. Nothing behind the extractor sees the token itself.
    Bearer,
    /// The path, as rules see it. A client that chooses paths creates a key with each.
    Path,
    /// The value that this function reads.
    Custom(CustomExtractor),
}

/// A function that reads the value of an identity; `None` if the request has none.
pub type CustomExtractor = Arc<dyn Fn(&dyn RequestHead) -> Option<String> + Send + Sync>;

impl fmt::Debug for IdentitySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("address"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Bearer => f.write_str("bearer"),
            Self::Path => f.write_str("path"),
            Self::Custom(_) => f.write_str("custom"),
        }
    }
}

/// A kind of identity, and the source of its value. It is written `KIND=SOURCE`: `ip=address`, `user=header:X-User-Id`,
/// `api_key=bearer`, `page=path`.
#[derive(Clone, Debug)]
pub struct Extractor {
    kind: Arc<str>,
    source: IdentitySource,
}

impl Extractor {
    /// Creates an extractor of this kind, `[a-z][a-z0-9_]{0,31}`.
    pub fn new(kind: &str, source: IdentitySource) -> Result<Self, ExtractError> {
        // The engine checks the kind; any valid value serves for that.
        Identity::new(kind, "-").map_err(|_| ExtractError::Kind(quoted(kind)))?;
        Ok(Self { kind: kind.into(), source })
    }

    /// Creates an extractor whose values `read` returns; `None` if a request has none.
    ///
    /// ```
    /// use tidegate_middleware::extract::Extractor;
    ///
    /// let tenant = Extractor::custom("tenant", |head| {
    ///     let tenant = head.path().strip_prefix("/tenants/")?.split('/').next()?;
    ///     Some(tenant.to_owned())
    /// })?;
    /// # Ok::<(), tidegate_middleware::extract::ExtractError>(())
    /// ```
    pub fn custom(
        kind: &str,
        read: impl Fn(&dyn RequestHead) -> Option<String> + Send + Sync + 'static,
    ) -> Result<Self, ExtractError> {
        Self::new(kind, IdentitySource::Custom(Arc::new(read)))
    }

    fn value<'r>(&self, head: &'r dyn RequestHead, addresses: &AddressReader, keeps_ip: bool) -> Option<Cow<'r, str>> {
        let is_ip = &*self.kind == "ip";
        let value = match &self.source {
            IdentitySource::Address => {
                let address = if is_ip && keeps_ip { addresses.client(head) } else { addresses.identity(head) };
                return Some(address?.to_string().into());
            }
            IdentitySource::Header(name) => value_of(head.first(name)?),
            IdentitySource::Bearer => sha256_hex(bearer(head.first("authorization")?)?).into(),
            IdentitySource::Path => match normalized_path(head.path()) {
                Cow::Borrowed(path) => value_of(path.as_bytes()),
                Cow::Owned(path) => value_of(path.as_bytes()).into_owned().into(),
            },
            IdentitySource::Custom(read) => value_of(read(head)?.as_bytes()).into_owned().into(),
        };
        if is_ip
            && !keeps_ip
            && let Ok(address) = value.parse()
        {
            return Some(addresses.network(address).to_string().into());
        }
        (!value.is_empty()).then_some(value)
    }
}

impl FromStr for Extractor {
    type Err = ExtractError;

    fn from_str(text: &str) -> Result<Self, ExtractError> {
        let (kind, source) = text.split_once('=').ok_or_else(|| ExtractError::NoSource(quoted(text)))?;
        let source = match source.trim_ascii() {
            "address" => IdentitySource::Address,
            "bearer" => IdentitySource::Bearer,
            "path" => IdentitySource::Path,
            source => match source.strip_prefix("header:") {
                Some(name) if is_header_name(name) => IdentitySource::Header(name.to_ascii_lowercase().into()),
                Some(name) => return Err(ExtractError::Header(quoted(name))),
                None => return Err(ExtractError::Source(quoted(source))),
            },
        };
        Self::new(kind.trim_ascii(), source)
    }
}

/// The extractors of a listener or a guard, in the order in which their identities are checked. They are written with commas
/// between them: `ip=address, api_key=bearer`.
#[derive(Clone, Debug)]
pub struct Extractors {
    each: Box<[Extractor]>,
    addresses: AddressReader,
    /// Whether addresses of the kind `ip` are not cut to their networks.
    keeps_ip: bool,
}

impl Default for Extractors {
    /// Extracts the address of the connection, as `ip`.
    fn default() -> Self {
        let ip = Extractor { kind: "ip".into(), source: IdentitySource::Address };
        Self { each: [ip].into(), addresses: AddressReader::default(), keeps_ip: false }
    }
}

impl Extractors {
    /// Combines one to eight extractors, each of another kind.
    pub fn new(each: impl IntoIterator<Item = Extractor>, addresses: AddressReader) -> Result<Self, ExtractError> {
        let each: Box<[Extractor]> = each.into_iter().collect();
        if each.is_empty() || each.len() > IDENTITIES_MAX {
            return Err(ExtractError::Count(each.len()));
        }
        let mut kinds = HashSet::new();
        match each.iter().find(|extractor| !kinds.insert(&extractor.kind)) {
            Some(twice) => Err(ExtractError::RepeatedKind(twice.kind.to_string())),
            None => Ok(Self { each, addresses, keeps_ip: false }),
        }
    }

    /// Sets how addresses are found; extractors from text trust no proxy until then.
    #[must_use]
    pub fn reading(self, addresses: AddressReader) -> Self {
        Self { addresses, ..self }
    }

    /// Does not cut addresses of the kind `ip`, for an engine that cuts them itself: [`Engine::counted`](tidegate::Engine::counted).
    #[must_use]
    pub fn keep_ip_whole(self) -> Self {
        Self { keeps_ip: true, ..self }
    }

    /// Extracts the identities of a request. An identity whose value is absent or empty is left out.
    pub fn found<'r>(&'r self, head: &'r dyn RequestHead) -> ExtractedIdentities<'r> {
        let extract =
            |extractor: &'r Extractor| Some((&*extractor.kind, extractor.value(head, &self.addresses, self.keeps_ip)?));
        ExtractedIdentities(self.each.iter().filter_map(extract).collect())
    }
}

impl FromStr for Extractors {
    type Err = ExtractError;

    fn from_str(text: &str) -> Result<Self, ExtractError> {
        let each = text.split(',').map(|each| each.trim_ascii().parse()).collect::<Result<Vec<_>, _>>()?;
        Self::new(each, AddressReader::default())
    }
}

/// The identities of one request.
#[derive(Clone, Debug)]
#[must_use]
pub struct ExtractedIdentities<'r>(ArrayVec<(&'r str, Cow<'r, str>), IDENTITIES_MAX>);

impl ExtractedIdentities<'_> {
    /// Returns whether the request has no identity, so that no [`Request`](tidegate::Request) can be made of it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the identities for a [`Request`](tidegate::Request).
    #[must_use]
    pub fn identities(&self) -> ArrayVec<Identity<'_>, IDENTITIES_MAX> {
        // No identity is left out: kinds and lengths were checked before.
        self.0.iter().filter_map(|(kind, value)| Identity::new(kind, value).ok()).collect()
    }
}

/// Returns the value of a header or a path: without white space around it, and cut by [`fitting_value`].
#[must_use]
pub fn value_of(bytes: &[u8]) -> Cow<'_, str> {
    fitting_value(bytes.trim_ascii())
}

/// Returns a value as an identity can have it. A value above 1,024 bytes, or one that is not UTF-8, becomes its beginning, as far
/// as that is text and fits, and its digest (`~sha256:...`). So conditions on a prefix still match it, and it is counted.
#[must_use]
pub fn fitting_value(value: &[u8]) -> Cow<'_, str> {
    let text = value.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    if text.len() == value.len() && text.len() <= VALUE_BYTES_MAX {
        return text.into();
    }
    let (beginning, _) = text.split_at(text.floor_char_boundary(BEGINNING_BYTES_MAX));
    format!("{beginning}~sha256:{}", sha256_hex(value)).into()
}

/// Returns the token of an `Authorization` that is `Bearer TOKEN` (RFC 6750), the scheme in any mix of cases.
#[must_use]
pub fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    const SCHEME: usize = "bearer".len();
    let (scheme, token) = authorization.trim_ascii().split_at_checked(SCHEME)?;
    let token = token.strip_prefix(b" ")?.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty()).then_some(token)
}

/// Returns the SHA-256 of bytes in hexadecimal digits.
fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Returns whether a header can have this name (RFC 9110, section 5.6.2).
fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Returns the beginning of a text, escaped, for a message to quote.
fn quoted(text: &str) -> String {
    text.chars().take(64).collect::<String>().escape_debug().to_string()
}

/// An error of a setting of identities.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExtractError {
    /// The text has no `=`.
    NoSource(String),
    /// The text is not the name of a kind.
    Kind(String),
    /// The text is not a source.
    Source(String),
    /// The text is not the name of a header.
    Header(String),
    /// The number of extractors, which is 0 or more than eight.
    Count(usize),
    /// Two extractors have this kind.
    RepeatedKind(String),
}

impl fmt::Display for ExtractError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSource(text) => write!(f, "`{text}` says no source; write KIND=SOURCE, such as ip=address"),
            Self::Kind(kind) => write!(
                f,
                "`{kind}` is not a kind of identity; begin with a-z, go on with a-z, 0-9 and _, 32 characters at most"
            ),
            Self::Source(source) => {
                write!(f, "`{source}` is not a source; there are address, header:NAME, bearer and path")
            }
            Self::Header(name) => write!(f, "`{name}` is not the name of a header; write one such as header:X-User-Id"),
            Self::Count(count) => write!(f, "{count} identities; give one to {IDENTITIES_MAX}"),
            Self::RepeatedKind(kind) => write!(f, "the kind `{kind}` is given twice; give each once"),
        }
    }
}

impl std::error::Error for ExtractError {}

#[cfg(test)]
mod tests {
    use std::{any::Any, net::IpAddr};

    use super::*;

    struct Head(Vec<(&'static str, &'static [u8])>);

    impl RequestHead for Head {
        fn header(&self, name: &str) -> Vec<&[u8]> {
            self.0.iter().filter(|(own, _)| *own == name).map(|(_, value)| *value).collect()
        }

        fn peer(&self) -> Option<IpAddr> {
            Some(IpAddr::from([0x2001, 0xdb8, 0, 7, 1, 2, 3, 4]))
        }

        fn path(&self) -> &'static str {
            "/a/./b/"
        }

        fn method(&self) -> &'static str {
            "GET"
        }

        fn original(&self) -> &dyn Any {
            &()
        }
    }

    fn found(sources: &[&str], headers: &[(&'static str, &'static [u8])]) -> Vec<(String, String)> {
        let each = sources.iter().map(|text| text.parse::<Extractor>().expect("right"));
        let extractors = Extractors::new(each, AddressReader::default()).expect("right");
        let head = Head(headers.to_vec());
        let found = extractors.found(&head);
        found.identities().iter().map(|it| (it.kind().to_owned(), it.value().to_owned())).collect()
    }

    #[test]
    fn identities_are_read_from_their_sources_in_the_order_of_the_setting() {
        let all = ["user=header:X-User-Id", "ip=address", "api_key=bearer", "page = path"];
        let found = found(
            &all,
            &[
                ("x-user-id", b" ada "),
                ("x-user-id", b"second"),
                ("authorization", b"bEARER abc"),
                ("authorization", b"Bearer other"),
            ],
        );
        let expected = [
            ("user", "ada"),
            ("ip", "2001:db8:0:7::"),
            // printf %s abc | sha256sum
            ("api_key", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            ("page", "/a/b/"),
        ];
        assert_eq!(found, expected.map(|(kind, value)| (kind.to_owned(), value.to_owned())));
    }

    #[test]
    fn several_extractors_are_read_from_one_text() {
        let extractors: Extractors = "page=path,ip=address".parse().expect("right");
        let whole = AddressReader::default().v6_bits(128).expect("right");
        let (extractors, head) = (extractors.reading(whole), Head(Vec::new()));
        let found = extractors.found(&head);
        let found: Vec<_> = found.identities().iter().map(|it| (it.kind(), it.value())).collect();
        assert_eq!(found, [("page", "/a/b/"), ("ip", "2001:db8:0:7:1:2:3:4")]);
    }

    #[test]
    fn an_address_has_one_spelling_wherever_it_stands() {
        for (came, expected) in [
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("192.0.2.7", "192.0.2.7"),
            ("2001:DB8:1:2::7", "2001:db8:1:2::"),
            ("unknown", "unknown"),
        ] {
            let headers = [("x-real-ip", came.as_bytes())];
            assert_eq!(found(&["ip=header:X-Real-IP"], &headers), [("ip".to_owned(), expected.to_owned())]);
            assert_eq!(found(&["from=header:X-Real-IP"], &headers), [("from".to_owned(), came.to_owned())]);
        }
        // An engine cuts it.
        let (head, of) = (Head(Vec::new()), "ip=address,from=address".parse::<Extractors>());
        let extractors = of.expect("right").keep_ip_whole();
        let found = extractors.found(&head);
        let values: Vec<_> = found.identities().iter().map(|it| it.value().to_owned()).collect();
        assert_eq!(values, ["2001:db8:0:7:1:2:3:4", "2001:db8:0:7::"]);
    }

    #[test]
    fn what_is_absent_is_left_out() {
        let asked = ["user=header:x-user-id", "api_key=bearer"];
        for headers in [
            &[][..],
            &[("x-user-id", b"" as &[u8]), ("authorization", b"Bearer ")],
            &[("authorization", b"Basic abc"), ("x-user-id", b"  ")],
            &[("authorization", b"Bearerabc")],
            &[("authorization", b"Bear")],
        ] {
            assert_eq!(found(&asked, headers), [], "{headers:?}");
        }
    }

    #[test]
    fn values_that_the_engine_does_not_take_count_by_their_digest() {
        let long: &'static [u8] = "v".repeat(VALUE_BYTES_MAX + 1).leak().as_bytes();
        let value = |bytes| found(&["user=header:u"], &[("u", bytes)])[0].1.clone();
        assert!(value(b"caf\xe9").starts_with("caf~sha256:") && value(b"caf\xe9").len() == 3 + 72);
        // Its beginning stays, up to the last whole character.
        assert!(value(long).starts_with("vvvv") && value(long).len() == VALUE_BYTES_MAX);
        let wide: &'static [u8] = "\u{20ac}".repeat(VALUE_BYTES_MAX).leak().as_bytes();
        assert!(value(wide).starts_with('\u{20ac}') && value(wide).len() <= VALUE_BYTES_MAX);
        assert_ne!(value(long), value([long, b"v"].concat().leak()));
        assert_eq!(found(&["user=header:u"], &[("u", &long[1..])])[0].1.len(), VALUE_BYTES_MAX);
    }

    #[test]
    fn settings_that_are_wrong_are_named() {
        for (text, part) in [
            ("ip", "`ip` says no source; write KIND=SOURCE"),
            ("IP=address", "`IP` is not a kind"),
            ("=address", "`` is not a kind"),
            ("ip=cookie:x", "`cookie:x` is not a source; there are address"),
            ("ip=", "`` is not a source"),
            ("user=header:", "`` is not the name of a header"),
            ("user=header:X User", "`X User` is not the name"),
        ] {
            let error = text.parse::<Extractor>().expect_err("wrong").to_string();
            assert!(error.contains(part), "{error}");
        }
        let long = format!("{}=address", "k".repeat(10_000)).parse::<Extractor>().expect_err("long");
        assert!(long.to_string().len() < 200, "{long}");
        for (text, error) in [
            ("", ExtractError::NoSource(String::new())),
            ("ip=address,", ExtractError::NoSource(String::new())),
            ("ip=address, ip=path", ExtractError::RepeatedKind("ip".into())),
        ] {
            assert_eq!(text.parse::<Extractors>().map(drop), Err(error));
        }
        let address = || "ip=address".parse::<Extractor>().expect("right");
        let of = |each: Vec<Extractor>| Extractors::new(each, AddressReader::default()).map(drop);
        assert_eq!(of(vec![]), Err(ExtractError::Count(0)));
        assert_eq!(of(vec![address(); 9]), Err(ExtractError::Count(9)));
        assert_eq!(of(vec![address(), address()]), Err(ExtractError::RepeatedKind("ip".into())));
    }
}
