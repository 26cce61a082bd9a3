//! Tiers, rules and clients that come and go, by lists and one by one.

use serde_json::{Value, json};

use crate::support::{Client, fresh};

/// A tier of one limit, so many a minute.
fn tier(id: &str, limit: u64) -> Value {
    json!({ "id": id, "limits": [{ "id": "minute", "algorithm": "token_bucket", "limit": limit, "period": "1m" }] })
}

fn change(op: &str, kind: &str, id: &str, value: Option<Value>) -> Value {
    let mut change = json!({ "op": op, "kind": kind, "id": id });
    if let Some(value) = value {
        change["value"] = value;
    }
    change
}

/// A list on top of version `base`.
fn list(base: u64, changes: &[Value], if_match: &Value) -> Value {
    json!({ "base_version": base, "message": "a change", "changes": changes, "if_match": if_match })
}

fn publish(client: &Client, base: u64, changes: &[Value], if_match: &Value) -> crate::support::Answer {
    client.post("/api/v1/policy/changes", &list(base, changes, if_match))
}

/// Sends `value` with an entity tag.
fn send(
    client: &Client,
    method: &str,
    path: &str,
    etag: Option<&str>,
    value: Option<&Value>,
) -> crate::support::Answer {
    let headers: Vec<(&str, &str)> = etag.map(|etag| ("if-match", etag)).into_iter().collect();
    client.send(method, path, &headers, value.map(|value| value.to_string().into_bytes()))
}

#[test]
fn a_list_makes_changes_and_removes_objects_in_one_version() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let client = json!({ "kind": "user", "value": "bob", "tier": "big", "label": "Bob" });
    let rule = json!({ "id": "search", "endpoint": "/search", "per": "user", "limits": tier("", 3)["limits"] });
    let made = publish(
        &ana,
        1,
        &[
            change("create", "tier", "big", Some(tier("big", 5_000))),
            change("create", "client", "user:bob", Some(client.clone())),
            change("create", "rule", "search", Some(rule)),
        ],
        &json!({}),
    );
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.json()["version"], 2, "all of it is one version");
    assert_eq!(made.json()["changes"][1]["etag"], "\"client:user:bob:2\"");
    assert_eq!((server.check("bob").limit(), server.check("eve").limit()), (Some(5_000), Some(100)));
    let bob = ana.get("/api/v1/clients/user:bob");
    assert_eq!((bob.header("etag"), &bob.json()["value"]), ("\"client:user:bob:2\"", &client));
    assert_eq!(ana.get("/api/v1/tiers/big").json()["clients"], 1);

    // The same again: they are there.
    let again = publish(&ana, 2, &[change("create", "tier", "big", Some(tier("big", 1)))], &json!({}));
    assert_eq!((again.status, &again.json()["conflicts"][0]["version"]), (412, &json!(2)));

    let tags = json!({ "client:user:bob": "\"client:user:bob:2\"", "rule:search": "\"rule:search:2\"" });
    let gone = [change("delete", "client", "user:bob", None), change("delete", "rule", "search", None)];
    let gone = publish(&ana, 2, &gone, &tags);
    assert_eq!((gone.status, &gone.json()["changes"][0]["etag"]), (201, &Value::Null), "{gone:?}");
    assert_eq!(server.check("bob").limit(), Some(100));
    for path in ["/api/v1/clients/user:bob", "/api/v1/rules/search"] {
        assert_eq!(ana.get(path).status, 404, "{path}");
    }
    // Whoever comes with a tag of before is told that it is gone, also when a new one has its name.
    let old = [change("put", "client", "user:bob", Some(client.clone()))];
    let refused = publish(&ana, 3, &old, &tags);
    assert_eq!((refused.status, &refused.json()["conflicts"][0]["present"]), (412, &Value::Null));
    assert_eq!(publish(&ana, 3, &[change("create", "client", "user:bob", Some(client))], &json!({})).status, 201);
    assert_eq!(publish(&ana, 4, &old, &tags).status, 412);
    assert_eq!(ana.get("/api/v1/clients/user:bob").header("etag"), "\"client:user:bob:4\"");
}

#[test]
fn a_tier_in_use_stays_unless_the_same_list_moves_its_users() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let (etag, _) = ana.tier("free");
    let tags = json!({ "tier:free": etag });
    let delete = change("delete", "tier", "free", None);
    let refused = publish(&ana, 1, std::slice::from_ref(&delete), &tags);
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("in_use")), "{refused:?}");
    assert!(refused.json()["used_by"]["default_of"].as_array().is_some_and(|kinds| !kinds.is_empty()), "{refused:?}");

    let bob = |tier: &str| json!({ "kind": "user", "value": "bob", "tier": tier });
    let made = publish(
        &ana,
        1,
        &[
            change("create", "tier", "old", Some(tier("old", 7))),
            change("create", "client", "user:bob", Some(bob("old"))),
        ],
        &json!({}),
    );
    assert_eq!(made.status, 201, "{made:?}");
    let tags = json!({ "tier:old": "\"tier:old:2\"", "client:user:bob": "\"client:user:bob:2\"" });
    let delete = change("delete", "tier", "old", None);
    let refused = publish(&ana, 2, std::slice::from_ref(&delete), &tags);
    assert_eq!((refused.status, &refused.json()["used_by"]["clients"]), (409, &json!(1)));
    assert_eq!(server.engine.version(), 2, "nothing was published");
    let moved = publish(&ana, 2, &[delete, change("put", "client", "user:bob", Some(bob("free")))], &tags);
    assert_eq!(moved.status, 201, "{moved:?}");
    assert_eq!(server.check("bob").limit(), Some(100));
}

