//! `cargo +nightly fuzz run grpc`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::grpc(data));
