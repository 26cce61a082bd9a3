//! The last good policy on the disk, with which a node starts when it cannot reach the admin server.
//!
//! One file has the last snapshot, another one the deltas since then. The snapshot is written to a temporary file and
//! synced before it is renamed over the old one, so a process that ends at any time leaves one of the two, whole. Its
//! first line is the SHA-256 of the rest. The file of deltas has one line for each version, which begins with the
//! SHA-256 of its rest; a last line that is not complete is ignored. The name of that file contains the digest of the
//! snapshot, so the deltas of another snapshot are never applied. A damaged snapshot is renamed and damaged deltas are
//! copied, not removed; a file that another build wrote is left alone.

use std::{
    fmt,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Mutex,
};

use crate::{
    lock::lock,
    wire::{DELTAS_MAX, DeltaMessage, SnapshotMessage, payload::sha256},
};

const FILE: &str = "last-good.json";
/// The file of the secret of the store's keys, as it was sent last.
const STORE_KEYS: &str = "store-keys";
/// The extension of a file while it is written.
const UNFINISHED: &str = "unfinished";
const DAMAGED: &str = "last-good.damaged";
/// The copy of a file of deltas that is damaged.
const DAMAGED_DELTAS: &str = "last-good.deltas-damaged";
/// The beginning and the end of the name of the file of deltas; between them are the first letters of the digest of the
/// snapshot's file.
const DELTAS: (&str, &str) = ("last-good.", ".deltas");
const DIGEST_LETTERS: usize = 16;

/// The folder of the last good policy.
#[derive(Debug)]
pub(crate) struct LastGood {
    folder: PathBuf,
    log: Mutex<DeltaLog>,
}

/// The state of the file of deltas.
#[derive(Debug, Default)]
struct DeltaLog {
    /// The path of the file; empty: there is no snapshot.
    file: PathBuf,
    /// The SHA-256 of the document of the last version, hex.
    sha256: String,
    /// The length of the snapshot.
    whole_bytes: u64,
    /// The length of the complete lines.
    bytes: u64,
    deltas: u32,
}

/// The result of reading the folder.
#[derive(Debug)]
pub(crate) enum StoredPolicy {
    Absent,
    Usable {
        snapshot: Box<SnapshotMessage>,
        /// The deltas of the versions after the snapshot.
        deltas: Vec<DeltaMessage>,
        /// The reason why some stored deltas are not among them, if so.
        lost: Option<String>,
    },
    /// The snapshot is damaged and was renamed; the reason.
    Damaged(String),
    /// The snapshot is whole, but this build cannot use it; the reason. It is left for the build that wrote it.
    Refused(String),
}

