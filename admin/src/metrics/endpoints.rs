//! Endpoints that are asked for, as patterns: what looks like an id is folded, so that a path with a million ids is one.

use std::{
    collections::{HashMap, HashSet},
    mem,
    net::IpAddr,
};

use tidegate::{Observed, policy::Rule};
use tidegate_fleet::SampleExtension;

use crate::domain::privacy::Privacy;

/// Sampled requests that fit until they are taken in, once a second: of more, so many are drawn.
const SEEN_MAX: usize = 256;
/// A path is cut after so many bytes.
const PATH_BYTES: usize = 128;
/// Longest method and domain, in bytes; a request with a longer one is overlooked.
const NAME_BYTES: usize = 64;
/// A request that was kept may stand for a fraction of others.
const FRACTION: u64 = 1 << 16;
/// Patterns that are told apart.
const PATTERNS_MAX: usize = 1_000;

/// Requests of the sample, in memory that was allocated before: an observer does not allocate.
#[derive(Debug)]
pub(crate) struct Seen {
    texts: Vec<Text>,
    /// How many there were that had an endpoint.
    came: u64,
    /// State of the generator that draws (xorshift, Marsaglia 2003).
    random: u64,
}

#[derive(Clone, Debug)]
struct Text {
    domain: Short<NAME_BYTES>,
    method: Short<NAME_BYTES>,
    path: Short<PATH_BYTES>,
}

#[derive(Clone, Copy, Debug)]
struct Short<const N: usize> {
    bytes: [u8; N],
    len: u8,
}

/// An endpoint, as it is counted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Endpoint {
    pub(crate) domain: String,
    /// Empty where the request had none.
    pub(crate) method: String,
    pub(crate) pattern: String,
}

/// Estimated requests since the start, halved whenever there are too many patterns.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    counts: HashMap<Endpoint, Met>,
    /// Decisions since the last one that was seen.
    unseen: u64,
}

/// How often an endpoint was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Met {
    /// Estimated, in [`FRACTION`]s of a request.
    estimate: u64,
    /// Requests that were looked at: those that it is estimated from.
    pub(crate) seen: u64,
    /// One of its paths, for whoever asks which rules match it.
    pub(crate) example: String,
}

impl Met {
    /// Estimated requests.
    pub(crate) fn requests(&self) -> u64 {
        self.estimate.saturating_add(FRACTION / 2) / FRACTION
    }
}

impl Default for Seen {
    fn default() -> Self {
        Self { texts: Vec::with_capacity(SEEN_MAX), came: 0, random: 0x9E37_79B9_7F4A_7C15 }
    }
}

impl SampleExtension for Seen {
    fn add(&mut self, observed: &Observed<'_>) {
        let Some((request, path)) = observed.request().and_then(|request| Some((request, request.endpoint?))) else {
            return;
        };
        let path = &path[..path.find(['?', '#']).unwrap_or(path.len())];
        let (domain, method) = (Short::whole(request.domain), Short::whole(request.method.unwrap_or_default()));
        if let (Some(domain), Some(method)) = (domain, method) {
            self.draw(Text { domain, method, path: Short::cut(path) });
        }
    }
}

impl Seen {
    /// Keeps each with the same probability, however many come (Vitter's algorithm R, 1985).
    fn draw(&mut self, text: Text) {
        self.came += 1;
        if self.texts.len() < SEEN_MAX {
            return self.texts.push(text);
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let place = usize::try_from(self.random % self.came).ok();
        if let Some(kept) = place.and_then(|place| self.texts.get_mut(place)) {
            *kept = text;
        }
    }
}

impl<const N: usize> Short<N> {
    fn whole(text: &str) -> Option<Self> {
        (text.len() <= N).then(|| Self::cut(text))
    }

    fn cut(text: &str) -> Self {
        let len = text.floor_char_boundary(N);
        let mut bytes = [0; N];
        bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
        Self { bytes, len: len as u8 }
    }

    fn read(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len.into()]).unwrap_or_default()
    }
}

