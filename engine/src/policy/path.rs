//! Endpoint patterns: how a path is made plain, and which pattern matches it most closely.

use std::borrow::Cow;

use arrayvec::ArrayVec;
use rapidhash::RapidHashMap;

use crate::policy::request::ENDPOINT_BYTES_MAX;

/// Segments that a pattern may have.
const SEGMENTS_MAX: usize = 64;

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

/// A part of a pattern.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Part {
    Literal(Box<str>),
    /// `{name}`: one segment that is not empty.
    Parameter,
    /// `*` at the end: all that is left, at least the slash before it.
    Rest,
}

/// An endpoint pattern. Of patterns that match the same path, the closest is the least.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Pattern {
    Path(Vec<Part>),
    /// `*`: everything, also a request without endpoint.
    Any,
}

impl Pattern {
    /// Reads `/exact`, `/users/{id}`, `/api/*` or `*`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Any);
        }
        if !text.starts_with('/') {
            return Err(format!("`{text}` must begin with `/`, or be `*` for everything"));
        }
        if text.len() > ENDPOINT_BYTES_MAX {
            return Err(format!("longer than {ENDPOINT_BYTES_MAX} bytes"));
        }
        if text.contains(['?', '#']) {
            return Err(format!("`{text}` has a query or a fragment; rules see the path alone"));
        }
        let mut buffer = PathBuffer::new();
        let plain = made_plain(text, &mut buffer);
        let segments: Vec<&str> = plain[1..].split('/').collect();
        if segments.len() > SEGMENTS_MAX {
            return Err(format!("more than {SEGMENTS_MAX} segments"));
        }
        let last = segments.len() - 1;
        let part = |(place, segment): (usize, &&str)| match *segment {
            "*" if place == last => Ok(Part::Rest),
            name if name.len() > 2 && name.starts_with('{') && name.ends_with('}') => Ok(Part::Parameter),
            literal if literal.contains(['{', '}', '*']) => {
                Err(format!("`{literal}`: a segment is a literal or `{{name}}`, and `*` stands alone at the end"))
            }
            literal => Ok(Part::Literal(literal.into())),
        };
        Ok(Self::Path(segments.iter().enumerate().map(part).collect::<Result<_, _>>()?))
    }
}

/// Finds the pattern that matches a path most closely: segment by segment from the left, a literal before `{name}`
/// before a trailing `*`.
#[derive(Debug, Default)]
pub(crate) struct PatternTree<T> {
    root: Node<T>,
    any: Option<T>,
}

#[derive(Debug, Default)]
struct Node<T> {
    /// The literal segments that are the only way on, up to the next choice; then all other ways are empty.
    only: Option<Box<(Box<str>, Node<T>)>>,
    literals: RapidHashMap<Box<str>, Node<T>>,
    parameter: Option<Box<Node<T>>>,
    /// Of the pattern that ends here.
    here: Option<T>,
    /// Of the pattern that goes on with `*`.
    rest: Option<T>,
}

impl<T: Default> PatternTree<T> {
    /// Returns the tree of these patterns, whose values `set` makes of those of before, or the default.
    pub(crate) fn new<V>(patterns: impl IntoIterator<Item = (Pattern, V)>, set: impl Fn(&mut T, V)) -> Self {
        let mut tree = Self::default();
        for (pattern, value) in patterns {
            set(tree.entry(&pattern), value);
        }
        tree.root.join();
        tree
    }

    fn entry(&mut self, pattern: &Pattern) -> &mut T {
        let Pattern::Path(parts) = pattern else { return self.any.get_or_insert_default() };
        let mut node = &mut self.root;
        for part in parts {
            node = match part {
                Part::Literal(literal) => node.literals.entry(literal.clone()).or_default(),
                Part::Parameter => node.parameter.get_or_insert_default(),
                Part::Rest => return node.rest.get_or_insert_default(),
            };
        }
        node.here.get_or_insert_default()
    }

