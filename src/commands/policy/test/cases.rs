//! The case file of `tidegate policy test`: requests in order of time, each with the expected decision.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor},
};
use serde_saphyr::Spanned;
use tidegate::{
    Problem,
    formats::read_yaml,
    time::{PERIOD_MAX, SECOND_NS, parse_period},
};

/// The most times that one case is repeated.
pub(super) const REPEAT_MAX: u32 = 1_000_000;

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseFile {
    /// The time of `at: 0`.
    #[serde(default)]
    pub(super) start: StartTime,
    pub(super) cases: Vec<Spanned<TestCase>>,
}

/// One request, and what is expected of its decision.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TestCase {
    pub(super) name: Option<String>,
    /// The time since the start. The default is the time of the case before.
    #[serde(default)]
    pub(super) at: Option<CaseTime>,
    pub(super) domain: Option<String>,
    #[serde(default)]
    pub(super) identities: Option<CaseIdentities>,
    pub(super) endpoint: Option<String>,
    pub(super) method: Option<String>,
    pub(super) tier: Option<String>,
    /// Envoy descriptors, instead of identities.
    pub(super) descriptors: Option<Vec<CaseDescriptor>>,
    pub(super) cost: Option<u64>,
    #[serde(default)]
    pub(super) peek: bool,
    pub(super) repeat: Option<u32>,
    pub(super) expect: CaseVerdict,
    /// Full name of the limit that decides; `none` where none applies.
    pub(super) limit: Option<String>,
    pub(super) remaining: Option<u64>,
    pub(super) retry_after: Option<ExpectedWait>,
}

/// An Envoy descriptor, as Envoy writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseDescriptor {
    pub(super) entries: Vec<CaseEntry>,
    /// The cost of this descriptor instead of the case's.
    pub(super) hits_addend: Option<u64>,
    /// The verdict on this descriptor alone, of the last request.
    pub(super) expect: Option<CaseVerdict>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseEntry {
    pub(super) key: String,
    pub(super) value: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CaseVerdict {
    Allowed,
    Denied,
}

impl CaseVerdict {
    pub(super) fn of(is_allowed: bool) -> Self {
        if is_allowed { Self::Allowed } else { Self::Denied }
    }
}

impl fmt::Display for CaseVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Allowed { "allowed" } else { "denied" })
    }
}

impl CaseFile {
    /// Reads the file, and checks what concerns one case alone.
    pub(super) fn read(text: &str) -> Result<Self, Problem> {
        let cases: Self = read_yaml(text)?;
        if cases.cases.is_empty() {
            return Err(Problem {
                path: "cases".to_owned(),
                line: None,
                message: "the list is empty; give at least one case".to_owned(),
            });
        }
        for (place, Spanned { value: case, referenced, .. }) in cases.cases.iter().enumerate() {
            case.check().map_err(|(field, message)| {
                let field = if field.is_empty() { String::new() } else { format!(".{field}") };
                let path = format!("cases[{place}]{field}");
                Problem { path, line: usize::try_from(referenced.line()).ok(), message: message.to_owned() }
            })?;
        }
        Ok(cases)
    }
}

impl TestCase {
    /// The error is the field and what is wrong with it.
    fn check(&self) -> Result<(), (&'static str, &'static str)> {
        match (&self.identities, &self.descriptors) {
            (None, None) => return Err(("", "the case has no request; give `identities` or `descriptors`")),
            (Some(_), Some(_)) => {
                return Err(("descriptors", "is given beside `identities`; a case has only one of the two"));
            }
            (None, Some(_)) => {
                let stray = [("endpoint", &self.endpoint), ("method", &self.method), ("tier", &self.tier)];
                if let Some((field, _)) = stray.into_iter().find(|(_, value)| value.is_some()) {
                    return Err((
                        field,
                        "is given beside `descriptors`; give it as an entry, such as { key: path, value: /login }",
                    ));
                }
            }
            (Some(_), None) => {}
        }
        if self.cost == Some(0) && !self.peek {
            return Err(("cost", "is 0, which only a peek may have; add `peek: true`, or give 1 or more"));
        }
        if !(1..=REPEAT_MAX).contains(&self.repeat.unwrap_or(1)) {
            return Err(("repeat", "is out of range; give a number from 1 to 1000000"));
        }
        if self.expect == CaseVerdict::Allowed && self.retry_after.is_some() {
            return Err(("retry_after", "is given beside `expect: allowed`; only a denied request has it"));
        }
        Ok(())
    }
}

