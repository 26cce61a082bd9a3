//! `tidegate replay`: reads access logs, and prints what a policy would have decided.

use std::{
    fs::{self, File},
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{
    Args,
    builder::{FalseyValueParser, PossibleValuesParser, TypedValueParser},
};
use tidegate::{Snapshot, formats::Format, time::parse_period};
use tidegate_admin::IpNet;
use tidegate_middleware::address::{V6_BITS, parse_network};
use tidegate_replay::{
    ClientOptions, FieldMap, LogFormat, LogInput, LogKey, LogOptions, LogSource, LogZone, Replay, ReplayOptions,
    ReplayReport, TextStyle, demo, keys_for, private_networks, text_report,
};

use super::progress::ReplayProgress;
use crate::{
    formats::OutputFormat,
    output::{CommandError, CommandStatus, print_diagnostic, print_result},
    policy_file,
    value_parsers::{ipv6_prefix, max_keys, whole_number},
};

const REPLAY_HELP: &str = "\
Examples:
  tidegate replay --demo
  tidegate replay access.log --policy policy.toml
  tidegate replay access.log* --policy policy.toml
  tidegate replay web1.log web2.log --policy policy.toml
  tidegate replay app.json --map client=peer.addr,time=at --policy policy.toml
  zcat *.gz | tidegate replay - --policy policy.toml --output json --top 0

Formats:
  common    ADDRESS IDENT USER [17/May/2015:10:05:03 +0000] \"REQUEST\" STATUS ...
            The time may also be [2015-05-17T10:05:03Z]. The virtual host may
            stand before or after the address, and the list of old ingress-nginx
            after it
  combined  common, then \"REFERER\" \"AGENT\"
  json      one object per line, with the fields below
  csv       a header with these fields, then one record per line (RFC 4180);
            separated by commas, semicolons, tabs or vertical bars
  w3c       W3C extended, as IIS and CloudFront write it: a line #Fields:, then
            lines of values
  alb       AWS load balancers, application and classic
  auto      w3c after a line #Fields:; csv if the first line is a header with a
            time and a client; otherwise line by line: alb, json if the line
            begins with {, else common

Fields, in upper or lower case; the first one that a line has is read:
  time      StartUTC, time, timestamp, @timestamp, ts, time_iso8601, msec,
            time_local, start_time, EdgeStartTimestamp, requestTime
            (RFC 3339, 17/May/2015:10:05:03 +0000, or seconds, milli-, micro- or
            nanoseconds since 1970)
  client    ip, client_ip, remote_addr, client, remote_ip, remote, ClientHost,
            ClientAddr, ClientIP, downstream_remote_address, client.ip,
            source.ip
  proxies   x_forwarded_for, x-forwarded-for, http_x_forwarded_for, forwarded,
            http_forwarded, x-real-ip, http_x_real_ip
  user      user, remote_user, user_id, ClientUsername, user.name, user.id
  method    method, request_method, RequestMethod, httpMethod,
            ClientRequestMethod, http.request.method
  path      request_uri, path, uri, endpoint, url, RequestPath, requestUrl,
            ClientRequestURI, url.path
  request   \"GET /path HTTP/1.1\", or an object with the fields above; also
            httpRequest
  --map names others.

Prefixes of other programs are skipped before a line of common, combined or
json: the name of a file (grep), a header of syslog, the prefix of a container
(CRI, kubectl, Docker Compose). The report names the format of each log.
Gzip, UTF-8, and UTF-16 with a byte order mark are recognised. For another
compression the error names the command that unpacks it.

The client is an address, with or without brackets or a port. In a list of
addresses it is the last one that is no --trusted-proxy. IPv6 addresses are
grouped by --ipv6-prefix. A line without a client (-) meets no limit, and the
report counts it. A line whose client is not an address cannot be read, unless
--host-names is given.

A request has the identity `ip`, and `user` if the line names one, or what --key
and --kind say. Its endpoint is the path without the query, and its cost is 1.
Requests are decided in order of time; those of one instant in the order of
their lines.

Several logs are merged by time. Lines that cannot be read are skipped: the
first ten are shown, and if they are more than 1 % of all lines, the report
begins with a warning and an example of each kind.

Exit status:
  0  the report is complete
  2  a log could not be read to its end (the report covers the rest), more than
     half of the lines cannot be read, no line has a field that --map names, or
     there were more counters than --max-keys; there is no report if a log does
     not exist, or no log has a request
  3  lines are later than --window, so denials may be wrong; never with
     --allow-late";

/// Replays access logs, and reports what a policy would have decided.
#[derive(Debug, Args)]
#[command(after_help = REPLAY_HELP)]
pub(crate) struct ReplayArguments {
    /// Access logs in any order: they are merged by time. `-` is standard input.
    #[arg(value_name = "LOG", required_unless_present = "demo", conflicts_with = "demo")]
    logs: Vec<PathBuf>,
    /// The policy file: .toml, .yaml or .json. --demo has a policy of its own.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_POLICY")]
    policy: Option<PathBuf>,
    /// Replay an hour of synthetic traffic.
    #[arg(long)]
    demo: bool,
    /// The seed of the synthetic traffic: another number makes other traffic.
    #[arg(long, value_name = "N", env = "TIDEGATE_SEED", default_value_t = tidegate_replay::demo::DEFAULT_SEED,
        value_parser = whole_number::<u64>)]
    seed: u64,
    /// The format of the logs.
    #[arg(long, env = "TIDEGATE_FORMAT", default_value = "auto",
        value_parser = PossibleValuesParser::new(LogFormat::ALL.map(|(name, _)| name)).try_map(|name| name.parse::<LogFormat>()))]
    format: LogFormat,
    /// A field of JSON lines or CSV that identifies the client, in place of the user.
    #[arg(long, value_name = "FIELD", env = "TIDEGATE_KEY")]
    key: Option<String>,
    /// The kind of identity in the field of --key. `ip` puts it in place of the address.
    #[arg(long, value_name = "KIND", env = "TIDEGATE_KIND", default_value = "user", requires = "key")]
    kind: String,
    /// The names of fields in JSON lines, CSV or W3C extended, if they differ from those below: client, method, path, time and
    /// user. The name of a field inside an object has a dot: peer.addr. The status is not read.
    #[arg(long, value_name = "WHAT=FIELD,...", env = "TIDEGATE_MAP")]
    map: Option<FieldMap>,
    /// The time zone of times without one: a name such as Europe/Berlin, or an offset such as +02:00. Without this option such
    /// lines cannot be read.
    #[arg(long, value_name = "ZONE", env = "TIDEGATE_TIME_ZONE", allow_hyphen_values = true)]
    time_zone: Option<LogZone>,
    /// Accept host names as clients, for servers that log them in place of addresses.
    #[arg(long, env = "TIDEGATE_HOST_NAMES", value_parser = FalseyValueParser::new())]
    host_names: bool,
    /// The address or network of a proxy. In a list of addresses such as X-Forwarded-For, the client is the last address that is
    /// not a proxy. The default is the private, loopback and link-local networks. Repeat the option for several, or separate
    /// them by commas.
    #[arg(long, value_name = "CIDR", env = "TIDEGATE_TRUSTED_PROXY", value_delimiter = ',', value_parser = parse_network)]
    trusted_proxy: Vec<IpNet>,
    /// The number of bits of an IPv6 address that count as one client, 1 to 128, as with `tidegate serve`.
    #[arg(long, value_name = "BITS", env = "TIDEGATE_IPV6_PREFIX", default_value_t = V6_BITS, value_parser = ipv6_prefix)]
    ipv6_prefix: u8,
    /// Do not end with exit status 3 if lines are later than --window.
    #[arg(long, env = "TIDEGATE_ALLOW_LATE", value_parser = FalseyValueParser::new())]
    allow_late: bool,
    /// The format of the report.
    #[arg(long, env = "TIDEGATE_OUTPUT", value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    /// The number of clients to list. 0 lists all.
    #[arg(long, value_name = "N", env = "TIDEGATE_TOP", default_value_t = 20, value_parser = whole_number::<usize>)]
    top: usize,
    /// The longest time by which lines may be out of order. A later line is reported as late, and decided at the newest time. At most a million
    /// lines wait.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_WINDOW", default_value = "1h",
        value_parser = parse_period)]
    window: Duration,
    /// The most counters at once, 24 bytes each. The default depends on the size of the logs.
    #[arg(long, value_name = "N", env = "TIDEGATE_MAX_KEYS", value_parser = max_keys)]
    max_keys: Option<usize>,
}

