//! The preview of a tier or a rule while it is edited: its limits and those in force, over a little traffic of one client,
//! made up or recorded.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{
    civil::{Date, date},
    tz::{TimeZone, TimeZoneDatabase},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate::{
    Engine, Identity, Request, Retry, Snapshot,
    policy::{Domain, Per, Policy, Rule, Tier},
    time::{Nanos, parse_period},
};
use tidegate_replay::{
    Utc,
    compare::as_one_node,
    preview::{Preview, preview},
    traffic::{ArrivalPattern, RecordedTraffic, SyntheticTraffic, Traffic, TrafficPlan, TrafficRow, encode_request},
};

use crate::{
    domain::{
        change_list::{default_domain, parse},
        error::{FieldError, Problem},
        json::pointer_of,
        published::Published,
    },
    simulate::{
        description::Words,
        question::{first_seed, wrong_rows},
        recorder::{KEPT, Recorder},
    },
};

/// The beginning of a year, a month, and a week: calendar windows begin with the traffic.
const START: Date = date(2024, 1, 1);
/// Whom the traffic is of.
const KIND: &str = "user";
const DOMAIN: &str = "preview";

/// What the editor asks.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PreviewAsk {
    /// Sent back, so that an answer that comes late is known.
    sequence: Option<u64>,
    kind: PreviewKind,
    /// Whose time zone calendar windows have.
    #[serde(default = "default_domain")]
    domain: String,
    /// The object as it is in force; none while it is new.
    published: Option<Value>,
    /// The object as it is edited.
    draft: Value,
    #[schemars(with = "PreviewTraffic")]
    traffic: Value,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum PreviewKind {
    Tier,
    Rule,
}

/// Requests of one client.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
enum PreviewTraffic {
    Made(MadeRequests),
    Recorded(RecordedRequests),
}

impl PreviewTraffic {
    /// By the fields that are there, so that what is wrong with one of them is named.
    fn of(traffic: &Value) -> Result<Self, FieldError> {
        const POINTER: &str = "/traffic";
        match traffic.get("recorded") {
            Some(_) => parse(traffic, POINTER).map(Self::Recorded),
            None => parse(traffic, POINTER).map(Self::Made),
        }
    }
}

/// Those that the recorder has kept.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RecordedRequests {
    recorded: RecordedClient,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RecordedClient {
    /// Who, as `KIND:VALUE`.
    client: String,
}

/// Made up.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MadeRequests {
    /// How they lie in time.
    #[serde(default)]
    pattern: ArrivalPattern,
    /// Requests in `per`.
    rate: u64,
    /// The time that the rate is meant for, such as `1s`.
    #[serde(default = "one_second")]
    per: String,
    /// How long they come, such as `10m`.
    #[serde(rename = "for")]
    length: String,
    /// Cost of each.
    #[serde(default = "one")]
    cost: u64,
    /// Another one makes other chances.
    #[serde(default = "first_seed")]
    seed: u32,
    /// The beginning of a week and a month in the domain's time zone unless given: windows then begin with the traffic.
    start: Option<Utc>,
}

fn one_second() -> String {
    "1s".to_owned()
}

fn one() -> u64 {
    1
}

/// What the editor is told.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PreviewAnswer {
    /// As it was sent.
    sequence: Option<u64>,
    /// The draft.
    words: Words,
    #[serde(flatten)]
    preview: Preview,
    /// Of recorded requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<AboutRecorded>,
}

/// What is known of the recorded requests of a client.
#[derive(Debug, Serialize, JsonSchema)]
struct AboutRecorded {
    /// Time of the first of them, where the preview begins.
    from: Utc,
    /// Time of the last.
    to: Utc,
    /// False: some requests of the sample were lost or too long, perhaps of this client.
    complete: bool,
}

