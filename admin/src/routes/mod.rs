//! The REST calls, by subject.

mod clients;
mod drafts;
mod explain;
mod figures;
mod meta;
mod objects;
mod page;
mod policy;
mod session;
mod stream;
mod versions;

use std::future::ready;

use actix_web::{HttpRequest, HttpResponse, Resource, middleware::from_fn, web};

use crate::{access::guard, problem::Problem};

pub(crate) use page::build;

/// Every route of the admin server.
pub(crate) fn configure(config: &mut web::ServiceConfig) {
    let query = web::QueryConfig::default()
        .error_handler(|error, _| Problem::field("", format!("the query of the address: {error}")).into());
    let api = web::scope("/api/v1")
        .app_data(query)
        .wrap(from_fn(guard))
        .configure(session::routes)
        .configure(meta::routes)
        .configure(policy::routes)
        .configure(objects::routes)
        .configure(versions::routes)
        .configure(drafts::routes)
        .configure(explain::routes)
        .configure(figures::routes)
        .configure(stream::routes)
        .default_service(web::to(unknown));
    config
        .service(api)
        .route("/healthz", web::get().to(async || "ok\n"))
        .route("/readyz", web::get().to(is_ready))
        .default_service(web::to(page::page));
}

async fn unknown(request: HttpRequest) -> Result<HttpResponse, Problem> {
    Err(Problem::NotFound(format!("There is nothing at {}.", request.path())))
}

/// A path that is refused by name where another method is wanted.
fn resource(path: &str, allowed: &'static str) -> Resource {
    let refuse = move || ready(Err::<HttpResponse, _>(Problem::MethodNotAllowed { allowed }));
    web::resource(path).default_service(web::to(refuse))
}

/// Has an enforceable policy, or it would not have started.
async fn is_ready(state: web::Data<crate::server::State>) -> HttpResponse {
    HttpResponse::Ok().body(format!("policy version {}\n", state.publisher.published().version.version))
}
