//! The names of keys in the store, which are derived from limits, identities and a secret.

use std::{
    fmt,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use tidegate::internals::StoreCharge;

use crate::store::error::StoreError;

/// The version of the values' format. Releases that understand each other's values have the same.
const VERSION: &str = "1";

const PREFIX_CHARS_MAX: usize = 64;

/// The fewest bytes of a secret that is given.
const SECRET_BYTES_MIN: usize = 16;

/// The secret from which the names of keys are derived. Without one a name is a plain digest, from which an identity
/// with few possible values, such as an IPv4 address, can be found by trying all of them.
#[derive(Clone, PartialEq, Eq, Default)]
pub enum KeySecret {
    /// Names have no secret until an agent brings that of its admin server.
    #[default]
    Unkeyed,
    /// Names have no secret, even if the admin server sends one; the names of older releases.
    Plain,
    /// Names have these bytes, at least 16. All nodes of a fleet need the same ones.
    Given(Vec<u8>),
    /// Names have the secret of the admin server, which an agent brings. Until then the store is not asked.
    Sent,
}

/// Shows no secret.
impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unkeyed => "Unkeyed",
            Self::Plain => "Plain",
            Self::Given(_) => "Given",
            Self::Sent => "Sent",
        })
    }
}

/// Names the keys of a fleet; all begin with its prefix.
pub(crate) struct KeyNames {
    prefix: String,
    derivation: RwLock<Derivation>,
    /// Whether the secret is still awaited; a copy of the state of `derivation` that each charge of a lease or a view
    /// can read fast.
    are_awaited: AtomicBool,
    /// Whether the secret was given, so that none from the admin server replaces it.
    is_given: bool,
}

enum Derivation {
    Awaited,
    Unkeyed,
    Keyed { secret: Vec<u8>, mac: Box<Hmac<Sha256>> },
}

impl Derivation {
    fn keyed(secret: &[u8]) -> Option<Self> {
        let mac = Box::new(Hmac::new_from_slice(secret).ok()?);
        Some(Self::Keyed { secret: secret.to_vec(), mac })
    }

    fn digest<'p>(&self, parts: impl IntoIterator<Item = &'p str>) -> String {
        let mut text = Vec::new();
        for part in parts {
            text.extend((part.len() as u64).to_be_bytes());
            text.extend(part.as_bytes());
        }
        let digest = match self {
            Self::Keyed { mac, .. } => mac.clone().chain_update(&text).finalize().into_bytes(),
            Self::Unkeyed | Self::Awaited => Sha256::digest(&text),
        };
        URL_SAFE_NO_PAD.encode(&digest[..15])
    }
}

#[derive(Clone, Debug)]
pub(crate) struct KeyName {
    /// The digest of the identities that are counted together. All of their limits share a hash slot of a cluster.
    pub(crate) slot: String,
    pub(crate) key: String,
}

