//! `tidegate admin user`: manages the users in the database of a server, also while the server runs.

use std::{
    io::{self, IsTerminal, Read},
    path::PathBuf,
};

use clap::{Args, Subcommand};
use tidegate_admin::{DatabaseUrl, People, Role};

use crate::{
    output::{CommandError, CommandStatus, print_result, printable},
    server::process::current_thread_runtime,
    value_parsers::database_url,
};

const HELP: &str = "\
The command asks for the password on the terminal, or reads the first line of standard input:
  tidegate admin user add ana --role admin < password.txt

A running server applies the change at once. Exit status: 0 done, 2 not done.";

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Adds a user.
    #[command(after_help = HELP)]
    Add {
        /// The name of the user: a-z first, then a-z, 0-9, `_`, `.` and `-`.
        #[arg(value_name = "NAME")]
        name: String,
        /// The role of the user: viewer, operator, editor or admin.
        #[arg(long, value_name = "ROLE", default_value = "viewer")]
        role: Role,
        #[command(flatten)]
        database: DatabaseArguments,
    },
    /// Sets a new password for a user, and with --role another role, and ends the sessions of that user.
    #[command(after_help = HELP)]
    Reset {
        /// The name of the user.
        #[arg(value_name = "NAME")]
        name: String,
        /// The new role: viewer, operator, editor or admin. Without this option the role stays.
        #[arg(long, value_name = "ROLE")]
        role: Option<Role>,
        #[command(flatten)]
        database: DatabaseArguments,
    },
    /// Removes the second factor of a user who has lost it. The user then signs in by the password alone.
    RemoveSecondFactor {
        /// The name of the user.
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        database: DatabaseArguments,
    },
    /// Lists the users and their roles.
    List {
        #[command(flatten)]
        database: DatabaseArguments,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DatabaseArguments {
    /// The data directory, which has the database.
    #[arg(long, value_name = "FOLDER", env = "TIDEGATE_DATA", default_value = "./tidegate-data")]
    data: PathBuf,
    #[arg(long, value_name = "URL", env = "TIDEGATE_DATABASE", hide_env_values = true, value_parser = database_url,
        help = "The PostgreSQL database of the server: postgres://USER:PASSWORD@HOST/NAME. Other users of the machine can read \
                flags, so give a password by the variable or the file")]
    database: Option<DatabaseUrl>,
}

pub(crate) fn run(command: &UserCommand) -> Result<CommandStatus, CommandError> {
    let (UserCommand::Add { database, .. }
    | UserCommand::Reset { database, .. }
    | UserCommand::RemoveSecondFactor { database, .. }
    | UserCommand::List { database }) = command;
    let failure = |error: tidegate_admin::PeopleError| CommandError(error.to_string());
    current_thread_runtime()?.block_on(async {
        let people = People::open(&database.data, database.database.as_ref()).await.map_err(failure)?;
        let done = match command {
            UserCommand::Add { name, role, .. } => people.add(name, *role, password(name)?).await,
            UserCommand::Reset { name, role, .. } => people.reset(name, *role, password(name)?).await,
            UserCommand::RemoveSecondFactor { name, .. } => people.remove_second_factor(name).await,
            UserCommand::List { .. } => match people.list().await {
                Ok(list) => {
                    let lines = list.iter().map(|(name, role)| format!("{:<32}  {role}\n", printable(name)));
                    print_result(lines.collect::<String>().as_bytes())?;
                    Ok(())
                }
                Err(error) => Err(error),
            },
        };
        people.close().await;
        done.map(|()| CommandStatus::Success).map_err(failure)
    })
}

/// Reads the password twice from the terminal, or the first line of standard input. The command line is no place for it: other
/// users can read that.
fn password(name: &str) -> Result<String, CommandError> {
    let failure = |error: io::Error| CommandError(format!("cannot read the password: {error}"));
    if !io::stdin().is_terminal() {
        let mut text = String::new();
        io::stdin().take(1 << 16).read_to_string(&mut text).map_err(failure)?;
        return Ok(text.lines().next().unwrap_or_default().to_owned());
    }
    let password = rpassword::prompt_password(format!("New password of {name}: ")).map_err(failure)?;
    let again = rpassword::prompt_password("Repeat the password: ").map_err(failure)?;
    if password == again {
        Ok(password)
    } else {
        Err(CommandError("the two passwords differ; nothing was changed".to_owned()))
    }
}
