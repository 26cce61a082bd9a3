//! Random secrets as text that fits a link and a cookie.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

/// Length of that secret.
pub(crate) const SECRET_BYTES: usize = 32;

/// 256 random bits from the operating system, as 43 characters.
pub(crate) fn secret() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// What the secret of a token begins with, so that it is known for one wherever it turns up.
pub(crate) const TOKEN_PREFIX: &str = "tg_";

/// The secret of a token.
pub(crate) fn token() -> Result<String, getrandom::Error> {
    secret().map(|secret| format!("{TOKEN_PREFIX}{secret}"))
}

/// How long sessions live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionLife {
    /// Seconds without being used.
    pub(crate) idle_s: i64,
    /// Seconds, however much it is used.
    pub(crate) whole_s: i64,
}

impl SessionLife {
    /// When a session ends that is not used again, in Unix seconds; `expires_at` is when it does in any case.
    pub(crate) fn end(self, last_seen_at: i64, expires_at: i64) -> i64 {
        expires_at.min(last_seen_at + self.idle_s)
    }
}

/// Seconds since the Unix epoch.
pub(crate) fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// RFC 3339 of Unix seconds.
pub(crate) fn instant(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map(|at| at.to_string()).unwrap_or_default()
}
