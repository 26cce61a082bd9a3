//! Clients, of which there may be a hundred thousand: pages of them, one, its override, and many at once.

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{CONTENT_DISPOSITION, IF_MATCH, IF_NONE_MATCH},
    rt,
    web::{self, Data, Path, Query},
};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate::policy::{Client, Override};
use tokio::task::spawn_blocking;

use super::{
    objects::{Call, InDomain, Item, domain_of, publish_one, single},
    policy::{author, published},
    resource,
};
use crate::{
    access::SignedIn,
    body::{Body, Csv},
    changes::{Edited, Op, default_domain},
    clients::{self, Bulk, Filter, Missing, Report},
    differences::changed,
    objects::{Kind, ObjectKey, client_id, client_place},
    problem::Problem,
    published::Published,
    publisher::Words,
    server::State,
    store::sha256,
};

/// Clients on a page unless told otherwise, and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 500;
/// So many wrong lines are told where nothing is imported because of them.
const WRONG_LINES_TOLD: usize = 100;

/// Paths below `/clients`, before that of a single one.
pub(super) fn routes(config: &mut web::ServiceConfig) {
    config
        .service(resource("/clients/import", "POST").post(import))
        .service(resource("/clients/export", "GET").get(export))
        .service(resource("/clients/bulk", "POST").post(bulk))
        .service(
            resource("/clients/{id}/override", "GET, PUT, DELETE")
                .get(get_override)
                .put(put_override)
                .delete(delete_override),
        );
}

#[derive(Deserialize)]
pub(super) struct OfClients {
    #[serde(default = "default_domain")]
    domain: String,
    kind: Option<String>,
    /// Of the value.
    #[serde(default)]
    prefix: String,
    tier: Option<String>,
    has_override: Option<bool>,
    limit: Option<usize>,
    /// The id that the page before ended with.
    cursor: Option<String>,
}

/// In the order of kinds and values.
pub(super) async fn list(state: Data<State>, query: Query<OfClients>) -> Result<HttpResponse, Problem> {
    let OfClients { domain: name, kind, prefix, tier, has_override, limit, cursor } = query.into_inner();
    let filter = Filter { kind, prefix, tier, has_override, ids: None };
    let published = state.publisher.published();
    let clients = &domain_of(&published, &name)?.clients;
    let limit = limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let mut rest = filter.after(clients, cursor.as_deref());
    let page: Vec<&Client> = rest.by_ref().take(limit).collect();
    let is_last = rest.next().is_none();
    let items = page.iter().map(|client| {
        let key = ObjectKey { kind: Kind::Client, domain: name.clone(), id: client_id(client) };
        let mut item = json!(Item::new(&published, &key, None, client));
        item["id"] = json!(key.id);
        item
    });
    let items: Vec<Value> = items.collect();
    let next = page.last().filter(|_| !is_last).map(|client| client_id(client));
    let body = json!({
        "policy_version": published.version.version, "domain": name, "matching": filter.after(clients, None).count(),
        "items": items, "next": next,
    });
    Ok(HttpResponse::Ok().json(body))
}

/// A client of the policy in force.
fn find<'p>(published: &'p Published, domain: &str, id: &str) -> Result<(ObjectKey, &'p Client), Problem> {
    let within = domain_of(published, domain)?;
    let place = client_place(within, id);
    let place = place.ok_or_else(|| Problem::NotFound(format!("There is no client `{id}`; ids are KIND:VALUE.")))?;
    let key = ObjectKey { kind: Kind::Client, domain: domain.to_owned(), id: id.to_owned() };
    Ok((key, &within.clients[place]))
}

pub(super) async fn one(state: Data<State>, id: Path<String>, query: Query<InDomain>) -> Result<HttpResponse, Problem> {
    let published = state.publisher.published();
    let (key, client) = find(&published, &query.domain, &id)?;
    Ok(single(&Item::new(&published, &key, None, client)))
}

async fn get_override(state: Data<State>, id: Path<String>, query: Query<InDomain>) -> Result<HttpResponse, Problem> {
    let published = state.publisher.published();
    let (key, client) = find(&published, &query.domain, &id)?;
    let made = client.exception.as_ref();
    let made: &Override = made.ok_or_else(|| Problem::NotFound(format!("The client `{id}` has no override.")))?;
    Ok(single(&Item::new(&published, &key, None, made)))
}

