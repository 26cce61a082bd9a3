//! The output and the exit status of commands. Results go to standard output, everything else to standard error.

use std::{
    fmt::Display,
    io::{self, ErrorKind, Write},
};

/// The exit status of a command that ran to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CommandStatus {
    /// Exit status 0.
    Success,
    /// The answer is no: denied, invalid, or different. Exit status 1.
    Negative,
    /// The result is incomplete, and standard error says why. Exit status 2.
    Partial,
    /// The result may be wrong, since input was out of order; the result says how much. Exit status 3.
    LateInput,
}

/// The reason why a command has no result, as a text for the user. Exit status 2.
#[derive(Debug)]
pub(crate) struct CommandError(pub(crate) String);

impl CommandError {
    /// Makes an error about a file.
    pub(crate) fn of_file(file: &str, why: impl Display) -> Self {
        Self(format!("{file}: {why}"))
    }
}

/// Writes a result to standard output. A closed pipe, such as that of `head`, is not an error.
pub(crate) fn print_result(result: &[u8]) -> Result<(), CommandError> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(result).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(CommandError::of_file("standard output", error)),
        _ => Ok(()),
    }
}

/// Writes a line to standard error.
pub(crate) fn print_note(text: impl Display) {
    // There is no other place to report an error of standard error.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Writes an error or a warning to standard error, after the name of the program.
pub(crate) fn print_diagnostic(text: impl Display) {
    print_note(format_args!("tidegate: {text}"));
}

/// Replaces control characters, which could steer the terminal: names in a policy and responses of other servers may have any
/// character.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
