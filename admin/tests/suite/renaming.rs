//! A tier or a rule gets another name, and what names the tier follows in the same version.

use serde_json::{Value, json};

use crate::support::{Answer, Client, fresh};

/// A list of these changes, on top of what is in force.
fn publish(ana: &Client, changes: &Value) -> Answer {
    let kinds = |change: &Value| {
        format!("{}:{}", change["kind"].as_str().expect("a kind"), change["id"].as_str().expect("an id"))
    };
    let tagged = changes.as_array().expect("a list").iter().filter(|change| change["op"] != "create").map(|change| {
        let key = kinds(change);
        let (kind, id) = key.split_once(':').expect("a key");
        let tag = ana.get(&format!("/api/v1/{kind}s/{id}")).json()["etag"].clone();
        (key, tag)
    });
    let tags: serde_json::Map<String, Value> = tagged.collect();
    let base_version = ana.get("/api/v1/policy").json()["version"].clone();
    let list = json!({ "base_version": base_version, "message": "rename", "changes": changes, "if_match": tags });
    ana.post("/api/v1/policy/changes", &list)
}

fn rename(kind: &str, id: &str, new: &str) -> Value {
    json!({ "op": "patch", "kind": kind, "id": id, "value": {}, "rename": new })
}

#[test]
fn what_names_a_tier_follows_its_new_name_in_the_same_version() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let limit = json!({ "id": "minute", "algorithm": "token_bucket", "limit": 9, "period": "1m" });
    let made = publish(
        &ana,
        &json!([
            { "op": "create", "kind": "client", "id": "user:bob", "value": { "kind": "user", "value": "bob", "tier": "free" } },
            { "op": "create", "kind": "client", "id": "user:eve", "value": { "kind": "user", "value": "eve", "tier": "pro" } },
            { "op": "create", "kind": "rule", "id": "search", "value":
                { "id": "search", "endpoint": "/search", "per": "user", "tiers": ["free", "pro"], "limits": [limit] } },
        ]),
    );
    assert_eq!(made.status, 201, "{made:?}");
    for _ in 0..60 {
        assert!(server.check("ada").is_allowed());
    }
    // It may be changed otherwise in the same step, and what is put under the old name in the same list follows too.
    let mut value = ana.tier("free").1;
    value["limits"][0]["limit"] = json!(200);
    let renamed = publish(
        &ana,
        &json!([
            { "op": "put", "kind": "tier", "id": "free", "value": value, "rename": "basic" },
            { "op": "patch", "kind": "client", "id": "user:eve", "value": { "tier": "free" } },
        ]),
    );
    assert_eq!(renamed.status, 201, "{renamed:?}");
    let told = renamed.json();
    let changes: Vec<_> =
        told["changes"].as_array().expect("a list").iter().map(|it| (it["id"].clone(), it["etag"].clone())).collect();
    let is_there = |id: &str, tag: &Value| changes.contains(&(json!(id), tag.clone()));
    assert!(is_there("basic", &json!("\"tier:basic:3\"")) && is_there("free", &Value::Null), "{told}");
    for (id, tag) in [
        ("default", "domain:default"),
        ("search", "rule:search"),
        ("user:bob", "client:user:bob"),
        ("user:eve", "client:user:eve"),
    ] {
        assert!(is_there(id, &json!(format!("\"{tag}:3\""))), "{id}: {told}");
    }
    let document = ana.get("/api/v1/policy").json()["document"]["domains"]["default"].clone();
    assert_eq!(document["defaults"], json!({ "ip": "basic", "user": "basic", "api_key": "basic" }));
    let tiers: Vec<_> = document["tiers"].as_array().expect("a list").iter().map(|tier| tier["id"].clone()).collect();
    assert_eq!(tiers, ["basic", "pro", "internal", "layered"], "it stays where it was");
    assert_eq!(document["rules"][1]["tiers"], json!(["basic", "pro"]));
    assert_eq!([&document["clients"][0]["tier"], &document["clients"][1]["tier"]], ["basic", "basic"]);
    // Counters belong to full names, so they begin anew.
    let check = server.check("ada");
    assert_eq!((check.limit_id(), check.remaining()), (Some("default/tier:basic/minute"), Some(199)));
    assert_eq!(ana.get("/api/v1/tiers/free").status, 404);
    // And all of it goes back in one step.
    let etag = ana.get("/api/v1/policy").header("etag").to_owned();
    let back = json!({ "to": 3, "mode": "own" });
    let back = ana.send("POST", "/api/v1/policy/rollback", &[("if-match", &etag)], Some(back.to_string().into_bytes()));
    assert_eq!(back.status, 201, "{back:?}");
    let document = ana.get("/api/v1/policy").json()["document"]["domains"]["default"].clone();
    assert_eq!(
        (&document["defaults"]["user"], &document["rules"][1]["tiers"]),
        (&json!("free"), &json!(["free", "pro"]))
    );
    assert_eq!([&document["clients"][0]["tier"], &document["clients"][1]["tier"]], ["free", "pro"]);
}

