//! Large bodies, written to files of the data folder as they come: memory holds a piece of each at a time.

use std::{
    fmt::Display,
    fs::File,
    io::{self, Read, Seek, Write},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tempfile::tempfile_in;
use tokio::{task::spawn_blocking, time};

use crate::{
    base::sha256::sha256_of,
    domain::error::{FieldError, Problem},
};

/// The most bodies in the spool at a time.
const BODIES_MAX: usize = 8;
/// The most of one user.
const USER_BODIES_MAX: usize = 2;
/// How long the next piece of a body may take to come.
const PIECE_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes that are written at a time.
const PIECE_BYTES: usize = 256 << 10;

/// A bounded number of bodies on the disk, with a share for each user.
#[derive(Debug)]
pub(crate) struct Spool {
    folder: PathBuf,
    /// The user of each body.
    users: Mutex<Vec<String>>,
}

/// A place in the spool, given back when it is dropped.
#[derive(Debug)]
struct SpoolPlace {
    spool: Arc<Spool>,
    user: String,
}

/// A whole body on the disk. Its file has no name, so it ends with this value, or with the process.
#[derive(Debug)]
pub(crate) struct SpooledBody {
    file: File,
    /// The hash of the whole body: 64 hexadecimal digits.
    pub(crate) sha256: String,
    _place: SpoolPlace,
}

impl Spool {
    /// Returns an empty spool, whose files are in this folder.
    pub(crate) fn in_folder(folder: PathBuf) -> Self {
        Self { folder, users: Mutex::default() }
    }

    /// Takes a place for a body of this user, then writes the body to a file.
    pub(crate) async fn receive(
        self: &Arc<Self>,
        user: &str,
        body: impl Stream<Item = Result<Bytes, impl Display>> + Unpin,
        bytes_max: u64,
        timeout: Duration,
    ) -> Result<SpooledBody, Problem> {
        let place = self.place(user)?;
        let folder = self.folder.clone();
        let file = on_disk(move || tempfile_in(folder)).await?;
        let written = time::timeout(timeout, write(file, body, bytes_max)).await;
        let (file, _) = written.map_err(|_| Problem::TooSlow { patience: timeout })??;
        let (file, sha256) = on_disk(move || sha256_of(&file).map(|sha256| (file, sha256))).await?;
        Ok(SpooledBody { file, sha256, _place: place })
    }

    fn place(self: &Arc<Self>, user: &str) -> Result<SpoolPlace, Problem> {
        let mut users = self.users();
        if users.iter().filter(|other| *other == user).count() >= USER_BODIES_MAX {
            return Err(Problem::Busy("Two files of yours are being taken in already; wait for their answers."));
        }
        if users.len() >= BODIES_MAX {
            return Err(Problem::Busy(
                "Eight files are being taken in already, as many as may be at a time; send it again later.",
            ));
        }
        users.push(user.to_owned());
        drop(users);
        Ok(SpoolPlace { spool: Arc::clone(self), user: user.to_owned() })
    }

    fn users(&self) -> MutexGuard<'_, Vec<String>> {
        // Nothing in here panics.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SpoolPlace {
    fn drop(&mut self) {
        let mut users = self.spool.users();
        if let Some(index) = users.iter().position(|user| *user == self.user) {
            users.swap_remove(index);
        }
    }
}

impl SpooledBody {
    /// Returns the whole body. It blocks, and takes the memory: its caller has a [place](crate::capacity::work_queue::Place) or a turn.
    pub(crate) fn read(&self) -> Result<Vec<u8>, Problem> {
        let (mut file, mut bytes) = (&self.file, Vec::new());
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).map_err(|error| disk_error(&error))?;
        Ok(bytes)
    }
}

