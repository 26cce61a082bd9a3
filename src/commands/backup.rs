//! `tidegate admin backup`: copies the database, also while a server uses it.

use std::path::PathBuf;

use clap::Args;
use tidegate_admin::DatabaseUrl;

use crate::{
    output::{CommandError, CommandStatus, print_result},
    server::process::current_thread_runtime,
    value_parsers::database_url,
};

/// Copies the database. A server may be running on it.
///
/// The copy is of one instant: it contains every change that was acknowledged before the command began. The file gets its name
/// only once it is complete and on the disk. To restore it, put it into an empty directory as tidegate.db, and start the server
/// with --data and that directory.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate admin backup backup.db
  tidegate admin backup --data /var/lib/tidegate /backup/tidegate-$(date +%F).db

Exit status: 0 the copy is complete, 2 there is no copy. An existing file is never overwritten.")]
pub(crate) struct BackupArguments {
    /// The file to write. It must not exist.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The data directory, which has the database.
    #[arg(long, value_name = "FOLDER", env = "TIDEGATE_DATA", default_value = "./tidegate-data")]
    data: PathBuf,
    #[arg(long, value_name = "URL", env = "TIDEGATE_DATABASE", hide_env_values = true, value_parser = database_url,
        help = "The PostgreSQL database of the server. The command then only names the PostgreSQL tool that copies it")]
    database: Option<DatabaseUrl>,
}

pub(crate) fn run(arguments: &BackupArguments) -> Result<CommandStatus, CommandError> {
    let BackupArguments { file, data, database } = arguments;
    let copied = current_thread_runtime()?.block_on(tidegate_admin::backup(data, database.as_ref(), file));
    let copied = copied.map_err(|error| CommandError(error.to_string()))?;
    let (file, version, bytes) = (file.display(), copied.policy_version, copied.bytes);
    print_result(format!("{file}: policy version {version}, {bytes} bytes\n").as_bytes())?;
    Ok(CommandStatus::Success)
}
