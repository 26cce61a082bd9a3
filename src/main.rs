//! The command line of Tidegate. Here a command is read, run, and its exit status given; nowhere else does the process
//! end.

mod cli;
mod output;
mod policy;
mod progress;
mod replay;
mod welcome;

use std::process::ExitCode;

use clap::Parser;

use crate::{
    cli::{Cli, Command, PolicyCommand},
    output::{Ended, complain},
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help for somebody who does not listen is no error.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let outcome = match &cli.command {
        None => welcome::run(cli.no_color),
        Some(Command::Replay(arguments)) => replay::run(arguments, cli.no_color),
        Some(Command::Policy { command: PolicyCommand::Check(arguments) }) => policy::check(arguments),
    };
    match outcome {
        Ok(Ended::Well) => ExitCode::SUCCESS,
        Ok(Ended::No) => ExitCode::FAILURE,
        Ok(Ended::Partly) => ExitCode::from(2),
        Err(failure) => {
            complain(&failure.0);
            ExitCode::from(2)
        }
    }
}
