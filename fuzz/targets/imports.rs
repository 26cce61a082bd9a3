//! `cargo +nightly fuzz run imports`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::imports(data));
