//! The command line of Tidegate. Here a command is read, run, and its exit status given; nowhere else does the process
//! end.

mod access;
mod ask;
mod authorize;
mod backup;
mod cli;
mod doors;
mod formats;
mod listening;
mod node;
mod oidc;
mod output;
mod policy;
mod progress;
mod replay;
mod running;
mod serve;
mod session;
mod settings;
mod store;
mod traces;
mod users;

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
        Command::Serve(arguments) => serve::run(arguments, cli.no_color),
        Command::Admin { command: None, control, addresses } => serve::run_alone(control, addresses, cli.no_color),
        Command::Admin { command: Some(command), .. } => match command {
            AdminCommand::Backup(arguments) => backup::run(arguments),
            AdminCommand::User { command } => users::run(command),
        },
        Command::Node(arguments) => node::run(arguments, cli.no_color),
        Command::Check(arguments) => ask::run(arguments),
        Command::Replay(arguments) => replay::run(arguments, cli.no_color),
        Command::Policy { command } => match command {
            PolicyCommand::Check(arguments) => policy::check(arguments),
            PolicyCommand::Test(arguments) => policy::test::run(arguments),
            PolicyCommand::Diff(arguments) => policy::diff::run(arguments),
            PolicyCommand::Import(arguments) => policy::import::run(arguments),
            PolicyCommand::Export(arguments) => policy::export::run(arguments),
            PolicyCommand::Publish(arguments) => policy::publish::run(arguments),
            PolicyCommand::Rollout(arguments) => policy::rollout::run(arguments),
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
