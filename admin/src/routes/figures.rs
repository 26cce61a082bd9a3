//! Live figures, asked for once; the stream has them as they change.

use actix_web::{HttpResponse, web};
use serde_json::json;

use super::resource;
use crate::{problem::Problem, server::State};

pub(super) fn routes(config: &mut web::ServiceConfig) {
    config.service(resource("/metrics", "GET").get(show));
}

async fn show(state: web::Data<State>) -> Result<HttpResponse, Problem> {
    let newest =
        serde_json::to_value(&*state.figures.newest()).map_err(|error| Problem::Internal(error.to_string()))?;
    Ok(HttpResponse::Ok().json(json!({ "newest": newest, "history": state.figures.history() })))
}
