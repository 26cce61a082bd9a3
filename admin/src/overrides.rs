//! Overrides of clients: whoever makes one says why, it ends after a week unless another end is given, and once it has ended
//! it goes with the next version. Engines stop applying it by their own clock, at the instant that it names.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tidegate::policy::{Client, Override, Policy};

use crate::{
    changes::Edited,
    objects::{self, Kind, Object, ObjectKey, client_id},
    problem::{FieldError, Problem},
};

/// How long an override lasts unless an end is given.
const DAYS: i64 = 7;

/// The longest override that an operator may give, in hours.
const OPERATOR_HOURS: i64 = 24;

/// What an operator may do to the override `before`: nothing where it is an editor's, which lasts longer than an operator may
/// give one.
fn check_short(before: Option<&Override>, now: Timestamp) -> Result<(), Problem> {
    let is_short = |until: &str| until.parse::<Timestamp>().is_ok_and(|until| until <= longest(now));
    match before.map(|before| before.until.as_deref()) {
        None => Ok(()),
        Some(Some(until)) if is_short(until) => Ok(()),
        Some(_) => Err(too_long("This override lasts longer than 24 hours: changing it")),
    }
}

/// Refuses an operator's change where it is more than an override that he may give, instead of one that he may change: what
/// he was told before his turn came may have been changed by others.
pub(crate) fn check_only(present: &Policy, edited: &Edited) -> Result<(), Problem> {
    let now = Timestamp::now();
    let client = |policy: &Policy, key: &ObjectKey| match objects::find(policy, key) {
        Some((_, Object::Client(client))) => Some(client),
        _ => None,
    };
    for key in edited.touched.iter().chain(&edited.removed) {
        let (mut before, mut after) = (client(present, key), client(&edited.policy, key));
        let take = |client: &mut Option<Client>| client.as_mut().and_then(|client| client.exception.take());
        check_short(take(&mut before).as_ref(), now)?;
        check_short(take(&mut after).as_ref(), now)?;
        // A client that has nothing but an override comes and goes with it.
        let has_more = |it: &Client| (&it.tier, &it.label, &it.note) != (&None, &None, &None) || !it.tags.is_empty();
        let rest = |client: Option<Client>| client.filter(has_more);
        if key.kind != Kind::Client || rest(before) != rest(after) {
            return Err(Problem::Forbidden(format!("Changing {key} needs the role `editor`; yours is `operator`.")));
        }
    }
    Ok(())
}

/// Bounds an override that an operator gives: it ends within 24 hours, and after 24 hours unless he says otherwise.
pub(crate) fn shorten(given: &mut Value, now: Timestamp) -> Result<(), Problem> {
    let Some(given) = given.as_object_mut() else { return Ok(()) };
    match given.get("until") {
        None => {
            given.insert("until".to_owned(), Value::String(text(longest(now))));
            Ok(())
        }
        Some(Value::String(until)) => match until.parse::<Timestamp>() {
            Ok(until) if until <= longest(now) => Ok(()),
            Ok(_) => Err(too_long("An override of more than 24 hours")),
            Err(error) => Err(Problem::field("/until", error.to_string())),
        },
        Some(Value::Null) => Err(too_long("An override without an end")),
        // The document's reader says what it should be.
        Some(_) => Ok(()),
    }
}

fn too_long(what: &str) -> Problem {
    Problem::Forbidden(format!("{what} needs the role `editor`; yours is `operator`."))
}

fn longest(now: Timestamp) -> Timestamp {
    now.saturating_add(SignedDuration::from_hours(OPERATOR_HOURS)).unwrap_or(Timestamp::MAX)
}

/// Gives a client's new or changed override its end, and asks for its reason. `given` is what the caller wrote of the
/// client: `"until": null` there is the choice of no end; without `until`, one that grants what the one before did has its
/// end too.
pub(crate) fn complete(
    client: &mut Client,
    given: &Value,
    before: Option<&Override>,
    now: Timestamp,
) -> Result<(), FieldError> {
    let Some(made) = client.exception.as_mut().filter(|made| Some(&**made) != before) else { return Ok(()) };
    if made.reason.as_ref().is_none_or(|reason| reason.trim().is_empty()) {
        return Err(FieldError::invalid("/override/reason", "say why, for whoever meets it later"));
    }
    let is_said = given["override"].get("until").is_some();
    let grants = |of: &Override| (of.blocked, of.unlimited, of.limits.clone());
    match &made.until {
        None if is_said => {}
        // The same goes on to the same end; if that has come, it begins anew.
        None => match before.filter(|before| grants(before) == grants(made)).map(|before| before.until.clone()) {
            Some(end) if !end.as_ref().is_some_and(|end| has_passed(end, now)) => made.until = end,
            _ => made.until = Some(in_a_week(now)),
        },
        Some(until) if has_passed(until, now) => {
            return Err(FieldError::invalid("/override/until", "it would have ended already; give a later end"));
        }
        _ => {}
    }
    Ok(())
}

