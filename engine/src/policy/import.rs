//! Policies from the files of other limiters, with a report of what is not carried over as it was.
//!
//! A descriptor or a limit becomes a rule: its keys are kinds of identity, its values conditions (`where`), and the kinds whose
//! values it counts apart are `per`. [`Dimension::of`](crate::descriptor::Dimension::of) maps keys to kinds, here and in the
//! listener for Envoy.

mod capacity;
mod cases;
mod cel;
mod descriptors;
mod document;
mod envoy;
mod envoy_cases;
mod limitador;
mod limitador_cases;
mod names;
mod regions;

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    algorithm::{NUMBER_MAX, WINDOW_LIMIT_MAX},
    base::time::{PERIOD_MAX_NS, SECOND_NS},
    policy::{
        compiled::Snapshot,
        document::{Algorithm, Limit, Mode, Policy, Sharing},
        error::{Problem, Problems},
    },
};

pub use cases::{Case, CaseDescriptor, CaseEntry, CaseVerdict};
pub use envoy::envoy;
pub use envoy_cases::envoy_cases;
pub use limitador::limitador;
pub use limitador_cases::limitador_cases;

/// A file of another limiter.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Names it in the report.
    pub name: &'a str,
    /// What stands in it.
    pub text: &'a str,
}

/// A policy that was made of files, and the report.
#[derive(Clone, PartialEq, Debug)]
pub struct Imported {
    /// A policy that compiles.
    pub policy: Policy,
    /// The parts that are not carried over as they were, in the order of the files and their lines. A note on every file of its
    /// kind stands once a file.
    pub notes: Vec<Note>,
}

/// Something that is not carried over as it was.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Note {
    /// The file.
    pub file: String,
    /// The line of the descriptor or limit, from 1; 0: the file as a whole.
    pub line: usize,
    /// The field in the file, such as `descriptors[2].rate_limit.replaces`; empty for the file as a whole.
    pub path: String,
    /// The part of the file.
    pub what: String,
    /// Its replacement.
    pub instead: String,
    /// Whether a server by itself decides otherwise about some descriptor of Envoy. Notes on denied requests that cost more than
    /// 1 or have several descriptors, and on keys in another spelling or order, are without it.
    pub changes_decisions: bool,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}; {}", self.what, self.instead)?;
        if self.changes_decisions { f.write_str(" [changes decisions]") } else { Ok(()) }
    }
}

/// A file that cannot be imported: the limiter that it is for would refuse it too, or it has unknown fields, or is nested or
/// repeated (by aliases) beyond what is read of any document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportError {
    /// Which of the files, from 0; `None`: all of them together.
    pub place: Option<usize>,
    /// The file, or all of them.
    pub file: String,
    /// What is wrong with it.
    pub problems: Problems,
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, problem) in self.problems.iter().enumerate() {
            let newline = if place > 0 { "\n" } else { "" };
            write!(f, "{newline}{}: {problem}", self.file)?;
        }
        Ok(())
    }
}

impl std::error::Error for ImportError {}

impl ImportError {
    fn new(place: usize, name: &str, line: Option<usize>, path: impl Into<String>, message: impl Into<String>) -> Self {
        let problem = Problem { path: path.into(), line, message: message.into() };
        Self { place: Some(place), file: name.to_owned(), problems: Problems(vec![problem]) }
    }
}

/// A place in a file.
#[derive(Clone, Debug)]
struct Place {
    /// Which of the files, from 0: two may have one name.
    file: usize,
    line: usize,
    path: String,
}

/// The report while it grows.
#[derive(Debug, Default)]
struct Notes(Vec<(Place, Note)>);

impl Notes {
    /// Reports a part after which decisions stay as they were.
    fn tell(&mut self, at: &Place, field: &str, what: impl Into<String>, instead: impl Into<String>) {
        self.add(at, field, what.into(), instead.into(), false);
    }

    /// Reports a part that changes decisions.
    fn warn(&mut self, at: &Place, field: &str, what: impl Into<String>, instead: impl Into<String>) {
        self.add(at, field, what.into(), instead.into(), true);
    }

