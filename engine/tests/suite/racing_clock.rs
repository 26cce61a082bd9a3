//! A clock and a helper by which two threads are certain to race.

use std::{
    hint::spin_loop,
    ops::Deref,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use tidegate::{
    Engine,
    clock::{Clock, ManualClock},
    time::Timestamp,
};

/// A clock where threads meet. A check reads it between reading a slot and swapping it, so one that waits here for another
/// to come by loses its race, also on a machine that lets threads run by turns.
#[derive(Clone)]
pub(crate) struct RacingClock(Arc<Shared>);

struct Shared {
    clock: ManualClock,
    /// The number of threads that read the clock.
    threads: AtomicU64,
    readings: AtomicU64,
}

impl RacingClock {
    /// Makes a clock that stands at `ns`.
    pub(crate) fn at(ns: u64) -> Self {
        let (threads, readings) = (AtomicU64::new(0), AtomicU64::new(0));
        Self(Arc::new(Shared { clock: ManualClock::at(Timestamp::from_nanos(ns)), threads, readings }))
    }
}

impl Deref for RacingClock {
    type Target = ManualClock;

    fn deref(&self) -> &ManualClock {
        &self.0.clock
    }
}

impl Clock for RacingClock {
    fn now(&self) -> Timestamp {
        let Shared { clock, threads, readings } = &*self.0;
        let before = readings.fetch_add(1, Ordering::SeqCst);
        let is_met = || readings.load(Ordering::SeqCst) != before + 1 || threads.load(Ordering::SeqCst) < 2;
        // Not every time, and not for ever: all sorts of races are wanted.
        for turn in 0..if before.is_multiple_of(16) { 100_000 } else { 0 } {
            if is_met() {
                break;
            }
            if turn % 64 == 63 { thread::yield_now() } else { spin_loop() }
        }
        clock.now()
    }
}

/// The sum of what `work` answers on two threads that begin together.
pub(crate) fn together(engine: &Engine<RacingClock>, work: impl Fn(usize) -> u64 + Sync) -> u64 {
    let (start, threads) = (Barrier::new(2), &engine.clock().0.threads);
    let run = |thread| {
        threads.fetch_add(1, Ordering::SeqCst);
        start.wait();
        let sum = work(thread);
        threads.fetch_sub(1, Ordering::SeqCst);
        sum
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| run(1));
        run(0) + other.join().expect("no panic")
    })
}
