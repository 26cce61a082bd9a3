//! Names of keys in the store.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};
use tidegate::StoreCharge;

use super::StoreError;

/// The version of the values. Two releases that understand each other's values have the same.
const VERSION: &str = "1";

/// The most characters of a prefix.
const PREFIX_MAX: usize = 64;

/// Names the keys of a fleet, which begin with its prefix.
#[derive(Debug)]
pub(super) struct Keys {
    prefix: String,
}

/// The name of the key of a charge.
#[derive(Clone, Debug)]
pub(super) struct Name {
    /// The digest of the identities that are counted together: all of their limits share a hash slot of a cluster.
    pub(super) slot: String,
    pub(super) key: String,
}

impl Keys {
    /// Checks the prefix. Braces in it would decide in which slot of a cluster all keys lie.
    pub(super) fn with(prefix: &str) -> Result<Self, StoreError> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':');
        let why = if prefix.is_empty() {
            "it is empty".to_owned()
        } else if prefix.chars().count() > PREFIX_MAX {
            format!("it has more than {PREFIX_MAX} characters")
        } else if let Some(c) = prefix.chars().find(|&c| !is_allowed(c)) {
            format!("it has {c:?}")
        } else {
            return Ok(Self { prefix: prefix.to_owned() });
        };
        Err(StoreError::Prefix { why })
    }

    /// Returns the epoch key in the slot of this hash tag.
    pub(super) fn epoch(&self, tag: &str) -> String {
        format!("{}:{VERSION}:{{{tag}}}epoch", self.prefix)
    }

    /// Returns the name of the key of a charge. It shows no identity: it has digests of the limit's name and of the identities,
    /// and of the length of each part.
    pub(super) fn name(&self, charge: &StoreCharge<'_>) -> Name {
        let slot = match &charge.identities()[..] {
            // What counts everyone has nothing to be together with.
            [] => digest([charge.limit_id]),
            identities => digest(identities.iter().flat_map(|who| [who.kind(), who.value()])),
        };
        let key = format!("{}:{VERSION}:{{{slot}}}{}", self.prefix, digest([charge.limit_id]));
        Name { slot, key }
    }
}

fn digest<'p>(parts: impl IntoIterator<Item = &'p str>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    URL_SAFE_NO_PAD.encode(&hash.finalize()[..15])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_letters_digits_and_a_few_signs() {
        for prefix in ["tidegate", "a", "Team-7:limits_2.x", &"p".repeat(64)] {
            assert!(Keys::with(prefix).is_ok(), "{prefix}");
        }
        for (prefix, why) in [
            ("", "it is empty"),
            (&"p".repeat(65), "more than 64 characters"),
            ("a{b}", "it has '{'"),
            ("a b", "it has ' '"),
            ("a\n", r"it has '\n'"),
            ("größe", "it has 'ö'"),
            ("a*", "it has '*'"),
        ] {
            let error = Keys::with(prefix).expect_err("it is wrong").to_string();
            assert!(error.starts_with("the key prefix: ") && error.contains(why), "{error}");
            assert!(error.contains("1 to 64"), "{error}");
        }
    }
}
