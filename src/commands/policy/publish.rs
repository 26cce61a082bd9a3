//! `tidegate policy publish`: publishes a policy file at a running server.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate::policy::Difference;
use tidegate_api::{ErrorLocation, FieldError, ProblemDetails};

use super::diff::{DifferencesBody, text};
use crate::policy_file::{file_name, load_text, note_ended_overrides};
use crate::{
    client::session::{AdminSession, SIGN_IN_HELP, SessionArguments, SessionResponse},
    formats::OutputFormat,
    output::{CommandError, CommandStatus, print_result},
};

/// Publishes a policy file at a running server. It replaces the whole policy: objects that the file does not have are deleted.
///
/// It first prints the differences, as `tidegate policy diff` does. With --output json it prints one object at the end. If
/// nothing differs, it publishes nothing.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  tidegate policy publish policy.toml --message \"bob gets the big tier\" --user ana
  tidegate policy publish policy.toml --message \"release 7\" --base-version 12 --user ci
  tidegate policy publish policy.toml --message \"try\" --nodes node-1 --user ana
  tidegate policy publish policy.toml --message \"try\" --dry-run --user ana

With --base-version it publishes only if that version is still in force. Otherwise it shows who
changed what, also in a dry run. Used quota stays used.

{SIGN_IN_HELP}

Exit status: 0 published, or nothing to publish; 2 not published."))]
pub(crate) struct PublishArguments {
    /// The policy file: .toml, .yaml or .json.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// A line for the history: what changes and why.
    #[arg(long, value_name = "TEXT")]
    message: String,
    /// The version that the file is based on. The default is the one in force.
    #[arg(long, value_name = "VERSION")]
    base_version: Option<u64>,
    /// Publish to these nodes first, separated by commas. `tidegate policy rollout` then completes or reverts the rollout.
    #[arg(long, value_name = "NAMES")]
    nodes: Option<String>,
    /// Only print what would change.
    #[arg(long)]
    dry_run: bool,
    /// The format of the output.
    #[arg(long, env = "TIDEGATE_OUTPUT", value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    #[command(flatten)]
    session: SessionArguments,
}

#[derive(Serialize)]
struct FilesBody<'a> {
    files: [FileBody<'a>; 1],
}

#[derive(Serialize)]
struct FileBody<'a> {
    name: &'a str,
    text: &'a str,
}

#[derive(Deserialize)]
struct DryRunBody {
    version: u64,
    differences: Vec<Difference>,
    #[serde(default)]
    ended: Vec<String>,
}

/// The largest body that the server accepts.
const BODY_BYTES_MAX: usize = 32 << 20;

#[derive(Deserialize)]
struct PublishedBody {
    version: u64,
    #[serde(default)]
    others_version: Option<u64>,
}

#[derive(Serialize)]
struct PublishReport<'a> {
    /// The version in force now.
    version: u64,
    /// During a rollout: the version by which all other nodes got the same change.
    #[serde(skip_serializing_if = "Option::is_none")]
    others_version: Option<u64>,
    is_new: bool,
    differences: &'a [Difference],
}

pub(crate) fn run(arguments: &PublishArguments) -> Result<CommandStatus, CommandError> {
    let PublishArguments { file, message, base_version, nodes, dry_run, output, session } = arguments;
    let name = file_name(file);
    let text = load_text(file)?;
    let body = FilesBody { files: [FileBody { name: &name, text: &text }] };
    let length = serde_json::to_string(&body).map_err(|error| CommandError(error.to_string()))?.len();
    if length > BODY_BYTES_MAX {
        let what = format!("the policy has {length} bytes as JSON; the server accepts at most {BODY_BYTES_MAX}");
        return Err(CommandError::of_file(&name, what));
    }
    AdminSession::with(session, |session| {
        let nodes = nodes.as_ref().map(|nodes| format!("&nodes={}", percent_encode(nodes))).unwrap_or_default();
        let query = format!("/api/v1/policy/import?message={}{nodes}", percent_encode(message));
        let answer = session.post(&format!("{query}&dry_run=true"), &[], &body)?;
        if answer.status != 200 {
            return Err(rejection(session, &answer, &name, None));
        }
        let DryRunBody { version, differences, ended } = session.read(&answer)?;
        note_ended_overrides(&ended);
        let base = base_version.unwrap_or(version);
        if base != version && *dry_run {
            return Err(stale_version(session, "the file would not be published", (base, version), ""));
        }
        // A stale base version is refused below, so nothing changes.
        if base == version {
            print_differences(*output, &differences)?;
        }
        let outcome = |version, others_version, is_new| PublishReport {
            version,
            others_version,
            is_new,
            differences: &differences,
        };
        if *dry_run || (differences.is_empty() && base == version) {
            return print_report(*output, &outcome(version, None, false), *dry_run);
        }
        let etag = format!("\"policy:{base}\"");
        let answer = session.post(&query, &[("if-match", &etag)], &body)?;
        match answer.status {
            // Another user published the same policy meanwhile.
            200 => {
                let DryRunBody { version, differences, .. } = session.read(&answer)?;
                let outcome = PublishReport { version, others_version: None, is_new: false, differences: &differences };
                print_report(*output, &outcome, *dry_run)
            }
            201 => {
                let PublishedBody { version, others_version } = session.read(&answer)?;
                print_report(*output, &outcome(version, others_version, true), *dry_run)
            }
            _ => Err(rejection(session, &answer, &name, Some(base))),
        }
    })
}

