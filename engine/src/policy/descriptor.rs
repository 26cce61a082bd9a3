//! Envoy descriptors: maps the key of an entry to a part of a request: a kind of identity, the endpoint or the method.

use std::borrow::Cow;

use crate::policy::{
    document::{DescriptorPaths, EVERYONE},
    request::{KIND_BYTES_MAX, is_kind},
};

/// The part of a request that an entry of a descriptor gives.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Dimension<'k> {
    /// The identity of this kind.
    Kind(Cow<'k, str>),
    /// The endpoint.
    Endpoint,
    /// The method.
    Method,
}

impl<'k> Dimension<'k> {
    /// Returns the part of a request that an entry with this key gives in a domain with this setting. `is_taken` returns whether
    /// an earlier entry of the descriptor gives the same part.
    ///
    /// * With [`DescriptorPaths::Endpoint`], `path` and `endpoint`, in any case, are the endpoint, and `method` is the method.
    /// * Any other key is a kind: in lower case, with `_` for each character that a kind cannot have (`X-User-Id` is `x_user_id`).
    ///   A kind that would not begin with a letter gets the prefix `k_`. One above 32 bytes is cut to 23 and ends in the FNV-1a hash
    ///   of the key, so different long keys stay different.
    /// * A repeated part is a numbered kind: a second `generic_key` is `generic_key_2`, a second `path` is `path_2`.
    ///
    /// ```
    /// use tidegate::{descriptor::Dimension, policy::DescriptorPaths::{Endpoint, Identity}};
    ///
    /// assert_eq!(Dimension::of("PATH", Endpoint, |_| false), Dimension::Endpoint);
    /// assert_eq!(Dimension::of("PATH", Identity, |_| false).kind(), Some("path"));
    /// let second = Dimension::of("generic_key", Endpoint, |earlier| earlier.kind() == Some("generic_key"));
    /// assert_eq!(second.kind(), Some("generic_key_2"));
    /// ```
    #[must_use]
    pub fn of(key: &'k str, paths: DescriptorPaths, is_taken: impl Fn(&Dimension<'_>) -> bool) -> Self {
        let name = kind_of(key);
        let first = match (paths, &*name) {
            (DescriptorPaths::Endpoint, "path" | "endpoint") => Self::Endpoint,
            (DescriptorPaths::Endpoint, "method") => Self::Method,
            _ => Self::Kind(name.clone()),
        };
        if !is_taken(&first) {
            return first;
        }
        let numbered = (2_usize..).map(|number| {
            let suffix = format!("_{number}");
            let (beginning, _) = name.split_at(name.len().min(KIND_BYTES_MAX - suffix.len()));
            Self::Kind(format!("{beginning}{suffix}").into())
        });
        // A descriptor has fewer entries than there are numbers.
        numbered.into_iter().find(|dimension| !is_taken(dimension)).unwrap_or(first)
    }

    /// Returns the kind of identity; `None` for the endpoint and the method.
    #[must_use]
    pub fn kind(&self) -> Option<&str> {
        match self {
            Self::Kind(kind) => Some(kind),
            Self::Endpoint | Self::Method => None,
        }
    }
}

/// Returns the kind that a key names.
fn kind_of(key: &str) -> Cow<'_, str> {
    if is_kind(key) && key != EVERYONE {
        return key.into();
    }
    let plain = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '_') => c,
        _ => '_',
    };
    let mut kind: String = key.chars().map(plain).collect();
    if !kind.starts_with(|c: char| c.is_ascii_lowercase()) {
        kind.insert_str(0, "k_");
    }
    if kind == EVERYONE {
        kind.push('_');
    }
    if kind.len() > KIND_BYTES_MAX {
        let hash = key.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let suffix = format!("_{hash:08x}");
        kind.truncate(KIND_BYTES_MAX - suffix.len());
        kind.push_str(&suffix);
    }
    kind.into()
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    /// Returns the dimensions of the entries of one descriptor.
    fn dimensions<'k>(keys: &[&'k str], paths: DescriptorPaths) -> Vec<Dimension<'k>> {
        let mut dimensions = Vec::new();
        for key in keys {
            dimensions.push(Dimension::of(key, paths, |dimension| dimensions.contains(dimension)));
        }
        dimensions
    }

    #[test]
    fn a_key_is_the_endpoint_the_method_or_a_kind() {
        for key in ["path", "Path", "PATH", "endpoint", "ENDPOINT"] {
            assert_eq!(dimensions(&[key], DescriptorPaths::Endpoint), [Dimension::Endpoint], "{key}");
        }
        for key in ["method", "METHOD"] {
            assert_eq!(dimensions(&[key], DescriptorPaths::Endpoint), [Dimension::Method], "{key}");
        }
        let long = "httproute/default/backend/rule/0/match/0/example";
        for (key, kind) in [
            ("user", "user"),
            ("User", "user"),
            ("X-User-Id", "x_user_id"),
            ("tenant_", "tenant_"),
            ("everyone", "everyone_"),
            ("Everyone", "everyone_"),
            ("1st", "k_1st"),
            (":path", "k__path"),
            ("k\u{e9}", "k_"),
            (long, "httproute_default_backe_d57f5531"),
        ] {
            assert_eq!(dimensions(&[key], DescriptorPaths::Endpoint), [Dimension::Kind(kind.into())], "{key}");
        }
        assert_ne!(
            dimensions(&[long], DescriptorPaths::Endpoint),
            dimensions(&[&long.replace("match/0", "match/1")], DescriptorPaths::Endpoint)
        );
    }

    #[test]
    fn a_path_is_an_identity_where_the_domain_says_so() {
        let kinds = |keys: &[&str]| -> Vec<String> {
            let dimensions = dimensions(keys, DescriptorPaths::Identity);
            dimensions.iter().map(|dimension| dimension.kind().expect("a kind").to_owned()).collect()
        };
        assert_eq!(kinds(&["PATH", "endpoint", "Method", "path", "a"]), ["path", "endpoint", "method", "path_2", "a"]);
    }

    #[test]
    fn repeated_keys_are_numbered_in_their_order() {
        let named = |keys: &[&str]| -> Vec<String> {
            let name = |dimension: Dimension<'_>| match dimension {
                Dimension::Kind(kind) => kind.into_owned(),
                other => format!("{other:?}"),
            };
            dimensions(keys, DescriptorPaths::Endpoint).into_iter().map(name).collect()
        };
        assert_eq!(named(&["generic_key"; 3]), ["generic_key", "generic_key_2", "generic_key_3"]);
        assert_eq!(named(&["a", "a", "a_2"]), ["a", "a_2", "a_2_2"]);
        assert_eq!(
            named(&["path", "endpoint", "PATH", "Method", "method"]),
            ["Endpoint", "endpoint_2", "path_2", "Method", "method_2"]
        );
        let long = "k".repeat(KIND_BYTES_MAX);
        assert_eq!(named(&[&long, &long])[1], format!("{}_2", &long[..30]));
    }
}
