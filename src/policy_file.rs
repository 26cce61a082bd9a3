//! `tidegate policy check`, and reading and writing policies for every other command.

use std::{
    fmt::Write,
    fs,
    io::{self, Read},
    path::Path,
};

use tidegate::{Problem, Problems, Snapshot, formats::Format, policy::Policy};

use crate::{
    cli::CheckArguments,
    output::{Ended, Failure, printable, remark, say},
};

const STANDARD_INPUT: &str = "-";

/// The longest document that is read, in bytes: beyond it is some other file.
const POLICY_BYTES_MAX: u64 = 64 << 20;

pub(crate) fn check(arguments: &CheckArguments) -> Result<Ended, Failure> {
    let name = name_of(&arguments.file);
    let format = format_of(&arguments.file, arguments.format.map(Into::into))?;
    let text = read(&arguments.file)?;
    match Snapshot::parse_with_policy(&text, format) {
        Ok((_, policy)) => say(format!("{name}: valid: {}\n", summary(&policy)).as_bytes()).map(|()| Ended::Well),
        Err(problems) => say(told(&name, &problems).as_bytes()).map(|()| Ended::No),
    }
}

/// The policy in a file, for a command that needs a right one.
pub(crate) fn load(file: &Path) -> Result<Snapshot, Failure> {
    load_as(file, Snapshot::parse)
}

/// The document in a file, which was found right.
pub(crate) fn load_document(file: &Path) -> Result<Policy, Failure> {
    load_as(file, |text, format| Snapshot::parse_with_policy(text, format).map(|(_, policy)| policy))
}

fn load_as<T>(file: &Path, parse: impl Fn(&str, Format) -> Result<T, Problems>) -> Result<T, Failure> {
    if file.as_os_str() == STANDARD_INPUT {
        return Err(Failure("standard input has no name to tell its format by; name a file".to_owned()));
    }
    let format = format_of(file, None)?;
    parse(&read(file)?, format).map_err(|problems| {
        let told = told(&name_of(file), &problems);
        Failure(format!("the policy is wrong\n{}", told.trim_end()))
    })
}

/// The text of the document in a file, which was found right.
pub(crate) fn load_text(file: &Path) -> Result<String, Failure> {
    load_as(file, |text, format| Snapshot::parse(text, format).map(|_| text.to_owned()))
}

/// Writes a document to a file, or to standard output.
pub(crate) fn hand_out(text: &str, out: Option<&Path>) -> Result<(), Failure> {
    match out {
        None => say(text.as_bytes()),
        Some(file) => fs::write(file, text).map_err(|error| Failure::of_file(&name_of(file), error)),
    }
}

fn format_of(file: &Path, given: Option<Format>) -> Result<Format, Failure> {
    let name = name_of(file);
    given.or_else(|| Format::of(file)).ok_or_else(|| {
        let what = if file.as_os_str() == STANDARD_INPUT {
            "standard input has no name to tell its format by; give --format toml, yaml or json"
        } else {
            "its name does not tell its format; call it .toml, .yaml or .json"
        };
        Failure::of_file(&name, what)
    })
}

fn read(file: &Path) -> Result<String, Failure> {
    read_as("policy", file)
}

/// Reads a file that is to be what `what` says.
pub(crate) fn read_as(what: &str, file: &Path) -> Result<String, Failure> {
    let open = || -> io::Result<Box<dyn Read>> {
        if file.as_os_str() == STANDARD_INPUT { Ok(Box::new(io::stdin())) } else { Ok(Box::new(fs::File::open(file)?)) }
    };
    let mut bytes = Vec::new();
    let outcome = open().and_then(|input| input.take(POLICY_BYTES_MAX + 1).read_to_end(&mut bytes));
    outcome.map_err(|error| Failure::of_file(&name_of(file), format!("the {what} cannot be read: {error}")))?;
    if bytes.len() as u64 > POLICY_BYTES_MAX {
        return Err(Failure::of_file(&name_of(file), format!("longer than 64 MiB; no {what} is that long")));
    }
    String::from_utf8(bytes)
        .map_err(|_| Failure::of_file(&name_of(file), format!("not a {what}: it is not UTF-8 text; save it as UTF-8")))
}

pub(crate) fn name_of(file: &Path) -> String {
    file.display().to_string()
}

/// One problem a line: `FILE:LINE: field: message`. What stands in a file may have any character.
pub(crate) fn told(name: &str, problems: &Problems) -> String {
    let mut told = String::new();
    for Problem { path, line, message } in problems.iter() {
        let line = line.map(|line| format!(":{line}")).unwrap_or_default();
        let field = if path.is_empty() { String::new() } else { format!("{path}: ") };
        // A string takes whatever is written to it.
        let _ = writeln!(told, "{}", printable(&format!("{name}{line}: {field}{message}")));
    }
    told
}

/// Whose overrides have ended, so that they are not published.
pub(crate) fn tell_ended(names: &[String]) {
    if !names.is_empty() {
        remark(printable(&format!("not published, as they have ended: the overrides of {}", names.join(", "))));
    }
}

fn summary(policy: &Policy) -> String {
    let domains = || policy.domains.values();
    let tiers = domains().flat_map(|domain| &domain.tiers).map(|tier| tier.limits.len());
    let rules = domains().flat_map(|domain| &domain.rules).map(|rule| rule.limits.len());
    let clients = domains()
        .flat_map(|domain| &domain.clients)
        .map(|client| client.exception.as_ref().map_or(0, |exception| exception.limits.len()));
    let limits = tiers.clone().chain(rules.clone()).chain(clients.clone()).sum();
    let counted = [
        (domains().count(), "domain"),
        (tiers.count(), "tier"),
        (rules.count(), "rule"),
        (clients.count(), "client"),
        (limits, "limit"),
    ];
    let counted = counted.map(|(count, what)| format!("{count} {what}{}", if count == 1 { "" } else { "s" }));
    counted.join(", ")
}
