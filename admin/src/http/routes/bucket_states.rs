//! How clients stand just now: how full their limits are, and how they are denied. One question for the rows of a screen.

use actix_web::web::{Data, Json};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate::{Identity, policy::Client};
use tidegate_fleet::wire::{FULLEST_MAX, NodeQuery, NodeReply, PeekedLimit, QueryIdentity};

use crate::{
    domain::{
        change_list::default_domain, client_import::is_single, error::Problem, objects::client_place, roles::Viewer,
    },
    fleet::registry::Outcome,
    http::{extract::body::Body, guard::By, openapi::Api, problem::Code, routes::objects::domain_of, state::State},
    metrics::top::Denied,
};

pub(super) fn calls(api: &mut Api) {
    api.post("/clients/standings", standings)
        .says(
            "How clients stand now",
            "Of each, the limit that is nearest to denying it, as nodes say; and how often it was denied within the last minute, and \
             when last, as far as it is among the 256 keys that are denied most, estimated from one decision in 16. Clients that \
             are not configured, or stand for many, are left out. Charges nothing.",
        )
        .example(json!({ "ids": ["user:bob"] }))
        .refuses(&[Code::NotFound]);
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ClientsAsked")]
struct OfClients {
    /// The domain that the clients are in.
    #[serde(default = "default_domain")]
    domain: String,
    #[schemars(length(min = 1, max = FULLEST_MAX))]
    ids: Vec<String>,
}

/// How clients stand.
#[derive(Serialize, JsonSchema)]
struct Standings {
    items: Vec<Standing>,
    /// Nodes of which nothing is known.
    did_not_answer: Vec<String>,
}

/// How a client stands.
#[derive(Serialize, JsonSchema)]
struct Standing {
    id: String,
    /// The limit that is nearest to denying a request of its alone, on the node where it is nearest; `null`: there is none that
    /// can, or no node answered.
    fullest: Option<Fullest>,
    /// Requests that were denied within the last minute: estimated, and 0 for whoever is not among the keys that are denied most.
    denied_per_minute: u64,
    /// When one was seen last, RFC 3339; `null`: not as long as it has been among the keys that are denied most.
    #[schemars(extend("format" = "date-time"))]
    last_denied_at: Option<String>,
}

/// How full a limit is.
#[derive(Serialize, JsonSchema)]
struct Fullest {
    /// Full name.
    limit_id: String,
    /// Of tokens.
    limit: u64,
    used: u64,
    /// Used of the limit, from 0 to 1.
    share: f64,
    /// Until all of it is free again, milliseconds.
    reset_after_ms: u64,
}

impl From<PeekedLimit> for Fullest {
    fn from(peeked: PeekedLimit) -> Self {
        let PeekedLimit { limit_id, limit, remaining, reset_after_ms, .. } = peeked;
        let used = limit.saturating_sub(remaining);
        Self { limit_id, limit, used, share: used as f64 / limit as f64, reset_after_ms }
    }
}

/// One question for each node, however many clients it is about. Who is in the policy is named there: nothing of him is hidden.
async fn standings(_: By<Viewer>, state: Data<State>, body: Body<OfClients>) -> Result<Json<Standings>, Problem> {
    let OfClients { domain, ids } = body.value;
    if !(1..=FULLEST_MAX).contains(&ids.len()) {
        return Err(Problem::field("/ids", format!("from 1 to {FULLEST_MAX} clients are asked about at a time")));
    }
    let each: Vec<QueryIdentity> = {
        let published = state.publisher.published();
        let clients = &domain_of(&published, &domain)?.clients;
        let found = ids.iter().filter_map(|id| client_place(clients, id)).map(|place| &clients[place]);
        let single = found.filter(|client| is_single(client));
        single.map(|Client { kind, value, .. }| QueryIdentity { kind: kind.clone(), value: value.clone() }).collect()
    };
    if each.is_empty() {
        return Ok(Json(Standings { items: Vec::new(), did_not_answer: Vec::new() }));
    }
    let ask = NodeQuery::Fullest { domain: Some(domain.clone()), each: each.clone() };
    let Outcome { answers, mut did_not_answer, .. } = state.fleet.ask(&state.store, None, &ask).await?;
    let mut fullest: Vec<Option<PeekedLimit>> = vec![None; each.len()];
    for (node, told) in answers {
        // A node of an older build does not know the question.
        let NodeReply::Fullest { each } = told else {
            did_not_answer.push(node);
            continue;
        };
        for (known, limit) in fullest.iter_mut().zip(each) {
            if let Some(limit) = limit.filter(|limit| known.as_ref().is_none_or(|known| limit.is_fuller(known))) {
                *known = Some(limit);
            }
        }
    }
    did_not_answer.sort();
    let denied = state.figures.denied_in(&domain);
    let counted = |who: &QueryIdentity| {
        let counted = state.figures.engine().counted(&domain, Identity::new(&who.kind, &who.value).ok()?).ok()?;
        denied.get(&(who.kind.clone(), counted.identity().value().to_owned())).copied()
    };
    let items = each.into_iter().zip(fullest).map(|(who, limit)| {
        let Denied { per_minute, last_at_ms, .. } = counted(&who).unwrap_or_default();
        let QueryIdentity { kind, value } = who;
        let last_denied_at = Timestamp::from_millisecond(last_at_ms).ok().filter(|_| last_at_ms > 0);
        Standing {
            id: format!("{kind}:{value}"),
            fullest: limit.filter(|limit| limit.limit > 0).map(Fullest::from),
            denied_per_minute: per_minute,
            last_denied_at: last_denied_at.map(|at| at.to_string()),
        }
    });
    Ok(Json(Standings { items: items.collect(), did_not_answer }))
}
