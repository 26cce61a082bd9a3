//! `cargo +nightly fuzz run http`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::http(data));
