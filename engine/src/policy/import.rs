//! The importer: converts files of envoyproxy/ratelimit and limitador to policies, and reports what changes.
//!
//! `envoy` and `limitador` read the files, `descriptors` and `regions` make the rules, `envoy_cases` and `limitador_cases` make
//! test cases of the same files.

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
    base::time::PERIOD_MAX,
    policy::{
        compiled::Snapshot,
        document::{Algorithm, Limit, Mode, Policy, Rule},
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
    /// The name of the file in the report.
    pub name: &'a str,
    /// The content.
    pub text: &'a str,
}

/// An imported policy and the report.
#[derive(Clone, PartialEq, Debug)]
pub struct ImportedPolicy {
    /// A policy that compiles.
    pub policy: Policy,
    /// The parts that change, in the order of the files and their lines. A note on every file of its kind appears once a file.
    pub notes: Vec<Note>,
}

/// A note on a part of a file that changes when it is imported.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Note {
    /// The file.
    pub file: String,
    /// The line of the descriptor or limit, from 1; 0: the file as a whole.
    pub line: usize,
    /// The field in the file, such as `descriptors[2].rate_limit.replaces`; empty for the file as a whole.
    pub path: String,
    /// The part of the file.
    pub what: String,
    /// The replacement of the part.
    pub instead: String,
    /// Whether a single server decides differently about some descriptor of Envoy. False for notes on denied requests that cost more
    /// than 1 or have several descriptors, and on keys in another spelling or order.
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

/// The error of a file that cannot be imported: its own limiter would refuse it too, or it has unknown fields, or nesting or
/// aliases beyond the bounds of any document.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ImportError {
    /// The index of the file, from 0; `None`: all of them together.
    pub place: Option<usize>,
    /// The file, or all of them.
    pub file: String,
    /// The problems.
    pub problems: Problems,
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.problems.iter().map(|problem| format!("{}: {problem}", self.file)).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ImportError {}

impl ImportError {
    fn new(place: usize, name: &str, line: Option<usize>, path: impl Into<String>, message: impl Into<String>) -> Self {
        let problem = Problem { path: path.into(), line, message: message.into() };
        Self { place: Some(place), file: name.to_owned(), problems: Problems(vec![problem]) }
    }
}

#[derive(Clone, Debug, Default)]
struct SourcePosition {
    /// The index of the file, from 0: two files may have the same name.
    file: usize,
    line: usize,
    path: String,
}

/// A builder of the report.
#[derive(Debug, Default)]
struct Notes(Vec<(SourcePosition, Note)>);

impl Notes {
    /// Adds a note on a part that does not change decisions.
    fn note(&mut self, at: &SourcePosition, field: &str, what: impl Into<String>, instead: impl Into<String>) {
        self.add(at, field, what.into(), instead.into(), false);
    }

    /// Adds a note on a part that changes decisions.
    fn warn(&mut self, at: &SourcePosition, field: &str, what: impl Into<String>, instead: impl Into<String>) {
        self.add(at, field, what.into(), instead.into(), true);
    }

    fn add(&mut self, at: &SourcePosition, field: &str, what: String, instead: String, changes_decisions: bool) {
        let dot = if at.path.is_empty() || field.is_empty() { "" } else { "." };
        let path = format!("{}{dot}{field}", at.path);
        let note = Note { file: String::new(), line: at.line, path, what, instead, changes_decisions };
        self.0.push((at.clone(), note));
    }

    /// Adds a note on a file as a whole.
    fn note_file(&mut self, file: usize, what: &str, instead: &str, changes_decisions: bool) {
        let at = SourcePosition { file, line: 0, path: String::new() };
        self.add(&at, "", what.to_owned(), instead.to_owned(), changes_decisions);
    }

    /// Adds a note on the name of a domain, if its `id` is another.
    fn warn_of_domain(&mut self, at: &SourcePosition, field: &str, name: &str, id: &str) {
        if id != name {
            let what = format!("`{name}` is not a name for a domain here");
            self.warn(at, field, what, format!("it is `{id}`: requests say so"));
        }
    }

    /// Adds the note that every file of another limiter has.
    fn note_counters(&mut self, file: usize) {
        let what = "counters that the servers of that limiter share, where they have a store";
        self.note_file(file, what, "each server counts by itself: of several, each lets as much pass", false);
    }
}

/// Returns the policy, if it compiles, with the report in the order of `sources` and their lines.
fn finish(sources: &[Source<'_>], policy: Policy, notes: Notes) -> Result<ImportedPolicy, ImportError> {
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
    let named = |(at, note): (SourcePosition, Note)| Note { file: sources[at.file].name.to_owned(), ..note };
    Ok(ImportedPolicy { policy, notes: notes.into_iter().map(named).collect() })
}

/// Returns the rules in the order of the file, by the index that each has.
fn in_file_order(mut rules: Vec<(usize, Rule)>) -> Vec<Rule> {
    rules.sort_by_key(|(place, _)| *place);
    rules.into_iter().map(|(_, rule)| rule).collect()
}

/// Returns the limit for a window, given as id, limit and seconds, with a note if it changes; `None` for a period that does not
/// fit.
fn window(
    at: &SourcePosition,
    notes: &mut Notes,
    field: &str,
    (id, limit, seconds): (String, u64, u64),
    mode: Mode,
) -> Option<Limit> {
    let period_max = PERIOD_MAX.as_secs();
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
    Some(Limit { mode, ..Limit::new(id, algorithm, limit, period(seconds)) })
}

fn period(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let whole = units.into_iter().find(|(unit, _)| seconds.is_multiple_of(*unit));
    let (unit, name) = whole.unwrap_or((1, "s"));
    format!("{}{name}", seconds / unit)
}

/// Returns a limit that admits every request, for requests that a wider rule would limit.
fn unlimited() -> Limit {
    // The highest rate. The listener for Envoy shows no shadow limit above 2^32 - 1.
    let highest = Limit::new("unlimited", Algorithm::TokenBucket, 86_400_000_000_000, "1d");
    Limit { mode: Mode::Shadow, ..highest }
}
