//! Figures, asked for once; the stream has them as they change.

use std::{cmp::Reverse, collections::HashMap, time::SystemTime};

use actix_web::web::{Data, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate::{Identity, Request, RuleMatch, policy::Domain};

use crate::{
    capacity::work_queue::Queries,
    domain::{
        error::{Problem, stands_here},
        roles::Viewer,
    },
    http::{
        extract::{paging::List, query::Query},
        guard::By,
        openapi::Api,
        state::State,
    },
    metrics::{
        collector::{Asked, HITTER_HALF_LIFE, Range, SAMPLED_ONE_IN, SKETCH_ENTRIES},
        endpoints::{Endpoint, Met, Shown},
        sample::{Sample, Second},
        top::{Heaviest, Of, TopBy},
    },
};

/// The most items of the heaviest, and how many there are unless told otherwise.
const TOP_MAX: usize = 100;
const TOP: usize = 20;
/// Endpoints that are listed.
const ENDPOINTS: usize = 100;

const RANGE: &str = "\
Without parameters: the newest sample, counted since the process started, and the rates of the last quarter of an hour. \
`GET /stream?topics=metrics` has them once a second.

With any of them: what was counted in a range, in steps of a second (kept for 15 minutes, of this server alone), a minute (7 \
days) or an hour (90 days, of all servers with this database). There is no point for a step in which nobody counted, nor for \
one that is not over. Ranges of more than 10,080 steps are refused; an answer has 20,000 points at most, over the busiest \
series.

A tier or a rule has the requests that its limits counted, each once: allowed are those that it let pass, denied those that \
one of its limits was the first to refuse, shadow-denied those that one of its shadows would have. Limits of single clients are in \
the total alone.";

pub(super) fn calls(api: &mut Api) {
    api.about("Figures", "What was decided, and how fast.");
    api.get("/metrics", show).says("Figures now, or of a range of time", RANGE);
    api.get("/metrics/top", top).says(
        "The heaviest keys, limits, tiers or rules",
        "Keys are estimated from one decision in 16 by a sketch of 256 keys (Space-Saving): no count is too low beside what the \
         sample leaves open, none is too high by more than its `error`, which is at most `error_max`; counts are halved every \
         ten minutes. Limits, tiers and rules are counted exactly, over the last quarter of an hour.",
    );
    api.get("/metrics/endpoints", endpoints).says(
        "Endpoints without a rule of their own",
        "Those that were asked for since the server started and that no rule matches, or only one for all paths. Estimated: of \
         one decision in 16, up to 256 drawn in each second are looked at, and scaled to all decisions. What looks like an id in \
         a path is `{id}`, and other names that no rule has in its pattern are shown as the server's setting `keys` says; of more \
         than 1,000 patterns the busiest stay.",
    );
}

/// Figures.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Figures")]
enum Metrics {
    /// Without parameters.
    Now {
        newest: Sample,
        /// A point a second, oldest first.
        history: Vec<Second>,
    },
    /// Of a range.
    Range(Range),
}

async fn show(
    _: By<Viewer>,
    state: Data<State>,
    asked: Query<Asked>,
    queries: Queries,
) -> Result<Json<Metrics>, Problem> {
    Ok(Json(if asked.is_nothing() {
        Metrics::Now { newest: (*state.figures.newest()).clone(), history: state.figures.history() }
    } else {
        let find = async move { state.figures.range(&state.store, &asked).await };
        Metrics::Range(queries.place().await?.whole(find).await?.1?)
    }))
}

#[derive(Debug, Deserialize, JsonSchema)]
struct TopAsked {
    /// What the heaviest are; keys unless given.
    by: Option<TopBy>,
    /// What they are the heaviest in; denied requests unless given.
    of: Option<Of>,
    /// How many.
    #[serde(default)]
    #[schemars(range(min = 1, max = TOP_MAX))]
    limit: TopLimit,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "usize")]
#[schemars(inline)]
struct TopLimit(usize);

impl Default for TopLimit {
    fn default() -> Self {
        Self(TOP)
    }
}

impl TryFrom<usize> for TopLimit {
    type Error = String;

