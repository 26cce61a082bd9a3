//! What needs a look.

use actix_web::web::{Data, Json};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    capacity::work_queue::Queries,
    domain::{error::Problem, roles::Viewer},
    http::{extract::paging::List, guard::By, openapi::Api, state::State},
    live::alerts::Alert,
};

pub(super) fn calls(api: &mut Api) {
    api.about("Alerts", "What needs a look.");
    api.get("/alerts", show).says(
        "What needs a look",
        "Found in the policy, its history, the figures of this server and the nodes that follow it. `GET /stream?topics=alerts` tells of those that come \
         and go. At most 100 of each code are listed.",
    );
}

#[derive(Debug, Serialize, JsonSchema)]
struct AboutAlerts {
    /// Alerts that are not listed.
    left_out: usize,
}

async fn show(_: By<Viewer>, state: Data<State>, queries: Queries) -> Result<Json<List<Alert, AboutAlerts>>, Problem> {
    let look = async move { state.alerts.look(state.sight()).await };
    let (items, left_out) = queries.place().await?.whole(look).await?.1?;
    Ok(Json(List { about: AboutAlerts { left_out }, items, next: None }))
}
