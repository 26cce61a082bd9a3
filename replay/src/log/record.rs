//! Record of a request, the result of parsing a line of any format.

use std::borrow::Cow;

use arrayvec::ArrayVec;
use tidegate::{Identity, Request, RequestError};

use crate::clients::IdentityKind;

/// A request as it was logged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LogRecord<'l> {
    pub(crate) time: u64,
    /// The whole address; the engine derives the value under which it is counted.
    pub(crate) client: Option<Cow<'l, str>>,
    pub(crate) user: Option<Cow<'l, str>>,
    /// The kind of identity of the user.
    pub(crate) kind: &'l str,
    pub(crate) target: RequestTarget<'l>,
}

/// The method and the path of a request, if they are known: servers also log input that was not a valid request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RequestTarget<'l> {
    pub(crate) method: Option<Cow<'l, str>>,
    /// The path without its query.
    pub(crate) endpoint: Option<Cow<'l, str>>,
}

impl LogRecord<'_> {
    /// Runs a function with the request of this record.
    pub(crate) fn with_request<T>(&self, run: impl FnOnce(&Request<'_>) -> T) -> Result<T, RequestError> {
        let (method, endpoint) = (self.target.method.as_deref(), self.target.endpoint.as_deref());
        with_request(self.client.as_deref(), self.user.as_deref().map(|user| (self.kind, user)), method, endpoint, run)
    }
}

/// Runs a function with a request of the given parts; `user` is a kind and a value.
pub(crate) fn with_request<T>(
    client: Option<&str>,
    user: Option<(&str, &str)>,
    method: Option<&str>,
    endpoint: Option<&str>,
    run: impl FnOnce(&Request<'_>) -> T,
) -> Result<T, RequestError> {
    let client = client.map(|client| Identity::new(IdentityKind::IP, client)).transpose()?;
    let user = user.map(|(kind, value)| Identity::new(kind, value)).transpose()?;
    let both: ArrayVec<_, 2> = client.into_iter().chain(user).collect();
    Ok(run(&with_parts(Request::new(&both)?, [endpoint, method, None])?))
}

/// Adds the parts that are `Some` to a request.
pub(crate) fn with_parts<'r>(
    mut request: Request<'r>,
    [endpoint, method, tier]: [Option<&'r str>; 3],
) -> Result<Request<'r>, RequestError> {
    if let Some(endpoint) = endpoint {
        request = request.endpoint(endpoint)?;
    }
    if let Some(method) = method {
        request = request.method(method);
    }
    Ok(tier.map_or(request, |tier| request.tier(tier)))
}

const METHOD_BYTES_MAX: usize = 32;

impl<'l> RequestTarget<'l> {
    /// Reads a request line: `GET /path HTTP/1.1`, `GET /path`, or a path alone. A path may have spaces, as some clients
    /// send them. Bytes that are not UTF-8 are replaced.
    pub(crate) fn of_request(request: &'l [u8]) -> Self {
        let request = request.trim_ascii();
        if request.first() == Some(&b'/') {
            return Self { method: None, endpoint: Some(endpoint(request)) };
        }
        let Some(space) = memchr::memchr(b' ', request) else { return Self::default() };
        let (method, path) = (&request[..space], request[space..].trim_ascii());
        let is_method = method.first().is_some_and(u8::is_ascii_alphabetic)
            && method.iter().all(|byte| byte.is_ascii_alphabetic() || b"-_".contains(byte));
        if method.len() > METHOD_BYTES_MAX || !is_method {
            return Self::default();
        }
        let path = match memchr::memrchr(b' ', path) {
            Some(space) if path[space + 1..].starts_with(b"HTTP/") => path[..space].trim_ascii_end(),
            _ => path,
        };
        if path.is_empty() || path.starts_with(b"HTTP/") {
            return Self::default();
        }
        Self { method: Some(readable(method)), endpoint: Some(endpoint(path)) }
    }

