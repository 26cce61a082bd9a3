# Tests by cargo-nextest, built apart from their run: nextest then starts without cargo, and does not wait for a build beside it
# that holds cargo's lock. Sourced by scripts/test and scripts/check, after steps.sh.

# What build_tests has built: empty if the build failed.
test_binaries=$state/nextest-binaries.json
# Options of nextest that choose what build_tests has built.
built_tests=(--cargo-metadata "$state/nextest-cargo.json" --binaries-metadata "$test_binaries")

# build_tests OPTION...: builds the tests that these options of cargo choose.
build_tests() {
  cargo metadata --format-version 1 --all-features --locked >"$state/nextest-cargo.json" &&
    cargo nextest list "$@" --locked --list-type binaries-only --message-format json >"$test_binaries"
}