/// Writes a body to a file, which is then at its beginning, and returns the body's size.
pub(crate) async fn write(
    mut file: File,
    mut body: impl Stream<Item = Result<Bytes, impl Display>> + Unpin,
    bytes_max: u64,
) -> Result<(File, u64), Problem> {
    let (mut bytes, mut piece) = (0, Vec::with_capacity(PIECE_BYTES));
    loop {
        let next = time::timeout(PIECE_TIMEOUT, body.next()).await;
        let next = next.map_err(|_| Problem::TooSlow { patience: PIECE_TIMEOUT })?;
        let next = next.transpose().map_err(|error| Problem::BadJson(FieldError::invalid("", error.to_string())))?;
        if let Some(next) = &next {
            bytes += next.len() as u64;
            if bytes > bytes_max {
                return Err(Problem::TooLarge { bytes_max: bytes_max as usize });
            }
            piece.extend_from_slice(next);
            if piece.len() < PIECE_BYTES {
                continue;
            }
        }
        let is_last = next.is_none();
        (file, piece) = on_disk(move || {
            file.write_all(&piece)?;
            if is_last {
                file.rewind()?;
            }
            piece.clear();
            Ok((file, piece))
        })
        .await?;
        if is_last {
            return Ok((file, bytes));
        }
    }
}

/// Does work on files beside the threads that answer.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, Problem> {
    let done = spawn_blocking(work).await.map_err(|error| Problem::Internal(error.to_string()))?;
    done.map_err(|error| disk_error(&error))
}

/// Returns the refusal of a body that the data folder cannot hold.
pub(crate) fn disk_error(error: &io::Error) -> Problem {
    Problem::Storage(format!("The body cannot be kept in the data folder: {error}"))
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use tempfile::TempDir;

    use super::*;
    use crate::base::sha256::sha256;

    const TIMEOUT: Duration = Duration::from_mins(1);

    async fn receive(spool: &Arc<Spool>, pieces: &[&'static str]) -> Result<SpooledBody, Problem> {
        let pieces: Vec<_> = pieces.iter().map(|piece| io::Result::Ok(Bytes::from_static(piece.as_bytes()))).collect();
        spool.receive("ana", stream::iter(pieces), 7, TIMEOUT).await
    }

    #[tokio::test]
    async fn a_body_is_on_the_disk_under_no_name() {
        let folder = TempDir::new().expect("a folder");
        let spool = Arc::new(Spool::in_folder(folder.path().to_owned()));
        let body = receive(&spool, &["one", "", "two"]).await.expect("it is written");
        assert_eq!(body.sha256, sha256("onetwo"));
        for _ in 0..2 {
            assert_eq!(body.read().expect("it is there"), b"onetwo");
        }
        assert_eq!(folder.path().read_dir().expect("it is there").count(), 0);
        assert!(matches!(receive(&spool, &["one", "two", "three"]).await, Err(Problem::TooLarge { bytes_max: 7 })));
        assert_eq!(spool.users().len(), 1, "what was refused has no place any more");
        drop(body);
        assert_eq!(spool.users().len(), 0);
    }

    #[test]
    fn a_user_has_a_share_of_the_places() {
        let spool = Arc::new(Spool::in_folder(PathBuf::new()));
        let mut places: Vec<_> = (0..USER_BODIES_MAX).map(|_| spool.place("ana").expect("it is free")).collect();
        assert!(matches!(spool.place("ana"), Err(Problem::Busy(why)) if why.contains("of yours")));
        for user in ["ben", "eve", "zoe"] {
            places.extend((0..USER_BODIES_MAX).map(|_| spool.place(user).expect("it is free")));
        }
        assert_eq!(places.len(), BODIES_MAX);
        assert!(matches!(spool.place("max"), Err(Problem::Busy(why)) if !why.contains("of yours")));
        places.pop();
        assert!(spool.place("max").is_ok());
    }

    #[tokio::test]
    async fn a_body_that_does_not_come_gives_its_place_back() {
        let folder = TempDir::new().expect("a folder");
        let spool = Arc::new(Spool::in_folder(folder.path().to_owned()));
        let slow = spool.receive("ana", stream::pending::<io::Result<Bytes>>(), 7, Duration::from_millis(1)).await;
        assert!(matches!(slow, Err(Problem::TooSlow { .. })));
        assert_eq!(spool.users().len(), 0);
        // A body whose caller disconnects ends like this.
        let pieces = [Ok(Bytes::from_static(b"one")), Err(io::Error::other("the payload is not complete"))];
        let broken = spool.receive("ana", stream::iter(pieces), 7, TIMEOUT).await;
        assert!(matches!(broken, Err(Problem::BadJson(_))));
        assert_eq!(spool.users().len(), 0);
    }
}