impl LastGood {
    /// Creates the folder if it is absent, readable for this user alone.
    pub(crate) fn in_folder(folder: &Path) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(folder)?;
        Ok(Self { folder: folder.to_owned(), log: Mutex::default() })
    }

    pub(crate) fn write(&self, snapshot: &SnapshotMessage) -> io::Result<()> {
        let text = serde_json::to_string(snapshot)?;
        let digest = sha256(&text);
        let next = self.log_of(&digest, text.len(), snapshot);
        let mut log = lock(&self.log);
        // The same snapshot may have been here before, with other deltas after it.
        remove(&next.file)?;
        replace(&self.folder, FILE, format_args!("{digest}\n{text}"))?;
        *log = next;
        // Other files of deltas belong to other snapshots; one that cannot be removed does no harm.
        for file in fs::read_dir(&self.folder).into_iter().flatten().filter_map(Result::ok) {
            let is_log = |name: &str| name.starts_with(DELTAS.0) && name.ends_with(DELTAS.1);
            if file.file_name().to_str().is_some_and(is_log) {
                let _ = remove(&file.path());
            }
        }
        Ok(())
    }

    /// Saves the secret of the store's keys as text, unless it is saved already.
    pub(crate) fn write_store_keys(&self, secret: &str) -> io::Result<()> {
        if self.read_store_keys()?.as_deref() == Some(secret) {
            return Ok(());
        }
        replace(&self.folder, STORE_KEYS, format_args!("{secret}"))
    }

    /// Returns the secret of the keys in the store; `None`: none was kept.
    pub(crate) fn read_store_keys(&self) -> io::Result<Option<String>> {
        let bytes = read(&self.folder.join(STORE_KEYS))?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Saves a delta after the policy that is saved.
    pub(crate) fn add(&self, delta: &DeltaMessage) -> io::Result<()> {
        let mut log = lock(&self.log);
        if log.sha256 != delta.since_sha256 {
            return Err(io::Error::other("the policy before it is not on the disk"));
        }
        let text = serde_json::to_string(delta)?;
        let line = format!("{} {text}\n", sha256(&text));
        let mut file = for_this_process().truncate(false).open(&log.file)?;
        file.set_len(log.bytes)?;
        file.seek(SeekFrom::Start(log.bytes))?;
        file.write_all(line.as_bytes())?;
        file.sync_data()?;
        if log.bytes == 0 {
            File::open(&self.folder)?.sync_all()?;
        }
        log.sha256.clone_from(&delta.sha256);
        log.bytes += line.len() as u64;
        log.deltas += 1;
        Ok(())
    }

    /// Returns how many deltas are saved; [`DELTAS_MAX`] where they are longer than the snapshot.
    pub(crate) fn deltas(&self) -> u32 {
        let log = lock(&self.log);
        if log.bytes > log.whole_bytes { DELTAS_MAX } else { log.deltas }
    }

    pub(crate) fn read(&self) -> io::Result<StoredPolicy> {
        let Some(bytes) = read(&self.folder.join(FILE))? else { return Ok(StoredPolicy::Absent) };
        let text = String::from_utf8_lossy(&bytes);
        let Some((digest, rest)) = text.split_once('\n').filter(|(digest, rest)| *digest == sha256(rest)) else {
            return self.set_aside("its digest is not that of its content");
        };
        let snapshot: SnapshotMessage = match serde_json::from_str(rest) {
            Ok(snapshot) => snapshot,
            Err(error) => return Ok(StoredPolicy::Refused(format!("this build cannot read it: {error}"))),
        };
        let mut log = lock(&self.log);
        *log = self.log_of(digest, rest.len(), &snapshot);
        let mut deltas = Vec::new();
        // The snapshot is of use without its deltas.
        let (lines, unreadable) = match read(&log.file) {
            Ok(lines) => (lines.unwrap_or_default(), None),
            Err(error) => (Vec::new(), Some(format!("{} cannot be read: {error}", log.file.display()))),
        };
        for line in String::from_utf8_lossy(&lines).split_inclusive('\n') {
            let Some(delta) = delta_of(line).filter(|delta| delta.since_sha256 == log.sha256) else { break };
            log.sha256.clone_from(&delta.sha256);
            log.bytes += line.len() as u64;
            log.deltas += 1;
            deltas.push(delta);
        }
        // A last line that is not complete was never reported as saved.
        let rest = lines.get(log.bytes as usize..).unwrap_or_default();
        let lost = if rest.contains(&b'\n') {
            let copy = self.folder.join(DAMAGED_DELTAS);
            let copied = match fs::copy(&log.file, &copy) {
                Ok(_) => format!("{} is a copy", copy.display()),
                Err(error) => format!("it could not be copied: {error}"),
            };
            Some(format!("{} is damaged after byte {}; {copied}", log.file.display(), log.bytes))
        } else {
            unreadable
        };
        Ok(StoredPolicy::Usable { snapshot: Box::new(snapshot), deltas, lost })
    }

    /// Returns the state of a file of deltas without lines.
    fn log_of(&self, digest: &str, bytes: usize, whole: &SnapshotMessage) -> DeltaLog {
        let (before, after) = DELTAS;
        let letters = digest.get(..DIGEST_LETTERS).unwrap_or(digest);
        let file = self.folder.join(format!("{before}{letters}{after}"));
        DeltaLog { file, sha256: whole.sha256.clone(), whole_bytes: bytes as u64, ..DeltaLog::default() }
    }

    /// Renames a snapshot that cannot be used, so that an administrator can inspect it.
    pub(crate) fn set_aside(&self, why: &str) -> io::Result<StoredPolicy> {
        let (from, to) = (self.folder.join(FILE), self.folder.join(DAMAGED));
        fs::rename(&from, &to)?;
        Ok(StoredPolicy::Damaged(format!("{} cannot be used ({why}) and is {} now", from.display(), to.display())))
    }
}

