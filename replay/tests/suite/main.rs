//! Tests of replays against a slow model, of reports, of log formats, and of what-if comparisons, in one binary.

mod formats;
mod model;
mod report;
mod what_if;
