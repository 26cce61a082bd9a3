//! The order of the files of this crate: a file uses only files before it in the list of its folder.

use std::path::Path;

use tidegate_testkit::layers::{Layers, check_documented_layers, check_layers};

/// The entries of each folder, files and folders, from the ground up. This is the list at the head of `src/lib.rs`.
const LAYERS: &Layers = &[
    ("src", &["lock", "counts", "store", "wire", "agent"]),
    ("counts", &["latency", "totals", "limit_owner", "sampler", "counters"]),
    (
        "store",
        &["error", "config", "key", "address", "fault", "stats", "script", "client", "local", "shared", "simulation"],
    ),
    ("store/script", &["record", "grant", "op", "plan", "encode", "decode", "argument", "script_model", "comparison"]),
    (
        "store/client",
        &[
            "clock_reading",
            "redis_client",
            "fault_log",
            "sentinel",
            "server_connection",
            "cluster_connection",
            "store_connection",
            "epoch",
            "queue",
            "batcher",
            "health",
        ],
    ),
    ("store/local", &["lease", "synced", "quota", "local_quotas", "renewal", "exchange"]),
    (
        "store/simulation",
        &[
            "random",
            "mutation",
            "network",
            "node",
            "judge",
            "scenario",
            "history",
            "check",
            "run",
            "plan",
            "late_answer",
        ],
    ),
    ("wire", &["payload", "event_reader", "stream", "report", "query", "truncate"]),
    (
        "agent",
        &[
            "process",
            "status",
            "describe",
            "http_client",
            "live_tail",
            "query_handler",
            "compiled_policy",
            "last_good",
            "node",
            "apply",
            "report",
            "admin_stream",
            "start",
        ],
    ),
];

#[test]
fn a_file_uses_only_what_stands_before_it() {
    let uses = check_layers(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), LAYERS);
    assert!(uses > 100, "only {uses} uses were found: the test reads the files wrongly");
}

#[test]
fn the_documented_order_is_the_tested_one() {
    check_documented_layers(include_str!("../../src/lib.rs"), LAYERS);
}