/// Replaces a file of the folder, readable for this user alone: a process that ends at any time leaves the old file or
/// the new one, whole.
pub(crate) fn replace(folder: &Path, name: &str, content: fmt::Arguments<'_>) -> io::Result<()> {
    let path = folder.join(name);
    let unfinished = path.with_extension(UNFINISHED);
    let mut file = for_this_process().truncate(true).open(&unfinished)?;
    file.write_fmt(content)?;
    file.sync_all()?;
    fs::rename(&unfinished, &path)?;
    File::open(folder)?.sync_all()
}

/// Returns options to open a file for writing that only this user can read.
fn for_this_process() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Reads a file; `None`: it does not exist.
fn read(file: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(file) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a file if it exists.
fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Parses a line of the file of deltas, if it is whole.
fn delta_of(line: &str) -> Option<DeltaMessage> {
    let (digest, text) = line.strip_suffix('\n')?.split_once(' ')?;
    serde_json::from_str(text).ok().filter(|_| digest == sha256(text))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::wire::payload::pack;

    fn snapshot(version: u64) -> SnapshotMessage {
        let document = format!("{{\"domains\":{{\"d{version}\":{{}}}}}}");
        SnapshotMessage {
            version,
            sha256: sha256(&document),
            // Longer than a few deltas together.
            published_at: " ".repeat(4_000),
            carry: [("a/b".to_owned(), tidegate::algorithm::Carry::Reset)].into(),
            bytes: document.len() as u64,
            document: pack(&document),
        }
    }

    #[test]
    fn a_snapshot_is_read_back_and_a_damaged_one_is_set_aside() {
        let folder = TempDir::new().expect("a folder");
        let place = folder.path().join("new");
        let last_good = LastGood::in_folder(&place).expect("it is made");
        assert!(matches!(last_good.read(), Ok(StoredPolicy::Absent)));
        for version in 1..4 {
            last_good.write(&snapshot(version)).expect("it is written");
            let Ok(StoredPolicy::Usable { snapshot: read, .. }) = last_good.read() else { panic!("it is whole") };
            assert_eq!(*read, snapshot(version));
        }
        let whole = fs::read(place.join(FILE)).expect("it is there");
        // One damaged byte anywhere, and any missing end.
        for byte in (0..whole.len()).step_by(7) {
            let mut damaged = whole.clone();
            damaged[byte] ^= 4;
            for content in [&damaged[..], &whole[..byte]] {
                fs::write(place.join(FILE), content).expect("written");
                assert!(matches!(last_good.read(), Ok(StoredPolicy::Damaged(_))), "byte {byte}");
                assert!(!place.join(FILE).exists() && place.join(DAMAGED).exists());
            }
        }
    }

    /// Makes a delta to the document of this version from that of the version before.
    fn delta(version: u64) -> DeltaMessage {
        let SnapshotMessage { version: since, sha256: since_sha256, .. } = snapshot(version - 1);
        let text = format!("{since}");
        DeltaMessage {
            version,
            sha256: snapshot(version).sha256,
            published_at: String::new(),
            since_sha256,
            carry: [].into(),
            bytes: text.len() as u64,
            delta_sha256: sha256(&text),
            delta: pack(&text),
        }
    }

    fn versions(found: io::Result<StoredPolicy>) -> Vec<u64> {
        let Ok(StoredPolicy::Usable { snapshot, deltas, .. }) = found else { return Vec::new() };
        [snapshot.version].into_iter().chain(deltas.iter().map(|delta| delta.version)).collect()
    }

    // Long: each step needs the files of the step before.
    #[test]
    fn deltas_are_read_after_the_snapshot_up_to_the_first_damaged_one() {
        let folder = TempDir::new().expect("a folder");
        let last_good = LastGood::in_folder(folder.path()).expect("it is there");
        assert!(last_good.add(&delta(2)).is_err(), "there is no snapshot");
        last_good.write(&snapshot(1)).expect("it is written");
        assert!(last_good.add(&delta(3)).is_err(), "it is against another document");
        for version in [2, 3, 4] {
            last_good.add(&delta(version)).expect("it is written");
        }
        let again = || LastGood::in_folder(folder.path()).expect("it is there");
        assert_eq!(versions(again().read()), [1, 2, 3, 4]);

        // The process may end at any byte of a write, and any byte may be damaged.
        let file = lock(&last_good.log).file.clone();
        let whole = fs::read(&file).expect("it is there");
        let ends: Vec<usize> =
            whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
        for end in 0..whole.len() {
            fs::write(&file, &whole[..end]).expect("written");
            let lines = ends.iter().filter(|line| **line <= end).count();
            let found = again().read();
            assert!(
                matches!(&found, Ok(StoredPolicy::Usable { lost: None, .. })),
                "it was not reported as saved: {found:?}"
            );
            assert_eq!(versions(found).len(), 1 + lines, "{end}");
            let mut damaged = whole.clone();
            damaged[end] ^= 4;
            fs::write(&file, &damaged).expect("written");
            let found = again().read();
            let is_reported = matches!(&found, Ok(StoredPolicy::Usable { lost: Some(_), .. }));
            // Damage to the last byte makes the last line incomplete.
            assert!(is_reported || end == whole.len() - 1, "{end}: {found:?}");
            assert_eq!(versions(found).len(), 1 + lines, "{end}");
            let copy = folder.path().join(DAMAGED_DELTAS);
            assert!(!is_reported || fs::read(copy).expect("it is there") == damaged);
        }

        // A delta that is saved then replaces the damaged line.
        fs::write(&file, &whole[..whole.len() - 1]).expect("written");
        let last_good = again();
        assert_eq!(versions(last_good.read()), [1, 2, 3]);
        last_good.add(&delta(4)).expect("it is written");
        assert_eq!((versions(again().read()), last_good.deltas()), (vec![1, 2, 3, 4], 3));

        // The snapshot is of use whatever is wrong with the file of deltas.
        fs::write(&file, &whole[7..]).expect("written");
        fs::remove_file(folder.path().join(DAMAGED_DELTAS)).expect("it is there");
        fs::create_dir(folder.path().join(DAMAGED_DELTAS)).expect("made");
        let found = again().read();
        assert!(
            matches!(&found, Ok(StoredPolicy::Usable { lost: Some(why), .. }) if why.contains("could not be copied")),
            "{found:?}"
        );
        assert_eq!(versions(found), [1]);
        fs::remove_file(&file).expect("it is there");
        fs::create_dir(&file).expect("made");
        let found = again().read();
        assert!(
            matches!(&found, Ok(StoredPolicy::Usable { lost: Some(why), .. }) if why.contains("cannot be read")),
            "{found:?}"
        );
        assert_eq!(versions(found), [1]);
        fs::remove_dir(&file).expect("it is there");
        fs::write(&file, &whole).expect("written");

        // A new snapshot removes the deltas of the old one.
        last_good.write(&snapshot(5)).expect("it is written");
        assert_eq!((versions(again().read()), last_good.deltas(), file.exists()), (vec![5], 0, false));
        fs::write(&file, &whole).expect("written");
        assert_eq!(versions(again().read()), [5]);

        // The same snapshot, from a database that was restored, begins with no deltas.
        last_good.write(&snapshot(1)).expect("it is written");
        assert_eq!((versions(again().read()), file.exists()), (vec![1], false));
    }

    #[test]
    fn a_file_of_another_build_is_left_alone() {
        let folder = TempDir::new().expect("a folder");
        let last_good = LastGood::in_folder(folder.path()).expect("it is there");
        replace(folder.path(), FILE, format_args!("{}\n{{}}", sha256("{}"))).expect("written");
        for _ in 0..2 {
            assert!(matches!(last_good.read(), Ok(StoredPolicy::Refused(_))));
        }
    }

    #[cfg(unix)]
    #[test]
    fn only_the_user_of_the_process_can_read_it() {
        use std::os::unix::fs::PermissionsExt;

        let folder = TempDir::new().expect("a folder");
        let place = folder.path().join("new");
        let last_good = LastGood::in_folder(&place).expect("it is made");
        last_good.write(&snapshot(1)).expect("written");
        last_good.add(&delta(2)).expect("written");
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        let log = lock(&last_good.log).file.clone();
        assert_eq!((mode(&place), mode(&place.join(FILE)), mode(&log)), (0o700, 0o600, 0o600));
    }

    #[test]
    fn an_unfinished_snapshot_is_ignored() {
        let folder = TempDir::new().expect("a folder");
        let last_good = LastGood::in_folder(folder.path()).expect("it is there");
        last_good.write(&snapshot(1)).expect("written");
        fs::write(folder.path().join(FILE).with_extension(UNFINISHED), "half").expect("written");
        let Ok(StoredPolicy::Usable { snapshot: read, .. }) = last_good.read() else { panic!("the old one") };
        assert_eq!(read.version, 1);
        last_good.write(&snapshot(2)).expect("it does not stand in the way");
    }
}
