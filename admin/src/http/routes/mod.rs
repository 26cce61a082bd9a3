//! The REST calls, by subject.

mod account;
mod alerts;
mod audit;
mod bucket_states;
mod clients;
mod dashboard;
mod documentation;
mod drafts;
mod event_stream;
mod explain;
mod files;
mod health;
mod keys;
mod lint;
mod meta;
mod metrics;
mod nodes;
mod objects;
mod oidc;
mod policy;
mod rollout;
mod second_factor;
mod session;
mod simulations;
mod tokens;
mod uploads;
mod users;
mod versions;

use actix_web::{HttpRequest, HttpResponse, middleware::from_fn, web};

pub(crate) use self::{dashboard::build, oidc::CALLBACK};
use crate::{
    domain::{error::Problem, roles::Known},
    http::{
        api_document::Document,
        guard::{By, guard},
        openapi::{Api, PREFIX},
    },
};

/// Every call of the REST API. To add one, state it in the `calls` of its subject: method, path and handler, what it does,
/// and what else it can be refused for. A test of the document fails where something is left unsaid.
fn calls(mut api: Api) -> Api {
    session::calls(&mut api);
    oidc::calls(&mut api);
    account::calls(&mut api);
    second_factor::calls(&mut api);
    users::calls(&mut api);
    tokens::calls(&mut api);
    meta::calls(&mut api);
    policy::calls(&mut api);
    objects::calls(&mut api);
    clients::calls(&mut api);
    objects::calls_for_domains(&mut api);
    versions::calls(&mut api);
    rollout::calls(&mut api);
    files::calls(&mut api);
    drafts::calls(&mut api);
    explain::calls(&mut api);
    lint::calls(&mut api);
    simulations::calls(&mut api);
    uploads::calls(&mut api);
    metrics::calls(&mut api);
    alerts::calls(&mut api);
    nodes::calls(&mut api);
    keys::calls(&mut api);
    event_stream::calls(&mut api);
    audit::calls(&mut api);
    documentation::calls(&mut api);
    api
}

/// Returns the documentation of the calls, for a server whose sessions are in this cookie.
pub(crate) fn document(cookie: &str) -> Document {
    calls(Api::of_document()).document(cookie)
}

/// Every route of the admin server.
pub(crate) fn configure(config: &mut web::ServiceConfig) {
    let paths = web::PathConfig::default().error_handler(|_, request| not_there(request).into());
    let api = web::scope(PREFIX)
        .app_data(paths)
        .wrap(from_fn(guard))
        .configure(|config| calls(Api::of_routes()).configure(config))
        .default_service(web::to(unknown));
    config
        .service(api)
        .configure(documentation::pages)
        .configure(health::pages)
        .default_service(web::to(dashboard::page));
}

/// Strangers are not told what there is.
async fn unknown(_: By<Known>, request: HttpRequest) -> Result<HttpResponse, Problem> {
    Err(not_there(&request))
}

fn not_there(request: &HttpRequest) -> Problem {
    Problem::NotFound(format!("There is nothing at {}.", request.path()))
}
