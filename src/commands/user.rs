//! `tidegate admin user`: users of the database, whether or not a server runs on it.

use std::{
    io::{self, IsTerminal, Read},
    path::PathBuf,
};

use clap::{Args, Subcommand};
use tidegate_admin::{DatabaseUrl, People, Role};
use tokio::runtime;

use crate::{
    cli::database,
    output::{Ended, Failure, printable, say},
};

const HELP: &str = "\
The password is asked on the terminal, or read from standard input where that is none:
  tidegate admin user add ana --role admin < password.txt

A server that runs on the database knows at once. Exit status: 0 done, 2 not.";

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Adds a user.
    #[command(after_help = HELP)]
    Add {
        /// Begins with a-z; goes on with a-z, 0-9, `_`, `.` and `-`.
        #[arg(value_name = "NAME")]
        name: String,
        /// viewer, operator, editor or admin.
        #[arg(long, value_name = "ROLE", default_value = "viewer")]
        role: Role,
        #[command(flatten)]
        database: DatabaseArguments,
    },
    /// Gives a user a new password, and with --role another role, and ends his sessions.
    #[command(after_help = HELP)]
    Reset {
        /// Who gets it.
        #[arg(value_name = "NAME")]
        name: String,
        /// viewer, operator, editor or admin; as it is unless given.
        #[arg(long, value_name = "ROLE")]
        role: Option<Role>,
        #[command(flatten)]
        database: DatabaseArguments,
    },
    /// Removes the second factor of a user who has lost it. The password alone signs in then.
    RemoveSecondFactor {
        /// Name of the user.
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        database: DatabaseArguments,
    },
    /// Lists the users.
    List {
        #[command(flatten)]
        database: DatabaseArguments,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DatabaseArguments {
    /// Folder of the database.
    #[arg(long, value_name = "FOLDER", env = "TIDEGATE_DATA", default_value = "./tidegate-data")]
    data: PathBuf,
    #[arg(long, value_name = "URL", env = "TIDEGATE_DATABASE", hide_env_values = true, value_parser = database,
        help = "A PostgreSQL database instead of the one in the folder. Flags are seen by others on the machine: give a \
                password by the variable or the file")]
    database: Option<DatabaseUrl>,
}

pub(crate) fn run(command: &UserCommand) -> Result<Ended, Failure> {
    let (UserCommand::Add { database, .. }
    | UserCommand::Reset { database, .. }
    | UserCommand::RemoveSecondFactor { database, .. }
    | UserCommand::List { database }) = command;
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure(format!("no thread to work with: {error}")))?;
    let failure = |error: tidegate_admin::PeopleError| Failure(error.to_string());
    runtime.block_on(async {
        let people = People::open(&database.data, database.database.as_ref()).await.map_err(failure)?;
        let done = match command {
            UserCommand::Add { name, role, .. } => people.add(name, *role, password(name)?).await,
            UserCommand::Reset { name, role, .. } => people.reset(name, *role, password(name)?).await,
            UserCommand::RemoveSecondFactor { name, .. } => people.remove_second_factor(name).await,
            UserCommand::List { .. } => match people.list().await {
                Ok(list) => {
                    let lines = list.iter().map(|(name, role)| format!("{:<32}  {role}\n", printable(name)));
                    say(lines.collect::<String>().as_bytes())?;
                    Ok(())
                }
                Err(error) => Err(error),
            },
        };
        people.close().await;
        done.map(|()| Ended::Well).map_err(failure)
    })
}

/// From the terminal, twice, or the first line of standard input; never from the command line, which others can read.
fn password(name: &str) -> Result<String, Failure> {
    let failure = |error: io::Error| Failure(format!("no password: {error}"));
    if !io::stdin().is_terminal() {
        let mut text = String::new();
        io::stdin().take(1 << 16).read_to_string(&mut text).map_err(failure)?;
        return Ok(text.lines().next().unwrap_or_default().to_owned());
    }
    let password = rpassword::prompt_password(format!("New password of {name}: ")).map_err(failure)?;
    let again = rpassword::prompt_password("Once more: ").map_err(failure)?;
    if password == again { Ok(password) } else { Err(Failure("the two are not the same; nothing was done".to_owned())) }
}
