//! The version that went to some nodes first: what it waits for, and how it goes on.

use actix_web::{
    rt,
    web::{Data, Json},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    domain::{
        error::Problem,
        roles::{Editor, Viewer},
        rollout::none_open,
        version::Rollout,
    },
    http::{extract::body::Body, guard::By, openapi::Api, problem::Code, routes::policy::author, state::State},
};

pub(super) fn calls(api: &mut Api) {
    api.about("Rollout", "A version that was published to some `nodes` first. It goes to all, or back.");
    api.get("/rollout", show)
        .reads_later()
        .says(
            "The rollout that is open",
            "All nodes that it does not name keep the version `keeps`. A publish that changes only overrides of clients reaches \
             all nodes meanwhile: it makes two versions, which are `version` and `keeps` from then on.",
        )
        .refuses(&[Code::NotFound]);
    api.post("/rollout", go_on)
        .says(
            "Let it go on, or take it back",
            "`all`: every node gets the version. `back`: what the others kept is published again, as a new version, to all. A \
             list of names: these nodes get it too.",
        )
        .example(json!({ "to": "all" }))
        .refuses(&[Code::NotFound, Code::NodeCannotRead]);
}

/// An open rollout, with what its nodes have.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "OpenRollout")]
struct Open {
    #[serde(flatten)]
    rollout: Rollout,
    /// Each of `nodes`, with the version in force there.
    has: Vec<Has>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RolloutNode")]
struct Has {
    node: String,
    /// 0: none; `null`: it is not known.
    policy_version: Option<u64>,
}

/// Where a rollout goes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GoOn {
    to: To,
    /// Give it to nodes that are connected and cannot read it: they keep the policy that they have.
    #[serde(default)]
    force: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected `all`, `back`, or a list of nodes")]
enum To {
    Whole(Whole),
    /// Names.
    Nodes(Vec<String>),
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Whole {
    All,
    Back,
}

/// How a rollout went on.
#[derive(Serialize, JsonSchema)]
struct WentOn {
    /// The newest version.
    version: u64,
    /// `null`: every node is to have that one.
    rollout: Option<Rollout>,
}

async fn show(_: By<Viewer>, state: Data<State>) -> Result<Json<Open>, Problem> {
    // What another server did a moment ago is so.
    state.publisher.catch_up().await?;
    let _turn = state.store.reads.turn().await?;
    let rollout = state.publisher.targets().rollout().cloned().ok_or_else(none_open)?;
    let mut reading = state.store.reading().await?;
    let mut has = Vec::with_capacity(rollout.nodes.len());
    for node in &rollout.nodes {
        let policy_version = state.fleet.version_of(&mut reading, node).await?;
        has.push(Has { node: node.clone(), policy_version });
    }
    Ok(Json(Open { rollout, has }))
}

async fn go_on(by: By<Editor>, state: Data<State>, body: Body<GoOn>) -> Result<Json<WentOn>, Problem> {
    let (GoOn { to, force }, author) = (body.value, author(&by));
    let publisher = state.publisher.clone();
    // A task of its own: a client that goes away must not stop it half way.
    let went = rt::spawn(async move {
        match to {
            To::Whole(Whole::Back) => publisher.take_back(force, author).await.map(drop),
            To::Whole(Whole::All) => publisher.go_on(None, force, author).await,
            To::Nodes(nodes) => publisher.go_on(Some(nodes), force, author).await,
        }
    });
    went.await.map_err(|error| Problem::Internal(error.to_string()))??;
    let targets = state.publisher.targets();
    Ok(Json(WentOn { version: targets.newest.version.version, rollout: targets.rollout().cloned() }))
}
