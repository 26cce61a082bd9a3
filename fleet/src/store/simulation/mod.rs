//! Test only: a deterministic simulation of nodes that share a store. The nodes run their own code, in virtual time,
//! over a virtual network, against the [model](super::script::script_model::ScriptModel) of the script, which another test
//! compares with the script over a real Redis.
//!
//! A seed decides all that happens: the limits, the traffic, how long each message takes, which messages are lost,
//! which nodes are killed, cut off or answered late, and when the store is paused. A run that fails names its seed.
//! `TIDEGATE_SIMULATION=SEED` runs that one again and prints its events:
//!
//! ```sh
//! TIDEGATE_SIMULATION=177 cargo test -p tidegate-fleet --lib -- simulation::tests::nodes_keep --nocapture
//! ```
//!
//! Delays are whole milliseconds, the resolution of tokio's paused clock, and the clocks of all nodes run equally fast.
//! The store refuses nothing and loses nothing, and slots do not move: the crate's integration tests do that with real
//! servers. A synced limit may be exceeded by what the nodes had not sent, and is not checked when its numbers change.

#![expect(clippy::print_stdout, reason = "a run that is repeated prints what happens")]

mod check;
mod history;
mod judge;
mod late_answer;
mod mutation;
mod network;
mod node;
mod plan;
mod random;
mod run;
mod scenario;

pub(crate) use crate::store::simulation::{mutation::Mutation, network::Wire};

#[cfg(test)]
mod tests {
    use std::{env, time::Duration};

    use tokio::time::Instant;

    use super::{
        history::RunReport,
        mutation::Mutation,
        plan::{Measured, RunPlan},
        random::SimulationRandom,
        run::run,
        scenario::Scenario,
    };

    /// Runs the scenario of a seed.
    fn run_one(seed: u64, is_traced: bool) -> RunReport {
        run(&Scenario::of(seed), is_traced).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Runs all these seeds, or the one of the environment, and asserts that the runs together contain every kind of
    /// event.
    fn run_all(seeds: impl Iterator<Item = u64>) -> RunReport {
        if let Some(seed) = env::var_os("TIDEGATE_SIMULATION") {
            let seed = seed.to_str().and_then(|seed| seed.parse().ok()).expect("TIDEGATE_SIMULATION is a number");
            return run_one(seed, true);
        }
        let mut all = RunReport::default();
        for seed in seeds {
            all.add(&run_one(seed, false));
        }
        let shown = [all.degraded, all.killed, all.exceeded, all.used_up, all.recovered, all.counted, all.traffic.lost];
        assert!(shown.iter().all(|&count| count > 0), "{all:?}");
        all
    }

    #[test]
    fn nodes_keep_their_limits_whatever_the_network_does() {
        run_all(0..40);
    }

    #[test]
    fn a_seed_decides_all_that_happens() {
        let seen = |seed| {
            let RunReport { digest, checks, traffic, .. } = run_one(seed, false);
            (digest, checks, traffic.scripts, traffic.messages)
        };
        let seeds = [1, 2, 3];
        assert_eq!(seeds.map(seen), seeds.map(seen));
        assert_ne!(seen(1), seen(2));
    }

    #[test]
    fn mistakes_in_the_arithmetic_are_found() {
        for mutation in Mutation::ALL {
            let scenarios = (0..200).map(Scenario::of).filter(|scenario| scenario.is_all(mutation.sharing()));
            Mutation::set(Some(mutation));
            let found = scenarios.enumerate().find_map(|(count, scenario)| Some((count, run(&scenario, false).err()?)));
            Mutation::set(None);
            let (count, why) = found.unwrap_or_else(|| panic!("{mutation:?} is not found"));
            println!("{mutation:?}, after {count} runs: {}", why.lines().next().unwrap_or_default());
        }
    }

    mod long {
        use super::*;

        #[test]
        #[ignore = "long: a minute of seeds that differ from run to run"]
        fn nodes_keep_their_limits_in_many_runs() {
            let first = SimulationRandom::new(getrandom::u64().expect("random numbers")).below(1 << 40);
            let (began, mut count) = (Instant::now(), 0_u64);
            let seeds = (first..).take_while(|_| began.elapsed() < Duration::from_mins(1)).inspect(|_| count += 1);
            let all = run_all(seeds);
            let (seconds, events) = (began.elapsed().as_secs_f64(), all.events());
            println!(
                "{count} seeds from {first} on: {events} events, {:.0} a second; {all:?}",
                events as f64 / seconds
            );
        }
    }

    /// Prints the measurements that `docs/sharing.md` states for its plan. A build without optimisations runs a tenth
    /// of it.
    #[test]
    #[ignore = "long: minutes of a processor, and gigabytes"]
    fn measure_the_plan_for_1000_nodes() {
        let part = if cfg!(debug_assertions) { 10 } else { 1 };
        for (nodes_of_key, tokens) in [(4, 100), (4, 500), (40, 500), (1_000 / part, 500)] {
            let (nodes, keys, checks) = (1_000 / part, 20_000 / part, 10_000 / part as u64);
            let plan = RunPlan { nodes, keys, nodes_of_key, checks, tokens, warm_s: 50, measured_s: 45 };
            let began = Instant::now();
            let Measured { checks, denied, early, denied_by_one, degraded, waited, scripts, commands } =
                plan.measure(1);
            println!("{plan:?}, in {:.0?}; a second:", began.elapsed());
            println!(
                "    {checks:.0} checks, {waited:.0} waited, {denied:.0} denied, {denied_by_one:.0} by one bucket, {degraded:.1} without the store"
            );
            println!("    {early:.0} denied although there was room just then");
            println!("    {scripts:.0} scripts with {commands:.0} keys");
            for (name, expected) in [("by the plan", plan.by_the_plan()), ("with what goes back", plan.with_returns())]
            {
                println!("    {name}: {expected:.0}; measured are {:.2} of that", commands / expected);
            }
            assert!(denied < denied_by_one + 0.05 * checks, "too much is denied early");
        }
    }
}
