//! What nodes are asked about keys: how they stand, to forget them, and who comes just now.

use std::collections::BTreeMap;

use actix_web::web::{Data, Json};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_fleet::wire::{
    DECISIONS_MAX, NodeQuery, NodeReply, PeekedLimit, QueryIdentity, QueryRequest, WATCH_MS_MAX,
};

use crate::{
    base::caller,
    domain::{
        change_list::{MESSAGE_BYTES_MAX, check_line},
        error::Problem,
        roles::{Operator, Viewer},
    },
    fleet::registry::Outcome,
    http::{extract::body::Body, guard::By, openapi::Api, problem::Code, state::State},
};

/// Longest line that the audit log has of whom it was about, in characters.
const OBJECT_CHARACTERS: usize = 200;
/// Limits that it names of a reset, and in how many characters.
const CLEARED_NAMED: usize = 3;
const CLEARED_CHARACTERS: usize = 300;

const ABOUT: &str = "\
What every node has of a key by itself, unless its limit is shared. Nodes are asked over the streams that they opened, and \
have two seconds: those that did not answer are named, and of them nothing is known.";

pub(super) fn calls(api: &mut Api) {
    api.about("Keys", ABOUT);
    api.post("/keys/peek", peek)
        .says("How the limits of a request stand", "On each node. Charges nothing.")
        .example(example())
        .refuses(&[Code::NotFound]);
    api.post("/keys/reset", reset)
        .says(
            "Forget what was used",
            "Of every limit of a request, also by everyone where it counts everyone together; done where the answer is `reset`, \
             which has the limits as they stood. What nodes share is forgotten in their store first, once, by way of one node: \
             done where `store` is `clear`. Then all nodes forget what they hold of it. Where nodes are named, only what these \
             count and hold is forgotten. The audit log has who did it, what was used, and why.",
        )
        .example(json!({
            "request": { "identities": [{ "kind": "user", "value": "ada" }] }, "reason": "a loop in her client is mended",
        }))
        .refuses(&[Code::NotFound]);
    api.post("/keys/charge", charge)
        .says(
            "Send a test request",
            "To each node, or to those that are named: decided and charged there as the front doors would. To see that a policy \
             works; the cost is 1. The audit log has who did it, and what was decided.",
        )
        .example(example())
        .refuses(&[Code::NotFound]);
    api.post("/keys/watch", watch)
        .says(
            "Watch one identity",
            "The decisions about it that nodes make within `for_ms`. The event stream shows them as they are made.",
        )
        .refuses(&[Code::NotFound]);
    api.post("/keys/sample", sample)
        .says("See the next decisions", "Of each node, whomever they are about.")
        .refuses(&[Code::NotFound]);
}

fn example() -> Value {
    json!({ "request": { "identities": [{ "kind": "user", "value": "ada" }] } })
}

/// A request, and whom to ask about it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AskedKeys")]
struct Asked {
    request: QueryRequest,
    /// Names of nodes; all unless given.
    nodes: Option<Vec<String>>,
}

