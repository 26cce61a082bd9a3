//! The commands and their settings. Each is a flag and a `TIDEGATE_*` variable, in that order of precedence.

use std::path::PathBuf;

use clap::{
    Args, Parser, Subcommand, ValueEnum,
    builder::{FalseyValueParser, Styles},
};
use tidegate::formats::Format;
use tidegate_replay::LogFormat;

/// A rate limiter in three sizes: a library, a server, a fleet.
///
/// Without a command it explains itself and replays a demo.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, styles = Styles::plain(), max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// No colours; there are none in a file or a pipe anyway.
    #[arg(long, global = true, env = "NO_COLOR", value_parser = FalseyValueParser::new())]
    pub(crate) no_color: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Replay(ReplayArguments),
    /// Works on policy documents.
    Policy {
        #[command(subcommand)]
        command: PolicyCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    Check(CheckArguments),
}

const REPLAY_HELP: &str = "\
Examples:
  tidegate replay --demo
  tidegate replay access.log --policy policy.toml
  tidegate replay access.log.2.gz access.log.1 access.log --policy policy.toml
  zcat *.gz | tidegate replay - --policy policy.toml --output json --top 0

Formats:
  common     ADDRESS IDENT USER [17/May/2015:10:05:03 +0000] \"REQUEST\" STATUS BYTES ...
  combined   common, then \"REFERER\" \"AGENT\"
  json       an object a line. The first of these fields that a line has counts:
               time      time, timestamp, @timestamp, ts, time_iso8601, msec, time_local
                         (RFC 3339, 17/May/2015:10:05:03 +0000, or Unix seconds or milliseconds)
               client    ip, remote_addr, client_ip, client, remote_ip, remote
               user      user, remote_user
               method    method, request_method
               endpoint  path, uri, request_uri, endpoint, url
               request   \"GET /path HTTP/1.1\", or an object with the fields above
  auto       line by line: json where a line begins with {, else common
Gzip is recognised by itself.

A request counts as the identity `ip`, and as `user` where the line names one; its endpoint is the
path without the query; its cost is 1. Requests are decided in order of time, those of one instant in
the order of their lines.

Exit status: 0; 2 when something could not be read (a log that breaks off is reported as far as it
goes), or when there was no room for every counter.";

/// Shows what a policy would have done to the traffic of access logs.
#[derive(Debug, Args)]
#[command(after_help = REPLAY_HELP)]
pub(crate) struct ReplayArguments {
    /// Logs, oldest first; `-` is standard input.
    #[arg(value_name = "LOG", required_unless_present = "demo", conflicts_with = "demo")]
    pub(crate) logs: Vec<PathBuf>,
    /// The policy: .toml, .yaml or .json. The demo brings its own unless one is given.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_POLICY", required_unless_present = "demo")]
    pub(crate) policy: Option<PathBuf>,
    /// Replay an hour of made-up traffic.
    #[arg(long)]
    pub(crate) demo: bool,
    /// Another number makes other traffic.
    #[arg(long, value_name = "N", env = "TIDEGATE_SEED", default_value_t = tidegate_replay::demo::DEFAULT_SEED)]
    pub(crate) seed: u64,
    /// Format of the logs.
    #[arg(long, env = "TIDEGATE_FORMAT", value_enum, default_value_t = LogFormatName::Auto)]
    pub(crate) format: LogFormatName,
    /// How to print the report.
    #[arg(long, env = "TIDEGATE_OUTPUT", value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// How many clients to list; 0 lists all.
    #[arg(long, value_name = "N", env = "TIDEGATE_TOP", default_value_t = 20)]
    pub(crate) top: usize,
    /// How far lines may be out of order. A line that is later counts as late and is decided at the newest time. At most
    /// a million lines wait.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_WINDOW", default_value = "1h",
        value_parser = tidegate::time::parse_period)]
    pub(crate) window: u64,
    /// Room for so many counters at once, 24 bytes each; by the size of the logs unless given.
    #[arg(long, value_name = "N", env = "TIDEGATE_MAX_KEYS", value_parser = max_keys)]
    pub(crate) max_keys: Option<usize>,
}

/// Says whether a policy is right, and if not, everything that is wrong with it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate policy check policy.toml
  generate-policy | tidegate policy check - --format json

Exit status: 0 the policy is right, 1 it is wrong, 2 it could not be read.")]
pub(crate) struct CheckArguments {
    /// The policy; `-` is standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Format of the policy; by the file's name unless given.
    #[arg(long, env = "TIDEGATE_POLICY_FORMAT", value_enum)]
    pub(crate) format: Option<PolicyFormatName>,
}

/// From 1 to a billion (24 GB).
fn max_keys(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=1_000_000_000).contains(number));
    number.ok_or_else(|| "write a whole number from 1 to 1000000000".to_owned())
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormatName {
    Auto,
    Common,
    Combined,
    Json,
}

impl From<LogFormatName> for LogFormat {
    fn from(name: LogFormatName) -> Self {
        match name {
            LogFormatName::Auto => Self::Auto,
            LogFormatName::Common => Self::Common,
            LogFormatName::Combined => Self::Combined,
            LogFormatName::Json => Self::Json,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PolicyFormatName {
    Toml,
    Yaml,
    Json,
}

impl From<PolicyFormatName> for Format {
    fn from(name: PolicyFormatName) -> Self {
        match name {
            PolicyFormatName::Toml => Self::Toml,
            PolicyFormatName::Yaml => Self::Yaml,
            PolicyFormatName::Json => Self::Json,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
