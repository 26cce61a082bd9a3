//! Logs that somebody sent, to try policies on: files of the data folder, for an hour at most.

use std::{
    convert::Infallible,
    fs::{self, File},
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use schemars::JsonSchema;
use serde::Serialize;
use tidegate::time::SECOND_NS;
use tidegate_replay::{LogKey, LogOptions, Utc, traffic::LogPreview};
use tokio::time;

use crate::{
    base::secrets::secret,
    domain::error::Problem,
    simulate::time::now,
    store::data_directory::{make_private, private},
};

/// The longest log, as it is sent.
pub(crate) const BYTES_MAX: u64 = 200 << 20;
/// The longest log, unpacked.
pub(crate) const PLAIN_BYTES_MAX: u64 = 1 << 30;
/// The most lines of a log.
pub(crate) const LINES_MAX: u64 = 2_000_000;
/// The most logs at a time.
pub(crate) const UPLOADS_MAX: usize = 4;
/// The most of one user.
const USER_UPLOADS_MAX: usize = 2;
/// How long a log is there.
const LIFE_NS: u64 = 3_600 * SECOND_NS;
/// Between two looks for those that are over.
const TICK: Duration = Duration::from_mins(1);

/// A log that was sent.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Upload {
    pub(crate) id: String,
    pub(crate) author: String,
    /// The author, or the user who made the author's token.
    #[serde(skip)]
    user: String,
    /// As it was sent.
    bytes: u64,
    /// Stays after a run, until it expires.
    saved: bool,
    expires_at: Utc,
    /// The field that says who came, if one was chosen.
    key: Option<Key>,
    #[serde(flatten)]
    pub(crate) look: LogPreview,
    #[serde(skip)]
    pub(crate) reading: LogOptions,
}

/// A field of a log, and the kind of identity that it says.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "LogKey")]
struct Key {
    field: String,
    kind: String,
}

impl From<&LogKey> for Key {
    fn from(key: &LogKey) -> Self {
        Self { field: key.field().to_owned(), kind: key.kind().to_owned() }
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Uploads {
    folder: PathBuf,
    state: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    ready: Vec<Upload>,
    /// The users of those that are being sent.
    coming: Vec<String>,
}

/// A place for a log that is being sent; its file goes with it, unless it was [finished](Uploads::finish).
#[derive(Debug)]
pub(crate) struct Place {
    uploads: Arc<Uploads>,
    user: String,
    id: String,
    is_finished: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = self.uploads.held();
        if let Some(index) = held.coming.iter().position(|user| *user == self.user) {
            held.coming.swap_remove(index);
        }
        drop(held);
        if !self.is_finished {
            self.uploads.remove_file(&self.id);
        }
    }
}

impl Place {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The file to write to.
    pub(crate) fn file(&self) -> io::Result<File> {
        private().open(self.uploads.path(&self.id))
    }
}

impl Uploads {
    /// In this folder. What an earlier process left there is removed.
    pub(crate) fn open(folder: PathBuf) -> io::Result<Self> {
        make_private(&folder)?;
        for entry in fs::read_dir(&folder)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(Self { folder, state: Mutex::default() })
    }

    /// A place for one more of this user.
    pub(crate) fn place(self: &Arc<Self>, user: &str) -> Result<Place, Problem> {
        let id = secret().map_err(|error| Problem::Internal(error.to_string()))?[..16].to_owned();
        self.expire();
        let mut held = self.held();
        let users = held.ready.iter().map(|upload| &upload.user).chain(&held.coming);
        if users.filter(|other| *other == user).count() >= USER_UPLOADS_MAX {
            return Err(Problem::Full(
                "Two logs of yours are here; use or remove one of them, or wait until one expires.".to_owned(),
            ));
        }
        if held.ready.len() + held.coming.len() >= UPLOADS_MAX {
            return Err(Problem::Full(
                "Four logs are here, as many as fit; use or remove one of them, or wait until one expires.".to_owned(),
            ));
        }
        held.coming.push(user.to_owned());
        drop(held);
        Ok(Place { uploads: Arc::clone(self), user: user.to_owned(), id, is_finished: false })
    }