impl Endpoints {
    /// Of so many decisions, some were observed, among them the `seen` ones.
    pub(crate) fn add(&mut self, seen: &Seen, decisions: u64, observed: u64) {
        self.unseen = self.unseen.saturating_add(decisions);
        if observed == 0 {
            return;
        }
        // Each that was kept stands for so many: for the observed ones that were not, and for the decisions that were not
        // observed.
        let all = u128::from(mem::take(&mut self.unseen)) * u128::from(seen.came) * u128::from(FRACTION);
        let stands_for = all / (u128::from(observed) * seen.texts.len().max(1) as u128);
        let stands_for = u64::try_from(stands_for).unwrap_or(u64::MAX);
        for Text { domain, method, path } in &seen.texts {
            let endpoint = Endpoint {
                domain: domain.read().to_owned(),
                method: method.read().to_ascii_uppercase(),
                pattern: fold(path.read()),
            };
            if self.counts.len() >= PATTERNS_MAX && !self.counts.contains_key(&endpoint) {
                // Those that were asked for once make room.
                self.counts.retain(|_, met| {
                    met.estimate /= 2;
                    met.seen /= 2;
                    met.seen > 0
                });
                if self.counts.len() >= PATTERNS_MAX {
                    continue;
                }
            }
            let new = || Met { estimate: 0, seen: 0, example: String::new() };
            let met = self.counts.entry(endpoint).or_insert_with(new);
            met.estimate = met.estimate.saturating_add(stands_for);
            met.seen += 1;
            path.read().clone_into(&mut met.example);
        }
    }

    /// The most requests first.
    pub(crate) fn list(&self) -> Vec<(Endpoint, Met)> {
        let mut list: Vec<_> = self.counts.iter().map(|(endpoint, met)| (endpoint.clone(), met.clone())).collect();
        list.sort_by(|(one, a), (other, b)| b.estimate.cmp(&a.estimate).then_with(|| one.cmp(other)));
        list
    }
}

/// Shows what paths name as the setting `keys` says; what rules name is shown as it is written there.
pub(crate) struct Shown<'a> {
    literals: HashSet<&'a str>,
    privacy: Privacy,
}

impl<'a> Shown<'a> {
    /// Beside the rules of a domain.
    pub(crate) fn new(rules: impl IntoIterator<Item = &'a Rule>, privacy: Privacy) -> Self {
        let segments = rules.into_iter().flat_map(|rule| rule.endpoint.split('/'));
        Self { literals: segments.filter(|segment| !segment.contains(['{', '*'])).collect(), privacy }
    }

    pub(crate) fn show(&self, pattern: &str) -> String {
        let show = |segment: &str| match segment {
            "" | "{id}" => segment.to_owned(),
            literal if self.literals.contains(literal) => literal.to_owned(),
            name => self.privacy.show("endpoint", name),
        };
        pattern.split('/').map(show).collect::<Vec<_>>().join("/")
    }
}

/// The path with `{id}` for each segment that looks like one.
fn fold(path: &str) -> String {
    path.split('/').map(|segment| if is_id(segment) { "{id}" } else { segment }).collect::<Vec<_>>().join("/")
}

