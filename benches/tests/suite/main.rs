//! The tests of the benchmark programs, as one binary; `memory.rs` needs a process of its own.

mod compare;
