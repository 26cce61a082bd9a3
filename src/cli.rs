//! The commands and their settings. Each setting is a flag, a `TIDEGATE_*` variable and a key of `tidegate.toml`, in that
//! order of precedence.

use std::{convert::Infallible, net::SocketAddr, num::NonZeroU32, path::PathBuf, str::FromStr, time::Duration};

use clap::{
    Args, Parser, Subcommand,
    builder::{FalseyValueParser, PossibleValuesParser, Styles, TypedValueParser},
};
use tidegate::{clock::SystemClock, time::parse_period};
use tidegate_admin::{DatabaseUrl, IpNet, Keys};
use tidegate_middleware::address::{V6_BITS, parse_network};
use tidegate_replay::{FieldMap, LogFormat, LogZone};
use tidegate_service::{CONNECTIONS_MAX, DEFAULT_PEER_CONNECTIONS};

use crate::{
    commands::check::AskArguments,
    commands::policy::{
        diff::DiffArguments, export::ExportArguments, import::ImportArguments, publish::PublishArguments,
        rollout::RolloutArguments, test::TestArguments,
    },
    commands::user::UserCommand,
    formats::{Output, PolicyFormatName},
    server::authorize::AddressArguments,
    server::dashboard_settings::AccessArguments,
    server::listeners::DoorArguments,
};

const HELP: &str = "\
Every setting is a flag, a variable and a key of tidegate.toml, in that order of precedence:
  --admin 127.0.0.1:9000      TIDEGATE_ADMIN=127.0.0.1:9000      admin = \"127.0.0.1:9000\"";

const ADMIN_HELP: &str = "\
Examples:
  tidegate admin
  tidegate admin --admin 0.0.0.0:8080 --admin-url https://admin.example --data /var/lib/tidegate
  tidegate admin backup backup.db

Without a command this serves the dashboard and the REST calls, and answers no checks: nodes do, which follow it.";

