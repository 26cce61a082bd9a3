//! The policy, its versions, and the one call that changes it.

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{ContentType, ETAG},
    rt,
    web::{self, Data},
};
use serde_json::json;

use super::resource;
use crate::{
    access::{SignedIn, address},
    body::Body,
    changes::ChangeList,
    problem::Problem,
    publisher::Author,
    server::State,
};

pub(super) fn routes(config: &mut web::ServiceConfig) {
    config.service(resource("/policy", "GET").get(policy)).service(resource("/policy/changes", "POST").post(publish));
}

async fn policy(state: Data<State>) -> Result<HttpResponse, Problem> {
    let published = state.publisher.published();
    let mut body = serde_json::to_value(&published.version).map_err(|error| Problem::Internal(error.to_string()))?;
    body["document"] = json!(published.policy);
    Ok(HttpResponse::Ok().insert_header((ETAG, published.policy_etag())).json(body))
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
    let author = author(request, signed_in, sha256);
    // A task of its own: a client that goes away must not stop it half way.
    let publish = rt::spawn(async move { state.publisher.publish(list, author).await });
    published(publish.await)
}

/// What a publish came to.
pub(super) fn published(answer: Result<Result<String, Problem>, rt::task::JoinError>) -> Result<HttpResponse, Problem> {
    let answer = answer.map_err(|error| Problem::Internal(error.to_string()))??;
    Ok(HttpResponse::Created().content_type(ContentType::json()).body(answer))
}

/// Who publishes.
pub(super) fn author(request: &HttpRequest, signed_in: SignedIn, sha256: String) -> Author {
    let idempotency_key = request.headers().get("idempotency-key").map(|key| {
        // What is not text cannot be a key; it is refused as an empty one.
        key.to_str().unwrap_or_default().to_owned()
    });
    Author { name: signed_in.session.name, address: address(request), idempotency_key, request_sha256: sha256 }
}
