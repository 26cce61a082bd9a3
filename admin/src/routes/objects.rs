//! The objects of the policy, one by one: lists, and changes of a single one, which are change lists of one.

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{ETAG, HeaderValue, IF_MATCH, IF_NONE_MATCH},
    web::{self, Data, Path, Query},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate::policy::{Domain, Rule, Tier};

use super::{clients, policy::publish_list, resource};
use crate::{
    access::SignedIn,
    body::Body,
    changes::{ChangeList, Op, default_domain},
    objects::{self, Kind, ObjectKey, Usage},
    problem::{FieldError, Problem},
    published::{Published, Revised},
    server::State,
    store::sha256,
};

pub(super) fn routes(config: &mut web::ServiceConfig) {
    let of = |kind: Kind| {
        let allowed = if kind == Kind::Domain { "GET" } else { "GET, POST" };
        let all = resource(&format!("/{}s", kind.name()), allowed);
        let allowed = if kind == Kind::Domain { "GET, PUT, PATCH" } else { "GET, PUT, PATCH, DELETE" };
        let one = resource(&format!("/{}s/{{id}}", kind.name()), allowed)
            .put(move |call, id, body| put(kind, call, id, body))
            .patch(move |call, id, body| patch(kind, call, id, body));
        if kind == Kind::Domain {
            // It has no name of its own, so `PUT` makes it; and it goes by a list, which says of when all that is in it is.
            return (all, one);
        }
        (all.post(move |call, body| create(kind, call, body)), one.delete(move |call, id| delete(kind, call, id)))
    };
    let ((all_tiers, one_tier), (all_rules, one_rule)) = (of(Kind::Tier), of(Kind::Rule));
    let ((all_clients, one_client), (all_domains, one_domain)) = (of(Kind::Client), of(Kind::Domain));
    config
        .configure(clients::routes)
        .service(all_tiers.get(tiers))
        .service(one_tier.get(tier))
        .service(all_rules.get(rules))
        .service(one_rule.get(rule))
        .service(all_clients.get(clients::list))
        .service(one_client.get(clients::one))
        .service(all_domains.get(domains))
        .service(one_domain.get(domain));
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfChange {
    #[serde(default = "default_domain")]
    pub(super) domain: String,
    /// Of the version; what is done to which object unless given.
    message: Option<String>,
}

/// Who changes something, and what of the request is not the object.
pub(super) type Call = (Data<State>, HttpRequest, SignedIn, Query<OfChange>);

async fn create(kind: Kind, call: Call, body: Body<Value>) -> Result<HttpResponse, Problem> {
    let id = objects::id_of(kind, &body.value).ok_or_else(|| Problem::field("", kind.id_hint()))?;
    publish_one(call, Op::Create, kind, id, Some(body.value), &body.sha256, "").await
}

/// With `If-None-Match: *` the object is to be new.
async fn put(kind: Kind, call: Call, id: Path<String>, body: Body<Value>) -> Result<HttpResponse, Problem> {
    let is_new = call.1.headers().get(IF_NONE_MATCH).is_some_and(|tag| tag == "*");
    let op = if is_new { Op::Create } else { Op::Put };
    publish_one(call, op, kind, id.into_inner(), Some(body.value), &body.sha256, "").await
}

/// A JSON merge patch.
async fn patch(kind: Kind, call: Call, id: Path<String>, body: Body<Value>) -> Result<HttpResponse, Problem> {
    publish_one(call, Op::Patch, kind, id.into_inner(), Some(body.value), &body.sha256, "").await
}

async fn delete(kind: Kind, call: Call, id: Path<String>) -> Result<HttpResponse, Problem> {
    publish_one(call, Op::Delete, kind, id.into_inner(), None, "", "").await
}

/// A list of one change; the body is its value, or what stands there at `within`.
pub(super) async fn publish_one(
    (state, request, signed_in, query): Call,
    op: Op,
    kind: Kind,
    id: String,
    value: Option<Value>,
    body_sha256: &str,
    within: &str,
) -> Result<HttpResponse, Problem> {
    let OfChange { domain, message } = query.into_inner();
    let domain = if kind == Kind::Domain { id.clone() } else { domain };
    let header = |name| {
        let value: Option<&HeaderValue> = request.headers().get(name);
        value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let etag = header(IF_MATCH);
    // The same body to another path, or on top of another state, is another request.
    let of = (request.method(), request.uri(), &etag, header(IF_NONE_MATCH), body_sha256);
    let sha256 = sha256(format!("{of:?}"));
    let key = ObjectKey { kind, domain, id };
    let list = ChangeList::of_one(op, key, value, etag, &state.publisher.published(), message);
    publish_list(state, &request, signed_in, sha256, list).await.map_err(|problem| in_body(problem, within))
}

/// Fields as they stand in the body, which is within the value of the only change; what else is wrong, for the whole.
fn in_body(problem: Problem, within: &str) -> Problem {
    let stands = |field: FieldError| {
        let below = field.pointer.strip_prefix("/changes/0/value").and_then(|below| below.strip_prefix(within));
        let pointer = below.unwrap_or_default().to_owned();
        FieldError { pointer, ..field }
    };
    match problem {
        Problem::Invalid(fields) => Problem::Invalid(fields.into_iter().map(stands).collect()),
        other => other,
    }
}

#[derive(Deserialize)]
pub(super) struct InDomain {
    #[serde(default = "default_domain")]
    pub(super) domain: String,
}

impl InDomain {
    pub(super) fn of<'p>(&self, published: &'p Published) -> Result<&'p Domain, Problem> {
        domain_of(published, &self.domain)
    }
}

