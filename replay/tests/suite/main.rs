//! The replay against a slow model, its reports, and what-if comparisons.

mod formats;
mod model;
mod report;
mod what_if;
