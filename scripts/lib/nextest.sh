# Tests by cargo-nextest, built apart from their run: nextest then starts without cargo, whose lock a build beside it would
# hold. Sourced by scripts/test and scripts/check.

# Options of nextest: over what build_tests has built last.
built_tests=(--cargo-metadata target/nextest-cargo.json --binaries-metadata target/nextest-binaries.json)

# build_tests OPTION...: builds the tests that these options of cargo choose.
build_tests() {
  cargo metadata --format-version 1 --all-features --locked >target/nextest-cargo.json &&
    cargo nextest list "$@" --locked --list-type binaries-only --message-format json >target/nextest-binaries.json
}
