//! A limit changed under traffic, and two people who change at once.

use std::thread;

use serde_json::{Value, json};

use crate::support::{Server, data_of, fresh, tier_change};

/// The tier with another limit in its first row.
fn with_limit(mut tier: Value, limit: u64) -> Value {
    tier["limits"][0]["limit"] = json!(limit);
    tier
}

#[test]
fn the_next_check_is_decided_by_the_new_numbers_and_used_quota_is_kept() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    for _ in 0..100 {
        assert!(server.check("ada").is_allowed());
    }
    assert!(!server.check("ada").is_allowed());
    let (etag, free) = ana.tier("free");
    let answer = ana.publish_tier(1, &etag, &with_limit(free, 1_000));
    assert_eq!(answer.status, 201, "{answer:?}");
    let next = server.check("ada");
    assert!(next.is_allowed());
    assert_eq!((next.policy_version(), next.limit()), (2, Some(1_000)));
    // 900 were left at once, this check took one, and the bucket refills as time goes by.
    assert!((899..=920).contains(&next.remaining().expect("a limit")), "{:?}", next.remaining());
    // Another algorithm, from the same call.
    let (etag, mut free) = ana.tier("free");
    free["limits"][0]["algorithm"] = json!("fixed_window");
    assert_eq!(ana.publish_tier(2, &etag, &free).status, 201);
    assert_eq!(server.check("ada").policy_version(), 3);
    let versions = ana.get("/api/v1/policy/versions?limit=2").json();
    let told: Vec<_> =
        versions["items"].as_array().expect("a list").iter().map(|v| (&v["version"], &v["author"])).collect();
    assert_eq!(told, [(&json!(3), &json!("ana")), (&json!(2), &json!("ana"))]);
    let rest = ana
        .get(&format!("/api/v1/policy/versions?limit=2&cursor={}", versions["next"].as_str().expect("a cursor")))
        .json();
    assert_eq!((&rest["items"][0]["author"], &rest["next"]), (&json!("tidegate"), &Value::Null));
}

#[test]
fn what_becomes_of_used_quota_is_said_limit_by_limit() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    for _ in 0..100 {
        assert!(server.check("ada").is_allowed());
    }
    let (etag, free) = ana.tier("free");
    let limit_id = server.check("ada").limit_id().expect("a limit").to_owned();
    let mut list = tier_change(1, &etag, &with_limit(free, 1_000));
    list["carry"] = json!({ (limit_id.as_str()): "proportional" });
    assert_eq!(ana.post("/api/v1/policy/changes", &list).status, 201);
    // All was used; a token comes back every 60 ms.
    assert!(server.check("ada").remaining().expect("a limit") < 300);
    let (etag, free) = ana.tier("free");
    let mut list = tier_change(2, &etag, &with_limit(free, 2_000));
    list["carry"] = json!({ (limit_id.as_str()): "reset" });
    assert_eq!(ana.post("/api/v1/policy/changes", &list).status, 201);
    assert_eq!(server.check("ada").remaining(), Some(1_999));
}

#[test]
fn what_was_published_is_there_after_a_restart() {
    let (folder, mut server) = fresh();
    let ana = server.administrator();
    let (etag, free) = ana.tier("free");
    assert_eq!(ana.publish_tier(1, &etag, &with_limit(free, 7)).status, 201);
    let before = ana.get("/api/v1/policy").json();
    server.stop();
    let server = Server::start(&data_of(&folder));
    assert_eq!(server.check("ada").limit(), Some(7));
    let ana = server.sign_in();
    assert_eq!(ana.get("/api/v1/policy").json(), before);
    assert_eq!(ana.tier("free").0, "\"tier:free:2\"");
    assert_eq!(ana.tier("pro").0, "\"tier:pro:1\"");
}

#[test]
fn the_second_of_two_who_change_one_tier_is_told_and_loses_nothing() {
    let (_folder, server) = fresh();
    let (ana, ben) = (server.administrator(), server.sign_in());
    let ((anas, value), (bens, _)) = (ana.tier("free"), ben.tier("free"));
    assert_eq!(ana.publish_tier(1, &anas, &with_limit(value.clone(), 200)).status, 201);
    let refused = ben.publish_tier(1, &bens, &with_limit(value.clone(), 300));
    assert_eq!((refused.status, &refused.json()["code"]), (412, &json!("conflict")));
    let conflict = &refused.json()["conflicts"][0];
    assert_eq!(conflict["present"], json!({ "etag": "\"tier:free:2\"", "value": with_limit(value.clone(), 200) }));
    assert_eq!((&conflict["changed_by"], &conflict["version"]), (&json!("ana"), &json!(2)));
    assert!(conflict["changed_at"].is_string());
    assert_eq!(server.engine.version(), 2, "nothing was published");
    // Knowing what is there now, ben publishes on top.
    let etag = conflict["present"]["etag"].as_str().expect("a tag");
    assert_eq!(ben.publish_tier(2, etag, &with_limit(value, 300)).status, 201);
    assert_eq!(ana.tier("free").1["limits"][0]["limit"], 300);
}

