//! The order of the files of the binary: a file uses only what stands before it in the list of its folder.

use std::path::Path;

use tidegate_testkit::layers::{Layers, check_documented_layers, check_layers};

/// The entries of each folder, files and folders, from the ground up. This is the list at the head of `src/main.rs`.
const LAYERS: &Layers = &[
    ("src", &["output", "value_parsers", "formats", "policy_file", "client", "server", "commands", "cli", "settings"]),
    ("client", &["http_client", "session"]),
    (
        "server",
        &[
            "process",
            "oidc",
            "dashboard_settings",
            "store",
            "authorize",
            "traces",
            "listener_settings",
            "listeners",
            "control_plane",
        ],
    ),
    ("commands", &["backup", "user", "admin", "serve", "node", "check", "progress", "replay", "policy"]),
    ("commands/policy", &["check", "test", "diff", "import", "export", "publish", "rollout"]),
    ("commands/policy/test", &["cases"]),
];

#[test]
fn a_file_uses_only_what_stands_before_it() {
    let uses = check_layers(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), LAYERS);
    assert!(uses > 50, "only {uses} uses were found: the test reads the files wrongly");
}

#[test]
fn the_documented_order_is_the_tested_one() {
    check_documented_layers(include_str!("../../src/main.rs"), LAYERS);
}