    fn try_from(limit: usize) -> Result<Self, String> {
        let fits = (1..=TOP_MAX).contains(&limit);
        fits.then_some(Self(limit))
            .ok_or_else(|| stands_here(&limit.to_string(), &format!("a whole number from 1 to {TOP_MAX}")))
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct AboutTop {
    by: TopBy,
    of: Of,
    /// One decision in so many was looked at.
    one_in: u32,
    /// No count is too high by a larger share of all.
    error_max: f64,
    /// Counts of keys are halved in this time.
    half_life_ms: Option<u64>,
}

async fn top(
    _: By<Viewer>,
    state: Data<State>,
    asked: Query<TopAsked>,
    queries: Queries,
) -> Result<Json<List<Heaviest, AboutTop>>, Problem> {
    let (by, of) = (asked.by.unwrap_or_default(), asked.of.unwrap_or_default());
    let is_sketch = by == TopBy::Key;
    let about = AboutTop {
        by,
        of,
        one_in: if is_sketch { SAMPLED_ONE_IN.get() } else { 1 },
        error_max: if is_sketch { 1.0 / SKETCH_ENTRIES as f64 } else { 0.0 },
        half_life_ms: is_sketch.then_some(HITTER_HALF_LIFE.as_millis() as u64),
    };
    let items = state.figures.heaviest(by, of, asked.limit.0, &queries).await?;
    Ok(Json(List { about, items, next: None }))
}

/// An endpoint without a rule of its own.
#[derive(Debug, Serialize, JsonSchema)]
struct Uncovered {
    domain: String,
    /// `null`: the requests had none.
    method: Option<String>,
    /// With `{id}` for what looks like one; other segments that no rule of the domain names are shown as the server's setting
    /// `keys` says.
    endpoint: String,
    /// Estimated.
    requests: u64,
    /// Requests that were looked at, which that is estimated from.
    seen: u64,
    /// Rules for all paths that match it; none: no rule does.
    rules: Vec<String>,
}

async fn endpoints(_: By<Viewer>, state: Data<State>, queries: Queries) -> Result<Json<List<Uncovered>>, Problem> {
    let find = move || {
        let (published, seen, privacy) = (state.publisher.published(), state.figures.endpoints(), state.privacy);
        let rules_of = |name: &str| published.policy.domains.get(name).map_or(&[][..], |domain| &domain.rules);
        let names = seen.iter().map(|(Endpoint { domain, .. }, _)| domain.as_str());
        let domains: HashMap<&str, (Domain, Shown<'_>)> = names
            .map(|name| {
                let rules = rules_of(name);
                (name, (Domain { rules: rules.to_vec(), ..Domain::default() }, Shown::new(rules, privacy)))
            })
            .collect();
        let mut items = Vec::<Uncovered>::new();
        let mut places = HashMap::new();
        let uncovered = seen.iter().filter_map(|(endpoint, met)| {
            let (domain, shown) = &domains[endpoint.domain.as_str()];
            uncovered(domain, endpoint, met, shown)
        });
        for found in uncovered {
            // Several may be shown alike.
            let key = (found.domain.clone(), found.method.clone(), found.endpoint.clone(), found.rules.clone());
            let place = *places.entry(key).or_insert(items.len());
            match items.get_mut(place) {
                Some(known) => {
                    known.requests += found.requests;
                    known.seen += found.seen;
                }
                None => items.push(found),
            }
        }
        items.sort_by_key(|item| Reverse(item.requests));
        items.truncate(ENDPOINTS);
        items
    };
    // There may be a thousand of them, and as many rules.
    let items = queries.work(find).await?;
    Ok(Json(List { about: crate::http::extract::paging::Nothing {}, items, next: None }))
}

/// `None`: a rule is for this endpoint.
fn uncovered(domain: &Domain, endpoint: &Endpoint, met: &Met, shown: &Shown<'_>) -> Option<Uncovered> {
    let Endpoint { domain: name, method, pattern } = endpoint;
    // Who comes does not matter here.
    let nobody = [Identity::new("any", "any").ok()?];
    let request = Request::new(&nobody).ok()?.endpoint(&met.example).ok()?.method(method);
    let explanation = domain.explain(&request, SystemTime::UNIX_EPOCH);
    let is_for = |says: &RuleMatch<'_>| !matches!(says, RuleMatch::Disabled | RuleMatch::Endpoint | RuleMatch::Method);
    let matching: Vec<_> =
        explanation.rules.into_iter().filter(|(_, says)| is_for(says)).map(|(rule, _)| rule).collect();
    matching.iter().all(|rule| matches!(rule.endpoint.as_str(), "*" | "/*")).then(|| Uncovered {
        domain: name.clone(),
        method: Some(method.clone()).filter(|method| !method.is_empty()),
        endpoint: shown.show(pattern),
        requests: met.requests(),
        seen: met.seen,
        rules: matching.into_iter().map(|rule| rule.id.clone()).collect(),
    })
}
