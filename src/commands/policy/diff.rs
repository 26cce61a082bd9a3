//! `tidegate policy diff`: what differs between two policies, in files or at a running server.

use std::{fmt::Write, path::PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate::policy::{Difference, Policy, differences};
use tidegate_admin::take_ended;

use crate::policy_file::{load_document, tell_ended};
use crate::{
    client::session::{SIGNING_IN, Session, SessionArguments},
    formats::Output,
    output::{Ended, Failure, printable, say},
};

/// Tells what differs between two policies, by object, limit and field.
///
/// Between two files; a file and the policy of a running server (what publishing the file would change); or two versions
/// that were published.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  tidegate policy diff old.toml new.yaml
  tidegate policy diff policy.toml --live --user ana
  tidegate policy diff --from 3 --to 5 --user ana
  tidegate policy diff policy.toml --from 3 --user ana     since version 3

{SIGNING_IN}

Exit status, as of diff: 0 nothing differs, 1 something does, 2 there is no answer."))]
pub(crate) struct DiffArguments {
    /// Policies: .toml, .yaml or .json.
    #[arg(value_name = "FILE", num_args = 0..=2)]
    files: Vec<PathBuf>,
    /// From the policy that is in force to the file.
    #[arg(long, conflicts_with_all = ["from", "to"])]
    live: bool,
    /// From this version; the one before --to unless given.
    #[arg(long, value_name = "VERSION")]
    from: Option<u64>,
    /// To this version; the one in force unless given.
    #[arg(long, value_name = "VERSION")]
    to: Option<u64>,
    /// How to print the differences.
    #[arg(long, env = "TIDEGATE_OUTPUT", value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    session: SessionArguments,
}

/// As the admin server tells them.
#[derive(Serialize, Deserialize)]
pub(super) struct Differences {
    pub(super) differences: Vec<Difference>,
}

pub(crate) fn run(arguments: &DiffArguments) -> Result<Ended, Failure> {
    let DiffArguments { files, live, from, to, .. } = arguments;
    let load = |file: &PathBuf| load_document(file);
    let found = match (files.as_slice(), live, from, to) {
        ([old, new], false, None, None) => differences(&load(old)?, &load(new)?),
        ([file], true, ..) => of_file(arguments, "/api/v1/policy", &load(file)?)?,
        ([file], _, Some(from), None) => of_file(arguments, &format!("/api/v1/policy/versions/{from}"), &load(file)?)?,
        ([], false, from, to) if from.is_some() || to.is_some() => {
            let parameter = |(name, version): (&str, &Option<u64>)| version.map(|version| format!("{name}={version}"));
            let query: Vec<String> = [("from", from), ("to", to)].into_iter().filter_map(parameter).collect();
            let path = format!("/api/v1/policy/diff?{}", query.join("&"));
            Session::with(&arguments.session, |session| session.get::<Differences>(&path))?.differences
        }
        _ => {
            let what = "say what to compare: two files, a file and --live, a file and --from VERSION, or --from VERSION --to VERSION";
            return Err(Failure(what.to_owned()));
        }
    };
    let is_same = found.is_empty();
    match arguments.output {
        Output::Text => say(text(&found).as_bytes())?,
        Output::Json => say(json(found)?.as_bytes())?,
    }
    Ok(if is_same { Ended::Well } else { Ended::No })
}

fn of_file(arguments: &DiffArguments, path: &str, file: &Policy) -> Result<Vec<Difference>, Failure> {
    #[derive(Deserialize)]
    struct WithDocument {
        document: Policy,
    }
    let mut served = Session::with(&arguments.session, |session| session.get::<WithDocument>(path))?;
    // What has ended goes with the next version, and is no difference.
    take_ended(&mut served.document);
    let mut file = file.clone();
    tell_ended(&take_ended(&mut file));
    Ok(differences(&served.document, &file))
}

fn json(differences: Vec<Difference>) -> Result<String, Failure> {
    let text = serde_json::to_string(&Differences { differences });
    text.map(|text| format!("{text}\n")).map_err(|error| Failure(error.to_string()))
}

/// A line for each: `+` is new, `-` is gone, `~` is other.
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
            (Some(from), Some(to)) => format!("~ {name}{field} {} -> {}", short(from), short(to)),
            (None, Some(to)) => format!("+ {name}{field} {}", short(to)),
            (Some(from), None) => format!("- {name}{field} {}", short(from)),
            (None, None) => format!("~ {name}{field}"),
        };
        // A string takes whatever is written to it.
        let _ = writeln!(text, "{}", printable(&line));
    }
    text
}

/// As the document has it, but for the quotes of a text.
fn short(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_told_in_a_line_each() {
        let told = |difference: Value| text(&[serde_json::from_value(difference).expect("a difference")]);
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
            assert_eq!(told(difference), line);
        }
    }
}
