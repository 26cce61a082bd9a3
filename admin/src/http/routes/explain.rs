//! Why a request is decided as it is.

use std::{sync::Arc, time::Duration};

use actix_web::{
    HttpResponse,
    http::{StatusCode, header::ContentType},
    web::Data,
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate::{
    CountedIdentity, Decision, Degraded, Engine, ExplainedIdentity, Identity, InspectedLimit, Request, RequestError,
    Retry, RuleMatch, TierOrigin,
    internals::StoreAnswer,
    policy::{Override, ResponseSettings, Rule, Sharing},
};
use tidegate_api::ms_rounded_up;
use tidegate_fleet::describe::standing;
use tidegate_middleware::headers;
use tokio::{sync::watch, time::timeout};

use crate::{
    capacity::work_queue::Heavy,
    domain::{change_list::default_domain, error::Problem, objects::client_id, published::Published, roles::Viewer},
    http::{extract::body::Body, guard::By, openapi::Api, state::State},
};

/// How long an explanation waits for the end of a publish. Where limits changed, the engine goes through its whole table.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it waits before it tries again without news of the publish, which there should be.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) fn calls(api: &mut Api) {
    api.about("Explanations", "Why a request is decided as it is, and what of a policy is hardly meant.");
    api.post("/explain", explain)
        .says(
            "Explain a request",
            "Which tier each identity has and from where, which rules apply and why the others do not, the state of every limit, \
             what would be decided now, and what the caller would be told in headers. Charges nothing.",
        )
        .example(json!({ "identities": [{ "kind": "user", "value": "ada" }], "endpoint": "/api/v1/search" }))
        .answers_json::<Explained>(StatusCode::OK, "Why.");
}

/// A request, as `POST /v1/check` takes it; it charges nothing anyway, so there is no `peek`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AskedRequest")]
struct Asked {
    #[serde(default = "default_domain")]
    domain: String,
    identities: Vec<Who>,
    endpoint: Option<String>,
    method: Option<String>,
    #[schemars(range(min = 1))]
    cost: Option<u64>,
    tier: Option<String>,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Identity")]
struct Who {
    kind: String,
    value: String,
}

#[derive(Serialize, JsonSchema)]
struct Explained<'a> {
    policy_version: u64,
    domain: &'a str,
    decision: Decided<'a>,
    identities: Vec<Known<'a>>,
    /// All of the domain, by path, and the closest first of those that match the same path.
    rules: Vec<RuleSays<'a>>,
    /// Those that the request meets, in the order in which they are checked.
    limits: Vec<LimitState<'a>>,
}

/// What a check would answer now.
#[derive(Serialize, JsonSchema)]
struct Decided<'a> {
    allowed: bool,
    limit_id: Option<&'a str>,
    /// Why limits that nodes share were decided without their store, where there are some.
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<&'static str>,
    /// When all limits would let it pass, if nobody else comes: 0 now, null never.
    allowed_after_ms: Option<u64>,
    /// What the caller would be told in headers, as the domain sets them. `retry-after` is up to a tenth later, by chance:
    /// another answer may say another number.
    headers: Vec<Header>,
}

#[derive(Serialize, JsonSchema)]
struct Header {
    /// In lower case.
    name: &'static str,
    value: String,
}

#[derive(Serialize, JsonSchema)]
struct Known<'a> {
    kind: &'a str,
    value: &'a str,
    tier: Option<&'a str>,
    /// `client`, `hint` or `default`.
    tier_from: Option<&'static str>,
    /// The configured client that it is.
    client: Option<String>,
    label: Option<&'a str>,
    #[serde(rename = "override")]
    exception: Option<&'a Override>,
    /// The override is there, and no longer applied.
    override_has_ended: bool,
}

#[derive(Serialize, JsonSchema)]
struct RuleSays<'a> {
    id: &'a str,
    endpoint: &'a str,
    method: Option<&'a str>,
    applies: bool,
    /// `applies`, or the first thing that keeps it from that: `disabled`, `endpoint`, `method`, `no_identity`, `tiers`,
    /// `where`, `closer`.
    reason: &'static str,
    /// That in words.
    detail: String,
}

