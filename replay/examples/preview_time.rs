//! Measures the time of an editor's preview: `cargo run --release -p tidegate-replay --example preview_time`.

#![expect(clippy::print_stdout, reason = "it prints its result")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::{error::Error, time::Instant};

use tidegate::{Snapshot, formats::Format, time::SECOND_NS};
use tidegate_replay::{
    preview::preview,
    traffic::{TrafficPlan, TrafficRow},
};

const RUNS: usize = 200;

fn main() -> Result<(), Box<dyn Error>> {
    for algorithm in ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log"] {
        for (limits, limit) in [(1, 50), (8, 50), (64, 50), (64, 4_000)] {
            let limits: Vec<String> = (0..limits)
                .map(|number| {
                    format!(
                        r#"{{ id = "l{number}", algorithm = "{algorithm}", limit = {limit}, period = "{}s" }}"#,
                        number + 1
                    )
                })
                .collect();
            let policy = format!(
                "[domains.default]\ndefaults = {{ user = \"t\" }}\n[[domains.default.tiers]]\nid = \"t\"\nlimits = [{}]\n",
                limits.join(", ")
            );
            let rows: Vec<TrafficRow> =
                serde_json::from_str(r#"[{ "rate": 333, "for": "1m", "pattern": "poisson" }]"#)?;
            let (mut took, mut requests) = (Vec::with_capacity(RUNS), 0);
            for seed in 0..RUNS as u64 {
                let made = TrafficPlan::new(rows.clone(), "default").map_err(|problems| format!("{problems:?}"))?;
                let start = Instant::now();
                let policies = [Snapshot::parse(&policy, Format::Toml)?, Snapshot::parse(&policy, Format::Toml)?];
                let found = preview(policies.map(Some), made.traffic(0, seed), 0, 60 * SECOND_NS)?;
                took.push(start.elapsed());
                requests = found.requests;
            }
            took.sort_unstable();
            println!(
                "{:2} x {algorithm} of {limit}: {requests} requests, median {:.1} ms, p99 {:.1} ms",
                limits.len(),
                took[RUNS / 2].as_secs_f64() * 1e3,
                took[RUNS * 99 / 100].as_secs_f64() * 1e3,
            );
        }
    }
    Ok(())
}
