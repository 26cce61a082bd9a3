//! `cargo +nightly fuzz run resp`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::resp(data));
