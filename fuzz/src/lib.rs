//! Properties that hold for any policy text, any file of another limiter, any run of operations and any bytes sent to a listener.
//!
//! The fuzzer calls these functions with inputs of its own, the tests with those in `seeds/`.

mod grpc;
mod http;
mod imports;
mod operations;
mod policy;
mod resp;

pub use self::http::http;
pub use grpc::grpc;
pub use imports::imports;
pub use operations::operations;
pub use policy::policy;
pub use resp::resp;