#[derive(Serialize, JsonSchema)]
struct LimitState<'a> {
    limit_id: &'a str,
    /// `enforce`, or `shadow`: it counts, and never denies.
    mode: &'static str,
    /// Who is counted together; nobody: everyone.
    counted: Vec<Who>,
    /// The tokens that the request would take.
    cost: u64,
    limit: u64,
    period_ms: u64,
    used: u64,
    remaining: u64,
    reset_after_ms: u64,
    /// How nodes share it.
    sharing: Sharing,
    /// It is what all nodes together have in the store that they share it through, which this server has too; otherwise what
    /// this server counts alone.
    is_stored: bool,
    /// Would this limit let it pass?
    allowed: bool,
    /// 0 now, null never.
    retry_after_ms: Option<u64>,
    /// What would be left then.
    remaining_after: u64,
    /// By which algorithm it counts, and how it stands, in words.
    says: String,
}

/// Charges nothing.
async fn explain(_: By<Viewer>, state: Data<State>, heavy: Heavy, body: Body<Asked>) -> Result<HttpResponse, Problem> {
    let asked = Arc::new(body.value);
    let text = when_published(PATIENCE, state.publisher.subscribe(), async || {
        let (engine, published) = (state.publisher.engine(), state.publisher.in_force());
        let stored = stored(&asked, &engine, &state).await?;
        let asked = Arc::clone(&asked);
        heavy.work(move || explain_by(&asked, &engine, &published, stored)).await?
    });
    Ok(HttpResponse::Ok().content_type(ContentType::json()).body(text.await?))
}

/// Tries until there is an answer, which there is not during a publish: again whenever what nodes should have changes.
async fn when_published<T, W>(
    patience: Duration,
    mut changes: watch::Receiver<W>,
    answer: impl AsyncFn() -> Result<Option<T>, Problem>,
) -> Result<T, Problem> {
    changes.mark_unchanged();
    if let Some(answer) = answer().await? {
        return Ok(answer);
    }
    let answered = async {
        loop {
            let _ = timeout(PAUSE, changes.changed()).await;
            if let Some(answer) = answer().await? {
                return Ok(answer);
            }
        }
    };
    let too_long = Problem::Busy("A policy is being published; ask again when it decides.");
    timeout(patience, answered).await.unwrap_or(Err(too_long))
}

/// What a store has of limits that nodes share, and the version of the policy whose limits they are.
type Stored = (u64, Vec<StoreAnswer>);

/// What the store of this process has, if it has one.
async fn stored(asked: &Asked, engine: &Engine, state: &State) -> Result<Option<Stored>, Problem> {
    let counted = counted(asked, engine)?;
    let identities: Vec<_> = counted.iter().map(CountedIdentity::identity).collect();
    let request = request(asked, &identities)?;
    let version = engine.version();
    Ok(state.fleet.stored(&request).await.map(|answers| (version, answers)))
}

