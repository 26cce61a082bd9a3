//! Published versions: looked at, compared, and taken back.

use std::{thread, time::Duration};

use serde_json::{Value, json};

use crate::support::{Answer, Client, fresh};

/// Publishes `limit` as the first limit of a tier, on top of `base`.
fn set(client: &Client, base: u64, tier: &str, limit: u64) {
    let (etag, mut value) = client.tier(tier);
    value["limits"][0]["limit"] = json!(limit);
    assert_eq!(client.publish_tier(base, &etag, &value).status, 201);
}

fn limit(client: &Client, tier: &str) -> Value {
    client.tier(tier).1["limits"][0]["limit"].clone()
}

fn roll_back(client: &Client, present: Option<u64>, body: &Value) -> Answer {
    let etag = present.map(|version| format!("\"policy:{version}\""));
    let headers: Vec<(&str, &str)> = etag.iter().map(|etag| ("if-match", etag.as_str())).collect();
    client.send("POST", "/api/v1/policy/rollback", &headers, Some(body.to_string().into_bytes()))
}

#[test]
fn versions_of_a_time_are_found() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    set(&ana, 1, "free", 200);
    let of = |query: &str| {
        let found = ana.get(&format!("/api/v1/policy/versions{query}"));
        assert_eq!(found.status, 200, "{found:?}");
        found.json()["items"].as_array().expect("items").len()
    };
    let at = ana.get("/api/v1/policy/versions/2").json()["published_at"].as_str().expect("an instant").to_owned();
    assert!(of(&format!("?from={at}")) >= 1 && of(&format!("?to={at}")) <= 1);
    assert_eq!(of("?from=2020-01-01T00:00:00Z&to=2099-01-01T00:00:00%2B02:00"), 2);
    assert_eq!(
        [of("?from=2099-01-01T00:00:00Z"), of("?to=2020-01-01T00:00:00Z"), of("?to=2099-01-01T00:00:00Z&q=change")],
        [0, 0, 1]
    );
    for wrong in ["from", "to"] {
        let answer = ana.get(&format!("/api/v1/policy/versions?{wrong}=yesterday"));
        assert_eq!((answer.status, answer.wrong("parameter")), (422, vec![wrong.to_owned()]));
    }
}

#[test]
fn versions_are_kept_whole_and_compared_by_field() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let first = ana.get("/api/v1/policy").json();
    let pro = limit(&ana, "pro");
    set(&ana, 1, "free", 200);
    set(&ana, 2, "pro", 7);
    let kept = ana.get("/api/v1/policy/versions/1").json();
    for field in ["version", "sha256", "author", "message", "published_at", "document"] {
        assert_eq!(kept[field], first[field], "{field}");
    }
    let tier = |id: &str, from: &Value, to: u64| {
        let limit = &first["document"]["domains"]["default"]["tiers"];
        let of = limit.as_array().expect("a list").iter().find(|tier| tier["id"] == id).expect("is there");
        json!({ "domain": "default", "kind": "tier", "id": id, "limit": of["limits"][0]["id"], "field": "limit", "from": from, "to": to })
    };
    let newest = ana.get("/api/v1/policy/diff").json();
    assert_eq!(newest, json!({ "from": 2, "to": 3, "differences": [tier("pro", &pro, 7)] }));
    let all = ana.get("/api/v1/policy/diff?from=1&to=3").json();
    assert_eq!(all["differences"], json!([tier("free", &json!(100), 200), tier("pro", &pro, 7)]));
    assert_eq!(ana.get("/api/v1/policy/diff?from=3&to=3").json()["differences"], json!([]));
    for path in [
        "/api/v1/policy/versions/9",
        "/api/v1/policy/versions/x",
        "/api/v1/policy/diff?from=0&to=1",
        "/api/v1/policy/diff?from=1&to=9",
    ] {
        assert_eq!(ana.get(path).status, 404, "{path}");
    }
}

