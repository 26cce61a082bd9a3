//! How the identities of others are shown: as they are, cut, or as a keyed hash. Whatever shows an identity that was seen in
//! traffic asks here; what people wrote into the policy or sent themselves is shown as they wrote it.

use std::{fmt, net::IpAddr, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::base::secrets::SECRET_BYTES;

/// How identities are shown that were seen in traffic, the clearest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Keys {
    /// As they are.
    Clear,
    /// Addresses by their network (`/24`, `/48`), others by their first characters: the default, because an API key is a
    /// credential, which nobody should be able to copy from a screen, and the beginning is enough to know one's own.
    #[default]
    Truncated,
    /// A hash with a secret of the database: the same value has the same hash, and nobody can tell which it is.
    Hashed,
}

impl FromStr for Keys {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Self::Clear, Self::Truncated, Self::Hashed];
        all.into_iter().find(|keys| keys.to_string() == name).ok_or("write clear, truncated or hashed".to_owned())
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clear => "clear",
            Self::Truncated => "truncated",
            Self::Hashed => "hashed",
        })
    }
}

/// Characters that are left of a value that is no address; never more than half of them.
const CHARACTERS: usize = 4;

/// The one place that says how an identity is shown.
#[derive(Clone, Copy)]
pub(crate) struct Privacy {
    pub(crate) keys: Keys,
    secret: [u8; SECRET_BYTES],
}

impl fmt::Debug for Privacy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Privacy").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl Privacy {
    pub(crate) fn new(keys: Keys, secret: &[u8; SECRET_BYTES]) -> Self {
        Self { keys, secret: *secret }
    }

    /// Are they shown as they are?
    pub(crate) fn is_clear(&self) -> bool {
        self.keys == Keys::Clear
    }

    /// A value of this kind, as it may be shown.
    pub(crate) fn show(&self, kind: &str, value: &str) -> String {
        match self.keys {
            Keys::Clear => value.to_owned(),
            Keys::Truncated => truncated(value),
            Keys::Hashed => self.hashed(kind, value),
        }
    }

    /// `KIND:VALUE` of one of many who are told apart. What is cut may be cut to the same, so it has its number among them.
    pub(crate) fn key(&self, kind: &str, value: &str, number: usize) -> String {
        let shown = self.show(kind, value);
        match self.keys {
            Keys::Truncated => format!("{kind}:{shown}#{}", number + 1),
            Keys::Clear | Keys::Hashed => format!("{kind}:{shown}"),
        }
    }

    /// One of many of whom no more is told than that he is not another.
    pub(crate) fn number(kind: &str, number: usize) -> String {
        format!("{kind}:#{}", number + 1)
    }

    fn hashed(&self, kind: &str, value: &str) -> String {
        // Its length keeps a kind from running into the value; being cut keeps the hash from being gone on with.
        let hash = Sha256::new().chain_update(self.secret).chain_update([kind.len() as u8]);
        let hash = hash.chain_update(kind).chain_update(value).finalize();
        // Two of a million values have the same 64 bits with a probability of 3 in 10^8.
        format!("{:016x}", hash.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)))
    }
}

fn truncated(value: &str) -> String {
    match value.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V4(address)) => {
            let [a, b, c, _] = address.octets();
            format!("{a}.{b}.{c}.0/24")
        }
        Ok(IpAddr::V6(address)) => {
            let [a, b, c, ..] = address.segments();
            format!("{}/48", std::net::Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0))
        }
        Err(_) => {
            let kept = (value.chars().count() / 2).min(CHARACTERS);
            value.chars().take(kept).chain(['…']).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_was_asked() {
        let shown = |keys, kind, value| Privacy::new(keys, &[7; SECRET_BYTES]).show(kind, value);
        assert_eq!(shown(Keys::Clear, "ip", "192.0.2.7"), "192.0.2.7");
        for (value, cut) in [
            ("192.0.2.7", "192.0.2.0/24"),
            ("::ffff:192.0.2.7", "192.0.2.0/24"),
            ("2001:db8:1:2::7", "2001:db8:1::/48"),
            ("sk_live_51H8", "sk_l…"),
            ("ada", "a…"),
            ("é", "…"),
            ("ünïcödé", "ünï…"),
        ] {
            assert_eq!(shown(Keys::Truncated, "any", value), cut);
        }
        let hash = shown(Keys::Hashed, "user", "ada");
        assert!(hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
        assert_eq!(hash, shown(Keys::Hashed, "user", "ada"));
        assert_ne!(hash, shown(Keys::Hashed, "user", "ade"));
        assert_ne!(shown(Keys::Hashed, "ab", "c"), shown(Keys::Hashed, "a", "bc"));
        assert_ne!(hash, Privacy::new(Keys::Hashed, &[8; SECRET_BYTES]).show("user", "ada"));
    }

    #[test]
    fn the_setting_is_read_as_it_is_written() {
        for keys in [Keys::Clear, Keys::Truncated, Keys::Hashed] {
            assert_eq!(keys.to_string().parse(), Ok(keys));
        }
        assert!("CLEAR".parse::<Keys>().is_err());
    }
}
