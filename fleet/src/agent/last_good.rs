//! The last good policy on the disk: what a node starts with when the admin server is away.
//!
//! One file has it as it was sent whole, another what differed since then. The whole one is written beside the old one, on the
//! disk before it is renamed over it: whenever the process ends, one of the two is there, whole. Its first line is the
//! SHA-256 of the rest. What differs is a line for each version, which begins with the SHA-256 of its rest: a last line that was
//! not finished does not count. The name of that file has the digest of the whole one, so no other goes on with it. What is
//! damaged is set aside, or copied, not removed; what another build wrote stays.

use std::{
    fmt,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::wire::{DELTAS_MAX, Delta, Snapshot, payload::sha256};

const FILE: &str = "last-good.json";
/// The secret of the keys in the store, as it was sent last.
const STORE_KEYS: &str = "store-keys";
/// Extension of a file while it is written.
const UNFINISHED: &str = "unfinished";
const DAMAGED: &str = "last-good.damaged";
/// A copy of what differs, if some of that is.
const DAMAGED_DELTAS: &str = "last-good.deltas-damaged";
/// Between these, the first letters of the digest that the whole policy's file begins with.
const DELTAS: (&str, &str) = ("last-good.", ".deltas");
const DIGEST_LETTERS: usize = 16;

/// The folder in which it lies.
#[derive(Debug)]
pub(crate) struct LastGood {
    folder: PathBuf,
    log: Mutex<Log>,
}

/// What differs from the whole policy, on the disk.
#[derive(Debug, Default)]
struct Log {
    /// Empty: there is no whole policy.
    file: PathBuf,
    /// Of the document of the last version, hex.
    sha256: String,
    /// Of the whole policy.
    whole_bytes: u64,
    /// As far as lines are whole.
    bytes: u64,
    deltas: u32,
}

/// What was found there.
#[derive(Debug)]
pub(crate) enum StoredPolicy {
    Nothing,
    Whole {
        snapshot: Box<Snapshot>,
        /// What differed in the versions after it.
        deltas: Vec<Delta>,
        /// Why some of those that were kept are not among them, if so.
        lost: Option<String>,
    },
    /// It could not be read, and stands under another name now; why.
    Damaged(String),
    /// It is what was written, but not for this build; why. It stays for the one that wrote it.
    Refused(String),
}

impl LastGood {
    /// Makes the folder when it is absent: nobody else looks in.
    pub(crate) fn in_folder(folder: &Path) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(folder)?;
        Ok(Self { folder: folder.to_owned(), log: Mutex::default() })
    }

    pub(crate) fn write(&self, snapshot: &Snapshot) -> io::Result<()> {
        let text = serde_json::to_string(snapshot)?;
        let digest = sha256(&text);
        let next = self.log_of(&digest, text.len(), snapshot);
        let mut log = self.log();
        // The very same policy may have been here before, and gone on in another way.
        remove(&next.file)?;
        replace(&self.folder, FILE, format_args!("{digest}\n{text}"))?;
        *log = next;
        // Others say nothing of this policy; one that stays does no harm.
        for file in fs::read_dir(&self.folder).into_iter().flatten().filter_map(Result::ok) {
            let is_log = |name: &str| name.starts_with(DELTAS.0) && name.ends_with(DELTAS.1);
            if file.file_name().to_str().is_some_and(is_log) {
                let _ = remove(&file.path());
            }
        }
        Ok(())
    }

    /// Keeps the secret of the keys in the store, as text, unless it is there already.
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

    /// Keeps what differs from the policy that is there.
    pub(crate) fn add(&self, delta: &Delta) -> io::Result<()> {
        let mut log = self.log();
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

    /// How many of them are there; the most there may be, where they are longer than the whole.
    pub(crate) fn deltas(&self) -> u32 {
        let log = self.log();
        if log.bytes > log.whole_bytes { DELTAS_MAX } else { log.deltas }
    }

    pub(crate) fn read(&self) -> io::Result<StoredPolicy> {
        let Some(bytes) = read(&self.folder.join(FILE))? else { return Ok(StoredPolicy::Nothing) };
        let text = String::from_utf8_lossy(&bytes);
        let Some((digest, rest)) = text.split_once('\n').filter(|(digest, rest)| *digest == sha256(rest)) else {
            return self.set_aside("its digest is not that of its content");
        };
        let snapshot: Snapshot = match serde_json::from_str(rest) {
            Ok(snapshot) => snapshot,
            Err(error) => return Ok(StoredPolicy::Refused(format!("this build cannot read it: {error}"))),
        };
        let mut log = self.log();
        *log = self.log_of(digest, rest.len(), &snapshot);
        let mut deltas = Vec::new();
        // The whole policy is of use without them.
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
        // A last line that was not finished was not told to be kept.
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
        Ok(StoredPolicy::Whole { snapshot: Box::new(snapshot), deltas, lost })
    }

    /// Without a line.
    fn log_of(&self, digest: &str, bytes: usize, whole: &Snapshot) -> Log {
        let (before, after) = DELTAS;
        let letters = digest.get(..DIGEST_LETTERS).unwrap_or(digest);
        let file = self.folder.join(format!("{before}{letters}{after}"));
        Log { file, sha256: whole.sha256.clone(), whole_bytes: bytes as u64, ..Log::default() }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        // Nothing in here panics.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a file that is of no use another name, so that it can be looked at.
    pub(crate) fn set_aside(&self, why: &str) -> io::Result<StoredPolicy> {
        let (from, to) = (self.folder.join(FILE), self.folder.join(DAMAGED));
        fs::rename(&from, &to)?;
        Ok(StoredPolicy::Damaged(format!("{} cannot be used ({why}) and is {} now", from.display(), to.display())))
    }
}

/// Writes a file of the folder that nobody else reads: whenever the process ends, the old one is there, or the new one, whole.
pub(crate) fn replace(folder: &Path, name: &str, content: fmt::Arguments<'_>) -> io::Result<()> {
    let path = folder.join(name);
    let unfinished = path.with_extension(UNFINISHED);
    let mut file = for_this_process().truncate(true).open(&unfinished)?;
    file.write_fmt(content)?;
    file.sync_all()?;
    fs::rename(&unfinished, &path)?;
    File::open(folder)?.sync_all()
}

/// To write a file that nobody else reads.
fn for_this_process() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// `None`: it is not there.
fn read(file: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(file) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// If it is there.
fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What a line says, if it is whole.
fn delta_of(line: &str) -> Option<Delta> {
    let (digest, text) = line.strip_suffix('\n')?.split_once(' ')?;
    serde_json::from_str(text).ok().filter(|_| digest == sha256(text))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::wire::payload::pack;

    fn snapshot(version: u64) -> Snapshot {
        let document = format!("{{\"domains\":{{\"d{version}\":{{}}}}}}");
        Snapshot {
            version,
            sha256: sha256(&document),
            // Longer than a few deltas.
            published_at: " ".repeat(4_000),
            carry: [("a/b".to_owned(), tidegate::algorithm::Carry::Reset)].into(),
            bytes: document.len() as u64,
            document: pack(&document),
        }
    }

    #[test]
    fn what_was_written_is_read_and_what_is_damaged_is_set_aside() {
        let folder = TempDir::new().expect("a folder");
        let place = folder.path().join("new");
        let last_good = LastGood::in_folder(&place).expect("it is made");
        assert!(matches!(last_good.read(), Ok(StoredPolicy::Nothing)));
        for version in 1..4 {
            last_good.write(&snapshot(version)).expect("it is written");
            let Ok(StoredPolicy::Whole { snapshot: read, .. }) = last_good.read() else { panic!("it is whole") };
            assert_eq!(*read, snapshot(version));
        }
        let whole = fs::read(place.join(FILE)).expect("it is there");
        // Any one byte, and any end that is missing.
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

    /// From the document of one version to that of the next.
    fn delta(version: u64) -> Delta {
        let Snapshot { version: since, sha256: since_sha256, .. } = snapshot(version - 1);
        let text = format!("{since}");
        Delta {
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
        let Ok(StoredPolicy::Whole { snapshot, deltas, .. }) = found else { return Vec::new() };
        [snapshot.version].into_iter().chain(deltas.iter().map(|delta| delta.version)).collect()
    }

    #[test]
    fn what_differs_is_read_after_the_whole_one_as_far_as_it_is_whole() {
        let folder = TempDir::new().expect("a folder");
        let last_good = LastGood::in_folder(folder.path()).expect("it is there");
        assert!(last_good.add(&delta(2)).is_err(), "there is nothing that it differs from");
        last_good.write(&snapshot(1)).expect("it is written");
        assert!(last_good.add(&delta(3)).is_err(), "it differs from another one");
        for version in [2, 3, 4] {
            last_good.add(&delta(version)).expect("it is written");
        }
        let again = || LastGood::in_folder(folder.path()).expect("it is there");
        assert_eq!(versions(again().read()), [1, 2, 3, 4]);

        // Wherever the process ends while it writes, or a letter is another.
        let file = last_good.log().file.clone();
        let whole = fs::read(&file).expect("it is there");
        let ends: Vec<usize> =
            whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
        for end in 0..whole.len() {
            fs::write(&file, &whole[..end]).expect("written");
            let lines = ends.iter().filter(|line| **line <= end).count();
            let found = again().read();
            assert!(
                matches!(&found, Ok(StoredPolicy::Whole { lost: None, .. })),
                "it was not told to be kept: {found:?}"
            );
            assert_eq!(versions(found).len(), 1 + lines, "{end}");
            let mut damaged = whole.clone();
            damaged[end] ^= 4;
            fs::write(&file, &damaged).expect("written");
            let found = again().read();
            let is_told = matches!(&found, Ok(StoredPolicy::Whole { lost: Some(_), .. }));
            // The end of the last line may be what is damaged.
            assert!(is_told || end == whole.len() - 1, "{end}: {found:?}");
            assert_eq!(versions(found).len(), 1 + lines, "{end}");
            let copy = folder.path().join(DAMAGED_DELTAS);
            assert!(!is_told || fs::read(copy).expect("it is there") == damaged);
        }

        // What is added then takes the place of what is damaged.
        fs::write(&file, &whole[..whole.len() - 1]).expect("written");
        let last_good = again();
        assert_eq!(versions(last_good.read()), [1, 2, 3]);
        last_good.add(&delta(4)).expect("it is written");
        assert_eq!((versions(again().read()), last_good.deltas()), (vec![1, 2, 3, 4], 3));

        // The whole one is of use whatever is the matter with it.
        fs::write(&file, &whole[7..]).expect("written");
        fs::remove_file(folder.path().join(DAMAGED_DELTAS)).expect("it is there");
        fs::create_dir(folder.path().join(DAMAGED_DELTAS)).expect("made");
        let found = again().read();
        assert!(
            matches!(&found, Ok(StoredPolicy::Whole { lost: Some(why), .. }) if why.contains("could not be copied")),
            "{found:?}"
        );
        assert_eq!(versions(found), [1]);
        fs::remove_file(&file).expect("it is there");
        fs::create_dir(&file).expect("made");
        let found = again().read();
        assert!(
            matches!(&found, Ok(StoredPolicy::Whole { lost: Some(why), .. }) if why.contains("cannot be read")),
            "{found:?}"
        );
        assert_eq!(versions(found), [1]);
        fs::remove_dir(&file).expect("it is there");
        fs::write(&file, &whole).expect("written");

        // Nothing is left of it beside another whole one.
        last_good.write(&snapshot(5)).expect("it is written");
        assert_eq!((versions(again().read()), last_good.deltas(), file.exists()), (vec![5], 0, false));
        fs::write(&file, &whole).expect("written");
        assert_eq!(versions(again().read()), [5]);

        // The very same policy, from a database that was put back, goes on anew.
        last_good.write(&snapshot(1)).expect("it is written");
        assert_eq!((versions(again().read()), file.exists()), (vec![1], false));
    }

    #[test]
    fn what_another_build_wrote_stays() {
        let folder = TempDir::new().expect("a folder");
        let last_good = LastGood::in_folder(folder.path()).expect("it is there");
        replace(folder.path(), FILE, format_args!("{}\n{{}}", sha256("{}"))).expect("written");
        for _ in 0..2 {
            assert!(matches!(last_good.read(), Ok(StoredPolicy::Refused(_))));
        }
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_reads_it() {
        use std::os::unix::fs::PermissionsExt;

        let folder = TempDir::new().expect("a folder");
        let place = folder.path().join("new");
        let last_good = LastGood::in_folder(&place).expect("it is made");
        last_good.write(&snapshot(1)).expect("written");
        last_good.add(&delta(2)).expect("written");
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        let log = last_good.log().file.clone();
        assert_eq!((mode(&place), mode(&place.join(FILE)), mode(&log)), (0o700, 0o600, 0o600));
    }

    #[test]
    fn an_unfinished_one_does_not_count() {
        let folder = TempDir::new().expect("a folder");
        let last_good = LastGood::in_folder(folder.path()).expect("it is there");
        last_good.write(&snapshot(1)).expect("written");
        fs::write(folder.path().join(FILE).with_extension(UNFINISHED), "half").expect("written");
        let Ok(StoredPolicy::Whole { snapshot: read, .. }) = last_good.read() else { panic!("the old one") };
        assert_eq!(read.version, 1);
        last_good.write(&snapshot(2)).expect("it does not stand in the way");
    }
}
