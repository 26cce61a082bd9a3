//! Sign-ins by the provider that have begun. What each of them needs when the browser is back is in a cookie of its own,
//! sealed: the server keeps nothing of them, so however many others begin, nobody loses his.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    error::Unspecified,
    hmac,
};
use serde::{Deserialize, Serialize};

use crate::{base::secrets::SECRET_BYTES, domain::error::Problem};

/// What a sign-in has to come back with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SignIn {
    /// Of the ID token.
    pub(crate) nonce: String,
    /// Of PKCE.
    pub(crate) verifier: String,
    /// The path of the dashboard that the browser is sent to then.
    pub(crate) return_to: String,
    /// Unix seconds.
    pub(crate) ends_at: i64,
}

/// Seals them: by a secret of the database, so that a browser may come back to another server, or after a restart.
#[derive(Debug)]
pub(crate) struct Seal(hmac::Key);

impl Seal {
    pub(crate) fn of(secret: &[u8; SECRET_BYTES]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// As text that fits a cookie, which opens by this state alone.
    pub(crate) fn close(&self, state: &str, sign_in: &SignIn) -> Result<String, Problem> {
        let failed =
            |error: &dyn ToString| Problem::Internal(format!("a sign-in is not sealed: {}", error.to_string()));
        let mut bytes = serde_json::to_vec(sign_in).map_err(|error| failed(&error))?;
        let key = self.key(state).map_err(|error| failed(&error))?;
        key.seal_in_place_append_tag(nonce(), Aad::empty(), &mut bytes).map_err(|error| failed(&error))?;
        Ok(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// `None`: it was not sealed here for this state, or is over.
    pub(crate) fn open(&self, state: &str, sealed: &str, now: i64) -> Option<SignIn> {
        let mut bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let bytes = self.key(state).ok()?.open_in_place(nonce(), Aad::empty(), &mut bytes).ok()?;
        serde_json::from_slice(bytes).ok().filter(|sign_in: &SignIn| sign_in.ends_at > now)
    }

    fn key(&self, state: &str) -> Result<LessSafeKey, Unspecified> {
        UnboundKey::new(&CHACHA20_POLY1305, hmac::sign(&self.0, state.as_bytes()).as_ref()).map(LessSafeKey::new)
    }
}

/// Always the same: each state is random and has a key of its own, so no key seals twice.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_by_its_state_and_secret_until_it_ends() {
        let seal = Seal::of(&[7; SECRET_BYTES]);
        let text = |text: &str| text.to_owned();
        let sign_in = SignIn {
            nonce: text("nonce"),
            verifier: text("verifier"),
            return_to: text("/tiers/pro?x=ü"),
            ends_at: 600,
        };
        let sealed = seal.close("state", &sign_in).expect("it is sealed");
        assert!(sealed.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')), "{sealed}");
        assert_eq!(seal.open("state", &sealed, 599), Some(sign_in.clone()));
        assert_eq!(seal.open("state", &sealed, 600), None, "over");
        assert_eq!(seal.open("another", &sealed, 0), None);
        assert_eq!(Seal::of(&[8; SECRET_BYTES]).open("state", &sealed, 0), None);
        let bytes = URL_SAFE_NO_PAD.decode(&sealed).expect("base64");
        for changed in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[changed] ^= 1;
            assert_eq!(seal.open("state", &URL_SAFE_NO_PAD.encode(bytes), 0), None, "byte {changed}");
        }
        for nonsense in ["", "A", "AAAA", "not base64!", &sealed[..sealed.len() - 4]] {
            assert_eq!(seal.open("state", nonsense, 0), None, "{nonsense}");
        }
        // The plain text of another that has the same parts is not seen to be the same.
        assert_ne!(seal.close("another", &sign_in).expect("it is sealed"), sealed);
    }
}