/// A rate limiter in three sizes: a library, a server, a fleet.
///
/// Without a command it serves, with the settings of `tidegate serve`.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, styles = Styles::plain(), max_term_width = 100, after_help = HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// No colours; there are none in a file or a pipe anyway.
    #[arg(long, global = true, env = "NO_COLOR", value_parser = FalseyValueParser::new())]
    pub(crate) no_color: bool,
    /// File of settings; tidegate.toml in the working folder, if it is there, unless given.
    #[arg(long, global = true, value_name = "FILE", env = "TIDEGATE_CONFIG")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(Box<ServeArguments>),
    /// Serves the control plane alone, for nodes that follow it; or works on the database of a server.
    #[command(args_conflicts_with_subcommands = true, after_help = ADMIN_HELP)]
    Admin {
        #[command(subcommand)]
        command: Option<AdminCommand>,
        #[command(flatten)]
        control: ControlArguments,
        #[command(flatten)]
        addresses: AddressArguments,
    },
    Node(NodeArguments),
    Check(AskArguments),
    Replay(ReplayArguments),
    /// Checks, tests, compares, imports, exports and publishes policies.
    Policy {
        #[command(subcommand)]
        command: PolicyCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdminCommand {
    Backup(BackupArguments),
    /// Adds and lists users, gives them new passwords, and removes second factors, whether or not a server runs.
    User {
        #[command(subcommand)]
        command: UserCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    Check(CheckArguments),
    Test(TestArguments),
    Diff(DiffArguments),
    Import(ImportArguments),
    Export(ExportArguments),
    Publish(PublishArguments),
    Rollout(RolloutArguments),
}

/// Serves everything from one process: checks over HTTP, and the dashboard in the browser.
///
/// On the first start it publishes an example policy and prints a link with which the first administrator signs in.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate serve
  tidegate serve --data /var/lib/tidegate --environment prod-eu --production
  tidegate serve --admin 127.0.0.1:0 --http 127.0.0.1:0    any free ports; they are printed
  tidegate serve --redis redis://127.0.0.1:6379            limits may be shared with nodes and other servers

Ctrl+C or SIGTERM lets open requests end and stops. What was published survives a crash at any time.")]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) control: ControlArguments,
    #[command(flatten)]
    pub(crate) door: DoorArguments,
    /// Keep the requests of one identity in N for fifteen minutes, in memory, so that policies can be tried on them: 1/N or
    /// off.
    #[arg(long, value_name = "SHARE", env = "TIDEGATE_RECORD", default_value = "off", value_parser = share)]
    pub(crate) record: Share,
}

/// What a control plane is made of.
#[derive(Debug, Args)]
pub(crate) struct ControlArguments {
    /// Where the dashboard and its REST calls listen. Beyond loopback, give it a certificate, or put a proxy with TLS before it:
    /// browsers then send the session over https only.
    #[arg(long, value_name = "ADDRESS", env = "TIDEGATE_ADMIN", default_value = "127.0.0.1:8080")]
    pub(crate) admin: SocketAddr,
    /// Where people reach the dashboard, when that is not where it listens: behind a proxy with TLS.
    #[arg(long, value_name = "URL", env = "TIDEGATE_ADMIN_URL", value_parser = base_url)]
    pub(crate) admin_url: Option<String>,
    /// Folder of the database, and of what-if's runs and logs; made for this user alone when it is absent. Its files can be
    /// opened by this user alone. With --database it holds runs and logs, if it is given.
    #[arg(long, value_name = "FOLDER", env = "TIDEGATE_DATA", default_value = "./tidegate-data")]
    pub(crate) data: PathBuf,
    /// Was the folder given, in whatever place?
    #[arg(skip)]
    pub(crate) is_data_given: bool,
    #[arg(long, value_name = "URL", env = "TIDEGATE_DATABASE", hide_env_values = true, value_parser = database,
        help = "A PostgreSQL database instead of the one in the folder: postgres://USER:PASSWORD@HOST/NAME. Two servers may \
                have the same; what is published through one reaches the other. Flags are seen by others on the machine: give \
                a password by the variable or the file")]
    pub(crate) database: Option<DatabaseUrl>,
    /// A policy that is kept in a file: published at the start when its content changed since it was last published from
    /// there. Where the live policy was edited since, that one stays.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_POLICY")]
    pub(crate) policy: Option<PathBuf>,
    /// Publish the file of --policy even where the live policy was edited since.
    #[arg(long, env = "TIDEGATE_POLICY_FORCE", value_parser = FalseyValueParser::new())]
    pub(crate) policy_force: bool,
    /// A name that the dashboard shows, so that nobody takes production for a test.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_ENVIRONMENT")]
    pub(crate) environment: Option<String>,
    /// This is production: the dashboard has a stripe over each page.
    #[arg(long, env = "TIDEGATE_PRODUCTION", value_parser = FalseyValueParser::new())]
    pub(crate) production: bool,
    /// Name of this node in the figures; that of the machine unless given. Servers with the same database have different ones.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_NODE", value_parser = node)]
    pub(crate) node: Option<String>,
    /// How identities are shown that were seen in traffic: clear, truncated (addresses by their network, others by their
    /// first characters) or hashed.
    #[arg(long, value_name = "HOW", env = "TIDEGATE_KEYS", default_value_t = Keys::default())]
    pub(crate) keys: Keys,
    #[command(flatten)]
    pub(crate) access: AccessArguments,
    /// Connections that one address may have at the dashboard and its REST calls, of 5,120; of IPv6, the first 64 bits are one
    /// address. Raise it where more nodes or people come by one address: a NAT, or a proxy.
    #[arg(long, value_name = "N", env = "TIDEGATE_ADMIN_CONNECTIONS_PER_PEER", default_value_t = DEFAULT_PEER_CONNECTIONS,
        value_parser = connections)]
    pub(crate) admin_connections_per_peer: usize,
    /// What is logged to standard error: error, warn, info, debug or trace, also by module.
    #[arg(long, value_name = "FILTER", env = "TIDEGATE_LOG", default_value = "info,actix_server=warn,actix_http=off")]
    pub(crate) log: String,
}