    /// Takes a method and a path or URL from separate fields.
    pub(crate) fn of_fields(method: Option<Cow<'l, str>>, path: Option<Cow<'l, str>>) -> Self {
        let endpoint = path.filter(|path| !path.is_empty() && path != "-").map(|path| match path {
            Cow::Borrowed(path) => endpoint(path.as_bytes()),
            Cow::Owned(path) => Cow::Owned(endpoint(path.as_bytes()).into_owned()),
        });
        let is_method = |method: &Cow<'_, str>| (1..=METHOD_BYTES_MAX).contains(&method.len()) && method != "-";
        Self { method: method.filter(is_method), endpoint }
    }
}

/// Splits a text at the first space.
pub(crate) fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = memchr::memchr(b' ', text).filter(|&space| space > 0)?;
    Some((&text[..space], &text[space + 1..]))
}

/// Decodes text and replaces invalid UTF-8. Nearly all text is valid, and checking that first is fastest.
pub(crate) fn readable(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// Returns the path of a URL, without scheme, host, query and fragment.
fn endpoint(address: &[u8]) -> Cow<'_, str> {
    let end = memchr::memchr2(b'?', b'#', address).unwrap_or(address.len());
    let path = &address[..end];
    if path.first() == Some(&b'/') {
        return readable(path);
    }
    let is_scheme = |scheme: &[u8]| !scheme.is_empty() && scheme.iter().all(u8::is_ascii_alphanumeric);
    let after_scheme = memchr::memmem::find(path, b"://").filter(|&at| is_scheme(&path[..at])).map(|at| at + 3);
    match after_scheme.map(|host| (host, memchr::memchr(b'/', &path[host..]))) {
        Some((host, Some(slash))) => readable(&path[host + slash..]),
        Some((_, None)) => Cow::Borrowed("/"),
        None => readable(path),
    }
}

impl LogRecord<'_> {
    pub(crate) fn into_owned(self) -> LogRecord<'static> {
        LogRecord {
            time: self.time,
            client: self.client.map(owned),
            user: self.user.map(owned),
            kind: IdentityKind::USER,
            target: self.target.into_owned(),
        }
    }
}

impl RequestTarget<'_> {
    pub(crate) fn into_owned(self) -> RequestTarget<'static> {
        RequestTarget { method: self.method.map(owned), endpoint: self.endpoint.map(owned) }
    }
}

fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_lines_become_methods_and_paths() {
        for (request, method, path) in [
            ("GET /a/b?q=1 HTTP/1.1", Some("GET"), Some("/a/b")),
            ("GET /a", Some("GET"), Some("/a")),
            ("GET /a b HTTP/1.0", Some("GET"), Some("/a b")),
            ("GET /HTTP/x HTTP/1.0", Some("GET"), Some("/HTTP/x")),
            ("M-SEARCH * HTTP/1.1", Some("M-SEARCH"), Some("*")),
            ("GET http://example.org/a?q HTTP/1.1", Some("GET"), Some("/a")),
            ("GET http://example.org HTTP/1.1", Some("GET"), Some("/")),
            ("GET https://example.org?q HTTP/1.1", Some("GET"), Some("/")),
            ("GET /to/http://example.org HTTP/1.1", Some("GET"), Some("/to/http://example.org")),
            ("CONNECT example.org:443 HTTP/1.1", Some("CONNECT"), Some("example.org:443")),
            ("/only#here", None, Some("/only")),
            ("GET / HTTP/1.1", Some("GET"), Some("/")),
            ("-", None, None),
            // Written by AWS load balancers if there was no request.
            ("- http://example.org:443- -", None, None),
            ("- - - ", None, None),
            ("", None, None),
            ("GET", None, None),
            ("GET HTTP/1.1", None, None),
            (r"\x16\x03\x01 \x00", None, None),
        ] {
            let target = RequestTarget::of_request(request.as_bytes());
            assert_eq!((target.method.as_deref(), target.endpoint.as_deref()), (method, path), "{request}");
        }
        assert_eq!(RequestTarget::of_request(b"GET /\xff HTTP/1.1").endpoint.as_deref(), Some("/\u{fffd}"));
    }
}