    /// The log is here, and looked at.
    pub(crate) fn finish(
        &self,
        mut place: Place,
        author: String,
        bytes: u64,
        saved: bool,
        reading: LogOptions,
        look: LogPreview,
    ) -> Upload {
        let expires_at = Utc(now().0 + LIFE_NS);
        place.is_finished = true;
        let key = reading.key.as_ref().map(Key::from);
        let (id, user) = (place.id.clone(), place.user.clone());
        let upload = Upload { id, author, user, bytes, saved, expires_at, key, look, reading };
        self.held().ready.push(upload.clone());
        upload
    }

    pub(crate) fn all(&self) -> Vec<Upload> {
        self.expire();
        self.held().ready.clone()
    }

    /// A log and its file; a file that is open is there until it is closed.
    pub(crate) fn open_file(&self, id: &str) -> io::Result<Option<(Upload, File)>> {
        self.expire();
        let found = self.held().ready.iter().find(|upload| upload.id == id).cloned();
        found.map(|upload| Ok((upload, File::open(self.path(id))?))).transpose()
    }

    /// A run is over that used it.
    pub(crate) fn used(&self, id: &str) {
        self.remove_those(|upload| upload.id == id && !upload.saved);
    }

    /// Who sent it.
    pub(crate) fn author(&self, id: &str) -> Option<String> {
        self.held().ready.iter().find(|upload| upload.id == id).map(|upload| upload.author.clone())
    }

    /// False: it is not there.
    pub(crate) fn remove(&self, id: &str) -> bool {
        self.remove_those(|upload| upload.id == id) > 0
    }

    /// Removes those whose time is over, for ever.
    pub(crate) async fn run(&self) -> Infallible {
        let mut ticks = time::interval(TICK);
        loop {
            ticks.tick().await;
            self.expire();
        }
    }

    fn expire(&self) {
        self.expire_by(now());
    }

    fn expire_by(&self, now: Utc) {
        self.remove_those(|upload| upload.expires_at <= now);
    }

    fn remove_those(&self, is_over: impl Fn(&Upload) -> bool) -> usize {
        let over: Vec<Upload> = self.held().ready.extract_if(.., |upload| is_over(upload)).collect();
        for upload in &over {
            self.remove_file(&upload.id);
        }
        over.len()
    }

    fn remove_file(&self, id: &str) {
        match fs::remove_file(self.path(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(id, %error, "an uploaded log cannot be removed; it goes at the next start");
            }
            _ => {}
        }
    }

    fn path(&self, id: &str) -> PathBuf {
        self.folder.join(id)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // Nothing in here panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_replay::traffic::preview_log;

    use super::*;

    #[test]
    fn a_log_is_there_for_an_hour_and_a_place_as_long_as_there_is_work() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let uploads = Arc::new(Uploads::open(folder.path().join("uploads")).expect("a folder"));
        let files = || folder.path().join("uploads").read_dir().expect("it is there").count();
        let place = uploads.place("ana").expect("there is room");
        drop(place.file().expect("it is made"));
        let log = br#"{"time": "2026-01-05T09:00:00Z", "ip": "192.0.2.8"}"#;
        let look = preview_log(log.as_slice(), &LogOptions::default(), 9, 99).expect("a log");
        let sent = now();
        let upload = uploads.finish(place, "ana".to_owned(), 51, true, LogOptions::default(), look);
        assert!((sent.0 + LIFE_NS..=now().0 + LIFE_NS).contains(&upload.expires_at.0));
        uploads.expire_by(Utc(upload.expires_at.0 - 1));
        assert_eq!((uploads.all().len(), files()), (1, 1));
        uploads.expire_by(upload.expires_at);
        assert_eq!((uploads.all().len(), files()), (0, 0));
        let places = ["ana", "ana", "ben", "eve"].map(|user| uploads.place(user).expect("there is room"));
        assert_eq!(places.len(), UPLOADS_MAX);
        assert!(matches!(uploads.place("ana"), Err(Problem::Full(why)) if why.contains("of yours")));
        assert!(matches!(uploads.place("max"), Err(Problem::Full(why)) if !why.contains("of yours")));
        drop(places);
        assert!(uploads.place("max").is_ok());
    }
}
