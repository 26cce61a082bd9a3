//! Settings of how a log is read.

use std::{borrow::Cow, str::FromStr};

use serde::{Deserialize, Deserializer, de};
use tidegate::{Identity, RequestError};

use super::{client::ClientReading, fields::FieldMap};
use crate::{clients::Kind, timestamp::LogZone};

/// The format of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// W3C extended after a line `#Fields:`; CSV where the first line is a header of it; else line by line: one that begins
    /// with `{` is JSON, one with three durations after two addresses an AWS load balancer's, every other common or combined.
    #[default]
    Auto,
    /// `ADDRESS IDENT USER [TIME] "REQUEST" STATUS BYTES`; whatever comes after it is left alone.
    Common,
    /// Common, then `"REFERER" "AGENT"`.
    Combined,
    /// One JSON object a line.
    Json,
    /// A header, then a record a line (RFC 4180).
    Csv,
    /// The W3C's extended format, as IIS and `CloudFront` write it.
    W3c,
    /// Access logs of AWS load balancers.
    Alb,
}

impl LogFormat {
    /// The formats by their names.
    pub const ALL: [(&'static str, Self); 7] = [
        ("auto", Self::Auto),
        ("common", Self::Common),
        ("combined", Self::Combined),
        ("json", Self::Json),
        ("csv", Self::Csv),
        ("w3c", Self::W3c),
        ("alb", Self::Alb),
    ];
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let format = Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, format)| format);
        format.ok_or_else(|| {
            let names = Self::ALL.map(|(name, _)| name).join(", ");
            format!("`{name}` is not a log format; the formats are {names}")
        })
    }
}

impl<'de> Deserialize<'de> for LogFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for LogFormat {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "LogFormat".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "enum": Self::ALL.map(|(name, _)| name) })
    }
}

/// How a log is read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogReading {
    /// The format of its lines.
    pub format: LogFormat,
    /// The field that says who came, if it is not those that are known by their names.
    pub key: Option<LogKey>,
    /// Names of fields that are not those that are known.
    pub fields: FieldMap,
    /// How clients are found.
    pub clients: ClientReading,
    /// Where times are that name no zone; without it they are refused.
    pub time_zone: Option<LogZone>,
}

/// A field of JSON lines or CSV that says who came: in the place of the user, or of the address where `kind` is `ip`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogKey {
    pub(crate) field: String,
    pub(crate) kind: String,
}

impl LogKey {
    /// Makes a key of the field's name, and the kind of identity that it holds.
    ///
    /// # Errors
    ///
    /// Identities have no such kind.
    pub fn new(field: &str, kind: &str) -> Result<Self, RequestError> {
        Identity::new(kind, "any")?;
        Ok(Self { field: field.to_owned(), kind: kind.to_owned() })
    }

    /// Name of the field.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Kind of identity.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }
}

impl From<LogFormat> for LogReading {
    fn from(format: LogFormat) -> Self {
        Self { format, ..Self::default() }
    }
}

impl LogReading {
    /// The kind of identity that stands beside the address.
    pub(crate) fn kind(&self) -> &str {
        self.key.as_ref().map(LogKey::kind).filter(|kind| *kind != Kind::IP).unwrap_or(Kind::USER)
    }
}
