//! The engine: decides requests by the policy in force, and replaces that policy while checks go on.
//!
//! * `publish_args`: what a publish is asked for
//! * `fast_path`: the common check: a slot whose word is all there is to know
//! * `names`: the names of limits, which outlive policies
//! * `active_policy`: the policy in force, its limits bound to ids
//! * `limit_ids`: which name has which id, over all publishes
//! * `decision`: the answer to a check
//! * `observer`: what is shown decisions as they are made
//! * `heavy_hitters`: the keys that are denied most and that come most
//! * `buckets`: all buckets of an engine, and what it takes to charge them
//! * `account`: one limit of one check: its bucket found, looked at, charged and given back to
//! * `fast_path_one_token`: the common check of one token of a token bucket
//! * `fast_path_metered`: the common check of any other cost and algorithm
//! * `decide`: a plan decided: one limit directly, several all or none
//! * `state`: the engine itself: what it is made of
//! * `publishing`: how a policy is put in force
//! * `check`: checks of requests
//! * `metrics`: how full the table is, and what was decided
//! * `counted_identity`: the value by which an identity is counted
//! * `inspect`: every limit that a request meets, as it is
//! * `handle`: a limit looked up once and checked many times
//! * `batch`: many checks at one time
//! * `atomic_batch`: several requests charged together or not at all
//! * `reservation`: a charge that is settled when the true cost is known
//! * `saved_decision`: a decision kept for repeats of its request
//! * `shared`: limits that nodes share through a store

pub(crate) mod account;
pub(crate) mod active_policy;
mod atomic_batch;
mod batch;
pub(crate) mod buckets;
pub(crate) mod check;
pub(crate) mod counted_identity;
mod decide;
pub(crate) mod decision;
pub(crate) mod fast_path;
pub(crate) mod fast_path_metered;
pub(crate) mod fast_path_one_token;
pub(crate) mod handle;
pub(crate) mod heavy_hitters;
pub(crate) mod inspect;
pub(crate) mod limit_ids;
mod metrics;
pub(crate) mod names;
pub(crate) mod observer;
pub(crate) mod publish_args;
mod publishing;
pub(crate) mod reservation;
pub(crate) mod saved_decision;
pub(crate) mod shared;
pub(crate) mod state;