const STANDARD_INPUT: &str = "-";

/// The width of a line in characters, if output does not go to a terminal.
const WIDTH: usize = 100;

/// The highest ratio by which gzip usually compresses logs.
const GZIP_RATIO: u64 = 20;

pub(crate) fn run(arguments: &ReplayArguments, no_color: bool) -> Result<CommandStatus, CommandError> {
    let policy = match &arguments.policy {
        Some(file) => policy_file::load(file)?,
        None if arguments.demo => demo_policy()?,
        None => {
            return Err(CommandError(
                "there is no policy; give one with --policy FILE, or replay the example with --demo".to_owned(),
            ));
        }
    };
    let key = arguments.key.as_ref().map(|key| LogKey::new(key, &arguments.kind)).transpose();
    let key = key.map_err(|error| CommandError(format!("--kind: {error}")))?;
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
    let (report, status) = if arguments.demo {
        let options = options(&policy, Some(0));
        (demo_report(policy, &options, arguments.seed, arguments.top)?, CommandStatus::Success)
    } else {
        let sizes = arguments.logs.iter().map(|log| file_size(log)).collect::<Result<Vec<_>, _>>()?;
        let bytes = sizes.iter().copied().sum::<Option<u64>>();
        // Whether a log is gzip is known only once it is read, so its name decides whether the capacity is for the worst case.
        let is_gzip = |log: &PathBuf| log.extension().is_some_and(|extension| extension == "gz");
        let ratio = if arguments.logs.iter().any(is_gzip) { GZIP_RATIO } else { 1 };
        let options = options(&policy, bytes.map(|bytes| bytes.saturating_mul(ratio)));
        let mut replay = start_replay(policy, &options)?;
        let progress = ReplayProgress::new(bytes);
        let outcome = read_all(&mut replay, &arguments.logs, &progress);
        progress.clear();
        let status = outcome?;
        print_unreadable(&replay);
        (replay.finish(arguments.top), status)
    };
    let status = if report.overflow_charges > 0 {
        print_diagnostic(format_args!(
            "warning: there were more counters at once than --max-keys allows, so some clients may have been denied for lack of one \
             ({} charges); raise --max-keys",
            report.overflow_charges
        ));
        CommandStatus::Partial
    } else {
        status
    };
    let status = match status {
        CommandStatus::Success if report.unreadable > report.lines / 2 => CommandStatus::Partial,
        CommandStatus::Success if report.late > 0 && !arguments.allow_late => {
            print_diagnostic(format_args!(
                "warning: {} lines are later than the window, so denials may be wrong; give a longer --window, or --allow-late",
                report.late
            ));
            CommandStatus::LateInput
        }
        status => status,
    };
    match arguments.output {
        OutputFormat::Text => print_result(text_report(&report, &text_style(no_color)).as_bytes())?,
        OutputFormat::Json => {
            let mut json = serde_json::to_vec(&report).map_err(|error| CommandError(error.to_string()))?;
            json.push(b'\n');
            print_result(&json)?;
        }
    }
    Ok(status)
}

