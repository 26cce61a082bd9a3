//! `RateLimiterConfig`: rules of one limit, by way of the admin server.

use std::sync::Arc;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate::{
    algorithm::SlidingWindowLog,
    time::{SECOND_NS, parse_period},
};
use tonic::{Code, Request, Response, Status};

use super::{
    admin_client::{Admin, Caller, Told},
    proto::tidegate::v1::{
        CreateRateLimitRequest, DeleteRateLimitRequest, DeleteRateLimitResponse, ListRateLimitsRequest,
        ListRateLimitsResponse, RateLimit, UpdateRateLimitRequest, rate_limiter_config_server::RateLimiterConfig,
    },
};

const RULES: &str = "/api/v1/rules";
/// The longest id.
const ID_BYTES_MAX: usize = 64;
/// The only limit of a new rule.
const LIMIT_ID: &str = "limit";

pub(super) struct Config(pub(super) Arc<Admin>);

/// A rule that can be told as a [`RateLimit`]: whatever has more than this is richer.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct PlainRule {
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    endpoint: String,
    per: PlainPer,
    limits: [PlainLimit; 1],
    #[serde(default = "yes")]
    enabled: bool,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum PlainPer {
    One(String),
    Each([String; 1]),
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct PlainLimit {
    id: String,
    algorithm: String,
    limit: u64,
    period: String,
}

fn yes() -> bool {
    true
}

/// A page of rules, each as it is.
#[derive(Deserialize)]
struct Page {
    items: Vec<Item>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Item {
    value: Value,
}

impl PlainRule {
    /// `None`: it is richer.
    fn of(rule: &Value) -> Option<Self> {
        let plain = Self::deserialize(rule).ok()?;
        plain.window_seconds()?;
        Some(plain)
    }

    /// `None`: not whole ones, or of the calendar.
    fn window_seconds(&self) -> Option<u64> {
        let ns = parse_period(&self.limits[0].period).ok()?;
        ns.is_multiple_of(SECOND_NS).then_some(ns / SECOND_NS)
    }

    fn told(self) -> Option<RateLimit> {
        let window_seconds = self.window_seconds()?;
        let [PlainLimit { algorithm, limit, .. }] = self.limits;
        let (PlainPer::One(identifier_type) | PlainPer::Each([identifier_type])) = self.per;
        let Self { id, endpoint, enabled, .. } = self;
        Some(RateLimit { id, endpoint, identifier_type, limit, window_seconds, algorithm, enabled })
    }

    /// What a message says, with the id of its limit.
    fn from(told: &RateLimit, limit_id: &str) -> Result<Self, Status> {
        let given = |field: &str, value: &str| match value {
            "" => Err(Status::invalid_argument(format!("{field}: say which; it is empty"))),
            value => Ok(value.to_owned()),
        };
        let algorithm = match &*given("algorithm", &told.algorithm)? {
            "sliding_window" => "sliding_window_log".to_owned(),
            algorithm => algorithm.to_owned(),
        };
        let window_ns = told.window_seconds.checked_mul(SECOND_NS).filter(|ns| *ns > 0);
        let window_ns = window_ns.ok_or_else(|| {
            Status::invalid_argument(format!("window_seconds: {} is out of range; from 1 on", told.window_seconds))
        })?;
        // The admin server says what does not fit; here it is also said what does.
        if algorithm == "sliding_window_log"
            && let Err(unfit) = SlidingWindowLog::new(told.limit.max(1), window_ns)
        {
            return Err(Status::invalid_argument(format!(
                "{unfit}, as a log keeps every request; use sliding_window_counter"
            )));
        }
        let limit = PlainLimit {
            id: limit_id.to_owned(),
            algorithm,
            limit: told.limit,
            period: format!("{}s", told.window_seconds),
        };
        Ok(Self {
            id: told.id.clone(),
            note: None,
            endpoint: given("endpoint", &told.endpoint)?,
            per: PlainPer::One(given("identifier_type", &told.identifier_type)?),
            limits: [limit],
            enabled: told.enabled,
        })
    }
}

/// Is it for this endpoint, and does it count these, whatever else it says?
fn is_of(rule: &Value, told: &RateLimit) -> bool {
    let per = &rule["per"];
    let counts = per == &json!(told.identifier_type) || per == &json!([told.identifier_type]);
    counts && rule["endpoint"] == told.endpoint
}

/// An id for a rule that was given none: what it counts and where, as far as fits, and not one of these.
fn new_id(told: &RateLimit, taken: &[Value]) -> String {
    let mut id: String = told.identifier_type.chars().filter(char::is_ascii_alphanumeric).collect();
    for part in told.endpoint.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty()) {
        id.push('-');
        id.push_str(&part.to_ascii_lowercase());
    }
    // Room for a number.
    id.truncate(ID_BYTES_MAX - 8);
    let is_taken = |id: &str| taken.iter().any(|rule| rule["id"] == id);
    let numbered = (2_u32..).map(|number| format!("{id}-{number}"));
    [id.clone()].into_iter().chain(numbered).find(|id| !is_taken(id)).unwrap_or(id)
}

fn path(id: &str) -> String {
    format!("{RULES}/{}", utf8_percent_encode(id, NON_ALPHANUMERIC))
}

fn taken(id: &str) -> Status {
    Status::already_exists(format!("endpoint: rule `{id}` has this endpoint and identifier_type; update that one"))
}

impl Caller<'_> {
    /// All rules of the domain `default`.
    async fn rules(&self) -> Result<Vec<Value>, Status> {
        let (mut rules, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let after = cursor.map_or_else(String::new, |cursor| {
                format!("&cursor={}", utf8_percent_encode(&cursor, NON_ALPHANUMERIC))
            });
            let page = match self.get::<Page>(&format!("{RULES}?sort=name&limit=500{after}")).await {
                Ok(told) => told.body,
                // There is no such domain.
                Err(status) if status.code() == Code::NotFound => return Ok(rules),
                Err(status) => return Err(status),
            };
            rules.extend(page.items.into_iter().map(|item| item.value));
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(rules),
            }
        }
    }

    /// A rule that can be changed here, with its entity tag.
    async fn plain(&self, id: &str) -> Result<(PlainRule, String), Status> {
        if id.is_empty() {
            return Err(Status::invalid_argument("id: say which rule; it is empty"));
        }
        let Told { etag, body: Item { value } } = self.get::<Item>(&path(id)).await?;
        let rule = PlainRule::of(&value).ok_or_else(|| {
            Status::failed_precondition(format!(
                "id: rule `{id}` says more than one limit in whole seconds; change it in the dashboard, or by the admin \
                 server's REST"
            ))
        })?;
        let etag = etag.ok_or_else(|| Status::internal("the admin server gave no entity tag"))?;
        Ok((rule, etag))
    }
}