impl KeyNames {
    /// Checks the prefix. Braces are refused because they would put all keys into one slot of a cluster.
    pub(crate) fn with(prefix: &str, secret: &KeySecret) -> Result<Self, StoreError> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':');
        let why = if prefix.is_empty() {
            Some("it is empty".to_owned())
        } else if prefix.chars().count() > PREFIX_CHARS_MAX {
            Some(format!("it has more than {PREFIX_CHARS_MAX} characters"))
        } else {
            prefix.chars().find(|&c| !is_allowed(c)).map(|c| format!("it has {c:?}"))
        };
        if let Some(why) = why {
            return Err(StoreError::Prefix { why });
        }
        let derivation = match secret {
            KeySecret::Unkeyed | KeySecret::Plain => Some(Derivation::Unkeyed),
            KeySecret::Given(secret) => Derivation::keyed(secret).filter(|_| secret.len() >= SECRET_BYTES_MIN),
            KeySecret::Sent => Some(Derivation::Awaited),
        };
        Ok(Self {
            prefix: prefix.to_owned(),
            derivation: RwLock::new(derivation.ok_or(StoreError::Secret)?),
            are_awaited: AtomicBool::new(*secret == KeySecret::Sent),
            is_given: matches!(secret, KeySecret::Given(_) | KeySecret::Plain),
        })
    }

    /// Returns whether names cannot be derived yet.
    pub(crate) fn are_awaited(&self) -> bool {
        self.are_awaited.load(Ordering::Relaxed)
    }

    /// Takes the secret that the admin server sent; `None`: it has none. Returns whether keys that had names before
    /// have other names now.
    pub(crate) fn take(&self, sent: Option<&[u8]>) -> bool {
        let mut derivation = self.derivation.write().unwrap_or_else(PoisonError::into_inner);
        let next = match (&*derivation, sent) {
            _ if self.is_given => return false,
            (Derivation::Awaited, None) => Some(Derivation::Unkeyed),
            (Derivation::Keyed { secret, .. }, Some(sent)) if secret == sent => None,
            (_, Some(sent)) => Derivation::keyed(sent),
            (_, None) => None,
        };
        let Some(next) = next else { return false };
        let before = std::mem::replace(&mut *derivation, next);
        self.are_awaited.store(false, Ordering::Relaxed);
        !matches!(before, Derivation::Awaited)
    }

    /// Returns the epoch key in the slot of this hash tag.
    pub(crate) fn epoch(&self, tag: &str) -> String {
        format!("{}:{VERSION}:{{{tag}}}epoch", self.prefix)
    }

    /// Returns the name of the key of a charge. It shows no identity: it consists of digests of the limit's name and of
    /// the identities, with the length of each part, by HMAC-SHA-256 (RFC 2104) where there is a secret.
    pub(crate) fn name(&self, charge: &StoreCharge<'_>) -> KeyName {
        let derivation = self.derivation.read().unwrap_or_else(PoisonError::into_inner);
        let limit = derivation.digest([charge.limit_id]);
        let identities = charge.identities();
        let slot = if identities.len() == 0 {
            // A limit that counts all requests together has a slot of its own.
            limit.clone()
        } else {
            derivation.digest(identities.flat_map(|who| [who.kind(), who.value()]))
        };
        let key = format!("{}:{VERSION}:{{{slot}}}{limit}", self.prefix);
        KeyName { slot, key }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_letters_digits_and_a_few_signs() {
        for prefix in ["tidegate", "a", "Team-7:limits_2.x", &"p".repeat(64)] {
            assert!(KeyNames::with(prefix, &KeySecret::Unkeyed).is_ok(), "{prefix}");
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
            let error = KeyNames::with(prefix, &KeySecret::Unkeyed).err().expect("it is wrong").to_string();
            assert!(error.starts_with("the key prefix: ") && error.contains(why), "{error}");
            assert!(error.contains("1 to 64"), "{error}");
        }
    }

    #[test]
    fn a_digest_depends_on_the_secret_and_on_each_part() {
        let keyed = |secret: &[u8]| Derivation::keyed(secret).expect("any length");
        let (one, other) = (keyed(b"one"), keyed(b"other"));
        let all = [
            Derivation::Unkeyed.digest(["ip", "192.0.2.1"]),
            one.digest(["ip", "192.0.2.1"]),
            other.digest(["ip", "192.0.2.1"]),
            one.digest(["i", "p192.0.2.1"]),
        ];
        for (place, digest) in all.iter().enumerate() {
            assert_eq!(digest.len(), 20);
            assert!(!all[..place].contains(digest), "{all:?}");
        }
        assert_eq!(one.digest(["ip", "192.0.2.1"]), all[1]);
    }

    #[test]
    fn a_secret_of_the_admin_server_is_taken_unless_one_was_given() {
        let keys = |secret| KeyNames::with("p", &secret).expect("it is right");
        let sent = keys(KeySecret::Sent);
        assert!(sent.are_awaited());
        assert!(!sent.take(Some(b"one")), "there were no names");
        assert!(!sent.are_awaited() && !sent.take(Some(b"one")) && !sent.take(None));
        assert!(sent.take(Some(b"other")), "names are others now");
        let of_an_older_server = keys(KeySecret::Sent);
        assert!(!of_an_older_server.take(None) && !of_an_older_server.are_awaited());
        let unkeyed = keys(KeySecret::Unkeyed);
        assert!(!unkeyed.are_awaited() && !unkeyed.take(None) && unkeyed.take(Some(b"one")));
        let given = keys(KeySecret::Given(vec![7; 16]));
        assert!(!given.are_awaited() && !given.take(Some(b"one")));
        assert!(!keys(KeySecret::Plain).take(Some(b"one")));
        assert!(matches!(KeyNames::with("p", &KeySecret::Given(vec![7; 15])), Err(StoreError::Secret)));
    }
}
