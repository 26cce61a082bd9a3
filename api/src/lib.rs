//! JSON bodies of the HTTP APIs: the serde types that servers write and clients read.
//!
//! * `check`: [`CheckBody`], which a client sends;
//! * `decision`: [`DecisionBody`], which answers it, and [`BatchBody`], which answers many;
//! * `problem`: [`ProblemDetails`], which every error has as its body.
//!
//! The crate has no I/O, and nothing of a web framework.

mod check;
mod decision;
mod problem;

pub use self::{
    check::{CheckBody, IdentityBody},
    decision::{BatchBody, BatchItem, DecisionBody, ms_rounded_up},
    problem::{ABOUT_BLANK, DecisionProblem, ErrorLocation, FieldError, PROBLEM_JSON, ProblemDetails},
};
