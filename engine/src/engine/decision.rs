//! `Decision`, the result of a check, `Outcome`, the result of one limit, and `Denied`, the error of a denial.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{
    algorithm::{Meter, Verdict},
    base::time::{Nanos, saturating_nanos},
    engine::{
        active_policy::PolicyOrder,
        names::{LimitIndex, LimitNames},
    },
    policy::document::Algorithm,
};

/// The most shadow limits that a decision names.
const SHADOWS_NAMED_MAX: usize = 8;

/// The time after which a request may be repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// Now: it was allowed.
    Now,
    /// After this long, if no other request comes meanwhile. Never zero.
    After(Duration),
    /// Never: it costs more than the limit ever holds, or the limit admits nothing.
    Never,
}

/// The error of a denied check, from [`Outcome::ok`] and [`Decision::ok`].
///
/// ```
/// use tidegate::{Denied, Limiter, Retry};
///
/// let limiter = Limiter::per_minute(10);
/// let denied: Denied = limiter.check_n(11).ok().unwrap_err();
/// assert_eq!(denied.retry(), Retry::Never);
/// assert_eq!(denied.to_string(), "the rate limit can never admit this request");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denied {
    retry: Retry,
}

impl Denied {
    /// Returns when the request may be repeated; never [`Retry::Now`].
    #[must_use]
    pub fn retry(&self) -> Retry {
        self.retry
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.retry {
            Retry::After(wait) => write!(f, "the rate limit is exceeded; retry after {wait:?}"),
            Retry::Now | Retry::Never => f.write_str("the rate limit can never admit this request"),
        }
    }
}

impl std::error::Error for Denied {}

impl Retry {
    /// Converts the answer of a check to a result.
    fn ok(self) -> Result<(), Denied> {
        match self {
            Self::Now => Ok(()),
            retry @ (Self::After(_) | Self::Never) => Err(Denied { retry }),
        }
    }
}

/// The result of one limit, with its bucket after the decision: the answer of a [`Limiter`](crate::Limiter) and of a
/// [`KeyedLimiter`](crate::KeyedLimiter). Plain data: the numbers are computed by the methods.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Outcome {
    /// `None`: the limit admits nothing.
    pub(crate) meter: Option<Meter>,
    pub(crate) cost: u64,
    pub(crate) verdict: Verdict,
    /// The word that the decision left or found; the limit's period, where there is no meter.
    pub(crate) word: u64,
    /// The time of the decision.
    pub(crate) now: Nanos,
}

impl Outcome {
    /// Returns the outcome as a clock of this resolution can promise it.
    #[inline(always)]
    pub(crate) fn at_resolution(self, resolution: Duration) -> Self {
        let verdict = match self.verdict {
            // The clock may be this far behind when the request is repeated.
            Verdict::Later { wait_ns } => {
                Verdict::Later { wait_ns: wait_ns.saturating_add(saturating_nanos(resolution)) }
            }
            decided => decided,
        };
        Self { verdict, ..self }
    }