    /// Calls `change` on the value of each pattern.
    pub(crate) fn for_each_mut(&mut self, mut change: impl FnMut(&mut T)) {
        self.any.iter_mut().for_each(&mut change);
        let mut nodes = vec![&mut self.root];
        while let Some(Node { only, literals, parameter, here, rest }) = nodes.pop() {
            here.iter_mut().chain(rest).for_each(&mut change);
            let only = only.as_deref_mut().map(|(_, node)| node);
            nodes.extend(literals.values_mut().chain(parameter.as_deref_mut()).chain(only));
        }
    }

    /// Returns the value of each pattern.
    pub(crate) fn each(&self) -> impl Iterator<Item = &T> {
        let mut nodes = vec![&self.root];
        let mut values: Vec<&T> = self.any.iter().collect();
        while let Some(Node { only, literals, parameter, here, rest }) = nodes.pop() {
            values.extend(here.iter().chain(rest));
            let only = only.as_deref().map(|(_, node)| node);
            nodes.extend(literals.values().chain(parameter.as_deref()).chain(only));
        }
        values.into_iter()
    }

    /// Returns the first that `find` finds in the values of the patterns that match, closest first. `path` is plain, `None`
    /// for a request without endpoint.
    pub(crate) fn closest<'t, V>(&'t self, path: Option<&str>, find: impl Fn(&'t T) -> Option<V>) -> Option<V> {
        let below = path.and_then(|path| path.strip_prefix('/'));
        below.and_then(|below| self.root.closest(Some(below), &find)).or_else(|| self.any.as_ref().and_then(find))
    }
}

impl<T> Node<T> {
    /// Joins the segments that are the only way on, from here and from all nodes below.
    fn join(&mut self) {
        let Self { only, literals, parameter, rest, .. } = self;
        literals.values_mut().chain(parameter.as_deref_mut()).for_each(Self::join);
        if literals.len() == 1 && parameter.is_none() && rest.is_none() {
            *only = literals.drain().next().map(|(segment, mut next)| {
                let joined = next.only.take_if(|_| next.here.is_none()).map(|further| {
                    let (segments, node) = *further;
                    (format!("{segment}/{segments}").into(), node)
                });
                Box::new(joined.unwrap_or((segment, next)))
            });
        }
    }

    /// `below` is what comes after the slash that leads on from this node, if one does.
    fn closest<'t, V>(&'t self, below: Option<&str>, find: &impl Fn(&'t T) -> Option<V>) -> Option<V> {
        let Some(below) = below else { return self.here.as_ref().and_then(find) };
        if let Some((segments, next)) = self.only.as_deref() {
            let deeper = below.strip_prefix(&**segments)?;
            return if deeper.is_empty() {
                next.closest(None, find)
            } else {
                next.closest(Some(deeper.strip_prefix('/')?), find)
            };
        }
        // Segments are short: a search that is made for long texts takes longer.
        let (segment, deeper) = match below.bytes().position(|byte| byte == b'/') {
            Some(end) => (&below[..end], Some(&below[end + 1..])),
            None => (below, None),
        };
        let by_literal = self.literals.get(segment).and_then(|node| node.closest(deeper, find));
        by_literal
            .or_else(|| {
                let node = self.parameter.as_ref().filter(|_| !segment.is_empty())?;
                node.closest(deeper, find)
            })
            .or_else(|| self.rest.as_ref().and_then(find))
    }
}

/// Endpoints by patterns as rules have them: `/exact`, `/users/{id}`, `/api/*`, `*`. For whoever leaves some out before asking.
///
/// ```
/// use tidegate::Endpoints;
///
/// let exempt = Endpoints::parse(["/healthz", "/assets/*"])?;
/// assert!(exempt.has("/assets/../healthz?verbose"));
/// assert!(!exempt.has("/assets/../search"));
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Default)]
pub struct Endpoints(PatternTree<bool>);

