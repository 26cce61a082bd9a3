//! Measures the memory of the engine's table: full, as one line of JSON, or at loads from 50 to 100 % of its slots, as a table.
//! The program uses the system's allocator, which serves nothing else meanwhile.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the program prints a report and its progress")]

use std::{io, time::Duration};

use clap::Parser;
use tidegate_benches::{
    load_curve,
    memory::{TableMemory, measure},
};

/// Measures the memory of a table of live keys.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  cargo run --release -p tidegate-benches --bin memory -- 100000000
  cargo run --release -p tidegate-benches --bin memory -- --curve
  cargo run --release -p tidegate-benches --bin memory -- --curve --write

100 million keys take 2.4 GB, and a minute or two. The curve takes half a minute and 300 MB.")]
struct Arguments {
    /// The number of keys
    #[arg(default_value_t = 1_000_000)]
    keys: usize,
    /// Print, for each load from 50 to 100 % of the slots: keys without a slot, bytes a key, nanoseconds of a check
    #[arg(long)]
    curve: bool,
    /// Also update the table of docs/sizing.md and its drawing
    #[arg(long, requires = "curve")]
    write: bool,
}

/// The rounds of the curve, in each of which every table is measured once.
const ROUNDS: usize = 11;

fn main() -> io::Result<()> {
    let Arguments { keys, curve, write } = Arguments::parse();
    if curve {
        let on_round = |round| eprintln!("round {} of {ROUNDS}", round + 1);
        let points = load_curve::measure(keys, Duration::from_secs(15), ROUNDS, on_round);
        print!("{}", load_curve::table(&points));
        return if write { load_curve::write(&points) } else { Ok(()) };
    }
    let TableMemory { keys, bytes_per_key, overflow_share } = measure(keys);
    println!(r#"{{"keys":{keys},"bytes_per_key":{bytes_per_key:.3},"overflow_share":{overflow_share:.6}}}"#);
    Ok(())
}
