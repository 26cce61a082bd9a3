//! `tidegate policy check`: validates a policy file.

use std::path::PathBuf;

use clap::Args;
use tidegate::{Snapshot, policy::Policy};

use crate::{
    formats::PolicyFormatName,
    output::{CommandError, CommandStatus, print_result},
    policy_file::{file_name, format_of, format_problems, read},
};

/// Checks whether a policy is valid, and lists everything that is wrong with it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate policy check policy.toml
  generate-policy | tidegate policy check - --format json

Exit status: 0 the policy is valid, 1 it is invalid, 2 it could not be read.")]
pub(crate) struct PolicyCheckArguments {
    /// The policy file; `-` is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The format of the policy. The default is that of the file name: .toml, .yaml or .json.
    #[arg(long, env = "TIDEGATE_POLICY_FORMAT", value_enum)]
    format: Option<PolicyFormatName>,
}

pub(crate) fn run(arguments: &PolicyCheckArguments) -> Result<CommandStatus, CommandError> {
    let name = file_name(&arguments.file);
    let format = format_of(&arguments.file, arguments.format.map(Into::into))?;
    let text = read(&arguments.file)?;
    match Snapshot::parse_with_policy(&text, format) {
        Ok((_, policy)) => {
            print_result(format!("{name}: valid: {}\n", summary(&policy)).as_bytes()).map(|()| CommandStatus::Success)
        }
        Err(problems) => print_result(format_problems(&name, &problems).as_bytes()).map(|()| CommandStatus::Negative),
    }
}

fn summary(policy: &Policy) -> String {
    let domains = || policy.domains.values();
    let tiers = domains().flat_map(|domain| &domain.tiers).map(|tier| tier.limits.len());
    let rules = domains().flat_map(|domain| &domain.rules).map(|rule| rule.limits.len());
    let clients = domains()
        .flat_map(|domain| &domain.clients)
        .map(|client| client.exception.as_ref().map_or(0, |exception| exception.limits.len()));
    let limits = tiers.clone().chain(rules.clone()).chain(clients.clone()).sum();
    let counted = [
        (domains().count(), "domain"),
        (tiers.count(), "tier"),
        (rules.count(), "rule"),
        (clients.count(), "client"),
        (limits, "limit"),
    ];
    let counted = counted.map(|(count, what)| format!("{count} {what}{}", if count == 1 { "" } else { "s" }));
    counted.join(", ")
}