/// The answer, as JSON; `None` in the moment of a publish: the document, what is enforced, and what the store was asked for are
/// of different versions.
fn explain_by(
    asked: &Asked,
    engine: &Engine,
    published: &Published,
    stored: Option<Stored>,
) -> Result<Option<String>, Problem> {
    let counted = counted(asked, engine)?;
    let identities: Vec<_> = counted.iter().map(CountedIdentity::identity).collect();
    let request = request(asked, &identities)?;
    let is_asked = stored.is_some();
    let (inspection, asked_of) = match stored.zip(engine.begin_inspection(&request)) {
        Some(((version, answers), pending)) => (engine.inspect_with(&pending, &answers), Some(version)),
        None => (engine.inspect(&request), None),
    };
    let policy_version = inspection.decision.policy_version();
    if policy_version != published.version.version || asked_of.is_some_and(|version| version != policy_version) {
        return Ok(None);
    }
    let Some(domain) = published.policy.domains.get(&asked.domain) else {
        return Err(Problem::field("/domain", format!("there is no domain `{}`", asked.domain)));
    };
    let now = Timestamp::now();
    let why = domain.explain(&request, now.into());
    let wait = |limit: &InspectedLimit<'_>| match limit.outcome.map_or(Retry::Now, |outcome| outcome.retry()) {
        Retry::Never => block_ends_in_ms(limit.limit_id, &why.identities, now),
        retry => wait_ms(retry),
    };
    let mut enforced = inspection.limits.iter().filter(|limit| !limit.is_shadow);
    let allowed_after_ms = enforced.try_fold(0, |most, limit| Some(wait(limit)?.max(most)));
    let explained = Explained {
        policy_version,
        domain: &asked.domain,
        decision: Decided {
            allowed: inspection.decision.is_allowed(),
            limit_id: inspection.decision.limit_id(),
            degraded: inspection.decision.degraded().map(Degraded::name),
            allowed_after_ms,
            headers: headers(&inspection.decision, engine.response_settings(&asked.domain)),
        },
        identities: why.identities.iter().map(known).collect(),
        rules: why.rules.iter().map(|(rule, fit)| rule_says(rule, fit)).collect(),
        limits: inspection.limits.iter().map(|limit| limit_state(limit, &identities, is_asked)).collect(),
    };
    serde_json::to_string(&explained).map(Some).map_err(|error| Problem::Internal(error.to_string()))
}

fn headers(decision: &Decision<'_>, door: ResponseSettings) -> Vec<Header> {
    headers::of(decision, door).into_iter().map(|(name, value)| Header { name, value }).collect()
}

/// A client that is blocked comes again when that ends.
fn block_ends_in_ms(limit_id: &str, identities: &[ExplainedIdentity<'_>], now: Timestamp) -> Option<u64> {
    let owner = limit_id.split_once('/')?.1.strip_prefix("client:")?.strip_suffix("/blocked")?;
    let mut clients = identities.iter().filter_map(|who| who.client);
    let made = clients.find(|client| client_id(client) == owner)?.exception.as_ref()?;
    let until = made.until.as_ref()?.parse::<Timestamp>().ok()?;
    u64::try_from((until.as_nanosecond() - now.as_nanosecond()).max(0)).ok().map(|ns| ns.div_ceil(1_000_000))
}

/// Returns the identities as they are counted.
fn counted<'a>(asked: &'a Asked, engine: &Engine) -> Result<Vec<CountedIdentity<'a>>, Problem> {
    let each = asked.identities.iter().enumerate().map(|(place, Who { kind, value })| {
        let counted = Identity::new(kind, value).and_then(|identity| engine.counted(&asked.domain, identity));
        counted.map_err(|error| refused(&error, &format!("/identities/{place}")))
    });
    each.collect()
}

fn request<'a>(asked: &'a Asked, identities: &'a [Identity<'a>]) -> Result<Request<'a>, Problem> {
    let mut request = Request::new(identities).map_err(|error| refused(&error, "/identities"))?.domain(&asked.domain);
    if let Some(endpoint) = &asked.endpoint {
        request = request.endpoint(endpoint).map_err(|error| refused(&error, "/endpoint"))?;
    }
    if let Some(cost) = asked.cost {
        request = request.cost(cost).map_err(|error| refused(&error, "/cost"))?;
    }
    if let Some(method) = &asked.method {
        request = request.method(method);
    }
    if let Some(tier) = &asked.tier {
        request = request.tier(tier);
    }
    Ok(request)
}

fn refused(error: &RequestError, pointer: &str) -> Problem {
    let below = match error {
        RequestError::Kind(_) => "/kind",
        RequestError::Value { .. } | RequestError::Address(_) => "/value",
        _ => "",
    };
    Problem::field(format!("{pointer}{below}"), error.to_string())
}

fn known<'a>(who: &ExplainedIdentity<'a>) -> Known<'a> {
    let from = |from| match from {
        TierOrigin::Client => "client",
        TierOrigin::Hint => "hint",
        _ => "default",
    };
    Known {
        kind: who.identity.kind(),
        value: who.identity.value(),
        tier: who.tier.map(|(tier, _)| tier),
        tier_from: who.tier.map(|(_, source)| from(source)),
        client: who.client.map(client_id),
        label: who.client.and_then(|client| client.label.as_deref()),
        exception: who.client.and_then(|client| client.exception.as_ref()),
        override_has_ended: who.has_ended,
    }
}

