//! The service `RateLimiterConfig`: changes rules of one limit, by calls of the admin server.

use std::{sync::Arc, time::Duration};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate::{
    algorithm::SlidingWindowLog,
    time::{SECOND_NS, parse_period},
};
use tonic::{Code, Request, Response, Status};

use super::admin_client::{AdminApiClient, AdminCall, AdminResponse};
use crate::protobuf::generated::tidegate::v1::{
    CreateRateLimitRequest, DeleteRateLimitRequest, DeleteRateLimitResponse, ListRateLimitsRequest,
    ListRateLimitsResponse, RateLimit, UpdateRateLimitRequest, rate_limiter_config_server::RateLimiterConfig,
};

const RULES: &str = "/api/v1/rules";
/// The longest ID of a rule.
const ID_BYTES_MAX: usize = 64;
/// The ID of the only limit of a new rule.
const LIMIT_ID: &str = "limit";

pub(super) struct ConfigService(pub(super) Arc<AdminApiClient>);

/// A rule that a [`RateLimit`] can express. A rule with more fields than these is richer.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct PlainRule {
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    endpoint: String,
    per: PlainPer,
    limits: [PlainLimit; 1],
    #[serde(default = "default_enabled")]
    enabled: bool,
}

/// The kind that a rule counts, in either notation of the document.
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

fn default_enabled() -> bool {
    true
}

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
    /// Reads a rule of a document; `None` where it is richer.
    fn from_document(rule: &Value) -> Option<Self> {
        let plain = Self::deserialize(rule).ok()?;
        plain.window_seconds()?;
        Some(plain)
    }

    /// Returns the period in seconds; `None` where it is no whole number of seconds, or of the calendar.
    fn window_seconds(&self) -> Option<u64> {
        let period = parse_period(&self.limits[0].period).ok()?;
        (period.subsec_nanos() == 0).then_some(period.as_secs())
    }

    fn into_message(self, window_seconds: u64) -> RateLimit {
        let [PlainLimit { algorithm, limit, .. }] = self.limits;
        let (PlainPer::One(identifier_type) | PlainPer::Each([identifier_type])) = self.per;
        let Self { id, endpoint, enabled, .. } = self;
        RateLimit { id, endpoint, identifier_type, limit, window_seconds, algorithm, enabled }
    }

    /// Returns the rule of a message, whose limit has this ID.
    fn from_message(message: &RateLimit, limit_id: &str) -> Result<Self, Status> {
        let non_empty = |field: &str, value: &str| match value {
            "" => Err(Status::invalid_argument(format!("{field}: say which; it is empty"))),
            value => Ok(value.to_owned()),
        };
        let algorithm = match &*non_empty("algorithm", &message.algorithm)? {
            "sliding_window" => "sliding_window_log".to_owned(),
            algorithm => algorithm.to_owned(),
        };
        let window_ns = message.window_seconds.checked_mul(SECOND_NS).filter(|ns| *ns > 0);
        let window_ns = window_ns.ok_or_else(|| {
            Status::invalid_argument(format!("window_seconds: {} is out of range; from 1 on", message.window_seconds))
        })?;
        // The admin server reports the error; this message also says which algorithm is possible.
        if algorithm == "sliding_window_log"
            && let Err(unfit) = SlidingWindowLog::new(message.limit.max(1), Duration::from_nanos(window_ns))
        {
            return Err(Status::invalid_argument(format!(
                "{unfit}, as a log keeps every request; use sliding_window_counter"
            )));
        }
        let limit = PlainLimit {
            id: limit_id.to_owned(),
            algorithm,
            limit: message.limit,
            period: format!("{}s", message.window_seconds),
        };
        Ok(Self {
            id: message.id.clone(),
            note: None,
            endpoint: non_empty("endpoint", &message.endpoint)?,
            per: PlainPer::One(non_empty("identifier_type", &message.identifier_type)?),
            limits: [limit],
            enabled: message.enabled,
        })
    }
}

/// Returns whether a rule has the endpoint and identifier type of a message.
fn has_same_scope(rule: &Value, message: &RateLimit) -> bool {
    let per = &rule["per"];
    let counts = per == &json!(message.identifier_type) || per == &json!([message.identifier_type]);
    counts && rule["endpoint"] == message.endpoint
}

/// Returns an ID for a rule without one: its identifier type and endpoint, cut to the longest ID, and different from
/// the IDs of these rules.
fn new_id(message: &RateLimit, taken: &[Value]) -> String {
    let mut id: String = message.identifier_type.chars().filter(char::is_ascii_alphanumeric).collect();
    for part in message.endpoint.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty()) {
        id.push('-');
        id.push_str(&part.to_ascii_lowercase());
    }
    // Leaves room for a number.
    id.truncate(ID_BYTES_MAX - 8);
    let is_taken = |id: &str| taken.iter().any(|rule| rule["id"] == id);
    let numbered = (2_u32..).map(|number| format!("{id}-{number}"));
    [id.clone()].into_iter().chain(numbered).find(|id| !is_taken(id)).unwrap_or(id)
}

fn rule_path(id: &str) -> String {
    format!("{RULES}/{}", utf8_percent_encode(id, NON_ALPHANUMERIC))
}

