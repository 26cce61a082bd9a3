//! Tail latency of checks while policies are published: p99.99 with and without, beside a control that only reads the clock.

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use tidegate::{Engine, Publish, Snapshot};

use crate::{contender::TestedLimiter, histogram::Histogram, spread::Spread, threads::now};

/// The time from one publish to the next.
pub const EVERY: Duration = Duration::from_millis(10);

/// The quantile that is reported.
pub const QUANTILE: f64 = 0.9999;

/// The [`QUANTILE`] over slices of time, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct TailLatency {
    /// The quantile of checks, each with one reading of the clock.
    pub checks: Spread,
    /// The quantile of the control, which reads the clock for as long as a check takes: the delays that the machine imposes on
    /// any thread.
    pub control: Spread,
}

/// The tail latency with and without publishing.
#[derive(Clone, Copy, Debug)]
pub struct PublishingResult {
    /// The tail latency while policies are published.
    pub with: TailLatency,
    /// The tail latency while no policy is published.
    pub without: TailLatency,
    /// The number of publishes.
    pub publishes: u64,
}

/// Measures four kinds of slices in turns: checks and the control, each with a second thread that publishes `policies` in turns,
/// and without. There are `slices` slices of each kind, each of the length `time`.
///
/// The control has slices of its own. In a thread beside the checks it would occupy the publisher's processor if there are only
/// two, and the publisher would then interrupt the checks.
///
/// # Panics
///
/// If a policy cannot be published.
pub fn measure(
    engine: &Engine,
    limiter: &impl TestedLimiter,
    numbers: &[u32],
    policies: &[Arc<Snapshot>; 2],
    (slices, time): (usize, Duration),
    mut on_slice: impl FnMut(usize),
) -> PublishingResult {
    let mut check_key = limiter.checker();
    let mut numbers = numbers.iter().cycle();
    let mut check = || {
        black_box(numbers.next().is_some_and(|&number| check_key(number.into())));
    };
    let clock = quanta::Clock::new();
    let began = clock.raw();
    (0..10_000).for_each(|_| check());
    let check_time = (clock.raw() - began) / 10_000;
    let mut control = || {
        let began = clock.raw();
        while clock.raw() - began < check_time {}
    };
    let (mut tails, mut publishes) = ([const { Vec::new() }; 4], 0);
    for slice in 0..4 * slices {
        on_slice(slice);
        // Every second turn goes backwards.
        let kind = if slice / 4 % 2 == 0 { slice % 4 } else { 3 - slice % 4 };
        let is_over = AtomicBool::new(kind % 2 == 0);
        let tail = thread::scope(|scope| {
            let second_thread = scope.spawn(|| publish(engine, policies, &is_over));
            let tail = if kind < 2 { tail_latency(time, &mut check) } else { tail_latency(time, &mut control) };
            is_over.store(true, Ordering::Relaxed);
            publishes += second_thread.join().expect("no panic");
            tail
        });
        tails[kind].push(tail);
    }
    let [checks, checks_with, control, control_with] = tails.map(Spread::of);
    PublishingResult {
        with: TailLatency { checks: checks_with, control: control_with },
        without: TailLatency { checks, control },
        publishes,
    }
}

/// Publishes the policies in turns, one in each period of [`EVERY`], until `is_over`; returns the number of publishes.
fn publish(engine: &Engine, policies: &[Arc<Snapshot>; 2], is_over: &AtomicBool) -> u64 {
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        let began = now();
        engine.publish(Publish::of(Arc::clone(&policies[count as usize % 2]))).expect("few limits");
        count += 1;
        thread::sleep(EVERY.saturating_sub(began.elapsed()));
    }
    count
}

/// Runs `work` again and again for `time`, and returns the [`QUANTILE`] of its duration in nanoseconds.
fn tail_latency(time: Duration, work: &mut impl FnMut()) -> f64 {
    let (clock, mut histogram) = (quanta::Clock::new(), Histogram::default());
    let (end, mut runs) = (now() + time, 0_u32);
    // The clock that decides the end is read rarely, and outside the measured time.
    while !runs.is_multiple_of(256) || now() < end {
        runs = runs.wrapping_add(1);
        let began = clock.raw();
        work();
        histogram.record(clock.delta_as_nanos(began, clock.raw()));
    }
    histogram.quantile(QUANTILE) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        full_check::{CLIENTS, FullCheck, snapshot},
        random::{Uniform, draw_many},
    };

    #[test]
    fn checks_are_measured_with_and_without_publishes() {
        let (full, policies) = (FullCheck::new(), [snapshot("pro", 1_000), snapshot("team", 1_000)]);
        let mut numbers = Uniform::new(7, CLIENTS as u64);
        let numbers = draw_many(1_024, || numbers.draw());
        let before = full.engine.version();
        let tails = measure(&full.engine, &full, &numbers, &policies, (2, Duration::from_millis(50)), |_| ());
        assert!(tails.publishes >= 4 && full.engine.version() == before + tails.publishes, "{tails:?}");
        assert!(tails.with.checks.median > 0.0 && tails.without.control.median > 0.0, "{tails:?}");
    }
}
