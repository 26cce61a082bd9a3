//! How often a race over several limits denies a neighbour that would just have fitted.
//!
//! A check of several limits takes from one after the other, and gives back when a later one refuses in a race; until then
//! a neighbour may find the first one full. A denial is *spurious* when no serial order explains it: when there is no way
//! to put all checks in a row, such that each stands somewhere between its beginning and its end, those that were allowed
//! have their place, and the denied one finds one of its limits used up by those before it.
//!
//! So that this can be decided exactly, a round happens at one instant of the clock, in which nothing comes back, and every
//! check takes a number from one counter before it and another after it. In the row that explains most denials, what was
//! allowed stands at its beginning and what was denied at its end: a denial is spurious if fewer than the capacity of each
//! of its limits were allowed that began before it ended. Several neighbours that are denied while the same token is held
//! count one by one, although a serial order would have admitted one of them.
//!
//! A round is a stampede on two limits that both run out: `everything`, which all calls meet, and `export`, which half of
//! them meet after it. Ordinary traffic, which is not always at the edge of both, races less.

use std::{
    env, hint,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use tidegate::{Engine, Identity, Request, Snapshot, clock::ManualClock, formats::Format};
use tidegate_benches::random::Numbers;

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

/// Capacity of what all calls meet, and of what exports meet besides.
const CAPACITY: [usize; 2] = [32, 15];

/// So many denials in a row end a thread's round.
const PATIENCE: u32 = 8;

/// One check, as its thread saw it.
struct Call {
    is_export: bool,
    is_allowed: bool,
    /// Numbers of one counter, taken before and after.
    began: u64,
    ended: u64,
}

#[derive(Default)]
struct Sums {
    checks: usize,
    denied: usize,
    spurious: usize,
    /// Rounds with a spurious denial.
    rounds: usize,
}

fn main() {
    let rounds = env::args().nth(1).map_or(Ok(50_000), |rounds| rounds.parse()).expect("a number of rounds");
    #[expect(clippy::print_stdout, reason = "a report")]
    for threads in [2, 4, 8] {
        let (sums, given_back) = measure(threads, rounds);
        let Sums { checks, denied, spurious, .. } = sums;
        println!(
            "{threads} threads, {rounds} rounds: {checks} checks, {denied} denied, {given_back} charges given back; \
             {spurious} spurious denials in {} rounds: {:.2} of a million checks, {:.2} of a million denials",
            sums.rounds,
            spurious as f64 * 1e6 / checks as f64,
            spurious as f64 * 1e6 / denied as f64,
        );
    }
}

/// What was seen, and how many charges were given back.
fn measure(threads: usize, rounds: u64) -> (Sums, u64) {
    let clock = ManualClock::at(1_790_035_200_000_000_000);
    let engine = Engine::for_simulation(1_000, clock.clone(), 7);
    engine.publish(Snapshot::parse(POLICY, Format::Toml).expect("a policy")).expect("two limits");
    let (gate, tickets, round) = (Gate::default(), AtomicU64::new(0), Mutex::new(Vec::<Call>::new()));
    let work = |thread: usize| {
        let who = [Identity::new("user", "ada").expect("valid")];
        let all = Request::new(&who).expect("valid");
        let export = Request::new(&who).and_then(|request| request.endpoint("/export")).expect("valid");
        let (mut dice, mut calls, mut sums) = (Numbers::new(thread as u64 + 1, 2), Vec::new(), Sums::default());
        for _ in 0..rounds {
            if thread == 0 {
                // Everything is there again.
                clock.advance(10_000_000_000);
            }
            gate.meet(threads as u64);
            let mut refused = 0;
            while refused < PATIENCE {
                let is_export = dice.draw() == 1;
                let began = tickets.fetch_add(1, Ordering::SeqCst);
                let is_allowed = engine.check(if is_export { &export } else { &all }).is_allowed();
                let ended = tickets.fetch_add(1, Ordering::SeqCst);
                refused = if is_allowed { 0 } else { refused + 1 };
                calls.push(Call { is_export, is_allowed, began, ended });
            }
            round.lock().expect("no panic").append(&mut calls);
            gate.meet(threads as u64);
            if thread == 0 {
                let mut round = round.lock().expect("no panic");
                judge(&round, &mut sums);
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

/// Threads go on from here within nanoseconds of each other, where each has a processor.
#[derive(Default)]
struct Gate {
    arrived: AtomicU64,
}

impl Gate {
    fn meet(&self, threads: u64) {
        let all = (self.arrived.fetch_add(1, Ordering::SeqCst) + 1).next_multiple_of(threads);
        let mut turns = 0;
        while self.arrived.load(Ordering::SeqCst) < all {
            turns += 1;
            if turns % 1_000 == 0 { thread::yield_now() } else { hint::spin_loop() }
        }
    }
}

/// Adds one round up.
fn judge(calls: &[Call], sums: &mut Sums) {
    let allowed = |calls: &[Call], is_of: fn(&Call) -> bool| {
        let mut began: Vec<u64> =
            calls.iter().filter(|call| call.is_allowed && is_of(call)).map(|call| call.began).collect();
        began.sort_unstable();
        began
    };
    let used = [allowed(calls, |_| true), allowed(calls, |call| call.is_export)];
    for (used, capacity) in used.iter().zip(CAPACITY) {
        assert!(used.len() <= capacity, "more than a limit allows were admitted");
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
