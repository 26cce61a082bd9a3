//! `tidegate check`: asks a running server once, and prints its decision.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use tidegate::{DEFAULT_DOMAIN, algorithm::NUMBER_MAX};
use tidegate_api::{CheckBody, DecisionBody, IdentityBody, ProblemDetails};
use tidegate_service::Tokens;
use ureq::{Agent, Error, http::Uri};

use crate::{
    client::session::{not_known, tls},
    formats::Output,
    output::{Ended, Failure, printable, say},
};

const CHECK_HELP: &str = "\
Examples:
  tidegate check user=ada
  tidegate check ip=192.0.2.7 api_key=k-123 --endpoint /api/v1/search --method GET --cost 5
  tidegate check user=ada --output json | jq .remaining
  if tidegate check user=nightly-job > /dev/null; then ./nightly-job; fi

Exit status: 0 allowed, 1 denied, 2 there is no decision; standard error says why.";

/// Asks a running server once, and prints its decision.
///
/// The question counts: when the request is allowed, it is charged, unless --peek is given.
#[derive(Debug, Args)]
#[command(after_help = CHECK_HELP)]
pub(crate) struct AskArguments {
    /// Who comes: a kind and a value, such as ip=192.0.2.7, user=ada or api_key=k-123; up to eight, each kind once.
    #[arg(value_name = "KIND=VALUE", required = true, value_parser = identity)]
    identities: Vec<Identity>,
    /// Where to: the path, such as /api/v1/search. Without it only tiers count.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_ENDPOINT")]
    endpoint: Option<String>,
    /// With which method, such as GET.
    #[arg(long, value_name = "METHOD", env = "TIDEGATE_METHOD")]
    method: Option<String>,
    /// At which cost, in tokens; 0 only with --peek, which then asks whether anything is left.
    #[arg(long, value_name = "N", env = "TIDEGATE_COST", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(0..=NUMBER_MAX))]
    cost: u64,
    /// Ask only what would be decided: nothing is charged.
    #[arg(long, env = "TIDEGATE_PEEK", value_parser = clap::builder::FalseyValueParser::new())]
    peek: bool,
    /// In which domain of the policy; `default` unless given.
    #[arg(long, value_name = "DOMAIN", env = "TIDEGATE_DOMAIN")]
    domain: Option<String>,
    /// The tier that the request claims for itself. Heard where the domain sets `tier_hint`.
    #[arg(long, value_name = "TIER", env = "TIDEGATE_TIER")]
    tier: Option<String>,
    /// Where the server answers checks.
    #[arg(long, value_name = "URL", env = "TIDEGATE_SERVER", default_value = "http://127.0.0.1:9080",
        value_parser = server)]
    server: String,
    /// Certificates to know the server by, instead of those that this machine trusts; PEM. For https.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CA")]
    ca: Option<PathBuf>,
    /// The file of the server's tokens, where it asks for one: the first of them that may check in the domain is sent.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CHECK_TOKENS")]
    check_tokens: Option<PathBuf>,
    /// How to print the decision; json is the server's answer as it came.
    #[arg(long, env = "TIDEGATE_OUTPUT", value_enum, default_value_t = Output::Text)]
    output: Output,
    /// How long to wait for the answer.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_TIMEOUT", default_value = "5s",
        value_parser = tidegate::time::parse_period)]
    timeout: Duration,
}

pub(crate) fn run(arguments: &AskArguments) -> Result<Ended, Failure> {
    let failure = |why: String| Failure(format!("{}: {}", arguments.server, printable(&why)));
    let (status, body) = ask(arguments)?;
    let decision = decision(status, &body).map_err(failure)?;
    match arguments.output {
        Output::Text => say(text(&decision).as_bytes())?,
        Output::Json => say(format!("{}\n", body.trim_end()).as_bytes())?,
    }
    Ok(if decision.allowed { Ended::Well } else { Ended::No })
}

/// Status and body of the server's answer.
fn ask(arguments: &AskArguments) -> Result<(u16, String), Failure> {
    let domain = arguments.domain.as_deref().unwrap_or(DEFAULT_DOMAIN);
    let token = arguments.check_tokens.as_deref().map(|file| Tokens::first(file, domain)).transpose();
    let token = token.map_err(|error| Failure(format!("--check-tokens: {error}")))?;
    let config = Agent::config_builder()
        // What the server says of a request that it refuses is in the body.
        .http_status_as_error(false)
        .timeout_global(Some(arguments.timeout))
        .max_redirects(0)
        .tls_config(tls(&arguments.server, arguments.ca.as_deref())?)
        // The server is named, so nobody else is asked.
        .proxy(None);
    let identities = arguments.identities.iter();
    let check = CheckBody {
        domain: arguments.domain.as_deref(),
        identities: identities.map(|Identity { kind, value }| IdentityBody { kind, value }).collect(),
        endpoint: arguments.endpoint.as_deref(),
        method: arguments.method.as_deref(),
        cost: arguments.cost,
        peek: arguments.peek,
        tier: arguments.tier.as_deref(),
    };
    let mut asked = config.build().new_agent().post(format!("{}/v1/check", arguments.server));
    if let Some(token) = token {
        asked = asked.header("authorization", format!("Bearer {token}"));
    }
    let failure = |error: Error| Failure(format!("{}: {}", arguments.server, printable(&told(&error))));
    let mut answer = asked.send_json(&check).map_err(failure)?;
    Ok((answer.status().as_u16(), answer.body_mut().read_to_string().map_err(failure)?))
}

