//! Threads that do the same at the same time, and how long it took them.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// A thread does so many checks between two looks at whether the others are through.
pub const CHUNK: usize = 256;

/// What some threads did together.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// Nanoseconds that a thread needed for each check, the mean of their rates.
    pub ns: f64,
    /// The share of the time, from the first's start to the last's end, in which all of them were at it.
    pub overlap: f64,
    /// The share of their time in which they had a processor; 1 where the system does not say.
    pub on_processor: f64,
}

impl Slice {
    /// How long so many checks take at that rate.
    #[must_use]
    pub fn time_of(&self, checks: u64) -> Duration {
        Duration::from_secs_f64(self.ns * checks as f64 * 1e-9)
    }
}

/// The time, for measuring.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "benchmarks measure")]
pub fn now() -> Instant {
    Instant::now()
}

struct Stint {
    began: Instant,
    ended: Instant,
    checks: u64,
    on_processor: Duration,
}

/// Lets `threads` threads do chunk after chunk, all at once, until the first has done `chunks` of them; so none is measured
/// while it is alone. Each does one at least. Each makes what it works with first: `make(thread)` gives what does a chunk.
///
/// # Panics
///
/// When a thread does.
pub fn together<W: FnMut()>(threads: usize, chunks: u64, make: impl Fn(usize) -> W + Sync) -> Slice {
    let (start, is_over) = (Barrier::new(threads), AtomicBool::new(false));
    let run = |thread: usize| {
        let mut work = make(thread);
        start.wait();
        let (before, began) = (processor_time(), now());
        let mut done = 0;
        loop {
            work();
            done += 1;
            if done >= chunks || is_over.load(Ordering::Relaxed) {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let ended = now();
        let on_processor =
            processor_time().zip(before).map_or(ended - began, |(after, before)| after.saturating_sub(before));
        Stint { began, ended, checks: done * CHUNK as u64, on_processor }
    };
    let stints: Vec<Stint> = if threads == 1 {
        vec![run(0)]
    } else {
        thread::scope(|scope| {
            let run = &run;
            let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
            running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        })
    };
    sum_up(&stints)
}

fn sum_up(stints: &[Stint]) -> Slice {
    let seconds = |stint: &Stint| (stint.ended - stint.began).as_secs_f64();
    let rate: f64 = stints.iter().map(|stint| stint.checks as f64 / seconds(stint)).sum();
    let all: f64 = stints.iter().map(seconds).sum();
    let ends = || stints.iter().map(|stint| stint.ended);
    let begins = || stints.iter().map(|stint| stint.began);
    let between = |from: Option<Instant>, to: Option<Instant>| {
        to.zip(from).map_or(0.0, |(to, from)| to.saturating_duration_since(from).as_secs_f64())
    };
    Slice {
        ns: stints.len() as f64 / rate * 1e9,
        overlap: between(begins().max(), ends().min()) / between(begins().min(), ends().max()),
        on_processor: stints.iter().map(|stint| stint.on_processor.as_secs_f64()).sum::<f64>() / all,
    }
}

/// How long this thread has had a processor.
fn processor_time() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
    }
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn the_first_that_is_through_ends_the_slice_for_all() {
        let chunks = [AtomicU64::new(0), AtomicU64::new(0)];
        let slice = together(2, 100, |thread| {
            let done = &chunks[thread];
            move || {
                thread::sleep(Duration::from_millis(if thread == 0 { 1 } else { 5 }));
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        let done = chunks.map(AtomicU64::into_inner);
        assert_eq!(done[0].max(done[1]), 100);
        assert!(done[0] + done[1] < 200, "the slower one was not waited for");
        assert!(slice.overlap > 0.0 && slice.on_processor < 1.0, "they slept: {slice:?}");
    }

    #[test]
    fn the_rate_is_the_mean_of_the_rates_of_threads() {
        let began = now();
        let stint = |from: u64, to: u64, checks: u64| Stint {
            began: began + Duration::from_millis(from),
            ended: began + Duration::from_millis(to),
            checks,
            on_processor: Duration::from_millis((to - from) / 2),
        };
        // 100 and 300 checks a millisecond: 200 on average, 5,000 ns each.
        let slice = sum_up(&[stint(0, 10, 1_000), stint(2, 12, 3_000)]);
        assert!((slice.ns - 5_000.0).abs() < 1e-6, "{slice:?}");
        assert!((slice.overlap - 8.0 / 12.0).abs() < 1e-9, "{slice:?}");
        assert!((slice.on_processor - 0.5).abs() < 1e-9, "{slice:?}");
        assert_eq!(slice.time_of(2).as_micros(), 10);
    }
}
