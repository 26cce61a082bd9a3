//! `tidegate policy export`: writes a version of a running server to a file.

use std::path::PathBuf;

use clap::Args;

use crate::policy_file::write_output;
use crate::{
    client::session::{AdminSession, SIGN_IN_HELP, SessionArguments},
    formats::PolicyFormatName,
    output::{CommandError, CommandStatus},
};

/// Writes the policy of a running server to a file, or to standard output.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  tidegate policy export --user ana > policy.toml
  tidegate policy export --version 3 --out policy.yaml --user ana

{SIGN_IN_HELP}

Exit status: 0 the policy was written, 2 it was not."))]
pub(crate) struct ExportArguments {
    /// The version to export. The default is the one in force.
    #[arg(long, value_name = "VERSION")]
    version: Option<u64>,
    /// The format. The default is that of the name of --out, or toml.
    #[arg(long, value_enum)]
    to: Option<PolicyFormatName>,
    /// The file to write. The default is standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    session: SessionArguments,
}

pub(crate) fn run(arguments: &ExportArguments) -> Result<CommandStatus, CommandError> {
    let ExportArguments { version, to, out, session } = arguments;
    let format = PolicyFormatName::of(*to, out.as_deref()).name();
    let version = version.map(|version| format!("&version={version}")).unwrap_or_default();
    let path = format!("/api/v1/policy/export?format={format}{version}");
    let exported = AdminSession::with(session, |session| session.get_text(&path))?;
    write_output(&exported.body, out.as_deref()).map(|()| CommandStatus::Success)
}
