//! Tests of the benchmark programs, in one binary; `memory.rs` needs a process of its own.

mod compare;
