//! Compares the public API of the library with `engine/public-api.txt`, so that a change of it is seen in review.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use public_api::Builder;

/// Builds rustdoc's JSON of the library with every feature and returns the path of the file.
fn rustdoc_json() -> PathBuf {
    // A folder of its own: unstable options would have cargo build the usual one anew.
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/public-api");
    let status = Command::new(env!("CARGO"))
        .args(["rustdoc", "--package", "tidegate", "--lib", "--all-features", "--locked", "--quiet", "--target-dir"])
        .arg(&target)
        .args(["--", "-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"])
        // The pinned toolchain takes unstable options like a nightly one, and its JSON has the format that `public-api` reads.
        .env("RUSTC_BOOTSTRAP", "1")
        .env_remove("RUSTFLAGS")
        .status()
        .expect("cargo");
    assert!(status.success(), "cargo rustdoc: {status}");
    target.join("doc/tidegate.json")
}

#[test]
fn the_public_api_is_as_recorded() {
    let api = Builder::from_rustdoc_json(rustdoc_json())
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build()
        .expect("rustdoc's JSON");
    // A change that is meant is recorded: UPDATE_SNAPSHOTS=yes cargo nextest run --package tidegate public_api
    api.assert_eq_or_update(Path::new(env!("CARGO_MANIFEST_DIR")).join("public-api.txt"));
}
