//! `tidegate policy publish`: a policy document put in force at a running server.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate::policy::Difference;
use tidegate_api::{ErrorLocation, FieldError, ProblemDetails};

use super::diff::{Differences, text};
use crate::policy_file::{load_text, name_of, tell_ended};
use crate::{
    client::session::{Answer, SIGNING_IN, Session, SessionArguments},
    formats::Output,
    output::{Ended, Failure, say},
};

/// Publishes a policy document at a running server, whole: what it does not have is gone.
///
/// First it prints what changes, as `tidegate policy diff` does, unless as JSON, which comes whole at the end. Where
/// nothing changes, nothing is published.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  tidegate policy publish policy.toml --message \"bob gets the big tier\" --user ana
  tidegate policy publish policy.toml --message \"release 7\" --base-version 12 --user ci
  tidegate policy publish policy.toml --message \"try\" --nodes node-1 --user ana
  tidegate policy publish policy.toml --message \"try\" --dry-run --user ana

With --base-version it is published only if that version is still in force, and otherwise it says
who changed what; a dry run says so too. Used quota stays used.

{SIGNING_IN}

Exit status: 0 published, or nothing to publish; 2 when it was not."))]
pub(crate) struct PublishArguments {
    /// The policy: .toml, .yaml or .json.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// A line on what changes and why.
    #[arg(long, value_name = "TEXT")]
    message: String,
    /// The version that the file was made on; the one in force unless given.
    #[arg(long, value_name = "VERSION")]
    base_version: Option<u64>,
    /// The nodes that it goes to first, with commas between them; `tidegate policy rollout` then gives it to all, or takes it
    /// back.
    #[arg(long, value_name = "NAMES")]
    nodes: Option<String>,
    /// Only print what would change.
    #[arg(long)]
    dry_run: bool,
    /// How to print what changes and what came of it.
    #[arg(long, env = "TIDEGATE_OUTPUT", value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    session: SessionArguments,
}

#[derive(Serialize)]
struct Files<'a> {
    files: [File<'a>; 1],
}

#[derive(Serialize)]
struct File<'a> {
    name: &'a str,
    text: &'a str,
}

#[derive(Deserialize)]
struct Tried {
    version: u64,
    differences: Vec<Difference>,
    #[serde(default)]
    ended: Vec<String>,
}

/// The longest body that the server takes.
const BODY_BYTES_MAX: usize = 32 << 20;

#[derive(Deserialize)]
struct Published {
    version: u64,
    #[serde(default)]
    others_version: Option<u64>,
}

#[derive(Serialize)]
struct Outcome<'a> {
    /// In force now.
    version: u64,
    /// Where a rollout is open: the version by which all other nodes got the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    others_version: Option<u64>,
    is_new: bool,
    differences: &'a [Difference],
}

pub(crate) fn run(arguments: &PublishArguments) -> Result<Ended, Failure> {
    let PublishArguments { file, message, base_version, nodes, dry_run, output, session } = arguments;
    let name = name_of(file);
    let text = load_text(file)?;
    let body = Files { files: [File { name: &name, text: &text }] };
    let length = serde_json::to_string(&body).map_err(|error| Failure(error.to_string()))?.len();
    if length > BODY_BYTES_MAX {
        let what = format!("{length} bytes as JSON; the server takes {BODY_BYTES_MAX} at once");
        return Err(Failure::of_file(&name, what));
    }
    Session::with(session, |session| {
        let nodes = nodes.as_ref().map(|nodes| format!("&nodes={}", encoded(nodes))).unwrap_or_default();
        let query = format!("/api/v1/policy/import?message={}{nodes}", encoded(message));
        let answer = session.post(&format!("{query}&dry_run=true"), &[], &body)?;
        if answer.status != 200 {
            return Err(refused(session, &answer, &name, None));
        }
        let Tried { version, differences, ended } = session.read(&answer)?;
        tell_ended(&ended);
        let base = base_version.unwrap_or(version);
        if base != version && *dry_run {
            return Err(stale(session, "it would not be published", (base, version), ""));
        }
        // What is refused anyway does not change.
        if base == version {
            tell_first(*output, &differences)?;
        }
        let outcome =
            |version, others_version, is_new| Outcome { version, others_version, is_new, differences: &differences };
        if *dry_run || (differences.is_empty() && base == version) {
            return tell(*output, &outcome(version, None, false), *dry_run);
        }
        let etag = format!("\"policy:{base}\"");
        let answer = session.post(&query, &[("if-match", &etag)], &body)?;
        match answer.status {
            // Somebody published the same meanwhile.
            200 => {
                let Tried { version, differences, .. } = session.read(&answer)?;
                let outcome = Outcome { version, others_version: None, is_new: false, differences: &differences };
                tell(*output, &outcome, *dry_run)
            }
            201 => {
                let Published { version, others_version } = session.read(&answer)?;
                tell(*output, &outcome(version, others_version, true), *dry_run)
            }
            _ => Err(refused(session, &answer, &name, Some(base))),
        }
    })
}

