//! `tidegate admin backup`: copies the database while a server runs on it.

use tokio::runtime;

use crate::{
    cli::BackupArguments,
    output::{Ended, Failure, say},
};

pub(crate) fn run(arguments: &BackupArguments) -> Result<Ended, Failure> {
    let BackupArguments { file, data, database } = arguments;
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure(format!("no thread to work with: {error}")))?;
    let copied = runtime.block_on(tidegate_admin::backup(data, database.as_ref(), file));
    let copied = copied.map_err(|error| Failure(error.to_string()))?;
    let (file, version, bytes) = (file.display(), copied.policy_version, copied.bytes);
    say(format!("{file}: policy version {version}, {bytes} bytes\n").as_bytes())?;
    Ok(Ended::Well)
}
