//! What can keep an admin server from starting, in words that say what to do.

use std::{fmt, path::PathBuf};

use tidegate::{Problems, PublishError};
use tidegate_net::tls::TlsError;

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
    /// Every user of the machine may write to the data folder.
    WritableByAll(PathBuf),
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
    /// A file of the data folder may not be opened by the user that runs the server.
    Closed {
        /// The file.
        path: PathBuf,
        /// The number of the user that it belongs to.
        owner: u32,
        /// The permission bits of the file.
        mode: u32,
    },
    /// The database may not be written.
    ReadOnly(String),
    /// The server of the database takes no changes.
    Standby(String),
    /// The database is no longer what was written.
    Damaged {
        /// The database: its file, or its address without the password.
        database: String,
        /// What is wrong with it.
        why: String,
    },
    /// Not a database, or not one of Tidegate's.
    Foreign(String),
    /// The database of a server has tables, and they are not Tidegate's.
    ForeignTables {
        /// The database.
        database: String,
        /// One of the tables.
        found: String,
    },
    /// The database was written by a newer Tidegate.
    Newer {
        /// The database: its file, or its address without the password.
        database: String,
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
    /// The certificate or its key cannot be used.
    Tls(TlsError),
    /// What was set of the sign-in by a provider cannot be used.
    Oidc {
        /// What is wrong, with the setting.
        why: String,
    },
    /// What was given as the address of a database is none.
    Address(String),
    /// The server of the database does not answer.
    Unreachable {
        /// Address of the database, without the password.
        database: String,
        /// What the system says.
        why: String,
    },
    /// Anything else that the database says.
    Database {
        /// The database: its file, or its address without the password.
        database: String,
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
            Self::WritableByAll(path) => {
                let path = path.display();
                write!(
                    f,
                    "data folder {path}: every user of this machine may write to it, and so replace the database; close it with \
                     chmod 700 {path}, or name another folder with --data"
                )
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
            Self::Closed { path, owner, mode } => {
                let folder = path.parent().unwrap_or(path).display();
                write!(
                    f,
                    "{} may not be opened: it belongs to user {owner} and has the mode {mode:o}; run Tidegate as that user, or \
                     give the whole folder to the one that runs it: chown -R USER {folder}",
                    path.display()
                )
            }
            Self::ReadOnly(database) => {
                write!(f, "database {database} is read-only; make it and its folder writable")
            }
            Self::Standby(database) => write!(
                f,
                "database {database} takes no changes: a standby perhaps; name the primary server with --database"
            ),
            Self::Damaged { database, why } => {
                write!(f, "database {database} is damaged ({why}); put it back from a backup. Nothing was changed")
            }
            Self::Foreign(database) => {
                write!(f, "{database} is not a Tidegate database; name another folder with --data")
            }
            Self::ForeignTables { database, found } => write!(
                f,
                "database {database} is not Tidegate's (it has a table {found}); name an empty one with --database"
            ),
            Self::Newer { database, found, known } => write!(
                f,
                "database {database} was written by a newer Tidegate (migration {found}; this build knows {known}); start \
                 that version, or put back a backup of before. Nothing was changed"
            ),
            Self::Policy { version, problems } => write!(
                f,
                "policy version {version} in the database is refused by this build; start the build that published it.\n\
                 {problems}"
            ),
            Self::PolicyFile { name, problems } => write!(f, "the policy in {name} is wrong\n{problems}"),
            Self::Engine(error) => write!(f, "the engine does not take the policy: {error}"),
            Self::Tls(why) => write!(f, "no TLS: {why}"),
            Self::Oidc { why } => f.write_str(why),
            Self::Random(why) => write!(f, "the operating system gives no random numbers: {why}"),
            Self::Address(why) => write!(f, "--database: {why}"),
            Self::Unreachable { database, why } => write!(
                f,
                "database {database} cannot be reached: {why}; see that the server runs there and takes connections from here"
            ),
            Self::Database { database, why } => write!(f, "database {database}: {why}"),
        }
    }
}

impl std::error::Error for StartError {}
