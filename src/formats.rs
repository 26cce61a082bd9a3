//! Formats, as settings name them.

use std::path::Path;

use clap::ValueEnum;
use tidegate::formats::Format;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Output {
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
    /// As the admin server calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Toml => "toml",
            Self::Yaml => "yaml",
            Self::Json => "json",
        }
    }

    /// That of `--to`, or else the one that the name of `--out` tells, or else TOML.
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