/// What changes, before it does.
fn tell_first(output: Output, differences: &[Difference]) -> Result<(), Failure> {
    match output {
        Output::Text => say(text(differences).as_bytes()),
        Output::Json => Ok(()),
    }
}

fn tell(output: Output, outcome: &Outcome<'_>, is_dry: bool) -> Result<Ended, Failure> {
    let Outcome { version, others_version, is_new, differences } = outcome;
    let told = match output {
        Output::Json => {
            let told = serde_json::to_string(outcome).map_err(|error| Failure(error.to_string()))?;
            format!("{told}\n")
        }
        Output::Text if *is_new => match others_version {
            None => format!("published as version {version}\n"),
            Some(others) => format!("published as version {version}, and as version {others} for all other nodes\n"),
        },
        Output::Text if is_dry && !differences.is_empty() => {
            format!("nothing was published: a dry run on version {version}\n")
        }
        Output::Text => format!("nothing to publish: version {version} is like this already\n"),
    };
    say(told.as_bytes()).map(|()| Ended::Well)
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
fn refused(session: &Session<'_>, answer: &Answer, file: &str, base: Option<u64>) -> Failure {
    let Ok(PublishProblem { details, conflicts }) = session.read(answer) else { return session.refused(answer) };
    match (&*details.code, base) {
        ("conflict", Some(base)) => conflict(session, &conflicts, base),
        ("invalid", _) => {
            let line = |error: &FieldError| {
                let is_of_file = matches!(&error.at, ErrorLocation::Pointer(at) if at.starts_with("/files"));
                let of = if is_of_file { file } else { "the server refuses it" };
                format!("{of}: {}", error.message)
            };
            session.failure(&details.errors.iter().map(line).collect::<Vec<_>>().join("\n"))
        }
        _ => session.refused(answer),
    }
}

/// Who changed what since `base`.
fn conflict(session: &Session<'_>, conflicts: &[Value], base: u64) -> Failure {
    let text_of = |field: &str| conflicts.first().and_then(|it| it.get(field)?.as_str()).unwrap_or("?");
    let newest = conflicts.first().and_then(|it| it.get("version")?.as_u64()).unwrap_or(base);
    let who = format!("; {} published it at {}", text_of("changed_by"), text_of("changed_at"));
    stale(session, "nothing was published", (base, newest), &who)
}

/// That another version is in force than the one that the file was made on, and what changed since.
fn stale(session: &Session<'_>, what: &str, (base, newest): (u64, u64), who: &str) -> Failure {
    let changed = session
        .get::<Differences>(&format!("/api/v1/policy/diff?from={base}&to={newest}"))
        .map(|since| text(&since.differences))
        .unwrap_or_default();
    session.failure(&format!(
        "{what}: version {newest} is in force, not {base}{who}. Since {base}:\n{}",
        changed.trim_end(),
    ))
}

/// As a part of a query.
fn encoded(text: &str) -> String {
    let encoded = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    });
    encoded.collect()
}
