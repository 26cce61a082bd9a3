//! Contention test: threads check a few keys at once, and the sum of their admissions must keep the bound.

use std::{
    cmp::Reverse,
    panic::resume_unwind,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};
use tidegate::{
    clock::{Clock, ManualClock},
    policy::Algorithm,
    time::{Nanos, SECOND_NS, Timestamp},
};

use crate::{
    calendar::{CalendarUnit, CalendarWindows},
    deadline::Deadline,
    model::fits,
    subject::{CheckOutcome, CheckReply, Implementation, LimitNumbers},
};

const THREADS: usize = 4;

/// More than one key, so that threads also work on different keys.
const KEYS: u8 = 2;

/// Least number of turns (consecutive admissions by different threads) that a run must see.
const TURNS_MIN: u64 = 100;

/// An implementation of one limit that threads share. It reads the clock that it was created with.
pub trait SharedSubject: Sync {
    /// Checks a call of `cost` tokens by key number `key`, and charges it if it is allowed. A reply without
    /// [`at`](CheckReply::at) was decided at some time between the call and its return.
    fn check(&self, key: u8, cost: u64) -> CheckReply;
}

/// An admission as its thread observed it.
struct Admission {
    key: u8,
    cost: u64,
    /// Earliest and latest time at which it may have been decided.
    between: (Nanos, Nanos),
    /// Number in the order in which calls returned.
    ticket: u64,
    thread: usize,
}

/// Limits for which threads contend: a large one and a small one of each algorithm, and a day.
pub(crate) fn limits(algorithms: &[Algorithm]) -> Vec<LimitNumbers> {
    let day = CalendarWindows { unit: CalendarUnit::Day, zone: "Europe/Berlin" };
    let sizes = [(4_000, 1_000 * SECOND_NS, None), (3, SECOND_NS, None), (1_000, 86_400 * SECOND_NS, Some(day))];
    let each = algorithms.iter().flat_map(|&algorithm| {
        sizes.map(|(limit, period_ns, calendar)| LimitNumbers {
            algorithm,
            limit,
            period_ns,
            calendar,
            burst: None,
            max_debt: None,
        })
    });
    each.filter(|numbers| numbers.calendar.is_none() || numbers.algorithm == Algorithm::FixedWindow).collect()
}

/// Runs threads until they have contended often enough. While the clock stands still, exactly the capacity must be admitted;
/// while it advances, the sum in every interval must keep the bound. Returns the number of turns: 0 if threads cannot share
/// such a limiter.
pub(crate) fn contend(implementation: &dyn Implementation, numbers: &LimitNumbers) -> Result<u64, String> {
    let (mut turns, mut round, deadline) = (0, 0, Deadline::new());
    loop {
        for is_moving in [false, true] {
            let clock = ManualClock::at(Timestamp::from_nanos(1_790_035_200 * SECOND_NS + round * 12_345_678));
            let Some(shared) = implementation.shared(numbers, &clock) else { return Ok(0) };
            let admissions = run(&*shared, numbers, &clock, is_moving);
            turns += turns_of(&admissions);
            for key in 0..KEYS {
                judge(numbers, admissions.iter().filter(|one| one.key == key), is_moving)?;
            }
        }
        if turns >= TURNS_MIN {
            return Ok(turns);
        }
        if deadline.has_passed() {
            return Err(format!("the threads took only {turns} turns: too little was tested"));
        }
        round += 1;
    }
}

/// Returns all admissions, in the order of their tickets.
fn run(shared: &dyn SharedSubject, numbers: &LimitNumbers, clock: &ManualClock, is_moving: bool) -> Vec<Admission> {
    let (start, is_over, tickets) = (Barrier::new(THREADS + 1), AtomicBool::new(false), AtomicU64::new(0));
    // A log refunds nothing, so the tokens that a check of more than one took before it lost a race are lost for a period.
    let cost_max = match numbers.algorithm {
        Algorithm::SlidingWindowLog if !is_moving => 1,
        _ => numbers.capacity().clamp(1, 3),
    };
    let work = |thread: usize| {
        let (mut admissions, mut refused, mut turn) = (Vec::new(), 0u32, thread);
        start.wait();
        // Until the capacity is used up and no longer refilled.
        while refused < 200 {
            turn += 1;
            let key = (turn % usize::from(KEYS)) as u8;
            // Mostly the smallest cost, so that no token is left.
            let cost = if turn.is_multiple_of(7) { 1 + turn as u64 % cost_max } else { 1 };
            let from = clock.now().as_nanos();
            let answer = shared.check(key, cost);
            let to = clock.now().as_nanos();
            if answer.outcome == CheckOutcome::Allowed {
                let is_exact = matches!(numbers.algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
                let between = answer.at.filter(|_| is_exact).map_or((from, to), |at| (at, at));
                // SeqCst: all threads see one order of tickets.
                let ticket = tickets.fetch_add(1, Ordering::SeqCst);
                admissions.push(Admission { key, cost, between, ticket, thread });
            } else if is_over.load(Ordering::SeqCst) {
                refused += 1;
            }
        }
        admissions
    };
    let mut admissions: Vec<Admission> = thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        start.wait();
        if is_moving {
            // Four periods, in steps that are long enough for each thread to run.
            for _ in 0..200 {
                thread::sleep(Duration::from_micros(50));
                clock.advance(Duration::from_nanos(numbers.period_ns / 50));
            }
        }
        is_over.store(true, Ordering::SeqCst);
        running.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|why| resume_unwind(why))).collect()
    });
    admissions.sort_by_key(|one| one.ticket);
    admissions
}

fn turns_of(admissions: &[Admission]) -> u64 {
    admissions.windows(2).filter(|pair| pair[0].thread != pair[1].thread).count() as u64
}

/// Checks the sum of one key's admissions.
fn judge<'a>(
    numbers: &LimitNumbers,
    admissions: impl Iterator<Item = &'a Admission>,
    is_moving: bool,
) -> Result<(), String> {
    let mut spans: Vec<(Nanos, Nanos, u64)> = admissions.map(|one| (one.between.0, one.between.1, one.cost)).collect();
    let sum: u128 = spans.iter().map(|(.., cost)| u128::from(*cost)).sum();
    let capacity = u128::from(numbers.capacity());
    // The tokens that a log took before it lost a race are admitted to no key.
    let may_lose = is_moving && numbers.algorithm == Algorithm::SlidingWindowLog;
    if sum < capacity && !may_lose || sum > capacity && !is_moving {
        return Err(format!("{sum} were admitted of {capacity}"));
    }
    check_bound(numbers, &mut spans)
}

/// Checks for every interval that the admissions certainly in it keep the bound.
fn check_bound(numbers: &LimitNumbers, spans: &mut [(Nanos, Nanos, u64)]) -> Result<(), String> {
    spans.sort_by_key(|(from, to, _)| (*to, Reverse(*from)));
    let mut starts: Vec<Nanos> = spans.iter().map(|(from, ..)| *from).collect();
    starts.sort_unstable();
    starts.dedup();
    for start in starts {
        let mut sum = 0;
        for (place, (from, to, cost)) in spans.iter().enumerate() {
            sum += if *from >= start { u128::from(*cost) } else { 0 };
            // All admissions that end here are added before the sum is checked.
            let is_last = spans.get(place + 1).is_none_or(|(_, next, _)| next != to);
            if *to >= start && is_last && !fits(numbers, start, *to, sum) {
                return Err(format!("{sum} were admitted in the {} ns from {start}", *to - start));
            }
        }
    }
    Ok(())
}
