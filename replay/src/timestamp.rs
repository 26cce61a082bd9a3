//! Instants in reports, and parser of the times of log lines.

use std::{borrow::Cow, fmt, str::FromStr};

use arrayvec::ArrayVec;
use jiff::{
    Timestamp,
    civil::DateTime,
    fmt::{rfc2822, temporal::DateTimeParser},
    tz::{Offset, TimeZone},
};
use memchr::memrchr;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tidegate::time::{Nanos, SECOND_NS};

use crate::log::line_error::LineError;

/// An instant, written as RFC 3339 in UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Utc(pub Nanos);

impl Utc {
    /// Returns the instant in the calendar.
    pub(crate) fn timestamp(self) -> Timestamp {
        // All values of u64, up to the year 2554, are in the range of the calendar.
        Timestamp::from_nanosecond(i128::from(self.0)).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.timestamp().fmt(f)
    }
}

impl Serialize for Utc {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Utc {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let instant = text.parse().ok().and_then(in_range);
        instant.map(Self).ok_or("write an instant from 1970 to 2554, such as 2026-01-05T09:00:00Z")
    }
}

impl<'de> Deserialize<'de> for Utc {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Utc {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Utc".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// The time zone of times that name none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogZone(TimeZone);

impl LogZone {
    /// Coordinated Universal Time.
    pub const UTC: Self = Self(TimeZone::UTC);
}

impl FromStr for LogZone {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let zone = DateTimeParser::new().parse_time_zone(text).map(Self);
        zone.map_err(|_| "write a name such as UTC or Europe/Berlin, or an offset such as +02:00")
    }
}

/// Reason why a time cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimeError {
    /// The text has no known format.
    Unreadable,
    /// The time has no zone.
    NoZone,
}

impl TimeError {
    /// Returns the error for a line, with the text at fault.
    pub(crate) fn of_line(self, text: impl AsRef<[u8]>) -> LineError {
        match self {
            Self::Unreadable => LineError::of("its time cannot be read; RFC 3339 and Unix seconds can", text),
            Self::NoZone => {
                LineError::of("its time has no zone; --time-zone says which it is, such as --time-zone UTC", text)
            }
        }
    }
}

/// Longest text of a time that is cached.
const STAMP_BYTES_MAX: usize = 40;
/// Shortest text of a time in a line without field names.
const STAMP_BYTES_MIN: usize = 10;
/// Least number of seconds that is likely a time; it is in 1973.
const SECONDS_MIN: f64 = 1e8;

/// Parser of times such as `17/May/2015:10:05:03 +0000` and `2015-05-17T10:05:03Z`. It caches the last one, which lines of the
/// same second share.
#[derive(Debug, Default)]
pub(crate) struct TimestampReader {
    zone: Option<LogZone>,
    last: ArrayVec<u8, STAMP_BYTES_MAX>,
    last_ns: Nanos,
}

impl TimestampReader {
    pub(crate) fn new(zone: Option<LogZone>) -> Self {
        Self { zone, ..Self::default() }
    }

    #[inline]
    pub(crate) fn read(&mut self, text: &[u8]) -> Result<Nanos, TimeError> {
        if text == self.last.as_slice() {
            return Ok(self.last_ns);
        }
        if text.len() < STAMP_BYTES_MIN {
            return Err(TimeError::Unreadable);
        }
        let time = read_any(text, self.zone.as_ref())?;
        if let Ok(text) = ArrayVec::try_from(text) {
            (self.last, self.last_ns) = (text, time);
        }
        Ok(time)
    }
}

/// Parses a time in any known format, in brackets or not: RFC 3339, `17/May/2015:10:05:03 +0000`, RFC 2822, or a number since
/// 1970. A zone may follow after a space.
pub(crate) fn read_any(text: &[u8], zone: Option<&LogZone>) -> Result<Nanos, TimeError> {
    let text = text.trim_ascii();
    let text = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]")).unwrap_or(text);
    let own = memrchr(b' ', text).and_then(|space| Some((&text[..space], read_zone(&text[space + 1..])?)));
    let (date_time, own) = own.map_or((text, None), |(date_time, zone)| (date_time, Some(LogZone(zone))));
    if let Some(time) = read_stamp(date_time) {
        return in_zone(time, own, zone);
    }
    let text = str::from_utf8(text).map_err(|_| TimeError::Unreadable)?;
    match read_iso(date_time, own, zone) {
        Err(TimeError::Unreadable) => {}
        read => return read,
    }
    let time = match text.parse() {
        Ok(number) => of_number(number),
        Err(_) => rfc2822::parse(text).ok().and_then(|time| in_range(time.timestamp())),
    };
    time.ok_or(TimeError::Unreadable)
}

/// Returns the instant of a time in its own zone, or else in the given one.
fn in_zone(time: DateTime, own: Option<LogZone>, given: Option<&LogZone>) -> Result<Nanos, TimeError> {
    let zone = own.or_else(|| given.cloned()).ok_or(TimeError::NoZone)?;
    zone.0.to_timestamp(time).ok().and_then(in_range).ok_or(TimeError::Unreadable)
}

