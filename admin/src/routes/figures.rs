//! Live figures, asked for once; the stream has them as they change.

use actix_web::web::{Data, Json};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    api::Api,
    figures::{Sample, Second},
    server::State,
};

pub(super) fn calls(api: &mut Api) {
    api.about("Figures", "What was decided, and how fast.");
    api.get("/metrics", show).says(
        "Figures now, and of the last quarter of an hour",
        "Counted since the process started. `GET /stream?topics=metrics` has them once a second.",
    );
}

#[derive(Serialize, JsonSchema)]
struct Metrics {
    newest: Sample,
    /// A point a second, oldest first.
    history: Vec<Second>,
}

async fn show(state: Data<State>) -> Json<Metrics> {
    Json(Metrics { newest: (*state.figures.newest()).clone(), history: state.figures.history() })
}
