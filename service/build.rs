//! Makes the messages and services of the gRPC door from `proto/`, by a compiler of its own: no `protoc` has to be installed.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;

/// What the door serves; what they import is found beside them.
const FILES: [&str; 4] = [
    "tidegate/v1/rate_limiter.proto",
    "tidegate/v1/rate_limiter_config.proto",
    "tidegate/v1/rate_limiter_health.proto",
    "envoy/service/ratelimit/v3/rls.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    // For clients that ask what is served.
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .codec_path("crate::grpc::codec::Codec")
        .include_file("packages.rs")
        .compile_fds(descriptors)?;
    Ok(())
}
