//! The coarse clock, which shows the time of its last tick.

use std::{
    fmt, io,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use crossbeam_utils::CachePadded;

use super::{Clock, SystemClock, WallSteps, raise};
use crate::base::{
    atomic::Cell64,
    time::{Nanos, Timestamp},
};

/// The shortest tick: below, a sleeping thread does not wake in time.
const TICK_MIN: Duration = Duration::from_millis(1);

/// The longest tick.
const TICK_MAX: Duration = Duration::from_secs(1);

/// The time that marks a clock whose thread has ended. It is later than every real time.
const NO_THREAD: Nanos = Nanos::MAX;

/// Shows the time of its last tick, so that a reading is one load of a number that hardly ever changes.
///
/// A decision is up to a tick behind the time, which only ever denies; the wait of a denied request is a tick longer, so that
/// waiting is enough. The thread that ticks does so twice per tick: a wake-up that comes half a tick late keeps that
/// promise, and one that comes later yet makes a request wait once more.
///
/// The thread ends after the last clone is dropped. If it ends earlier, by a panic in the source, every reading is one of the
/// source.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Engine, clock::CoarseClock};
///
/// let engine = Engine::with_clock(1_000, CoarseClock::start(Duration::from_millis(1))?);
/// # Ok::<(), tidegate::clock::TickError>(())
/// ```
#[derive(Debug)]
pub struct CoarseClock<C = SystemClock>(Arc<CachePadded<Shown<C>>>);

/// The last tick of a clock, and the source of its time.
#[derive(Debug)]
struct Shown<C> {
    time: Cell64,
    tick: Duration,
    source: C,
}

/// The error for a coarse clock that could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum TickError {
    /// The tick is shorter than a millisecond or longer than a second.
    OutOfRange(Duration),
    /// The system did not start a thread.
    Thread(io::Error),
}

impl fmt::Display for TickError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange(tick) => {
                write!(f, "tick: {tick:?} is out of range; from {TICK_MIN:?} to {TICK_MAX:?} work")
            }
            Self::Thread(_) => f.write_str("the thread that moves the clock could not be started"),
        }
    }
}

impl std::error::Error for TickError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Thread(error) => Some(error),
            Self::OutOfRange(_) => None,
        }
    }
}

impl CoarseClock {
    /// Starts a clock that shows the time of a new [`SystemClock`], about `tick` old at most: from a millisecond to a second.
    pub fn start(tick: Duration) -> Result<Self, TickError> {
        Self::over(SystemClock::new(), tick)
    }
}

impl<C: Clock> CoarseClock<C> {
    /// Does the same as [`start`](CoarseClock::start) for the time of any clock.
    pub fn over(source: C, tick: Duration) -> Result<Self, TickError> {
        let clock = Self::by_hand(source, tick)?;
        let shown = Arc::downgrade(&clock.0);
        thread::Builder::new()
            .name("tidegate-clock".to_owned())
            .spawn(move || keep_ticking(&shown, tick / 2))
            .map_err(TickError::Thread)?;
        Ok(clock)
    }

    /// Makes a clock without a thread, for tests, and for programs that call [`tick`](Self::tick) themselves at least once every
    /// `tick`.
    pub fn by_hand(source: C, tick: Duration) -> Result<Self, TickError> {
        if !(TICK_MIN..=TICK_MAX).contains(&tick) {
            return Err(TickError::OutOfRange(tick));
        }
        Ok(Self(Arc::new(CachePadded::new(Shown { time: Cell64::new(source.now().as_nanos()), tick, source }))))
    }

    /// Shows the source's time from now on.
    pub fn tick(&self) {
        self.0.tick();
    }
}

impl<C: Clock> Shown<C> {
    fn tick(&self) {
        raise(&self.time, self.source.now().as_nanos());
    }
}

impl<C: Clock> Clock for CoarseClock<C> {
    #[inline]
    fn now(&self) -> Timestamp {
        match self.0.time.load() {
            NO_THREAD => self.0.source.now(),
            time => Timestamp::from_nanos(time),
        }
    }

    fn ahead(&self) -> Duration {
        self.0.source.ahead()
    }

    fn wall_steps(&self) -> WallSteps {
        self.0.source.wall_steps()
    }

    fn resolution(&self) -> Duration {
        self.0.source.resolution().saturating_add(self.0.tick)
    }
}

impl<C> Clone for CoarseClock<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Ticks until the last clone of the clock is dropped.
fn keep_ticking<C: Clock>(shown: &Weak<CachePadded<Shown<C>>>, pause: Duration) {
    let _guard = TickingGuard(shown);
    while let Some(shown) = shown.upgrade() {
        shown.tick();
        // While this thread sleeps, the last clone may be dropped.
        drop(shown);
        thread::sleep(pause);
    }
}

/// Marks the clock as one without a thread when its thread ends, also by a panic.
struct TickingGuard<'s, C>(&'s Weak<CachePadded<Shown<C>>>);

impl<C> Drop for TickingGuard<'_, C> {
    fn drop(&mut self) {
        if let Some(shown) = self.0.upgrade() {
            raise(&shown.time, NO_THREAD);
        }
    }
}
