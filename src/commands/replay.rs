//! `tidegate replay`: opens what it is told to, and prints the report.

use std::{
    fs::{self, File},
    io::{self, IsTerminal},
    path::{Path, PathBuf},
};

use tidegate::{Snapshot, formats::Format};
use tidegate_replay::{
    ClientOptions, LogInput, LogKey, LogOptions, LogSource, Replay, ReplayOptions, ReplayReport, TextStyle, demo,
    keys_for, private_networks, text_report,
};

use crate::{
    cli::ReplayArguments,
    commands::progress::Progress,
    formats::Output,
    output::{Ended, Failure, complain, say},
    policy_file,
};

const STANDARD_INPUT: &str = "-";

/// Characters of a line where nobody says how wide the screen is.
const WIDTH: usize = 100;

/// Gzip makes logs this much smaller, or less.
const GZIP_RATIO: u64 = 20;

pub(crate) fn run(arguments: &ReplayArguments, no_color: bool) -> Result<Ended, Failure> {
    let policy = match &arguments.policy {
        Some(file) => policy_file::load(file)?,
        None if arguments.demo => demo_policy()?,
        None => return Err(Failure("give a policy with --policy FILE, or replay a --demo".to_owned())),
    };
    let key = arguments.key.as_ref().map(|key| LogKey::new(key, &arguments.kind)).transpose();
    let key = key.map_err(|error| Failure(format!("--kind: {error}")))?;
    let trusted = arguments.trusted_proxy.clone();
    let reading = LogOptions {
        format: arguments.format,
        key,
        fields: arguments.map.clone().unwrap_or_default(),
        clients: ClientOptions {
            trusted_proxies: if trusted.is_empty() { private_networks() } else { trusted },
            ipv6_prefix: arguments.ipv6_prefix,
            host_names: arguments.host_names,
        },
        time_zone: arguments.time_zone.clone(),
    };
    let options = |policy: &Snapshot, log_bytes| ReplayOptions {
        reading: reading.clone(),
        window_ns: arguments.window.as_nanos() as u64,
        max_keys: arguments.max_keys.unwrap_or_else(|| keys_for(policy, log_bytes)),
    };
    let (report, ended) = if arguments.demo {
        let options = options(&policy, Some(0));
        (demo_report(policy, &options, arguments.seed, arguments.top)?, Ended::Well)
    } else {
        let sizes = arguments.logs.iter().map(|log| size(log)).collect::<Result<Vec<_>, _>>()?;
        let bytes = sizes.iter().copied().sum::<Option<u64>>();
        // Whether a log is gzip is known when it is read; the room is for the worst case only if its name says so.
        let is_gzip = |log: &PathBuf| log.extension().is_some_and(|extension| extension == "gz");
        let ratio = if arguments.logs.iter().any(is_gzip) { GZIP_RATIO } else { 1 };
        let options = options(&policy, bytes.map(|bytes| bytes.saturating_mul(ratio)));
        let mut replay = start(policy, &options)?;
        let progress = Progress::new(bytes);
        let outcome = read_all(&mut replay, &arguments.logs, &progress);
        progress.clear();
        let ended = outcome?;
        tell_unreadable(&replay);
        (replay.finish(arguments.top), ended)
    };
    let ended = if report.overflow_charges > 0 {
        complain(format_args!(
            "warning: more counters than fit were live at once, so some clients may have been denied for want of one \
             ({} charges); give room with --max-keys",
            report.overflow_charges
        ));
        Ended::Partly
    } else {
        ended
    };
    let ended = match ended {
        Ended::Well if report.unreadable > report.lines / 2 => Ended::Partly,
        Ended::Well if report.late > 0 && !arguments.allow_late => {
            complain(format_args!(
                "warning: lines later than the window: {}, so denials may be wrong; give a longer --window, or --allow-late",
                report.late
            ));
            Ended::Late
        }
        ended => ended,
    };
    match arguments.output {
        Output::Text => say(text_report(&report, &look(no_color)).as_bytes())?,
        Output::Json => {
            let mut json = serde_json::to_vec(&report).map_err(|error| Failure(error.to_string()))?;
            json.push(b'\n');
            say(&json)?;
        }
    }
    Ok(ended)
}

