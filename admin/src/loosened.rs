//! What a change loosens, as it is sent.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use tidegate::{Loosening, policy::Policy};

use crate::overrides;

/// Where a change lets much more through than before: whoever publishes it is to be asked whether that is meant.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Loosened {
    code: &'static str,
    domain: String,
    kind: &'static str,
    id: String,
    limit: Option<String>,
    /// How many clients it is so for, of which `id` is the first; 1 for whatever is no client.
    objects: usize,
    message: String,
}

impl Loosened {
    /// Overrides that have ended hold no longer, whether the document has them or not.
    pub(crate) fn between(before: &Policy, after: &Policy) -> Vec<Self> {
        let now = Timestamp::now();
        let [before, after] = [before, after].map(|policy| {
            let mut policy = policy.clone();
            overrides::end(&mut policy, now);
            policy
        });
        let told = |loosening| {
            let Loosening { code, domain, kind, id, limit, objects, message, .. } = loosening;
            Self { code: code.name(), domain, kind, id, limit, objects, message }
        };
        before.loosened_by(&after).into_iter().map(told).collect()
    }
}
