//! The values of the options that choose a format.

use std::path::Path;

use clap::ValueEnum;
use tidegate::formats::Format;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum OutputFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PolicyFormatName {
    Toml,
    Yaml,
    Json,
}

impl PolicyFormatName {
    /// Returns the name of the format in the REST API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Toml => "toml",
            Self::Yaml => "yaml",
            Self::Json => "json",
        }
    }

    /// Returns the format of `--to`; without it that of the name of `--out`; without both TOML.
    pub(crate) fn of(to: Option<Self>, out: Option<&Path>) -> Self {
        to.or_else(|| match Format::of(out?)? {
            Format::Toml => Some(Self::Toml),
            Format::Yaml => Some(Self::Yaml),
            Format::Json => Some(Self::Json),
            _ => None,
        })
        .unwrap_or(Self::Toml)
    }
}

impl From<PolicyFormatName> for Format {
    fn from(name: PolicyFormatName) -> Self {
        match name {
            PolicyFormatName::Toml => Self::Toml,
            PolicyFormatName::Yaml => Self::Yaml,
            PolicyFormatName::Json => Self::Json,
        }
    }
}
