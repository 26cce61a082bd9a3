//! `tidegate admin backup`: a copy of the database while a server runs on it.

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process,
};

use sqlx::{ConnectOptions, Connection, query, query_scalar};

use crate::{
    base::startup_error::StartError,
    store::{address::DatabaseUrl, data_directory::DATABASE, database::sqlite},
};

/// Why there is no copy.
#[derive(Debug)]
#[non_exhaustive]
pub enum BackupError {
    /// There is something under the copy's name.
    Exists(PathBuf),
    /// The copy cannot be written.
    File {
        /// Where it was to be.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// The database cannot be read, or its copy is not what it should be.
    Database(StartError),
    /// The folder has no database.
    Missing(PathBuf),
    /// A database of a server is copied by that server's own tools.
    Postgres {
        /// Its address, without what is secret.
        url: DatabaseUrl,
        /// Where the copy was to be.
        path: PathBuf,
    },
}

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists(path) => write!(f, "{} is there already; nothing was written", path.display()),
            Self::File { path, why } => write!(f, "{}: {why}", path.display()),
            Self::Database(error) => error.fmt(f),
            Self::Missing(path) => write!(f, "there is no database {}; name its folder with --data", path.display()),
            Self::Postgres { url, path } => write!(
                f,
                "the database is in PostgreSQL, whose own tool makes a consistent copy while it is used:\n  \
                 pg_dump --format=custom --file={} {url}\n\
                 and pg_restore puts it back into an empty database",
                path.display()
            ),
        }
    }
}

impl std::error::Error for BackupError {}

/// What was copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Copied {
    /// The newest version of the policy in the copy.
    pub policy_version: u64,
    /// Size of the copy.
    pub bytes: u64,
}

/// Copies the database of the folder `data` to `to`, as it is at one instant, whether or not a server runs on it. The copy
/// has its name only when it is whole and on the disk.
pub async fn backup(data: &Path, database: Option<&DatabaseUrl>, to: &Path) -> Result<Copied, BackupError> {
    if let Some(url) = database {
        return Err(BackupError::Postgres { url: url.clone(), path: to.to_owned() });
    }
    let from = data.join(DATABASE);
    match from.try_exists() {
        Ok(true) => {}
        Ok(false) => return Err(BackupError::Missing(from)),
        Err(why) => return Err(BackupError::File { path: from, why }),
    }
    if fs::symlink_metadata(to).is_ok() {
        return Err(BackupError::Exists(to.to_owned()));
    }
    let unfinished = Unfinished::beside(to).map_err(|why| BackupError::File { path: to.to_owned(), why })?;
    let policy_version = copy(&from, &unfinished.0).await.map_err(BackupError::Database)?;
    let bytes = unfinished.finish(to)?;
    Ok(Copied { policy_version, bytes })
}

/// Copies what is committed, and looks at the copy as a start would.
async fn copy(from: &Path, to: &Path) -> Result<u64, StartError> {
    let explain = |path: &Path| {
        let path = path.to_owned();
        move |error| sqlite::explain(&path, &error)
    };
    let mut connection = sqlite::options(from).read_only(true).connect().await.map_err(explain(from))?;
    let name = to.to_string_lossy();
    query("VACUUM INTO $1").bind(&*name).execute(&mut connection).await.map_err(explain(from))?;
    connection.close().await.map_err(explain(from))?;
    sqlite::look(to).await?;
    let mut connection = sqlite::options(to).read_only(true).connect().await.map_err(explain(to))?;
    let newest = query_scalar("SELECT coalesce(max(version), 0) FROM policy_versions").fetch_one(&mut connection);
    let newest: i64 = newest.await.map_err(explain(to))?;
    connection.close().await.map_err(explain(to))?;
    Ok(newest.cast_unsigned())
}

/// A copy that is being made, removed unless it is finished. After a kill it stays, under a name that says what it is.
struct Unfinished(PathBuf);

impl Unfinished {
    fn beside(to: &Path) -> io::Result<Self> {
        let name = to.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_string_lossy();
        let path = to.with_file_name(format!(".{name}.{}.unfinished", process::id()));
        // Password hashes are in it: nobody else looks in.
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self(path))
    }

    /// Gives the copy its name, which must be free, and answers its size.
    fn finish(self, to: &Path) -> Result<u64, BackupError> {
        let failed = |why| BackupError::File { path: to.to_owned(), why };
        let file = File::open(&self.0).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        // Unlike a rename, a link never takes the place of another file.
        fs::hard_link(&self.0, to).map_err(|why| match why.kind() {
            io::ErrorKind::AlreadyExists => BackupError::Exists(to.to_owned()),
            _ => failed(why),
        })?;
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::remove_file(&self.0).and_then(|()| File::open(folder)?.sync_all()).map_err(failed)?;
        Ok(file.metadata().map_err(failed)?.len())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Gone when it is finished.
        let _ = fs::remove_file(&self.0);
    }
}
