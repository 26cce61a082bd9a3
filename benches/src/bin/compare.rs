//! Compares our limiters with those of other projects and with lower bounds: all goals of speed and memory, in one run.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the program prints a report and its progress")]

use std::{
    env, fs,
    io::{self, IsTerminal, Write},
    path::PathBuf,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use clap::Parser;
use tidegate_benches::{
    comparison::{ComparisonRow, RowResult, THROUGHPUT_GOAL},
    footprint::{self, Footprint},
    full_check::{CLIENTS, FullCheck, OneHandle, snapshot},
    publishing::{self, PublishingResult, TailLatency},
    random::{Uniform, draw_many},
    record::{Goal, RowRecord, mark_best},
    recorded,
    rows::{GROUPS, MEMORY, PUBLISHING, row_names},
    spread::Spread,
    threads::now,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Compares Tidegate with its peers on the same work, in the same run.
///
/// Every row measures its sides in turns, in another order each round, so that disturbances of the machine affect all sides.
/// It shows nanoseconds per check of one thread while all threads of the row run: the median of the rounds, with the least and
/// the greatest of them. `ratio` is the peer's time divided by ours: above 1 ours is faster. Its spread is that of the ratios
/// within a round. `best peer` is the limiter of another project with the least median in the row.
///
/// Judge by the ratios: absolute figures hold for this machine at this hour. Keep the machine idle: other programs show in
/// `on processor`, the share of the time in which the measured threads were running.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  cargo run --release -p tidegate-benches --bin compare
  cargo run --release -p tidegate-benches --bin compare -- --quick --only Zipf
  cargo run --release -p tidegate-benches --bin compare -- --json figures.json
  cargo run --release -p tidegate-benches --bin compare -- --record figures.json --only hot
  cargo run --release -p tidegate-benches --bin compare -- --table

The JSON is a list with one object for each row and other side:
  work, threads, keys    name of the row, number of threads, number of keys
  ours_ns, peer_ns       medians, nanoseconds per check of a thread while all run
  peer                   the other limiter or way of ours; `goal: UNIT` is a bound of the row
  ratio                  peer_ns / ours_ns
  target, met            the goal as text, and whether it is met; null where there is none
  is_peer                whether it is a limiter of another project
  is_best                whether it is the fastest of these in its row
  best_target, best_met  the goal beside the best peer, and whether it is met; else null
  ours_m_per_second      million checks a second of all threads, ours; else null
Of rows named `publishing`, ours_ns and peer_ns are p99.99 of a check, and the target is of
their difference. Of rows named `memory`, they are bytes per live key, or per cent of the live
keys in overflow.
benches/README.md says more about each row and each peer.")]
struct Arguments {
    /// Run for about a minute: fewer and shorter rounds, without the rows that need gigabytes
    #[arg(long)]
    quick: bool,
    /// Write the figures to this file as well, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the figures to this file of recorded figures, and keep those of its rows that did not run
    #[arg(long, value_name = "FILE", conflicts_with = "quick")]
    record: Option<PathBuf>,
    /// Update the table of benches/README.md from the recorded figures, and measure nothing
    #[arg(long, conflicts_with_all = ["json", "record", "quick", "only", "seconds"])]
    table: bool,
    /// Measure only rows whose name contains this text, such as `hot`, `Zipf` or `publishing`
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    only: String,
    /// Measure the memory of this limiter with this number of keys, and print it
    #[arg(long, hide = true, num_args = 2, value_names = ["NAME", "KEYS"])]
    footprint_of: Option<Vec<String>>,
    /// Measure each row for about this long
    #[arg(long, value_name = "SECONDS", default_value_t = 8.0, conflicts_with = "quick")]
    seconds: f64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.footprint_of {
        Some(of) => print_footprint(&of[0], &of[1]),
        None if arguments.table => recorded::write_table(),
        None => run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let mut run = Run::new(arguments);
    println!("{}", machine());
    for group in GROUPS {
        if group.rows.iter().any(|work| run.is_wanted(work)) {
            if group.is_large && arguments.quick {
                run.left_out.extend(group.rows);
            } else {
                (group.visit)(&mut |row| run.measure_row(row));
            }
        }
    }
    if PUBLISHING.iter().any(|work| run.is_wanted(work)) {
        run.measure_publishing();
    }
    for (work, keys) in MEMORY {
        if run.is_wanted(work) {
            if arguments.quick && keys > MEMORY[0].1 {
                run.left_out.push(work);
            } else {
                run.measure_memory(work, keys)?;
            }
        }
    }
    run.print_summary();
    if let Some(file) = &arguments.json {
        fs::write(file, serde_json::to_string_pretty(&run.records)? + "\n")?;
    }
    if let Some(file) = &arguments.record {
        recorded::record(file, &run.records)?;
    }
    Ok(())
}

/// A run with its records so far.
struct Run<'a> {
    arguments: &'a Arguments,
    /// The number of rows that match `--only`, and the number of those that have begun.
    rows: (usize, usize),
    /// The end of a quick run.
    ends: Instant,
    records: Vec<RowRecord>,
    left_out: Vec<&'static str>,
}

impl<'a> Run<'a> {
    fn new(arguments: &'a Arguments) -> Self {
        let is_large =
            |work: &str| GROUPS.iter().any(|group| group.is_large && group.rows.contains(&work)) || work == MEMORY[1].0;
        let wanted =
            row_names().filter(|work| work.contains(&arguments.only) && !(arguments.quick && is_large(work))).count();
        Self {
            arguments,
            rows: (wanted, 0),
            ends: now() + Duration::from_secs(45),
            records: Vec::new(),
            left_out: Vec::new(),
        }
    }

    fn is_wanted(&self, work: &str) -> bool {
        work.contains(&self.arguments.only)
    }

    /// Begins a row. Returns the time to measure it, and the number of rounds.
    fn begin(&mut self, work: &str) -> (Duration, usize) {
        let (wanted, begun) = &mut self.rows;
        let left = *wanted - *begun;
        *begun += 1;
        println!("\n{work}");
        if self.arguments.quick {
            let share = self.ends.saturating_duration_since(now()) / left as u32;
            (share.clamp(Duration::from_millis(100), Duration::from_millis(1_200)), 5)
        } else {
            (Duration::from_secs_f64(self.arguments.seconds), 11)
        }
    }

    /// Returns a function that shows the progress of a row; the line disappears when the function is dropped.
    fn progress(&self, work: &'static str, rounds: usize) -> impl FnMut(usize) + use<> {
        let (wanted, begun) = self.rows;
        let bar = Progress(io::stderr().is_terminal());
        move |round| bar.show(&format!("row {begun} of {wanted}, {work}: round {} of {rounds}", round + 1))
    }

    fn measure_row(&mut self, row: &ComparisonRow<'_>) {
        if !self.is_wanted(row.work) {
            return;
        }
        let title = format!("{}, {}, {}", row.work, counted(row.threads as u64, "thread"), counted(row.keys, "key"));
        let (time, rounds) = self.begin(&title);
        let result = row.measure(time, rounds, self.progress(row.work, rounds));
        print_row(&result, rounds, row.threads);
        self.records.extend(result.records);
    }

    fn measure_publishing(&mut self) {
        let full = FullCheck::new();
        let mut uniform = Uniform::new(7, CLIENTS as u64);
        let numbers = draw_many(1 << 20, || uniform.draw());
        let [same, other] = [1_000_000_000, 900_000_000].map(|limit| ["pro", "team"].map(|tier| snapshot(tier, limit)));
        let changing = [same[0].clone(), other[1].clone()];
        for work in PUBLISHING {
            if !self.is_wanted(work) {
                continue;
            }
            let (time, rounds) = self.begin(work);
            let slices = (rounds, time / (4 * rounds as u32));
            let progress = self.progress(work, 4 * rounds);
            let tails = match work {
                "publishing, by handle" => {
                    publishing::measure(&full.engine, &OneHandle(&full), &numbers, &same, slices, progress)
                }
                "publishing, full check" => publishing::measure(&full.engine, &full, &numbers, &same, slices, progress),
                _ => publishing::measure(&full.engine, &full, &numbers, &changing, slices, progress),
            };
            let goal = (work != PUBLISHING[2]).then_some(Goal::Above(2_000.0));
            self.add_publishing(work, &tails, goal);
        }
    }

    fn add_publishing(&mut self, work: &'static str, tails: &PublishingResult, goal: Option<Goal>) {
        let TailLatency { checks: ours, control } = tails.with;
        let row = (work, 1, CLIENTS as u64);
        println!("  p99.99, ns; {} publishes", tails.publishes);
        println!("  {:<28} {}", "tidegate, publishing", figures(ours, 0));
        for (peer, theirs, goal) in [
            ("without publishing", tails.without.checks, goal),
            ("clock only, publishing", control, None),
            ("clock only, without", tails.without.control, None),
        ] {
            let record = RowRecord::new(row, ours.median, (peer, theirs.median), goal);
            let above = format!("{:+.0} above", ours.median - theirs.median);
            println!("  {peer:<28} {}  {above}{}", figures(theirs, 0), verdict(&record));
            self.records.push(record);
        }
    }

    /// Measures bytes per live key of ours and of peers, each in a process of its own, and the share of keys in overflow.
    fn measure_memory(&mut self, work: &'static str, keys: u64) -> io::Result<()> {
        self.begin(work);
        let row = (work, 1, keys);
        let ours = footprint_of("tidegate", keys)?;
        let to_a_tenth = (ours.bytes_per_key * 10.0).round() / 10.0;
        println!("  {:<28} {:>9.2} bytes per key", "tidegate", ours.bytes_per_key);
        let mut records = Vec::new();
        let mut add = |ours, peer, goal, is_peer| {
            let record = RowRecord { is_peer, ..RowRecord::new(row, ours, peer, goal) };
            println!("  {:<28} {:>9.2}  {:.2}{}", peer.0, peer.1, record.ratio, verdict(&record));
            records.push(record);
        };
        add(to_a_tenth, ("goal: bytes per key", 24.0), Some(Goal::Above(0.0)), false);
        if let Some(share) = ours.overflow_share {
            println!("  {:<28} {:>9.3} % of the keys in overflow", "tidegate", share * 100.0);
            add(share * 100.0, ("goal: % in overflow", 0.2), Some(Goal::Above(0.0)), false);
        }
        // A hundred million keys of the peers do not fit into the memory of every machine.
        let others = if keys > MEMORY[0].1 {
            0
        } else if self.arguments.quick {
            2
        } else {
            usize::MAX
        };
        for peer in ["governor, u64", "governor, String", "aerorate, u64", "aerorate, String", "rate-net, u64"]
            .into_iter()
            .take(others)
        {
            add(ours.bytes_per_key, (peer, footprint_of(peer, keys)?.bytes_per_key), None, true);
        }
        mark_best(&mut records, None);
        self.records.extend(records);
        Ok(())
    }

    fn print_summary(&self) {
        let goals: Vec<_> =
            self.records.iter().flat_map(|record| record.goals().map(move |goal| (record, goal))).collect();
        let met = goals.iter().filter(|(_, (_, _, met))| *met).count();
        println!("\n{met} of {} goals met", goals.len());
        for (record, (beside, target, _)) in goals.iter().filter(|(_, (_, _, met))| !met) {
            let RowRecord { work, ours_ns, peer_ns, ratio, .. } = record;
            println!("  missed: {work}, beside {beside}: {ours_ns:.1} and {peer_ns:.1}, ratio {ratio:.2} ({target})");
        }
        for work in &self.left_out {
            println!("left out by --quick: {work}");
        }
    }
}

/// Measures the memory of a limiter in a process of its own.
fn footprint_of(name: &str, keys: u64) -> io::Result<Footprint> {
    let output = Command::new(env::current_exe()?).args(["--footprint-of", name, &keys.to_string()]).output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn print_footprint(name: &str, keys: &str) -> io::Result<()> {
    let keys = keys.parse().map_err(io::Error::other)?;
    let footprint = footprint::measure(name, keys);
    let footprint = footprint.ok_or_else(|| io::Error::other(format!("the memory of {name} cannot be measured")))?;
    println!("{}", serde_json::to_string(&footprint)?);
    Ok(())
}

/// A line that shows the progress, if the flag says that standard error is a terminal. It disappears on drop.
struct Progress(bool);

impl Progress {
    fn show(&self, text: &str) {
        if self.0 {
            eprint!("\r\x1b[2K{text}");
            let _ = io::stderr().flush();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show("");
    }
}

fn print_row(result: &RowResult, rounds: usize, threads: usize) {
    let RowResult { sides, records, checks, overlap, on_processor } = result;
    let percent = |share: f64| (share * 100.0).round();
    let overlap = if threads > 1 { format!(", overlap {} %", percent(*overlap)) } else { String::new() };
    println!("  {rounds} rounds of {checks} checks a thread; on processor {} %{overlap}", percent(*on_processor));
    println!("  {:<28} {}", sides[0].name, figures(sides[0].ns, 1));
    for (side, record) in sides[1..].iter().zip(records) {
        let Spread { least, most, .. } = side.ratio;
        let ratio = format!("{:.2} [{least:.2}, {most:.2}]", record.ratio);
        println!("  {:<28} {}  {ratio:<22}{}", side.name, figures(side.ns, 1), verdict(record));
    }
    if let Some(best) = records.iter().find(|record| record.is_best) {
        let verdict = best.best_target.as_deref().zip(best.best_met).map(judged).unwrap_or_default();
        println!("  best peer: {}, {:.1}, ratio {:.2}{verdict}", best.peer, best.peer_ns, best.ratio);
    }
    for bound in &records[sides.len() - 1..] {
        if bound.peer == THROUGHPUT_GOAL {
            let goal = threads as f64 * 1e3 / bound.peer_ns;
            let rate = bound.ours_m_per_second.unwrap_or(f64::NAN);
            let verdict = judged((&format!(">= {goal:.0}"), bound.met == Some(true)));
            println!("  million checks a second of all threads together: {rate:.1}{verdict}");
        } else {
            println!("  {:<28} {:>9.1}{}", bound.peer, bound.peer_ns, verdict(bound));
        }
    }
}

fn figures(Spread { least, median, most }: Spread, digits: usize) -> String {
    format!("{median:>9.digits$} {:<20}", format!("[{least:.digits$}, {most:.digits$}]"))
}

fn verdict(record: &RowRecord) -> String {
    record.target.as_deref().zip(record.met).map(judged).unwrap_or_default()
}

fn judged((target, is_met): (&str, bool)) -> String {
    format!("  {target}: {}", if is_met { "met" } else { "MISSED" })
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Returns the first line of the report: processor, load and unit.
fn machine() -> String {
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let field = |name| {
        let fields = cpus.lines().filter_map(|line| line.split_once(':'));
        fields.filter(|(field, _)| field.trim() == name).map(|(_, value)| value.trim()).next()
    };
    let family = field("cpu family").zip(field("model"));
    let family = family.map_or_else(String::new, |(family, model)| format!(" (family {family} model {model})"));
    let load = read("/proc/loadavg");
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{}{family}, {threads} processors, load {}; nanoseconds per check of a thread, median [least, most]",
        field("model name").unwrap_or(env::consts::ARCH),
        load.split(' ').next().unwrap_or_default()
    )
}