#[test]
fn an_older_version_comes_back_as_a_new_one_and_used_quota_stays_used() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    for _ in 0..60 {
        assert!(server.check("ada").is_allowed());
    }
    set(&ana, 1, "free", 200);
    set(&ana, 2, "pro", 7);
    assert_eq!(roll_back(&ana, None, &json!({ "to": 1 })).status, 428);
    assert_eq!(roll_back(&ana, Some(2), &json!({ "to": 1 })).json()["conflicts"][0]["version"], 3);
    assert_eq!(roll_back(&ana, Some(3), &json!({ "to": 9 })).pointers(), ["/to"]);
    assert_eq!(roll_back(&ana, Some(3), &json!({ "to": 3 })).pointers(), ["/to"], "it is like this");
    let answer = roll_back(&ana, Some(3), &json!({ "to": 1, "message": "too generous" }));
    assert_eq!((answer.status, &answer.json()["version"]), (201, &json!(4)), "{answer:?}");
    assert_eq!(ana.get("/api/v1/policy/diff?from=1&to=4").json()["differences"], json!([]));
    let newest = ana.get("/api/v1/policy/versions/4").json();
    assert_eq!((&newest["message"], &newest["author"]), (&json!("too generous"), &json!("ana")));
    assert_eq!(ana.tier("free").0, "\"tier:free:4\"", "what was typed on version 3 is told");
    let next = server.check("ada");
    assert_eq!((next.policy_version(), next.limit()), (4, Some(100)));
    // Two a second come back.
    assert!(next.remaining().expect("a limit") < 90, "60 and more were used: {:?}", next.remaining());
    // And back again.
    assert_eq!(roll_back(&ana, Some(4), &json!({ "to": 3 })).status, 201);
    assert_eq!((limit(&ana, "free"), limit(&ana, "pro")), (json!(200), json!(7)));
}

#[test]
fn one_versions_own_changes_are_undone_and_later_ones_stay() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    set(&ana, 1, "free", 200);
    set(&ana, 2, "pro", 7);
    let own = |to: u64| json!({ "to": to, "mode": "own" });
    let answer = roll_back(&ana, Some(3), &own(2));
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!((limit(&ana, "free"), limit(&ana, "pro")), (json!(100), json!(7)));
    assert_eq!(ana.get("/api/v1/policy/versions/4").json()["message"], "without the changes of version 2");
    // Changed again since: that is not taken along.
    set(&ana, 4, "pro", 9);
    let refused = roll_back(&ana, Some(5), &own(3));
    assert_eq!((refused.status, &refused.json()["conflicts"][0]["id"]), (412, &json!("pro")), "{refused:?}");
    assert_eq!(roll_back(&ana, Some(5), &own(1)).pointers(), ["/to"]);
    assert_eq!(roll_back(&ana, Some(5), &json!({ "to": 1, "mode": "half" })).status, 400);
    assert_eq!(server.engine.version(), 5);
    // A tier that came with a version and is used now stays.
    let big = json!({ "id": "big", "unlimited": true });
    assert_eq!(ana.post("/api/v1/tiers", &big).status, 201);
    let bob = json!({ "kind": "user", "value": "bob", "tier": "big" });
    assert_eq!(ana.post("/api/v1/clients", &bob).status, 201);
    let refused = roll_back(&ana, Some(7), &own(6));
    assert_eq!((refused.status, &refused.json()["used_by"]["clients"]), (409, &json!(1)), "{refused:?}");
}

/// The list says what each version changed, and finds those that changed an object.
#[test]
fn versions_name_the_objects_that_they_changed() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    set(&ana, 1, "free", 200);
    let clients: Vec<Value> = (0..120)
        .map(|number| {
            let value = format!("u{number:03}");
            json!({ "op": "create", "kind": "client", "id": format!("user:{value}"), "value": { "kind": "user", "value": value, "tier": "pro" } })
        })
        .collect();
    let list = json!({ "base_version": 2, "message": "many", "changes": clients });
    assert_eq!(ana.post("/api/v1/policy/changes", &list).status, 201);
    let made = ana.send("PUT", "/api/v1/domains/web", &[("if-none-match", "*")], Some(b"{}".to_vec()));
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(ana.post("/api/v1/tiers?domain=web", &json!({ "id": "one", "unlimited": true })).status, 201);
    let etag = ana.get("/api/v1/clients/user:u119").header("etag").to_owned();
    assert_eq!(ana.send("DELETE", "/api/v1/clients/user:u119", &[("if-match", &etag)], None).status, 201);
    set(&ana, 6, "free", 300);
    let listed = |query: &str| {
        let found = ana.get(&format!("/api/v1/policy/versions{query}"));
        assert_eq!(found.status, 200, "{found:?}");
        found.json()
    };
    let numbers = |list: &Value| -> Vec<u64> {
        list["items"].as_array().expect("items").iter().map(|item| item["version"].as_u64().expect("one")).collect()
    };
    let all = listed("");
    let item = |version: usize| &all["items"][7 - version];
    let object = |kind: &str, domain: &str, id: &str, removed: bool| json!({ "kind": kind, "domain": domain, "id": id, "removed": removed });
    assert_eq!(item(7)["objects"], json!({ "count": 1, "first": [object("tier", "default", "free", false)] }));
    assert_eq!(item(6)["objects"], json!({ "count": 1, "first": [object("client", "default", "user:u119", true)] }));
    assert_eq!(item(5)["objects"]["first"], json!([object("tier", "web", "one", false)]));
    let many = &item(3)["objects"];
    assert_eq!((&many["count"], many["first"].as_array().map(Vec::len)), (&json!(120), Some(10)));
    assert_eq!(many["first"][0], object("client", "default", "user:u000", false));
    assert!(item(1)["objects"]["count"].as_u64() > Some(1), "the example: {}", item(1));
    assert_eq!(item(7)["decided"], json!({ "before": null, "after": null }));
    let one = ana.get("/api/v1/policy/versions/3").json();
    assert_eq!((&one["objects"], &one["decided"]), (many, &item(3)["decided"]));
    // Beyond the first ten, and beyond the hundred that the audit log has.
    assert_eq!(numbers(&listed("?object=client:user:u119")), [6, 3]);
    assert_eq!(numbers(&listed("?object=web/tier:one")), [5]);
    assert_eq!(numbers(&listed("?object=tier:one")), [0; 0]);
    assert_eq!(numbers(&listed("?object=default/tier:free&q=change")), numbers(&listed("?object=tier:free&q=change")));
    let first = listed("?object=tier:free&limit=2");
    assert_eq!(numbers(&first), [7, 2]);
    let next = first["next"].as_str().expect("another page");
    let rest = listed(&format!("?object=tier:free&limit=2&cursor={next}"));
    assert_eq!((numbers(&rest), &rest["next"]), (vec![1], &Value::Null));
    let wrong = ana.get("/api/v1/policy/versions?object=pro");
    assert_eq!((wrong.status, wrong.wrong("parameter")), (422, vec!["object".to_owned()]));
}

