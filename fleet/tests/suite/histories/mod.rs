//! Whole histories of four nodes, a real store and random faults, with a judge that decides for each sharing mode
//! whether the bound was kept.
//!
//! * `faults`: the schedule of faults, drawn from one seed, which is printed. `TIDEGATE_HISTORY_SEED=N` runs that schedule and the
//!   same callers again; threads and processes are as they happen to be.
//! * `run`: nodes, callers and faults.
//! * `record`: every check with the time of the store, and every fault.
//! * `judge`: the bounds, each beside the sentence that promises it. Pure, with tests of its own.
//!
//! **The time of an admission.** A store decides by its own clock, which is the wall clock of its machine, and here the
//! clock of the test's process too, even after the store was killed and started again. So the process reads that clock
//! before and after each check, and the store's time of the admission lies between the two. A `synced` check is decided
//! by the node's idea of that time, which is late by the delay of an answer; there the interval begins by that idea,
//! which the node states under the feature `model`, with the tokens that no answer covered yet. The judge complains
//! only if the bound is broken for every choice of instants within the intervals. A history in which the wall clock was
//! set is not judged.
//!
//! Slow checks are denied or marked as degraded, and every limit is `closed`: a busy machine admits less, and never
//! more. A history that shows too little fails as well: all histories of a test together need a least number of
//! admissions, denials and faults.
#![expect(clippy::print_stdout, reason = "the seed, and what was seen")]

mod faults;
mod judge;
mod record;
mod run;

use std::{fs, path::PathBuf, thread, time::Duration};

use tidegate::{
    policy::{Algorithm, Sharing},
    time::Nanos,
};

use self::{
    faults::FaultKind,
    judge::{Headroom, KeyHistory, coverage, judge},
    record::{CheckOutcome, HistoryRecord, TestedLimit, store_time},
    run::{HistoryMutation, HistoryPlan, history},
};

const fn limit(name: &'static str, sharing: Sharing, algorithm: Algorithm, tokens: u64, seconds: u64) -> TestedLimit {
    TestedLimit { name, sharing, algorithm, tokens, burst: None, period: Duration::from_secs(seconds) }
}

/// The limits. Callers want more than each of them has. A lease is at most a sixteenth of its limit, which should be
/// some checks.
const LIMITS: [TestedLimit; 10] = [
    TestedLimit { burst: Some(90), ..limit("strict_bucket", Sharing::Strict, Algorithm::TokenBucket, 60, 1) },
    limit("strict_queue", Sharing::Strict, Algorithm::LeakyBucket, 60, 1),
    limit("strict_window", Sharing::Strict, Algorithm::FixedWindow, 120, 2),
    limit("strict_counter", Sharing::Strict, Algorithm::SlidingWindowCounter, 120, 2),
    limit("strict_log", Sharing::Strict, Algorithm::SlidingWindowLog, 60, 1),
    limit("leased_bucket", Sharing::Leased, Algorithm::TokenBucket, 400, 1),
    limit("leased_window", Sharing::Leased, Algorithm::FixedWindow, 800, 2),
    // Nothing of this limit comes back, so a lease that counts as spent must not be spent.
    limit("leased_month", Sharing::Leased, Algorithm::FixedWindow, 3_000, 30 * 86_400),
    limit("synced_bucket", Sharing::Synced, Algorithm::TokenBucket, 200, 1),
    limit("synced_window", Sharing::Synced, Algorithm::FixedWindow, 400, 2),
];

/// The outcome of a history: for each limit its distance to the bound, or the reason why the bound is broken.
struct HistoryVerdict {
    history: HistoryRecord,
    judged: Vec<Result<Headroom, String>>,
    /// The limits that would be above their bound if no store had lost anything.
    above_without_losses: usize,
}

/// Runs histories side by side, each with a store of its own. One in which the wall clock was set is run again.
fn run_all(plans: &[HistoryPlan]) -> Vec<HistoryVerdict> {
    thread::scope(|scope| {
        let run = |plan: &HistoryPlan| {
            let plan = *plan;
            scope.spawn(move || {
                (0..5)
                    .map(|_| history(plan))
                    .find(|history| history.clock_set_by < Duration::from_millis(1))
                    .map(judge_all)
                    .expect("the wall clock was set in each of five histories")
            })
        };
        let running: Vec<_> = plans.iter().map(run).collect();
        running.into_iter().map(|running| running.join().expect("no panic")).collect()
    })
}

