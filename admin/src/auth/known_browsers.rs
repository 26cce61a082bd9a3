//! Browsers in which a user signed in before, known by a signed cookie. Tries to sign in from them are counted apart, so a
//! crowd that uses up the tries of a name keeps nobody out of a browser that is known.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::hmac;

use crate::{
    base::secrets::{SECRET_BYTES, secret},
    store::users::Login,
};

/// How long a browser is known after the last sign-in in it, in seconds.
pub(crate) const KNOWN_FOR_S: i64 = 180 * 24 * 60 * 60;

/// Signs the cookies, by a secret of the database: a browser is known to each of its servers, and after a restart.
#[derive(Debug)]
pub(crate) struct Browsers(hmac::Key);

/// A browser as a cookie with a good signature describes it.
#[derive(Debug)]
pub(crate) struct KnownBrowser {
    /// Random identifier, under which tries are counted.
    pub(crate) id: String,
    stamp: String,
}

impl Browsers {
    pub(crate) fn of(secret: &[u8; SECRET_BYTES]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The value of the cookie of a browser in which this user has just signed in.
    pub(crate) fn sign(&self, name: &str, user: &Login, now: i64) -> Result<String, getrandom::Error> {
        let said = format!("{}.{}.{}", secret()?, now + KNOWN_FOR_S, self.stamp(user));
        let signature = self.tag(&signed(name, &said));
        Ok(format!("{said}.{signature}"))
    }

    /// Reads the value of a cookie for this name. `None`: it was not signed here for this name, or is over.
    pub(crate) fn read(&self, name: &str, value: &str, now: i64) -> Option<KnownBrowser> {
        let (said, signature) = value.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        hmac::verify(&self.0, signed(name, said).as_bytes(), &signature).ok()?;
        let mut parts = said.split('.');
        let (id, ends_at, stamp) = (parts.next()?, parts.next()?, parts.next()?);
        let is_over = ends_at.parse::<i64>().ok()? <= now;
        (!is_over).then(|| KnownBrowser { id: id.to_owned(), stamp: stamp.to_owned() })
    }

    /// Returns whether it is still one of this user. A new password ends it, and so does signing out everywhere.
    pub(crate) fn is_of(&self, browser: &KnownBrowser, user: &Login) -> bool {
        browser.stamp == self.stamp(user)
    }

    /// A digest of what must not change as long as a browser is known. The salt of the hash is another for each user.
    fn stamp(&self, user: &Login) -> String {
        self.tag(&format!("user\n{}\n{}", user.sign_outs, user.password_hash))
    }

    fn tag(&self, text: &str) -> String {
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.0, text.as_bytes()))
    }
}

/// The text that is signed. No name has a line feed.
fn signed(name: &str, said: &str) -> String {
    format!("browser\n{name}\n{said}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(password_hash: &str, sign_outs: i64) -> Login {
        let (password_hash, app_secret) = (password_hash.to_owned(), String::new());
        Login { id: 1, revision: 1, password_hash, sign_outs, app_secret, last_step: 0 }
    }

    #[test]
    fn a_browser_is_known_by_what_was_signed_for_its_user() {
        let browsers = Browsers::of(&[7; SECRET_BYTES]);
        let ana = user("hash", 3);
        let value = browsers.sign("ana", &ana, 100).expect("random numbers");
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        assert!(value.bytes().all(is_plain), "{value}");
        let browser = browsers.read("ana", &value, 99 + KNOWN_FOR_S).expect("it is known");
        assert!(browsers.is_of(&browser, &ana));
        assert!(!browsers.is_of(&browser, &user("another hash", 3)), "another password");
        assert!(!browsers.is_of(&browser, &user("hash", 4)), "signed out everywhere");
        assert!(browsers.read("ana", &value, 100 + KNOWN_FOR_S).is_none(), "over");
        assert!(browsers.read("ben", &value, 100).is_none(), "another user");
        assert!(Browsers::of(&[8; SECRET_BYTES]).read("ana", &value, 100).is_none(), "another database");
        // A browser is another one after each sign-in.
        let again = browsers.sign("ana", &ana, 100).expect("random numbers");
        assert_ne!(browsers.read("ana", &again, 100).expect("it is known").id, browser.id);
    }

    #[test]
    fn a_cookie_that_was_altered_is_none() {
        let browsers = Browsers::of(&[7; SECRET_BYTES]);
        let value = browsers.sign("ana", &user("hash", 0), 100).expect("random numbers");
        for at in 0..value.len() {
            let mut bytes = value.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let altered = String::from_utf8(bytes).expect("text");
            assert!(browsers.read("ana", &altered, 100).is_none(), "{altered}");
        }
        for nonsense in ["", ".", "...", "a.b.c.d", &value[1..], &value[..value.len() - 1], &format!("{value}.")] {
            assert!(browsers.read("ana", nonsense, 100).is_none(), "{nonsense}");
        }
    }
}