/// Follows an admin server, and answers checks by its policy.
///
/// It starts with the last good policy that it has, comes back by itself when the admin server was away, and takes each
/// policy that is published between two checks. It needs a token of the scope `node`, which an administrator makes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate node --admin http://127.0.0.1:8080 --token-file node.token
  tidegate node --admin https://admin.example --token-file /run/secrets/tidegate --name edge-1 --data /var/lib/tidegate
  TIDEGATE_REDIS=redis://:PASSWORD@store:6379 tidegate node --admin https://admin.example --token-file node.token

The token is read again before each connection, so a new one can be put into the file. GET /readyz answers 200 once there is
a policy. Ctrl+C or SIGTERM lets open requests end and stops; being killed loses nothing.")]
pub(crate) struct NodeArguments {
    /// Where the admin server is.
    #[arg(long = "admin", value_name = "URL", env = "TIDEGATE_ADMIN_URL", value_parser = base_url)]
    pub(crate) admin_url: String,
    /// File with the token.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TOKEN_FILE")]
    pub(crate) token_file: PathBuf,
    /// Under which the admin server knows it: no other node has it. Unless given, that of the machine with a random end, which
    /// is kept in the folder.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_NODE", value_parser = node)]
    pub(crate) name: Option<String>,
    /// Folder of the last good policy; made when it is absent.
    #[arg(long, value_name = "FOLDER", env = "TIDEGATE_DATA", default_value = "./tidegate-data")]
    pub(crate) data: PathBuf,
    /// Certificates of authorities that are trusted beside those of the system, PEM.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CA")]
    pub(crate) ca: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) door: DoorArguments,
    /// What is logged to standard error: error, warn, info, debug or trace, also by module.
    #[arg(long, value_name = "FILTER", env = "TIDEGATE_LOG", default_value = "info,actix_server=warn,actix_http=off")]
    pub(crate) log: String,
}

/// Copies the database while a server runs on it.
///
/// The copy is of one instant: all that was acknowledged before this command began is in it. It has its name only when it is
/// whole and on the disk. To use it, put it into an empty folder as tidegate.db, and name that folder with --data.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate admin backup backup.db
  tidegate admin backup --data /var/lib/tidegate /backup/tidegate-$(date +%F).db

