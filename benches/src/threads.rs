//! Runs the same work on several threads at the same time, and measures how long it takes.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// The number of checks that a thread makes before it looks whether another thread has finished.
pub const CHUNK: usize = 256;

/// The figures of threads that ran together for a slice of time.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// Nanoseconds per check of a thread, from the mean of the threads' rates.
    pub ns: f64,
    /// The share of the time from the first start to the last end in which all threads ran.
    pub overlap: f64,
    /// The share of the threads' time in which they had a processor; 1 if the system does not show it.
    pub on_processor: f64,
}

impl Slice {
    /// Returns how long `checks` checks take at this rate.
    #[must_use]
    pub fn time_of(&self, checks: u64) -> Duration {
        Duration::from_secs_f64(self.ns * checks as f64 * 1e-9)
    }
}

/// Returns the current time of the monotonic clock, for measurements.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "benchmarks measure")]
pub fn now() -> Instant {
    Instant::now()
}

/// The run of one thread in a slice.
struct ThreadRun {
    began: Instant,
    ended: Instant,
    checks: u64,
    on_processor: Duration,
}

/// Runs chunk after chunk on all threads at once until the first thread has done `chunks` of them, so that no thread is
/// measured while it runs alone. Each thread does at least one chunk. `make(thread)` returns the function that does a chunk;
/// each thread calls it before the measurement begins.
///
/// # Panics
///
/// If a thread panics.
pub fn run_together<W: FnMut()>(threads: usize, chunks: u64, make: impl Fn(usize) -> W + Sync) -> Slice {
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
        ThreadRun { began, ended, checks: done * CHUNK as u64, on_processor }
    };
    let runs: Vec<ThreadRun> = if threads == 1 {
        vec![run(0)]
    } else {
        thread::scope(|scope| {
            let run = &run;
            let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
            running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        })
    };
    summarize(&runs)
}

fn summarize(runs: &[ThreadRun]) -> Slice {
    let seconds = |run: &ThreadRun| (run.ended - run.began).as_secs_f64();
    let rate: f64 = runs.iter().map(|run| run.checks as f64 / seconds(run)).sum();
    let all: f64 = runs.iter().map(seconds).sum();
    let ends = || runs.iter().map(|run| run.ended);
    let begins = || runs.iter().map(|run| run.began);
    let between = |from: Option<Instant>, to: Option<Instant>| {
        to.zip(from).map_or(0.0, |(to, from)| to.saturating_duration_since(from).as_secs_f64())
    };
    Slice {
        ns: runs.len() as f64 / rate * 1e9,
        overlap: between(begins().max(), ends().min()) / between(begins().min(), ends().max()),
        on_processor: runs.iter().map(|run| run.on_processor.as_secs_f64()).sum::<f64>() / all,
    }
}

/// Returns how long this thread has had a processor.
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
    fn the_first_thread_that_finishes_ends_the_slice_for_all() {
        let chunks = [AtomicU64::new(0), AtomicU64::new(0)];
        let slice = run_together(2, 100, |thread| {
            let done = &chunks[thread];
            move || {
                thread::sleep(Duration::from_millis(if thread == 0 { 1 } else { 5 }));
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        let done = chunks.map(AtomicU64::into_inner);
        assert_eq!(done[0].max(done[1]), 100);
        assert!(done[0] + done[1] < 200, "the slice does not wait for the slower thread");
        assert!(slice.overlap > 0.0 && slice.on_processor < 1.0, "the threads sleep: {slice:?}");
    }

    #[test]
    fn the_rate_is_the_mean_of_the_threads_rates() {
        let began = now();
        let run = |from: u64, to: u64, checks: u64| ThreadRun {
            began: began + Duration::from_millis(from),
            ended: began + Duration::from_millis(to),
            checks,
            on_processor: Duration::from_millis((to - from) / 2),
        };
        // 100 and 300 checks a millisecond: 200 on average, 5,000 ns each.
        let slice = summarize(&[run(0, 10, 1_000), run(2, 12, 3_000)]);
        assert!((slice.ns - 5_000.0).abs() < 1e-6, "{slice:?}");
        assert!((slice.overlap - 8.0 / 12.0).abs() < 1e-9, "{slice:?}");
        assert!((slice.on_processor - 0.5).abs() < 1e-9, "{slice:?}");
        assert_eq!(slice.time_of(2).as_micros(), 10);
    }
}
