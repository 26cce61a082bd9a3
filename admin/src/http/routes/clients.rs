//! Clients, of which there may be a hundred thousand: pages of them, one, its override, and many at once.

use std::collections::BTreeSet;

use actix_web::{
    HttpRequest, HttpResponse, Responder,
    http::{StatusCode, header::CONTENT_DISPOSITION},
    rt,
    web::{Data, Json, Path},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate::policy::{Client, Override};

use crate::{
    base::sha256::sha256,
    capacity::work_queue::Heavy,
    domain::{
        change_impact::Effects,
        change_list::{MESSAGE_BYTES_MAX, MESSAGE_PATTERN, Op, default_domain},
        client_import::{self, Bulk, Filter, Missing},
        diff::changed,
        edited_policy::Edited,
        error::Problem,
        import_report::Report,
        objects::{Kind, client_id, client_order, client_place},
        overrides,
        published::Published,
        roles::{Editor, Operator, Role, Viewer},
    },
    http::{
        extract::{
            body::{Body, Csv},
            paging::{List, Page, Sort},
            query::Query,
        },
        guard::By,
        openapi::{Api, IfMatch, IfNoneMatch, Tagged},
        problem::Code,
        routes::{
            bucket_states,
            objects::{Call, InDomain, Item, Listed, OfPolicy, Unread, changes, domain_of, or_removed, publish_one},
            policy::{Caller, Told, told},
        },
        state::State,
    },
    publish::publisher::{self, Words},
};

/// Where each client has to be looked at, so many are counted: to people, more are just many.
const COUNTED_MAX: usize = 10_000;
/// So many wrong lines are told where nothing is imported because of them.
const WRONG_LINES_TOLD: usize = 100;

pub(super) fn calls(api: &mut Api) {
    api.about("Clients", "Identities that were given a tier or an override.");
    let id = "`KIND:VALUE`, percent-encoded: `ip:10.0.0.0%2F8`.";
    calls_for_many(api, id);
    let client = json!({ "kind": "user", "value": "bob", "tier": "pro" });
    changes::<Client>(api, Kind::Client, id, client, json!({ "label": "Bob's shop" }));
    calls_for_overrides(api, id);
}

/// Lists, and many clients at once: before single ones, whose paths these would be too.
fn calls_for_many(api: &mut Api, id: &str) {
    api.get("/clients", list).says("Clients of a domain", "By kind and value.").refuses(&[Code::NotFound]);
    api.post("/clients/import", import)
        .says(
            "Import clients from a CSV file",
            "All of it becomes one version, or nothing does. The first line names the columns, as `GET /clients/export` has \
             them. `errors[].pointer` is `/LINE/COLUMN`. With `If-Match` and the policy's entity tag, nothing is imported into \
             another policy; `missing=remove` needs it.",
        )
        .example(json!("kind,value,tier,label\nuser,bob,pro,Bob's shop\n"))
        .answers_json::<Imported>(StatusCode::OK, "What it would do, or that there is nothing to do.")
        .answers_json::<publisher::Answer>(StatusCode::CREATED, "Published.")
        .refuses(&[Code::NotFound, Code::Conflict, Code::PreconditionRequired]);
    api.get("/clients/export", export)
        .says("The clients as a CSV file", "")
        .answers(StatusCode::OK, "text/csv", "A line for each client.")
        .refuses(&[Code::NotFound]);
    api.post("/clients/bulk", bulk)
        .says(
            "Change or remove all clients that match",
            "`expected` is how many match: where others do by now, nothing is done. With `If-Match` and the policy's entity tag, \
             nothing is done on another policy either.",
        )
        .answers_json::<BulkTried>(StatusCode::OK, "What it would loosen, and what would start to refuse.")
        .answers_json::<publisher::Answer>(StatusCode::CREATED, "Published.")
        .example(json!({
            "matching": { "tier": "free" }, "patch": { "tier": "pro" }, "expected": 3, "message": "everybody gets more",
        }))
        .refuses(&[Code::Conflict]);
    bucket_states::calls(api);
    api.get("/clients/{id}", one).says("A client", "").with("id", id);
}

fn calls_for_overrides(api: &mut Api, id: &str) {
    api.get("/clients/{id}/override", get_override).says("The override of a client", "").with("id", id);
    api.put("/clients/{id}/override", put_override)
        .says(
            "Give a client an override",
            "It stays as it is otherwise; with `If-None-Match: *` it is made. The override ends after 7 days unless `until` says \
             otherwise, and says why. An operator's ends within 24 hours, and takes the place of none that lasts longer. While a \
             rollout is open it reaches every node all the same.",
        )
        .with("id", id)
        .example(json!({ "blocked": true, "reason": "abuse" }))
        .refuses(&[Code::PreconditionRequired]);
    api.delete("/clients/{id}/override", delete_override)
        .says(
            "Take a client's override away",
            "A client that has nothing else goes. An operator may take away what ends within 24 hours.",
        )
        .with("id", id)
        .refuses(&[Code::PreconditionRequired]);
}

#[derive(Deserialize, JsonSchema)]
struct OfClients {
    /// Only of this kind.
    kind: Option<String>,
    /// Only those whose value begins like this.
    #[serde(default)]
    prefix: String,
    /// Only those with this text in their value or label; A to Z and a to z are the same.
    #[serde(default)]
    q: String,
    /// Only those that were given this tier.
    tier: Option<String>,
    /// Only those with this tag.
    tag: Option<String>,
    /// Only those with an override, or without one.
    has_override: Option<bool>,
    /// Only those that were denied within the last minute, as far as they are among the 256 keys that are denied most: estimated
    /// from one decision in 16. A client that stands for many is not among them.
    #[serde(default)]
    denied_now: bool,
    /// By kind and value, or `-name`: the other way round. A cursor holds whatever is added or removed meanwhile.
    sort: Option<Sort>,
}

/// In the order of kinds and values. There may be very many, so they are neither copied nor sorted.
async fn list(
    _: By<Viewer>,
    state: Data<State>,
    domain: Query<InDomain>,
    page: Query<Page>,
    query: Query<OfClients>,
) -> Listed<Client> {
    let published = state.publisher.published();
    let clients = &domain.of(&published)?.clients;
    let OfClients { kind, prefix, q, tier, tag, has_override, denied_now, sort } = query.0;
    let ids = denied_now.then(|| denied_ids(&state, &domain.domain, clients));
    let filter = Filter { kind, prefix, q, tier, tag, has_override, ids };
    let matches = |client: &&Client| filter.matches(client);
    let after = page.after(|cursor| {
        let (kind, value) = cursor.split_once(':')?;
        Some((kind.to_owned(), value.to_owned()))
    })?;
    let after = after.as_ref().map(|(kind, value)| (kind.as_str(), value.as_str()));
    let stretches = filter.stretches(clients);
    let take = |rest: &mut dyn Iterator<Item = &Client>| {
        let items: Vec<_> = rest.take(page.limit()).map(|client| item(&published, &domain.domain, client)).collect();
        let next = items.last().map(|last| last.id.clone()).filter(|_| rest.next().is_some());
        (items, next)
    };
    let (items, next) = if sort == Some(Sort::NameBackwards) {
        let before = |part: &&'_ [Client]| {
            after.map_or(part.len(), |after| part.partition_point(|client| client_order(client) < after))
        };
        take(&mut stretches.iter().rev().flat_map(|part| part[..before(part)].iter().rev()).filter(matches))
    } else {
        let start =
            |part: &&'_ [Client]| after.map_or(0, |after| part.partition_point(|client| client_order(client) <= after));
        take(&mut stretches.iter().flat_map(|part| part[start(part)..].iter()).filter(matches))
    };
    let matching = if filter.is_by_name() {
        stretches.iter().map(|part| part.len()).sum()
    } else if after.is_none() && next.is_none() {
        items.len()
    } else {
        stretches.into_iter().flatten().filter(matches).take(COUNTED_MAX + 1).count()
    };
    let about = OfPolicy::new(&published, Some(&domain.domain), matching);
    Ok(Json(List { about, items, next }))
}

