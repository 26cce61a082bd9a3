//! The data folder: where the database lies, and that one process at a time has it.
//!
//! A folder is new when it is absent or empty. Once it has held a database, a marker says so, and a database that is then
//! missing stops the start: an empty policy must never take the place of a lost one.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use crate::base::{secrets::SECRET_BYTES, startup_error::StartError};

const LOCK: &str = "tidegate.lock";
pub(crate) const DATABASE: &str = "tidegate.db";
/// The first database while it is made: renamed when it is whole.
const UNFINISHED: &str = "tidegate.db.new";
/// Where the secret of hashed identities was kept that is in the database now.
const SECRET: &str = "tidegate.secret";
const MARKER: &str = "This folder belongs to Tidegate. Its database is tidegate.db.\n";
/// Bits of a mode by which other users may do anything, and by which every user may write.
const OF_OTHERS: u32 = 0o077;
const WRITABLE_BY_ALL: u32 = 0o002;
/// The mode of a file of the folder.
const PRIVATE: u32 = 0o600;

/// A data folder that this process alone has.
#[derive(Debug)]
pub(crate) struct DataFolder {
    path: PathBuf,
    lock: File,
    database_lock: Option<File>,
    is_new: bool,
    is_open: bool,
}

impl DataFolder {
    /// Takes the folder, which is made when it is absent.
    pub(crate) fn take(path: &Path) -> Result<Self, StartError> {
        let broken = |why: io::Error| StartError::Folder { path: path.to_owned(), why: why.to_string() };
        let mut folder = Self::beside_database(path)?;
        let mut marker = String::new();
        folder.lock.read_to_string(&mut marker).map_err(broken)?;
        if folder.database().try_exists().map_err(broken)? {
            // SQLite does not say which file it cannot open.
            for path in folder.database_files() {
                File::open(&path).map_or_else(|why| check_denied(&path, &why), |_| Ok(()))?;
            }
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
        let mode = fs::metadata(path).map_err(broken)?.permissions().mode();
        if mode & WRITABLE_BY_ALL != 0 {
            return Err(StartError::WritableByAll(path.to_owned()));
        }
        let is_open = mode & OF_OTHERS != 0;
        let lock = path.join(LOCK);
        let lock =
            private().truncate(false).open(&lock).or_else(|why| check_denied(&lock, &why).and(Err(broken(why))))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), lock, database_lock: None, is_new: false, is_open }),
            Err(TryLockError::WouldBlock) => Err(StartError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(broken(error)),
        }
    }

    /// Has it no database yet?
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Returns whether other users may look into it, as its group may.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    /// Makes the empty file that the first database is made in; what an earlier try left there is removed. The files that
    /// `SQLite` makes beside a database have its mode.
    pub(crate) fn unfinished(&self) -> io::Result<PathBuf> {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            match fs::remove_file(self.path.join(format!("{UNFINISHED}{suffix}"))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let path = self.path.join(UNFINISHED);
        private().open(&path)?;
        Ok(path)
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

    /// The database and the files that `SQLite` keeps beside it while it is open.
    fn database_files(&self) -> [PathBuf; 4] {
        ["", "-wal", "-shm", "-journal"].map(|suffix| self.path.join(format!("{DATABASE}{suffix}")))
    }

    /// Takes the rights of other users away from the database and the files beside it: older builds left their modes to the
    /// umask, and a copy has the mode that it was made with.
    pub(crate) fn narrow(&self) {
        for path in self.database_files().into_iter().chain([self.path.join(LOCK)]) {
            let Ok(mode) = fs::metadata(&path).map(|about| about.permissions().mode()) else { continue };
            if mode & OF_OTHERS == 0 {
                continue;
            }
            let narrowed = fs::set_permissions(&path, Permissions::from_mode(PRIVATE));
            let (path, mode) = (path.display(), mode & 0o777);
            match narrowed {
                Ok(()) => tracing::info!("{path} had the mode {mode:o}; only its owner can open it now"),
                Err(error) => tracing::warn!("{path} has the mode {mode:o} and keeps it ({error}); chmod 600 {path}"),
            }
        }
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

/// Returns how a file is written that only its owner can open.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).mode(PRIVATE);
    options
}

/// Fails where a file that is there could not be opened for want of permission.
fn check_denied(path: &Path, why: &io::Error) -> Result<(), StartError> {
    match fs::metadata(path) {
        Ok(about) if why.kind() == io::ErrorKind::PermissionDenied => {
            Err(StartError::Closed { path: path.to_owned(), owner: about.uid(), mode: about.mode() & 0o777 })
        }
        _ => Ok(()),
    }
}

/// Makes a folder that only its owner can look into, where it is absent: password hashes are in it.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").permissions().mode() & 0o777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
    }

    #[test]
    fn a_new_folder_is_its_owners_alone() {
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("a/b");
        let data = DataFolder::take(&path).expect("it is made");
        let unfinished = data.unfinished().expect("it is made");
        assert_eq!([mode(&path), mode(&path.join(LOCK)), mode(&unfinished)], [0o700, 0o600, 0o600]);
        assert!(!data.is_open());
    }

    #[test]
    fn a_folder_that_others_may_look_into_is_taken_and_one_that_all_may_write_to_is_not() {
        let folder = TempDir::new().expect("a folder");
        for (mode, is_open) in [(0o700, false), (0o711, true), (0o750, true), (0o755, true), (0o770, true)] {
            set_mode(folder.path(), mode);
            let data = DataFolder::take(folder.path()).expect("it is taken");
            assert_eq!(data.is_open(), is_open, "{mode:o}");
        }
        for mode in [0o777, 0o702, 0o1777] {
            set_mode(folder.path(), mode);
            let error = DataFolder::take(folder.path()).expect_err("it is refused");
            assert!(matches!(error, StartError::WritableByAll(_)), "{mode:o}: {error:?}");
            assert!(error.to_string().contains("chmod 700"), "{error}");
        }
    }

    #[test]
    fn files_that_others_may_open_are_narrowed() {
        let folder = TempDir::new().expect("a folder");
        let data = DataFolder::take(folder.path()).expect("it is free");
        for name in [DATABASE, "tidegate.db-wal", LOCK, "notes"] {
            fs::write(folder.path().join(name), "").expect("it is ours");
            set_mode(&folder.path().join(name), 0o664);
        }
        data.narrow();
        let modes = [DATABASE, "tidegate.db-wal", LOCK, "notes"].map(|name| mode(&folder.path().join(name)));
        assert_eq!(modes, [0o600, 0o600, 0o600, 0o664]);
        assert!(!folder.path().join("tidegate.db-shm").exists());
    }
}
