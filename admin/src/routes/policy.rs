//! The policy, its versions, and the one call that changes it.

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{ContentType, ETAG},
    rt,
    web::{self, Data, Query},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::resource;
use crate::{
    access::{SignedIn, address},
    body::Body,
    changes::ChangeList,
    problem::Problem,
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
        .service(resource("/policy/changes", "POST").post(publish));
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
    publish_list(state, &request, signed_in, body.sha256, body.value).await
}

/// Publishes `list`; `sha256` is that of the request, by which a repeat is known.
pub(super) async fn publish_list(
    state: Data<State>,
    request: &HttpRequest,
    signed_in: SignedIn,
    sha256: String,
    list: ChangeList,
) -> Result<HttpResponse, Problem> {
    let idempotency_key = request.headers().get("idempotency-key").map(|key| {
        // What is not text cannot be a key; it is refused as an empty one.
        key.to_str().unwrap_or_default().to_owned()
    });
    let author =
        Author { name: signed_in.session.name, address: address(request), idempotency_key, request_sha256: sha256 };
    // A task of its own: a client that goes away must not stop it half way.
    let publish = rt::spawn(async move { state.publisher.publish(list, author).await });
    let answer = publish.await.map_err(|error| Problem::Internal(error.to_string()))??;
    Ok(HttpResponse::Created().content_type(ContentType::json()).body(answer))
}