/// The demo's log under a policy.
pub(crate) fn demo_report(
    policy: Snapshot,
    options: &ReplayOptions,
    seed: u64,
    top: usize,
) -> Result<ReplayReport, Failure> {
    let mut replay = start(policy, options)?;
    replay.read(demo::log(seed).as_bytes(), "demo", |_| ()).map_err(|error| Failure(error.to_string()))?;
    Ok(replay.finish(top))
}

/// The policy that comes with the demo.
pub(crate) fn demo_policy() -> Result<Snapshot, Failure> {
    Snapshot::parse(demo::POLICY, Format::Toml).map_err(|problems| Failure(problems.to_string()))
}

/// As wide as the screen, and in colours where somebody looks who did not ask for none.
pub(crate) fn look(no_color: bool) -> TextStyle {
    let stdout = io::stdout();
    let width = terminal_size::terminal_size_of(&stdout).map_or(WIDTH, |(width, _)| usize::from(width.0));
    TextStyle { width, color: stdout.is_terminal() && !no_color }
}

fn start(policy: Snapshot, options: &ReplayOptions) -> Result<Replay, Failure> {
    Replay::new(policy, options).map_err(|error| Failure(error.to_string()))
}

/// How long a log is on the disk; `None` for standard input and for pipes.
fn size(log: &Path) -> Result<Option<u64>, Failure> {
    if log.as_os_str() == STANDARD_INPUT {
        return Ok(None);
    }
    let about = fs::metadata(log).map_err(|error| cannot_read(log, &error))?;
    Ok(about.is_file().then_some(about.len()))
}

fn read_all(replay: &mut Replay, logs: &[PathBuf], progress: &Progress) -> Result<Ended, Failure> {
    let opened = logs.iter().map(|path| log(path, progress)).collect::<Result<Vec<_>, _>>()?;
    let errors = replay.read_all(opened, |lines| progress.lines(lines));
    if replay.lines() == 0 || replay.requests() == 0 && !errors.is_empty() {
        let names: Vec<String> = logs.iter().map(|log| log.display().to_string()).collect();
        let why =
            errors.first().map_or_else(|| format!("{}: no line to replay", names.join(", ")), ToString::to_string);
        return Err(Failure(why));
    }
    for error in &errors {
        complain(format_args!("warning: {error}"));
    }
    Ok(if errors.is_empty() { Ended::Well } else { Ended::Partly })
}

/// A log that is opened when its lines are due; what is no file, such as a pipe, is opened now and read once.
fn log<'a>(path: &'a Path, progress: &'a Progress) -> Result<LogSource<'a>, Failure> {
    let name = path.display().to_string();
    let failure = |error| cannot_read(path, &error);
    if path.as_os_str() == STANDARD_INPUT {
        return Ok(LogSource::stream(name, progress.watch(io::stdin().lock())));
    }
    let file = File::open(path).map_err(failure)?;
    if !file.metadata().map_err(failure)?.is_file() {
        return Ok(LogSource::stream(name, progress.watch(file)));
    }
    drop(file);
    Ok(LogSource::file(name, move || Ok(Box::new(progress.watch(File::open(path)?)) as LogInput<'a>)))
}

fn tell_unreadable(replay: &Replay) {
    let shown = replay.first_unreadable();
    for line in shown {
        complain(format_args!("cannot read {line}"));
    }
    let more = replay.unreadable() - shown.len() as u64;
    if more > 0 {
        complain(format_args!("and {more} more lines that cannot be read"));
    }
}

fn cannot_read(log: &Path, error: &io::Error) -> Failure {
    Failure::of_file(&log.display().to_string(), format!("the log cannot be read: {error}"))
}
