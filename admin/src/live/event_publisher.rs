//! What happens beside the figures, told to the streams: publishes, and lines of the audit log.

use std::{convert::Infallible, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

use crate::{
    base::event_log::{Events, Topic},
    domain::{
        objects::ObjectKey,
        published::{Published, Revised},
        rollout::Targets,
    },
    fleet::registry::Fleet,
    publish::publisher::Publisher,
    store::database::Store,
};

/// Objects that an event names of those that changed, and of those that are gone: a publish may be of a hundred thousand.
const NAMED_MAX: usize = 100;
/// How often is looked for new lines of the audit log.
const AUDIT_EVERY: Duration = Duration::from_secs(1);
/// Lines that a newcomer is told.
const LINES: usize = 20;
/// Lines that are read at once, so that readers are told of some before others come.
const PAGE: usize = 200;

/// Tells of every publish, and that this node's engine decides by it or why it does not.
pub(crate) async fn follow_policy(publisher: &Publisher, events: &Events, fleet: &Fleet, node: &str) -> Infallible {
    let (mut changes, mut not_applied) = (publisher.subscribe(), publisher.not_applied());
    let mut told = Arc::clone(&changes.borrow_and_update());
    loop {
        // The publisher, which both are of, outlives this.
        tokio::select! {
            _ = changes.changed() => {}
            _ = not_applied.changed() => {
                if let Some(refused) = &*not_applied.borrow_and_update() {
                    let data = json!({ "version": refused.version, "node": node, "refused": refused.why });
                    events.put(Topic::Policy, "policy.applied", &data, |_, _| {});
                    fleet.happened_here(refused.version, None, Some(&refused.why));
                }
                continue;
            }
        }
        let now = Arc::clone(&changes.borrow_and_update());
        if now.newest.version.version != told.newest.version.version {
            let (before, after) = (Arc::clone(&told.newest), Arc::clone(&now.newest));
            // There may be a hundred thousand objects. It does not panic.
            if let Ok(data) = spawn_blocking(move || publication(&before, &after)).await {
                events.put(Topic::Policy, "policy.published", &data, |_, _| {});
            }
        }
        if now.rollout() != told.rollout() {
            events.put(Topic::Policy, "policy.rollout", &json!({ "rollout": now.rollout() }), |_, _| {});
        }
        // The engine has it before anybody is told. Two clocks are at it where another server published.
        let of_here = |targets: &Targets| Arc::clone(targets.of(publisher.here()));
        let (had, has) = (of_here(&told), of_here(&now));
        let version = has.version.version;
        if had.version.version != version {
            let since = has.version.published_at.parse::<jiff::Timestamp>().ok();
            // How long it was kept back says nothing.
            let since = since.filter(|_| told.rollout().is_none_or(|rollout| rollout.version != version));
            let took_ms = since.map(|at| (jiff::Timestamp::now().as_millisecond() - at.as_millisecond()).max(0));
            let data = json!({ "version": version, "node": node, "took_ms": took_ms });
            events.put(Topic::Policy, "policy.applied", &data, |_, _| {});
            fleet.happened_here(version, took_ms.and_then(|ms| ms.try_into().ok()), None);
        }
        told = now;
    }
}

/// What was published since `before`, here or by other servers: several versions may come at once.
fn publication(before: &Published, published: &Published) -> Value {
    let is_new = |revised: &Revised| revised.version > before.version.version;
    let touched = published.revisions.iter().filter(|(_, revised)| is_new(revised)).map(|(key, _)| key);
    let added = touched.clone().filter(|key| !before.revisions.contains_key(*key)).count();
    let is_whole = before.revisions.len() + added == published.revisions.len();
    // Mostly nothing is gone, and a look at each of a hundred thousand takes long.
    let removed = before.revisions.keys().filter(|key| !is_whole && !published.revisions.contains_key(*key));
    let named = |key: &Arc<ObjectKey>| json!({ "kind": key.kind, "domain": key.domain, "id": key.id });
    let with_etag = |key: &Arc<ObjectKey>| {
        let mut named = named(key);
        named["etag"] = published.etag(key).into();
        named
    };
    let version = &published.version;
    json!({
        "version": version.version, "author": version.author, "message": version.message,
        "published_at": version.published_at,
        "touched": touched.clone().take(NAMED_MAX).map(with_etag).collect::<Vec<_>>(),
        "touched_count": touched.count(),
        "removed": removed.clone().take(NAMED_MAX).map(named).collect::<Vec<_>>(),
        "removed_count": removed.count(),
    })
}

/// Does this action end somebody's sessions or tokens?
fn ends_somebody(action: &str) -> bool {
    action.starts_with("user.") || matches!(action, "session.end" | "session.revoke" | "token.revoke")
}

/// Tells of lines of the audit log, each once and in order, whichever server or command wrote them; and through `session_ended`
/// that streams look whether they still may.
pub(crate) async fn follow_audit(store: &Store, events: &Events, session_ended: &watch::Sender<()>) -> Infallible {
    let mut ticks = interval(AUDIT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = None;
    loop {
        ticks.tick().await;
        loop {
            // A database that has trouble says so elsewhere.
            let lines = match told {
                None => store.last_audit_lines(LINES).await,
                Some(last) => store.audit_lines_after(last, PAGE).await,
            };
            let Ok(lines) = lines else { break };
            let is_all = told.is_none() || lines.len() < PAGE;
            told = lines.last().map(|line| line.id).or(told).or(Some(0));
            if lines.iter().any(|line| ends_somebody(&line.action)) {
                session_ended.send_replace(());
            }
            for line in lines {
                events.put(Topic::Audit, "audit", &line, |lines, event| {
                    lines.push(event);
                    lines.drain(..lines.len().saturating_sub(LINES));
                });
            }
            if is_all {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tidegate::policy::Policy;

    use super::*;
    use crate::{
        domain::{
            objects::{Kind, ObjectKey},
            published::Revised,
            version::{Carries, Version},
        },
        publish::stored_policy::write_first,
        store::{audit::Audit, data_directory::DataFolder},
    };

    fn published(version: u64, revisions: impl IntoIterator<Item = (String, u64)>) -> Published {
        let key = |id: String| ObjectKey { kind: Kind::Tier, domain: "default".to_owned(), id };
        let revised = |version| Revised { version, by: "ana".to_owned(), at: String::new() };
        Published {
            version: Version {
                version,
                sha256: String::new(),
                author: "ana".to_owned(),
                message: "m".to_owned(),
                published_at: String::new(),
                carry: Carries::default(),
                follows: version - 1,
            },
            document: "".into(),
            policy: Policy { domains: BTreeMap::new() },
            revisions: revisions.into_iter().map(|(id, version)| (key(id).into(), revised(version).into())).collect(),
        }
    }

    fn names(list: &Value, what: &str) -> String {
        let names = list.as_array().expect("a list").iter().map(|named| named[what].as_str().expect("text"));
        names.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn who_missed_versions_is_told_of_every_object_that_they_changed() {
        let of = |version, objects: &[(&str, u64)]| {
            published(version, objects.iter().map(|(id, version)| ((*id).to_owned(), *version)))
        };
        let before = of(2, &[("a", 2), ("b", 1), ("gone", 1), ("again", 2)]);
        let after = of(5, &[("a", 2), ("b", 3), ("c", 5), ("again", 4)]);
        let event = publication(&before, &after);
        assert_eq!(names(&event["touched"], "etag"), "\"tier:again:4\" \"tier:b:3\" \"tier:c:5\"");
        assert_eq!((names(&event["removed"], "id"), &event["removed"][0]["etag"]), ("gone".to_owned(), &Value::Null));
        assert_eq!((&event["touched_count"], &event["removed_count"]), (&json!(3), &json!(1)));
    }

    /// Many more lines in a second than a newcomer is told of.
    #[tokio::test(flavor = "multi_thread")]
    async fn every_line_of_the_log_is_told_once_and_in_order() {
        const COUNT: usize = 600;
        let folder = tempfile::tempdir().expect("a folder");
        let mut data = DataFolder::take(folder.path()).expect("it is free");
        let store = Store::create(&mut data, write_first).await.expect("it is made");
        let events = Arc::new(Events::new("a".to_owned()));
        let mut news = events.subscribe();
        let follow = {
            let (store, events) = (store.clone(), Arc::clone(&events));
            tokio::spawn(async move { follow_audit(&store, &events, &watch::Sender::new(())).await })
        };
        news.changed().await.expect("the first line");
        let (mut objects, mut seen) = (Vec::new(), *news.borrow());
        let write = async {
            for number in 0..COUNT {
                let object = number.to_string();
                let line = Audit {
                    actor: "ana",
                    address: "",
                    action: "test",
                    object: &object,
                    result: "done",
                    request_id: "",
                };
                store.audit(line).await.expect("it is written");
            }
        };
        let read = async {
            while objects.len() < COUNT {
                news.changed().await.expect("it goes on");
                let (told, newest) = events.since(seen, &[Topic::Audit]);
                seen = newest;
                for told in told {
                    assert!(!told.is_gap);
                    let text = told.event.text("", false);
                    let data = text.split_once("data: ").expect("data").1;
                    let line: Value = serde_json::from_str(data).expect("JSON");
                    objects.push(line["object"].as_str().expect("text").to_owned());
                }
            }
        };
        tokio::join!(write, read);
        assert_eq!(objects, (0..COUNT).map(|number| number.to_string()).collect::<Vec<_>>());
        assert_eq!(events.state(&[Topic::Audit]).0.len(), LINES);
        follow.abort();
    }

    #[test]
    fn of_many_objects_some_are_named_and_all_are_counted() {
        let many = |version: u64, range: std::ops::Range<u32>| {
            published(version, range.map(|number| (format!("t{number:06}"), version)))
        };
        let event = publication(&many(1, 0..50_000), &many(2, 40_000..100_000));
        assert_eq!((&event["touched_count"], &event["removed_count"]), (&json!(60_000), &json!(40_000)));
        assert!(names(&event["touched"], "id").starts_with("t040000 t040001"));
        assert!(names(&event["removed"], "id").ends_with("t000099"));
        assert!(event.to_string().len() < 20_000);
    }
}