/// Prints the differences before the publish, as text.
fn print_differences(output: OutputFormat, differences: &[Difference]) -> Result<(), CommandError> {
    match output {
        OutputFormat::Text => print_result(text(differences).as_bytes()),
        OutputFormat::Json => Ok(()),
    }
}

fn print_report(
    output: OutputFormat,
    outcome: &PublishReport<'_>,
    is_dry: bool,
) -> Result<CommandStatus, CommandError> {
    let PublishReport { version, others_version, is_new, differences } = outcome;
    let text = match output {
        OutputFormat::Json => {
            let json = serde_json::to_string(outcome).map_err(|error| CommandError(error.to_string()))?;
            format!("{json}\n")
        }
        OutputFormat::Text if *is_new => match others_version {
            None => format!("published as version {version}\n"),
            Some(others) => format!("published as version {version}, and as version {others} for all other nodes\n"),
        },
        OutputFormat::Text if is_dry && !differences.is_empty() => {
            format!("nothing was published: this was a dry run on version {version}\n")
        }
        OutputFormat::Text => format!("nothing to publish: version {version} already has this policy\n"),
    };
    print_result(text.as_bytes()).map(|()| CommandStatus::Success)
}

/// Problem details of a publish, with the objects that changed meanwhile.
#[derive(Deserialize)]
struct PublishProblem {
    #[serde(flatten)]
    details: ProblemDetails,
    #[serde(default)]
    conflicts: Vec<Value>,
}

/// Describes a refused publish in terms of the file.
fn rejection(session: &AdminSession<'_>, answer: &SessionResponse, file: &str, base: Option<u64>) -> CommandError {
    let Ok(PublishProblem { details, conflicts }) = session.read(answer) else { return session.rejection(answer) };
    match (&*details.code, base) {
        ("conflict", Some(base)) => conflict(session, &conflicts, base),
        ("invalid", _) => {
            let line = |error: &FieldError| {
                let is_of_file = matches!(&error.at, ErrorLocation::Pointer(at) if at.starts_with("/files"));
                let place = if is_of_file { file } else { "the server refused the policy" };
                format!("{place}: {}", error.message)
            };
            session.failure(&details.errors.iter().map(line).collect::<Vec<_>>().join("\n"))
        }
        _ => session.rejection(answer),
    }
}

/// Describes who changed what since `base`.
fn conflict(session: &AdminSession<'_>, conflicts: &[Value], base: u64) -> CommandError {
    let text_of = |field: &str| conflicts.first().and_then(|it| it.get(field)?.as_str()).unwrap_or("?");
    let newest = conflicts.first().and_then(|it| it.get("version")?.as_u64()).unwrap_or(base);
    let who = format!("; {} published it at {}", text_of("changed_by"), text_of("changed_at"));
    stale_version(session, "nothing was published", (base, newest), &who)
}

/// Describes that another version is in force than the one that the file is based on, and what changed since.
fn stale_version(session: &AdminSession<'_>, what: &str, (base, newest): (u64, u64), who: &str) -> CommandError {
    let changed = session
        .get::<DifferencesBody>(&format!("/api/v1/policy/diff?from={base}&to={newest}"))
        .map(|since| text(&since.differences))
        .unwrap_or_default();
    session.failure(&format!(
        "{what}: version {newest} is in force, not {base}{who}. Changes since {base}:\n{}",
        changed.trim_end(),
    ))
}

/// Encodes a text for the query of a URL.
fn percent_encode(text: &str) -> String {
    let percent_encode = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    });
    percent_encode.collect()
}
