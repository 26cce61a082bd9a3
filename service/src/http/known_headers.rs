//! Finds the headers that every request is searched for, in one pass.

use actix_http::{HttpMessage, Request};
use actix_web::http::header::HeaderValue;

use super::body_reader::BodyHeaders;

/// The header of a token, for callers whose `Authorization` is for another server.
const TOKEN: &str = "x-tidegate-token";
/// The header by which browsers say which page sends a request, to a server that they reach over TLS or on loopback.
/// Elsewhere they send `Origin` alone, and not with images or links.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// A request with the headers that every request is searched for, found in one pass. Of a header that comes twice, the
/// first counts.
#[derive(Clone, Copy)]
pub(super) struct KnownHeaders<'r> {
    pub(super) request: &'r Request,
    /// Bytes of all headers, also of the others.
    pub(super) bytes: usize,
    pub(super) host: Option<&'r HeaderValue>,
    pub(super) origin: Option<&'r HeaderValue>,
    pub(super) sec_fetch_site: Option<&'r HeaderValue>,
    pub(super) authorization: Option<&'r HeaderValue>,
    pub(super) token: Option<&'r HeaderValue>,
    pub(super) body: BodyHeaders<'r>,
}

impl<'r> KnownHeaders<'r> {
    pub(super) fn of(request: &'r Request) -> Self {
        let mut known = Self {
            request,
            bytes: 0,
            host: None,
            origin: None,
            sec_fetch_site: None,
            authorization: None,
            token: None,
            body: BodyHeaders::default(),
        };
        for (name, value) in request.headers() {
            let name = name.as_str();
            known.bytes += name.len() + value.len();
            let header = match name {
                "host" => &mut known.host,
                "content-type" => &mut known.body.media_type,
                "content-length" => &mut known.body.length,
                "content-encoding" => &mut known.body.encoding,
                "authorization" => &mut known.authorization,
                "origin" => &mut known.origin,
                SEC_FETCH_SITE => &mut known.sec_fetch_site,
                TOKEN => &mut known.token,
                _ => continue,
            };
            header.get_or_insert(value);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderName;
    use proptest::prelude::*;

    use super::*;

    /// Names of headers that every request is searched for, and others.
    static NAMES_OF_REQUESTS: [&str; 10] = [
        "host",
        "content-type",
        "content-length",
        "content-encoding",
        "authorization",
        "origin",
        SEC_FETCH_SITE,
        TOKEN,
        "accept",
        "hosts",
    ];

    /// Generates a name in some mixture of cases, and a value.
    fn header() -> impl Strategy<Value = (String, String)> {
        let name = (prop::sample::select(&NAMES_OF_REQUESTS[..]), any::<u32>()).prop_map(|(name, capitals)| {
            let letter = |(place, letter): (usize, char)| {
                if capitals >> (place % 32) & 1 == 1 { letter.to_ascii_uppercase() } else { letter }
            };
            name.chars().enumerate().map(letter).collect()
        });
        (name, "[!-~]{0,9}")
    }

    proptest! {
        #[test]
        fn known_headers_are_those_that_a_lookup_finds(headers in prop::collection::vec(header(), 0..24)) {
            let mut request = Request::new();
            for (name, value) in &headers {
                let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
                request.headers_mut().append(name, HeaderValue::from_str(value).expect("a value"));
            }
            let known = KnownHeaders::of(&request);
            for (name, found) in [
                ("host", known.host),
                ("content-type", known.body.media_type),
                ("content-length", known.body.length),
                ("content-encoding", known.body.encoding),
                ("authorization", known.authorization),
                ("origin", known.origin),
                (SEC_FETCH_SITE, known.sec_fetch_site),
                (TOKEN, known.token),
            ] {
                prop_assert_eq!(found, request.headers().get(name), "{}", name);
            }
            let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
            prop_assert_eq!(known.bytes, bytes);
        }
    }
}