/// Answers the editor.
pub(crate) fn show(
    present: &Published,
    engine: &Engine,
    recorder: Option<&Recorder>,
    ask: PreviewAsk,
) -> Result<PreviewAnswer, Problem> {
    let PreviewAsk { sequence, kind, domain, published, draft, traffic } = ask;
    let live = present.policy.domains.get(&domain);
    let timezone =
        live.ok_or_else(|| Problem::field("/domain", format!("there is no domain `{domain}`")))?.timezone.as_ref();
    let compiled = |value: &Value, pointer: &str| match kind {
        PreviewKind::Tier => {
            let tier: Tier = parse(value, pointer).map_err(wrong)?;
            let words = Words::of_tier(&tier, timezone.map(String::as_str));
            of_tier(tier, timezone, pointer).map(|snapshot| (snapshot, words))
        }
        PreviewKind::Rule => {
            let rule: Rule = parse(value, pointer).map_err(wrong)?;
            let words = Words::of_rule(&rule, timezone.map(String::as_str));
            of_rule(rule, timezone, pointer).map(|snapshot| (snapshot, words))
        }
    };
    let published = published.map(|value| compiled(&value, "/published")).transpose()?.map(|(snapshot, _)| snapshot);
    let (draft, words) = compiled(&draft, "/draft")?;
    let (preview, about) = match PreviewTraffic::of(&traffic).map_err(wrong)? {
        PreviewTraffic::Made(asked) => {
            let (traffic, start, length) = made(asked, timezone)?;
            (preview([published, Some(draft)], traffic, start, length), None)
        }
        PreviewTraffic::Recorded(RecordedRequests { recorded: RecordedClient { client } }) => {
            let (traffic, about) = recorded(engine, recorder, &domain, &client)?;
            // To the end of the last one's millisecond.
            let length = about.to.0 - about.from.0 + 1;
            (preview([published, Some(draft)], traffic, about.from.0, length), Some(about))
        }
    };
    let preview = preview.map_err(|error| Problem::field("/draft", error.to_string()))?;
    Ok(PreviewAnswer { sequence, words, preview, recorded: about })
}

/// Requests that are made up, when they begin, and how long they last.
fn made(asked: MadeRequests, timezone: Option<&String>) -> Result<(SyntheticTraffic, Nanos, Nanos), Problem> {
    let MadeRequests { pattern, rate, per, length, cost, seed, start } = asked;
    let row = TrafficRow {
        clients: 1,
        kind: KIND.to_owned(),
        value: None,
        tier: None,
        pattern,
        rate,
        per,
        length: length.clone(),
        path: Some("/".to_owned()),
        method: None,
        cost,
    };
    let made = TrafficPlan::single_row(row, DOMAIN)
        .map_err(|problems| wrong_rows(problems, |problem| format!("/traffic/{}", problem.field)))?;
    let start = start.map_or_else(|| beginning(timezone), |start| start.0);
    let length = parse_period(&length).map_err(|why| Problem::field("/traffic/for", why.to_string()))?;
    Ok((made.traffic(start, seed.into()), start, length.as_nanos() as Nanos))
}

/// The requests of a client of a domain that the recorder has kept: when they came, and what they cost, nothing else.
fn recorded(
    engine: &Engine,
    recorder: Option<&Recorder>,
    domain: &str,
    client: &str,
) -> Result<(RecordedTraffic, AboutRecorded), Problem> {
    let wrong = |message: String| Problem::field("/traffic/recorded/client", message);
    let (kind, value) = client.split_once(':').ok_or_else(|| wrong("write KIND:VALUE, such as user:ada".to_owned()))?;
    let counted = Identity::new(kind, value).and_then(|identity| engine.counted(domain, identity));
    let counted = counted.map_err(|error| wrong(error.to_string()))?;
    let named = counted.identity();
    let recorder = recorder.ok_or_else(|| {
        wrong("nothing is recorded; start the server with --record, such as --record 1/10".to_owned())
    })?;
    let one_in = recorder.state().one_in;
    if !recorder.sampler().has(kind, named.value()) {
        return Err(wrong(format!("`{client}` is not recorded: one {kind} in {one_in} is, and this is none of those")));
    }
    let (records, state) = recorder.recorded();
    let mut found: Vec<Arc<[u8]>> = Vec::new();
    let mut ends: Option<(Nanos, Nanos)> = None;
    let mut all = RecordedTraffic::new(records);
    // As a client of the preview's own.
    let stand_in = [Identity::new(KIND, "recorded").map_err(|error| Problem::Internal(error.to_string()))?];
    let mut take = |now: Nanos, request: &Request<'_>| {
        let parts = request.parts();
        let is_theirs = parts.identities.contains(&named);
        if is_theirs
            && parts.domain == domain
            && let Ok(request) = Request::new(&stand_in).and_then(|request| request.cost(parts.cost))
            && let Some(record) = encode_request(now, &request.domain(DOMAIN).parts())
        {
            found.push(Arc::from(record.as_slice()));
            ends = Some((ends.map_or(now, |(from, _)| from), now));
        }
        Retry::Now
    };
    while all.step(&mut take).map_err(|error| Problem::Internal(error.to_string()))? {}
    let minutes = KEPT.as_secs() / 60;
    let none = || wrong(format!("`{client}` sent no request to the domain `{domain}` in the last {minutes} minutes"));
    let (from, to) = ends.ok_or_else(none)?;
    Ok((RecordedTraffic::new(found), AboutRecorded { from: Utc(from), to: Utc(to), complete: state.complete }))
}