/// Why there was no answer, and what to do.
fn told(error: &Error) -> String {
    if let Some(why) = not_known(error) {
        return why;
    }
    match error {
        Error::Timeout(_) => "no answer in time; --timeout waits longer".to_owned(),
        Error::Io(error) => format!("cannot be reached: {error}; {IS_IT_RUNNING}"),
        Error::ConnectionFailed | Error::HostNotFound => format!("cannot be reached: {error}; {IS_IT_RUNNING}"),
        _ => format!("{NOT_OURS} ({error})"),
    }
}

const IS_IT_RUNNING: &str = "is `tidegate serve` running? --server says where";
const NOT_OURS: &str = "what answers there is not a Tidegate server; --server says where one is";

fn decision(status: u16, body: &str) -> Result<DecisionBody, String> {
    match status {
        200 | 429 => serde_json::from_str(body).map_err(|_| NOT_OURS.to_owned()),
        _ => match serde_json::from_str::<ProblemDetails>(body) {
            Ok(problem) if !problem.code.is_empty() => Err(problem.detail),
            _ => Err(format!("{NOT_OURS} (it answered {status})")),
        },
    }
}

/// An identity of the command line.
#[derive(Clone, Debug)]
struct Identity {
    kind: String,
    value: String,
}

/// A line for people.
fn text(decision: &DecisionBody) -> String {
    let verdict = if decision.allowed { "allowed" } else { "denied" };
    let Some(limit_id) = &decision.limit_id else {
        let why = if decision.policy_version == 0 { "no policy is published yet" } else { "no limit applies" };
        return format!("{verdict}  {why}\n");
    };
    let (limit, remaining) = (decision.limit.unwrap_or(0), decision.remaining.unwrap_or(0));
    let when = match (decision.allowed, decision.retry_after_ms) {
        (true, _) => format!("all back in {}", duration(decision.reset_after_ms.unwrap_or(0))),
        (false, Some(wait_ms)) => format!("retry in {}", duration(wait_ms)),
        (false, None) => "this will never be allowed".to_owned(),
    };
    format!("{verdict}  {}  {remaining} of {limit} left, {when}\n", printable(limit_id))
}

/// In its two largest units, rounded up: `600ms`, `12s`, `1m 5s`, `2d 3h`.
fn duration(ms: u64) -> String {
    if ms < 1_000 {
        return format!("{ms}ms");
    }
    let seconds = ms.div_ceil(1_000);
    let units = [(86_400, 3_600, "d", "h"), (3_600, 60, "h", "m"), (60, 1, "m", "s")];
    let Some((large, small, large_name, small_name)) = units.into_iter().find(|(large, ..)| seconds >= *large) else {
        return format!("{seconds}s");
    };
    let smalls = seconds.div_ceil(small);
    match (smalls / (large / small), smalls % (large / small)) {
        (larges, 0) => format!("{larges}{large_name}"),
        (larges, smalls) => format!("{larges}{large_name} {smalls}{small_name}"),
    }
}

fn identity(text: &str) -> Result<Identity, String> {
    match text.split_once('=') {
        Some((kind, value)) if !kind.is_empty() => Ok(Identity { kind: kind.to_owned(), value: value.to_owned() }),
        _ => Err("write a kind, = and a value: user=ada".to_owned()),
    }
}

/// The address of a server, without a slash at its end.
fn server(text: &str) -> Result<String, String> {
    const FORM: &str = "write http:// or https:// and where it listens: http://127.0.0.1:9080";
    let uri: Uri = text.parse().map_err(|error| format!("{error}; {FORM}"))?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.query().is_none() => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err(FORM.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_up_to_two_units() {
        for (ms, told) in [
            (0, "0ms"),
            (600, "600ms"),
            (1_000, "1s"),
            (1_001, "2s"),
            (59_001, "1m"),
            (60_000, "1m"),
            (64_001, "1m 5s"),
            (3_599_999, "1h"),
            (3_660_001, "1h 2m"),
            (86_400_000, "1d"),
            (86_400_001, "1d 1h"),
            (u64::MAX, "213503982334d 15h"),
        ] {
            assert_eq!(duration(ms), told, "{ms}");
        }
    }

    #[test]
    fn decisions_are_told_in_a_line() {
        let decision = |allowed, limit_id: Option<&str>, retry_after_ms| DecisionBody {
            allowed,
            limit: limit_id.map(|_| 100),
            remaining: limit_id.map(|_| 7),
            reset_after_ms: limit_id.map(|_| 60_000),
            retry_after_ms,
            limit_id: limit_id.map(str::to_owned),
            policy_version: 1,
            ..DecisionBody::default()
        };
        for (decision, told) in [
            (decision(true, Some("a/b"), Some(0)), "allowed  a/b  7 of 100 left, all back in 1m\n"),
            (decision(false, Some("a/b"), Some(600)), "denied  a/b  7 of 100 left, retry in 600ms\n"),
            (
                decision(false, Some("a/\u{1b}[2J"), None),
                "denied  a/\u{fffd}[2J  7 of 100 left, this will never be allowed\n",
            ),
            (decision(true, None, None), "allowed  no limit applies\n"),
            (DecisionBody { policy_version: 0, ..decision(true, None, None) }, "allowed  no policy is published yet\n"),
        ] {
            assert_eq!(text(&decision), told);
        }
    }

    #[test]
    fn servers_are_named_by_http_urls() {
        assert_eq!(server("http://localhost:9080/").as_deref(), Ok("http://localhost:9080"));
        assert_eq!(server("https://gateway/limits").as_deref(), Ok("https://gateway/limits"));
        for (text, says) in
            [("ftp://localhost", "https://"), ("127.0.0.1:9080", "http://"), ("", "http://"), ("/x", "http://")]
        {
            assert!(server(text).is_err_and(|error| error.contains(says)), "{text}");
        }
    }
}
