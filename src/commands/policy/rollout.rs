//! `tidegate policy rollout`: shows, extends, completes or reverts the rollout of a version to some nodes.

use std::collections::BTreeSet;

use clap::{Args, ValueEnum};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    client::session::{AdminSession, SIGN_IN_HELP, SessionArguments},
    output::{CommandError, CommandStatus, print_result},
};

/// Shows the open rollout: a version that only some nodes have. Extends it, completes it, or reverts it.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  tidegate policy publish policy.toml --message \"try\" --nodes node-1 --user ana
  tidegate policy rollout --user ana
  tidegate policy rollout --nodes node-2,node-3 --user ana
  tidegate policy rollout all --user ana

`all` completes the rollout. `back` reverts it: all nodes get the version that the other nodes kept, published again.

{SIGN_IN_HELP}

Exit status: 0 done, 2 no rollout is open or the server refused."))]
pub(crate) struct RolloutArguments {
    /// The step of the rollout to take. Without this and --nodes the command only shows it.
    to: Option<RolloutTarget>,
    /// Further nodes that get the version, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "to")]
    nodes: Option<Vec<String>>,
    /// Go on even if some nodes cannot read the version. They keep the policy that they have.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    session: SessionArguments,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RolloutTarget {
    /// All nodes get the version.
    All,
    /// All nodes get the version that the other nodes kept.
    Back,
}

#[derive(Deserialize)]
struct OpenRollout {
    version: u64,
    keeps: u64,
    nodes: BTreeSet<String>,
    #[serde(default)]
    has: Vec<NodeVersion>,
}

#[derive(Deserialize)]
struct NodeVersion {
    node: String,
    policy_version: Option<u64>,
}

#[derive(Deserialize)]
struct RolloutResult {
    version: u64,
    rollout: Option<OpenRollout>,
}

const PATH: &str = "/api/v1/rollout";

pub(crate) fn run(arguments: &RolloutArguments) -> Result<CommandStatus, CommandError> {
    let RolloutArguments { to, nodes, force, session } = arguments;
    let to: Option<Value> = match (to, nodes) {
        (Some(RolloutTarget::All), _) => Some(json!("all")),
        (Some(RolloutTarget::Back), _) => Some(json!("back")),
        (None, nodes) => nodes.as_ref().map(|nodes| json!(nodes)),
    };
    let text = AdminSession::with(session, |session| {
        let Some(to) = to else { return session.get(PATH).map(|open| describe(&open)) };
        let answer = session.post(PATH, &[], &json!({ "to": to, "force": force }))?;
        if answer.status != 200 {
            return Err(session.rejection(&answer));
        }
        let RolloutResult { version, rollout } = session.read(&answer)?;
        Ok(rollout.as_ref().map_or_else(|| format!("all nodes get version {version}\n"), describe))
    });
    print_result(text?.as_bytes()).map(|()| CommandStatus::Success)
}

fn describe(OpenRollout { version, keeps, nodes, has }: &OpenRollout) -> String {
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let has = has.iter().map(|NodeVersion { node, policy_version }| match policy_version {
        Some(version) => format!("{node} has version {version}\n"),
        None => format!("{node}: its version is not known\n"),
    });
    let first =
        format!("version {version} is rolled out to {}; all other nodes keep version {keeps}\n", nodes.join(", "));
    [first].into_iter().chain(has).collect()
}
