//! The slowest checks while policies are swapped: p99.99 with and without, beside a thread that only reads the clock.

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use tidegate::{Engine, Publish, Snapshot};

use crate::{contest::Ask, figures::Spread, histogram::Histogram, threads::now};

/// From one swap to the next.
pub const EVERY: Duration = Duration::from_millis(10);

/// The share of checks that take no longer than what is reported.
pub const QUANTILE: f64 = 0.9999;

/// Nanoseconds at the [`QUANTILE`], over slices of time.
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    /// Of checks; each with one reading of the clock.
    pub checks: Spread,
    /// Of the control: the time from one reading of the clock to the next, on another thread at the same time.
    pub control: Spread,
}

/// With publishing, without it, and how often it was published.
#[derive(Clone, Copy, Debug)]
pub struct Tails {
    /// While the policies are swapped.
    pub with: Tail,
    /// While nothing is published.
    pub without: Tail,
    /// How often the policy was swapped.
    pub publishes: u64,
}

/// Measures `slices` slices of each kind in turns, each of this length. One thread checks, one is the control, and a third one
/// publishes `policies` by turns; that one sleeps most of the time, and where there are two processors takes its moments from
/// either of the others, which costs a check or two per publish: one in 70,000 is not seen at the quantile.
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
    let (mut found, publishes) = ([vec![], vec![]], AtomicU64::new(0));
    for slice in 0..2 * slices {
        tell(slice);
        // Without first, then with first, by turns.
        let publishing = (slice + slice / 2) % 2 == 1;
        let is_over = AtomicBool::new(false);
        let tail = thread::scope(|scope| {
            let is_over = &is_over;
            let control = scope.spawn(move || tail_of(is_over, &mut || ()));
            let checks = scope.spawn(move || {
                let (mut ask, mut numbers) = (ask.asker(), numbers.iter().cycle());
                tail_of(is_over, &mut || {
                    black_box(numbers.next().is_some_and(|&number| ask(number.into())));
                })
            });
            let ends = now() + time;
            while now() < ends {
                let began = now();
                if publishing {
                    let policy = &policies[publishes.fetch_add(1, Ordering::Relaxed) as usize % 2];
                    engine.publish(Publish::of(Arc::clone(policy))).expect("was published before");
                }
                thread::sleep(EVERY.saturating_sub(began.elapsed()));
            }
            is_over.store(true, Ordering::Relaxed);
            [checks, control].map(|thread| thread.join().expect("no panic"))
        });
        found[usize::from(publishing)].push(tail);
    }
    let spread = |slices: &[[f64; 2]]| {
        let of = |which: usize| Spread::of(slices.iter().map(|tail| tail[which]));
        Tail { checks: of(0), control: of(1) }
    };
    Tails { with: spread(&found[1]), without: spread(&found[0]), publishes: publishes.into_inner() }
}

/// Does it again and again, and answers how long it took at the [`QUANTILE`].
fn tail_of(is_over: &AtomicBool, work: &mut impl FnMut()) -> f64 {
    let (clock, mut histogram) = (quanta::Clock::new(), Histogram::default());
    let mut last = clock.raw();
    while !is_over.load(Ordering::Relaxed) {
        work();
        let now = clock.raw();
        histogram.record(clock.delta_as_nanos(last, now));
        // Recording is not part of what is measured.
        last = clock.raw();
    }
    histogram.quantile(QUANTILE) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        full_check::{CLIENTS, FullCheck, snapshot},
        numbers::{Numbers, drawn},
    };

    #[test]
    fn both_kinds_of_slices_are_measured_and_publishes_happen_in_one_of_them() {
        let (full, policies) = (FullCheck::new(), [snapshot("pro", 1_000), snapshot("team", 1_000)]);
        let mut numbers = Numbers::new(7, CLIENTS as u64);
        let numbers = drawn(1_024, || numbers.draw());
        let before = full.engine.version();
        let tails = measure(&full.engine, &&full, &numbers, &policies, (2, Duration::from_millis(50)), |_| ());
        assert!(tails.publishes >= 4 && full.engine.version() == before + tails.publishes, "{tails:?}");
        assert!(tails.with.checks.median > 0.0 && tails.without.control.median > 0.0, "{tails:?}");
    }
}
