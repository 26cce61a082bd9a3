//! The fleet: what nodes call, and what is known of them.

use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        StatusCode,
        header::{CacheControl, CacheDirective, HeaderName},
    },
    web::{Data, Json, Path},
};
use tidegate_fleet::wire::{Acknowledgement, Goodbye, Hello, NodeQuery, NodeReply, ReplyMessage, Report};

use crate::{
    auth::principal::Who,
    base::caller,
    domain::{
        error::Problem,
        roles::{Admin, Node, Operator, Viewer},
    },
    fleet::{
        node_history::NodeSecond,
        registry::{NodeDetails, NodeRow, Outcome},
    },
    http::{
        connections::Connection,
        extract::{
            body::Body,
            paging::{List, Nothing},
            query::Query,
        },
        guard::By,
        node_stream,
        openapi::{Api, NoContent},
        problem::Code,
        state::State,
    },
};

const STREAM: &str = "\
Server-sent events, as long as the node and the server live: first `snapshot` with the newest policy, or `current` where the \
node has it already (`version` and `sha256` say which one it has); then every new one; `command` with what an operator asks, \
to be answered by `POST /nodes/answers` within its `deadline_ms`; a comment every ten seconds. `restart`: the node read too \
slowly, and is to connect again. `bye` says why the stream ends.

The document of a `snapshot` is JSON, deflated, in base64; `sha256` is that of the JSON, and `bytes` its length. A name that \
another process has is refused; the same `instance` takes its own stream over.

A later build may say more of itself: parameters, and fields of what it posts, that this server does not know are overlooked.";

pub(super) fn calls(api: &mut Api) {
    api.about("Nodes", "Processes that follow this server, and decide by its policy.");
    api.get("/snapshots/stream", stream)
        .says("The stream of a node", STREAM)
        .overlooks_parameters()
        .refuses(&[Code::DuplicateNode, Code::Full])
        .answers(StatusCode::OK, "text/event-stream", "Events, each with a JSON object.");
    api.post("/nodes/acknowledgements", acknowledge)
        .says("Say what became of a snapshot", "That it is in force, or why not.")
        .refuses(&[Code::NotFound]);
    api.post("/nodes/reports", report)
        .says("Tell what was counted", "About once a second. One that comes twice, by its `sequence`, is counted once.")
        .refuses(&[Code::NotFound]);
    api.post("/nodes/answers", answer)
        .says("Answer a command", "Within its deadline; later nobody waits for it.")
        .refuses(&[Code::NotFound]);
    api.post("/nodes/goodbyes", goodbye)
        .says(
            "Say that a node stops",
            "Its stream ends. A node that ends without it is missed: the alert `node_gone` is opened.",
        )
        .refuses(&[Code::NotFound]);
    api.get("/nodes", list).says(
        "Nodes",
        "This server if it decides, then those that follow it, by name. One that stopped or is gone is remembered for a day.",
    );
    api.get("/nodes/{name}", show)
        .says("A node", "As in the list, with what process it is, its errors by kind, and what happened to it lately.")
        .with("name", "Its name.");
    api.get("/nodes/{name}/history", history)
        .says(
            "The last quarter of an hour of a node",
            "A point a second, in memory of this server; there is none for a second in which the node was not heard. Of more than \
             a thousand nodes less is kept, of each a minute at least.",
        )
        .with("name", "Its name.");
    api.delete("/nodes/{name}", remove)
        .says(
            "Forget a node that is gone",
            "From every server of the database: not while it is connected to one of them.",
        )
        .with("name", "Its name.")
        .refuses(&[Code::StillHere]);
    api.post("/nodes/{name}/resync", resync)
        .says("Send a node its policy again", "It connects again, and takes the policy anew.")
        .with("name", "Its name.");
}

async fn stream(
    by: By<Node>,
    state: Data<State>,
    hello: Query<Hello>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    // A policy that another server has published by now is the one to begin with.
    state.publisher.catch_up().await?;
    let connection = state.fleet.connect(&state.store, hello.clone(), by.address.clone()).await?;
    if let Some(connection) = request.conn_data::<Connection>() {
        connection.is_stream();
    }
    let events = node_stream::events(state, by.who(), connection, &hello).await?;
    Ok(HttpResponse::Ok()
        .content_type("text/event-stream")
        .insert_header(CacheControl(vec![CacheDirective::NoStore]))
        // For proxies that hold back what comes in small pieces.
        .insert_header((HeaderName::from_static("x-accel-buffering"), "no"))
        .streaming(Box::pin(events)))
}

async fn acknowledge(_: By<Node>, state: Data<State>, body: Body<Acknowledgement>) -> Result<NoContent, Problem> {
    state.fleet.acknowledge(&state.publisher.targets(), body.value).map(|()| NoContent)
}

async fn report(_: By<Node>, state: Data<State>, body: Body<Report>) -> Result<NoContent, Problem> {
    state.fleet.report(&state.publisher.targets(), &body.value).map(|()| NoContent)
}

async fn answer(_: By<Node>, state: Data<State>, body: Body<ReplyMessage>) -> Result<NoContent, Problem> {
    state.fleet.answer(body.value).map(|()| NoContent)
}

async fn goodbye(_: By<Node>, state: Data<State>, body: Body<Goodbye>) -> Result<NoContent, Problem> {
    state.fleet.goodbye(&body.value).map(|()| NoContent)
}

async fn list(_: By<Viewer>, state: Data<State>) -> Json<List<NodeRow>> {
    let items = state.fleet.rows(&state.publisher.targets());
    Json(List { about: Nothing {}, items, next: None })
}

async fn show(_: By<Viewer>, state: Data<State>, name: Path<String>) -> Result<Json<NodeDetails>, Problem> {
    state.fleet.details(&state.publisher.targets(), &name).map(Json)
}

async fn history(_: By<Viewer>, state: Data<State>, name: Path<String>) -> Result<Json<List<NodeSecond>>, Problem> {
    Ok(Json(List { about: Nothing {}, items: state.fleet.history(&name)?, next: None }))
}

async fn remove(by: By<Admin>, state: Data<State>, name: Path<String>) -> Result<NoContent, Problem> {
    state.fleet.remove(&state.store, &name).await?;
    audit(&state, &by, ("node.remove", "done"), &name).await?;
    Ok(NoContent)
}

async fn resync(by: By<Operator>, state: Data<State>, name: Path<String>) -> Result<Json<Outcome>, Problem> {
    // A task of its own: a client that goes away must not stop it before its line.
    let resync = caller::spawn(async move {
        let outcome = state.fleet.ask(&state.store, Some(std::slice::from_ref(&*name)), &NodeQuery::Resync {}).await?;
        let result = match outcome.answers.get(&*name) {
            Some(NodeReply::Resync {}) => "done",
            Some(_) => "failed",
            None => "did not answer",
        };
        audit(&state, &by, ("node.resync", result), &name).await?;
        Ok::<_, Problem>(Json(outcome))
    });
    resync.await.map_err(|error| Problem::Internal(error.to_string()))?
}

async fn audit(state: &State, by: &Who, (action, result): (&str, &str), name: &str) -> Result<(), Problem> {
    let object = format!("node:{name}");
    Ok(state.store.audit(by.did(action, &object, result)).await?)
}