/// The client stays as it is otherwise; with `If-None-Match: *` it is made.
async fn put_override(call: Call, id: Path<String>, body: Body<Value>) -> Result<HttpResponse, Problem> {
    let (state, request, _, query) = &call;
    let is_new = request.headers().get(IF_NONE_MATCH).is_some_and(|tag| tag == "*");
    let published = state.publisher.published();
    let mut value = if let Ok((_, client)) = find(&published, &query.domain, &id) {
        json!(client)
    } else {
        let parts = id.split_once(':');
        let (kind, value) = parts.ok_or_else(|| Problem::NotFound("Ids of clients are KIND:VALUE.".to_owned()))?;
        json!({ "kind": kind, "value": value })
    };
    value["override"] = body.value;
    let op = if is_new { Op::Create } else { Op::Put };
    publish_one(call, op, Kind::Client, id.into_inner(), Some(value), &body.sha256, "/override").await
}

/// A client that has nothing else goes.
async fn delete_override(call: Call, id: Path<String>) -> Result<HttpResponse, Problem> {
    let (state, _, _, query) = &call;
    let published = state.publisher.published();
    let (op, value) = match find(&published, &query.domain, &id) {
        Ok((_, Client { exception: None, .. })) => {
            return Err(Problem::NotFound(format!("The client `{id}` has no override.")));
        }
        Ok((_, Client { tier: None, .. })) => (Op::Delete, None),
        _ => (Op::Patch, Some(json!({ "override": null }))),
    };
    publish_one(call, op, Kind::Client, id.into_inner(), value, "", "").await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfImport {
    #[serde(default = "default_domain")]
    domain: String,
    /// Of clients that the file does not have.
    #[serde(default)]
    missing: Missing,
    /// Only say what it would do.
    #[serde(default)]
    dry_run: bool,
    message: Option<String>,
}

async fn import(
    state: Data<State>,
    request: HttpRequest,
    signed_in: SignedIn,
    query: Query<OfImport>,
    body: Csv,
) -> Result<HttpResponse, Problem> {
    let OfImport { domain, missing, dry_run, message } = query.into_inner();
    let message = message.unwrap_or_else(|| "import clients".to_owned());
    let if_match = request.headers().get(IF_MATCH).map(|tag| String::from_utf8_lossy(tag.as_bytes()).into_owned());
    let present = state.publisher.published();
    let base_version = present.version.version;
    let words = Words::new(&message, base_version)?;
    let of = (request.method(), request.uri(), &if_match, &body.sha256);
    let author = author(&request, signed_in, sha256(format!("{of:?}")));
    // Made once to be told, and again on the policy that is in force when its turn comes.
    let make = move |present: &Published| -> Result<Edited, Problem> {
        if if_match.as_ref().is_some_and(|tag| *tag != present.policy_etag()) {
            return Err(Problem::Conflict(vec![present.as_conflict()]));
        }
        let clients::Imported { policy, report } =
            clients::import(&present.policy, &domain, &body.text, missing, Timestamp::now())?;
        let changed = changed(&present.policy, &policy);
        Ok(Edited { policy, touched: changed.touched, removed: changed.removed, report: Some(report) })
    };
    let (make, first) = spawn_blocking(move || {
        let first = make(&present).map(|edited| edited.report.unwrap_or_default());
        (make, first)
    })
    .await
    .map_err(|error| Problem::Internal(error.to_string()))?;
    let report: Report = first?;
    if dry_run || report.wrong == 0 && report.changes() == 0 {
        return Ok(HttpResponse::Ok().json(json!({ "version": base_version, "report": report })));
    }
    let edit = move |present: &Published| {
        let edited = make(present)?;
        let wrong = edited.report.as_ref().map(|report| report.wrong_lines(WRONG_LINES_TOLD)).unwrap_or_default();
        if wrong.is_empty() { Ok(edited) } else { Err(Problem::Invalid(wrong)) }
    };
    let refused = |problems: &tidegate::Problems, _: &_| Problem::field("", problems.to_string());
    published(rt::spawn(async move { state.publisher.publish_edited(author, words, edit, refused).await }).await)
}

async fn export(state: Data<State>, query: Query<InDomain>) -> Result<HttpResponse, Problem> {
    let published = state.publisher.published();
    let text = clients::export(query.of(&published)?).map_err(Problem::Internal)?;
    Ok(HttpResponse::Ok()
        .content_type("text/csv; charset=utf-8")
        .insert_header((CONTENT_DISPOSITION, "attachment; filename=\"clients.csv\""))
        .body(text))
}

async fn bulk(
    state: Data<State>,
    request: HttpRequest,
    signed_in: SignedIn,
    body: Body<Bulk>,
) -> Result<HttpResponse, Problem> {
    let author = author(&request, signed_in, body.sha256);
    let words = Words::new(&body.value.message, state.publisher.published().version.version)?;
    let edit = move |present: &Published| body.value.edit(present);
    let refused = |problems: &tidegate::Problems, _: &_| clients::bulk_refused(problems);
    published(rt::spawn(async move { state.publisher.publish_edited(author, words, edit, refused).await }).await)
}
