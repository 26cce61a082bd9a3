//! What must hold of any policy text, and of any run of operations. The fuzzer calls these with inputs of its own, the
//! tests with those that are kept in `seeds/`.

mod imports;
mod operations;
mod policy;

pub use imports::imports;
pub use operations::operations;
pub use policy::policy;
