//! Request paths: normalizes them (RFC 3986) for the match with rules, and truncates those that are too long for a request.

use std::borrow::Cow;

use arrayvec::ArrayVec;

use crate::policy::request::ENDPOINT_BYTES_MAX;

/// The most segments of a pattern.
pub(crate) const SEGMENTS_MAX: usize = 64;

/// A buffer on the stack for a path that normalization changes.
pub(crate) type PathBuffer = ArrayVec<u8, ENDPOINT_BYTES_MAX>;

/// Returns a path as rules see it: cut at `?` and `#`, unreserved octets decoded, empty and dot segments removed. Case and a
/// trailing slash stay. Use it to count or compare paths outside of a policy.
///
/// ```
/// assert_eq!(tidegate::normalized_path("/a//./%62?q=1"), "/a/b");
/// ```
#[must_use]
pub fn normalized_path(endpoint: &str) -> Cow<'_, str> {
    let mut buffer = PathBuffer::new();
    let plain = normalize_path(endpoint, &mut buffer);
    match endpoint.strip_prefix(plain) {
        Some(_) => Cow::Borrowed(&endpoint[..plain.len()]),
        None => Cow::Owned(plain.to_owned()),
    }
}

/// Returns an endpoint that fits into a [`Request`](crate::Request). A longer one is normalized, keeps one segment more than
/// patterns may have, and has its long segments cut. Use it where a long path of an end user must be neither refused nor left
/// uncounted: the result matches the patterns that the whole path matches, except those with a segment longer than it was cut
/// to, which is at least 64 bytes.
///
/// ```
/// let path = format!("{}search?q=1", "/".repeat(10_000));
/// assert_eq!(tidegate::truncated_path(&path), "/search");
/// ```
#[must_use]
pub fn truncated_path(endpoint: &str) -> Cow<'_, str> {
    if endpoint.len() <= ENDPOINT_BYTES_MAX { Cow::Borrowed(endpoint) } else { truncated(without_query(endpoint)) }
}

#[cold]
fn truncated(path: &str) -> Cow<'_, str> {
    if path.len() <= ENDPOINT_BYTES_MAX {
        return Cow::Borrowed(path);
    }
    let Some(below) = path.strip_prefix('/') else {
        return Cow::Borrowed(&path[..path.floor_char_boundary(ENDPOINT_BYTES_MAX)]);
    };
    // `beyond` counts the segments after those that are kept.
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

/// Returns a path as rules see it: cut at `?` and `#`, unreserved octets decoded, empty and dot segments removed (RFC 3986,
/// sections 5.2.4 and 6.2.2). Case and a trailing slash stay. An endpoint that does not begin with `/` is only cut.
pub(crate) fn normalize_path<'a>(endpoint: &'a str, buffer: &'a mut PathBuffer) -> &'a str {
    // Nearly every endpoint is normalized already.
    if endpoint.starts_with('/') && is_plain(endpoint) {
        return endpoint;
    }
    let path = without_query(endpoint);
    if !path.starts_with('/') || path.len() > ENDPOINT_BYTES_MAX || is_plain(path) {
        return path;
    }
    remove_dots(path.as_bytes(), buffer);
    // Only whole ASCII characters were written or left out, so this is still UTF-8.
    std::str::from_utf8(buffer).unwrap_or(path)
}

/// Returns whether a path that begins with `/` is normalized already.
fn is_plain(path: &str) -> bool {
    let is_odd =
        |pair: &[u8]| matches!(pair[1], b'?' | b'#' | b'%') | (pair[0] == b'/' && matches!(pair[1], b'/' | b'.'));
    // The loop does not stop early: that takes fewer instructions for each byte.
    !path.as_bytes().windows(2).fold(false, |is_any, pair| is_any | is_odd(pair))
}

/// Writes `path` without empty and dot segments to `plain`. The path must begin with `/` and have at most
/// [`ENDPOINT_BYTES_MAX`] bytes; `plain` gets no more than that.
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

/// Decodes `%XX` if it stands for a letter, a digit, `-`, `.`, `_` or `~`; writes other triplets with capital digits.
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
    fn paths_are_normalized() {
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
            assert_eq!(normalize_path(endpoint, &mut PathBuffer::new()), plain, "{endpoint}");
            assert_eq!(normalized_path(endpoint), plain, "{endpoint}");
        }
    }

    #[test]
    fn a_long_path_is_truncated_and_matches_the_same_patterns() {
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
            let fitting = truncated_path(&endpoint);
            assert_eq!(fitting, plain, "{endpoint:.20}");
            assert_eq!(normalize_path(&fitting, &mut PathBuffer::new()), plain, "{endpoint:.20}");
        }
        let (long, tail) = (format!("/{}", "é".repeat(300)), "/y".repeat(100));
        let all_long = long.repeat(64) + &tail;
        let fitting = truncated_path(&all_long);
        assert!(fitting.len() <= ENDPOINT_BYTES_MAX && fitting.split('/').skip(1).count() == 65);
        assert!(fitting.split('/').skip(1).take(64).all(|segment| segment.len() >= 64), "{fitting}");
        assert_eq!(truncated_path("/a/../b?q"), "/a/../b?q", "a path that fits is unchanged");
        let endpoints = |pattern| Endpoints::parse([pattern]).expect("a pattern");
        for pattern in ["/files/{id}/download", "/files/*", "/{any}/{id}/{what}"] {
            let has = |path: &str| endpoints(pattern).has(&truncated_path(path));
            assert!(has(&format!("/files/{much}/download")) && has(&format!("{slashes}files/{much}/%64ownload?")));
        }
    }

    proptest::proptest! {
        #[test]
        fn truncation_normalizes_as_a_check_does(path in "(/|/[.]|/[.][.]|[a-c%2Ee?#é]){0,40}") {
            let long = "/".repeat(ENDPOINT_BYTES_MAX + 1) + &path;
            let fitting = truncated_path(&long);
            let (plain, mut buffer) = (format!("/{path}"), PathBuffer::new());
            proptest::prop_assert_eq!(&*fitting, normalize_path(&plain, &mut buffer), "{}", path);
        }
    }
}