Exit status: 0 the copy is there, 2 it is not; nothing that was there is overwritten.")]
pub(crate) struct BackupArguments {
    /// The copy; there must be nothing under this name.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Folder of the database.
    #[arg(long, value_name = "FOLDER", env = "TIDEGATE_DATA", default_value = "./tidegate-data")]
    pub(crate) data: PathBuf,
    #[arg(long, value_name = "URL", env = "TIDEGATE_DATABASE", hide_env_values = true, value_parser = database,
        help = "For a database in PostgreSQL this says which of its own tools copies it")]
    pub(crate) database: Option<DatabaseUrl>,
}

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
  json      an object a line, with the fields below
  csv       a header with these fields, then a record a line (RFC 4180), with
            commas, semicolons, tabs or vertical bars
  w3c       W3C extended, as IIS and CloudFront write it: a line #Fields:, then
            lines of values
  alb       AWS load balancers, application and classic
  auto      w3c after a line #Fields:; csv where the first line is a header with
            a time and a client; else line by line: alb, json where a line
            begins with {, else common

Fields, in any case; the first one that a line has counts:
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

Before a line of common, combined or json may stand what other programs write:
the name of a file (grep), a header of syslog, the stamp of a container (CRI,
kubectl, Docker Compose). The report says by which form each log was read.
Gzip, UTF-16 with a byte order mark and UTF-8 are recognised; other compressions
are named with the command that unpacks them.

The client is an address, with or without brackets or a port. Of a list the last
address counts that is no --trusted-proxy; IPv6 is counted by --ipv6-prefix. A
line without a client (-) counts against no limit and is counted as such; a line
whose client is no address cannot be read, unless --host-names is given.

A request counts as the identity `ip`, and as `user` where the line names one,
or as what --key and --kind say; its endpoint is the path without the query; its
cost is 1. Requests are decided in order of time, those of one instant in the
order of their lines.

Several logs are read as one, merged by time. Lines that cannot be read are left
out: the first ten are shown, and more than 1 % of all are a warning at the top
of the report, with an example of each kind.

Exit status:
  0  the report is whole
  2  a log could not be read, or not to its end (the report is of the other
     logs and of what was read), more than half of the lines cannot be read,
     a field that --map names is in no line, or there was no room for every
     counter; without a report where a log does not exist, or no log has a
     request
  3  lines are later than --window, so denials may be wrong; not with
     --allow-late";

/// Shows what a policy would have done to the traffic of access logs.
#[derive(Debug, Args)]
#[command(after_help = REPLAY_HELP)]
pub(crate) struct ReplayArguments {
    /// Logs in any order: they are merged by time. `-` is standard input.
    #[arg(value_name = "LOG", required_unless_present = "demo", conflicts_with = "demo")]
    pub(crate) logs: Vec<PathBuf>,
    /// The policy: .toml, .yaml or .json. The demo brings its own unless one is given.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_POLICY")]
    pub(crate) policy: Option<PathBuf>,
    /// Replay an hour of made-up traffic.
    #[arg(long)]
    pub(crate) demo: bool,
    /// Another number makes other traffic.
    #[arg(long, value_name = "N", env = "TIDEGATE_SEED", default_value_t = tidegate_replay::demo::DEFAULT_SEED,
        value_parser = whole_number::<u64>)]
    pub(crate) seed: u64,
    /// Format of the logs.
    #[arg(long, env = "TIDEGATE_FORMAT", default_value = "auto",
        value_parser = PossibleValuesParser::new(LogFormat::ALL.map(|(name, _)| name)).try_map(|name| name.parse::<LogFormat>()))]
    pub(crate) format: LogFormat,
    /// A field of JSON lines or CSV that says who came, in the place of the user.
    #[arg(long, value_name = "FIELD", env = "TIDEGATE_KEY")]
    pub(crate) key: Option<String>,
    /// The kind of identity that it says; `ip`: it stands in the place of the address.
    #[arg(long, value_name = "KIND", env = "TIDEGATE_KIND", default_value = "user", requires = "key")]
    pub(crate) kind: String,
    /// Fields of JSON lines, CSV or W3C extended with other names than those below: client, method, path, time and user; of
    /// a field in an object both names with a dot between them. The status is not looked at.
    #[arg(long, value_name = "WHAT=FIELD,...", env = "TIDEGATE_MAP")]
    pub(crate) map: Option<FieldMap>,
    /// The time zone of times that name none, which are refused otherwise: a name such as Europe/Berlin, or an offset such
    /// as +02:00.
    #[arg(long, value_name = "ZONE", env = "TIDEGATE_TIME_ZONE", allow_hyphen_values = true)]
    pub(crate) time_zone: Option<LogZone>,
    /// Take host names for clients, where a server writes them in the place of addresses.
    #[arg(long, env = "TIDEGATE_HOST_NAMES", value_parser = FalseyValueParser::new())]
    pub(crate) host_names: bool,
    /// A proxy, by its address or network: in a list of addresses such as X-Forwarded-For the client is the last one that is
    /// none of them. Unless given, these are the private, loopback and link-local networks. Several are given one by one,
    /// or with commas between them.
    #[arg(long, value_name = "CIDR", env = "TIDEGATE_TRUSTED_PROXY", value_delimiter = ',', value_parser = parse_network)]
    pub(crate) trusted_proxy: Vec<IpNet>,
    /// Bits of an IPv6 address that are counted together, 1 to 128, as the server does.
    #[arg(long, value_name = "BITS", env = "TIDEGATE_IPV6_PREFIX", default_value_t = V6_BITS, value_parser = ipv6_prefix)]
    pub(crate) ipv6_prefix: u8,
    /// Do not end with exit status 3 when lines are later than the window.
    #[arg(long, env = "TIDEGATE_ALLOW_LATE", value_parser = FalseyValueParser::new())]
    pub(crate) allow_late: bool,
    /// How to print the report.
    #[arg(long, env = "TIDEGATE_OUTPUT", value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// How many clients to list; 0 lists all.
    #[arg(long, value_name = "N", env = "TIDEGATE_TOP", default_value_t = 20, value_parser = whole_number::<usize>)]
    pub(crate) top: usize,
    /// How far lines may be out of order. A line that is later counts as late and is decided at the newest time. At most
    /// a million lines wait.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_WINDOW", default_value = "1h",
        value_parser = parse_period)]
    pub(crate) window: Duration,
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