/// The end of an override that is made now.
fn in_a_week(now: Timestamp) -> String {
    text(now.saturating_add(SignedDuration::from_hours(24 * DAYS)).unwrap_or(Timestamp::MAX))
}

/// Whole seconds are enough, and easier to read.
fn text(end: Timestamp) -> String {
    Timestamp::from_second(end.as_second()).unwrap_or(end).to_string()
}

/// What is no instant, the compiler refuses.
fn has_passed(until: &str, now: Timestamp) -> bool {
    until.parse::<Timestamp>().is_ok_and(|until| until <= now)
}

/// Clients whose override was taken away because it had ended.
#[derive(Default, Debug)]
pub(crate) struct Ended {
    /// They keep their tier.
    pub(crate) touched: BTreeSet<ObjectKey>,
    /// The override was all that they had.
    pub(crate) removed: BTreeSet<ObjectKey>,
}

impl Ended {
    /// Whose they were, such as `client:user:bob`.
    pub(crate) fn names(&self) -> Vec<String> {
        self.touched.iter().chain(&self.removed).map(ToString::to_string).collect()
    }
}

/// Takes away overrides that have ended by now, as a publish does, and tells whose they were.
pub fn take_ended(policy: &mut Policy) -> Vec<String> {
    end(policy, Timestamp::now()).names()
}

