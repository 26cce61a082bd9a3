//! Generates the messages and services of the gRPC API from `proto/`, with the compiler protox: `protoc` need not be installed.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;

/// The files of the services; what they import is found beside them.
const FILES: [&str; 4] = [
    "tidegate/v1/rate_limiter.proto",
    "tidegate/v1/rate_limiter_config.proto",
    "tidegate/v1/rate_limiter_health.proto",
    "envoy/service/ratelimit/v3/rls.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    // For the reflection service.
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .codec_path("crate::protobuf::codec::Codec")
        .include_file("packages.rs")
        .compile_fds(descriptors)?;
    Ok(())
}