/// Returns the error where a rule has the same endpoint and identifier type.
fn already_exists(id: &str) -> Status {
    Status::already_exists(format!("endpoint: rule `{id}` has this endpoint and identifier_type; update that one"))
}

impl AdminCall<'_> {
    /// Reads all rules of the domain `default`.
    async fn rules(&self) -> Result<Vec<Value>, Status> {
        let (mut rules, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let after = cursor.map_or_else(String::new, |cursor| {
                format!("&cursor={}", utf8_percent_encode(&cursor, NON_ALPHANUMERIC))
            });
            let page = match self.get::<Page>(&format!("{RULES}?sort=name&limit=500{after}")).await {
                Ok(response) => response.body,
                // There is no such domain, so it has no rules.
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

    /// Reads a rule that a message can express, with its entity tag.
    async fn plain_rule(&self, id: &str) -> Result<(PlainRule, String), Status> {
        if id.is_empty() {
            return Err(Status::invalid_argument("id: say which rule; it is empty"));
        }
        let AdminResponse { etag, body: Item { value } } = self.get::<Item>(&rule_path(id)).await?;
        let rule = PlainRule::from_document(&value).ok_or_else(|| {
            Status::failed_precondition(format!(
                "id: rule `{id}` says more than one limit in whole seconds; change it in the dashboard, or by the admin \
                 server's REST"
            ))
        })?;
        let etag = etag.ok_or_else(|| Status::internal("the admin server gave no entity tag"))?;
        Ok((rule, etag))
    }
}

/// Returns the rule of a request, or an error where it is absent.
fn required(message: Option<RateLimit>) -> Result<RateLimit, Status> {
    message.ok_or_else(|| Status::invalid_argument("rate_limit: say which; it is absent"))
}

#[tonic::async_trait]
impl RateLimiterConfig for ConfigService {
    async fn create_rate_limit(&self, request: Request<CreateRateLimitRequest>) -> Result<Response<RateLimit>, Status> {
        let call = AdminCall::begin(&self.0, &request)?;
        let mut message = required(request.get_ref().rate_limit.clone())?;
        // A wrong message is refused before the admin server is called.
        PlainRule::from_message(&message, LIMIT_ID)?;
        let rules = call.rules().await?;
        if let Some(rule) = rules.iter().find(|rule| has_same_scope(rule, &message)) {
            return Err(already_exists(rule["id"].as_str().unwrap_or_default()));
        }
        if message.id.is_empty() {
            message.id = new_id(&message, &rules);
        }
        let rule = PlainRule::from_message(&message, LIMIT_ID)?;
        match call.post(RULES, &rule).await {
            Ok(()) => Ok(Response::new(rule.into_message(message.window_seconds))),
            // Another rule took the ID since the rules were read. The message differs where the ID was chosen here.
            Err(status)
                if status.code() == Code::Aborted
                    && request.get_ref().rate_limit.as_ref().is_none_or(|given| given.id.is_empty()) =>
            {
                Err(Status::aborted("another rule was made meanwhile; send this one again"))
            }
            Err(status) if status.code() == Code::Aborted => {
                Err(Status::already_exists(format!("id: there is a rule `{}`; give it another id", message.id)))
            }
            Err(status) => Err(status),
        }
    }

    async fn update_rate_limit(&self, request: Request<UpdateRateLimitRequest>) -> Result<Response<RateLimit>, Status> {
        let call = AdminCall::begin(&self.0, &request)?;
        let message = required(request.get_ref().rate_limit.clone())?;
        PlainRule::from_message(&message, LIMIT_ID)?;
        let (before, etag) = call.plain_rule(&message.id).await?;
        let rules = call.rules().await?;
        if let Some(rule) = rules.iter().find(|rule| has_same_scope(rule, &message) && rule["id"] != message.id) {
            return Err(already_exists(rule["id"].as_str().unwrap_or_default()));
        }
        // The limit keeps its ID, so that what was used stays used.
        let rule = PlainRule { note: before.note, ..PlainRule::from_message(&message, &before.limits[0].id)? };
        call.put(&rule_path(&message.id), &etag, &rule).await?;
        Ok(Response::new(rule.into_message(message.window_seconds)))
    }

    async fn delete_rate_limit(
        &self,
        request: Request<DeleteRateLimitRequest>,
    ) -> Result<Response<DeleteRateLimitResponse>, Status> {
        let call = AdminCall::begin(&self.0, &request)?;
        let id = &request.get_ref().id;
        let (_, etag) = call.plain_rule(id).await?;
        call.delete(&rule_path(id), &etag).await?;
        Ok(Response::new(DeleteRateLimitResponse {}))
    }

    async fn list_rate_limits(
        &self,
        request: Request<ListRateLimitsRequest>,
    ) -> Result<Response<ListRateLimitsResponse>, Status> {
        let call = AdminCall::begin(&self.0, &request)?;
        let rules = call.rules().await?;
        let plain = rules.iter().filter_map(|rule| {
            let rule = PlainRule::deserialize(rule).ok()?;
            let window_seconds = rule.window_seconds()?;
            Some(rule.into_message(window_seconds))
        });
        let rate_limits = plain.collect();
        Ok(Response::new(ListRateLimitsResponse { rate_limits }))
    }
}
