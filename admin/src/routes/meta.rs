//! What a form needs to know of this build: algorithms, their parameters, bounds.

use actix_web::{HttpResponse, web};
use serde_json::json;
use tidegate::{PLAN_MAX, algorithm::NUMBER_MAX, policy::Algorithm};

use super::resource;
use crate::{changes::MESSAGE_BYTES_MAX, passwords, server::State};

pub(super) fn routes(config: &mut web::ServiceConfig) {
    config.service(resource("/meta", "GET").get(show));
}

async fn show(state: web::Data<State>) -> HttpResponse {
    HttpResponse::Ok().json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "algorithms": [
            {
                "id": Algorithm::TokenBucket, "label": "Token bucket", "parameters": ["limit", "period", "burst"],
                "help": "Refills steadily; an idle client may send a whole burst at once.",
            },
            {
                "id": Algorithm::LeakyBucket, "label": "Leaky bucket", "parameters": ["limit", "period", "burst"],
                "help": "A queue that drains steadily: what is allowed is told how long to wait for its turn.",
            },
            {
                "id": Algorithm::FixedWindow, "label": "Fixed window", "parameters": ["limit", "period"],
                "help": "Counts in windows that end together for everyone, such as 1m, or by the calendar: day, week, month. Up to \
                         twice the limit around a boundary.",
            },
            {
                "id": Algorithm::SlidingWindowCounter, "label": "Sliding window counter",
                "parameters": ["limit", "period"],
                "help": "Weighs the window before by the part of it that still counts; no rush at a boundary.",
            },
            {
                "id": Algorithm::SlidingWindowLog, "label": "Sliding window log", "parameters": ["limit", "period"],
                "help": "Remembers when each token was used: never above the limit in any period. For limits up to 4096.",
            },
        ],
        "bounds": {
            "number_max": NUMBER_MAX,
            "id_pattern": "[a-z][a-z0-9_-]{0,63}",
            "limits_max": PLAN_MAX,
            "message_bytes_max": MESSAGE_BYTES_MAX,
            "password_characters_min": passwords::CHARACTERS_MIN,
        },
        "check_url": state.check_url,
    }))
}