/// Returns the ids of the clients that were denied within the last minute. An address is one client in every spelling.
fn denied_ids(state: &State, domain: &str, clients: &[Client]) -> BTreeSet<String> {
    let denied = state.figures.denied_in(domain).into_iter().filter(|(_, denied)| denied.is_now);
    let mut ids: BTreeSet<String> = denied.map(|((kind, value), _)| format!("{kind}:{value}")).collect();
    let is_denied = |client: &&Client| {
        client_import::address(client).is_some_and(|address| ids.contains(&format!("{}:{address}", client.kind)))
    };
    let by_address: Vec<String> = clients.iter().filter(is_denied).map(client_id).collect();
    ids.extend(by_address);
    ids
}

fn item(published: &Published, domain: &str, client: &Client) -> Item<Client> {
    Item::new(published, Kind::Client, domain, client_id(client), client)
}

/// A client of the policy in force.
fn find<'p>(published: &'p Published, domain: &str, id: &str) -> Result<&'p Client, Problem> {
    let within = domain_of(published, domain)?;
    let place = client_place(&within.clients, id);
    let place = place.ok_or_else(|| Problem::NotFound(format!("There is no client `{id}`; ids are KIND:VALUE.")))?;
    Ok(&within.clients[place])
}

async fn one(
    _: By<Viewer>,
    state: Data<State>,
    id: Path<String>,
    query: Query<InDomain>,
) -> Result<Tagged<Item<Client>>, Problem> {
    let published = state.publisher.published();
    let found = find(&published, &query.domain, &id).map(|client| item(&published, &query.domain, client).tagged());
    or_removed(&state, (Kind::Client, &query.domain, &id), found).await
}