fn rule_says<'a>(rule: &'a Rule, fit: &RuleMatch<'_>) -> RuleSays<'a> {
    let (reason, detail) = match fit {
        RuleMatch::Applies => ("applies", "it counts the request".to_owned()),
        RuleMatch::Disabled => ("disabled", "it is switched off".to_owned()),
        RuleMatch::Endpoint => ("endpoint", format!("the path does not match {}", rule.endpoint)),
        RuleMatch::Method => ("method", format!("it is for {}", rule.method.as_deref().unwrap_or_default())),
        RuleMatch::NoIdentity(kind) => ("no_identity", format!("it counts per {kind}, which the request lacks")),
        RuleMatch::Tiers => ("tiers", format!("it is for {}", rule.tiers.as_deref().unwrap_or_default().join(", "))),
        RuleMatch::Where(kind) => {
            let wanted = rule.condition.get(*kind).map_or("", String::as_str);
            ("where", format!("it is for {kind} {wanted}"))
        }
        RuleMatch::Closer(id) => ("closer", format!("rule {id} is closer to the request")),
        _ => ("other", String::new()),
    };
    RuleSays {
        id: &rule.id,
        endpoint: &rule.endpoint,
        method: rule.method.as_deref(),
        applies: *fit == RuleMatch::Applies,
        reason,
        detail,
    }
}

fn who(identity: &Identity<'_>) -> Who {
    Who { kind: identity.kind().to_owned(), value: identity.value().to_owned() }
}

fn limit_state<'a>(limit: &InspectedLimit<'a>, identities: &[Identity<'_>], is_asked: bool) -> LimitState<'a> {
    let (state, outcome) = (limit.state, limit.outcome);
    LimitState {
        limit_id: limit.limit_id,
        mode: if limit.is_shadow { "shadow" } else { "enforce" },
        counted: limit.counted.iter().filter_map(|place| identities.get(*place).map(who)).collect(),
        cost: limit.cost,
        limit: state.limit(),
        period_ms: ms_rounded_up(state.period()),
        used: state.limit().saturating_sub(state.remaining()),
        remaining: state.remaining(),
        reset_after_ms: ms_rounded_up(state.reset_after()),
        sharing: limit.sharing,
        is_stored: limit.is_stored,
        allowed: outcome.is_none_or(|outcome| outcome.is_allowed()),
        retry_after_ms: outcome.map_or(Some(0), |outcome| wait_ms(outcome.retry())),
        remaining_after: outcome.map_or(state.remaining(), |outcome| outcome.remaining()),
        says: standing(limit, is_asked),
    }
}

fn wait_ms(retry: Retry) -> Option<u64> {
    match retry {
        Retry::Now => Some(0),
        Retry::After(wait) => Some(ms_rounded_up(wait)),
        Retry::Never => None,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Without the news it would take a thousand pauses.
    #[tokio::test]
    async fn an_answer_waits_for_the_end_of_a_publish_however_often_it_is_tried() {
        const TRIES: u32 = 1_000;
        let (publishes, changes) = watch::channel(0);
        let tries = Cell::new(0);
        let answer = when_published(Duration::from_hours(1), changes, async || {
            tries.set(tries.get() + 1);
            publishes.send_replace(tries.get());
            Ok((tries.get() == TRIES).then_some("why"))
        });
        assert_eq!(answer.await.expect("the publish has ended"), "why");
        assert_eq!(tries.get(), TRIES);
    }

    #[tokio::test]
    async fn a_publish_that_does_not_end_is_no_fault_of_the_server() {
        let (_publishes, changes) = watch::channel(());
        let answer = when_published(Duration::from_millis(10), changes, async || Ok(None::<()>)).await;
        assert!(matches!(answer, Err(Problem::Busy(_))), "{answer:?}");
    }
}