fn beginning(timezone: Option<&String>) -> Nanos {
    let zone = timezone.and_then(|name| TimeZoneDatabase::bundled().get(name).ok()).unwrap_or(TimeZone::UTC);
    START.to_zoned(zone).map_or(0, |start| u64::try_from(start.timestamp().as_nanosecond()).unwrap_or_default())
}

fn wrong(error: FieldError) -> Problem {
    Problem::Invalid(vec![error])
}

fn domain(timezone: Option<&String>, defaults: Option<&str>, tiers: Vec<Tier>, rules: Vec<Rule>) -> Policy {
    let defaults = defaults.map(|tier| (KIND.to_owned(), tier.to_owned())).into_iter().collect();
    let domain = Domain { defaults, timezone: timezone.cloned(), tiers, rules, ..Domain::default() };
    Policy { domains: BTreeMap::from([(DOMAIN.to_owned(), domain)]) }
}

/// The policy's problems at `pointer`, which is the object at `path`.
fn compile(policy: &Policy, path: &str, pointer: &str) -> Result<Snapshot, Problem> {
    as_one_node(policy).map_err(|problems| {
        let field = |problem: &tidegate::Problem| {
            // What is wrong elsewhere is wrong because of this object.
            let rest = problem.path.strip_prefix(path).unwrap_or_default();
            FieldError::invalid(format!("{pointer}{}", pointer_of(rest)), problem.message.clone())
        };
        Problem::Invalid(problems.iter().map(field).collect())
    })
}

fn of_tier(tier: Tier, timezone: Option<&String>, pointer: &str) -> Result<Snapshot, Problem> {
    let id = tier.id.clone();
    compile(&domain(timezone, Some(&id), vec![tier], Vec::new()), "domains.preview.tiers[0]", pointer)
}

/// Its limits alone: as if every request were one that it counts.
fn of_rule(rule: Rule, timezone: Option<&String>, pointer: &str) -> Result<Snapshot, Problem> {
    const PATH: &str = "domains.preview.rules[0]";
    let tier = |id: &String| Tier { unlimited: true, ..Tier::new(id, Vec::new()) };
    let mut ids: Vec<&String> = rule.tiers.iter().flatten().collect();
    ids.sort_unstable();
    ids.dedup();
    let tiers = ids.into_iter().map(tier).collect();
    // As it is, for what is wrong with it.
    drop(compile(&domain(timezone, None, tiers, vec![rule.clone()]), PATH, pointer)?);
    let everything = Rule {
        endpoint: "*".to_owned(),
        method: None,
        per: Per::One(KIND.to_owned()),
        tiers: None,
        condition: BTreeMap::new(),
        ..rule
    };
    compile(&domain(timezone, None, Vec::new(), vec![everything]), PATH, pointer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_begin_with_the_traffic() {
        for (zone, at) in [
            (None, "2024-01-01T00:00:00Z"),
            (Some("Asia/Tokyo"), "2023-12-31T15:00:00Z"),
            (Some("gone"), "2024-01-01T00:00:00Z"),
        ] {
            assert_eq!(Utc(beginning(zone.map(str::to_owned).as_ref())).to_string(), at);
        }
        assert_eq!(START.weekday(), jiff::civil::Weekday::Monday);
    }
}