/// Takes away what has ended.
pub(crate) fn end(policy: &mut Policy, now: Timestamp) -> Ended {
    let mut ended = Ended::default();
    let has_ended = |made: &Override| made.until.as_ref().is_some_and(|until| has_passed(until, now));
    for (name, domain) in &mut policy.domains {
        domain.clients.retain_mut(|client| {
            if !client.exception.as_ref().is_some_and(has_ended) {
                return true;
            }
            let key = ObjectKey { kind: Kind::Client, domain: name.clone(), id: client_id(client) };
            client.exception = None;
            let stays = client.tier.is_some();
            if stays { &mut ended.touched } else { &mut ended.removed }.insert(key);
            stays
        });
    }
    ended
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::problem::At;

    fn client(json: Value) -> Client {
        serde_json::from_value(json).expect("a client")
    }

    /// Whatever he was shown before his turn came.
    #[test]
    fn an_operator_changes_short_overrides_alone() {
        let policy = |bob: Value| -> Policy {
            let clients = if bob.is_null() { json!([]) } else { json!([bob]) };
            serde_json::from_value(json!({ "domains": { "default": { "clients": clients } } })).expect("a policy")
        };
        let key = ObjectKey { kind: Kind::Client, domain: "default".to_owned(), id: "user:bob".to_owned() };
        let may = |before: Value, after: Value| {
            let edited =
                Edited { policy: policy(after), touched: vec![key.clone()], removed: Vec::new(), report: None };
            check_only(&policy(before), &edited).is_ok()
        };
        let until = |hours: i64| text(Timestamp::now() + SignedDuration::from_hours(hours));
        let bob = |tier: &str, given: Value| json!({ "kind": "user", "value": "bob", "tier": tier, "override": given });
        let block = |until: Value| json!({ "blocked": true, "until": until, "reason": "r" });
        let (short, long, endless) = (block(json!(until(1))), block(json!(until(30))), block(Value::Null));
        assert!(may(bob("pro", Value::Null), bob("pro", short.clone())));
        assert!(may(bob("pro", short.clone()), bob("pro", Value::Null)));
        let alone = json!({ "kind": "user", "value": "bob", "override": short });
        assert!(may(Value::Null, alone.clone()) && may(alone, Value::Null));
        assert!(!may(bob("pro", Value::Null), bob("pro", long.clone())), "too long");
        for editors in [long, endless] {
            assert!(!may(bob("pro", editors.clone()), bob("pro", short.clone())), "it is an editor's");
            assert!(!may(bob("pro", editors), bob("pro", Value::Null)));
        }
        assert!(!may(bob("pro", Value::Null), bob("free", short.clone())), "the tier is another");
        assert!(!may(Value::Null, bob("pro", short)), "a tier is given");
        let tier = Edited {
            policy: policy(Value::Null),
            touched: vec![ObjectKey { kind: Kind::Tier, domain: "default".to_owned(), id: "free".to_owned() }],
            removed: Vec::new(),
            report: None,
        };
        assert!(check_only(&policy(Value::Null), &tier).is_err());
    }

    #[test]
    fn an_override_ends_after_a_week_unless_said_otherwise_and_has_a_reason() {
        let now: Timestamp = "2026-11-20T10:00:00.5Z".parse().expect("a time");
        let until = |given: Value, before: Option<&Override>| {
            let mut made = client(given.clone());
            complete(&mut made, &given, before, now).map(|()| made.exception.and_then(|made| made.until))
        };
        let with = |fields: Value| json!({ "kind": "user", "value": "bob", "override": fields });
        assert_eq!(
            until(with(json!({ "blocked": true, "reason": "abuse" })), None).expect("complete"),
            Some("2026-11-27T10:00:00Z".to_owned())
        );
        assert_eq!(
            until(with(json!({ "blocked": true, "reason": "abuse", "until": null })), None).expect("complete"),
            None
        );
        assert_eq!(
            until(with(json!({ "blocked": true, "reason": "abuse", "until": "2027-01-01T00:00:00Z" })), None)
                .expect("complete"),
            Some("2027-01-01T00:00:00Z".to_owned())
        );
        let refused = until(with(json!({ "blocked": true, "reason": " " })), None).expect_err("no reason");
        assert_eq!(refused.at, At::Pointer("/override/reason".to_owned()));
        let past = with(json!({ "blocked": true, "reason": "abuse", "until": "2026-11-20T10:00:00Z" }));
        assert_eq!(until(past, None).expect_err("it has ended").at, At::Pointer("/override/until".to_owned()));
        // Of one that goes on, the end stays, and so does that it has none.
        for end in [None, Some("2027-01-01T00:00:00Z")] {
            let mut old = client(with(json!({ "blocked": true, "reason": "old" })));
            old.exception.as_mut().expect("an override").until = end.map(str::to_owned);
            let renamed = until(with(json!({ "blocked": true, "reason": "new" })), old.exception.as_ref());
            assert_eq!(renamed.expect("complete").as_deref(), end);
            let other = until(with(json!({ "unlimited": true, "reason": "new" })), old.exception.as_ref());
            assert_eq!(other.expect("complete").as_deref(), Some("2026-11-27T10:00:00Z"), "another begins anew");
        }
        // One that is there already stays as it is.
        let old = with(json!({ "blocked": true }));
        assert_eq!(until(old.clone(), client(old).exception.as_ref()).expect("unchanged"), None);
    }

    #[test]
    fn what_has_ended_is_taken_away_and_nothing_else() {
        let override_until = |until: &str| json!({ "blocked": true, "until": until });
        let mut policy: Policy = serde_json::from_value(json!({ "domains": { "default": { "clients": [
            { "kind": "user", "value": "a", "override": override_until("2026-11-20T10:00:00Z") },
            { "kind": "user", "value": "b", "tier": "pro", "override": override_until("2026-11-20T10:00:00Z") },
            { "kind": "user", "value": "c", "override": override_until("2026-11-20T10:00:01Z") },
            { "kind": "user", "value": "d", "override": { "blocked": true } },
            { "kind": "user", "value": "e", "tier": "pro" },
        ] } } }))
        .expect("a policy");
        let ended = end(&mut policy, "2026-11-20T10:00:00Z".parse().expect("a time"));
        let names = |keys: &BTreeSet<ObjectKey>| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            (names(&ended.touched), names(&ended.removed)),
            (vec!["client:user:b".into()], vec!["client:user:a".into()])
        );
        let clients = &policy.domains["default"].clients;
        let left: Vec<_> = clients.iter().map(|client| (client.value.as_str(), client.exception.is_some())).collect();
        assert_eq!(left, [("b", false), ("c", true), ("d", true), ("e", false)]);
    }
}