#[test]
fn two_who_change_different_tiers_both_succeed() {
    let (_folder, server) = fresh();
    let (ana, ben) = (server.administrator(), server.sign_in());
    let ((free_tag, free), (pro_tag, pro)) = (ana.tier("free"), ben.tier("pro"));
    assert_eq!(ana.publish_tier(1, &free_tag, &with_limit(free, 200)).json()["on_top_of"], Value::Null);
    let second = ben.publish_tier(1, &pro_tag, &with_limit(pro, 20_000));
    assert_eq!((second.status, &second.json()["on_top_of"]), (201, &json!(2)));
    assert_eq!(ana.tier("free").1["limits"][0]["limit"], 200);
    assert_eq!(ana.tier("pro").1["limits"][0]["limit"], 20_000);
}

#[test]
fn of_many_at_once_on_one_tier_each_success_is_a_version() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let (etag, free) = ana.tier("free");
    let clients: Vec<_> = (0..6).map(|_| server.sign_in()).collect();
    let statuses: Vec<u16> = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, client) in (1_000..).zip(&clients) {
            let (etag, tier) = (&etag, with_limit(free.clone(), number));
            threads.push(scope.spawn(move || client.publish_tier(1, etag, &tier).status));
        }
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| [201, 412].contains(status)), "{statuses:?}");
    assert_eq!(server.engine.version(), 2);
}

#[test]
fn a_key_makes_a_repeat_the_same_request() {
    let (folder, mut server) = fresh();
    let ana = server.administrator();
    let (etag, free) = ana.tier("free");
    let body = tier_change(1, &etag, &with_limit(free.clone(), 7)).to_string().into_bytes();
    let send = |client: &crate::support::Client, key: &str, body: &[u8]| {
        client.send("POST", "/api/v1/policy/changes", &[("idempotency-key", key)], Some(body.to_vec()))
    };
    let first = send(&ana, "k-1", &body);
    assert_eq!(first.status, 201, "{first:?}");
    assert_eq!(send(&ana, "k-1", &body).text, first.text);
    assert_eq!(server.engine.version(), 2, "published once");
    let other = tier_change(2, "\"tier:free:2\"", &with_limit(free, 8)).to_string().into_bytes();
    assert_eq!(send(&ana, "k-1", &other).status, 422, "a key names one request");
    assert_eq!(send(&ana, "", &other).status, 422);
    // The answer outlives the process.
    server.stop();
    let server = Server::start(&data_of(&folder));
    assert_eq!(send(&server.sign_in(), "k-1", &body).text, first.text);
    assert_eq!(server.engine.version(), 2);
}

/// A repeat is known for seven days. The next publish forgets older keys.
#[test]
fn a_key_is_known_for_a_week() {
    let (folder, server) = fresh();
    let ana = server.administrator();
    let publish = |key: &str, base: u64, etag: &str, limit: u64| {
        let body = tier_change(base, etag, &with_limit(ana.tier("free").1, limit)).to_string().into_bytes();
        ana.send("POST", "/api/v1/policy/changes", &[("idempotency-key", key)], Some(body))
    };
    let etag = ana.tier("free").0;
    let first = publish("k-1", 1, &etag, 7);
    assert_eq!(first.status, 201, "{first:?}");
    assert_eq!(publish("k-2", 2, "\"tier:free:2\"", 8).status, 201);
    folder.home().execute("UPDATE publish_keys SET at = at - 604700");
    assert_eq!(publish("k-3", 3, "\"tier:free:3\"", 9).status, 201);
    assert_eq!(publish("k-1", 1, &etag, 7).text, first.text);
    folder.home().execute("UPDATE publish_keys SET at = at - 200 WHERE key <> 'k-3'");
    assert_eq!(publish("k-4", 4, "\"tier:free:4\"", 10).status, 201);
    assert_eq!(publish("k-1", 1, &etag, 7).status, 412, "it is another request by now");
    assert_eq!(publish("k-3", 3, "\"tier:free:3\"", 9).json()["version"], 4);
}

