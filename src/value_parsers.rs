//! Parsers of option values that several commands share. An error says what would be right; clap adds the option and the value.

use std::{convert::Infallible, num::NonZeroU32, str::FromStr, time::Duration};

use tidegate::{clock::SystemClock, time::parse_period};
use tidegate_admin::DatabaseUrl;
use tidegate_service::CONNECTIONS_MAX;

/// A share of one in so many; `None` is none at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SampleRate(pub(crate) Option<NonZeroU32>);

/// Parses `off`, or `1/N` with N up to a million.
pub(crate) fn sample_rate(text: &str) -> Result<SampleRate, String> {
    if text == "off" {
        return Ok(SampleRate(None));
    }
    let one_in = text.strip_prefix("1/").and_then(|one_in| one_in.parse().ok());
    let one_in = one_in.filter(|one_in: &NonZeroU32| one_in.get() <= 1_000_000);
    one_in
        .map(|one_in| SampleRate(Some(one_in)))
        .ok_or_else(|| "write off, or 1/N such as 1/10, with N from 1 to 1000000".to_owned())
}

/// Parses a number without a sign or a fraction.
pub(crate) fn whole_number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "write a whole number, 0 or more".to_owned())
}

/// Parses a number of bits from 1 to 128.
pub(crate) fn ipv6_prefix(text: &str) -> Result<u8, String> {
    let bits = text.parse().ok().filter(|bits| (1..=128).contains(bits));
    bits.ok_or_else(|| "write a number of bits from 1 to 128".to_owned())
}

/// Parses a number of keys from 1 to a billion (24 GB).
pub(crate) fn max_keys(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=1_000_000_000).contains(number));
    number.ok_or_else(|| "write a whole number from 1 to 1000000000".to_owned())
}

/// Parses a period from 10 ms to a minute.
pub(crate) fn clock_step(text: &str) -> Result<Duration, String> {
    let step = parse_period(text).map_err(|why| why.to_string())?;
    let fits = (SystemClock::STEP_MIN..=SystemClock::STEP_MAX).contains(&step);
    fits.then_some(step).ok_or_else(|| "write a period from 10ms to 1m".to_owned())
}

/// Accepts any text. The URL is checked when the database is opened: clap would print a wrong one, with its password.
#[expect(clippy::unnecessary_wraps, reason = "the signature of a parser of clap")]
pub(crate) fn database_url(text: &str) -> Result<DatabaseUrl, Infallible> {
    Ok(DatabaseUrl::new(text))
}

/// Parses the URL of a site. Returns it without a slash at its end.
pub(crate) fn base_url(text: &str) -> Result<String, String> {
    let is_url = ["http://", "https://"].iter().any(|scheme| text.len() > scheme.len() && text.starts_with(scheme));
    if is_url {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        Err("write http:// or https:// and the host, such as https://admin.example".to_owned())
    }
}

/// Parses the name of a node: 1 to 64 bytes without control characters.
pub(crate) fn node_name(text: &str) -> Result<String, String> {
    let fits = (1..=64).contains(&text.len()) && text.chars().all(|one| !one.is_control());
    fits.then(|| text.to_owned()).ok_or_else(|| "write a name of 1 to 64 bytes, without control characters".to_owned())
}

/// Parses a number of threads from 1 to 1,024.
pub(crate) fn workers(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=1_024).contains(number));
    number.ok_or_else(|| "write a whole number from 1 to 1024".to_owned())
}

/// Parses a number of connections, from 1 to as many as a listener accepts.
pub(crate) fn connections(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=CONNECTIONS_MAX).contains(number));
    number.ok_or_else(|| format!("write a whole number from 1 to {CONNECTIONS_MAX}"))
}
