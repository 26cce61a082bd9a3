//! The command line of Tidegate. This file reads the command, runs it, and returns its exit status: the process ends nowhere else.
//!
//! The files, from the ground up: a file uses only what stands before it in the list of its folder, which a test checks.
//!
//! * `src`: `output`, `value_parsers`, `formats`, `policy_file`, `client`, `server`, `commands`, `cli`, `settings`;
//! * `client` (calls of a running server): `http_client`, `session`;
//! * `server` (the parts of a server or a node): `process`, `oidc`, `dashboard_settings`, `store`, `authorize`, `traces`, `listener_settings`, `listeners`, `control_plane`;
//! * `commands` (the commands, with their arguments): `backup`, `user`, `admin`, `serve`, `node`, `check`, `progress`, `replay`, `policy`;
//! * `commands/policy` (the commands on policy documents): `check`, `test`, `diff`, `import`, `export`, `publish`, `rollout`;
//! * `commands/policy/test` (its input): `cases`.

mod cli;
mod client;
mod commands;
mod formats;
mod output;
mod policy_file;
mod server;
mod settings;
mod value_parsers;

use std::process::ExitCode;

use crate::{
    cli::{AdminCommand, Cli, Command, PolicyCommand},
    commands::{admin, backup, check, node, policy, replay, serve, user},
    output::{CommandError, CommandStatus, print_diagnostic},
    settings::SettingsError,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match settings::read(std::env::args_os().collect()) {
        Ok(cli) => cli,
        Err(SettingsError::Usage(error)) => {
            // A reader that closed the pipe of the help is not an error.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
        Err(SettingsError::File(error)) => return fail(&error),
    };
    match run(&cli) {
        Ok(CommandStatus::Success) => ExitCode::SUCCESS,
        Ok(CommandStatus::Negative) => ExitCode::FAILURE,
        Ok(CommandStatus::Partial) => ExitCode::from(2),
        Ok(CommandStatus::LateInput) => ExitCode::from(3),
        Err(error) => fail(&error),
    }
}

fn run(cli: &Cli) -> Result<CommandStatus, CommandError> {
    match &cli.command {
        Command::Serve(arguments) => serve::run(arguments, cli.no_color),
        Command::Admin { command: None, control, addresses } => admin::run(control, addresses, cli.no_color),
        Command::Admin { command: Some(AdminCommand::Backup(arguments)), .. } => backup::run(arguments),
        Command::Admin { command: Some(AdminCommand::User { command }), .. } => user::run(command),
        Command::Node(arguments) => node::run(arguments, cli.no_color),
        Command::Check(arguments) => check::run(arguments),
        Command::Replay(arguments) => replay::run(arguments, cli.no_color),
        Command::Policy { command } => match command {
            PolicyCommand::Check(arguments) => policy::check::run(arguments),
            PolicyCommand::Test(arguments) => policy::test::run(arguments),
            PolicyCommand::Diff(arguments) => policy::diff::run(arguments),
            PolicyCommand::Import(arguments) => policy::import::run(arguments),
            PolicyCommand::Export(arguments) => policy::export::run(arguments),
            PolicyCommand::Publish(arguments) => policy::publish::run(arguments),
            PolicyCommand::Rollout(arguments) => policy::rollout::run(arguments),
        },
    }
}

fn fail(error: &CommandError) -> ExitCode {
    print_diagnostic(&error.0);
    ExitCode::from(2)
}
