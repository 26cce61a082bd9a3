//! Settings for reading a log.

use std::{borrow::Cow, str::FromStr};

use serde::{Deserialize, Deserializer, de};
use tidegate::{Identity, RequestError};

use super::{client::ClientOptions, field_names::FieldMap};
use crate::{clients::IdentityKind, timestamp::LogZone};

/// The format of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// Detects the format: W3C extended after a line `#Fields:`; CSV if the first line is a CSV header; otherwise by line: one
    /// that begins with `{` is JSON, one with three durations after two addresses is from an AWS load balancer, every other
    /// one is common or combined.
    #[default]
    Auto,
    /// The common log format `ADDRESS IDENT USER [TIME] "REQUEST" STATUS BYTES`; the rest of the line is ignored.
    Common,
    /// The common log format, then `"REFERER" "AGENT"`.
    Combined,
    /// A JSON object on each line.
    Json,
    /// CSV (RFC 4180): a header, then records.
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

/// Settings for reading a log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogOptions {
    /// The format of its lines.
    pub format: LogFormat,
    /// The field that identifies the client, if it does not have a known name.
    pub key: Option<LogKey>,
    /// Other names of fields than the known ones.
    pub fields: FieldMap,
    /// Settings of how clients are found.
    pub clients: ClientOptions,
    /// The time zone of times without a zone; without this setting they are errors.
    pub time_zone: Option<LogZone>,
}

/// A field of JSON lines or CSV that identifies the client: instead of the user, or of the address if `kind` is `ip`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogKey {
    pub(crate) field: String,
    pub(crate) kind: String,
}

impl LogKey {
    /// Creates a key from the name of a field and the kind of its identities.
    ///
    /// # Errors
    ///
    /// The kind is not valid for an identity.
    pub fn new(field: &str, kind: &str) -> Result<Self, RequestError> {
        Identity::new(kind, "any")?;
        Ok(Self { field: field.to_owned(), kind: kind.to_owned() })
    }

    /// Returns the name of the field.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Returns the kind of the identities.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }
}

impl From<LogFormat> for LogOptions {
    fn from(format: LogFormat) -> Self {
        Self { format, ..Self::default() }
    }
}

impl LogOptions {
    /// Returns the kind of the identity other than the address.
    pub(crate) fn kind(&self) -> &str {
        self.key.as_ref().map(LogKey::kind).filter(|kind| *kind != IdentityKind::IP).unwrap_or(IdentityKind::USER)
    }
}
