//! Tidegate's engine: a rate limiter for hot paths.
//!
//! A check costs tens of nanoseconds, without a lock, a system call or an allocation. Either all limits of a request
//! are charged, or none. The table of buckets is bounded and never forgets a live one. A policy is swapped in whole
//! while checks go on, and what was used stays used.
//!
//! ```
//! let limiter = tidegate::Limiter::per_second(100);
//! limiter.check().ok()?; // a denial says when to retry
//! # Ok::<(), tidegate::Denied>(())
//! ```
//!
//! [`Limiter`] limits one thing, and [`KeyedLimiter`] each key by itself: `KeyedLimiter::per_second(10).check("ada")`.
//! An [`Engine`] has many limits at once, by a policy that changes while it runs. `check` charges one token and `check_n`
//! a cost; `peek` and `peek_n` charge nothing.
//!
//! The dependency in `Cargo.toml`, where the sources are beside yours (or `git = "..."`):
//!
//! ```toml
//! tidegate = { path = "../tidegate/engine" } # features = ["formats"] where policies are read, ["wait"] to wait for tokens
//! ```
//!
//! The folder `docs/` of the repository has more: `library.md` (everything by example, all of it run by the tests),
//! `choosing-an-algorithm.md`, `guarantees.md` (each bound with the test that shows it), `sizing.md`, `internals.md`,
//! `from-governor.md`.
//!
//! The sources are layers, from the ground up. Each is a folder, whose `mod.rs` lists its files in the same order. A
//! file uses only files that stand before it, which a test checks. The parts of a file are in the folder of its name.
//!
//! * `base/`: time, clocks, atomics, hashes and keys
//! * `algorithm/`: the algorithms, as pure steps over a word
//! * `storage/`: the table of buckets, for threads that share them
//! * `policy/`: requests, policy documents, and their compiled form
//! * `engine/`: checks and publishes
//! * `limiter/`: limiters without a policy

pub mod algorithm;
mod base;
mod engine;
mod limiter;
pub mod policy;
mod storage;

pub use algorithm::rate::Rate;
pub use base::{
    address::{IPV6_PREFIX, network},
    clock,
    hash::{KeyHash, KeyHasher},
    key::{Key, Prehashed},
    time,
};
pub use engine::{
    check::MetLimit,
    counted_identity::CountedIdentity,
    decision::{Decision, Degraded, Denied, Outcome, Retry},
    handle::Handle,
    heavy_hitters::{HeavyHitters, Hitter},
    inspect::{InspectedLimit, Inspection},
    names::{KNOWN_LIMITS_MAX, LimitIndex},
    observer::{Observed, Observer, ObserverId},
    publish_args::Publish,
    publishing::PublishError,
    reservation::Reservation,
    saved_decision::SavedDecision,
    shared::Decide,
    state::{DEFAULT_MAX_KEYS, Engine},
};
#[cfg(feature = "wait")]
pub use limiter::wait_queue::WaitError;
pub use limiter::{keyed::KeyedLimiter, rated::RatedLimiter, single::Limiter};
pub use policy::{
    compiled::{PLAN_MAX, Snapshot},
    error::{Problem, Problems},
    named_values::NamedValues,
    path::{normalized_path, truncated_path},
    pattern::{Endpoints, InvalidPattern},
    request::{
        BEGINNING_BYTES_MAX, DEFAULT_DOMAIN, ENDPOINT_BYTES_MAX, IDENTITIES_MAX, Identity, Request, RequestError,
        RequestParts, VALUE_BYTES_MAX,
    },
};
#[cfg(feature = "tools")]
pub use policy::{
    explain::{ExplainedIdentity, Explanation, RuleMatch, TierOrigin},
    lint::{Finding, LooseningCode, NewlyEnforcedCode, WarningCode},
};
pub use storage::{
    counters::{Counts, Totals},
    table::BYTES_PER_KEY,
    table_shares::TableShares,
};

/// Parts of the engine for the other crates of this repository: checks whose limits are kept in a store, and steps over
/// the word of a bucket. They may change in any version.
#[doc(hidden)]
pub mod internals {
    pub use crate::{
        algorithm::{
            remote_add::RemoteAdd,
            remote_step::RemoteStep,
            verdict::{Receipt, Verdict},
        },
        engine::shared::{BeginResult, GiveBack, Pending, StoreAnswer, StoreCharge},
        storage::bucket::Bucket,
    };
}

/// The meaning of the entries of Envoy's descriptors.
///
/// The importer and the listener for Envoy both use [`Dimension::of`](descriptor::Dimension::of), so an imported limit
/// holds for the descriptors that its file was written for.
pub mod descriptor {
    pub use crate::policy::descriptor::*;
}

/// Conversion of policy documents from and to text: TOML, YAML and JSON carry the same document.
#[cfg(feature = "formats")]
pub mod formats {
    pub use crate::policy::formats::*;
}

/// Import of policies from the files of other limiters, with a report of what could not be carried over unchanged.
///
/// A descriptor or a limit becomes a rule: its keys are kinds of identity, its values conditions (`where`), and the
/// kinds whose values it counts apart are `per`. [`Dimension::of`](descriptor::Dimension::of) maps keys to kinds, here
/// and in the listener for Envoy.
#[cfg(feature = "tools")]
pub mod import {
    pub use crate::policy::import::*;
}

/// Compiles and runs the code of the package's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