fn judge_all(history: HistoryRecord) -> HistoryVerdict {
    let judge_one = |(place, limit): (usize, &TestedLimit)| {
        judge(&history.of(place, limit)).map_err(|why| {
            let (from, until) = (history.seconds(why.from), history.seconds(why.until));
            let faults = history.faults_in(why.from, why.until);
            format!("{} from {from:.3} s to {until:.3} s: {why}; faults in it and 5 s before:{faults}", limit.name)
        })
    };
    let is_above = |(place, limit): &(usize, &TestedLimit)| {
        judge(&KeyHistory { losses: Vec::new(), ..history.of(*place, limit) }).is_err()
    };
    let judged = LIMITS.iter().enumerate().map(judge_one).collect();
    let above_without_losses = LIMITS.iter().enumerate().filter(is_above).count();
    HistoryVerdict { history, judged, above_without_losses }
}

impl HistoryVerdict {
    fn count(&self, place: usize, outcome: CheckOutcome) -> usize {
        self.history.checks.iter().filter(|check| check.limit == place && check.outcome == outcome).count()
    }

    /// Returns the share of the tokens of a synced limit that were covered, and so are judged, and the time for which
    /// half of them were not.
    fn coverage(&self, place: usize, limit: &TestedLimit) -> (f64, Nanos) {
        let history = self.history.of(place, limit);
        let admitted: u64 = history.admissions.iter().map(|it| it.cost).sum();
        let (covered, half_within_ns) = coverage(&history);
        (covered as f64 / admitted.max(1) as f64, half_within_ns)
    }

    /// Prints the counts of the history.
    fn print(&self) {
        println!("history of seed {}:", self.history.seed);
        println!("  {:16} {:>9} {:>9} {:>9}  nearest to its bound", "limit", "admitted", "denied", "degraded");
        for (place, (limit, judged)) in LIMITS.iter().zip(&self.judged).enumerate() {
            let [admitted, denied, degraded] = [CheckOutcome::Admitted, CheckOutcome::Denied, CheckOutcome::Degraded]
                .map(|outcome| self.count(place, outcome));
            let nearest = match judged {
                Ok(Headroom { least_left, of_bound }) => format!("{least_left} left of {of_bound}"),
                Err(_) => "BROKEN".to_owned(),
            };
            println!("  {:16} {admitted:>9} {denied:>9} {degraded:>9}  {nearest}", limit.name);
        }
        for (place, limit) in LIMITS.iter().enumerate().filter(|(_, limit)| limit.sharing == Sharing::Synced) {
            let (share, half_within_ns) = self.coverage(place, limit);
            let ms = half_within_ns / 1_000_000;
            println!(
                "  {:16} {:.0} % of its tokens were covered, half of them within {ms} ms",
                limit.name,
                share * 100.0
            );
        }
        for kind in FaultKind::ALL {
            println!("  {:16} {:>9} under load", format!("{kind:?}"), self.history.faults_under_load(kind));
        }
        println!("  {} limits would be above their bound without the losses", self.above_without_losses);
    }

    /// Returns the broken bound, and the file with the whole history; `None`: each bound was kept.
    fn report(&self) -> Option<(String, PathBuf)> {
        let broken: Vec<_> = self.judged.iter().filter_map(|judged| judged.as_ref().err().cloned()).collect();
        let why = format!("TIDEGATE_HISTORY_SEED={}: {}", self.history.seed, broken.join("\n"));
        (!broken.is_empty()).then(|| {
            let path = self.history.write(&LIMITS, &why);
            (why, path)
        })
    }

    fn assert_kept(&self) {
        let report = self.report().map(|(why, path)| format!("{why}\nthe whole history is in {}", path.display()));
        assert!(report.is_none(), "{}", report.unwrap_or_default());
    }
}

/// Returns the seed of the environment, or another one each time.
#[expect(clippy::disallowed_methods, reason = "to run a history again that failed")]
fn seed() -> u64 {
    match std::env::var("TIDEGATE_HISTORY_SEED") {
        Ok(seed) => seed.parse().expect("TIDEGATE_HISTORY_SEED is a number"),
        Err(_) => store_time() / 1_000 % 1_000_000_000,
    }
}