    /// Returns whether the request may go on.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self.verdict, Verdict::Admit(_))
    }

    /// Converts the outcome to a result, for callers that return a denial with `?`.
    ///
    /// ```
    /// use tidegate::Limiter;
    ///
    /// fn send(limiter: &Limiter) -> Result<(), Box<dyn std::error::Error>> {
    ///     limiter.check().ok()?;
    ///     // ... send the message ...
    ///     Ok(())
    /// }
    ///
    /// let limiter = Limiter::per_hour(1);
    /// assert!(send(&limiter).is_ok());
    /// let error = send(&limiter).unwrap_err().to_string();
    /// assert!(error.starts_with("the rate limit is exceeded; retry after "), "{error}");
    /// ```
    ///
    /// # Errors
    ///
    /// [`Denied`], if the request was denied.
    pub fn ok(&self) -> Result<(), Denied> {
        self.retry().ok()
    }

    /// Returns when the request may be repeated.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self.verdict {
            Verdict::Admit(_) => Retry::Now,
            Verdict::Later { wait_ns } => Retry::After(Duration::from_nanos(wait_ns)),
            Verdict::Never => Retry::Never,
        }
    }

    /// Returns how long an allowed request should wait before it goes on, so that requests leave a leaky bucket at its
    /// rate. Zero under every other algorithm, and for a denial.
    #[must_use]
    pub fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay_ns())
    }

    #[inline(always)]
    pub(crate) fn delay_ns(&self) -> u64 {
        match self.meter {
            Some(meter) if self.is_allowed() => meter.delay_ns(self.word, self.now, self.cost),
            _ => 0,
        }
    }

    /// Returns the algorithm of the limit; `None` if the limit admits nothing.
    #[must_use]
    pub fn algorithm(&self) -> Option<Algorithm> {
        self.meter.map(|meter| match meter {
            Meter::TokenBucket(_) => Algorithm::TokenBucket,
            Meter::LeakyBucket(_) => Algorithm::LeakyBucket,
            Meter::FixedWindow(_) => Algorithm::FixedWindow,
            Meter::SlidingWindowCounter(_) => Algorithm::SlidingWindowCounter,
            Meter::SlidingWindowLog(_) => Algorithm::SlidingWindowLog,
        })
    }

    /// Returns the most that the limit admits at once: the burst of a bucket, the limit of a window; 0 if it admits
    /// nothing.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.meter.map_or(0, |meter| meter.capacity())
    }

    /// Returns the period that [`limit`](Self::limit) belongs to: the time in which a bucket goes from empty to full,
    /// or the length of a window. For a limit of a policy that admits nothing, it is the period that the policy names.
    #[must_use]
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.meter.map_or(self.word, |meter| meter.period_ns()))
    }

    /// Returns the largest cost that the limit would admit now.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.meter.map_or(0, |meter| meter.remaining(self.word, self.now))
    }

    /// Returns how long it takes until the limit has all of its quota again.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        Duration::from_nanos(self.meter.map_or(0, |meter| meter.reset_after_ns(self.word, self.now)))
    }

    /// Returns the time at which the limit has all of its quota again, if no other call comes meanwhile. It is by the limiter's
    /// clock, which may be [ahead](crate::clock::Clock::ahead) of wall time.
    #[must_use]
    pub fn reset_at(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.now) + self.reset_after()
    }
}

/// The reason why a decision is degraded: a limit that nodes share was decided without its store, or a listener
/// answered without the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Degraded {
    /// No store was asked: there is none, or the check could not wait.
    NoStore,
    /// The store did not answer.
    StoreFailed,
    /// The process that was to decide failed internally.
    InternalError,
    /// The process was overloaded.
    Overload,
}

impl Degraded {
    /// Returns the name that listeners and logs use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoStore => "no_store",
            Self::StoreFailed => "store_failed",
            Self::InternalError => "internal_error",
            Self::Overload => "overload",
        }
    }
}

/// The result of a check. Plain data: the numbers are computed by the methods.
///
/// If several limits apply, it shows the one that decided: the first that refused; or, when allowed, the one with the
/// least remaining.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Decision<'e> {
    /// A [`PolicyOrder`].
    pub(crate) policy_version: u64,
    /// The longest time that any limit makes the request wait.
    pub(crate) delay_ns: u64,
    pub(crate) degraded: Option<Degraded>,
    /// The limit that decided; `None` if no limit applied, and the request is allowed.
    pub(crate) decided_by: Option<DecidedBy>,
    pub(crate) shadows: Shadows,
    pub(crate) names: &'e LimitNames,
}

/// The shadow limits that would have denied.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shadows {
    /// The places of all of them in the plan, as bits.
    pub(crate) places: u64,
    /// The indices of the first ones.
    limits: [u32; SHADOWS_NAMED_MAX],
}

impl Shadows {
    pub(crate) fn push(&mut self, place: usize, limit: u32) {
        if let Some(free) = self.limits.get_mut(self.places.count_ones() as usize) {
            *free = limit;
        }
        self.places |= 1 << place;
    }
}

