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
fn of_what_was_removed_it_is_told_in_which_version_by_whom_and_when() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let rule = json!({ "id": "search", "endpoint": "/search", "per": "user", "limits": tier("", 3)["limits"] });
    let client = json!({ "kind": "user", "value": "b/b", "tier": "pro" });
    let made = [
        change("create", "tier", "big", Some(tier("big", 5_000))),
        change("create", "client", "user:b/b", Some(client)),
        change("create", "rule", "search", Some(rule)),
    ];
    assert_eq!(publish(&ana, 1, &made, &json!({})).status, 201);
    let objects = [("tiers", "big"), ("clients", "user:b%2Fb"), ("rules", "search")];
    for (at, (kind, id)) in objects.iter().enumerate() {
        let path = format!("/api/v1/{kind}/{id}");
        let etag = ana.get(&path).header("etag").to_owned();
        assert_eq!(send(&ana, "DELETE", &path, Some(&etag), None).status, 201, "{path}");
        let gone = ana.get(&path);
        assert_eq!((gone.status, &gone.json()["code"]), (404, &json!("not_found")), "{path}");
        let removed = &gone.json()["removed_in"];
        assert_eq!((&removed["version"], &removed["by"]), (&json!(3 + at), &json!("ana")), "{removed}");
        let version = ana.get(&format!("/api/v1/policy/versions/{}", 3 + at)).json();
        assert_eq!(removed["at"], version["published_at"]);
    }
    for never in ["tiers/none", "clients/user:none", "rules/none", "clients/none", "tiers/big?domain=none"] {
        let absent = ana.get(&format!("/api/v1/{never}"));
        assert_eq!((absent.status, absent.json().get("removed_in")), (404, None), "{never}");
    }
    // What is there again was not removed.
    assert_eq!(publish(&ana, 5, &[change("create", "tier", "big", Some(tier("big", 1)))], &json!({})).status, 201);
    assert_eq!(ana.get("/api/v1/tiers/big").status, 200);
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
    let gone = &refused.json()["conflicts"][0];
    assert_eq!((refused.status, &gone["present"]), (412, &Value::Null));
    assert_eq!((&gone["version"], &gone["changed_by"]), (&json!(3), &json!("ana")), "{gone}");
    assert!(gone["changed_at"].is_string(), "{gone}");
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
    assert_eq!(send(&ana, "PATCH", "/api/v1/tiers/none", Some("\"x\""), Some(&json!({}))).status, 412);
    assert_eq!(send(&ana, "PATCH", "/api/v1/tiers/none", Some("*"), Some(&json!({}))).status, 412, "it is to be there");
    // Fields are named as they stand in this body.
    let mut wrong = tier("big", 20);
    wrong["limits"][0]["period"] = json!("0s");
    assert_eq!(send(&ana, "PUT", path, Some("\"tier:big:3\""), Some(&wrong)).pointers(), ["/limits/0/period"]);
    assert_eq!(send(&ana, "POST", "/api/v1/tiers", None, Some(&json!({ "limits": [] }))).pointers(), [""]);
    // Whatever is asked for in a domain that is not there.
    let big = tier("big", 1);
    for (method, path, tag, body) in [
        ("POST", "tiers?", None, Some(&big)),
        ("PUT", "tiers/big?", Some("\"x\""), Some(&big)),
        ("PATCH", "tiers/big?", Some("\"x\""), Some(&big)),
        ("DELETE", "tiers/big?", Some("\"x\""), None),
        ("GET", "tiers/big?", None, None),
        ("GET", "clients?prefix=a&", None, None),
    ] {
        let elsewhere = send(&ana, method, &format!("/api/v1/{path}domain=nowhere"), tag, body);
        assert_eq!((elsewhere.status, &elsewhere.json()["code"]), (404, &json!("not_found")), "{elsewhere:?}");
        assert!(elsewhere.text.contains("no domain `nowhere`"), "{elsewhere:?}");
    }
    assert_eq!(send(&ana, "DELETE", path, None, None).status, 428);
    assert_eq!(send(&ana, "DELETE", path, Some("*"), None).status, 201, "whatever it is like");
    assert_eq!(ana.get(path).status, 404);
    let refused = send(&ana, "PUT", "/api/v1/clients", None, Some(&tier("big", 1)));
    assert_eq!((refused.status, refused.header("allow")), (405, "GET, POST, HEAD"));
    assert_eq!(server.engine.version(), 7);
}

