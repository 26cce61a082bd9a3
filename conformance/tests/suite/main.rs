//! Tests of the conformance suite, in one binary.

mod mistakes;
mod plain_limiter;
