//! `tidegate policy test`: decides the requests of a file by a policy, and compares the decisions with what the file expects.

mod cases;

use std::{
    fmt::{self, Write},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use clap::Args;
use serde_saphyr::Spanned;
use tidegate::{
    CountedIdentity, DEFAULT_DOMAIN, Decision, Engine, IPV6_PREFIX, Identity, Problem, Problems, Request, RequestError,
    Retry, TableShares, clock::ManualClock, policy::Policy, time::Timestamp,
};
use tidegate_replay::compare::{as_one_node, room_for};
use tidegate_service::{
    Decider,
    grpc::{
        decide_descriptors,
        proto::envoy::{
            extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry as ProtoEntry},
            service::ratelimit::v3::{
                RateLimitRequest,
                rate_limit_response::{Code, DescriptorStatus},
            },
        },
    },
};

use self::cases::{CaseDescriptor, CaseEntry, CaseFile, CaseIdentities, CaseTime, CaseVerdict, ExpectedWait, TestCase};
use crate::policy_file::{file_name, format_problems, load_document, read_text};
use crate::{
    output::{CommandError, CommandStatus, print_result, printable},
    value_parsers::ipv6_prefix,
};

/// The seed of the hash keys of the engine, so that every run is the same.
const SEED: u64 = 1;

/// Decides the requests of a file by a policy, and compares the decisions with what the file expects.
///
/// It needs no server: it runs the same engine, with a clock that the cases move. Shared limits count as on a single node.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tidegate policy test policy.toml cases.yaml

  # cases.yaml
  cases:
    - name: five searches pass
      identities: { user: ada }
      endpoint: /search
      method: GET
      repeat: 5
      expect: allowed
      remaining: 0
    - name: the sixth has to wait for the next minute
      identities: { user: ada }
      endpoint: /search
      method: GET
      expect: denied
      limit: default/rule:search/minute
      retry_after: 60s
    - name: it passes then
      at: 1m
      identities: { user: ada }
      endpoint: /search
      method: GET
      expect: allowed
    - name: Envoy's descriptors
      domain: edge
      descriptors:
        - entries: [{ key: generic_key, value: slow }, { key: path, value: /report }]
      expect: allowed

A case:
  identities   kinds and values; with endpoint, method and tier as in a check
  descriptors  instead of identities, what Envoy sends: a list of { entries: [{ key: ..., value: ... }] },
               each optionally with a hits_addend and an expect of its own
  domain       the domain of the request (default: `default`)
  cost, peek   the cost in tokens (default: 1); `peek: true` charges nothing
  at           seconds since the start (90), or a period (90s, 1h) (default: the time of the case before)
  repeat       how often to send the request at that time (default: 1)
  expect       allowed or denied, for each of them
  limit, remaining, retry_after
               optional, for the last decision: the full name of the limit, or `none`; the tokens left; a
               period, or `never`
`start: 2026-01-01T00:00:00Z`, beside `cases`, sets the time of `at: 0`.

Exit status: 0 all as expected, 1 some cases differ, 2 a file cannot be read or is invalid.")]
pub(crate) struct TestArguments {
    /// The policy file: .toml, .yaml or .json.
    #[arg(value_name = "FILE")]
    policy: PathBuf,
    /// The file with the cases: YAML or JSON; `-` is standard input.
    #[arg(value_name = "CASES")]
    cases: PathBuf,
    /// The number of bits of an IPv6 address that count as one client, 1 to 128, as with `tidegate serve`.
    #[arg(long, value_name = "BITS", env = "TIDEGATE_IPV6_PREFIX", default_value_t = IPV6_PREFIX, value_parser = ipv6_prefix)]
    ipv6_prefix: u8,
}

