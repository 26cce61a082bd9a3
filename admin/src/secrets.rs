//! Random secrets as text that fits a link and a cookie.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

/// 256 random bits from the operating system, as 43 characters.
pub(crate) fn secret() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Seconds since the Unix epoch.
pub(crate) fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}
