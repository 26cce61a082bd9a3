//! Methods that wait for a token instead of being denied, with the feature `wait`.

use tokio::time::Instant;

use crate::{
    algorithm::Meter,
    base::{clock::Clock, key::Key},
    limiter::{keyed::KeyedLimiter, single::Limiter, wait_queue::WaitError},
};

impl<C: Clock> Limiter<C> {
    /// Waits until there is a token, and takes it: for calls to another service.
    ///
    /// * **A future that is dropped before it is ready has taken nothing.** The token is taken in the very poll that
    ///   ends the wait, so timeouts and `select!` lose none.
    /// * Waiting tasks are served in the order of their first polls; one that wants little does not overtake one that
    ///   wants much. A [`check`](Self::check) does not queue: if it is faster than the first waiting task, that task
    ///   goes on waiting.
    /// * A leaky bucket makes no task wait twice: a task that has its token goes on at once, without a delay.
    ///
    /// It sleeps by tokio's timers, so it needs a tokio runtime with time enabled, and a limiter whose clock moves by
    /// itself. Those timers tick once a millisecond: from a few hundred tokens a second on, a burst worth several
    /// milliseconds is needed to reach the rate.
    ///
    /// # Errors
    ///
    /// [`WaitError::Never`], if the limit admits nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tidegate::WaitError> {
    /// use tidegate::{Limiter, Rate};
    ///
    /// let pace = Limiter::new(Rate::per_second(50).burst(1));
    /// for page in 1..=3 {
    ///     pace.wait().await?;
    ///     println!("fetch page {page}"); // every 20 ms
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait(&self) -> Result<(), WaitError> {
        self.wait_n(1).await
    }

    /// Waits as [`wait`](Self::wait) does, for `cost` tokens, all or nothing. A cost of 0 does not wait.
    ///
    /// # Errors
    ///
    /// [`WaitError::Never`], if the cost is above the limit's capacity, or the limit admits nothing.
    pub async fn wait_n(&self, cost: u64) -> Result<(), WaitError> {
        self.wait_before(cost, None).await
    }

    /// Waits as [`wait`](Self::wait) does, but ends when it is clear that there will be no token by `deadline`: at once
    /// if the task is the first in the queue, otherwise at the deadline. With a deadline in the past it takes a token
    /// now or not at all.
    ///
    /// # Errors
    ///
    /// [`WaitError::TooLate`]; [`WaitError::Never`], if the limit admits nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tidegate::WaitError> {
    /// use std::time::{Duration, Instant};
    /// use tidegate::{Limiter, WaitError};
    ///
    /// let limiter = Limiter::per_minute(1);
    /// let soon = Instant::now() + Duration::from_secs(2);
    /// limiter.wait_until(soon).await?;
    /// assert_eq!(limiter.wait_until(soon).await, Err(WaitError::TooLate)); // without waiting
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_until(&self, deadline: impl Into<Instant>) -> Result<(), WaitError> {
        self.wait_n_until(1, deadline).await
    }

    /// Waits as [`wait_until`](Self::wait_until) does, for `cost` tokens, all or nothing. A cost of 0 does not wait.
    ///
    /// # Errors
    ///
    /// Those of [`wait_n`](Self::wait_n) and [`wait_until`](Self::wait_until).
    pub async fn wait_n_until(&self, cost: u64, deadline: impl Into<Instant>) -> Result<(), WaitError> {
        self.wait_before(cost, Some(deadline.into())).await
    }

    async fn wait_before(&self, cost: u64, deadline: Option<Instant>) -> Result<(), WaitError> {
        let meter = waited_for(self.meter, cost)?;
        if cost == 0 {
            return Ok(());
        }
        self.queue.wait(deadline, || self.charge(Some(meter), cost)).await
    }
}

impl<C: Clock> KeyedLimiter<C> {
    /// Waits until there is a token for `key`, and takes it: for calls to many services, each at its own pace.
    ///
    /// It works as [`Limiter::wait`] does, with a queue for each key that tasks wait for. **A future that is dropped
    /// before it is ready has taken nothing.**
    ///
    /// # Errors
    ///
    /// [`WaitError::Never`], if the limit admits nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tidegate::WaitError> {
    /// use tidegate::{KeyedLimiter, Rate};
    ///
    /// let pace = KeyedLimiter::with_max_keys(Rate::per_second(50).burst(1), 1_000);
    /// for (host, page) in [("a.example", 1), ("b.example", 1), ("a.example", 2)] {
    ///     pace.wait(host).await?;
    ///     println!("fetch page {page} of {host}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait(&self, key: impl Key) -> Result<(), WaitError> {
        self.wait_n(key, 1).await
    }

    /// Waits as [`wait`](Self::wait) does, for `cost` tokens, all or nothing. A cost of 0 does not wait.
    ///
    /// # Errors
    ///
    /// [`WaitError::Never`], if the cost is above the limit's capacity, or the limit admits nothing.
    pub async fn wait_n(&self, key: impl Key, cost: u64) -> Result<(), WaitError> {
        self.wait_before(key, cost, None).await
    }

    /// Waits as [`wait`](Self::wait) does, but no longer than until `deadline`, as [`Limiter::wait_until`] does.
    ///
    /// # Errors
    ///
    /// [`WaitError::TooLate`]; [`WaitError::Never`], if the limit admits nothing.
    pub async fn wait_until(&self, key: impl Key, deadline: impl Into<Instant>) -> Result<(), WaitError> {
        self.wait_n_until(key, 1, deadline).await
    }

    /// Waits as [`wait_until`](Self::wait_until) does, for `cost` tokens, all or nothing. A cost of 0 does not wait.
    ///
    /// # Errors
    ///
    /// Those of [`wait_n`](Self::wait_n) and [`wait_until`](Self::wait_until).
    pub async fn wait_n_until(&self, key: impl Key, cost: u64, deadline: impl Into<Instant>) -> Result<(), WaitError> {
        self.wait_before(key, cost, Some(deadline.into())).await
    }

    async fn wait_before(&self, key: impl Key, cost: u64, deadline: Option<Instant>) -> Result<(), WaitError> {
        let limit = self.limit.with_meter(waited_for(self.limit.meter, cost)?);
        if cost == 0 {
            return Ok(());
        }
        let hash = self.hash(&key);
        let place = self.queues.join(hash.0);
        place.queue.wait(deadline, || self.charge(&limit, hash, cost)).await
    }
}

/// Returns the meter for a waiting task: the limit's numbers, without a delay after the wait.
fn waited_for(meter: Option<Meter>, cost: u64) -> Result<Meter, WaitError> {
    meter.filter(|meter| cost <= meter.capacity()).map(Meter::undelayed).ok_or(WaitError::Never)
}