pub(crate) fn run(arguments: &TestArguments) -> Result<CommandStatus, CommandError> {
    let policy = load_document(&arguments.policy)?;
    let name = file_name(&arguments.cases);
    let wrong = |problem: &Problem| {
        let Problem { path, line, message } = problem;
        let line = line.map(|line| format!(":{line}")).unwrap_or_default();
        let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
        CommandError(printable(&format!("{name}{line}: {path}{message}")))
    };
    let CaseFile { start, cases } =
        CaseFile::read(&read_text("file of cases", &arguments.cases)?).map_err(|problem| wrong(&problem))?;
    let document = policy;
    let policy = as_one_node(&document).map_err(|problems: Problems| {
        CommandError(format!(
            "the policy is invalid\n{}",
            format_problems(&file_name(&arguments.policy), &problems).trim_end()
        ))
    })?;
    let start = u64::try_from(start.0.as_nanosecond()).unwrap_or_default();
    let identities = cases.iter().map(|case| case.value.keys()).sum();
    let clock = ManualClock::at(Timestamp::from_nanos(start));
    let engine = Engine::for_simulation(room_for(identities, [Some(&policy), None]), clock.clone(), SEED)
        .with_shares(TableShares::WHOLE)
        .with_ipv6_prefix(arguments.ipv6_prefix);
    engine.publish(policy).map_err(|error| CommandError(error.to_string()))?;
    let engine = Arc::new(engine);
    let decider = Decider::new(engine.clone()).map_err(|error| CommandError(error.to_string()))?;
    let (mut at, mut requests, mut differing, mut report) = (0, 0u64, 0, String::new());
    for (place, Spanned { value: case, referenced, .. }) in cases.iter().enumerate() {
        let line = usize::try_from(referenced.line()).ok();
        let refuse = |field: &str, message| wrong(&Problem { path: format!("cases[{place}]{field}"), line, message });
        case.names_exist(&document).map_err(|(field, problem)| refuse(field, problem))?;
        let CaseTime(moment) = case.at.unwrap_or(CaseTime(at));
        if moment < at {
            let before =
                format!("is earlier than the case above, which is at {}; put the cases in order of time", seconds(at));
            return Err(refuse(".at", before));
        }
        at = moment;
        clock.set(Timestamp::from_nanos(start.saturating_add(at)));
        let repeat = case.repeat.unwrap_or(1);
        for number in 1..=repeat {
            requests += 1;
            let (decision, verdicts) = case.decide(&engine, &decider).map_err(|problem| refuse("", problem))?;
            if !case.fits(&decision, &verdicts, number == repeat) {
                differing += 1;
                let times = if repeat > 1 { format!(" (request {number} of {repeat})") } else { String::new() };
                let case_name = case.name.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
                let line = format!("{name}:{}: cases[{place}]{case_name}{times}", referenced.line());
                // Writing to a string does not fail.
                let _ = writeln!(report, "{}", printable(&line));
                let _ = writeln!(report, "  expected  {}", printable(&case.expected(number == repeat)));
                let found = format!("{}{}", DecisionText(&decision), case.verdicts_text(&verdicts));
                let _ = writeln!(report, "  found     {}", printable(&found));
                break;
            }
        }
    }
    if engine.overflow_charges() > 0 {
        return Err(CommandError::of_file(&name, "the cases need too many counters for one run; split the file"));
    }
    let differs = match differing {
        0 => "all as expected".to_owned(),
        1 => "1 case differs".to_owned(),
        _ => format!("{differing} cases differ"),
    };
    let (cases, requests) = (counted(cases.len() as u64, "case"), counted(requests, "request"));
    let _ = writeln!(report, "{}", printable(&format!("{name}: {cases}, {requests}: {differs}")));
    print_result(report.as_bytes())?;
    Ok(if differing == 0 { CommandStatus::Success } else { CommandStatus::Negative })
}

impl TestCase {
    /// Returns the most counters that each of its limits needs.
    fn keys(&self) -> u64 {
        let identities = self.identities.as_ref().map_or(0, |CaseIdentities(identities)| identities.len());
        let entries = self.descriptors.iter().flatten().map(|descriptor| descriptor.entries.len() + 1).sum::<usize>();
        (identities + entries) as u64
    }

    /// Checks that the policy has the domain and the tier that the case names. The error is the field and what is wrong with it.
    fn names_exist(&self, policy: &Policy) -> Result<(), (&'static str, String)> {
        let name = self.domain.as_deref().unwrap_or(DEFAULT_DOMAIN);
        let Some(domain) = policy.domains.get(name) else {
            let names: Vec<_> = policy.domains.keys().map(String::as_str).collect();
            return Err((".domain", format!("the policy has no domain `{name}`; it has {}", names.join(", "))));
        };
        match &self.tier {
            Some(tier) if domain.tiers.iter().all(|it| it.id != *tier) => {
                Err((".tier", format!("domain `{name}` has no tier `{tier}`")))
            }
            _ => Ok(()),
        }
    }

