//! The data folder: where the database lies, and that one process at a time has it.
//!
//! A folder is new when it is absent or empty. Once it has held a database, a marker says so, and a database that is then
//! missing stops the start: an empty policy must never take the place of a lost one.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
};

use crate::start::StartError;

const LOCK: &str = "tidegate.lock";
pub(crate) const DATABASE: &str = "tidegate.db";
/// The first database while it is made: renamed when it is whole.
const UNFINISHED: &str = "tidegate.db.new";
/// Where the secret of hashed identities was kept that is in the database now.
const SECRET: &str = "tidegate.secret";
/// Length of that secret.
pub(crate) const SECRET_BYTES: usize = 32;
const MARKER: &str = "This folder belongs to Tidegate. Its database is tidegate.db.\n";

/// A data folder that this process alone has.
#[derive(Debug)]
pub(crate) struct DataFolder {
    path: PathBuf,
    lock: File,
    database_lock: Option<File>,
    is_new: bool,
}

impl DataFolder {
    /// Takes the folder, which is made when it is absent.
    pub(crate) fn take(path: &Path) -> Result<Self, StartError> {
        let broken = |why: io::Error| StartError::Folder { path: path.to_owned(), why: why.to_string() };
        let mut folder = Self::beside_database(path)?;
        let mut marker = String::new();
        folder.lock.read_to_string(&mut marker).map_err(broken)?;
        if folder.database().try_exists().map_err(broken)? {
            return Ok(folder);
        }
        if !marker.is_empty() {
            return Err(StartError::Missing(folder.database()));
        }
        for entry in fs::read_dir(path).map_err(broken)? {
            let name = entry.map_err(broken)?.file_name();
            let name = name.to_string_lossy();
            if name != LOCK && !name.starts_with(UNFINISHED) {
                return Err(StartError::NotEmpty { path: path.to_owned(), found: name.into_owned() });
            }
        }
        folder.is_new = true;
        Ok(folder)
    }

    /// Takes the folder for what lies beside a database that is elsewhere.
    pub(crate) fn beside_database(path: &Path) -> Result<Self, StartError> {
        let broken = |why: io::Error| StartError::Folder { path: path.to_owned(), why: why.to_string() };
        make_private(path).map_err(broken)?;
        let lock = path.join(LOCK);
        let lock = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(lock).map_err(broken)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), lock, database_lock: None, is_new: false }),
            Err(TryLockError::WouldBlock) => Err(StartError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(broken(error)),
        }
    }

    /// Has it no database yet?
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    /// Where the first database is made; what an earlier try left there is removed.
    pub(crate) fn unfinished(&self) -> io::Result<PathBuf> {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            match fs::remove_file(self.path.join(format!("{UNFINISHED}{suffix}"))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(self.path.join(UNFINISHED))
    }

    /// The first database is whole and closed: it takes its name.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        fs::rename(self.path.join(UNFINISHED), self.database())?;
        File::open(&self.path)?.sync_all()
    }

    /// The database is ours: its absence would be a loss from now on. It may be so after a first start that broke off when
    /// the database was whole, or when one was put here from a backup, so this is done at every start.
    pub(crate) fn mark(&mut self) -> io::Result<()> {
        // The lock file may be removed by whoever tidies up; this one is not.
        let database = File::open(self.database())?;
        database.try_lock().map_err(io::Error::from)?;
        self.database_lock = Some(database);
        self.lock.rewind()?;
        self.lock.write_all(MARKER.as_bytes())?;
        self.lock.sync_all()
    }
}

/// What identities were hashed with by builds that kept it in a file of the folder, if one has; a new secret otherwise.
pub(crate) fn first_secret(folder: Option<&Path>) -> io::Result<[u8; SECRET_BYTES]> {
    match folder.map(|folder| fs::read(folder.join(SECRET))) {
        Some(Ok(bytes)) => {
            let wrong = |_| io::Error::other(format!("{SECRET} is not what was written; remove it for a new one"));
            return bytes.try_into().map_err(wrong);
        }
        Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Some(Err(_)) | None => {}
    }
    let mut secret = [0; SECRET_BYTES];
    getrandom::fill(&mut secret).map_err(io::Error::other)?;
    Ok(secret)
}

/// The database has it: the file goes.
pub(crate) fn forget_secret(folder: &Path) -> io::Result<()> {
    match fs::remove_file(folder.join(SECRET)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// How a file is written that nobody else reads.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Password hashes are in it: nobody else looks in.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}
