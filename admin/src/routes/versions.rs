//! Published versions: their list, what differs between two, and the way back.

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::IF_MATCH,
    rt,
    web::{self, Data, Path, Query},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate::policy::{Policy, differences};

use super::{
    policy::{author, published},
    resource,
};
use crate::{
    access::SignedIn,
    body::Body,
    problem::Problem,
    publisher::{RollBack, parse_stored},
    server::State,
    store::Version,
};

/// Versions on a page unless told otherwise, and at most.
const PAGE: u32 = 50;
const PAGE_MAX: u32 = 500;

pub(super) fn routes(config: &mut web::ServiceConfig) {
    config
        .service(resource("/policy/versions", "GET").get(versions))
        .service(resource("/policy/versions/{version}", "GET").get(version))
        .service(resource("/policy/diff", "GET").get(diff))
        .service(resource("/policy/rollback", "POST").post(roll_back));
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

async fn stored(state: &State, version: u64) -> Result<(Version, Policy), Problem> {
    let found = state.store.version(Some(version)).await?;
    let (version, document) = found.ok_or_else(|| Problem::NotFound(format!("There is no version {version}.")))?;
    Ok((version, parse_stored(&document)?))
}

async fn version(state: Data<State>, version: Path<u64>) -> Result<HttpResponse, Problem> {
    let (version, policy) = stored(&state, *version).await?;
    let mut body = json!(version);
    body["document"] = json!(policy);
    Ok(HttpResponse::Ok().json(body))
}

#[derive(Deserialize)]
struct Between {
    /// The one before `to` unless given.
    from: Option<u64>,
    /// The newest unless given.
    to: Option<u64>,
}

async fn diff(state: Data<State>, between: Query<Between>) -> Result<HttpResponse, Problem> {
    let to = between.to.unwrap_or_else(|| state.publisher.published().version.version);
    let from = between.from.unwrap_or(to.saturating_sub(1));
    let ((_, old), (_, new)) = (stored(&state, from).await?, stored(&state, to).await?);
    Ok(HttpResponse::Ok().json(json!({ "from": from, "to": to, "differences": differences(&old, &new) })))
}

async fn roll_back(
    state: Data<State>,
    request: HttpRequest,
    signed_in: SignedIn,
    body: Body<RollBack>,
) -> Result<HttpResponse, Problem> {
    let etag = request.headers().get(IF_MATCH).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    let author = author(&request, signed_in, body.sha256);
    let publish = rt::spawn(async move { state.publisher.roll_back(body.value, etag, author).await });
    published(publish.await)
}
