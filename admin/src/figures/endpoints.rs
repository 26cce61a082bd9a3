//! Endpoints that are asked for, as patterns: what looks like an id is folded, so that a path with a million ids is one.

use std::collections::HashMap;

use tidegate::Observed;

/// Sampled requests that fit until they are taken in, once a second.
const SEEN_MAX: usize = 128;
/// A path is cut after so many bytes.
const PATH_BYTES: usize = 128;
/// Longest method and domain, in bytes; a request with a longer one is overlooked.
const NAME_BYTES: usize = 64;
/// Patterns that are told apart.
const PATTERNS_MAX: usize = 1_000;

/// Requests of the sample, in memory that was allocated before: an observer does not allocate.
#[derive(Debug)]
pub(crate) struct Seen(Vec<Text>);

#[derive(Clone, Debug)]
struct Text {
    domain: Short<NAME_BYTES>,
    method: Short<NAME_BYTES>,
    path: Short<PATH_BYTES>,
    stands_for: u32,
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
}

/// How often an endpoint was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Met {
    pub(crate) requests: u64,
    /// One of its paths, for whoever asks which rules match it.
    pub(crate) example: String,
}

impl Default for Seen {
    fn default() -> Self {
        Self(Vec::with_capacity(SEEN_MAX))
    }
}

impl Seen {
    pub(crate) fn add(&mut self, observed: &Observed<'_>) {
        let Some((request, path)) = observed.request().and_then(|request| Some((request, request.endpoint?))) else {
            return;
        };
        let path = &path[..path.find(['?', '#']).unwrap_or(path.len())];
        let (domain, method) = (Short::whole(request.domain), Short::whole(request.method.unwrap_or_default()));
        if let (true, Some(domain), Some(method)) = (self.0.len() < SEEN_MAX, domain, method) {
            self.0.push(Text { domain, method, path: Short::cut(path), stands_for: observed.one_in().get() });
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
    pub(crate) fn add(&mut self, seen: &Seen) {
        for Text { domain, method, path, stands_for } in &seen.0 {
            let endpoint = Endpoint {
                domain: domain.read().to_owned(),
                method: method.read().to_ascii_uppercase(),
                pattern: fold(path.read()),
            };
            if self.counts.len() >= PATTERNS_MAX && !self.counts.contains_key(&endpoint) {
                // Those that were asked for once make room.
                self.counts.retain(|_, met| {
                    met.requests /= 2;
                    met.requests >= u64::from(*stands_for)
                });
                if self.counts.len() >= PATTERNS_MAX {
                    continue;
                }
            }
            let met = self.counts.entry(endpoint).or_insert_with(|| Met { requests: 0, example: String::new() });
            met.requests += u64::from(*stands_for);
            path.read().clone_into(&mut met.example);
        }
    }

    /// The most requests first.
    pub(crate) fn list(&self) -> Vec<(Endpoint, Met)> {
        let mut list: Vec<_> = self.counts.iter().map(|(endpoint, met)| (endpoint.clone(), met.clone())).collect();
        list.sort_by(|(one, a), (other, b)| b.requests.cmp(&a.requests).then_with(|| one.cmp(other)));
        list
    }
}

/// The path with `{id}` for each segment that looks like one.
fn fold(path: &str) -> String {
    path.split('/').map(|segment| if is_id(segment) { "{id}" } else { segment }).collect::<Vec<_>>().join("/")
}

/// Numbers, UUIDs, hashes and other long mixtures of digits and letters.
fn is_id(segment: &str) -> bool {
    let digits = segment.bytes().filter(u8::is_ascii_digit).count();
    let is_plain = segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    let is_hex = segment.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_plain && digits > 0 && (digits == segment.len() || segment.len() >= 8 && is_hex || segment.len() >= 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(path: &str) -> Seen {
        let name = |name| Short::whole(name).expect("short");
        Seen(vec![Text { domain: name("default"), method: name("get"), path: Short::cut(path), stands_for: 16 }])
    }

    #[test]
    fn ids_are_folded() {
        for (path, folded) in [
            ("/users/17/posts/3", "/users/{id}/posts/{id}"),
            ("/orders/2f1c8a9e-7b1d-4c55-9a11-0d5d2f6e7a10", "/orders/{id}"),
            ("/files/9f86d081884c7d659a2feaa0c55ad015", "/files/{id}"),
            ("/t/acct_1H8a9ZxQ2pL0", "/t/{id}"),
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
                endpoints.add(&seen(&format!("/users/{number}")));
            }
        }
        for number in 0..5_000 {
            endpoints.add(&seen(&format!("/scan-{number}x")));
            assert!(endpoints.counts.len() <= PATTERNS_MAX);
        }
        let first = &endpoints.list()[0];
        assert_eq!((first.0.pattern.as_str(), first.0.method.as_str()), ("/users/{id}", "GET"));
        let long = format!("/{}", "ü".repeat(300));
        endpoints.add(&seen(&long));
        assert!(endpoints.list().iter().any(|(_, met)| long.starts_with(&met.example) && met.example.len() > 100));
    }
}
