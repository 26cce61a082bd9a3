//! `tidegate policy diff`: the differences between two policies, in files or at a running server.

use std::{fmt::Write, path::PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate::policy::{Difference, Policy, differences};
use tidegate_admin::take_ended;

use crate::policy_file::{load_document, note_ended_overrides};
use crate::{
    client::session::{AdminSession, SIGN_IN_HELP, SessionArguments},
    formats::OutputFormat,
    output::{CommandError, CommandStatus, print_result, printable},
};

/// Shows the differences between two policies, by object, limit and field.
///
/// It compares two files, a file with the policy of a running server (what publishing the file would change), or two published
/// versions.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  tidegate policy diff old.toml new.yaml
  tidegate policy diff policy.toml --live --user ana
  tidegate policy diff --from 3 --to 5 --user ana
  tidegate policy diff policy.toml --from 3 --user ana     changes since version 3

{SIGN_IN_HELP}

Exit status, like that of diff: 0 no differences, 1 differences, 2 an error."))]
pub(crate) struct DiffArguments {
    /// Policy files: .toml, .yaml or .json.
    #[arg(value_name = "FILE", num_args = 0..=2)]
    files: Vec<PathBuf>,
    /// Compare the policy in force with the file.
    #[arg(long, conflicts_with_all = ["from", "to"])]
    live: bool,
    /// The version to compare from. The default is the one before --to.
    #[arg(long, value_name = "VERSION")]
    from: Option<u64>,
    /// The version to compare to. The default is the one in force.
    #[arg(long, value_name = "VERSION")]
    to: Option<u64>,
    /// The format of the differences.
    #[arg(long, env = "TIDEGATE_OUTPUT", value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    #[command(flatten)]
    session: SessionArguments,
}

/// The response of the admin server.
#[derive(Serialize, Deserialize)]
pub(super) struct DifferencesBody {
    pub(super) differences: Vec<Difference>,
}

pub(crate) fn run(arguments: &DiffArguments) -> Result<CommandStatus, CommandError> {
    let DiffArguments { files, live, from, to, .. } = arguments;
    let load = |file: &PathBuf| load_document(file);
    let found = match (files.as_slice(), live, from, to) {
        ([old, new], false, None, None) => differences(&load(old)?, &load(new)?),
        ([file], true, ..) => differences_of_file(arguments, "/api/v1/policy", &load(file)?)?,
        ([file], _, Some(from), None) => {
            differences_of_file(arguments, &format!("/api/v1/policy/versions/{from}"), &load(file)?)?
        }
        ([], false, from, to) if from.is_some() || to.is_some() => {
            let parameter = |(name, version): (&str, &Option<u64>)| version.map(|version| format!("{name}={version}"));
            let query: Vec<String> = [("from", from), ("to", to)].into_iter().filter_map(parameter).collect();
            let path = format!("/api/v1/policy/diff?{}", query.join("&"));
            AdminSession::with(&arguments.session, |session| session.get::<DifferencesBody>(&path))?.differences
        }
        _ => {
            let what = "nothing to compare; give two files, a file and --live, a file and --from VERSION, or --from VERSION --to VERSION";
            return Err(CommandError(what.to_owned()));
        }
    };
    let is_same = found.is_empty();
    match arguments.output {
        OutputFormat::Text => print_result(text(&found).as_bytes())?,
        OutputFormat::Json => print_result(json(found)?.as_bytes())?,
    }
    Ok(if is_same { CommandStatus::Success } else { CommandStatus::Negative })
}

fn differences_of_file(arguments: &DiffArguments, path: &str, file: &Policy) -> Result<Vec<Difference>, CommandError> {
    #[derive(Deserialize)]
    struct PolicyBody {
        document: Policy,
    }
    let mut served = AdminSession::with(&arguments.session, |session| session.get::<PolicyBody>(path))?;
    // Ended overrides vanish with the next version, so they are not a difference.
    take_ended(&mut served.document);
    let mut file = file.clone();
    note_ended_overrides(&take_ended(&mut file));
    Ok(differences(&served.document, &file))
}

fn json(differences: Vec<Difference>) -> Result<String, CommandError> {
    let text = serde_json::to_string(&DifferencesBody { differences });
    text.map(|text| format!("{text}\n")).map_err(|error| CommandError(error.to_string()))
}

/// Formats one difference per line: `+` is added, `-` is removed, `~` is changed.
pub(super) fn text(differences: &[Difference]) -> String {
    let mut text = String::new();
    for Difference { domain, kind, id, limit, field, from, to, .. } in differences {
        let limit = limit.as_ref().map(|limit| format!("/{limit}")).unwrap_or_default();
        let name = match kind.as_str() {
            "domain" => domain.clone(),
            kind => format!("{domain}/{kind}:{id}{limit}"),
        };
        let field = field.as_ref().map(|field| format!("  {field}:")).unwrap_or_default();
        let line = match (from, to) {
            (Some(from), Some(to)) => format!("~ {name}{field} {} -> {}", short_value(from), short_value(to)),
            (None, Some(to)) => format!("+ {name}{field} {}", short_value(to)),
            (Some(from), None) => format!("- {name}{field} {}", short_value(from)),
            (None, None) => format!("~ {name}{field}"),
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", printable(&line));
    }
    text
}

/// Formats a value as the document has it, without the quotes of a string.
fn short_value(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_difference_is_one_line() {
        let line_of = |difference: Value| text(&[serde_json::from_value(difference).expect("a difference")]);
        for (difference, line) in [
            (
                json!({ "domain": "default", "kind": "tier", "id": "free", "limit": "minute", "field": "limit", "from": 60, "to": 100 }),
                "~ default/tier:free/minute  limit: 60 -> 100\n",
            ),
            (
                json!({ "domain": "web", "kind": "rule", "id": "old", "from": { "id": "old" } }),
                "- web/rule:old {\"id\":\"old\"}\n",
            ),
            (
                json!({ "domain": "default", "kind": "client", "id": "user:\u{1b}[2J", "field": "tier", "to": "pro" }),
                "+ default/client:user:\u{fffd}[2J  tier: pro\n",
            ),
            (
                json!({ "domain": "default", "kind": "domain", "id": "default", "field": "headers", "from": "none", "to": "ietf" }),
                "~ default  headers: none -> ietf\n",
            ),
        ] {
            assert_eq!(line_of(difference), line);
        }
    }
}
