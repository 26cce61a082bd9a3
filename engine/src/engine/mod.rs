//! The engine: decides requests by the policy in force, and replaces that policy while checks go on.
//!
//! * `publish_args`: `Publish`, the arguments of a publish
//! * `fast_path`: the fast path of a check, for any step: finds the slot and charges it by one swap
//! * `names`: `LimitNames`, the names of limits, which outlive policies
//! * `active_policy`: `ActivePolicy`, the policy in force, its limits bound to ids
//! * `limit_ids`: `LimitIds`, which assigns ids to names over all publishes
//! * `decision`: `Decision` and `Outcome`, the results of a check
//! * `observer`: `Observer`, which sees decisions as they are made
//! * `heavy_hitters`: `HeavyHitters`, the keys that are denied most and decided most
//! * `buckets`: `Buckets`, the table of an engine with what a charge needs beside it
//! * `account`: `Account`, one limit of one check: finds its bucket, charges it, gives back to it
//! * `fast_path_one_token`: the fast path of one token of a token bucket
//! * `fast_path_metered`: the fast path of any other cost and algorithm
//! * `decide`: charges the limits that a request meets: one directly, several all or none
//! * `state`: `Engine`, its state and constructors
//! * `publishing`: puts a policy in force
//! * `check`: checks of requests
//! * `metrics`: metrics: how full the table is, and the decisions that were made
//! * `counted_identity`: `CountedIdentity`, the value by which an identity is counted
//! * `inspect`: shows every limit that a request meets
//! * `handle`: `Handle`, a limit looked up once and checked many times
//! * `batch`: many checks at one time
//! * `atomic_batch`: several requests charged together or not at all
//! * `reservation`: `Reservation`, a charge that is settled when the true cost is known
//! * `saved_decision`: `SavedDecision`, a decision kept for repeats of its request
//! * `shared`: checks of limits that nodes share through a store

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
pub(crate) mod publishing;
pub(crate) mod reservation;
pub(crate) mod saved_decision;
pub(crate) mod shared;
pub(crate) mod state;
