//! Times of log lines, read and written.

use std::{borrow::Cow, fmt, str::FromStr};

use jiff::{Timestamp, civil::DateTime, tz::Offset};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tidegate::time::{Nanos, SECOND_NS};

/// An instant, written as RFC 3339 in UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Utc(pub Nanos);

impl Utc {
    /// As an instant of the calendar.
    pub(crate) fn timestamp(self) -> Timestamp {
        // The whole of u64, up to the year 2554, is inside the calendar.
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

/// Length of `17/May/2015:10:05:03 +0000`.
const STAMP_BYTES: usize = 26;

/// Reads times such as `17/May/2015:10:05:03 +0000`. Remembers the last one: lines of the same second share it.
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    last: [u8; STAMP_BYTES],
    last_ns: Nanos,
}

impl Stamps {
    #[inline]
    pub(crate) fn read(&mut self, text: &[u8]) -> Option<Nanos> {
        if text == self.last {
            return Some(self.last_ns);
        }
        let time = read_stamp(text)?;
        if let Ok(text) = text.try_into() {
            (self.last, self.last_ns) = (text, time);
        }
        Some(time)
    }
}

/// `DD/Mon/YYYY:HH:MM:SS +HHMM`, with or without a fraction of the second.
fn read_stamp(text: &[u8]) -> Option<Nanos> {
    let (date_time, zone) = text.split_at_checked(20)?;
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
    let (fraction, zone) = match zone.strip_prefix(b".") {
        Some(zone) => zone.split_at(zone.iter().take_while(|byte| byte.is_ascii_digit()).count()),
        None => ([].as_slice(), zone),
    };
    let mut fraction_ns = [b'0'; 9];
    let kept = fraction.len().min(9);
    fraction_ns[..kept].copy_from_slice(&fraction[..kept]);
    let [b' ', sign @ (b'+' | b'-'), zone @ ..] = zone else { return None };
    if zone.len() != 4 {
        return None;
    }
    let offset = number(&zone[..2])? * 3_600 + number(&zone[2..])? * 60;
    let offset = if *sign == b'-' { -offset } else { offset };
    let date_time = DateTime::new(
        part(7, 11)? as i16,
        month,
        part(0, 2)? as i8,
        part(12, 14)? as i8,
        part(15, 17)? as i8,
        // A leap second is counted in the second before it.
        part(18, 20)?.min(59) as i8,
        number(&fraction_ns)?,
    );
    let time = Offset::from_seconds(offset).ok()?.to_timestamp(date_time.ok()?).ok()?;
    in_range(time)
}

/// Reads what people and programs write for a time: RFC 3339, `17/May/2015:10:05:03 +0000`, or seconds since 1970.
pub(crate) fn read_any(text: &str) -> Option<Nanos> {
    let by_number = || text.parse().ok().and_then(of_number);
    read_stamp(text.as_bytes()).or_else(|| text.parse().ok().and_then(in_range)).or_else(by_number)
}

/// Seconds since 1970, or milliseconds where that would be beyond the year 5138. Good to the microsecond.
pub(crate) fn of_number(number: f64) -> Option<Nanos> {
    const SECONDS_MAX: f64 = 1e11;
    let seconds = if number > SECONDS_MAX { number / 1e3 } else { number };
    let is_time = seconds >= 0.0 && seconds < (u64::MAX / SECOND_NS) as f64;
    #[expect(clippy::cast_sign_loss, reason = "it is not below zero")]
    is_time.then(|| (seconds * 1e6).round() as u64 * 1_000)
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
        let mut stamps = Stamps::default();
        for (text, utc) in [
            ("17/May/2015:10:05:03 +0000", "2015-05-17T10:05:03Z"),
            ("17/May/2015:10:05:03 +0000", "2015-05-17T10:05:03Z"),
            ("17/May/2015:10:05:03 -0730", "2015-05-17T17:35:03Z"),
            ("29/Feb/2024:00:30:00 +0100", "2024-02-28T23:30:00Z"),
            ("31/Dec/2016:23:59:60 +0000", "2016-12-31T23:59:59Z"),
            ("17/May/2015:10:05:03.25 +0000", "2015-05-17T10:05:03.25Z"),
            ("17/May/2015:10:05:03.1234567899 +0000", "2015-05-17T10:05:03.123456789Z"),
        ] {
            assert_eq!(stamps.read(text.as_bytes()).map(|time| Utc(time).to_string()).as_deref(), Some(utc), "{text}");
        }
        for text in [
            "",
            "17/May/2015:10:05:03",
            "17/May/2015:10:05:03 0000",
            "17/May/2015:10:05:03 +000",
            "17/May/2015:10:05:03 +0x00",
            "17/may/2015:10:05:03 +0000",
            "30/Feb/2024:10:05:03 +0000",
            "17/May/2015:24:05:03 +0000",
            "17/May/1815:10:05:03 +0000",
            "17-May-2015:10:05:03 +0000",
            "17/May/2015:10:05:03 +9999",
        ] {
            assert_eq!(stamps.read(text.as_bytes()), None, "{text}");
        }
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
            "17/May/2015:10:05:03 +0000",
        ] {
            assert_eq!(read_any(text), Some(seconds), "{text}");
        }
        assert_eq!(read_any("1431857103.123"), Some(seconds + 123_000_000));
        for text in ["", "yesterday", "-1", "NaN", "inf", "1e300", "2015-05-17", "2015-05-17T10:05:03"] {
            assert_eq!(read_any(text), None, "{text}");
        }
    }
}
