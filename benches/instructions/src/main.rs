//! Does one kind of work so many times, for a program that counts instructions: `scripts/instructions`.
//!
//! Everything is the same in every run: the seed, the clock, the keys. What making ready costs is in every count, so the
//! difference of two counts is what the work costs.

use std::{env, hint::black_box};

use tidegate::{Decision, Engine, Identity, Request, Snapshot, clock::ManualClock, formats::Format};

const POLICY: &str = r#"
[domains.default]
defaults = { user = "one", ip = "three" }
[[domains.default.tiers]]
id = "one"
limits = [{ id = "l", algorithm = "token_bucket", limit = 1000000000, period = "1s", burst = 1000000 }]
[[domains.default.tiers]]
id = "none"
limits = [{ id = "l", algorithm = "token_bucket", limit = 1, period = "1d", burst = 1 }]
[[domains.default.tiers]]
id = "three"
limits = [
    { id = "second", algorithm = "token_bucket", limit = 1000000000, period = "1s", burst = 1000000 },
    { id = "minute", algorithm = "sliding_window_counter", limit = 1000000, period = "1m" },
    { id = "day", algorithm = "fixed_window", limit = 10000000, period = "1d" },
]
"#;

/// Takes decisions and keeps nothing.
struct Nowhere;

impl<'e> Extend<Decision<'e>> for Nowhere {
    fn extend<T: IntoIterator<Item = Decision<'e>>>(&mut self, decisions: T) {
        for decision in decisions {
            black_box(decision.is_allowed());
        }
    }
}

#[expect(clippy::panic, reason = "there is no such work")]
fn main() {
    let [work, rounds] = [1, 2].map(|place| env::args().nth(place).expect("the work, and how many rounds of it"));
    let rounds: u64 = rounds.parse().expect("a number of rounds");
    let clock = ManualClock::at(1_790_035_200_000_000_000);
    let engine = Engine::for_simulation(1_000, clock, 7);
    engine.publish(Snapshot::parse(POLICY, Format::Toml).expect("a policy")).expect("few limits");
    let key = *b"sixteen bytes !!";
    let handle = |limit| engine.handle(limit, "user").expect("the policy has it");
    match work.as_str() {
        "hit" | "denial" => {
            let mut handle = handle(if work == "hit" { "default/tier:one/l" } else { "default/tier:none/l" });
            for _ in 0..rounds {
                black_box(handle.check(black_box(key), 1).expect("in range").is_allowed());
            }
        }
        "three_limits" => {
            let who = [Identity::new("ip", "192.0.2.1").expect("valid")];
            let request = Request::new(&who).expect("valid");
            for _ in 0..rounds {
                black_box(engine.check(black_box(&request)).is_allowed());
            }
        }
        // Rounds of 64 checks each.
        "batch" => {
            let mut handle = handle("default/tier:one/l");
            let keys: [u64; 64] = std::array::from_fn(|number| number as u64);
            for _ in 0..rounds {
                handle.check_batch(black_box(&keys), 1, &mut Nowhere).expect("in range");
            }
        }
        _ => panic!("hit, denial, three_limits or batch"),
    }
}
