//! `tidegate check`: sends one check to a running server, and prints its decision.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use reqwest::{StatusCode, Url};
use tidegate::{DEFAULT_DOMAIN, algorithm::NUMBER_MAX};
use tidegate_api::{CheckBody, DecisionBody, IdentityBody, ProblemDetails};
use tidegate_service::Tokens;

use crate::{
    client::http_client::{HttpResponse, describe_error, http_client, send},
    formats::OutputFormat,
    output::{CommandError, CommandStatus, print_result, printable},
};

const CHECK_HELP: &str = "\
Examples:
  tidegate check user=ada
  tidegate check ip=192.0.2.7 api_key=k-123 --endpoint /api/v1/search --method GET --cost 5
  tidegate check user=ada --output json | jq .remaining
  if tidegate check user=nightly-job > /dev/null; then ./nightly-job; fi

Exit status: 0 allowed, 1 denied, 2 no decision (standard error says why).";

/// Sends one check to a running server, and prints its decision.
///
/// The check counts: an allowed request is charged, unless --peek is given.
#[derive(Debug, Args)]
#[command(after_help = CHECK_HELP)]
pub(crate) struct CheckArguments {
    /// The identities of the request: a kind and a value, such as ip=192.0.2.7, user=ada or api_key=k-123. Up to eight, each kind
    /// once.
    #[arg(value_name = "KIND=VALUE", required = true, value_parser = identity)]
    identities: Vec<IdentityArgument>,
    /// The path of the request, such as /api/v1/search. Without it only the limits of tiers apply, not those of rules.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_ENDPOINT")]
    endpoint: Option<String>,
    /// The method of the request, such as GET.
    #[arg(long, value_name = "METHOD", env = "TIDEGATE_METHOD")]
    method: Option<String>,
    /// The cost of the request, in tokens. 0 is only for --peek: it shows whether any tokens are left.
    #[arg(long, value_name = "N", env = "TIDEGATE_COST", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(0..=NUMBER_MAX))]
    cost: u64,
    /// Show what the decision would be, and charge nothing.
    #[arg(long, env = "TIDEGATE_PEEK", value_parser = clap::builder::FalseyValueParser::new())]
    peek: bool,
    /// The domain of the policy. The default is `default`.
    #[arg(long, value_name = "DOMAIN", env = "TIDEGATE_DOMAIN")]
    domain: Option<String>,
    /// The tier that the request claims. It counts only if the domain sets `tier_hint`.
    #[arg(long, value_name = "TIER", env = "TIDEGATE_TIER")]
    tier: Option<String>,
    /// The URL of the HTTP API of the server.
    #[arg(long, value_name = "URL", env = "TIDEGATE_SERVER", default_value = "http://127.0.0.1:9080",
        value_parser = server_url)]
    server: String,
    /// Certificates of the authorities to trust for the server, in place of those of the system; a PEM file. For https.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CA")]
    ca: Option<PathBuf>,
    /// The file with the tokens of the server, if it requires one. The first token that may check in the domain is sent.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CHECK_TOKENS")]
    check_tokens: Option<PathBuf>,
    /// The format of the decision. json is the unchanged response of the server.
    #[arg(long, env = "TIDEGATE_OUTPUT", value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    /// The longest wait for the response.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_TIMEOUT", default_value = "5s",
        value_parser = tidegate::time::parse_period)]
    timeout: Duration,
}

pub(crate) fn run(arguments: &CheckArguments) -> Result<CommandStatus, CommandError> {
    let failure = |why: String| CommandError(format!("{}: {}", arguments.server, printable(&why)));
    let (status, body) = send_check(arguments)?;
    let decision = decision(status, &body).map_err(failure)?;
    match arguments.output {
        OutputFormat::Text => print_result(text(&decision).as_bytes())?,
        OutputFormat::Json => print_result(format!("{}\n", body.trim_end()).as_bytes())?,
    }
    Ok(if decision.allowed { CommandStatus::Success } else { CommandStatus::Negative })
}

