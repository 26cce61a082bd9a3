//! For whoever runs the server: is it alive, is it ready, and what it counts of itself. Open to all who reach the listener;
//! no names of people, limits or keys are told.

use actix_web::{
    HttpResponse,
    web::{self, Data},
};

use crate::{
    base::secrets::now,
    domain::error::Problem,
    http::{guard::Anyone, state::State},
    metrics::telemetry::MEDIA_TYPE,
};

pub(super) fn pages(config: &mut web::ServiceConfig) {
    config
        .route("/healthz", web::get().to(is_alive))
        .route("/readyz", web::get().to(is_ready))
        .route("/metrics", web::get().to(metrics));
}

async fn is_alive(_: Anyone) -> &'static str {
    "ok\n"
}

async fn is_ready(_: Anyone, state: Data<State>) -> HttpResponse {
    match state.readiness.check(&state.publisher, &state.store, state.figures.node()).await {
        Ok(()) => HttpResponse::Ok().body(format!("policy version {}\n", state.publisher.engine().version())),
        Err(why) => HttpResponse::ServiceUnavailable().body(format!("{why}\n")),
    }
}

async fn metrics(_: Anyone, state: Data<State>) -> Result<HttpResponse, Problem> {
    let telemetry = &state.telemetry;
    let small = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    telemetry.policy_version.set(state.publisher.engine().version().cast_signed());
    telemetry.streams.set(small(state.events.readers()));
    telemetry.alerts.set(small(state.alerts.count()));
    // Where the database has trouble, the number of before stays, and the errors grow.
    if let Ok(sessions) = state.store.count_sessions(now(), state.session_life).await {
        telemetry.sessions.set(sessions);
    }
    let kept = state.figures.kept().counts();
    for (result, count) in [("written", kept.written), ("failed", kept.failed), ("given_up", kept.given_up)] {
        telemetry.figures(result, count);
    }
    let text = telemetry.text().map_err(|error| Problem::Internal(error.to_string()))?;
    Ok(HttpResponse::Ok().content_type(MEDIA_TYPE).body(text))
}