/// Parses `UTC`, `GMT`, `Z`, `+HHMM` or `+HH:MM`.
fn read_zone(zone: &[u8]) -> Option<TimeZone> {
    let (sign, hours, minutes) = match zone {
        b"UTC" | b"GMT" | b"Z" => return Some(TimeZone::UTC),
        [sign @ (b'+' | b'-'), hours @ .., b':', m, n] if hours.len() == 2 => (*sign, hours, [*m, *n]),
        [sign @ (b'+' | b'-'), hours @ .., m, n] if hours.len() == 2 => (*sign, hours, [*m, *n]),
        _ => return None,
    };
    let offset = number(hours)? * 3_600 + number(&minutes)? * 60;
    Some(Offset::from_seconds(if sign == b'-' { -offset } else { offset }).ok()?.to_time_zone())
}

/// Parses `DD/Mon/YYYY:HH:MM:SS`, with or without a fraction of the second.
fn read_stamp(text: &[u8]) -> Option<DateTime> {
    let (date_time, fraction) = text.split_at_checked(20)?;
    let separators = [date_time[2], date_time[6], date_time[11], date_time[14], date_time[17]];
    if separators != *b"//:::" {
        return None;
    }
    let month = match &date_time[3..6] {
        b"Jan" => 1,
        b"Feb" => 2,
        b"Mar" => 3,
        b"Apr" => 4,
        b"May" => 5,
        b"Jun" => 6,
        b"Jul" => 7,
        b"Aug" => 8,
        b"Sep" => 9,
        b"Oct" => 10,
        b"Nov" => 11,
        b"Dec" => 12,
        _ => return None,
    };
    let part = |from: usize, to: usize| number(&date_time[from..to]);
    let fraction = if fraction.is_empty() { fraction } else { fraction.strip_prefix(b".")? };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut fraction_ns = [b'0'; 9];
    let kept = fraction.len().min(9);
    fraction_ns[..kept].copy_from_slice(&fraction[..kept]);
    let date_time = DateTime::new(
        part(7, 11)? as i16,
        month,
        part(0, 2)? as i8,
        part(12, 14)? as i8,
        part(15, 17)? as i8,
        // A leap second counts as the second before it.
        part(18, 20)?.min(59) as i8,
        number(&fraction_ns)?,
    );
    date_time.ok()
}

/// Parses RFC 3339, also with slashes in the date or without a zone.
fn read_iso(text: &[u8], own: Option<LogZone>, zone: Option<&LogZone>) -> Result<Nanos, TimeError> {
    let text = str::from_utf8(text).map_err(|_| TimeError::Unreadable)?;
    let has_slashes = matches!(text.as_bytes(), [_, _, _, _, b'/', _, _, b'/', ..]);
    let text = if has_slashes { Cow::Owned(text.replace('/', "-")) } else { Cow::Borrowed(text) };
    if own.is_none()
        && let Ok(time) = text.parse()
    {
        return in_range(time).ok_or(TimeError::Unreadable);
    }
    // A date alone is not an instant.
    let has_clock = text.get(10..).is_some_and(|clock| clock.starts_with(['T', 't', ' ']));
    let time = has_clock.then(|| text.parse().ok()).flatten().ok_or(TimeError::Unreadable)?;
    in_zone(time, own, zone)
}

/// Converts seconds since 1970, or milli-, micro- or nanoseconds if seconds would be beyond the year 5138. The result is exact
/// to the microsecond. Returns `None` for a number that is more likely a duration or a date.
pub(crate) fn of_number(number: f64) -> Option<Nanos> {
    const SECONDS_MAX: f64 = 1e11;
    let seconds = match number {
        seconds if seconds <= SECONDS_MAX => seconds,
        millis if millis <= SECONDS_MAX * 1e3 => millis / 1e3,
        micros if micros <= SECONDS_MAX * 1e6 => micros / 1e6,
        nanos => nanos / 1e9,
    };
    // Such as 0.045 or 20250312.
    let is_other = number < SECONDS_MIN && (number.fract() != 0.0 || number >= 19_700_101.0);
    let is_time = !is_other && seconds >= 0.0 && seconds < (u64::MAX / SECOND_NS) as f64;
    #[expect(clippy::cast_sign_loss, reason = "it is not below zero")]
    is_time.then(|| (seconds * 1e6).round() as u64 * 1_000)
}

/// Returns whether a text has enough digits for a date and a time of the day, or for a current number of seconds.
pub(crate) fn is_likely_text(text: &str) -> bool {
    text.bytes().filter(u8::is_ascii_digit).count() > 8
}

/// Returns whether a number is likely one of seconds, or parts of a second, since 1970.
pub(crate) fn is_likely_number(number: f64) -> bool {
    number >= SECONDS_MIN
}

fn in_range(time: Timestamp) -> Option<Nanos> {
    u64::try_from(time.as_nanosecond()).ok()
}

