//! What of a policy is hardly meant, and what publishing a change list would do.

use std::collections::BTreeSet;

use actix_web::web::Data;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use tidegate::{
    Finding, WarningCode,
    policy::{Difference, Policy, differences},
};

use crate::{
    capacity::work_queue::{Heavy, Written},
    domain::{change_impact::Effects, change_list::ChangeList, error::Problem, published::Shared, roles::Viewer},
    http::{extract::body::Body, guard::By, openapi::Api, problem::Code, state::State},
};

pub(super) fn calls(api: &mut Api) {
    api.get("/policy/lint", lint).says(
        "Warnings of the policy in force",
        "Rules that never match, limits that never bind beside a tighter one, patterns that stand in each other's way.",
    );
    api.post("/policy/validate", validate)
        .says("What publishing a change list would do", "Refuses what a publish would refuse; publishes nothing.")
        .example(json!({
            "base_version": 1,
            "message": "a tier to try",
            "changes": [{
                "op": "create", "kind": "tier", "id": "tried",
                "value": {
                    "id": "tried",
                    "limits": [{ "id": "minute", "algorithm": "token_bucket", "limit": 100, "period": "1m" }],
                },
            }],
        }))
        .refuses(&[Code::InUse, Code::LastOfItsKind, Code::Conflict, Code::PreconditionRequired]);
}

/// A warning as it is sent.
#[derive(Serialize, JsonSchema)]
struct Warned {
    code: &'static str,
    domain: String,
    kind: &'static str,
    id: String,
    limit: Option<String>,
    message: String,
    /// The policy in force does not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    is_new: Option<bool>,
}

impl Warned {
    fn of(warning: Finding<WarningCode>, is_new: Option<bool>) -> Self {
        let Finding { code, domain, kind, id, limit, message, .. } = warning;
        Self { code: code.name(), domain, kind, id, limit, message, is_new }
    }
}

#[derive(Serialize, JsonSchema)]
struct Lint {
    policy_version: u64,
    warnings: Vec<Warned>,
}

async fn lint(_: By<Viewer>, state: Data<State>, heavy: Heavy) -> Result<Written<Lint>, Problem> {
    let published = state.publisher.published();
    let lint = move || {
        let warnings = published.policy.lint().into_iter().map(|warning| Warned::of(warning, None)).collect();
        Ok(Lint { policy_version: published.version.version, warnings })
    };
    heavy.place().await?.write(lint).await
}

/// What publishing a list would do.
#[derive(Serialize, JsonSchema)]
struct Validated {
    /// That it would be.
    version: u64,
    /// The version in force.
    on_top_of: u64,
    differences: Vec<Difference>,
    warnings: Vec<Warned>,
    #[serde(flatten)]
    effects: Effects,
}

/// Refuses what a publish would refuse; publishes nothing.
async fn validate(
    _: By<Viewer>,
    state: Data<State>,
    heavy: Heavy,
    body: Body<ChangeList>,
) -> Result<Written<Validated>, Problem> {
    let place = heavy.place().await?;
    // While a rollout is open, a publish makes a version for the other nodes before.
    let versions = 1 + u64::from(state.publisher.targets().staged.is_some());
    let (place, tried) = place.whole(async move { state.publisher.try_list(body.value).await }).await?;
    let (before, after) = tried?;
    let compare = move |before: Shared, after: Policy| {
        let known: BTreeSet<Finding<WarningCode>> = before.policy.lint().into_iter().collect();
        let found = after.lint();
        let warnings = found.into_iter().map(|warning| {
            let is_new = !known.contains(&warning);
            Warned::of(warning, Some(is_new))
        });
        let version = before.version.version;
        Validated {
            version: version + versions,
            on_top_of: version,
            differences: differences(&before.policy, &after),
            warnings: warnings.collect(),
            effects: Effects::between(&before, &after),
        }
    };
    place.write(move || Ok(compare(before, after))).await
}