    /// Decides the request. Returns the decision, and of descriptors the verdict on each. The error is the field and what is
    /// wrong with it.
    fn decide<'e>(
        &self,
        engine: &'e Engine<ManualClock>,
        decider: &'e Decider<ManualClock>,
    ) -> Result<(Decision<'e>, Vec<CaseVerdict>), String> {
        let domain = self.domain.as_deref().unwrap_or(DEFAULT_DOMAIN);
        if let Some(descriptors) = &self.descriptors {
            let (decision, response) = decide_descriptors(decider, &self.message(domain, descriptors))?;
            let verdict = |status: &DescriptorStatus| CaseVerdict::of(status.code() == Code::Ok);
            return Ok((decision, response.statuses.iter().map(verdict).collect()));
        }
        let identities = self.identities.iter().flat_map(|CaseIdentities(identities)| identities);
        // As every listener counts them.
        let counted = identities.map(|(kind, value)| engine.counted(domain, Identity::new(kind, value)?));
        let counted = counted.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
        let identities: Vec<_> = counted.iter().map(CountedIdentity::identity).collect();
        let request = self.request(&identities, domain).map_err(|error| error.to_string())?;
        Ok((if self.peek { engine.peek(&request) } else { engine.check(&request) }, Vec::new()))
    }

    /// Makes the request that Envoy sends.
    fn message(&self, domain: &str, descriptors: &[CaseDescriptor]) -> RateLimitRequest {
        let entry = |CaseEntry { key, value }: &CaseEntry| ProtoEntry { key: key.clone(), value: value.clone().into() };
        let hits = |own: Option<u64>| if self.peek { 0 } else { own.or(self.cost).unwrap_or(1) };
        let descriptor = |CaseDescriptor { entries, hits_addend, .. }: &CaseDescriptor| RateLimitDescriptor {
            entries: entries.iter().map(entry).collect(),
            hits_addend: Some(hits(*hits_addend)),
            ..RateLimitDescriptor::default()
        };
        let descriptors = descriptors.iter().map(descriptor).collect();
        RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 }
    }

    fn request<'a>(&'a self, identities: &'a [Identity<'a>], domain: &'a str) -> Result<Request<'a>, RequestError> {
        let mut request = Request::new(identities)?.domain(domain);
        if let Some(endpoint) = &self.endpoint {
            request = request.endpoint(endpoint)?;
        }
        if let Some(method) = &self.method {
            request = request.method(method);
        }
        if let Some(tier) = &self.tier {
            request = request.tier(tier);
        }
        match self.cost {
            Some(0) => Ok(request.without_cost()),
            cost => request.cost(cost.unwrap_or(1)),
        }
    }

    /// Returns whether the decision is as expected. All but the verdict is compared for the last request only.
    fn fits(&self, decision: &Decision<'_>, verdicts: &[CaseVerdict], is_last: bool) -> bool {
        let limit = || self.limit.as_deref().is_none_or(|limit| limit == decision.limit_id().unwrap_or(NO_LIMIT));
        let remaining = || self.remaining.is_none_or(|remaining| decision.remaining() == Some(remaining));
        let wait = || match (&self.retry_after, decision.retry()) {
            (None, _) | (Some(ExpectedWait::Never), Retry::Never) => true,
            (Some(ExpectedWait::After { ns, unit_ns, .. }), Retry::After(wait)) => {
                wait.as_nanos().div_ceil(u128::from(*unit_ns)) * u128::from(*unit_ns) == u128::from(*ns)
            }
            _ => false,
        };
        let expected = self.descriptors.iter().flatten().map(|descriptor| descriptor.expect);
        let each =
            || expected.zip(verdicts).all(|(expected, found)| expected.is_none_or(|expected| expected == *found));
        CaseVerdict::of(decision.is_allowed()) == self.expect
            && (!is_last || (limit() && remaining() && wait() && each()))
    }

    /// Describes the verdicts on the descriptors for which the case expects one.
    fn verdicts_text(&self, verdicts: &[CaseVerdict]) -> String {
        let expected = self.descriptors.iter().flatten().map(|descriptor| descriptor.expect);
        list_verdicts(expected.zip(verdicts).map(|(expected, found)| expected.map(|_| *found)))
    }

    /// Describes what is expected, of the last request all of it.
    fn expected(&self, is_last: bool) -> String {
        let mut text = self.expect.to_string();
        let (limit, remaining, wait) = (&self.limit, &self.remaining, &self.retry_after);
        if is_last {
            // Writing to a string does not fail.
            let _ = match limit.as_deref() {
                Some(NO_LIMIT) => write!(text, " by no limit"),
                Some(limit) => write!(text, " by {limit}"),
                None => Ok(()),
            };
            let _ = remaining.map_or(Ok(()), |remaining| write!(text, ", {remaining} left"));
            let _ = wait.as_ref().map_or(Ok(()), |wait| write!(text, ", {wait}"));
            text += &list_verdicts(self.descriptors.iter().flatten().map(|descriptor| descriptor.expect));
        }
        text
    }
}

/// Lists verdicts on descriptors, by their index.
fn list_verdicts(verdicts: impl Iterator<Item = Option<CaseVerdict>>) -> String {
    let mut text = String::new();
    for (place, verdict) in verdicts.enumerate() {
        // Writing to a string does not fail.
        let _ = verdict.map_or(Ok(()), |verdict| write!(text, ", descriptors[{place}] {verdict}"));
    }
    text
}

/// The name by which a case says that no limit applies; that of a limit has a slash.
const NO_LIMIT: &str = "none";

/// A decision, described as a case describes what it expects.
struct DecisionText<'d>(&'d Decision<'d>);

impl fmt::Display for DecisionText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(decision) = self;
        write!(f, "{} by {}", CaseVerdict::of(decision.is_allowed()), decision.limit_id().unwrap_or("no limit"))?;
        if let Some(remaining) = decision.remaining() {
            write!(f, ", {remaining} left")?;
        }
        match decision.retry() {
            Retry::Now => Ok(()),
            Retry::After(wait) => write!(f, ", retry after {}", rounded(wait)),
            Retry::Never => f.write_str(", never allowed"),
        }
    }
}

/// Formats a wait as a case writes it, rounded up: in seconds, or below ten of them in milliseconds.
fn rounded(wait: Duration) -> String {
    let ms = wait.as_nanos().div_ceil(1_000_000);
    if ms < 10_000 && !ms.is_multiple_of(1_000) { format!("{ms}ms") } else { format!("{}s", ms.div_ceil(1_000)) }
}

fn seconds(ns: u64) -> String {
    format!("{}s", Duration::from_nanos(ns).as_secs_f64())
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
