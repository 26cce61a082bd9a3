//! Paths of requests: normalization (RFC 3986) as rules see them, and truncation of those that are too long for a request.

use std::borrow::Cow;

use arrayvec::ArrayVec;

use crate::policy::request::ENDPOINT_BYTES_MAX;

/// Segments that a pattern may have.
pub(crate) const SEGMENTS_MAX: usize = 64;

/// Room for a path that has to be written anew, on the stack.
pub(crate) type PathBuffer = ArrayVec<u8, ENDPOINT_BYTES_MAX>;

/// A path as rules see it: cut at `?` and `#`, unreserved octets decoded, empty and dot segments removed. Case and a trailing
/// slash stay. For whoever counts or compares paths outside of a policy.
///
/// ```
/// assert_eq!(tidegate::plain_path("/a//./%62?q=1"), "/a/b");
/// ```
#[must_use]
pub fn plain_path(endpoint: &str) -> Cow<'_, str> {
    let mut buffer = PathBuffer::new();
    let plain = made_plain(endpoint, &mut buffer);
    match endpoint.strip_prefix(plain) {
        Some(_) => Cow::Borrowed(&endpoint[..plain.len()]),
        None => Cow::Owned(plain.to_owned()),
    }
}

/// An endpoint as it is where it fits into a [`Request`](crate::Request), and of a longer one as much as rules need: a path as
/// they see it, with as many segments as patterns may have and one more, the long ones cut. For whoever is not to refuse what
/// an end user wrote, nor to let it go uncounted: it matches what the whole path matches, but for patterns in which a segment
/// is longer than it was cut to, which is 64 bytes at least.
///
/// ```
/// let path = format!("{}search?q=1", "/".repeat(10_000));
/// assert_eq!(tidegate::fitting_path(&path), "/search");
/// ```
#[must_use]
pub fn fitting_path(endpoint: &str) -> Cow<'_, str> {
    if endpoint.len() <= ENDPOINT_BYTES_MAX { Cow::Borrowed(endpoint) } else { fitted(without_query(endpoint)) }
}

#[cold]
fn fitted(path: &str) -> Cow<'_, str> {
    if path.len() <= ENDPOINT_BYTES_MAX {
        return Cow::Borrowed(path);
    }
    let Some(below) = path.strip_prefix('/') else {
        return Cow::Borrowed(&path[..path.floor_char_boundary(ENDPOINT_BYTES_MAX)]);
    };
    // How many there are beyond those that are kept.
    let (mut segments, mut beyond, mut ends_with_slash) = (Vec::new(), 0_usize, false);
    for segment in below.split('/') {
        let mut plain = Vec::new();
        decode_unreserved(segment.as_bytes(), &mut plain);
        ends_with_slash = matches!(&*plain, b"" | b"." | b"..");
        match &*plain {
            b"" | b"." => {}
            b".." if beyond > 0 => beyond -= 1,
            b".." => drop(segments.pop()),
            _ if segments.len() > SEGMENTS_MAX => beyond += 1,
            _ => segments.push(String::from_utf8_lossy(&plain).into_owned()),
        }
    }
    if ends_with_slash {
        segments.push(String::new());
    }
    let mut longest = ENDPOINT_BYTES_MAX;
    while segments.iter().map(|segment| 1 + segment.len().min(longest)).sum::<usize>() > ENDPOINT_BYTES_MAX {
        longest /= 2;
    }
    let cut = segments.iter().flat_map(|segment| ["/", &segment[..segment.floor_char_boundary(longest)]]);
    Cow::Owned(cut.collect())
}

fn without_query(endpoint: &str) -> &str {
    &endpoint[..endpoint.find(['?', '#']).unwrap_or(endpoint.len())]
}

/// A path as rules see it: cut at `?` and `#`, unreserved octets decoded, empty and dot segments removed (RFC 3986,
/// sections 5.2.4 and 6.2.2). Case and a trailing slash stay. What does not begin with `/` is only cut.
pub(crate) fn made_plain<'a>(endpoint: &'a str, buffer: &'a mut PathBuffer) -> &'a str {
    // Nearly every endpoint is plain as it is.
    if endpoint.starts_with('/') && is_plain(endpoint) {
        return endpoint;
    }
    let path = without_query(endpoint);
    if !path.starts_with('/') || path.len() > ENDPOINT_BYTES_MAX || is_plain(path) {
        return path;
    }
    remove_dots(path.as_bytes(), buffer);
    // Only whole ASCII characters were written or left out, so this is UTF-8 as before.
    std::str::from_utf8(buffer).unwrap_or(path)
}

/// Returns whether a path that begins with `/` is plain as it is.
fn is_plain(path: &str) -> bool {
    let is_odd =
        |pair: &[u8]| matches!(pair[1], b'?' | b'#' | b'%') | (pair[0] == b'/' && matches!(pair[1], b'/' | b'.'));
    // To the end, without a way out: that takes fewer steps for each byte.
    !path.as_bytes().windows(2).fold(false, |is_any, pair| is_any | is_odd(pair))
}

/// `path` begins with `/` and has at most [`ENDPOINT_BYTES_MAX`] bytes; `plain` gets no more than that.
fn remove_dots(path: &[u8], plain: &mut PathBuffer) {
    let mut segments = path[1..].split(|&byte| byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        let parent = plain.len();
        plain.push(b'/');
        decode_unreserved(segment, plain);
        let drop_to = match &plain[parent + 1..] {
            b"" | b"." => Some(parent),
            b".." => Some(plain[..parent].iter().rposition(|&byte| byte == b'/').unwrap_or(0)),
            _ => None,
        };
        if let Some(length) = drop_to {
            plain.truncate(length);
            if is_last {
                plain.push(b'/');
            }
        }
    }
}

