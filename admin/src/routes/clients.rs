//! Clients, of which there may be a hundred thousand: pages of them, and one.

use actix_web::{
    HttpResponse,
    web::{Data, Path, Query},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate::policy::Client;

use super::objects::{InDomain, Item, default_domain, domain_of, single};
use crate::{
    objects::{Kind, ObjectKey, client_id, client_order, client_place},
    problem::Problem,
    server::State,
};

/// Clients on a page unless told otherwise, and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 500;

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

impl OfClients {
    fn matches(&self, client: &Client) -> bool {
        self.kind.as_ref().is_none_or(|kind| client.kind == *kind)
            && client.value.starts_with(&self.prefix)
            && self.tier.as_ref().is_none_or(|tier| client.tier.as_ref() == Some(tier))
            && self.has_override.is_none_or(|wanted| client.exception.is_some() == wanted)
    }
}

/// In the order of kinds and values.
pub(super) async fn list(state: Data<State>, query: Query<OfClients>) -> Result<HttpResponse, Problem> {
    let published = state.publisher.published();
    let clients = &domain_of(&published, &query.domain)?.clients;
    let limit = query.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let after = query.cursor.as_deref().and_then(|cursor| cursor.split_once(':'));
    let start = after.map_or(0, |after| clients.partition_point(|client| client_order(client) <= after));
    let matching = |clients: &[Client]| clients.iter().filter(|client| query.matches(client)).count();
    let mut rest = clients[start..].iter().filter(|client| query.matches(client));
    let page: Vec<&Client> = rest.by_ref().take(limit).collect();
    let is_last = rest.next().is_none();
    let items = page.iter().map(|client| {
        let key = ObjectKey { kind: Kind::Client, domain: query.domain.clone(), id: client_id(client) };
        let mut item = json!(Item::new(&published, &key, None, client));
        item["id"] = json!(key.id);
        item
    });
    let items: Vec<Value> = items.collect();
    let next = page.last().filter(|_| !is_last).map(|client| client_id(client));
    let body = json!({
        "policy_version": published.version.version, "domain": query.domain, "matching": matching(clients),
        "items": items, "next": next,
    });
    Ok(HttpResponse::Ok().json(body))
}

pub(super) async fn one(state: Data<State>, id: Path<String>, query: Query<InDomain>) -> Result<HttpResponse, Problem> {
    let published = state.publisher.published();
    let domain = query.of(&published)?;
    let place = client_place(domain, &id);
    let place = place.ok_or_else(|| Problem::NotFound(format!("There is no client `{id}`; ids are KIND:VALUE.")))?;
    let key = ObjectKey { kind: Kind::Client, domain: query.domain.clone(), id: id.into_inner() };
    Ok(single(&Item::new(&published, &key, None, &domain.clients[place])))
}