impl Endpoints {
    /// Those that match one of the patterns; in words, which is wrong.
    pub fn parse<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let patterns: Vec<_> = patterns.into_iter().map(Pattern::parse).collect::<Result<_, _>>()?;
        Ok(Self(PatternTree::new(patterns.into_iter().map(|pattern| (pattern, true)), |has, is_one| *has = is_one)))
    }

    /// Is this path one of them? Without query and fragment, and with dot segments removed, as rules see it.
    #[must_use]
    pub fn has(&self, endpoint: &str) -> bool {
        self.0.closest(Some(made_plain(endpoint, &mut PathBuffer::new())), |is_one| is_one.then_some(())).is_some()
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

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

    #[test]
    fn the_closest_pattern_wins_whatever_the_order() {
        let mut patterns =
            ["/*", "*", "/users/{id}", "/users/me", "/users/*", "/users/{id}/posts", "/{x}/me/posts", "/api/*"];
        for _ in 0..2 {
            let parsed = patterns.map(|pattern| (Pattern::parse(pattern).expect("valid"), pattern));
            let tree = PatternTree::new(parsed, |known, pattern| *known = pattern);
            let closest =
                |path, but| tree.closest(path, |pattern| Some(*pattern).filter(|pattern| ![but, ""].contains(pattern)));
            for (path, expected) in [
                ("/users/me", "/users/me"),
                ("/users/7", "/users/{id}"),
                ("/users/", "/users/*"),
                ("/users/7/posts", "/users/{id}/posts"),
                // A literal first segment wins over everything that a later segment could say.
                ("/users/me/posts", "/users/{id}/posts"),
                ("/teams/me/posts", "/{x}/me/posts"),
                ("/users/7/posts/9", "/users/*"),
                ("/api", "/*"),
                ("/api/", "/api/*"),
                ("/api/x/y", "/api/*"),
                ("/", "/*"),
                ("plain", "*"),
                ("", "*"),
            ] {
                assert_eq!(closest(Some(path), ""), Some(expected), "{path}");
            }
            assert_eq!(closest(None, ""), Some("*"));
            // What is not accepted makes room for the next closest.
            assert_eq!(closest(Some("/users/me"), "/users/me"), Some("/users/{id}"));
            patterns.reverse();
        }
    }

    /// Returns whether a pattern matches a path that is plain.
    fn matches(pattern: &Pattern, path: &str) -> bool {
        let Pattern::Path(parts) = pattern else { return true };
        let segments: Vec<&str> = path[1..].split('/').collect();
        let is_rest = parts.last() == Some(&Part::Rest);
        let fits = |(part, segment): (&Part, &&str)| match part {
            Part::Literal(literal) => **literal == **segment,
            Part::Parameter => !segment.is_empty(),
            Part::Rest => true,
        };
        (parts.len() == segments.len() || is_rest && parts.len() <= segments.len())
            && parts.iter().zip(&segments).all(fits)
    }

    proptest::proptest! {
        #[test]
        fn the_closest_is_the_least_of_those_that_match(
            patterns in proptest::collection::vec("(/(a|ab|b|\\{x\\})){1,4}(/|/\\*)?|/|/\\*|\\*", 1..8),
            paths in proptest::collection::vec("(/(a|ab|b|c)){1,5}/?|/", 20),
            refused: u8,
        ) {
            let patterns: Vec<Pattern> = patterns.iter().map(|text| Pattern::parse(text).expect("valid")).collect();
            let numbered = patterns.iter().cloned().zip(0_u32..);
            let tree = PatternTree::new(numbered, |known: &mut Vec<u32>, number| known.push(number));
            // What is not accepted makes room for the next closest.
            let is_accepted = |number: u32| refused >> number & 1 == 0;
            for path in paths {
                let closest = tree.closest(Some(&path), |known| known.iter().copied().find(|number| is_accepted(*number)));
                let accepted = patterns.iter().zip(0..).filter(|(pattern, number)| is_accepted(*number) && matches(pattern, &path));
                let least = accepted.min().map(|(_, number)| number);
                proptest::prop_assert_eq!(closest, least, "{}", path);
            }
        }
    }

    #[test]
    fn patterns_that_mean_nothing_are_refused() {
        for pattern in ["", "a", "**", "/a*", "/a/*/b", "/{a", "/x{a}", "/{}", "/a?q=1", "/a#f"] {
            assert!(Pattern::parse(pattern).is_err(), "{pattern}");
        }
        assert_eq!(Pattern::parse("/users/{id}"), Pattern::parse("//users/./{name}"));
    }
}