async fn get_override(
    _: By<Viewer>,
    state: Data<State>,
    id: Path<String>,
    query: Query<InDomain>,
) -> Result<Tagged<Item<Override>>, Problem> {
    let published = state.publisher.published();
    let made = find(&published, &query.domain, &id)?.exception.as_ref();
    let made = made.ok_or_else(|| Problem::NotFound(format!("The client `{id}` has no override.")))?;
    Ok(Item::new(&published, Kind::Client, &query.domain, id.into_inner(), made).tagged())
}

/// The client stays as it is otherwise; with `If-None-Match: *` it is made.
async fn put_override(
    by: By<Operator>,
    call: Call,
    tag: IfMatch,
    new: IfNoneMatch,
    id: Path<String>,
    body: Body<Unread<Override>>,
) -> Result<Told, Problem> {
    let (state, _, _, query) = &call;
    state.publisher.catch_up().await?;
    let published = state.publisher.published();
    let mut given = body.value.0;
    if by.role() < Some(Role::Editor) {
        let now = Timestamp::now();
        overrides::shorten(&mut given, now)?;
    }
    let mut value = if let Ok(client) = find(&published, &query.domain, &id) {
        json!(client)
    } else {
        let parts = id.split_once(':');
        let (kind, value) = parts.ok_or_else(|| Problem::NotFound("Ids of clients are KIND:VALUE.".to_owned()))?;
        json!({ "kind": kind, "value": value })
    };
    value["override"] = given;
    let op = if new.0 { Op::Create } else { Op::Put };
    publish_one(call, (op, Kind::Client, id.into_inner()), tag.0, Some(value), &body.sha256, "/override").await
}

/// A client that has nothing else goes.
async fn delete_override(_: By<Operator>, call: Call, tag: IfMatch, id: Path<String>) -> Result<Told, Problem> {
    let (state, _, _, query) = &call;
    state.publisher.catch_up().await?;
    let published = state.publisher.published();
    let found = find(&published, &query.domain, &id);
    let (op, value) = match found {
        Ok(Client { tier: None, exception: Some(_), .. }) => (Op::Delete, None),
        _ => (Op::Patch, Some(json!({ "override": null }))),
    };
    publish_one(call, (op, Kind::Client, id.into_inner()), tag.0, value, "", "").await
}

#[derive(Deserialize, JsonSchema)]
struct OfImport {
    /// The domain that the clients are in.
    #[serde(default = "default_domain")]
    domain: String,
    /// What becomes of clients that the file does not have.
    #[serde(default)]
    missing: Missing,
    /// Only say what it would do.
    #[serde(default)]
    dry_run: bool,
    /// Message of the version.
    #[schemars(length(min = 1, max = MESSAGE_BYTES_MAX), regex(pattern = MESSAGE_PATTERN))]
    message: Option<String>,
}

/// An import that published nothing.
#[derive(Serialize, JsonSchema)]
struct Imported {
    /// That of the policy in force.
    version: u64,
    report: Report,
    #[serde(flatten)]
    effects: Effects,
}

