//! `Limiter`: one rate for one thing. A bucket and a clock, without a table or a policy.

#[cfg(feature = "wait")]
use crate::limiter::wait_queue::WaitQueue;
use crate::{
    algorithm::{Meter, OneToken, Verdict, rate::Rate},
    base::{
        clock::{Clock, SystemClock},
        time::Nanos,
    },
    engine::decision::Outcome,
    storage::{atomic_update::Next, bucket::Bucket},
};

/// Limits one thing, shared by all threads: a job, a connection to another service. It is one word in memory; a check
/// is one compare-and-swap, and a denial writes nothing.
///
/// ```
/// use tidegate::{Limiter, Retry};
///
/// let limiter = Limiter::per_second(100);
/// match limiter.check().retry() {
///     Retry::Now => println!("go on"),
///     Retry::After(wait) => println!("come back in {wait:?}"),
///     Retry::Never => println!("not at any time"),
/// }
/// ```
///
/// [`Rate`] sets the burst too, and any [`Meter`] can take its place:
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Limiter, Rate, algorithm::{FixedWindow, Meter}};
///
/// let even = Limiter::new(Rate::per_second(100).burst(1));
/// assert_eq!(even.check().remaining(), 0);
///
/// let daily = Limiter::new(Meter::FixedWindow(FixedWindow::new(1_000, Duration::from_hours(24))?));
/// assert_eq!(daily.check_n(10).remaining(), 990);
/// # Ok::<(), tidegate::algorithm::Unfit>(())
/// ```
#[derive(Debug)]
pub struct Limiter<C = SystemClock> {
    /// The numbers of the limit; `None` if it admits nothing.
    pub(crate) meter: Option<Meter>,
    /// The step of checks that cost one token, where it can be computed in advance.
    one_token: Option<OneToken>,
    bucket: Bucket,
    clock: C,
    #[cfg(feature = "wait")]
    pub(crate) queue: WaitQueue,
}

constructors_by_rate!(Limiter, ", and as many at once.");

impl Limiter {
    /// Returns a limiter by a [`Rate`] or a [`Meter`]. `None` denies everything.
    #[must_use]
    pub fn new(meter: impl Into<Option<Meter>>) -> Self {
        Self::with_clock(meter, SystemClock::new())
    }
}

impl<C: Clock> Limiter<C> {
    /// Returns a limiter as [`new`](Limiter::new) does, by another clock: for tests and simulation.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tidegate::{Limiter, Rate, Retry, clock::ManualClock};
    ///
    /// let clock = ManualClock::at(SystemTime::UNIX_EPOCH);
    /// let limiter = Limiter::with_clock(Rate::per_second(10).burst(1), clock.clone());
    /// assert!(limiter.check().is_allowed());
    /// assert_eq!(limiter.check().retry(), Retry::After(Duration::from_millis(100)));
    /// clock.advance(Duration::from_millis(100));
    /// assert!(limiter.check().is_allowed());
    /// ```
    #[must_use]
    pub fn with_clock(meter: impl Into<Option<Meter>>, clock: C) -> Self {
        let meter = meter.into();
        Self {
            one_token: meter.and_then(|meter| meter.one_token()),
            meter,
            bucket: Bucket::new(),
            clock,
            #[cfg(feature = "wait")]
            queue: WaitQueue::default(),
        }
    }

    /// Charges one token, or changes nothing and says why not.
    #[inline(always)]
    pub fn check(&self) -> Outcome {
        match self.one_token {
            Some(one_token) => self.charge_by(self.meter, 1, |word, now| one_token.step(word, now)),
            None => self.check_n(1),
        }
    }

    /// Charges `cost` tokens, all or nothing. A cost above the limit's capacity is never allowed, one of 0 charges
    /// nothing.
    #[inline]
    pub fn check_n(&self, cost: u64) -> Outcome {
        if cost == 0 {
            return self.peek_n(cost);
        }
        self.charge(self.meter, cost)
    }

    /// Returns what [`check`](Self::check) would answer now. Charges nothing.
    pub fn peek(&self) -> Outcome {
        self.peek_n(1)
    }

    /// Returns what [`check_n`](Self::check_n) would answer now. Charges nothing.
    pub fn peek_n(&self, cost: u64) -> Outcome {
        let now = self.clock.now().as_nanos();
        let word = self.bucket.update(Next::Leave);
        let verdict = self.meter.map_or(Verdict::Never, |meter| meter.step(word, now, cost));
        let word = verdict.admitted().unwrap_or(word);
        Outcome { meter: self.meter, cost, verdict, word, now }.at_resolution(self.clock.resolution())
    }

    #[inline(always)]
    pub(crate) fn charge(&self, meter: Option<Meter>, cost: u64) -> Outcome {
        self.charge_by(meter, cost, |word, now| meter.map_or(Verdict::Never, |meter| meter.step(word, now, cost)))
    }

    /// Charges what `step` admits. `meter` and `cost` are those that `step` uses.
    #[inline(always)]
    fn charge_by(&self, meter: Option<Meter>, cost: u64, step: impl Fn(u64, Nanos) -> Verdict) -> Outcome {
        let now = self.clock.now().as_nanos();
        let (verdict, word) = self.bucket.update(|word| match step(word, now) {
            verdict @ Verdict::Admit(after) => Next::Write(after, (verdict, after)),
            verdict => Next::Leave((verdict, word)),
        });
        Outcome { meter, cost, verdict, word, now }.at_resolution(self.clock.resolution())
    }

    /// Returns the clock that the limiter reads.
    #[must_use]
    pub fn clock(&self) -> &C {
        &self.clock
    }
}
