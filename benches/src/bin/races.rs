//! Counts spurious denials: checks of several limits that a race denies although a token was left for them.
//!
//! A check of several limits charges one limit after the other, and gives the charges back if a later limit denies in a race.
//! Until then a concurrent check may find the first limit exhausted. A denial is *spurious* if no serial order explains it, that
//! is, if the checks cannot be put in an order such that
//!
//! - each check stands somewhere between its beginning and its end,
//! - each limit admits all checks that were allowed, and
//! - the checks before the denied one exhaust one of its limits.
//!
//! To decide this exactly, a round happens at one instant of the clock, so that no limit refills, and every check takes a number
//! from one counter before it and another after it. The order that explains most denials puts an allowed check at its beginning
//! and a denied check at its end. So a denial is spurious if, for each of its limits, the allowed checks that began before the
//! denial ended are fewer than the capacity. Several checks that are denied while the same token is held count one by one,
//! although a serial order would have admitted one of them.
//!
//! A round is a stampede on two limits that both run out: `everything`, which applies to all checks, and `export`, which half of
//! them charge after it. Ordinary traffic, which is not always at the edge of both limits, races less.

use std::{
    env, hint,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use tidegate::{Engine, Identity, Request, Snapshot, clock::ManualClock, formats::Format, time::Timestamp};
use tidegate_benches::random::Uniform;

const POLICY: &str = r#"
[domains.default]
defaults = { user = "t" }

[[domains.default.tiers]]
id = "t"
limits = [{ id = "everything", algorithm = "token_bucket", limit = 32, period = "1s" }]

[[domains.default.rules]]
id = "export"
endpoint = "/export"
per = ["user"]
limits = [{ id = "l", algorithm = "token_bucket", limit = 15, period = "1s" }]
"#;

/// The capacity of the limit of all checks, and of the additional limit of exports.
const CAPACITY: [usize; 2] = [32, 15];

/// The number of denials in a row after which a thread ends its round.
const DENIALS_IN_A_ROW: u32 = 8;

/// A check with its result and its place in the round.
struct CheckRecord {
    is_export: bool,
    is_allowed: bool,
    /// The numbers of the counter before and after the check.
    began: u64,
    ended: u64,
}

/// The counts of all rounds.
#[derive(Default)]
struct RaceCounts {
    checks: usize,
    denied: usize,
    spurious: usize,
    /// The number of rounds with a spurious denial.
    rounds: usize,
}

fn main() {
    let rounds = env::args().nth(1).map_or(Ok(50_000), |rounds| rounds.parse()).expect("a number of rounds");
    #[expect(clippy::print_stdout, reason = "the program prints a report")]
    for threads in [2, 4, 8] {
        let (sums, given_back) = measure(threads, rounds);
        let RaceCounts { checks, denied, spurious, .. } = sums;
        println!(
            "{threads} threads, {rounds} rounds: {checks} checks, {denied} denied, {given_back} charges given back; \
             {spurious} spurious denials in {} rounds: {:.2} of a million checks, {:.2} of a million denials",
            sums.rounds,
            spurious as f64 * 1e6 / checks as f64,
            spurious as f64 * 1e6 / denied as f64,
        );
    }
}

/// Runs the rounds on this number of threads. Returns the counts, and the number of charges that were given back.
fn measure(threads: usize, rounds: u64) -> (RaceCounts, u64) {
    let clock = ManualClock::at(Timestamp::from_nanos(1_790_035_200_000_000_000));
    let engine = Engine::for_simulation(1_000, clock.clone(), 7);
    engine.publish(Snapshot::parse(POLICY, Format::Toml).expect("a policy")).expect("two limits");
    let (barrier, tickets, round) = (SpinBarrier::default(), AtomicU64::new(0), Mutex::new(Vec::<CheckRecord>::new()));
    let work = |thread: usize| {
        let who = [Identity::new("user", "ada").expect("valid")];
        let all = Request::new(&who).expect("valid");
        let export = Request::new(&who).and_then(|request| request.endpoint("/export")).expect("valid");
        let (mut dice, mut calls, mut sums) = (Uniform::new(thread as u64 + 1, 2), Vec::new(), RaceCounts::default());
        for _ in 0..rounds {
            if thread == 0 {
                // All limits refill.
                clock.advance(Duration::from_secs(10));
            }
            barrier.wait(threads as u64);
            let mut denied = 0;
            while denied < DENIALS_IN_A_ROW {
                let is_export = dice.draw() == 1;
                let began = tickets.fetch_add(1, Ordering::SeqCst);
                let is_allowed = engine.check(if is_export { &export } else { &all }).is_allowed();
                let ended = tickets.fetch_add(1, Ordering::SeqCst);
                denied = if is_allowed { 0 } else { denied + 1 };
                calls.push(CheckRecord { is_export, is_allowed, began, ended });
            }
            round.lock().expect("no panic").append(&mut calls);
            barrier.wait(threads as u64);
            if thread == 0 {
                let mut round = round.lock().expect("no panic");
                count_round(&round, &mut sums);
                round.clear();
            }
        }
        sums
    };
    let sums = thread::scope(|scope| {
        let work = &work;
        for thread in 1..threads {
            scope.spawn(move || work(thread));
        }
        work(0)
    });
    (sums, engine.give_backs())
}

/// A spinning barrier: threads that have a processor leave it within nanoseconds of each other.
#[derive(Default)]
struct SpinBarrier {
    arrived: AtomicU64,
}

impl SpinBarrier {
    fn wait(&self, threads: u64) {
        let all = (self.arrived.fetch_add(1, Ordering::SeqCst) + 1).next_multiple_of(threads);
        let mut turns = 0;
        while self.arrived.load(Ordering::SeqCst) < all {
            turns += 1;
            if turns % 1_000 == 0 { thread::yield_now() } else { hint::spin_loop() }
        }
    }
}

/// Adds the checks of one round to the counts.
fn count_round(calls: &[CheckRecord], sums: &mut RaceCounts) {
    let allowed = |calls: &[CheckRecord], is_of: fn(&CheckRecord) -> bool| {
        let mut began: Vec<u64> =
            calls.iter().filter(|call| call.is_allowed && is_of(call)).map(|call| call.began).collect();
        began.sort_unstable();
        began
    };
    let used = [allowed(calls, |_| true), allowed(calls, |call| call.is_export)];
    for (used, capacity) in used.iter().zip(CAPACITY) {
        assert!(used.len() <= capacity, "a limit admitted more checks than it allows");
    }
    let is_full = |limit: usize, at: u64| used[limit].partition_point(|began| *began < at) >= CAPACITY[limit];
    let denied = calls.iter().filter(|call| !call.is_allowed);
    let spurious = denied.clone().filter(|call| !(is_full(0, call.ended) || call.is_export && is_full(1, call.ended)));
    let spurious = spurious.count();
    sums.checks += calls.len();
    sums.denied += denied.count();
    sums.spurious += spurious;
    sums.rounds += usize::from(spurious > 0);
}