fn given(told: Option<RateLimit>) -> Result<RateLimit, Status> {
    told.ok_or_else(|| Status::invalid_argument("rate_limit: say which; it is absent"))
}

fn as_body(rule: &PlainRule) -> Result<Value, Status> {
    serde_json::to_value(rule).map_err(|error| Status::internal(error.to_string()))
}

#[tonic::async_trait]
impl RateLimiterConfig for Config {
    async fn create_rate_limit(&self, request: Request<CreateRateLimitRequest>) -> Result<Response<RateLimit>, Status> {
        let caller = Caller::of(&self.0, &request)?;
        let mut told = given(request.get_ref().rate_limit.clone())?;
        // What is wrong with it is said before anything is asked.
        PlainRule::from(&told, LIMIT_ID)?;
        let rules = caller.rules().await?;
        if let Some(rule) = rules.iter().find(|rule| is_of(rule, &told)) {
            return Err(taken(rule["id"].as_str().unwrap_or_default()));
        }
        if told.id.is_empty() {
            told.id = new_id(&told, &rules);
        }
        let rule = PlainRule::from(&told, LIMIT_ID)?;
        match caller.post::<Value>(RULES, &as_body(&rule)?).await {
            Ok(_) => rule.told().map(Response::new).ok_or_else(|| Status::internal("it was made, and cannot be told")),
            // Given or made up here, since the rules were read.
            Err(status)
                if status.code() == Code::Aborted
                    && request.get_ref().rate_limit.as_ref().is_none_or(|given| given.id.is_empty()) =>
            {
                Err(Status::aborted("another rule was made meanwhile; send this one again"))
            }
            Err(status) if status.code() == Code::Aborted => {
                Err(Status::already_exists(format!("id: there is a rule `{}`; give it another id", told.id)))
            }
            Err(status) => Err(status),
        }
    }

    async fn update_rate_limit(&self, request: Request<UpdateRateLimitRequest>) -> Result<Response<RateLimit>, Status> {
        let caller = Caller::of(&self.0, &request)?;
        let told = given(request.get_ref().rate_limit.clone())?;
        PlainRule::from(&told, LIMIT_ID)?;
        let (before, etag) = caller.plain(&told.id).await?;
        let rules = caller.rules().await?;
        if let Some(rule) = rules.iter().find(|rule| is_of(rule, &told) && rule["id"] != told.id) {
            return Err(taken(rule["id"].as_str().unwrap_or_default()));
        }
        // Under the id that the limit had, what was used stays used.
        let rule = PlainRule { note: before.note, ..PlainRule::from(&told, &before.limits[0].id)? };
        caller.put(&path(&told.id), &etag, &as_body(&rule)?).await?;
        rule.told().map(Response::new).ok_or_else(|| Status::internal("it was changed, and cannot be told"))
    }

    async fn delete_rate_limit(
        &self,
        request: Request<DeleteRateLimitRequest>,
    ) -> Result<Response<DeleteRateLimitResponse>, Status> {
        let caller = Caller::of(&self.0, &request)?;
        let id = &request.get_ref().id;
        let (_, etag) = caller.plain(id).await?;
        caller.delete(&path(id), &etag).await?;
        Ok(Response::new(DeleteRateLimitResponse {}))
    }

    async fn list_rate_limits(
        &self,
        request: Request<ListRateLimitsRequest>,
    ) -> Result<Response<ListRateLimitsResponse>, Status> {
        let caller = Caller::of(&self.0, &request)?;
        let rules = caller.rules().await?;
        let rate_limits = rules.iter().filter_map(|rule| PlainRule::of(rule)?.told()).collect();
        Ok(Response::new(ListRateLimitsResponse { rate_limits }))
    }
}
