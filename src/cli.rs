//! The tree of commands. Each command keeps its arguments in a file of its own below `commands/`.

use std::path::PathBuf;

use clap::{
    Parser, Subcommand,
    builder::{FalseyValueParser, Styles},
};

use crate::{
    commands::{
        backup::BackupArguments,
        check::CheckArguments,
        node::NodeArguments,
        policy::{
            check::PolicyCheckArguments, diff::DiffArguments, export::ExportArguments, import::ImportArguments,
            publish::PublishArguments, rollout::RolloutArguments, test::TestArguments,
        },
        replay::ReplayArguments,
        serve::ServeArguments,
        user::UserCommand,
    },
    server::{authorize::AddressArguments, control_plane::ControlPlaneArguments},
};

const HELP: &str = "\
Start with `tidegate serve`, then open the link that it prints.

Every setting can be given in three places. A flag wins over a variable, and a variable over tidegate.toml:
  --admin 127.0.0.1:9000      TIDEGATE_ADMIN=127.0.0.1:9000      admin = \"127.0.0.1:9000\"";

const ADMIN_HELP: &str = "\
Examples:
  tidegate admin
  tidegate admin --admin 0.0.0.0:8080 --admin-url https://admin.example --data /var/lib/tidegate
  tidegate admin backup backup.db

Without a command it serves the dashboard and the REST API. It answers no checks: nodes do (`tidegate node --help`).";

/// Limits the rate of requests: a library, a server, or a fleet of nodes.
///
/// Without a command it runs `tidegate serve`.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, styles = Styles::plain(), max_term_width = 100, after_help = HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print without colours. Files and pipes never get colours.
    #[arg(long, global = true, env = "NO_COLOR", value_parser = FalseyValueParser::new())]
    pub(crate) no_color: bool,
    /// The file with settings. The default is tidegate.toml in the working directory, if it exists.
    #[arg(long, global = true, value_name = "FILE", env = "TIDEGATE_CONFIG")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(Box<ServeArguments>),
    /// Runs only the control plane: the dashboard and the REST API, for nodes that follow it.
    ///
    /// The subcommands work on the database of a server.
    #[command(args_conflicts_with_subcommands = true, after_help = ADMIN_HELP)]
    Admin {
        #[command(subcommand)]
        command: Option<AdminCommand>,
        #[command(flatten)]
        control: ControlPlaneArguments,
        #[command(flatten)]
        addresses: AddressArguments,
    },
    Node(NodeArguments),
    Check(CheckArguments),
    Replay(ReplayArguments),
    /// Checks, tests, compares, imports, exports and publishes policies.
    Policy {
        #[command(subcommand)]
        command: PolicyCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdminCommand {
    Backup(BackupArguments),
    /// Adds and lists users, sets passwords, and removes second factors. A server may be running.
    User {
        #[command(subcommand)]
        command: UserCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    Check(PolicyCheckArguments),
    Test(TestArguments),
    Diff(DiffArguments),
    Import(ImportArguments),
    Export(ExportArguments),
    Publish(PublishArguments),
    Rollout(RolloutArguments),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