#[test]
fn a_list_that_is_wrong_changes_nothing_and_says_where() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let (etag, free) = ana.tier("free");
    let good = tier_change(1, &etag, &with_limit(free.clone(), 200));
    let with = |edit: &dyn Fn(&mut Value)| {
        let mut list = good.clone();
        edit(&mut list);
        list
    };
    let limit = |field: &'static str, value: Value| {
        with(&move |list| list["changes"][0]["value"]["limits"][0][field] = value.clone())
    };
    let limit_as_list = with(&|list| list["changes"][0]["value"]["limits"][0] = json!(["minute", "fixed_window"]));
    let cases = [
        ("no message", with(&|list| list["message"] = json!("  ")), 422, "/message"),
        ("two lines", with(&|list| list["message"] = json!("a\nb")), 422, "/message"),
        ("a long message", with(&|list| list["message"] = json!("m".repeat(201))), 422, "/message"),
        ("a version of the future", with(&|list| list["base_version"] = json!(9)), 422, "/base_version"),
        ("no changes", with(&|list| list["changes"] = json!([])), 422, "/changes"),
        ("nothing new", with(&|list| list["changes"][0]["value"] = free.clone()), 422, "/changes"),
        ("another id", with(&|list| list["changes"][0]["value"]["id"] = json!("freer")), 422, "/changes/0/value/id"),
        ("a period of nothing", limit("period", json!("0s")), 422, "/changes/0/value/limits/0/period"),
        ("a limit below 0", limit("limit", json!(-1)), 422, "/changes/0/value/limits/0/limit"),
        ("a burst too large", limit("burst", json!(1_u64 << 60)), 422, "/changes/0/value/limits/0/burst"),
        ("an unknown algorithm", limit("algorithm", json!("guess")), 422, "/changes/0/value/limits/0/algorithm"),
        (
            "a long description",
            with(&|list| list["changes"][0]["value"]["description"] = json!("d".repeat(201))),
            422,
            "/changes/0/value/description",
        ),
        (
            "a description with a bell",
            with(&|list| list["changes"][0]["value"]["description"] = json!("\u{7}")),
            422,
            "/changes/0/value/description",
        ),
        ("an unknown field", limit("colour", json!("red")), 422, "/changes/0/value/limits/0/colour"),
        ("a list of values", limit_as_list, 422, "/changes/0/value/limits/0"),
        (
            "neither limits nor unlimited",
            with(&|list| list["changes"][0]["value"] = json!({ "id": "free" })),
            422,
            "/changes/0/value",
        ),
        (
            "twice the same",
            with(&|list| list["changes"] = json!([list["changes"][0], list["changes"][0]])),
            422,
            "/changes/1",
        ),
        ("an unknown operation", with(&|list| list["changes"][0]["op"] = json!("erase")), 400, "/changes/0/op"),
        ("an unknown kind", with(&|list| list["changes"][0]["kind"] = json!("node")), 400, "/changes/0/kind"),
        ("an unknown key", with(&|list| list["colour"] = json!({})), 400, "/colour"),
        (
            "an unknown way",
            with(&|list| list["carry"] = json!({ "default/tier:free/minute": "burn" })),
            400,
            "/carry/default~1tier:free~1minute",
        ),
        (
            "an unknown limit",
            with(&|list| list["carry"] = json!({ "default/tier:free/none": "reset" })),
            422,
            "/carry/default~1tier:free~1none",
        ),
    ];
    for (what, list, status, pointer) in cases {
        let answer = ana.post("/api/v1/policy/changes", &list);
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        assert_eq!(answer.pointers(), [pointer], "{what}: {answer:?}");
    }
    let answer = ana.post("/api/v1/policy/changes", &limit("limit", json!("5")));
    let message = "`5` stands here; write a whole number from 0 to 9007199254740991, without quotes";
    assert_eq!(answer.json()["errors"][0]["message"], message);
    let unmatched = ana.post("/api/v1/policy/changes", &with(&|list| list["if_match"] = json!({})));
    assert_eq!((unmatched.status, &unmatched.json()["code"]), (428, &json!("precondition_required")));
    let gone = with(&|list| {
        list["changes"][0]["id"] = json!("gone");
        list["if_match"] = json!({ "tier:gone": "\"tier:gone:1\"" });
    });
    let gone = ana.post("/api/v1/policy/changes", &gone);
    assert_eq!((gone.status, &gone.json()["conflicts"][0]["present"]), (412, &Value::Null));
    assert_eq!(server.engine.version(), 1, "nothing was published");
    assert_eq!(ana.post("/api/v1/policy/changes", &good).status, 201);
}

/// They are kept, told where they changed, and nothing that was used is touched.
#[test]
fn a_tier_has_a_description_and_a_rule_a_note() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    for _ in 0..60 {
        assert!(server.check("ada").is_allowed());
    }
    let patch = |path: &str, body: &Value| {
        ana.send("PATCH", path, &[("if-match", "*")], Some(body.to_string().into_bytes())).status
    };
    assert_eq!(patch("/api/v1/tiers/free", &json!({ "description": "Whoever signed up.\nNo card." })), 201);
    assert_eq!(patch("/api/v1/rules/sign-in", &json!({ "note": "asked for by security" })), 201);
    assert_eq!(ana.tier("free").1["description"], "Whoever signed up.\nNo card.");
    assert_eq!(ana.get("/api/v1/rules/sign-in").json()["value"]["note"], "asked for by security");
    let check = server.check("ada");
    assert!(check.policy_version() == 3 && check.remaining() < Some(45), "{check:?}");
    let differs = ana.get("/api/v1/policy/diff?from=1&to=3").json()["differences"].clone();
    let told: Vec<_> =
        differs.as_array().expect("a list").iter().map(|it| (&it["id"], &it["field"], &it["from"])).collect();
    let (description, note) = (json!("description"), json!("note"));
    let (free, sign_in) = (json!("free"), json!("sign-in"));
    assert_eq!(told, [(&free, &description, &Value::Null), (&sign_in, &note, &Value::Null)]);
    assert_eq!(patch("/api/v1/tiers/free", &json!({ "description": null })), 201);
    assert_eq!(ana.tier("free").1.get("description"), None);
}
