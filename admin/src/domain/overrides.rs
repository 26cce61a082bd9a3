//! Overrides of clients: whoever makes one says why, it ends after a week unless another end is given, and once it has ended
//! it goes with the next version. Engines stop applying it by their own clock, at the instant that it names.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tidegate::policy::{Client, Override, Policy};

use crate::domain::{
    edited_policy::Edited,
    editor::Editing,
    error::{FieldError, Problem},
    objects::{self, Kind, Object, ObjectKey, client_id},
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
    for key in edited.touched.iter().chain(&edited.removed) {
        let (mut before, mut after) = (client_of(present, key), client_of(&edited.policy, key));
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

/// Refuses an operator's change where an override in `present` that it takes the place of lasts longer than an operator may
/// give one.
pub(crate) fn check_replaced(present: &Policy, edited: &Edited) -> Result<(), Problem> {
    let now = Timestamp::now();
    edited.touched.iter().chain(&edited.removed).try_for_each(|key| {
        let before = client_of(present, key).and_then(|client| client.exception);
        check_short(before.as_ref(), now)
    })
}

/// Returns whether all that was changed are overrides. A client that has no tier comes and goes with its own.
pub(crate) fn are_all(present: &Policy, edited: &Edited) -> bool {
    edited.touched.iter().chain(&edited.removed).all(|key| {
        let without = |policy| client_of(policy, key).map(|client| Client { exception: None, ..client });
        match (without(present), without(&edited.policy)) {
            (Some(before), Some(after)) => before == after,
            (None, Some(alone)) | (Some(alone), None) => alone.tier.is_none(),
            (None, None) => false,
        }
    })
}

/// Makes the changes of overrides on another policy, whose clients are in order. They stay as they are there otherwise; one that
/// is not there is made without a tier, and one that has neither a tier nor an override left goes.
pub(crate) fn same_in(policy: &Policy, edited: &Edited) -> Edited {
    let mut editing = Editing::of(policy.clone());
    let (mut touched, mut removed) = (Vec::new(), Vec::new());
    for key in edited.touched.iter().chain(&edited.removed).filter(|key| policy.domains.contains_key(&key.domain)) {
        let given = client_of(&edited.policy, key);
        let exception = given.as_ref().and_then(|given| given.exception.clone());
        let found = client_of(policy, key);
        let made = found.clone().or_else(|| given.map(|given| Client { tier: None, ..given }));
        let made = made.map(|made| Client { exception, ..made });
        let made = made.filter(|made| made.tier.is_some() || made.exception.is_some());
        let place = editing.find(key).map(|(place, _)| place);
        match (made, place) {
            (Some(made), place) if found.as_ref() != Some(&made) => {
                editing.put(key, place, Object::Client(made));
                touched.push(key.clone());
            }
            (None, Some(place)) => removed.extend(editing.remove(key, place)),
            _ => {}
        }
    }
    Edited { policy: editing.done(), touched, removed, report: None }
}

/// The client of this key.
fn client_of(policy: &Policy, key: &ObjectKey) -> Option<Client> {
    match objects::find(policy, key) {
        Some((_, Object::Client(client))) => Some(client),
        _ => None,
    }
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
    use crate::domain::error::ErrorLocation;

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
        assert_eq!(refused.at, ErrorLocation::Pointer("/override/reason".to_owned()));
        let past = with(json!({ "blocked": true, "reason": "abuse", "until": "2026-11-20T10:00:00Z" }));
        assert_eq!(
            until(past, None).expect_err("it has ended").at,
            ErrorLocation::Pointer("/override/until".to_owned())
        );
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

    fn policy_of(clients: &Value) -> Policy {
        let mut policy: Policy =
            serde_json::from_value(json!({ "domains": { "default": { "clients": clients } } })).expect("a policy");
        objects::sort_clients(&mut policy);
        policy
    }

    fn keys(ids: &[&str]) -> Vec<ObjectKey> {
        let key = |id: &&str| ObjectKey { kind: Kind::Client, domain: "default".to_owned(), id: (*id).to_owned() };
        ids.iter().map(key).collect()
    }

    fn edited(clients: &Value, touched: &[&str], removed: &[&str]) -> Edited {
        Edited { policy: policy_of(clients), touched: keys(touched), removed: keys(removed), report: None }
    }

    #[test]
    fn changes_of_overrides_are_told_from_others() {
        let block = json!({ "blocked": true, "reason": "abuse" });
        let bob =
            |tier: Value, given: &Value| json!([{ "kind": "user", "value": "bob", "tier": tier, "override": given }]);
        let (none, free) = (Value::Null, json!("free"));
        let are_all = |before: &Value, after: &Value, touched: &[&str], removed: &[&str]| {
            are_all(&policy_of(before), &edited(after, touched, removed))
        };
        let of_bob = &["user:bob"][..];
        for (before, after) in [
            (bob(free.clone(), &none), bob(free.clone(), &block)),
            (bob(free.clone(), &block), bob(free.clone(), &none)),
            (json!([]), bob(none.clone(), &block)),
        ] {
            assert!(are_all(&before, &after, of_bob, &[]), "{before} {after}");
        }
        assert!(are_all(&bob(none.clone(), &block), &json!([]), &[], of_bob), "the block was all that there was");
        for (before, after) in [
            (bob(free.clone(), &none), bob(json!("pro"), &block)),
            (bob(none.clone(), &block), bob(free.clone(), &block)),
            (json!([]), bob(free.clone(), &block)),
        ] {
            assert!(!are_all(&before, &after, of_bob, &[]), "{before} {after}");
        }
        assert!(!are_all(&bob(free.clone(), &block), &json!([]), &[], of_bob), "its tier goes too");
        let tier = ObjectKey { kind: Kind::Tier, domain: "default".to_owned(), id: "free".to_owned() };
        let of_tier = Edited { policy: policy_of(&json!([])), touched: vec![tier], removed: Vec::new(), report: None };
        assert!(!super::are_all(&policy_of(&json!([])), &of_tier));
    }

    #[test]
    fn the_same_overrides_are_made_where_clients_are_otherwise() {
        let block = json!({ "blocked": true, "reason": "abuse" });
        let of = |value: &str, tier: Value, given: &Value| -> Value {
            json!({ "kind": "user", "value": value, "tier": tier, "override": given })
        };
        let (none, pro) = (Value::Null, json!("pro"));
        // What was changed: a and b were blocked, c and d are no longer.
        let clients = json!([of("a", pro.clone(), &block), of("b", pro.clone(), &block), of("c", pro.clone(), &none)]);
        let edited = edited(&clients, &["user:a", "user:b", "user:c"], &["user:d"]);
        let there = policy_of(&json!([
            of("b", json!("free"), &none),
            of("c", none.clone(), &block),
            of("d", json!("free"), &block),
            of("e", json!("free"), &block),
        ]));
        let same = same_in(&there, &edited);
        let after = policy_of(&json!([
            of("a", none.clone(), &block),
            of("b", json!("free"), &block),
            of("d", json!("free"), &none),
            of("e", json!("free"), &block),
        ]));
        assert_eq!(same.policy, after);
        assert_eq!((same.touched, same.removed), (keys(&["user:a", "user:b", "user:d"]), keys(&["user:c"])));
        // Where all is like this already, or the domain is not there, nothing changes.
        let again = same_in(&after, &edited);
        assert_eq!((again.policy, again.touched.len(), again.removed.len()), (after, 0, 0));
        let elsewhere = same_in(&Policy { domains: [].into() }, &edited);
        assert_eq!((elsewhere.policy.domains.len(), elsewhere.touched.len(), elsewhere.removed.len()), (0, 0, 0));
    }

    #[test]
    fn an_operator_replaces_short_overrides_alone() {
        let until = |hours: i64| text(Timestamp::now() + SignedDuration::from_hours(hours));
        let there = |until: Value| {
            policy_of(&json!([{ "kind": "user", "value": "a", "override": { "blocked": true, "until": until } }]))
        };
        let edited = edited(&json!([]), &[], &["user:a"]);
        assert!(check_replaced(&there(json!(until(1))), &edited).is_ok());
        assert!(check_replaced(&policy_of(&json!([])), &edited).is_ok());
        for longer in [json!(until(30)), Value::Null] {
            assert!(matches!(check_replaced(&there(longer), &edited), Err(Problem::Forbidden(_))));
        }
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