/// Replays the log of the demo under a policy.
fn demo_report(policy: Snapshot, options: &ReplayOptions, seed: u64, top: usize) -> Result<ReplayReport, CommandError> {
    let mut replay = start_replay(policy, options)?;
    replay.read(demo::log(seed).as_bytes(), "demo", |_| ()).map_err(|error| CommandError(error.to_string()))?;
    Ok(replay.finish(top))
}

/// Returns the policy of the demo.
fn demo_policy() -> Result<Snapshot, CommandError> {
    Snapshot::parse(demo::POLICY, Format::Toml).map_err(|problems| CommandError(problems.to_string()))
}

/// Returns the style of the report: the width of the terminal, and colours on a terminal unless `no_color`.
fn text_style(no_color: bool) -> TextStyle {
    let stdout = io::stdout();
    let width = terminal_size::terminal_size_of(&stdout).map_or(WIDTH, |(width, _)| usize::from(width.0));
    TextStyle { width, color: stdout.is_terminal() && !no_color }
}

fn start_replay(policy: Snapshot, options: &ReplayOptions) -> Result<Replay, CommandError> {
    Replay::new(policy, options).map_err(|error| CommandError(error.to_string()))
}

/// Returns the size of a log on the disk; `None` for standard input and pipes.
fn file_size(log: &Path) -> Result<Option<u64>, CommandError> {
    if log.as_os_str() == STANDARD_INPUT {
        return Ok(None);
    }
    let about = fs::metadata(log).map_err(|error| cannot_read(log, &error))?;
    Ok(about.is_file().then_some(about.len()))
}