/// Runs so many histories with faults, of successive seeds, and asserts the bounds of each. Returns their outcomes.
fn keep_their_bounds(count: u64, lasts: Duration) -> Vec<HistoryVerdict> {
    let first = seed();
    println!("TIDEGATE_HISTORY_SEED={first}");
    let plans: Vec<_> =
        (first..first + count).map(|seed| HistoryPlan { seed, lasts, has_faults: true, mutation: None }).collect();
    let verdicts = run_all(&plans);
    verdicts.iter().for_each(HistoryVerdict::print);
    verdicts.iter().for_each(HistoryVerdict::assert_kept);
    // The histories show enough.
    for (place, limit) in LIMITS.iter().enumerate() {
        for (outcome, least) in [(CheckOutcome::Admitted, 100), (CheckOutcome::Denied, 50), (CheckOutcome::Degraded, 1)]
        {
            let count: usize = verdicts.iter().map(|verdict| verdict.count(place, outcome)).sum();
            assert!(count >= least, "TIDEGATE_HISTORY_SEED={first}: {}: {outcome:?} {count} times", limit.name);
        }
    }
    // A node that exchanged nothing would be above its limit without a bound.
    for (place, limit) in LIMITS.iter().enumerate().filter(|(_, limit)| limit.sharing == Sharing::Synced) {
        let share = verdicts.iter().map(|verdict| verdict.coverage(place, limit).0).fold(0.0, f64::max);
        assert!(share >= 0.3, "TIDEGATE_HISTORY_SEED={first}: {}: {share} of its tokens were covered", limit.name);
    }
    for kind in FaultKind::ALL {
        let count: usize = verdicts.iter().map(|verdict| verdict.history.faults_under_load(kind)).sum();
        assert!(count >= 2, "TIDEGATE_HISTORY_SEED={first}: {kind:?} {count} times under load");
    }
    verdicts
}

#[test]
fn a_minute_of_faults_keeps_each_bound() {
    keep_their_bounds(2, Duration::from_secs(50));
}

/// Runs histories with a defect, first without faults and then with them, until the judge finds it in a limit with this
/// sharing mode.
fn is_found(mutation: HistoryMutation, sharing: Sharing) {
    for (has_faults, lasts) in [(false, Duration::from_secs(5)), (true, Duration::from_secs(15))] {
        let first = seed();
        let is_in = |seed| {
            let verdict =
                run_all(&[HistoryPlan { seed, lasts, has_faults, mutation: Some(mutation) }]).pop().expect("one");
            verdict.print();
            let mut of_sharing = LIMITS.iter().zip(&verdict.judged).filter(|(limit, _)| limit.sharing == sharing);
            let is_in = of_sharing.any(|(_, judged)| judged.is_err());
            if let Some((why, path)) = verdict.report() {
                println!("{mutation:?}: {why}");
                let written = fs::read_to_string(&path).expect("it is written");
                assert!(written.contains(&why) && written.lines().count() > verdict.history.checks.len());
                fs::remove_file(path).expect("it is there");
            }
            is_in
        };
        assert!((first..first + 10).any(is_in), "{mutation:?} is not found in ten histories from seed {first} on");
    }
}

#[test]
fn a_script_that_charges_one_token_too_many_is_found() {
    let instead_of = "over_s > most_s or (over_s == most_s and over_n > most_n)";
    is_found(HistoryMutation::Script { this: "over_s > most_s + 1", instead_of }, Sharing::Strict);
}

#[test]
fn a_script_that_does_not_count_what_it_lends_is_found() {
    is_found(HistoryMutation::Script { this: "+ 0, (tonumber", instead_of: "+ more, (tonumber" }, Sharing::Leased);
}

#[test]
fn a_script_that_drops_the_charges_of_views_is_found() {
    is_found(HistoryMutation::Script { this: "or 0) >= 0", instead_of: "or 0) >= number" }, Sharing::Synced);
}

#[test]
fn a_node_that_has_twice_the_limit_is_found() {
    is_found(HistoryMutation::Numbers { percent: 200 }, Sharing::Strict);
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: takes ten minutes"]
    fn ten_minutes_of_faults_keep_each_bound() {
        let verdicts = keep_their_bounds(2, Duration::from_secs(590));
        // What a store that comes back empty admits is seen, and would be an alarm otherwise.
        assert!(verdicts.iter().all(|verdict| verdict.above_without_losses > 0));
    }
}
