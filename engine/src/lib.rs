//! Tidegate's engine: a rate limiter for hot paths.
//!
//! A check costs tens of nanoseconds, without a lock, a system call or an allocation. Many limits are charged all or
//! none; the table of buckets is bounded and never forgets a live one; a policy is swapped in whole while checks go on,
//! and what was used stays used.
//!
//! ```
//! let limiter = tidegate::Limiter::per_second(100);
//! let answer = limiter.check();
//! if !answer.is_allowed() {
//!     println!("not now: {:?}", answer.retry());
//! }
//! ```
//!
//! [`Limiter`] limits one thing; [`KeyedLimiter`] each key by itself: `KeyedLimiter::per_second(10).check("ada")`; an
//! [`Engine`] many limits at once, by a policy that changes while it runs.
//!
//! In `Cargo.toml`, where the sources are beside yours (or `git = "..."`):
//!
//! ```toml
//! tidegate = { path = "../tidegate/engine" } # features = ["formats"] where policies are read, ["wait"] to wait for tokens
//! ```
//!
//! `docs/` of the repository has more: `library.md` (everything by example, all of it run by the tests),
//! `choosing-an-algorithm.md`, `guarantees.md` (each bound with the test that shows it), `sizing.md`, `internals.md`,
//! `from-governor.md`.
//!
//! The parts, from the ground up; a file uses only what stands above it here, which a test checks:
//!
//! * what all others stand on, time, clocks, atomics, hashes and keys: `base`;
//! * pure, without atomics or clocks: [`algorithm`];
//! * where buckets are kept, concurrent: `storage`;
//! * requests, policies and plans: [`policy`];
//! * the doors: `publish`, `plain`, `registry`, `decision`, `observer`, `heavy_hitters`, `account`, `one_token`, `metered`, `decide`, `engine`, `counted`, `inspect`, `handle`, `batch`, `together`, `reservation`, `remembered`, `pending`, `line`, `limiter`, `keyed_limiter`, `rated_limiter`, `wait`.

mod account;
pub mod algorithm;
mod base;
mod batch;
mod counted;
mod decide;
mod decision;
mod engine;
mod handle;
mod heavy_hitters;
mod inspect;
mod keyed_limiter;
mod limiter;
#[cfg(feature = "wait")]
mod line;
mod metered;
mod observer;
mod one_token;
mod pending;
mod plain;
pub mod policy;
mod publish;
mod rated_limiter;
mod registry;
mod remembered;
mod reservation;
mod storage;
mod together;
#[cfg(feature = "wait")]
mod wait;

pub use algorithm::rate::Rate;
pub use base::{
    address::{IPV6_PREFIX, network},
    clock,
    hash::{KeyHash, KeyHasher},
    key::{Key, Prehashed},
    time,
};
pub use counted::CountedIdentity;
pub use decision::{Decision, Degraded, Outcome, Retry};
pub use engine::{DEFAULT_MAX_KEYS, Engine, Met};
pub use handle::Handle;
pub use heavy_hitters::{HeavyHitters, Hitter};
pub use inspect::{Inspected, Inspection};
pub use keyed_limiter::KeyedLimiter;
pub use limiter::Limiter;
#[cfg(feature = "wait")]
pub use line::WaitError;
pub use observer::{Observed, Observer, ObserverId};
pub use pending::{Answer, Begun, Decide, GiveBack, Pending, StoreCharge};
#[doc(inline)]
pub use policy::descriptor;
pub use policy::{
    compiled::{PLAN_MAX, Snapshot},
    error::{Problem, Problems},
    explain::{Explanation, RuleMatch, TierFrom, WhoIs},
    lint::{Loosening, LooseningCode, Refusing, RefusingCode, Warning, WarningCode},
    named_values::NamedValues,
    path::{Endpoints, fitting_path, plain_path},
    request::{
        BEGINNING_BYTES_MAX, DEFAULT_DOMAIN, ENDPOINT_BYTES_MAX, IDENTITIES_MAX, Identity, Request, RequestError,
        RequestParts, VALUE_BYTES_MAX,
    },
};
#[cfg(feature = "formats")]
#[doc(inline)]
pub use policy::{formats, import};
pub use publish::Publish;
pub use rated_limiter::RatedLimiter;
pub use registry::{KNOWN_LIMITS_MAX, LimitIndex, PublishError};
pub use remembered::Remembered;
pub use reservation::Reservation;
pub use storage::{
    bucket::Bucket,
    counters::{Counts, Totals},
    shares::TableShares,
    table::BYTES_PER_KEY,
};

/// The code of the documents is compiled and run.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;

    #[doc = include_str!("../../docs/choosing-an-algorithm.md")]
    struct ChoosingAnAlgorithm;

    #[doc = include_str!("../../docs/guarantees.md")]
    struct Guarantees;

    #[doc = include_str!("../../docs/library.md")]
    struct Library;

    #[doc = include_str!("../../docs/sizing.md")]
    struct Sizing;
}
