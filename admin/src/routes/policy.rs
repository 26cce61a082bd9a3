//! The policy: its objects, its versions, and the one call that changes it.

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{ContentType, ETAG},
    rt,
    web::{self, Data, Path, Query},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate::{
    DEFAULT_DOMAIN,
    policy::{Domain, Rule, Tier},
};

use super::resource;
use crate::{
    access::{SignedIn, address},
    body::Body,
    changes::ChangeList,
    objects::{Kind, ObjectKey},
    problem::Problem,
    published::{Published, Revised},
    publisher::Author,
    server::State,
};

/// Versions on a page unless told otherwise, and at most.
const PAGE: u32 = 50;
const PAGE_MAX: u32 = 500;

pub(super) fn routes(config: &mut web::ServiceConfig) {
    config
        .service(resource("/policy", "GET").get(policy))
        .service(resource("/policy/versions", "GET").get(versions))
        .service(resource("/policy/changes", "POST").post(publish))
        .service(resource("/tiers", "GET").get(tiers))
        .service(resource("/tiers/{id}", "GET").get(tier))
        .service(resource("/rules", "GET").get(rules))
        .service(resource("/rules/{id}", "GET").get(rule));
}

#[derive(Deserialize)]
struct InDomain {
    #[serde(default = "default_domain")]
    domain: String,
}

fn default_domain() -> String {
    DEFAULT_DOMAIN.to_owned()
}

impl InDomain {
    fn of<'p>(&self, published: &'p Published) -> Result<&'p Domain, Problem> {
        let found = published.policy.domains.get(&self.domain);
        found.ok_or_else(|| Problem::NotFound(format!("There is no domain `{}`.", self.domain)))
    }
}

/// An object as it is now.
#[derive(Serialize)]
struct Item<'p, T> {
    etag: String,
    #[serde(flatten)]
    revised: Option<&'p Revised>,
    #[serde(flatten)]
    usage: Option<Usage<'p>>,
    value: &'p T,
}

/// Who uses a tier.
#[derive(Serialize)]
struct Usage<'p> {
    /// Kinds of identity whose default it is.
    default_of: Vec<&'p str>,
    /// Rules that are only for some tiers, this one among them.
    rules: Vec<&'p str>,
    /// How many configured clients have it.
    clients: usize,
}

impl<'p, T: Serialize> Item<'p, T> {
    fn new(published: &'p Published, key: &ObjectKey, usage: Option<Usage<'p>>, value: &'p T) -> Self {
        Self { etag: published.etag(key), revised: published.revisions.get(key), usage, value }
    }
}

fn tier_item<'p>(published: &'p Published, name: &str, domain: &'p Domain, tier: &'p Tier) -> Item<'p, Tier> {
    let names = |tiers: &Vec<String>| tiers.contains(&tier.id);
    let usage = Usage {
        default_of: domain.defaults.iter().filter(|(_, id)| **id == tier.id).map(|(kind, _)| kind.as_str()).collect(),
        rules: domain
            .rules
            .iter()
            .filter(|rule| rule.tiers.as_ref().is_some_and(names))
            .map(|rule| rule.id.as_str())
            .collect(),
        clients: domain.clients.iter().filter(|client| client.tier.as_ref() == Some(&tier.id)).count(),
    };
    let key = ObjectKey { kind: Kind::Tier, domain: name.to_owned(), id: tier.id.clone() };
    Item::new(published, &key, Some(usage), tier)
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

fn single<T: Serialize>(item: &Item<'_, T>) -> HttpResponse {
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

async fn policy(state: Data<State>) -> Result<HttpResponse, Problem> {
    let published = state.publisher.published();
    let mut body = serde_json::to_value(&published.version).map_err(|error| Problem::Internal(error.to_string()))?;
    body["document"] = json!(published.policy);
    let etag = format!("\"policy:{}\"", published.version.version);
    Ok(HttpResponse::Ok().insert_header((ETAG, etag)).json(body))
}

#[derive(Deserialize)]
struct PageOf {
    limit: Option<u32>,
    /// The version that the page before ended with.
    cursor: Option<u64>,
}

async fn versions(state: Data<State>, page: Query<PageOf>) -> Result<HttpResponse, Problem> {
    let limit = page.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let items = state.store.versions(page.cursor.unwrap_or(u64::MAX), limit).await?;
    let next: Option<Value> =
        items.last().filter(|last| items.len() == limit as usize && last.version > 1).map(|last| json!(last.version));
    Ok(HttpResponse::Ok().json(json!({ "items": items, "next": next })))
}

async fn publish(
    state: Data<State>,
    request: HttpRequest,
    signed_in: SignedIn,
    body: Body<ChangeList>,
) -> Result<HttpResponse, Problem> {
    let idempotency_key = request.headers().get("idempotency-key").map(|key| {
        // What is not text cannot be a key; it is refused as an empty one.
        key.to_str().unwrap_or_default().to_owned()
    });
    let author = Author {
        name: signed_in.session.name,
        address: address(&request),
        idempotency_key,
        request_sha256: body.sha256,
    };
    // A task of its own: a client that goes away must not stop it half way.
    let publish = rt::spawn(async move { state.publisher.publish(body.value, author).await });
    let answer = publish.await.map_err(|error| Problem::Internal(error.to_string()))??;
    Ok(HttpResponse::Created().content_type(ContentType::json()).body(answer))
}