    fn add(&mut self, at: &Place, field: &str, what: String, instead: String, changes_decisions: bool) {
        let dot = if at.path.is_empty() || field.is_empty() { "" } else { "." };
        let path = format!("{}{dot}{field}", at.path);
        let note = Note { file: String::new(), line: at.line, path, what, instead, changes_decisions };
        self.0.push((at.clone(), note));
    }

    /// Reports something about a file as a whole.
    fn tell_of_file(&mut self, file: usize, what: &str, instead: &str, changes_decisions: bool) {
        let at = Place { file, line: 0, path: String::new() };
        self.add(&at, "", what.to_owned(), instead.to_owned(), changes_decisions);
    }

    /// Reports what holds for every file of another limiter.
    fn tell_of_counters(&mut self, file: usize) {
        let what = "counters that the servers of that limiter share, where they have a store";
        self.tell_of_file(file, what, "each server counts by itself: of several, each lets as much pass", false);
    }
}

/// Returns the policy, if it compiles, with the report in the order of `sources` and their lines.
fn finish(sources: &[Source<'_>], policy: Policy, notes: Notes) -> Result<Imported, ImportError> {
    if let ([source, ..], true) = (sources, policy.domains.is_empty()) {
        return Err(ImportError::new(0, source.name, None, "", "there are no limits in it"));
    }
    Snapshot::compile(&policy).map_err(|problems| {
        let files = sources.iter().map(|source| source.name).collect::<Vec<_>>().join(", ");
        ImportError { place: None, file: files, problems }
    })?;
    let mut notes = notes.0;
    notes.sort_by_key(|(at, note)| (at.file, note.line));
    let mut known = BTreeSet::new();
    notes.retain(|(at, note)| known.insert((at.file, note.line, note.path.clone(), note.to_string())));
    let named = |(at, note): (Place, Note)| Note { file: sources[at.file].name.to_owned(), ..note };
    Ok(Imported { policy, notes: notes.into_iter().map(named).collect() })
}

/// Returns the limit of a window, given as id, limit and seconds, and reports where it is another; none for a period that does
/// not fit.
fn window(
    at: &Place,
    notes: &mut Notes,
    field: &str,
    (id, limit, seconds): (String, u64, u64),
    mode: Mode,
) -> Option<Limit> {
    let period_max = PERIOD_MAX_NS / SECOND_NS;
    if seconds == 0 || seconds > period_max {
        let what = format!("a period of {seconds} s; from 1 s to {period_max} s fit");
        notes.warn(at, field, what, "the limit is left out");
        return None;
    }
    let given = limit;
    let limit = given.min(NUMBER_MAX);
    let is_window = limit <= WINDOW_LIMIT_MAX;
    if !is_window {
        let cut = if limit < given { format!(" of {limit}, the most that fits") } else { String::new() };
        let what = format!("a limit of {given}; at most {WINDOW_LIMIT_MAX} fit in a fixed window");
        notes.warn(at, field, what, format!("it is a token bucket{cut}, which gives tokens back one by one"));
    }
    let algorithm = if is_window { Algorithm::FixedWindow } else { Algorithm::TokenBucket };
    let (burst, max_debt, sharing, on_failure) = (None, None, Sharing::Local, None);
    Some(Limit { id, algorithm, limit, period: period(seconds), burst, max_debt, mode, sharing, on_failure })
}

fn period(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let whole = units.into_iter().find(|(unit, _)| seconds.is_multiple_of(*unit));
    let (unit, name) = whole.unwrap_or((1, "s"));
    format!("{}{name}", seconds / unit)
}

/// Returns a limit that lets requests pass which a wider rule would limit.
fn unlimited() -> Limit {
    Limit {
        id: "unlimited".to_owned(),
        algorithm: Algorithm::TokenBucket,
        // The highest rate. The listener for Envoy shows no shadow limit above 2^32 - 1.
        limit: 86_400_000_000_000,
        period: "1d".to_owned(),
        burst: None,
        max_debt: None,
        mode: Mode::Shadow,
        sharing: Sharing::Local,
        on_failure: None,
    }
}