/// The type of RFC 7396, or JSON.
#[test]
fn a_patch_may_say_what_it_is() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    for (version, (media, status)) in (1..).zip([
        ("application/merge-patch+json", 201),
        ("application/json", 201),
        ("application/json-patch+json", 415),
    ]) {
        let limits = json!({ "limits": tier("free", version)["limits"] }).to_string().into_bytes();
        let etag = ana.tier("free").0;
        let patched =
            ana.send("PATCH", "/api/v1/tiers/free", &[("content-type", media), ("if-match", &etag)], Some(limits));
        assert_eq!(patched.status, status, "{version}: {patched:?}");
    }
    assert_eq!(server.engine.version(), 3);
}

#[test]
fn ids_of_clients_are_percent_encoded_in_paths() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    for (value, path) in [("10.0.0.0/8", "ip:10.0.0.0%2F8"), ("2001:db8::1", "ip%3A2001%3Adb8%3A%3A1")] {
        let client = json!({ "kind": "ip", "value": value, "override": { "unlimited": true, "until": "2030-01-01T00:00:00Z", "reason": "office" } });
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
    let tagged = tier("big", 10).to_string().into_bytes();
    let tagged = ana.send("POST", "/api/v1/tiers", &[("idempotency-key", "k"), ("if-match", "\"x\"")], Some(tagged));
    assert_eq!(tagged.status, 422, "{tagged:?}");
    assert_eq!(server.engine.version(), 2);
}

#[test]
fn a_patch_is_known_again_when_its_object_is_gone() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    assert_eq!(send(&ana, "POST", "/api/v1/tiers", None, Some(&tier("big", 10))).status, 201);
    let patch = || {
        let headers = [("idempotency-key", "k"), ("if-match", "\"tier:big:2\"")];
        ana.send("PATCH", "/api/v1/tiers/big", &headers, Some(tier("big", 20).to_string().into_bytes()))
    };
    let first = patch();
    assert_eq!(first.status, 201, "{first:?}");
    assert_eq!(send(&ana, "DELETE", "/api/v1/tiers/big", Some("\"tier:big:3\""), None).status, 201);
    assert_eq!((patch().status, &patch().text), (201, &first.text));
    assert_eq!(server.engine.version(), 4);
}

#[test]
fn a_list_patches_what_it_does_not_know_whole() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let bob = json!({ "kind": "user", "value": "bob", "tier": "free", "label": "Bob" });
    assert_eq!(send(&ana, "POST", "/api/v1/clients", None, Some(&bob)).status, 201);
    let of = |patch: Value| {
        let changes = [change("patch", "client", "user:bob", Some(patch))];
        publish(&ana, 2, &changes, &json!({ "client:user:bob": "\"client:user:bob:2\"" }))
    };
    assert_eq!(of(json!({ "tier": "none" })).pointers(), ["/changes/0/value/tier"]);
    assert_eq!(of(json!({ "teir": "pro" })).pointers(), ["/changes/0/value/teir"]);
    assert_eq!(of(json!({ "tier": "pro", "label": null })).status, 201);
    let left = ana.get("/api/v1/clients/user:bob").json();
    assert_eq!(left["value"], json!({ "kind": "user", "value": "bob", "tier": "pro" }));
}