/// Later changes of other fields stay; where the same field was changed again, a dry run names it and a person chooses.
#[test]
fn one_versions_own_changes_are_undone_field_by_field() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let put = |base: u64, limit: u64, burst: u64| {
        let (etag, mut value) = ana.tier("free");
        value["limits"][0]["limit"] = json!(limit);
        value["limits"][0]["burst"] = json!(burst);
        assert_eq!(ana.publish_tier(base, &etag, &value).status, 201);
    };
    put(1, 200, 50);
    put(2, 200, 70);
    put(3, 300, 70);
    let try_it = |body: &Value| {
        let tried = ana.post("/api/v1/policy/rollback?dry_run=true", body);
        assert_eq!(tried.status, 200, "{tried:?}");
        tried.json()
    };
    let limit_id = ana.tier("free").1["limits"][0]["id"].clone();
    let at =
        |field: &str| json!({ "kind": "tier", "domain": "default", "id": "free", "limit": limit_id, "field": field });
    let told = |field: &str, from: u64, to: u64| {
        let mut told = at(field);
        told["from"] = json!(from);
        told["to"] = json!(to);
        told
    };
    // The burst of version 3 was not touched since.
    let tried = try_it(&json!({ "to": 3, "mode": "own" }));
    assert_eq!((&tried["version"], &tried["clashes"]), (&json!(4), &json!([])));
    assert_eq!(tried["differences"], json!([told("burst", 70, 50)]));
    assert_eq!(tried["loosens"], json!([]));
    // Both fields of version 2 were.
    let own = json!({ "to": 2, "mode": "own" });
    let tried = try_it(&own);
    assert_eq!(
        (&tried["differences"], &tried["clashes"]),
        (
            &json!([]),
            &json!([
                { "at": at("burst"), "after": 50, "now": 70 },
                { "at": at("limit"), "before": 100, "after": 200, "now": 300 },
            ])
        )
    );
    let refused = roll_back(&ana, Some(4), &own);
    assert_eq!((refused.status, refused.json()["conflicts"].as_array().map(Vec::len)), (412, Some(1)), "{refused:?}");
    let choosing = |burst: &str, limit: &str| {
        let choices = json!([{ "at": at("burst"), "take": burst }, { "at": at("limit"), "take": limit }]);
        json!({ "to": 2, "mode": "own", "choices": choices })
    };
    let mut half = choosing("now", "before");
    half["choices"].as_array_mut().expect("a list").pop();
    assert_eq!(roll_back(&ana, Some(4), &half).status, 412, "one is open");
    assert_eq!(roll_back(&ana, Some(4), &choosing("now", "now")).pointers(), ["/to"], "nothing would change");
    let tried = try_it(&choosing("now", "before"));
    assert_eq!(
        (&tried["differences"], &tried["clashes"][1]["take"]),
        (&json!([told("limit", 300, 100)]), &json!("before"))
    );
    assert_eq!(server.engine.version(), 4, "nothing was published");
    assert_eq!(roll_back(&ana, Some(4), &choosing("now", "before")).status, 201);
    let limit = &ana.tier("free").1["limits"][0];
    assert_eq!((&limit["limit"], &limit["burst"]), (&json!(100), &json!(70)));
    // What is no clash is not chosen; what a publish would refuse, a dry run refuses.
    let idle = json!({ "to": 3, "mode": "own", "choices": [{ "at": at("period"), "take": "now" }] });
    for path in ["/api/v1/policy/rollback", "/api/v1/policy/rollback?dry_run=true"] {
        let refused = ana.send("POST", path, &[("if-match", "\"policy:5\"")], Some(idle.to_string().into_bytes()));
        assert_eq!((refused.status, refused.pointers()), (422, vec!["/choices/0".to_owned()]), "{refused:?}");
    }
    let big = json!({ "id": "big", "unlimited": true });
    assert_eq!(ana.post("/api/v1/tiers", &big).status, 201);
    let bob = json!({ "kind": "user", "value": "bob", "tier": "big" });
    assert_eq!(ana.post("/api/v1/clients", &bob).status, 201);
    let refused = ana.post("/api/v1/policy/rollback?dry_run=true", &json!({ "to": 6, "mode": "own" }));
    assert_eq!((refused.status, &refused.json()["used_by"]["clients"]), (409, &json!(1)), "{refused:?}");
    assert_eq!(try_it(&json!({ "to": 7 }))["differences"], json!([]));
    assert_eq!(try_it(&json!({ "to": 6 }))["differences"].as_array().map(Vec::len), Some(1));
}