#[test]
fn a_rule_is_renamed_and_stays_where_it_is() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    assert_eq!(publish(&ana, &json!([rename("rule", "sign-in", "login")])).status, 201);
    let rules = ana.get("/api/v1/rules").json()["items"].clone();
    assert_eq!((&rules[0]["value"]["id"], &rules[0]["etag"]), (&json!("login"), &json!("\"rule:login:2\"")), "{rules}");
    assert_eq!(ana.get("/api/v1/rules/sign-in").status, 404);
}

#[test]
fn a_name_that_cannot_be_is_refused_at_its_field() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let pro = json!({ "op": "patch", "kind": "tier", "id": "pro", "value": { "unlimited": true, "limits": null } });
    let new = json!({ "op": "create", "kind": "tier", "id": "basic", "value": { "id": "basic", "unlimited": true } });
    let gone = json!({ "op": "delete", "kind": "tier", "id": "layered", "rename": "basic" });
    let domain = json!({ "op": "patch", "kind": "domain", "id": "default", "value": {}, "rename": "web" });
    for (what, changes, pointer, says) in [
        ("taken", json!([rename("tier", "free", "pro")]), "/changes/0/rename", "there is a tier `pro` already"),
        ("no name", json!([rename("tier", "free", "Basic")]), "/changes/0/rename", "is not an id"),
        ("its own", json!([rename("tier", "free", "free")]), "/changes/0/rename", "its name already"),
        (
            "changed too",
            json!([pro, rename("tier", "free", "pro")]),
            "/changes/1/rename",
            "tier:pro is changed in this list",
        ),
        ("new too", json!([rename("tier", "free", "basic"), new]), "/changes/1", "tier:basic is changed twice"),
        ("gone", json!([gone]), "/changes/0/rename", "only a tier or a rule that is replaced"),
        ("a domain", json!([domain]), "/changes/0/rename", "only a tier or a rule that is replaced"),
    ] {
        let refused = publish(&ana, &changes);
        assert_eq!((refused.status, refused.pointers()), (422, vec![pointer.to_owned()]), "{what}: {refused:?}");
        let message = refused.json()["errors"][0]["message"].as_str().expect("text").to_owned();
        assert!(message.contains(says), "{what}: {message}");
    }
    // By itself nothing is renamed by mistake, and nobody's newer change is written over.
    let (_, free) = ana.tier("free");
    let mut other = free.clone();
    other["id"] = json!("basic");
    let refused = ana.send("PUT", "/api/v1/tiers/free", &[("if-match", "*")], Some(other.to_string().into_bytes()));
    assert_eq!((refused.status, refused.pointers()), (422, vec!["/id".to_owned()]), "{refused:?}");
    let stale = json!({ "base_version": 1, "message": "rename", "changes": [rename("tier", "free", "basic")],
        "if_match": { "tier:free": "\"tier:free:9\"" } });
    assert_eq!(ana.post("/api/v1/policy/changes", &stale).status, 412);
    assert_eq!(server.engine.version(), 1, "nothing was published");
}
