//! Every input that is kept still passes, without a fuzzer.

use std::{fs, path::Path};

fn each_of(folder: &str, holds: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(folder);
    let mut seeds: Vec<_> =
        fs::read_dir(&folder).expect("seeds").map(|entry| entry.expect("an entry").path()).collect();
    seeds.sort();
    assert!(seeds.len() >= 3, "only {} seeds in {}", seeds.len(), folder.display());
    for seed in seeds {
        holds(&fs::read(&seed).expect("a seed"));
    }
}

#[test]
fn policies_that_are_kept_are_read_or_refused() {
    each_of("policy", tidegate_fuzz::policy);
}

#[test]
fn imports_that_are_kept_are_read_or_refused() {
    each_of("imports", tidegate_fuzz::imports);
}

#[test]
fn operations_that_are_kept_keep_the_rules() {
    each_of("operations", tidegate_fuzz::operations);
}

#[test]
fn requests_that_are_kept_are_answered() {
    each_of("http", tidegate_fuzz::http);
}

#[test]
fn commands_that_are_kept_are_answered() {
    each_of("resp", tidegate_fuzz::resp);
}

#[test]
fn calls_that_are_kept_are_answered() {
    each_of("grpc", tidegate_fuzz::grpc);
}
