//! What the calls are: the `OpenAPI` document for programs, and a page of it for people.

use actix_web::{
    HttpResponse,
    http::{StatusCode, header::ContentType},
    web::{self, Data},
};
use serde_json::{Map, Value};

use crate::http::{
    api_document::DOCUMENT,
    guard::Anyone,
    openapi::{Api, STYLE},
    state::State,
};

pub(super) fn calls(api: &mut Api) {
    api.about("Documentation", "What this is.");
    api.get(DOCUMENT, openapi)
        .says("This document", "OpenAPI 3.1; a page of it to read is at `/docs/api`.")
        .answers_json::<Map<String, Value>>(StatusCode::OK, "The document.");
}

/// The page is no call: it stands beside the dashboard's pages.
pub(super) fn pages(config: &mut web::ServiceConfig) {
    config.route("/docs/api", web::get().to(page)).route("/docs/api.css", web::get().to(style));
}

async fn openapi(_: Anyone, state: Data<State>) -> HttpResponse {
    HttpResponse::Ok().content_type(ContentType::json()).body(state.document.json.clone())
}

async fn page(_: Anyone, state: Data<State>) -> HttpResponse {
    HttpResponse::Ok().content_type(ContentType::html()).body(state.document.page.clone())
}

async fn style(_: Anyone) -> HttpResponse {
    HttpResponse::Ok().content_type("text/css; charset=utf-8").body(STYLE)
}