/// The time at which the cases begin.
pub(super) struct StartTime(pub(super) Timestamp);

impl Default for StartTime {
    /// Returns a midnight of UTC, so that windows of seconds, minutes, hours and days begin with the first case.
    fn default() -> Self {
        Self(Timestamp::constant(1_767_225_600, 0))
    }
}

impl<'de> Deserialize<'de> for StartTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let start = text.parse().ok().filter(|start: &Timestamp| start.as_second() >= 0);
        let form = || format!("`{text}` is not a time after 1970; write one such as 2026-01-01T00:00:00Z");
        start.map(Self).ok_or_else(|| Error::custom(form()))
    }
}

/// A time in nanoseconds since the start, read from a number of seconds or a period.
#[derive(Clone, Copy)]
pub(super) struct CaseTime(pub(super) u64);

impl<'de> Deserialize<'de> for CaseTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CaseTimeVisitor;

        impl Visitor<'_> for CaseTimeVisitor {
            type Value = CaseTime;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("seconds since the start, such as 90 or 0.5, or a period such as 90s or 1h")
            }

            fn visit_u64<E: Error>(self, seconds: u64) -> Result<CaseTime, E> {
                let ns = (seconds <= PERIOD_MAX.as_secs()).then(|| seconds * SECOND_NS);
                ns.map(CaseTime)
                    .ok_or_else(|| E::custom(format!("{seconds} seconds are more than 366 days; give less")))
            }

            fn visit_i64<E: Error>(self, seconds: i64) -> Result<CaseTime, E> {
                let below = |_| E::custom(format!("{seconds} is before the start; give 0 or more"));
                self.visit_u64(u64::try_from(seconds).map_err(below)?)
            }

            fn visit_f64<E: Error>(self, seconds: f64) -> Result<CaseTime, E> {
                let moment = Duration::try_from_secs_f64(seconds).ok().filter(|moment| *moment <= PERIOD_MAX);
                moment
                    .map(|moment| CaseTime(moment.as_nanos() as u64))
                    .ok_or_else(|| E::custom(format!("{seconds} is out of range; give 0 to 366 days")))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<CaseTime, E> {
                match text {
                    "0ms" | "0s" | "0m" | "0h" | "0d" => Ok(CaseTime(0)),
                    _ => parse_period(text).map(|moment| CaseTime(moment.as_nanos() as u64)).map_err(E::custom),
                }
            }
        }

        deserializer.deserialize_any(CaseTimeVisitor)
    }
}

/// A wait after a denial, as it is written.
pub(super) enum ExpectedWait {
    Never,
    /// The wait, in nanoseconds, and the unit to which the found one is rounded up.
    After {
        text: String,
        ns: u64,
        unit_ns: u64,
    },
}

impl<'de> Deserialize<'de> for ExpectedWait {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "never" {
            return Ok(Self::Never);
        }
        let wait = parse_period(&text).map_err(|error| Error::custom(format!("{error}; or `never`")))?;
        let unit_ns = if text.ends_with("ms") { 1_000_000 } else { SECOND_NS };
        Ok(Self::After { text, ns: wait.as_nanos() as u64, unit_ns })
    }
}

impl fmt::Display for ExpectedWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("never allowed"),
            Self::After { text, .. } => write!(f, "retry after {text}"),
        }
    }
}

/// Identities in the order of the file, in which they are checked.
pub(super) struct CaseIdentities(pub(super) Vec<(String, String)>);

impl<'de> Deserialize<'de> for CaseIdentities {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CaseIdentitiesVisitor;

        impl<'de> Visitor<'de> for CaseIdentitiesVisitor {
            type Value = CaseIdentities;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("kinds with their values, such as { user: ada, ip: 192.0.2.7 }")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<CaseIdentities, A::Error> {
                let mut identities = Vec::new();
                while let Some(identity) = entries.next_entry()? {
                    identities.push(identity);
                }
                Ok(CaseIdentities(identities))
            }
        }

        deserializer.deserialize_map(CaseIdentitiesVisitor)
    }
}