pub(super) fn domain_of<'p>(published: &'p Published, name: &str) -> Result<&'p Domain, Problem> {
    published.policy.domains.get(name).ok_or_else(|| Problem::NotFound(format!("There is no domain `{name}`.")))
}

/// An object as it is now.
#[derive(Serialize)]
pub(super) struct Item<'p, T> {
    etag: String,
    #[serde(flatten)]
    revised: Option<&'p Revised>,
    #[serde(flatten)]
    usage: Option<Usage>,
    value: &'p T,
}

impl<'p, T: Serialize> Item<'p, T> {
    pub(super) fn new(published: &'p Published, key: &ObjectKey, usage: Option<Usage>, value: &'p T) -> Self {
        Self { etag: published.etag(key), revised: published.revisions.get(key), usage, value }
    }
}

fn tier_item<'p>(published: &'p Published, name: &str, domain: &'p Domain, tier: &'p Tier) -> Item<'p, Tier> {
    let key = ObjectKey { kind: Kind::Tier, domain: name.to_owned(), id: tier.id.clone() };
    Item::new(published, &key, Some(Usage::of(domain, &tier.id)), tier)
}

fn rule_item<'p>(published: &'p Published, name: &str, rule: &'p Rule) -> Item<'p, Rule> {
    let key = ObjectKey { kind: Kind::Rule, domain: name.to_owned(), id: rule.id.clone() };
    Item::new(published, &key, None, rule)
}

fn list<T: Serialize>(published: &Published, name: &str, items: &[Item<'_, T>]) -> HttpResponse {
    HttpResponse::Ok().json(json!({
        "policy_version": published.version.version,
        "domain": name,
        "domains": published.policy.domains.keys().collect::<Vec<_>>(),
        "items": items,
    }))
}

pub(super) fn single<T: Serialize>(item: &Item<'_, T>) -> HttpResponse {
    HttpResponse::Ok().insert_header((ETAG, item.etag.as_str())).json(item)
}

async fn tiers(state: Data<State>, query: Query<InDomain>) -> Result<HttpResponse, Problem> {
    let published = state.publisher.published();
    let domain = query.of(&published)?;
    let items: Vec<_> = domain.tiers.iter().map(|tier| tier_item(&published, &query.domain, domain, tier)).collect();
    Ok(list(&published, &query.domain, &items))
}

async fn tier(state: Data<State>, id: Path<String>, query: Query<InDomain>) -> Result<HttpResponse, Problem> {
    let published = state.publisher.published();
    let domain = query.of(&published)?;
    let tier = domain.tiers.iter().find(|tier| tier.id == *id);
    let tier = tier.ok_or_else(|| Problem::NotFound(format!("There is no tier `{id}`.")))?;
    Ok(single(&tier_item(&published, &query.domain, domain, tier)))
}

async fn rules(state: Data<State>, query: Query<InDomain>) -> Result<HttpResponse, Problem> {
    let published = state.publisher.published();
    let rules = query.of(&published)?.rules_by_closeness();
    let items: Vec<_> = rules.into_iter().map(|rule| rule_item(&published, &query.domain, rule)).collect();
    Ok(list(&published, &query.domain, &items))
}

async fn rule(state: Data<State>, id: Path<String>, query: Query<InDomain>) -> Result<HttpResponse, Problem> {
    let published = state.publisher.published();
    let rule = query.of(&published)?.rules.iter().find(|rule| rule.id == *id);
    let rule = rule.ok_or_else(|| Problem::NotFound(format!("There is no rule `{id}`.")))?;
    Ok(single(&rule_item(&published, &query.domain, rule)))
}

/// The settings of a domain, as an object.
fn domain_body(published: &Published, name: &str) -> Option<(String, Value)> {
    let key = ObjectKey { kind: Kind::Domain, domain: name.to_owned(), id: name.to_owned() };
    let (_, settings) = objects::find(&published.policy, &key)?;
    let mut body = json!(Item::new(published, &key, None, &settings));
    body["id"] = json!(name);
    Some((published.etag(&key), body))
}

async fn domains(state: Data<State>) -> HttpResponse {
    let published = state.publisher.published();
    let items = published.policy.domains.keys().filter_map(|name| Some(domain_body(&published, name)?.1));
    let items: Vec<Value> = items.collect();
    HttpResponse::Ok().json(json!({ "policy_version": published.version.version, "items": items }))
}

async fn domain(state: Data<State>, id: Path<String>) -> Result<HttpResponse, Problem> {
    let (etag, body) = domain_body(&state.publisher.published(), &id)
        .ok_or_else(|| Problem::NotFound(format!("There is no domain `{id}`.")))?;
    Ok(HttpResponse::Ok().insert_header((ETAG, etag)).json(body))
}