/// What is to be done with keys, and why.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AskedOfKeys")]
struct Reasoned {
    request: QueryRequest,
    /// Names of nodes; all unless given.
    nodes: Option<Vec<String>>,
    /// One line, for the audit log.
    #[serde(default)]
    #[schemars(length(max = MESSAGE_BYTES_MAX))]
    reason: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Watched {
    who: QueryIdentity,
    /// Milliseconds.
    #[schemars(range(min = 1, max = WATCH_MS_MAX))]
    for_ms: u64,
    /// Names of nodes; all unless given.
    nodes: Option<Vec<String>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Sampled {
    /// Of each node, so many at most.
    #[schemars(range(min = 1, max = DECISIONS_MAX))]
    count: usize,
    /// Milliseconds.
    #[schemars(range(min = 1, max = WATCH_MS_MAX))]
    for_ms: u64,
    /// Names of nodes; all unless given.
    nodes: Option<Vec<String>>,
}

async fn peek(_: By<Viewer>, state: Data<State>, body: Body<Asked>) -> Result<Json<Outcome>, Problem> {
    let Asked { request, nodes } = body.value;
    check(&request)?;
    state.fleet.ask(&state.store, nodes.as_deref(), &NodeQuery::Peek { request }).await.map(Json)
}

async fn reset(by: By<Operator>, state: Data<State>, body: Body<Reasoned>) -> Result<Json<Outcome>, Problem> {
    done(by, state, body, "keys.reset", |request| NodeQuery::Reset { request }, cleared).await
}

async fn charge(by: By<Operator>, state: Data<State>, body: Body<Reasoned>) -> Result<Json<Outcome>, Problem> {
    // Many of the smallest requests leave as many lines; one large one would empty a quota.
    if body.value.request.cost.is_some_and(|cost| cost != 1) {
        return Err(Problem::field("/request/cost", "a test request has a cost of 1"));
    }
    done(by, state, body, "keys.charge", |request| NodeQuery::Charge { request }, decided).await
}

/// What nodes decided, in words.
fn decided(_: &State, outcome: &Outcome) -> Option<String> {
    let mut counts = [("allowed", 0), ("denied", 0), ("without a limit", 0), ("in an unknown domain", 0)];
    for told in outcome.answers.values() {
        let NodeReply::Charge { allowed, limit_id, unknown_domain, .. } = told else { continue };
        let place = match (unknown_domain, limit_id, allowed) {
            (true, ..) => 3,
            (_, None, _) => 2,
            (.., false) => 1,
            (.., true) => 0,
        };
        counts[place].1 += 1;
    }
    let each = counts.iter().filter(|(_, nodes)| *nodes > 0).map(|(what, nodes)| format!("{what} on {nodes}"));
    let each = each.collect::<Vec<_>>().join(", ");
    let asked = outcome.answers.len() + outcome.did_not_answer.len();
    (!each.is_empty()).then(|| format!("{each} of {asked} {}", if asked == 1 { "node" } else { "nodes" }))
}

/// What was used of limits that were reset, in words: of each what the store had, or the node with the most.
fn cleared(state: &State, outcome: &Outcome) -> Option<String> {
    let mut most = BTreeMap::<&str, &PeekedLimit>::new();
    for told in outcome.answers.values().chain(&outcome.store) {
        let (NodeReply::Reset { cleared, .. } | NodeReply::Clear { cleared, .. }) = told else { continue };
        for limit in cleared {
            let known = most.entry(&limit.limit_id).or_insert(limit);
            if limit.is_fuller(known) {
                *known = limit;
            }
        }
    }
    let line = |limit: &&PeekedLimit| {
        let used = limit.limit.saturating_sub(limit.remaining);
        format!("{} had {used} of {} used", state.figures.shown(&limit.limit_id), limit.limit)
    };
    let mut lines: Vec<String> = most.values().take(CLEARED_NAMED).map(line).collect();
    if most.len() > CLEARED_NAMED {
        lines.push(format!("{} more", most.len() - CLEARED_NAMED));
    }
    (!lines.is_empty()).then(|| lines.join(", ").chars().take(CLEARED_CHARACTERS).collect())
}

/// What leaves a line in the audit log, which says what came of it.
async fn done(
    by: By<Operator>,
    state: Data<State>,
    body: Body<Reasoned>,
    action: &'static str,
    ask: fn(QueryRequest) -> NodeQuery,
    came: fn(&State, &Outcome) -> Option<String>,
) -> Result<Json<Outcome>, Problem> {
    let Reasoned { request, nodes, reason } = body.value;
    check(&request)?;
    check_line("/reason", &reason)?;
    let each =
        request.identities.iter().map(|who| format!("{}:{}", who.kind, state.privacy.show(&who.kind, &who.value)));
    let object: String = each.collect::<Vec<_>>().join(" ").chars().take(OBJECT_CHARACTERS).collect();
    // A task of its own: a client that goes away must not stop it before its line.
    let doing = caller::spawn(async move {
        // Before any node forgets: what one takes anew after that is charged where it stays.
        let stored = match ask(request.clone()) {
            NodeQuery::Reset { request } if nodes.is_none() => state.fleet.clear(&state.store, &request).await,
            _ => None,
        };
        let outcome = state.fleet.ask(&state.store, nodes.as_deref(), &ask(request)).await?;
        let outcome = Outcome { store: stored, ..outcome };
        let is_done = |told: &&NodeReply| matches!(told, NodeReply::Reset { .. } | NodeReply::Charge { .. });
        let done = outcome.answers.values().filter(is_done).count();
        let asked = outcome.answers.len() + outcome.did_not_answer.len();
        let result = match &outcome.store {
            Some(NodeReply::Failed { .. }) => format!("done on {done} of {asked} nodes, not in the store"),
            _ if asked == done && done > 0 => "done".to_owned(),
            Some(_) => format!("done in the store, and on {done} of {asked} nodes"),
            None => format!("done on {done} of {asked} nodes"),
        };
        let reason = Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty());
        let result: Vec<String> = [Some(result), came(&state, &outcome), reason].into_iter().flatten().collect();
        let result = result.join(": ");
        state.store.audit(by.did(action, &format!("key:{object}"), &result)).await?;
        Ok::<_, Problem>(Json(outcome))
    });
    doing.await.map_err(|error| Problem::Internal(error.to_string()))?
}

async fn watch(_: By<Operator>, state: Data<State>, body: Body<Watched>) -> Result<Json<Outcome>, Problem> {
    let Watched { who, for_ms, nodes } = body.value;
    check(&QueryRequest::of_one(who.clone()))?;
    check_time(for_ms)?;
    let ask = NodeQuery::Watch { who: who.clone(), for_ms, cursor: None };
    let outcome = state.fleet.ask(&state.store, nodes.as_deref(), &ask).await?;
    Ok(Json(state.watches.shown(outcome, Some(&who))))
}

async fn sample(_: By<Operator>, state: Data<State>, body: Body<Sampled>) -> Result<Json<Outcome>, Problem> {
    let Sampled { count, for_ms, nodes } = body.value;
    check_time(for_ms)?;
    if !(1..=DECISIONS_MAX).contains(&count) {
        return Err(Problem::field("/count", format!("from 1 to {DECISIONS_MAX} decisions")));
    }
    let outcome = state.fleet.ask(&state.store, nodes.as_deref(), &NodeQuery::Sample { count, for_ms }).await?;
    Ok(Json(state.watches.shown(outcome, None)))
}

fn check_time(for_ms: u64) -> Result<(), Problem> {
    if (1..=WATCH_MS_MAX).contains(&for_ms) {
        return Ok(());
    }
    Err(Problem::field("/for_ms", format!("from 1 to {WATCH_MS_MAX} milliseconds")))
}

/// Is it a request? Every node would say the same.
fn check(request: &QueryRequest) -> Result<(), Problem> {
    request.check().map_err(|error| Problem::field("/request", error.to_string()))
}