/// Decodes `%XX` where it stands for a letter, a digit, `-`, `.`, `_` or `~`; writes the others with capital digits.
fn decode_unreserved(segment: &[u8], plain: &mut impl Extend<u8>) {
    let hex = |byte: u8| (byte as char).to_digit(16);
    let is_unreserved = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let mut rest = segment;
    while let [first, tail @ ..] = rest {
        rest = tail;
        let triplet = match (first, tail) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)).map(|(high_value, low_value)| {
                rest = &tail[2..];
                ((high_value * 16 + low_value) as u8, [high.to_ascii_uppercase(), low.to_ascii_uppercase()])
            }),
            _ => None,
        };
        match triplet {
            None => plain.extend([*first]),
            Some((byte, _)) if is_unreserved(&byte) => plain.extend([byte]),
            Some((_, [high, low])) => plain.extend([b'%', high, low]),
        }
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;
    use crate::policy::pattern::Endpoints;

    #[test]
    fn paths_are_made_plain() {
        for (endpoint, plain) in [
            ("/a/b", "/a/b"),
            ("/a/b?q=1#f", "/a/b"),
            ("/a#f?q", "/a"),
            ("//a///b", "/a/b"),
            ("/a/", "/a/"),
            ("/a//", "/a/"),
            ("/", "/"),
            ("//", "/"),
            ("/a/./b", "/a/b"),
            ("/a/.", "/a/"),
            ("/a/b/..", "/a/"),
            ("/a/b/../c", "/a/c"),
            ("/../../a", "/a"),
            ("/%61%2Db/%7e", "/a-b/~"),
            ("/a%2Fb", "/a%2Fb"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/%2e%2E/x", "/x"),
            ("/50%", "/50%"),
            ("/%zz", "/%zz"),
            ("/Case/Stays", "/Case/Stays"),
            ("/é/./x", "/é/x"),
            ("/.hidden", "/.hidden"),
            ("/a..b/..c", "/a..b/..c"),
            ("no-slash/../x", "no-slash/../x"),
            ("", ""),
            ("?q", ""),
        ] {
            assert_eq!(made_plain(endpoint, &mut PathBuffer::new()), plain, "{endpoint}");
            assert_eq!(plain_path(endpoint), plain, "{endpoint}");
        }
    }

    #[test]
    fn what_is_too_long_is_made_to_fit_and_matches_what_it_did() {
        let (much, slashes) = ("x".repeat(ENDPOINT_BYTES_MAX), "/".repeat(ENDPOINT_BYTES_MAX + 1));
        for (endpoint, plain) in [
            (format!("{slashes}search"), "/search".to_owned()),
            (format!("/search?q={much}"), "/search".to_owned()),
            (format!("/search#{much}?"), "/search".to_owned()),
            (format!("/{much}/%2E./search/"), "/search/".to_owned()),
            (format!("{}{}search", "/a".repeat(9_000), "/..".repeat(9_000) + "/"), "/search".to_owned()),
            (format!("{slashes}%73earch%2fx/."), "/search%2Fx/".to_owned()),
            (slashes.clone(), "/".to_owned()),
            (format!("{slashes}../.."), "/".to_owned()),
            (format!("/files/{much}/download"), format!("/files/{}/download", &much[..4_096])),
            ("/a".repeat(9_000), "/a".repeat(65)),
            (format!("{}/", "/a".repeat(9_000)), "/a".repeat(65) + "/"),
            (format!("x{much}"), format!("x{}", &much[1..])),
            ("/é".repeat(9_000), "/é".repeat(65)),
        ] {
            let fitting = fitting_path(&endpoint);
            assert_eq!(fitting, plain, "{endpoint:.20}");
            assert_eq!(made_plain(&fitting, &mut PathBuffer::new()), plain, "{endpoint:.20}");
        }
        let (long, tail) = (format!("/{}", "é".repeat(300)), "/y".repeat(100));
        let all_long = long.repeat(64) + &tail;
        let fitting = fitting_path(&all_long);
        assert!(fitting.len() <= ENDPOINT_BYTES_MAX && fitting.split('/').skip(1).count() == 65);
        assert!(fitting.split('/').skip(1).take(64).all(|segment| segment.len() >= 64), "{fitting}");
        assert_eq!(fitting_path("/a/../b?q"), "/a/../b?q", "what fits is as it was");
        let endpoints = |pattern| Endpoints::parse([pattern]).expect("a pattern");
        for pattern in ["/files/{id}/download", "/files/*", "/{any}/{id}/{what}"] {
            let has = |path: &str| endpoints(pattern).has(&fitting_path(path));
            assert!(has(&format!("/files/{much}/download")) && has(&format!("{slashes}files/{much}/%64ownload?")));
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_made_to_fit_is_plain_as_ever(path in "(/|/[.]|/[.][.]|[a-c%2Ee?#é]){0,40}") {
            let long = "/".repeat(ENDPOINT_BYTES_MAX + 1) + &path;
            let fitting = fitting_path(&long);
            let (plain, mut buffer) = (format!("/{path}"), PathBuffer::new());
            proptest::prop_assert_eq!(&*fitting, made_plain(&plain, &mut buffer), "{}", path);
        }
    }
}