fn number(digits: &[u8]) -> Option<i32> {
    digits.iter().try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + i32::from(byte - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_have_zones_and_may_have_fractions() {
        let mut stamps = TimestampReader::default();
        for (text, utc) in [
            ("17/May/2015:10:05:03 +0000", "2015-05-17T10:05:03Z"),
            ("17/May/2015:10:05:03 +0000", "2015-05-17T10:05:03Z"),
            ("17/May/2015:10:05:03 -0730", "2015-05-17T17:35:03Z"),
            ("29/Feb/2024:00:30:00 +0100", "2024-02-28T23:30:00Z"),
            ("31/Dec/2016:23:59:60 +0000", "2016-12-31T23:59:59Z"),
            ("17/May/2015:10:05:03.25 +0000", "2015-05-17T10:05:03.25Z"),
            ("17/May/2015:10:05:03.1234567899 +0000", "2015-05-17T10:05:03.123456789Z"),
            ("17/May/2015:10:05:03.123456789123456789123 +0000", "2015-05-17T10:05:03.123456789Z"),
            ("2015-05-17T10:05:03+00:00", "2015-05-17T10:05:03Z"),
            ("2015-05-17T10:05:03Z", "2015-05-17T10:05:03Z"),
            ("2015-05-17T12:05:03.123456789+0200", "2015-05-17T10:05:03.123456789Z"),
            ("17/May/2015:11:05:03 +01:00", "2015-05-17T10:05:03Z"),
            ("17/May/2015:10:05:03.250 UTC", "2015-05-17T10:05:03.25Z"),
            ("2015-05-17 10:05:03 GMT", "2015-05-17T10:05:03Z"),
            ("2015-05-17 08:05:03,250 -0200", "2015-05-17T10:05:03.25Z"),
            ("1431857103.123", "2015-05-17T10:05:03.123Z"),
        ] {
            assert_eq!(stamps.read(text.as_bytes()).map(|time| Utc(time).to_string()).as_deref(), Ok(utc), "{text}");
        }
        for text in [
            "",
            "17/May/2015:10:05:03 0000",
            "17/May/2015:10:05:03 +000",
            "17/May/2015:10:05:03 +0x00",
            "17/may/2015:10:05:03 +0000",
            "30/Feb/2024:10:05:03 +0000",
            "17/May/2015:24:05:03 +0000",
            "17/May/1815:10:05:03 +0000",
            "17-May-2015:10:05:03 +0000",
            "17/May/2015:10:05:03 +9999",
            "17/May/2015:10:05:03.25x",
            "17/May/2015:10:05:03.1234567890x +0000",
            "143185710",
        ] {
            assert_eq!(stamps.read(text.as_bytes()), Err(TimeError::Unreadable), "{text}");
        }
    }

    #[test]
    fn a_time_without_a_zone_takes_the_one_that_is_given_or_is_refused() {
        let zone: LogZone = "+02:00".parse().expect("an offset");
        let mut stamps = TimestampReader::new(Some(zone.clone()));
        for text in
            ["17/May/2015:12:05:03", "2015-05-17T12:05:03", "2015-05-17 12:05:03.000", "2015/05/17 12:05:03.000"]
        {
            assert_eq!(TimestampReader::default().read(text.as_bytes()), Err(TimeError::NoZone), "{text}");
            assert_eq!(read_any(text.as_bytes(), None), Err(TimeError::NoZone), "{text}");
            let seconds = Ok(1_431_857_103 * SECOND_NS);
            assert_eq!(
                (stamps.read(text.as_bytes()), read_any(text.as_bytes(), Some(&zone))),
                (seconds, seconds),
                "{text}"
            );
        }
        let named: LogZone = "Europe/Berlin".parse().expect("a name");
        assert_eq!(read_any(b"2015-05-17T12:05:03", Some(&named)), Ok(1_431_857_103 * SECOND_NS));
        assert!("Nowhere".parse::<LogZone>().is_err() && "2".parse::<LogZone>().is_err());
    }

    #[test]
    fn other_programs_write_times_in_other_ways() {
        let seconds = 1_431_857_103 * SECOND_NS;
        for text in [
            "2015-05-17T10:05:03Z",
            "2015-05-17T12:05:03+02:00",
            "2015-05-17 10:05:03Z",
            "1431857103",
            "1431857103.000",
            "1431857103000",
            "1431857103000000",
            "1431857103000000000",
            "17/May/2015:10:05:03 +0000",
            "[17/May/2015:10:05:03 +0000]",
            "2015/05/17 10:05:03 UTC",
            "Sun, 17 May 2015 10:05:03 GMT",
        ] {
            assert_eq!(read_any(text.as_bytes(), None), Ok(seconds), "{text}");
        }
        assert_eq!(read_any(b"1431857103.123", None), Ok(seconds + 123_000_000));
        for text in ["", "yesterday", "-1", "NaN", "inf", "1e300", "2015-05-17", "0.045", "20150517", "12ms"] {
            assert_eq!(read_any(text.as_bytes(), None), Err(TimeError::Unreadable), "{text}");
        }
    }
}
