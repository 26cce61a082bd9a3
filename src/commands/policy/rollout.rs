//! `tidegate policy rollout`: a version that went to some nodes first goes on, or back.

use std::collections::BTreeSet;

use clap::{Args, ValueEnum};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    client::session::{SIGNING_IN, Session, SessionArguments},
    output::{Ended, Failure, say},
};

/// Shows the version that went to some nodes first, gives it to others or to all, or takes it back.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  tidegate policy publish policy.toml --message \"try\" --nodes node-1 --user ana
  tidegate policy rollout --user ana
  tidegate policy rollout --nodes node-2,node-3 --user ana
  tidegate policy rollout all --user ana

`back` publishes the version that the other nodes kept again, to all.

{SIGNING_IN}

Exit status: 0; 2 where no rollout is open, or it was refused."))]
pub(crate) struct RolloutArguments {
    /// Where it goes; without it and --nodes it is only shown.
    to: Option<To>,
    /// Nodes that it goes to as well, with commas between them.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "to")]
    nodes: Option<Vec<String>>,
    /// Also to nodes that cannot read it: they keep the policy that they have.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    session: SessionArguments,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum To {
    /// Every node gets it.
    All,
    /// Every node gets what the others kept.
    Back,
}

#[derive(Deserialize)]
struct Open {
    version: u64,
    keeps: u64,
    nodes: BTreeSet<String>,
    #[serde(default)]
    has: Vec<Has>,
}

#[derive(Deserialize)]
struct Has {
    node: String,
    policy_version: Option<u64>,
}

#[derive(Deserialize)]
struct WentOn {
    version: u64,
    rollout: Option<Open>,
}

const PATH: &str = "/api/v1/rollout";

pub(crate) fn run(arguments: &RolloutArguments) -> Result<Ended, Failure> {
    let RolloutArguments { to, nodes, force, session } = arguments;
    let to: Option<Value> = match (to, nodes) {
        (Some(To::All), _) => Some(json!("all")),
        (Some(To::Back), _) => Some(json!("back")),
        (None, nodes) => nodes.as_ref().map(|nodes| json!(nodes)),
    };
    let told = Session::with(session, |session| {
        let Some(to) = to else { return session.get(PATH).map(|open| shown(&open)) };
        let answer = session.post(PATH, &[], &json!({ "to": to, "force": force }))?;
        if answer.status != 200 {
            return Err(session.refused(&answer));
        }
        let WentOn { version, rollout } = session.read(&answer)?;
        Ok(rollout.as_ref().map_or_else(|| format!("version {version} goes to all nodes\n"), shown))
    });
    say(told?.as_bytes()).map(|()| Ended::Well)
}

fn shown(Open { version, keeps, nodes, has }: &Open) -> String {
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let has = has.iter().map(|Has { node, policy_version }| match policy_version {
        Some(version) => format!("{node} has version {version}\n"),
        None => format!("{node}: it is not known what it has\n"),
    });
    let first = format!("version {version} is for {}; all other nodes keep version {keeps}\n", nodes.join(", "));
    [first].into_iter().chain(has).collect()
}
