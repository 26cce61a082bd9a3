//! Reading and writing policy files, for every command that does.

use std::{
    fmt::Write,
    fs,
    io::{self, Read},
    path::Path,
};

use tidegate::{Problem, Problems, Snapshot, formats::Format, policy::Policy};

use crate::output::{CommandError, print_note, print_result, printable};

const STANDARD_INPUT: &str = "-";

/// The largest policy file, in bytes. A larger file is not a policy.
const POLICY_BYTES_MAX: u64 = 64 << 20;

/// Reads and compiles a policy file, for a command that needs a valid one.
pub(crate) fn load(file: &Path) -> Result<Snapshot, CommandError> {
    load_with(file, Snapshot::parse)
}

/// Reads a policy file, and returns its document. The policy is valid.
pub(crate) fn load_document(file: &Path) -> Result<Policy, CommandError> {
    load_with(file, |text, format| Snapshot::parse_with_policy(text, format).map(|(_, policy)| policy))
}

fn load_with<T>(file: &Path, parse: impl Fn(&str, Format) -> Result<T, Problems>) -> Result<T, CommandError> {
    if file.as_os_str() == STANDARD_INPUT {
        return Err(CommandError("this command does not read a policy from standard input; give a file".to_owned()));
    }
    let format = format_of(file, None)?;
    parse(&read(file)?, format).map_err(|problems| {
        let lines = format_problems(&file_name(file), &problems);
        CommandError(format!("the policy is invalid\n{}", lines.trim_end()))
    })
}

/// Reads a policy file, and returns its text. The policy is valid.
pub(crate) fn load_text(file: &Path) -> Result<String, CommandError> {
    load_with(file, |text, format| Snapshot::parse(text, format).map(|_| text.to_owned()))
}

/// Writes a document to a file, or to standard output.
pub(crate) fn write_output(text: &str, out: Option<&Path>) -> Result<(), CommandError> {
    match out {
        None => print_result(text.as_bytes()),
        Some(file) => fs::write(file, text).map_err(|error| CommandError::of_file(&file_name(file), error)),
    }
}

pub(crate) fn format_of(file: &Path, given: Option<Format>) -> Result<Format, CommandError> {
    let name = file_name(file);
    given.or_else(|| Format::of(file)).ok_or_else(|| {
        let what = if file.as_os_str() == STANDARD_INPUT {
            "standard input has no file name that shows its format; give --format toml, yaml or json"
        } else {
            "the file name does not show the format; use the ending .toml, .yaml or .json"
        };
        CommandError::of_file(&name, what)
    })
}

pub(crate) fn read(file: &Path) -> Result<String, CommandError> {
    read_text("policy", file)
}

/// Reads a text file. `what` is what the file should be, for the error.
pub(crate) fn read_text(what: &str, file: &Path) -> Result<String, CommandError> {
    let open = || -> io::Result<Box<dyn Read>> {
        if file.as_os_str() == STANDARD_INPUT { Ok(Box::new(io::stdin())) } else { Ok(Box::new(fs::File::open(file)?)) }
    };
    let mut bytes = Vec::new();
    let outcome = open().and_then(|input| input.take(POLICY_BYTES_MAX + 1).read_to_end(&mut bytes));
    outcome.map_err(|error| CommandError::of_file(&file_name(file), format!("cannot read the {what}: {error}")))?;
    if bytes.len() as u64 > POLICY_BYTES_MAX {
        return Err(CommandError::of_file(
            &file_name(file),
            format!("the file is larger than 64 MiB, the largest {what} that is read"),
        ));
    }
    String::from_utf8(bytes)
        .map_err(|_| CommandError::of_file(&file_name(file), format!("the {what} is not UTF-8 text; save it as UTF-8")))
}

pub(crate) fn file_name(file: &Path) -> String {
    file.display().to_string()
}

/// Formats one problem per line: `FILE:LINE: field: message`. Control characters of the file are replaced.
pub(crate) fn format_problems(name: &str, problems: &Problems) -> String {
    let mut lines = String::new();
    for Problem { path, line, message } in problems.iter() {
        let line = line.map(|line| format!(":{line}")).unwrap_or_default();
        let field = if path.is_empty() { String::new() } else { format!("{path}: ") };
        // Writing to a string does not fail.
        let _ = writeln!(lines, "{}", printable(&format!("{name}{line}: {field}{message}")));
    }
    lines
}

/// Notes which overrides have ended, so that they are not published.
pub(crate) fn note_ended_overrides(names: &[String]) {
    if !names.is_empty() {
        print_note(printable(&format!("overrides that have ended are not published: {}", names.join(", "))));
    }
}