#[test]
fn what_is_wrong_is_told_at_its_own_change() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let mut wrong = tier("all", 5);
    wrong["limits"][0]["period"] = json!("0s");
    let mut in_web = change("create", "tier", "all", Some(wrong));
    in_web["domain"] = json!("web");
    let refused = publish(&ana, 1, &[change("create", "domain", "web", Some(json!({}))), in_web], &json!({}));
    assert_eq!(refused.pointers(), ["/changes/1/value/limits/0/period"], "{refused:?}");
    assert_eq!(send(&ana, "POST", "/api/v1/tiers?domian=web", None, Some(&tier("a", 1))).status, 422);
}

#[test]
fn a_client_of_any_name_is_changed() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let (long, path_of_long) = ("v".repeat(1_024), format!("user:{}", "v".repeat(1_024)));
    for (value, path) in
        [("j\u{fc}rgen \"1\"", "user:j%C3%BCrgen%20%221%22"), ("a\nb", "user:a%0Ab"), (&long, &path_of_long)]
    {
        let client = json!({ "kind": "user", "value": value, "tier": "pro" });
        assert_eq!(send(&ana, "POST", "/api/v1/clients", None, Some(&client)).status, 201, "{value}");
        let path = format!("/api/v1/clients/{path}");
        let found = ana.get(&path);
        assert_eq!((found.status, &found.json()["value"]), (200, &client), "{found:?}");
        let named = json!({ "label": "one" });
        assert_eq!(send(&ana, "PATCH", &path, Some(found.header("etag")), Some(&named)).status, 201, "{value}");
    }
}

#[test]
fn a_domain_comes_with_its_tiers_and_goes_with_them() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let settings = json!({ "defaults": { "user": "all" }, "timezone": "Europe/Berlin" });
    let in_web = |mut change: Value| {
        change["domain"] = json!("web");
        change
    };
    let made = publish(
        &ana,
        1,
        &[
            change("create", "domain", "web", Some(settings)),
            in_web(change("create", "tier", "all", Some(tier("all", 5)))),
        ],
        &json!({}),
    );
    assert_eq!(made.status, 201, "{made:?}");
    let web = ana.get("/api/v1/domains/web");
    assert_eq!((web.header("etag"), &web.json()["value"]["timezone"]), ("\"domain:web:2\"", &json!("Europe/Berlin")));
    assert_eq!(ana.get("/api/v1/tiers/all?domain=web").header("etag"), "\"web/tier:all:2\"");
    let names = |list: &Value| -> Vec<String> {
        list["items"].as_array().expect("a list").iter().map(|item| item["id"].to_string()).collect()
    };
    assert_eq!(names(&ana.get("/api/v1/domains").json()), ["\"default\"", "\"web\""]);

    // Its settings, by themselves.
    let path = "/api/v1/domains/web";
    let patched = send(&ana, "PATCH", path, Some("\"domain:web:2\""), Some(&json!({ "timezone": null })));
    assert_eq!(patched.status, 201, "{patched:?}");
    assert_eq!(ana.get(path).json()["value"]["timezone"], Value::Null);
    assert_eq!(ana.get(path).json()["value"]["defaults"], json!({ "user": "all" }));
    let diff = ana.get("/api/v1/policy/diff").json();
    let expected =
        json!([{ "domain": "web", "kind": "domain", "id": "web", "field": "timezone", "from": "Europe/Berlin" }]);
    assert_eq!(diff["differences"], expected);
    let wrong = send(&ana, "PATCH", path, Some("\"domain:web:3\""), Some(&json!({ "defaults": { "user": "none" } })));
    assert_eq!((wrong.status, wrong.pointers()), (422, vec!["/defaults/user".to_owned()]), "{wrong:?}");
    let wrong = json!({ "tiers": [tier("all", 7)] });
    assert_eq!(send(&ana, "PATCH", path, Some("\"domain:web:3\""), Some(&wrong)).status, 422);

    // Whole, and back.
    let tag = json!({ "domain:web": "\"domain:web:3\"" });
    let delete = change("delete", "domain", "web", None);
    assert_eq!(publish(&ana, 2, std::slice::from_ref(&delete), &tag).status, 412, "made before it was changed");
    let tags = json!({ "domain:web": "\"domain:web:3\"", "web/tier:all": "\"web/tier:all:2\"" });
    let both = [in_web(change("delete", "tier", "all", None)), delete.clone()];
    assert_eq!(publish(&ana, 3, &both, &tags).pointers(), ["/changes/0"]);
    let gone = publish(&ana, 3, &[delete], &tag);
    assert_eq!((gone.status, gone.json()["changes"].as_array().map(Vec::len)), (201, Some(2)), "{gone:?}");
    assert_eq!(ana.get("/api/v1/tiers?domain=web").status, 404);
    let back = ana.send(
        "POST",
        "/api/v1/policy/rollback",
        &[("if-match", "\"policy:4\"")],
        Some(json!({ "to": 4, "mode": "own" }).to_string().into_bytes()),
    );
    assert_eq!(back.status, 201, "{back:?}");
    assert_eq!(ana.get("/api/v1/policy/diff?from=3&to=5").json()["differences"], json!([]));
    let tag = ana.get("/api/v1/domains/default").header("etag").to_owned();
    let both = json!({ "domain:default": tag, "domain:web": "\"domain:web:5\"" });
    let none = [change("delete", "domain", "default", None), change("delete", "domain", "web", None)];
    let refused = publish(&ana, 5, &none, &both);
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("last_of_its_kind")), "{refused:?}");
    // Or made by its name.
    let made = ana.send(
        "PUT",
        "/api/v1/domains/shop",
        &[("if-none-match", "*")],
        Some(json!({ "tier_hint": true }).to_string().into_bytes()),
    );
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(server.engine.version(), 6);
}

