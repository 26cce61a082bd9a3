//! How commands end and how they speak: results to standard output, everything else to standard error.

use std::{
    fmt::Display,
    io::{self, ErrorKind, Write},
};

/// How a command that ran to its end ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// Exit status 0.
    Well,
    /// The answer is no: exit status 1.
    No,
    /// With a result, but not a whole one; standard error says why: exit status 2.
    Partly,
    /// With a result that stands on input out of order; the result says how much: exit status 3.
    Late,
}

/// Why a command could not do what it was asked to, for people: exit status 2.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl Failure {
    /// About a file.
    pub(crate) fn of_file(file: &str, why: impl Display) -> Self {
        Self(format!("{file}: {why}"))
    }
}

/// Writes a result. A reader that has read enough, such as `head`, is not an error.
pub(crate) fn say(result: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(result).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::of_file("standard output", error)),
        _ => Ok(()),
    }
}

/// Writes a line beside the result.
pub(crate) fn remark(what: impl Display) {
    // There is nobody else to tell.
    let _ = writeln!(io::stderr().lock(), "{what}");
}

/// Tells what went wrong.
pub(crate) fn complain(what: impl Display) {
    remark(format_args!("tidegate: {what}"));
}

/// Without what would steer a terminal: names in a policy and answers of strangers hold any character.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