/// The limit that decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecidedBy {
    /// The place of the limit in the plan.
    pub(crate) place: usize,
    /// The index of the limit.
    pub(crate) limit: u32,
    /// Whether the outcome, with its time, comes from the store that nodes share.
    pub(crate) is_stored: bool,
    pub(crate) outcome: Outcome,
}

impl<'e> Decision<'e> {
    /// Returns the decision that one limit made under the policy of this version. The request is to wait for
    /// `delay_ns`.
    #[inline(always)]
    pub(crate) fn of_one(names: &'e LimitNames, policy_version: u64, by: DecidedBy, delay_ns: u64) -> Self {
        let (degraded, decided_by, shadows) = (None, Some(by), Shadows::default());
        Self { policy_version, delay_ns, degraded, decided_by, shadows, names }
    }

    /// Returns whether the request may go on.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.decided_by.is_none_or(|by| by.outcome.is_allowed())
    }

    /// Converts the decision to a result, for callers that return a denial with `?`.
    ///
    /// # Errors
    ///
    /// [`Denied`], if the request was denied.
    pub fn ok(&self) -> Result<(), Denied> {
        self.retry().ok()
    }

    /// Returns when the request may be repeated.
    #[must_use]
    pub fn retry(&self) -> Retry {
        self.decided_by.map_or(Retry::Now, |by| by.outcome.retry())
    }

    /// Returns how long an allowed request should wait before it goes on, so that requests leave a leaky bucket at its
    /// rate. Zero under every other algorithm, and for a denial.
    #[must_use]
    pub fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay_ns)
    }

    /// Returns the full names of the shadow limits that would have denied the request; eight at most.
    pub fn shadow_denied(&self) -> impl Iterator<Item = &'e str> {
        let count = (self.shadows.places.count_ones() as usize).min(SHADOWS_NAMED_MAX);
        let (limits, names) = (self.shadows.limits, self.names);
        limits.into_iter().take(count).map(|limit| names.name(limit))
    }

    /// Returns why the decision is degraded, if a shared limit was decided without its store, by its `on_failure`.
    #[must_use]
    pub fn degraded(&self) -> Option<Degraded> {
        self.degraded
    }

    /// Returns the full name of the limit that decided; `None` if no limit applied.
    #[must_use]
    pub fn limit_id(&self) -> Option<&'e str> {
        self.decided_by.map(|by| self.names.name(by.limit))
    }

    /// Returns the index of the limit that decided; `None` if no limit applied.
    #[must_use]
    pub fn limit_index(&self) -> Option<LimitIndex> {
        self.decided_by.map(|by| LimitIndex(by.limit))
    }

    /// Returns the most that the limit admits at once: the burst of a bucket, the limit of a window.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.decided_by.map(|by| by.outcome.limit())
    }

    /// Returns the period that [`limit`](Self::limit) belongs to: the time in which a bucket goes from empty to full,
    /// or the length of a window (of a calendar, the mean length).
    #[must_use]
    pub fn period(&self) -> Option<Duration> {
        self.decided_by.map(|by| by.outcome.period())
    }

    /// Returns the largest cost that the limit would admit now.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.decided_by.map(|by| by.outcome.remaining())
    }

    /// Returns how long it takes until the limit has all of its quota again.
    #[must_use]
    pub fn reset_after(&self) -> Option<Duration> {
        self.decided_by.map(|by| by.outcome.reset_after())
    }

    /// Returns the time at which the limit has all of its quota again, if no other request comes meanwhile. It is wall time, as
    /// the engine's clock follows it.
    #[must_use]
    pub fn reset_at(&self) -> Option<SystemTime> {
        let by = self.decided_by?;
        let now = if by.is_stored { by.outcome.now } else { self.names.wall(by.outcome.now) };
        Some(UNIX_EPOCH + Duration::from_nanos(now) + by.outcome.reset_after())
    }

    /// Returns the place in the plan of the limit that decided.
    #[must_use]
    pub fn place(&self) -> Option<usize> {
        self.decided_by.map(|by| by.place)
    }

    /// Returns the version of the policy that decided.
    #[must_use]
    pub fn policy_version(&self) -> u64 {
        PolicyOrder(self.policy_version).version()
    }
}
