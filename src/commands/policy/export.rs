//! `tidegate policy export`: a version of a running server as a file.

use std::path::PathBuf;

use clap::Args;

use crate::policy_file::hand_out;
use crate::{
    client::session::{SIGNING_IN, Session, SessionArguments},
    formats::PolicyFormatName,
    output::{Ended, Failure},
};

/// Writes the policy of a running server to a file, or to standard output.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  tidegate policy export --user ana > policy.toml
  tidegate policy export --version 3 --out policy.yaml --user ana

{SIGNING_IN}

Exit status: 0, or 2 when it could not be had."))]
pub(crate) struct ExportArguments {
    /// Which version; the one in force unless given.
    #[arg(long, value_name = "VERSION")]
    version: Option<u64>,
    /// Format; that of the name of --out, or toml, unless given.
    #[arg(long, value_enum)]
    to: Option<PolicyFormatName>,
    /// File to write; standard output unless given.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    session: SessionArguments,
}

pub(crate) fn run(arguments: &ExportArguments) -> Result<Ended, Failure> {
    let ExportArguments { version, to, out, session } = arguments;
    let format = PolicyFormatName::of(*to, out.as_deref()).name();
    let version = version.map(|version| format!("&version={version}")).unwrap_or_default();
    let path = format!("/api/v1/policy/export?format={format}{version}");
    let exported = Session::with(session, |session| session.get_text(&path))?;
    hand_out(&exported.body, out.as_deref()).map(|()| Ended::Well)
}
