//! The tests of the conformance suite itself, as one binary.

mod mistakes;
