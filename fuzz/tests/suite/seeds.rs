//! Runs every seed through its fuzz target.

use std::{fs, path::Path};

fn run_seeds(folder: &str, target: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(folder);
    let mut seeds: Vec<_> =
        fs::read_dir(&folder).expect("seeds").map(|entry| entry.expect("an entry").path()).collect();
    seeds.sort();
    assert!(seeds.len() >= 3, "only {} seeds in {}", seeds.len(), folder.display());
    for seed in seeds {
        target(&fs::read(&seed).expect("a seed"));
    }
}

#[test]
fn seeds_of_policies_are_read_or_rejected() {
    run_seeds("policy", tidegate_fuzz::policy);
}

#[test]
fn seeds_of_imports_are_read_or_rejected() {
    run_seeds("imports", tidegate_fuzz::imports);
}

#[test]
fn seeds_of_operations_keep_the_rules() {
    run_seeds("operations", tidegate_fuzz::operations);
}

#[test]
fn seeds_of_requests_are_answered() {
    run_seeds("http", tidegate_fuzz::http);
}

#[test]
fn seeds_of_commands_are_answered() {
    run_seeds("resp", tidegate_fuzz::resp);
}

#[test]
fn seeds_of_calls_are_answered() {
    run_seeds("grpc", tidegate_fuzz::grpc);
}
