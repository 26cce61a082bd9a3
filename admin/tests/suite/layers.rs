//! The order of the files of this crate: a file uses only files before it in the list of its folder, and only `http` knows the
//! HTTP library.

use std::{fs, path::Path};

use tidegate_testkit::layers::{Layers, check_documented_layers, check_layers};

/// The entries of each folder, files and folders, from the ground up. This is the list at the head of `src/lib.rs`.
const LAYERS: &Layers = &[
    (
        "src",
        &[
            "base", "domain", "capacity", "store", "metrics", "fleet", "publish", "auth", "simulate", "live", "http",
            "app",
        ],
    ),
    ("base", &["addresses", "event_log", "periods", "secrets", "sha256", "startup_error", "caller", "user_turns"]),
    (
        "domain",
        &[
            "import_report",
            "json",
            "metric_types",
            "objects",
            "privacy",
            "roles",
            "text",
            "version",
            "diff",
            "edited_policy",
            "editor",
            "error",
            "overrides",
            "published",
            "change_impact",
            "change_list",
            "rollout",
            "client_import",
            "revert",
        ],
    ),
    ("domain/client_import", &["csv"]),
    ("capacity", &["body_budget", "read_turns", "shared_work", "spool", "work_queue"]),
    (
        "store",
        &[
            "address",
            "data_directory",
            "database_metrics",
            "sqlite_code",
            "error",
            "database",
            "audit",
            "backup",
            "metrics",
            "nodes",
            "secrets",
            "drafts",
            "rollouts",
            "second_factors",
            "tokens",
            "versions",
            "users",
            "sessions",
        ],
    ),
    ("store/database", &["sqlite", "postgres"]),
    (
        "metrics",
        &[
            "clock",
            "decided_around",
            "endpoints",
            "sample",
            "series",
            "sums",
            "telemetry",
            "ring",
            "top",
            "remotes",
            "collector",
        ],
    ),
    ("metrics/collector", &["history", "persistence"]),
    ("fleet", &["clock_skew", "node_history", "snapshot_push", "registry", "live_tail"]),
    ("fleet/registry", &["connecting", "node_queries", "rows", "announcements"]),
    ("publish", &["stored_policy", "policy_file", "publisher"]),
    ("publish/publisher", &["replication", "rollback", "rollout_stages"]),
    (
        "auth",
        &[
            "audit_queue",
            "known_browsers",
            "last_seen",
            "login_limiter",
            "oidc_cookie",
            "passwords",
            "principal",
            "setup",
            "totp",
            "denied_audit",
            "secret_lookups",
            "user_rules",
            "oidc",
            "settings",
            "command_line_users",
        ],
    ),
    (
        "simulate",
        &[
            "description",
            "recorder",
            "time",
            "about_traffic",
            "uploads",
            "question",
            "run",
            "execution",
            "preview",
            "run_files",
            "runs",
        ],
    ),
    ("live", &["alerts", "event_publisher"]),
    ("live/alerts", &["tokens"]),
    (
        "http",
        &[
            "api_document",
            "connections",
            "cookies",
            "held_body",
            "problem",
            "readiness",
            "request_id",
            "state",
            "client_address",
            "guard",
            "extract",
            "node_stream",
            "openapi",
            "routes",
            "server",
        ],
    ),
    ("http/extract", &["blocking", "body", "paging", "query"]),
    ("http/openapi", &["page", "parts", "schemas", "document"]),
    (
        "http/routes",
        &[
            "alerts",
            "audit",
            "dashboard",
            "documentation",
            "drafts",
            "event_stream",
            "explain",
            "health",
            "keys",
            "lint",
            "meta",
            "metrics",
            "nodes",
            "policy",
            "session",
            "simulations",
            "tokens",
            "uploads",
            "files",
            "objects",
            "oidc",
            "rollout",
            "second_factor",
            "versions",
            "bucket_states",
            "users",
            "account",
            "clients",
        ],
    ),
];

#[test]
fn a_file_uses_only_what_stands_before_it() {
    let uses = check_layers(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), LAYERS);
    assert!(uses > 500, "only {uses} uses were found: the test reads the files wrongly");
}

#[test]
fn the_documented_order_is_the_tested_one() {
    check_documented_layers(include_str!("../../src/lib.rs"), LAYERS);
}

/// Returns the files below a folder whose code names the HTTP library, and how many files there are.
fn with_actix(folder: &Path, found: &mut Vec<String>) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("the sources").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            count += with_actix(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            count += 1;
            let text = fs::read_to_string(&entry).expect("text");
            if text.lines().any(|line| !line.trim_start().starts_with("//") && line.contains("actix")) {
                found.push(entry.display().to_string());
            }
        }
    }
    count
}

#[test]
fn only_http_knows_the_http_library() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut found, http) = (Vec::new(), src.join("http").display().to_string());
    let count = with_actix(&src, &mut found);
    assert!(count > 100 && found.iter().any(|file| file.starts_with(&http)), "the test reads the files wrongly");
    found.retain(|file| !file.starts_with(&http));
    assert!(found.is_empty(), "files outside of src/http that name actix: {found:#?}");
}