/// Numbers, UUIDs, hashes and other long mixtures of digits and letters; addresses.
fn is_id(segment: &str) -> bool {
    let digits = segment.bytes().filter(u8::is_ascii_digit).count();
    let is_plain = segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    let is_hex = segment.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    segment.parse::<IpAddr>().is_ok()
        || is_plain && digits > 0 && (digits == segment.len() || segment.len() >= 8 && is_hex || segment.len() >= 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{base::secrets::SECRET_BYTES, domain::privacy::Keys};

    fn text(path: &str) -> Text {
        let name = |name| Short::whole(name).expect("short");
        Text { domain: name("default"), method: name("get"), path: Short::cut(path) }
    }

    fn seen(path: &str) -> Seen {
        let mut seen = Seen::default();
        seen.draw(text(path));
        seen
    }

    #[test]
    fn ids_are_folded() {
        for (path, folded) in [
            ("/users/17/posts/3", "/users/{id}/posts/{id}"),
            ("/orders/2f1c8a9e-7b1d-4c55-9a11-0d5d2f6e7a10", "/orders/{id}"),
            ("/files/9f86d081884c7d659a2feaa0c55ad015", "/files/{id}"),
            ("/t/acct_1H8a9ZxQ2pL0", "/t/{id}"),
            ("/hosts/192.0.2.7/2001:db8::1", "/hosts/{id}/{id}"),
            ("/api/v1/search", "/api/v1/search"),
            ("/static/app-2024.js", "/static/app-2024.js"),
            ("/", "/"),
            ("", ""),
        ] {
            assert_eq!(fold(path), folded);
        }
    }

    #[test]
    fn there_are_never_too_many() {
        let mut endpoints = Endpoints::default();
        for number in 0..10 {
            for _ in 0..=number {
                endpoints.add(&seen(&format!("/users/{number}")), 16, 1);
            }
        }
        for number in 0..5_000 {
            endpoints.add(&seen(&format!("/scan-{number}x")), 16, 1);
            assert!(endpoints.counts.len() <= PATTERNS_MAX);
        }
        let first = &endpoints.list()[0];
        assert_eq!((first.0.pattern.as_str(), first.0.method.as_str()), ("/users/{id}", "GET"));
        let long = format!("/{}", "ü".repeat(300));
        endpoints.add(&seen(&long), 16, 1);
        assert!(endpoints.list().iter().any(|(_, met)| long.starts_with(&met.example) && met.example.len() > 100));
    }
    /// However many come in a second, and however few of them are observed.
    #[test]
    fn counts_are_of_all_decisions() {
        let mut endpoints = Endpoints::default();
        // Two in three of many for one endpoint, the rest for another, in the order that is hardest to draw from.
        let mut seen = Seen::default();
        for number in 0..30_000 {
            seen.draw(text(if number < 20_000 { "/often" } else { "/seldom" }));
        }
        assert_eq!(seen.texts.len(), SEEN_MAX);
        // Of a million decisions 30,000 were observed, the others came while somebody else was at it.
        endpoints.add(&seen, 1_000_000, 30_000);
        let requests = |endpoints: &Endpoints, pattern: &str| {
            endpoints.list().into_iter().find(|(endpoint, _)| endpoint.pattern == pattern).expect("it is there").1
        };
        let (often, seldom) = (requests(&endpoints, "/often"), requests(&endpoints, "/seldom"));
        assert!((often.requests() + seldom.requests()).abs_diff(1_000_000) <= 1, "{often:?} {seldom:?}");
        // Four standard deviations of 256 draws are 12 %.
        assert!((540_000..790_000).contains(&often.requests()), "{often:?}");
        assert_eq!(often.seen + seldom.seen, SEEN_MAX as u64);
        // Seconds in which nothing was observed are not forgotten.
        let mut slow = Endpoints::default();
        for second in 0..32 {
            if second % 4 == 3 {
                slow.add(&self::seen("/slow"), 4, 1);
            } else {
                slow.add(&Seen::default(), 4, 0);
            }
        }
        let slow = requests(&slow, "/slow");
        assert_eq!((slow.requests(), slow.seen), (128, 8));
    }

    #[test]
    fn names_in_paths_are_shown_as_keys_says() {
        let rules: Vec<Rule> = ["/users/{id}/posts", "/api/*"]
            .iter()
            .map(|endpoint| serde_json::json!({ "id": "a", "endpoint": endpoint, "per": "user", "limits": [] }))
            .map(|rule| serde_json::from_value(rule).expect("a rule"))
            .collect();
        let show = |keys, path| Shown::new(&rules, Privacy::new(keys, &[7; SECRET_BYTES])).show(&fold(path));
        let path = "/users/ada@example.org/posts/17";
        assert_eq!(show(Keys::Clear, path), "/users/ada@example.org/posts/{id}");
        assert_eq!(show(Keys::Truncated, path), "/users/ada@…/posts/{id}");
        let hashed = show(Keys::Hashed, path);
        assert!(
            hashed.starts_with("/users/") && hashed.ends_with("/posts/{id}") && !hashed.contains("ada"),
            "{hashed}"
        );
        assert_eq!(show(Keys::Truncated, "/"), "/");
        assert_eq!(show(Keys::Truncated, "/api/checkout"), "/api/chec…");
    }
}