/// What has ended is nobody's change: it is undone by nobody, and nothing to go back for.
#[test]
fn ended_overrides_do_not_stand_in_the_way_of_going_back() {
    let path = "/api/v1/clients/user:bob";
    // Both changes have to come before the end of the override, so a slow machine has more time.
    let in_time = [2, 4, 8, 16, 32].into_iter().find_map(|seconds| {
        let (folder, server) = fresh();
        let ana = server.administrator();
        let until = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        let bob = json!({
            "kind": "user", "value": "bob", "tier": "pro",
            "override": { "blocked": true, "until": until.to_string(), "reason": "a test" },
        });
        let made = ana.post("/api/v1/clients", &bob).status;
        let etag = ana.get(path).header("etag").to_owned();
        let label = json!({ "label": "Bob" }).to_string().into_bytes();
        let changed = ana.send("PATCH", path, &[("if-match", &etag)], Some(label)).status;
        let is_in_time = jiff::Timestamp::now() < until;
        assert!(!is_in_time || (made, changed) == (201, 201), "{made} {changed}");
        is_in_time.then_some((folder, server, ana, until))
    });
    let (_folder, _server, ana, until) = in_time.expect("two changes within half a minute");
    while jiff::Timestamp::now() <= until {
        thread::sleep(Duration::from_millis(50));
    }
    let undone = roll_back(&ana, Some(3), &json!({ "to": 3, "mode": "own" }));
    assert_eq!(undone.status, 201, "{undone:?}");
    assert_eq!(ana.get(path).json()["value"], json!({ "kind": "user", "value": "bob", "tier": "pro" }));
    // As in version 2, but for the override.
    let same = roll_back(&ana, Some(4), &json!({ "to": 2 }));
    assert_eq!((same.status, same.pointers()), (422, vec!["/to".to_owned()]), "{same:?}");
    // A domain keeps one tier, and a policy one domain, however it is changed.
    let alone = json!({
        "base_version": 4, "message": "another",
        "changes": [{ "op": "create", "kind": "domain", "id": "web", "value": {} },
                    { "op": "create", "kind": "tier", "id": "one", "domain": "web", "value": { "id": "one", "unlimited": true } }],
    });
    assert_eq!(ana.post("/api/v1/policy/changes", &alone).status, 201);
    let tier = json!({ "id": "two", "unlimited": true });
    assert_eq!(ana.post("/api/v1/tiers?domain=web", &tier).status, 201);
    let first = ana.get("/api/v1/tiers/one?domain=web").header("etag").to_owned();
    assert_eq!(ana.send("DELETE", "/api/v1/tiers/one?domain=web", &[("if-match", &first)], None).status, 201);
    let last = roll_back(&ana, Some(7), &json!({ "to": 6, "mode": "own" }));
    assert_eq!((last.status, &last.json()["code"]), (409, &json!("last_of_its_kind")), "{last:?}");
}