/// Sends the check. Returns the status and the body of the response.
fn send_check(arguments: &CheckArguments) -> Result<(StatusCode, String), CommandError> {
    let CheckArguments { server, domain, .. } = arguments;
    let token_domain = domain.as_deref().unwrap_or(DEFAULT_DOMAIN);
    let token = arguments.check_tokens.as_deref().map(|file| Tokens::first(file, token_domain)).transpose();
    let token = token.map_err(|error| CommandError(format!("--check-tokens: {error}")))?;
    let identities = arguments.identities.iter();
    let check = CheckBody {
        domain: domain.as_deref(),
        identities: identities.map(|IdentityArgument { kind, value }| IdentityBody { kind, value }).collect(),
        endpoint: arguments.endpoint.as_deref(),
        method: arguments.method.as_deref(),
        cost: arguments.cost,
        peek: arguments.peek,
        tier: arguments.tier.as_deref(),
    };
    let client = http_client(server, arguments.ca.as_deref(), arguments.timeout)?;
    let mut request = client.post(format!("{server}/v1/check")).json(&check);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let failure = |why: &str| CommandError(format!("{server}: {}", printable(why)));
    let response = send(request, BODY_BYTES_MAX);
    let HttpResponse { status, body, .. } =
        response.map_err(|error| failure(&describe_error(&*error, "--server", NOT_OURS)))?;
    Ok((status, String::from_utf8(body).map_err(|_| failure(NOT_OURS))?))
}

/// The largest body of a response; a decision has some hundred bytes.
const BODY_BYTES_MAX: u64 = 1 << 20;
const NOT_OURS: &str = "the server at this URL is not a Tidegate server; --server names the URL of one";

fn decision(status: StatusCode, body: &str) -> Result<DecisionBody, String> {
    match status.as_u16() {
        200 | 429 => serde_json::from_str(body).map_err(|_| NOT_OURS.to_owned()),
        _ => match serde_json::from_str::<ProblemDetails>(body) {
            Ok(problem) if !problem.code.is_empty() => Err(problem.detail),
            _ => Err(format!("{NOT_OURS} (its response has the status {})", status.as_u16())),
        },
    }
}

/// An identity of the command line.
#[derive(Clone, Debug)]
struct IdentityArgument {
    kind: String,
    value: String,
}

/// Formats the decision as one line.
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

/// Formats a duration by its two largest units, rounded up: `600ms`, `12s`, `1m 5s`, `2d 3h`.
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

fn identity(text: &str) -> Result<IdentityArgument, String> {
    match text.split_once('=') {
        Some((kind, value)) if !kind.is_empty() => {
            Ok(IdentityArgument { kind: kind.to_owned(), value: value.to_owned() })
        }
        _ => Err("write KIND=VALUE, such as user=ada".to_owned()),
    }
}

/// Parses the URL of a server. Returns it without a slash at its end.
fn server_url(text: &str) -> Result<String, String> {
    const FORM: &str = "write http:// or https:// and the address, such as http://127.0.0.1:9080";
    let url = Url::parse(text).map_err(|error| format!("{error}; {FORM}"))?;
    match url.scheme() {
        "http" | "https" if url.query().is_none() => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err(FORM.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_up_to_two_units() {
        for (ms, text) in [
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
            assert_eq!(duration(ms), text, "{ms}");
        }
    }

    #[test]
    fn a_decision_is_one_line() {
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
        for (decision, line) in [
            (decision(true, Some("a/b"), Some(0)), "allowed  a/b  7 of 100 left, all back in 1m\n"),
            (decision(false, Some("a/b"), Some(600)), "denied  a/b  7 of 100 left, retry in 600ms\n"),
            (
                decision(false, Some("a/\u{1b}[2J"), None),
                "denied  a/\u{fffd}[2J  7 of 100 left, this will never be allowed\n",
            ),
            (decision(true, None, None), "allowed  no limit applies\n"),
            (DecisionBody { policy_version: 0, ..decision(true, None, None) }, "allowed  no policy is published yet\n"),
        ] {
            assert_eq!(text(&decision), line);
        }
    }

    #[test]
    fn servers_are_named_by_http_urls() {
        assert_eq!(server_url("http://localhost:9080/").as_deref(), Ok("http://localhost:9080"));
        assert_eq!(server_url("https://gateway/limits").as_deref(), Ok("https://gateway/limits"));
        for (text, says) in
            [("ftp://localhost", "https://"), ("127.0.0.1:9080", "http://"), ("", "http://"), ("/x", "http://")]
        {
            assert!(server_url(text).is_err_and(|error| error.contains(says)), "{text}");
        }
    }
}
