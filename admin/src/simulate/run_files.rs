//! Runs that are done, in the data folder: two files each, what is told of it at once, and what was found.

use std::{
    fs::{self, File},
    io::{self, BufReader, BufWriter, Write},
    path::Path,
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use tidegate_replay::compare::ComparisonResult;

use crate::{
    simulate::{
        execution::{Stop, Stoppable},
        run::Run,
    },
    store::data_directory::private,
};

/// How long a run is kept.
pub(crate) const DAYS_MAX: u64 = 30;
/// The most runs that are kept.
pub(crate) const RUNS_MAX: usize = 100;

const RUN: &str = "json";
const OUTCOME: &str = "json.gz";

/// Runs of earlier processes, oldest first. Files that are no runs are left alone.
pub(crate) fn read_all(folder: &Path) -> io::Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == RUN)
            && let Ok(run) = serde_json::from_reader::<_, Run>(BufReader::new(File::open(&path)?))
        {
            runs.push(run);
        }
    }
    runs.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
    Ok(runs)
}

/// Removes what a process that was killed left half written: files that are not whole, and what a run found that is not there.
pub(crate) fn tidy(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_left = match name.split_once('.') {
            Some((_, "new")) => true,
            Some((id, OUTCOME)) => !folder.join(format!("{id}.{RUN}")).try_exists()?,
            _ => false,
        };
        if is_left {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// The run last, so that what was found is there when it is. A stop breaks it off.
pub(crate) fn write(folder: &Path, run: &Run, outcome: &ComparisonResult, stop: &Stop) -> io::Result<()> {
    put(folder, &run.id, OUTCOME, |file| {
        // What is stopped need not be packed to its end, so the look comes before that.
        let mut packed = Stoppable::new(GzEncoder::new(file, Compression::fast()), stop);
        serde_json::to_writer(&mut packed, outcome)?;
        packed.into_inner().finish().map(drop)
    })?;
    put(folder, &run.id, RUN, |file| Ok(serde_json::to_writer(file, run)?))
}

fn put(
    folder: &Path,
    id: &str,
    kind: &str,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let unfinished = folder.join(format!("{id}.new"));
    let mut file = BufWriter::new(private().open(&unfinished)?);
    write(&mut file)?;
    file.flush()?;
    fs::rename(unfinished, folder.join(format!("{id}.{kind}")))
}

/// What a run found.
pub(crate) fn outcome(folder: &Path, id: &str) -> io::Result<ComparisonResult> {
    let file = File::open(folder.join(format!("{id}.{OUTCOME}")))?;
    Ok(serde_json::from_reader(BufReader::new(GzDecoder::new(BufReader::new(file))))?)
}

/// Forgets a run.
pub(crate) fn remove(folder: &Path, id: &str) {
    for kind in [RUN, OUTCOME, "new"] {
        match fs::remove_file(folder.join(format!("{id}.{kind}"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(id, %error, "a run cannot be removed");
            }
            _ => {}
        }
    }
}
