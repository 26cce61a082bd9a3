//! The order of the files of this crate: a file uses only what stands before it in the list of its folder.

use std::path::Path;

use tidegate_testkit::layers::{Layers, check_documented_layers, check_layers};

/// The entries of each folder, files and folders, from the ground up. This is the list at the head of `src/lib.rs`.
const LAYERS: &Layers = &[
    ("src", &["shared", "http", "protobuf", "envoy", "grpc", "resp", "running", "listeners"]),
    (
        "shared",
        &[
            "timeouts",
            "log_limiter",
            "metric_encoding",
            "tokens",
            "caller_shares",
            "reservations",
            "request_id_cache",
            "store_concurrency",
            "degraded",
            "body_budget",
            "error",
            "decider",
            "latency",
            "listener_counts",
            "rejection_counts",
            "health_rules",
            "throttle_metrics",
            "health_monitor",
            "metrics",
            "traces",
            "operators",
            "service_state",
            "worker_threads",
        ],
    ),
    ("shared/decider", &["batch", "all_or_nothing"]),
    ("shared/body_budget", &["permit_state", "ledger", "permit"]),
    (
        "http",
        &[
            "response_body",
            "body_reader",
            "request_body",
            "routes",
            "known_headers",
            "authorize_settings",
            "browsers",
            "held_bodies",
            "responses",
            "worker",
            "authorize",
            "listener",
        ],
    ),
    ("protobuf", &["codec", "generated", "error", "reader", "writer"]),
    ("envoy", &["request", "response", "decide", "offline"]),
    (
        "grpc",
        &[
            "methods",
            "status",
            "request_body",
            "response_body",
            "check_request",
            "check_response",
            "limiter",
            "response_buffer",
            "check_stream",
            "admin_client",
            "config",
            "health",
            "admission",
            "call_handler",
            "connection",
            "listener",
        ],
    ),
    (
        "resp",
        &[
            "frame_reader",
            "reply_writer",
            "error",
            "throttle",
            "command_table",
            "check_command",
            "worker",
            "session",
            "connection",
            "listener",
        ],
    ),
];

#[test]
fn a_file_uses_only_what_stands_before_it() {
    let uses = check_layers(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), LAYERS);
    assert!(uses > 200, "only {uses} uses were found: the test reads the files wrongly");
}

#[test]
fn the_documented_order_is_the_tested_one() {
    check_documented_layers(include_str!("../../src/lib.rs"), LAYERS);
}
