//! What a form needs to know of this build: algorithms, their parameters, bounds.

use actix_web::web::{Data, Json};
use schemars::JsonSchema;
use serde::Serialize;
use tidegate::{
    PLAN_MAX,
    algorithm::NUMBER_MAX,
    policy::{Algorithm, DESCRIPTION_CHARACTERS_MAX, Sharing},
};

use tidegate_replay::{
    preview::PREVIEW_REQUESTS_MAX,
    traffic::{CLIENTS_MAX, ROWS_MAX, SYNTHETIC_REQUESTS_MAX},
};

use crate::{
    auth::passwords,
    domain::{change_list::MESSAGE_BYTES_MAX, privacy::Keys, roles::Viewer},
    http::{guard::By, openapi::Api, state::State},
    simulate::{
        description::bound,
        recorder::Recorded,
        run_files::{DAYS_MAX, RUNS_MAX},
        runs::QUEUE_MAX,
        uploads::{BYTES_MAX, LINES_MAX, UPLOADS_MAX},
    },
};

pub(super) fn calls(api: &mut Api) {
    api.about("This build", "What the server is and what fits.");
    api.get("/meta", show).says("Algorithms, their parameters, and bounds", "What a form needs to know.");
}

#[derive(Serialize, JsonSchema)]
struct Meta {
    version: &'static str,
    algorithms: Vec<AlgorithmInfo>,
    sharing: Vec<SharingInfo>,
    bounds: Bounds,
    /// How identities are shown that were seen in traffic.
    keys: Keys,
    /// What is recorded to try policies on; `null`: nothing is.
    recorder: Option<Recorded>,
    /// Where checks can be sent.
    check_url: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct AlgorithmInfo {
    id: Algorithm,
    label: &'static str,
    /// Fields of a limit that it takes.
    parameters: &'static [&'static str],
    help: &'static str,
}

/// A way in which nodes share a limit.
#[derive(Serialize, JsonSchema)]
struct SharingInfo {
    id: Sharing,
    /// What holds on all nodes together.
    help: &'static str,
}

#[derive(Serialize, JsonSchema)]
struct Bounds {
    /// The largest whole number.
    number_max: u64,
    /// A regular expression that the ids of tiers, rules and limits match whole.
    id_pattern: &'static str,
    /// How many limits one request may meet.
    limits_max: usize,
    /// The longest description of a tier.
    description_characters_max: usize,
    /// The longest message of a version.
    message_bytes_max: usize,
    /// The shortest password.
    password_characters_min: usize,
    /// The longest log that can be sent.
    upload_bytes_max: u64,
    /// The most lines of a log.
    upload_lines_max: u64,
    /// The most logs at a time.
    uploads_max: usize,
    /// The most rows of made-up traffic.
    simulation_rows_max: usize,
    /// The most clients of made-up traffic.
    simulation_clients_max: u32,
    /// The most requests of made-up traffic.
    simulation_requests_max: u64,
    /// The most runs that wait.
    simulation_queue_max: usize,
    /// The most runs that are kept.
    simulations_max: usize,
    /// How long a run is kept.
    simulations_kept_max_ms: u64,
    /// The most requests of a preview.
    preview_requests_max: u64,
}

async fn show(_: By<Viewer>, state: Data<State>) -> Json<Meta> {
    Json(Meta {
        version: env!("CARGO_PKG_VERSION"),
        algorithms: vec![
            AlgorithmInfo {
                id: Algorithm::TokenBucket,
                label: "Token bucket",
                parameters: &["limit", "period", "burst", "max_debt"],
                help: "Refills steadily; an idle client may send a whole burst at once.",
            },
            AlgorithmInfo {
                id: Algorithm::LeakyBucket,
                label: "Leaky bucket",
                parameters: &["limit", "period", "burst", "max_debt"],
                help: "A queue that drains steadily: what is allowed is told how long to wait for its turn.",
            },
            AlgorithmInfo {
                id: Algorithm::FixedWindow,
                label: "Fixed window",
                parameters: &["limit", "period"],
                help: "Counts in windows that end together for everyone, such as 1m, or by the calendar: day, week, month. Up to \
                         twice the limit around a boundary.",
            },
            AlgorithmInfo {
                id: Algorithm::SlidingWindowCounter,
                label: "Sliding window counter",
                parameters: &["limit", "period"],
                help: "Weighs the window before by the part of it that still counts; no rush at a boundary.",
            },
            AlgorithmInfo {
                id: Algorithm::SlidingWindowLog,
                label: "Sliding window log",
                parameters: &["limit", "period"],
                help: "Remembers when each token was used: never above the limit in any period. For limits up to 4096.",
            },
        ],
        sharing: [Sharing::Local, Sharing::Strict, Sharing::Leased, Sharing::Synced]
            .map(|id| SharingInfo { id, help: bound(id) })
            .into(),
        bounds: Bounds {
            number_max: NUMBER_MAX,
            id_pattern: "[a-z][a-z0-9_-]{0,63}",
            limits_max: PLAN_MAX,
            description_characters_max: DESCRIPTION_CHARACTERS_MAX,
            message_bytes_max: MESSAGE_BYTES_MAX,
            password_characters_min: passwords::CHARACTERS_MIN,
            upload_bytes_max: BYTES_MAX,
            upload_lines_max: LINES_MAX,
            uploads_max: UPLOADS_MAX,
            simulation_rows_max: ROWS_MAX,
            simulation_clients_max: CLIENTS_MAX,
            simulation_requests_max: SYNTHETIC_REQUESTS_MAX,
            simulation_queue_max: QUEUE_MAX,
            simulations_max: RUNS_MAX,
            simulations_kept_max_ms: DAYS_MAX * 86_400_000,
            preview_requests_max: PREVIEW_REQUESTS_MAX,
        },
        keys: state.privacy.keys,
        recorder: state.recorder.as_ref().map(|recorder| recorder.state()),
        check_url: state.check_url.clone(),
    })
}
