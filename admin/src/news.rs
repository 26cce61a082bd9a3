//! What happens beside the figures, told to the streams: publishes, and lines of the audit log.

use std::{convert::Infallible, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    events::{Events, Topic},
    published::Published,
    publisher::Publisher,
    store::Store,
};

/// How often is looked for new lines of the audit log, while somebody reads.
const AUDIT_EVERY: Duration = Duration::from_secs(1);
/// Lines that a newcomer is told.
const LINES: usize = 20;

/// Tells of every publish, and that this node's engine decides by it.
pub(crate) async fn follow_policy(publisher: &Publisher, events: &Events, node: &str) -> Infallible {
    let mut changes = publisher.subscribe();
    let mut told = changes.borrow_and_update().version.version;
    loop {
        if changes.changed().await.is_err() {
            std::future::pending::<Infallible>().await;
        }
        let newest = Arc::clone(&changes.borrow_and_update());
        let version = newest.version.version;
        let data = publication(&newest, told);
        events.put(Topic::Policy, "policy.published", &data, |_, _| {});
        // The engine has it before anybody is told. Two clocks are at it where another server published.
        let at = newest.version.published_at.parse::<jiff::Timestamp>();
        let took_ms = at.map_or(0, |at| jiff::Timestamp::now().as_millisecond() - at.as_millisecond()).max(0);
        let data = json!({ "version": version, "node": node, "took_ms": took_ms });
        events.put(Topic::Policy, "policy.applied", &data, |_, _| {});
        told = version;
    }
}

/// What was published since version `told`: several versions may come at once.
fn publication(published: &Published, told: u64) -> Value {
    let touched: Vec<Value> = published
        .revisions
        .iter()
        .filter(|(_, revised)| revised.version > told)
        .map(|(key, _)| json!({ "kind": key.kind, "domain": key.domain, "id": key.id, "etag": published.etag(key) }))
        .collect();
    let version = &published.version;
    json!({
        "version": version.version, "author": version.author, "message": version.message,
        "published_at": version.published_at, "touched": touched,
    })
}

/// Tells of lines of the audit log, whichever server wrote them.
pub(crate) async fn follow_audit(store: &Store, events: &Events) -> Infallible {
    let mut ticks = interval(AUDIT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = 0;
    loop {
        ticks.tick().await;
        if events.readers() == 0 {
            continue;
        }
        // A database that has trouble says so elsewhere.
        let Ok(lines) = store.audit_since(told, LINES).await else { continue };
        for line in lines {
            told = line.id;
            events.put(Topic::Audit, "audit", &line, |lines, event| {
                lines.push(event);
                lines.drain(..lines.len().saturating_sub(LINES));
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tidegate::policy::Policy;

    use super::*;
    use crate::{
        objects::{Kind, ObjectKey},
        published::Revised,
        store::{Carries, Version},
    };

    #[test]
    fn who_missed_versions_is_told_of_every_object_that_they_changed() {
        let key = |id: &str| ObjectKey { kind: Kind::Tier, domain: "default".to_owned(), id: id.to_owned() };
        let revised = |version| Revised { version, by: "ana".to_owned(), at: String::new() };
        let published = Published {
            version: Version {
                version: 5,
                sha256: String::new(),
                author: "ana".to_owned(),
                message: "m".to_owned(),
                published_at: String::new(),
                carry: Carries::default(),
            },
            policy: Policy { domains: BTreeMap::new() },
            revisions: [("a", 2), ("b", 3), ("c", 5)].map(|(id, version)| (key(id), revised(version))).into(),
        };
        let told = |told| {
            let data = publication(&published, told);
            let ids = data["touched"].as_array().expect("a list").iter().map(|touched| touched["etag"].to_string());
            ids.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(told(4), r#""\"tier:c:5\"""#);
        assert_eq!(told(2), r#""\"tier:b:3\"" "\"tier:c:5\"""#);
    }
}