fn read_all(replay: &mut Replay, logs: &[PathBuf], progress: &ReplayProgress) -> Result<CommandStatus, CommandError> {
    let opened = logs.iter().map(|path| log_source(path, progress)).collect::<Result<Vec<_>, _>>()?;
    let errors = replay.read_all(opened, |lines| progress.set_lines(lines));
    if replay.lines() == 0 || replay.requests() == 0 && !errors.is_empty() {
        let names: Vec<String> = logs.iter().map(|log| log.display().to_string()).collect();
        let why = errors
            .first()
            .map_or_else(|| format!("{}: there is no line to replay", names.join(", ")), ToString::to_string);
        return Err(CommandError(why));
    }
    for error in &errors {
        print_diagnostic(format_args!("warning: {error}"));
    }
    Ok(if errors.is_empty() { CommandStatus::Success } else { CommandStatus::Partial })
}

/// Returns a log that is opened when its lines are due. Anything but a file, such as a pipe, is opened now and read once.
fn log_source<'a>(path: &'a Path, progress: &'a ReplayProgress) -> Result<LogSource<'a>, CommandError> {
    let name = path.display().to_string();
    let failure = |error| cannot_read(path, &error);
    if path.as_os_str() == STANDARD_INPUT {
        return Ok(LogSource::stream(name, progress.count_bytes(io::stdin().lock())));
    }
    let file = File::open(path).map_err(failure)?;
    if !file.metadata().map_err(failure)?.is_file() {
        return Ok(LogSource::stream(name, progress.count_bytes(file)));
    }
    drop(file);
    Ok(LogSource::file(name, move || Ok(Box::new(progress.count_bytes(File::open(path)?)) as LogInput<'a>)))
}

fn print_unreadable(replay: &Replay) {
    let shown = replay.first_unreadable();
    for line in shown {
        print_diagnostic(format_args!("cannot read {line}"));
    }
    let more = replay.unreadable() - shown.len() as u64;
    if more > 0 {
        print_diagnostic(format_args!("and {more} more lines"));
    }
}

fn cannot_read(log: &Path, error: &io::Error) -> CommandError {
    CommandError::of_file(&log.display().to_string(), format!("cannot read the log: {error}"))
}