async fn import(
    by: By<Editor>,
    state: Data<State>,
    request: HttpRequest,
    caller: Caller,
    if_match: IfMatch,
    query: Query<OfImport>,
    body: Csv,
) -> Result<HttpResponse, Problem> {
    let OfImport { domain, missing, dry_run, message } = query.0;
    let body = body.receive(&state, &by.behind).await?;
    // A tag of the other server is not newer than what it is held to.
    state.publisher.catch_up().await?;
    let message = message.unwrap_or_else(|| "import clients".to_owned());
    let present = state.publisher.published();
    let base_version = present.version.version;
    let words = Words::of_query(&message, base_version)?.doing("clients.import");
    let of = (request.uri(), &if_match.0, &body.sha256);
    let author = caller.author(sha256(format!("{of:?}")));
    if let Some(answer) = state.publisher.answered(&author).await? {
        return Ok(Told(answer).respond_to(&request));
    }
    let is_blind = missing == Missing::Remove && if_match.0.is_none();
    // Made once to be told, and again on the policy that is in force when its turn comes.
    let make = move |present: &Published| -> Result<Edited, Problem> {
        present.is_still(if_match.0.as_deref())?;
        let client_import::Imported { policy, report } =
            client_import::import(&present.policy, &domain, &body.read()?, missing, Timestamp::now())?;
        let changed = changed(&present.policy, &policy);
        Ok(Edited { policy, touched: changed.touched, removed: changed.removed, report: Some(report) })
    };
    let work = move || {
        let first = make(&present).map(|Edited { policy, report, .. }| {
            let effects = if dry_run { Effects::between(&present, &policy) } else { Effects::default() };
            Imported { version: base_version, report: report.unwrap_or_default(), effects }
        });
        (make, first)
    };
    let (make, first) = state.heavy.of(&by.behind).work(work).await?;
    let first = first?;
    if dry_run || first.report.wrong == 0 && first.report.changes() == 0 {
        return Ok(HttpResponse::Ok().json(first));
    }
    if is_blind {
        // It would take out who was added since the file was written.
        return Err(Problem::PreconditionRequired(vec!["policy".to_owned()]));
    }
    let edit = move |present: &Published| {
        let edited = make(present)?;
        let Some(report) = &edited.report else { return Ok(edited) };
        match report.wrong_lines(WRONG_LINES_TOLD) {
            wrong if !wrong.is_empty() => Err(Problem::Invalid(wrong)),
            _ if report.changes() == 0 => {
                Err(Problem::field("", "everything is like this already; nothing to publish"))
            }
            _ => Ok(edited),
        }
    };
    let refused = |problems: &tidegate::Problems, _: &_| Problem::field("", problems.to_string());
    let publish = rt::spawn(async move { state.publisher.publish_edited(author, words, edit, refused).await });
    Ok(told(publish.await)?.respond_to(&request))
}

async fn export(
    by: By<Viewer>,
    state: Data<State>,
    heavy: Heavy,
    query: Query<InDomain>,
) -> Result<HttpResponse, Problem> {
    let published = state.publisher.published();
    query.of(&published)?;
    let text =
        heavy.work(move || published.policy.domains.get(&query.domain).map_or(Ok(Vec::new()), client_import::export));
    let text = text.await?.map_err(Problem::Internal)?;
    state.store.audit(by.did("clients.export", "", "done")).await?;
    Ok(HttpResponse::Ok()
        .content_type("text/csv; charset=utf-8")
        .insert_header((CONTENT_DISPOSITION, "attachment; filename=\"clients.csv\""))
        .body(text))
}

#[derive(Deserialize, JsonSchema)]
struct OfBulk {
    /// Only say what it would loosen, and what would start to refuse.
    #[serde(default)]
    dry_run: bool,
}

/// A change of many clients that was only tried.
#[derive(Serialize, JsonSchema)]
struct BulkTried {
    /// That of the policy in force.
    version: u64,
    #[serde(flatten)]
    effects: Effects,
}

async fn bulk(
    by: By<Editor>,
    state: Data<State>,
    request: HttpRequest,
    caller: Caller,
    if_match: IfMatch,
    query: Query<OfBulk>,
    body: Body<Bulk>,
) -> Result<HttpResponse, Problem> {
    let author = caller.author(sha256(format!("{:?}", (&if_match.0, body.sha256))));
    let version = state.publisher.published().version.version;
    let words = Words::new(&body.value.message, version)?.doing("clients.bulk");
    let edit = move |present: &Published| {
        present.is_still(if_match.0.as_deref())?;
        body.value.edit(present)
    };
    let refused = |problems: &tidegate::Problems, _: &_| client_import::bulk_refused(problems);
    if query.dry_run {
        let place = state.heavy.of(&by.behind).place().await?;
        let (place, tried) = place.whole(async move { state.publisher.try_edited(words, edit, refused).await }).await?;
        let (present, after) = tried?;
        let tried = move || BulkTried { version: present.version.version, effects: Effects::between(&present, &after) };
        return Ok(HttpResponse::Ok().json(place.work(tried).await?));
    }
    let publish = rt::spawn(async move { state.publisher.publish_edited(author, words, edit, refused).await });
    Ok(told(publish.await)?.respond_to(&request))
}
