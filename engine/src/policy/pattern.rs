//! Endpoint patterns, such as `/users/{id}` and `/api/*`, and the tree that finds the closest pattern for a path.

use std::fmt;

use rapidhash::RapidHashMap;

use crate::policy::{
    path::{PathBuffer, SEGMENTS_MAX, normalize_path},
    request::ENDPOINT_BYTES_MAX,
};

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Segment {
    Literal(Box<str>),
    /// `{name}`: matches one segment that is not empty.
    Parameter,
    /// `*` at the end: matches the rest of the path, which has at least the slash before it.
    Rest,
}

/// An endpoint pattern. Of patterns that match the same path, the closest is the least in this order.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Pattern {
    Path(Vec<Segment>),
    /// `*`: matches every request, also one without endpoint.
    Any,
}

impl Pattern {
    /// Parses `/exact`, `/users/{id}`, `/api/*` or `*`.
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
        let plain = normalize_path(text, &mut buffer);
        let segments: Vec<&str> = plain[1..].split('/').collect();
        if segments.len() > SEGMENTS_MAX {
            return Err(format!("more than {SEGMENTS_MAX} segments"));
        }
        let last = segments.len() - 1;
        let part = |(place, segment): (usize, &&str)| match *segment {
            "*" if place == last => Ok(Segment::Rest),
            name if name.len() > 2 && name.starts_with('{') && name.ends_with('}') => Ok(Segment::Parameter),
            literal if literal.contains(['{', '}', '*']) => {
                Err(format!("`{literal}`: a segment is a literal or `{{name}}`, and `*` stands alone at the end"))
            }
            literal => Ok(Segment::Literal(literal.into())),
        };
        Ok(Self::Path(segments.iter().enumerate().map(part).collect::<Result<_, _>>()?))
    }
}

/// A tree of patterns that finds the closest one for a path: segment by segment from the left, a literal before `{name}` before
/// a trailing `*`.
#[derive(Debug, Default)]
pub(crate) struct PatternTree<T> {
    root: Node<T>,
    any: Option<T>,
}

#[derive(Debug, Default)]
struct Node<T> {
    /// The literal segments up to the next branch, if they are the only child; the other children are then empty.
    only: Option<Box<(Box<str>, Node<T>)>>,
    literals: RapidHashMap<Box<str>, Node<T>>,
    parameter: Option<Box<Node<T>>>,
    /// The value of the pattern that ends here.
    here: Option<T>,
    /// The value of the pattern that continues with `*`.
    rest: Option<T>,
}

impl<T: Default> PatternTree<T> {
    /// Returns the tree of these patterns. Of equal patterns the last counts.
    pub(crate) fn new(patterns: impl IntoIterator<Item = (Pattern, T)>) -> Self {
        let mut tree = Self::default();
        for (pattern, value) in patterns {
            *tree.entry(pattern) = Some(value);
        }
        tree.root.join();
        tree
    }

    fn entry(&mut self, pattern: Pattern) -> &mut Option<T> {
        let Pattern::Path(parts) = pattern else { return &mut self.any };
        let mut node = &mut self.root;
        for part in parts {
            node = match part {
                Segment::Literal(literal) => node.literals.entry(literal).or_default(),
                Segment::Parameter => node.parameter.get_or_insert_default(),
                Segment::Rest => return &mut node.rest,
            };
        }
        &mut node.here
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

    /// Returns the first result of `find` for the values of the patterns that match, the closest first. `path` must be
    /// normalized; it is `None` for a request without endpoint.
    pub(crate) fn closest<'t, V>(&'t self, path: Option<&str>, find: impl Fn(&'t T) -> Option<V>) -> Option<V> {
        let below = path.and_then(|path| path.strip_prefix('/'));
        below.and_then(|below| self.root.closest(Some(below), &find)).or_else(|| self.any.as_ref().and_then(find))
    }
}

impl<T> Node<T> {
    /// Joins the segments that are an only child, here and in all nodes below.
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

    /// Finds the closest value below this node. `below` is the path after the slash that follows this node, if one does.
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
        // Segments are short: a search that is optimized for long texts takes longer.
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

/// The error of a pattern that no rule could have. The message names the pattern and what would be right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvalidPattern(String);

impl fmt::Display for InvalidPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidPattern {}

/// A set of endpoints, by the patterns of rules: `/exact`, `/users/{id}`, `/api/*`, `*`. Use it to exempt requests from checks.
///
/// ```
/// use tidegate::Endpoints;
///
/// let exempt = Endpoints::parse(["/healthz", "/assets/*"])?;
/// assert!(exempt.has("/assets/../healthz?verbose"));
/// assert!(!exempt.has("/assets/../search"));
/// # Ok::<(), tidegate::InvalidPattern>(())
/// ```
#[derive(Debug, Default)]
pub struct Endpoints(PatternTree<()>);

impl Endpoints {
    /// Returns the set of the endpoints that match one of the patterns.
    ///
    /// # Errors
    ///
    /// [`InvalidPattern`], for the first pattern that is invalid.
    pub fn parse<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidPattern> {
        let patterns: Vec<_> =
            patterns.into_iter().map(Pattern::parse).collect::<Result<_, _>>().map_err(InvalidPattern)?;
        Ok(Self(PatternTree::new(patterns.into_iter().map(|pattern| (pattern, ())))))
    }

    /// Returns whether a path is in the set. The path is normalized first, as for rules: without query, fragment and dot segments.
    #[must_use]
    pub fn has(&self, endpoint: &str) -> bool {
        self.0.closest(Some(normalize_path(endpoint, &mut PathBuffer::new())), |()| Some(())).is_some()
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_closest_pattern_wins_in_any_order() {
        let mut patterns =
            ["/*", "*", "/users/{id}", "/users/me", "/users/*", "/users/{id}/posts", "/{x}/me/posts", "/api/*"];
        for _ in 0..2 {
            let parsed = patterns.map(|pattern| (Pattern::parse(pattern).expect("valid"), pattern));
            let tree = PatternTree::new(parsed);
            let closest =
                |path, but| tree.closest(path, |pattern| Some(*pattern).filter(|pattern| ![but, ""].contains(pattern)));
            for (path, expected) in [
                ("/users/me", "/users/me"),
                ("/users/7", "/users/{id}"),
                ("/users/", "/users/*"),
                ("/users/7/posts", "/users/{id}/posts"),
                // A literal first segment wins over all later segments.
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

    /// Returns whether a pattern matches a normalized path.
    fn matches(pattern: &Pattern, path: &str) -> bool {
        let Pattern::Path(parts) = pattern else { return true };
        let segments: Vec<&str> = path[1..].split('/').collect();
        let is_rest = parts.last() == Some(&Segment::Rest);
        let fits = |(part, segment): (&Segment, &&str)| match part {
            Segment::Literal(literal) => **literal == **segment,
            Segment::Parameter => !segment.is_empty(),
            Segment::Rest => true,
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
            let mut numbers = std::collections::BTreeMap::<Pattern, Vec<u32>>::new();
            for (pattern, number) in patterns.iter().cloned().zip(0..) {
                numbers.entry(pattern).or_default().push(number);
            }
            let tree = PatternTree::new(numbers);
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
    fn invalid_patterns_are_refused() {
        for pattern in ["", "a", "**", "/a*", "/a/*/b", "/{a", "/x{a}", "/{}", "/a?q=1", "/a#f"] {
            assert!(Pattern::parse(pattern).is_err(), "{pattern}");
        }
        assert_eq!(Pattern::parse("/users/{id}"), Pattern::parse("//users/./{name}"));
    }
}
