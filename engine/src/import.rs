//! Policies from the files of other limiters, with a report of what is not carried over as it was.
//!
//! What a descriptor or a limit counts becomes a rule: its keys are kinds of identity, its values conditions (`where`), and
//! what it counts apart is `per`. How requests come here is that of the Envoy door: an entry's key is an identity's kind,
//! written in lower case with `_` for what no kind may have; an entry `path` or `endpoint` is the endpoint, `method` the
//! method.

mod cel;
mod descriptors;
mod envoy;
mod limitador;
mod names;
mod regions;

use std::fmt;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    algorithm::NUMBER_MAX,
    formats::read_yaml,
    policy::{Algorithm, Limit, Mode, Policy, Sharing},
    problem::{Problem, Problems},
    snapshot::Snapshot,
    time::{PERIOD_MAX_NS, SECOND_NS},
};

pub use envoy::envoy;
pub use limitador::limitador;

/// A file of another limiter.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Names it in the report.
    pub name: &'a str,
    /// What stands in it.
    pub text: &'a str,
}

impl Source<'_> {
    fn read<T: DeserializeOwned>(self) -> Result<T, ImportError> {
        read_yaml(self.text).map_err(|problem| {
            // A value whose line is asked for is one step further down for its reader.
            let path = problem.path.replace("].value", "]").replace("domain.value", "domain");
            ImportError::new(self, problem.line, path, problem.message)
        })
    }
}

/// What came of the files.
#[derive(Clone, PartialEq, Debug)]
pub struct Imported {
    /// A policy that compiles.
    pub policy: Policy,
    /// Everything that is not carried over as it was, in the order of the files and their lines.
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
    /// What it is.
    pub what: String,
    /// What happens instead.
    pub instead: String,
    /// Is there a request that the file limits, or lets pass on purpose, about which the policy decides otherwise, or
    /// which has to be put in another way?
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

/// A file that is not what it should be: the limiter that it is for would refuse it too, or it has fields that nobody here
/// knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportError {
    /// The file.
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
    fn new(source: Source<'_>, line: Option<usize>, path: impl Into<String>, message: impl Into<String>) -> Self {
        let problem = Problem { path: path.into(), line, message: message.into() };
        Self { file: source.name.to_owned(), problems: Problems(vec![problem]) }
    }
}

/// A place in a file.
#[derive(Clone, Debug)]
struct Place {
    file: String,
    line: usize,
    path: String,
}

/// The report while it grows.
#[derive(Debug, Default)]
struct Notes(Vec<Note>);

impl Notes {
    /// Decisions stay as they were.
    fn tell(&mut self, at: &Place, field: &str, what: impl Into<String>, instead: impl Into<String>) {
        self.add(at, field, what.into(), instead.into(), false);
    }

    /// Decisions change.
    fn warn(&mut self, at: &Place, field: &str, what: impl Into<String>, instead: impl Into<String>) {
        self.add(at, field, what.into(), instead.into(), true);
    }

    fn add(&mut self, at: &Place, field: &str, what: String, instead: String, changes_decisions: bool) {
        let dot = if at.path.is_empty() || field.is_empty() { "" } else { "." };
        let path = format!("{}{dot}{field}", at.path);
        self.0.push(Note { file: at.file.clone(), line: at.line, path, what, instead, changes_decisions });
    }
}

/// The policy, if it compiles, with the report in the order of `sources` and their lines.
fn finish(sources: &[Source<'_>], policy: Policy, notes: Notes) -> Result<Imported, ImportError> {
    let files = sources.iter().map(|source| source.name).collect::<Vec<_>>().join(", ");
    Snapshot::compile(&policy).map_err(|problems| ImportError { file: files, problems })?;
    let mut notes = notes.0;
    let file = |note: &Note| sources.iter().position(|source| source.name == note.file);
    notes.sort_by_key(|note| (file(note), note.line));
    notes.dedup();
    Ok(Imported { policy, notes })
}

/// The largest limit of a fixed window.
const WINDOW_MAX: u64 = 1 << 24;

/// A window, as a limit: id, limit, seconds. Says what is not as it was.
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
    let mut algorithm = Algorithm::FixedWindow;
    if limit > WINDOW_MAX {
        algorithm = Algorithm::TokenBucket;
        let what = format!("a limit of {limit}; at most {WINDOW_MAX} fit in a fixed window");
        notes.warn(at, field, what, "it is a token bucket, which gives tokens back one by one");
    }
    let limit = limit.min(NUMBER_MAX);
    let (burst, sharing, on_failure) = (None, Sharing::Local, None);
    Some(Limit { id, algorithm, limit, period: period(seconds), burst, mode, sharing, on_failure })
}

fn period(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let whole = units.into_iter().find(|(unit, _)| seconds.is_multiple_of(*unit));
    let (unit, name) = whole.unwrap_or((1, "s"));
    format!("{}{name}", seconds / unit)
}

/// Lets requests pass that a wider rule would limit.
fn unlimited() -> Limit {
    Limit {
        id: "unlimited".to_owned(),
        algorithm: Algorithm::TokenBucket,
        limit: 1_000_000_000,
        period: "1s".to_owned(),
        burst: None,
        mode: Mode::Shadow,
        sharing: Sharing::Local,
        on_failure: None,
    }
}