#[test]
fn one_object_is_changed_by_a_list_of_one() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    assert_eq!(send(&ana, "POST", "/api/v1/tiers?message=a%20big%20one", None, Some(&tier("big", 10))).status, 201);
    let newest = ana.get("/api/v1/policy/versions?limit=1").json();
    assert_eq!(newest["items"][0]["message"], "a big one");
    let path = "/api/v1/tiers/big";
    assert_eq!(send(&ana, "PUT", path, None, Some(&tier("big", 20))).status, 428);
    assert_eq!(send(&ana, "PUT", path, Some("\"tier:big:1\""), Some(&tier("big", 20))).status, 412);
    assert_eq!(send(&ana, "PUT", path, Some("\"tier:big:2\""), Some(&tier("big", 20))).status, 201);
    assert_eq!(ana.tier("big").1["limits"][0]["limit"], 20);
    assert_eq!(ana.get("/api/v1/policy/versions?limit=1").json()["items"][0]["message"], "put tier:big");
    // Of a patch, only what it names changes.
    let zoe = json!({ "kind": "user", "value": "zoe", "tier": "free" });
    assert_eq!(send(&ana, "POST", "/api/v1/clients", None, Some(&zoe)).status, 201);
    let patched = |version: u64, patch: &Value| {
        let etag = format!("\"client:user:zoe:{version}\"");
        let answer = send(&ana, "PATCH", "/api/v1/clients/user:zoe", Some(&etag), Some(patch));
        assert_eq!(answer.status, 201, "{answer:?}");
        ana.get("/api/v1/clients/user:zoe").json()["value"].clone()
    };
    let named = json!({ "kind": "user", "value": "zoe", "tier": "free", "label": "Zoe" });
    assert_eq!(patched(4, &json!({ "label": "Zoe" })), named);
    assert_eq!(patched(5, &json!({ "label": null })), zoe);
    assert_eq!(send(&ana, "PATCH", "/api/v1/tiers/none", Some("\"x\""), Some(&json!({}))).status, 404);
    // Fields are named as they stand in this body.
    let mut wrong = tier("big", 20);
    wrong["limits"][0]["period"] = json!("0s");
    assert_eq!(send(&ana, "PUT", path, Some("\"tier:big:3\""), Some(&wrong)).pointers(), ["/limits/0/period"]);
    assert_eq!(send(&ana, "POST", "/api/v1/tiers", None, Some(&json!({ "limits": [] }))).pointers(), [""]);
    let elsewhere = send(&ana, "POST", "/api/v1/tiers?domain=nowhere", None, Some(&tier("big", 1)));
    assert_eq!((elsewhere.status, elsewhere.pointers()), (422, vec![String::new()]), "{elsewhere:?}");
    assert!(elsewhere.text.contains("no domain `nowhere`"), "{elsewhere:?}");
    assert_eq!(send(&ana, "DELETE", path, None, None).status, 428);
    assert_eq!(send(&ana, "DELETE", path, Some("\"tier:big:3\""), None).status, 201);
    assert_eq!(ana.get(path).status, 404);
    let refused = send(&ana, "GET", "/api/v1/clients", None, None);
    assert_eq!((refused.status, refused.header("allow")), (405, "POST"));
    assert_eq!(server.engine.version(), 7);
}

#[test]
fn ids_of_clients_are_percent_encoded_in_paths() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    for (value, path) in [("10.0.0.0/8", "ip:10.0.0.0%2F8"), ("2001:db8::1", "ip%3A2001%3Adb8%3A%3A1")] {
        let client = json!({ "kind": "ip", "value": value, "override": { "unlimited": true } });
        let made = send(&ana, "POST", "/api/v1/clients", None, Some(&client));
        assert_eq!(made.status, 201, "{made:?}");
        let path = format!("/api/v1/clients/{path}");
        let found = ana.get(&path);
        assert_eq!((found.status, &found.json()["value"]), (200, &client), "{path}");
        assert_eq!(send(&ana, "DELETE", &path, Some(found.header("etag")), None).status, 201, "{path}");
    }
}

#[test]
fn a_key_of_a_repeat_is_for_one_path() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let send = |path: &str| {
        let body = tier("big", 10).to_string().into_bytes();
        ana.send("POST", path, &[("idempotency-key", "k")], Some(body))
    };
    let first = send("/api/v1/tiers");
    assert_eq!((first.status, &send("/api/v1/tiers").text), (201, &first.text));
    assert_eq!(send("/api/v1/tiers?message=other").status, 422);
    assert_eq!(server.engine.version(), 2);
}
