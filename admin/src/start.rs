//! What can keep an admin server from starting, in words that say what to do.

use std::{fmt, path::PathBuf};

use tidegate::{Problems, PublishError};

/// Why the admin server does not start. Nothing was changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The data folder cannot be made, read or written.
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// Another process has the data folder.
    InUse(PathBuf),
    /// The folder has no database, and files that are not Tidegate's.
    NotEmpty {
        /// The folder.
        path: PathBuf,
        /// One of the files.
        found: String,
    },
    /// The folder had a database, and has it no more.
    Missing(PathBuf),
    /// The database may not be written.
    ReadOnly(PathBuf),
    /// The database is no longer what was written.
    Damaged {
        /// The database.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Not a database, or not one of Tidegate's.
    Foreign(PathBuf),
    /// The database was written by a newer Tidegate.
    Newer {
        /// The database.
        path: PathBuf,
        /// Its newest migration.
        found: i64,
        /// The newest migration that this build knows.
        known: i64,
    },
    /// The policy that was published last is refused by this build.
    Policy {
        /// Its version.
        version: u64,
        /// What is wrong with it.
        problems: Problems,
    },
    /// The policy of a file is wrong. It was not published.
    PolicyFile {
        /// The file.
        name: String,
        /// What is wrong with it.
        problems: Problems,
    },
    /// The engine does not take the policy.
    Engine(PublishError),
    /// The operating system gives no random numbers.
    Random(String),
    /// Anything else that the database says.
    Database {
        /// The database.
        path: PathBuf,
        /// What it says.
        why: String,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder { path, why } => {
                write!(f, "data folder {}: {why}; name another with --data, or mend its permissions", path.display())
            }
            Self::InUse(path) => write!(
                f,
                "{} is in use by another tidegate; stop that one, or name another folder with --data",
                path.display()
            ),
            Self::NotEmpty { path, found } => write!(
                f,
                "data folder {} has no database but is not empty (`{found}` is there); name an empty or a new folder with \
                 --data",
                path.display()
            ),
            Self::Missing(path) => write!(
                f,
                "database {} is missing, though this folder had one; put it back from a backup. To begin anew without it, \
                 name an empty folder with --data",
                path.display()
            ),
            Self::ReadOnly(path) => {
                write!(f, "database {} is read-only; make it and its folder writable", path.display())
            }
            Self::Damaged { path, why } => write!(
                f,
                "database {} is damaged ({why}); put it back from a backup. Nothing was changed",
                path.display()
            ),
            Self::Foreign(path) => {
                write!(f, "{} is not a Tidegate database; name another folder with --data", path.display())
            }
            Self::Newer { path, found, known } => write!(
                f,
                "database {} was written by a newer Tidegate (migration {found}; this build knows {known}); start that \
                 version, or put back a backup of before. Nothing was changed",
                path.display()
            ),
            Self::Policy { version, problems } => write!(
                f,
                "policy version {version} in the database is refused by this build; start the build that published it.\n\
                 {problems}"
            ),
            Self::PolicyFile { name, problems } => write!(f, "the policy in {name} is wrong\n{problems}"),
            Self::Engine(error) => write!(f, "the engine does not take the policy: {error}"),
            Self::Random(why) => write!(f, "the operating system gives no random numbers: {why}"),
            Self::Database { path, why } => write!(f, "database {}: {why}", path.display()),
        }
    }
}

impl std::error::Error for StartError {}
