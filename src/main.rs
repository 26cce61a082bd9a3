//! The command line of Tidegate. Here a command is read, run, and its exit status given; nowhere else does the process
//! end.

mod cli;
mod client;
mod commands;
mod formats;
mod output;
mod policy_file;
mod server;
mod settings;

use std::process::ExitCode;

use crate::{
    cli::{AdminCommand, Command, PolicyCommand},
    output::{Ended, Failure, complain},
    settings::Unsettled,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match settings::read(std::env::args_os().collect()) {
        Ok(cli) => cli,
        Err(Unsettled::Usage(error)) => {
            // Help for somebody who does not listen is no error.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
        Err(Unsettled::File(failure)) => return fail(&failure),
    };
    let outcome = match &cli.command {
        Command::Serve(arguments) => server::control_plane::run(arguments, cli.no_color),
        Command::Admin { command: None, control, addresses } => {
            server::control_plane::run_alone(control, addresses, cli.no_color)
        }
        Command::Admin { command: Some(command), .. } => match command {
            AdminCommand::Backup(arguments) => commands::backup::run(arguments),
            AdminCommand::User { command } => commands::user::run(command),
        },
        Command::Node(arguments) => commands::node::run(arguments, cli.no_color),
        Command::Check(arguments) => commands::check::run(arguments),
        Command::Replay(arguments) => commands::replay::run(arguments, cli.no_color),
        Command::Policy { command } => match command {
            PolicyCommand::Check(arguments) => policy_file::check(arguments),
            PolicyCommand::Test(arguments) => commands::policy::test::run(arguments),
            PolicyCommand::Diff(arguments) => commands::policy::diff::run(arguments),
            PolicyCommand::Import(arguments) => commands::policy::import::run(arguments),
            PolicyCommand::Export(arguments) => commands::policy::export::run(arguments),
            PolicyCommand::Publish(arguments) => commands::policy::publish::run(arguments),
            PolicyCommand::Rollout(arguments) => commands::policy::rollout::run(arguments),
        },
    };
    match outcome {
        Ok(Ended::Well) => ExitCode::SUCCESS,
        Ok(Ended::No) => ExitCode::FAILURE,
        Ok(Ended::Partly) => ExitCode::from(2),
        Ok(Ended::Late) => ExitCode::from(3),
        Err(failure) => fail(&failure),
    }
}

fn fail(failure: &Failure) -> ExitCode {
    complain(&failure.0);
    ExitCode::from(2)
}