/// One in so many; nobody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Share(pub(crate) Option<NonZeroU32>);

/// `off`, or `1/N` with N up to a million.
pub(crate) fn share(text: &str) -> Result<Share, String> {
    if text == "off" {
        return Ok(Share(None));
    }
    let one_in = text.strip_prefix("1/").and_then(|one_in| one_in.parse().ok());
    let one_in = one_in.filter(|one_in: &NonZeroU32| one_in.get() <= 1_000_000);
    one_in.map(|one_in| Share(Some(one_in))).ok_or_else(|| "write off, or 1/N such as 1/10, N up to 1000000".to_owned())
}

/// A number without a sign or a fraction.
fn whole_number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "write a whole number from 0 on".to_owned())
}

/// From 1 to 128.
pub(crate) fn ipv6_prefix(text: &str) -> Result<u8, String> {
    let bits = text.parse().ok().filter(|bits| (1..=128).contains(bits));
    bits.ok_or_else(|| "write a number of bits from 1 to 128".to_owned())
}

/// From 1 to a billion (24 GB).
pub(crate) fn max_keys(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=1_000_000_000).contains(number));
    number.ok_or_else(|| "write a whole number from 1 to 1000000000".to_owned())
}

/// From 10 ms to a minute.
pub(crate) fn clock_step(text: &str) -> Result<Duration, String> {
    let step = parse_period(text).map_err(|why| why.to_string())?;
    let fits = (SystemClock::STEP_MIN..=SystemClock::STEP_MAX).contains(&step);
    fits.then_some(step).ok_or_else(|| "write a period from 10ms to 1m".to_owned())
}

/// Whether it can be an address is seen when it is opened: what clap has to say about a value repeats it, with the password.
#[expect(clippy::unnecessary_wraps, reason = "what a parser of clap gives")]
pub(crate) fn database(text: &str) -> Result<DatabaseUrl, Infallible> {
    Ok(DatabaseUrl::new(text))
}

/// Of a site, without a slash at its end.
fn base_url(text: &str) -> Result<String, String> {
    let is_url = ["http://", "https://"].iter().any(|scheme| text.len() > scheme.len() && text.starts_with(scheme));
    if is_url {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        Err("write http:// or https:// and the host".to_owned())
    }
}

/// From 1 to 64 bytes that show.
fn node(text: &str) -> Result<String, String> {
    let fits = (1..=64).contains(&text.len()) && text.chars().all(|one| !one.is_control());
    fits.then(|| text.to_owned()).ok_or_else(|| "write a name of 1 to 64 bytes".to_owned())
}

/// From 1 to 1,024.
pub(crate) fn workers(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=1_024).contains(number));
    number.ok_or_else(|| "write a whole number from 1 to 1024".to_owned())
}

/// From 1 to as many as a port for checks takes.
pub(crate) fn connections(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=CONNECTIONS_MAX).contains(number));
    number.ok_or_else(|| format!("write a whole number from 1 to {CONNECTIONS_MAX}"))
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
