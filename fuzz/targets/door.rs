//! `cargo +nightly fuzz run door`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::door(data));