#[test]
fn clients_are_listed_page_by_page_and_found_by_prefix() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let client = |kind: &str, value: &str| json!({ "kind": kind, "value": value, "tier": "free" });
    let mut changes: Vec<Value> = (0..25)
        .rev()
        .map(|number| {
            let value = format!("k-{number:02}");
            change("create", "client", &format!("api_key:{value}"), Some(client("api_key", &value)))
        })
        .collect();
    changes.push(change("create", "client", "user:k-zoe", Some(client("user", "k-zoe"))));
    changes.push(change(
        "create",
        "client",
        "user:bob",
        Some(json!({ "kind": "user", "value": "bob", "tier": "pro" })),
    ));
    assert_eq!(publish(&ana, 1, &changes, &json!({})).status, 201);
    let page = |query: &str| {
        let page = ana.get(&format!("/api/v1/clients{query}"));
        assert_eq!(page.status, 200, "{page:?}");
        let page = page.json();
        let ids =
            page["items"].as_array().expect("a list").iter().map(|item| item["id"].as_str().expect("text").to_owned());
        (
            ids.collect::<Vec<_>>(),
            page["next"].as_str().map(str::to_owned),
            page["matching"].as_u64().expect("a number"),
        )
    };
    let (mut all, mut next, matching) = page("?limit=10");
    assert_eq!(matching, 27);
    while let Some(cursor) = next {
        let (ids, after, _) = page(&format!("?limit=10&cursor={cursor}"));
        assert!(ids.len() <= 10);
        all.extend(ids);
        next = after;
    }
    assert!(all.is_sorted() && all.len() == 27, "{all:?}");
    assert_eq!(
        page("?prefix=k-1&limit=3"),
        (
            ["api_key:k-10", "api_key:k-11", "api_key:k-12"].map(str::to_owned).into(),
            Some("api_key:k-12".to_owned()),
            10
        )
    );
    assert_eq!(page("?prefix=k-&kind=user"), (vec!["user:k-zoe".to_owned()], None, 1));
    assert_eq!(page("?tier=pro").0, ["user:bob"]);
    assert_eq!(page("?prefix=nobody"), (Vec::new(), None, 0));
    let first = &ana.get("/api/v1/clients?limit=1").json()["items"][0];
    assert_eq!((&first["etag"], &first["value"]["tier"]), (&json!("\"client:api_key:k-00:2\""), &json!("free")));
    assert_eq!(ana.get("/api/v1/clients?limit=x").status, 422);
}
