//! What must hold of any policy text, of any run of operations, and of whatever comes to a door. The fuzzer calls these with inputs of its own, the
//! tests with those that are kept in `seeds/`.

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
