//! The slowest checks while policies are swapped: p99.99 with and without, beside a control that only reads the clock.

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

use crate::{comparison::Ask, histogram::Histogram, record::Spread, threads::now};

/// From one swap to the next.
pub const EVERY: Duration = Duration::from_millis(10);

/// The share of checks that take no longer than what is reported.
pub const QUANTILE: f64 = 0.9999;

/// Nanoseconds at the [`QUANTILE`], over slices of time.
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    /// Of checks; each with one reading of the clock.
    pub checks: Spread,
    /// Of the control: of reading the clock for as long as a check takes. What the machine does to whoever runs on it.
    pub control: Spread,
}

/// What was found, and how often it was published.
#[derive(Clone, Copy, Debug)]
pub struct Tails {
    /// While the policies are swapped.
    pub with: Tail,
    /// While nothing is published.
    pub without: Tail,
    /// How often the policy was swapped.
    pub publishes: u64,
}

/// Measures `slices` slices of each of four kinds by turns, each of this length: checks and the control, with a second thread
/// that publishes `policies` by turns, and without.
///
/// The control has slices of its own: where there are two processors, it would take the publisher's, who would then interrupt
/// the checks.
///
/// # Panics
///
/// Where a policy cannot be published.
pub fn measure(
    engine: &Engine,
    ask: &impl Ask,
    numbers: &[u32],
    policies: &[Arc<Snapshot>; 2],
    (slices, time): (usize, Duration),
    mut tell: impl FnMut(usize),
) -> Tails {
    let mut ask = ask.asker();
    let mut numbers = numbers.iter().cycle();
    let mut check = || {
        black_box(numbers.next().is_some_and(|&number| ask(number.into())));
    };
    let clock = quanta::Clock::new();
    let began = clock.raw();
    (0..10_000).for_each(|_| check());
    let as_long = (clock.raw() - began) / 10_000;
    let mut control = || {
        let began = clock.raw();
        while clock.raw() - began < as_long {}
    };
    let (mut found, mut publishes) = ([const { Vec::new() }; 4], 0);
    for slice in 0..4 * slices {
        tell(slice);
        // Backwards every second time.
        let kind = if slice / 4 % 2 == 0 { slice % 4 } else { 3 - slice % 4 };
        let is_over = AtomicBool::new(kind % 2 == 0);
        let tail = thread::scope(|scope| {
            let other = scope.spawn(|| publish(engine, policies, &is_over));
            let tail = if kind < 2 { tail_of(time, &mut check) } else { tail_of(time, &mut control) };
            is_over.store(true, Ordering::Relaxed);
            publishes += other.join().expect("no panic");
            tail
        });
        found[kind].push(tail);
    }
    let [checks, checks_with, control, control_with] = found.map(Spread::of);
    Tails { with: Tail { checks: checks_with, control: control_with }, without: Tail { checks, control }, publishes }
}

/// Publishes the policies by turns, one [`EVERY`] 10 ms, until it is over; answers how many.
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

/// Does it again and again for this long, and answers how long it took at the [`QUANTILE`].
fn tail_of(time: Duration, work: &mut impl FnMut()) -> f64 {
    let (clock, mut histogram) = (quanta::Clock::new(), Histogram::default());
    let (ends, mut looks) = (now() + time, 0_u32);
    // The clock of the end is read seldom, and outside of what is measured.
    while !looks.is_multiple_of(256) || now() < ends {
        looks = looks.wrapping_add(1);
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
        random::{Numbers, drawn},
    };

    #[test]
    fn both_kinds_of_slices_are_measured_and_publishes_happen_in_one_of_them() {
        let (full, policies) = (FullCheck::new(), [snapshot("pro", 1_000), snapshot("team", 1_000)]);
        let mut numbers = Numbers::new(7, CLIENTS as u64);
        let numbers = drawn(1_024, || numbers.draw());
        let before = full.engine.version();
        let tails = measure(&full.engine, &full, &numbers, &policies, (2, Duration::from_millis(50)), |_| ());
        assert!(tails.publishes >= 4 && full.engine.version() == before + tails.publishes, "{tails:?}");
        assert!(tails.with.checks.median > 0.0 && tails.without.control.median > 0.0, "{tails:?}");
    }
}
