//! The last good snapshot on the disk: what a node starts with when the admin server is away.
//!
//! Written beside the old one, on the disk before it is renamed over it: whenever the process ends, one of the two is
//! there, whole. Its first line is the SHA-256 of the rest. What is damaged is set aside, not removed; what another build wrote
//! stays.

use std::{
    fmt,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{payload::sha256, wire::Snapshot};

const FILE: &str = "last-good.json";
/// Extension of a file while it is written.
const UNFINISHED: &str = "unfinished";
const DAMAGED: &str = "last-good.damaged";

/// The folder in which it lies.
#[derive(Clone, Debug)]
pub(crate) struct LastGood {
    folder: PathBuf,
}

/// What was found there.
#[derive(Debug)]
pub(crate) enum Found {
    Nothing,
    Whole(Box<Snapshot>),
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
        Ok(Self { folder: folder.to_owned() })
    }

    pub(crate) fn write(&self, snapshot: &Snapshot) -> io::Result<()> {
        let text = serde_json::to_string(snapshot)?;
        replace(&self.folder, FILE, format_args!("{}\n{text}", sha256(&text)))
    }

    pub(crate) fn read(&self) -> io::Result<Found> {
        let path = self.folder.join(FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(error) => return Err(error),
        };
        let text = String::from_utf8_lossy(&bytes);
        match text.split_once('\n') {
            Some((digest, rest)) if digest == sha256(rest) => match serde_json::from_str(rest) {
                Ok(snapshot) => Ok(Found::Whole(Box::new(snapshot))),
                Err(error) => Ok(Found::Refused(format!("this build cannot read it: {error}"))),
            },
            _ => self.set_aside("its digest is not that of its content"),
        }
    }

    /// Gives a file that is of no use another name, so that it can be looked at.
    pub(crate) fn set_aside(&self, why: &str) -> io::Result<Found> {
        let (from, to) = (self.folder.join(FILE), self.folder.join(DAMAGED));
        fs::rename(&from, &to)?;
        Ok(Found::Damaged(format!("{} cannot be used ({why}) and is {} now", from.display(), to.display())))
    }
}

/// Writes a file of the folder that nobody else reads: whenever the process ends, the old one is there, or the new one, whole.
pub(crate) fn replace(folder: &Path, name: &str, content: fmt::Arguments<'_>) -> io::Result<()> {
    let path = folder.join(name);
    let unfinished = path.with_extension(UNFINISHED);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&unfinished)?;
    file.write_fmt(content)?;
    file.sync_all()?;
    fs::rename(&unfinished, &path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::payload::pack;

    fn snapshot(version: u64) -> Snapshot {
        let document = format!("{{\"domains\":{{\"d{version}\":{{}}}}}}");
        Snapshot {
            version,
            sha256: sha256(&document),
            published_at: String::new(),
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
        assert!(matches!(last_good.read(), Ok(Found::Nothing)));
        for version in 1..4 {
            last_good.write(&snapshot(version)).expect("it is written");
            let Ok(Found::Whole(read)) = last_good.read() else { panic!("it is whole") };
            assert_eq!(*read, snapshot(version));
        }
        let whole = fs::read(place.join(FILE)).expect("it is there");
        // Any one byte, and any end that is missing.
        for byte in (0..whole.len()).step_by(7) {
            let mut damaged = whole.clone();
            damaged[byte] ^= 4;
            for content in [&damaged[..], &whole[..byte]] {
                fs::write(place.join(FILE), content).expect("written");
                assert!(matches!(last_good.read(), Ok(Found::Damaged(_))), "byte {byte}");
                assert!(!place.join(FILE).exists() && place.join(DAMAGED).exists());
            }
        }
    }

    #[test]
    fn what_another_build_wrote_stays() {
        let folder = TempDir::new().expect("a folder");
        let last_good = LastGood::in_folder(folder.path()).expect("it is there");
        replace(folder.path(), FILE, format_args!("{}\n{{}}", sha256("{}"))).expect("written");
        for _ in 0..2 {
            assert!(matches!(last_good.read(), Ok(Found::Refused(_))));
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
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!((mode(&place), mode(&place.join(FILE))), (0o700, 0o600));
    }

    #[test]
    fn an_unfinished_one_does_not_count() {
        let folder = TempDir::new().expect("a folder");
        let last_good = LastGood::in_folder(folder.path()).expect("it is there");
        last_good.write(&snapshot(1)).expect("written");
        fs::write(folder.path().join(FILE).with_extension(UNFINISHED), "half").expect("written");
        let Ok(Found::Whole(read)) = last_good.read() else { panic!("the old one") };
        assert_eq!(read.version, 1);
        last_good.write(&snapshot(2)).expect("it does not stand in the way");
    }
}
