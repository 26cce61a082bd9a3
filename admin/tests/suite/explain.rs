//! Why a request is decided as it is, and what of a policy is hardly meant.

use serde_json::{Value, json};
use tidegate::{Identity, Request};

use crate::support::fresh;

#[test]
fn a_request_is_explained_and_charges_nothing() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let rule = |id: &str, endpoint: &str, limit: u64| {
        json!({ "id": id, "endpoint": endpoint, "per": "user", "limits": [
            { "id": "l", "algorithm": "fixed_window", "limit": limit, "period": "1d" },
        ] })
    };
    for rule in [rule("search", "/api/search", 2), rule("api", "/api/*", 50)] {
        assert_eq!(ana.post("/api/v1/rules", &rule).status, 201);
    }
    let bob = json!({ "kind": "user", "value": "bo*", "tier": "pro", "label": "Bob & Co" });
    assert_eq!(ana.post("/api/v1/clients", &bob).status, 201);
    let asked = json!({
        "identities": [{ "kind": "user", "value": "bob" }, { "kind": "ip", "value": "192.0.2.7" }],
        "endpoint": "/api/search?q=1", "method": "GET",
    });
    let explain = || {
        let answer = ana.post("/api/v1/explain", &asked);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    };
    let first = explain();
    assert_eq!(
        first["decision"],
        json!({ "allowed": true, "limit_id": "default/rule:search/l", "allowed_after_ms": 0, "headers": [
            { "name": "x-ratelimit-limit", "value": "2" },
            { "name": "x-ratelimit-remaining", "value": "1" },
            { "name": "x-ratelimit-reset", "value": first["decision"]["headers"][2]["value"] },
        ] })
    );
    assert_eq!(explain()["limits"][1]["used"], 0, "it charged nothing");
    let in_words = |id: &str| {
        let limits = first["limits"].as_array().expect("a list");
        limits.iter().find(|limit| limit["limit_id"] == id).expect("a limit")["says"].clone()
    };
    assert_eq!(
        in_words("default/tier:pro/minute"),
        "Token bucket: full with 10,000 tokens; one comes back every 6 ms."
    );
    assert_eq!(in_words("default/rule:search/l"), "Fixed window: none of 2 is used in this window.");
    let known = &first["identities"][0];
    assert_eq!(
        (&known["tier"], &known["tier_from"], &known["client"], &known["label"]),
        (&json!("pro"), &json!("client"), &json!("user:bo*"), &json!("Bob & Co"))
    );
    assert_eq!(first["identities"][1]["tier_from"], "default");
    let says = |explained: &Value, id: &str| {
        let rules = explained["rules"].as_array().expect("a list");
        let rule = rules.iter().find(|rule| rule["id"] == id).expect("a rule");
        (rule["applies"].clone(), rule["reason"].clone(), rule["detail"].clone())
    };
    assert_eq!(says(&first, "search").0, json!(true));
    assert_eq!(says(&first, "api"), (json!(false), json!("closer"), json!("rule search is closer to the request")));
    // Used up, by checks that are real.
    let who = [Identity::new("user", "bob").expect("valid"), Identity::new("ip", "192.0.2.7").expect("valid")];
    let request = Request::new(&who).expect("valid").endpoint("/api/search").expect("short");
    for _ in 0..2 {
        assert!(server.engine.check(&request).is_allowed());
    }
    let denied = explain();
    assert_eq!(
        (&denied["decision"]["allowed"], &denied["decision"]["limit_id"]),
        (&json!(false), &json!("default/rule:search/l"))
    );
    let header = |name: &str| {
        let headers = denied["decision"]["headers"].as_array().expect("a list");
        let header = headers.iter().find(|header| header["name"] == name).expect(name);
        header["value"].as_str().expect("text").parse::<u64>().expect("a number")
    };
    assert_eq!((header("x-ratelimit-limit"), header("x-ratelimit-remaining")), (2, 0));
    let wait = denied["decision"]["allowed_after_ms"].as_u64().expect("a number");
    // In whole seconds, and up to a tenth later.
    assert!((wait.div_ceil(1_000)..=wait / 900 + 2).contains(&header("retry-after")), "{denied}");
    assert!(wait > 0 && wait <= 86_400_000, "{wait}");
    let limits = denied["limits"].as_array().expect("a list");
    let search = limits.iter().find(|limit| limit["limit_id"] == "default/rule:search/l").expect("a limit");
    assert_eq!(
        (&search["used"], &search["remaining"], &search["allowed"], &search["period_ms"]),
        (&json!(2), &json!(0), &json!(false), &json!(86_400_000))
    );
    assert_eq!(search["counted"], json!([{ "kind": "user", "value": "bob" }]));
    let tier = limits.iter().find(|limit| limit["limit_id"] == "default/tier:pro/minute").expect("a limit");
    assert_eq!(tier["allowed"], true, "all are looked at, beyond the first that denies");
    // A token comes back every 6 ms.
    assert!(tier["used"].as_u64().expect("a number") <= 2, "{tier}");
    for (field, value, pointer) in [
        ("identities", json!([]), "/identities"),
        ("identities", json!([{ "kind": "IP", "value": "x" }]), "/identities/0/kind"),
        ("identities", json!([{ "kind": "user", "value": "" }]), "/identities/0/value"),
        ("cost", json!(0), "/cost"),
        ("domain", json!("nowhere"), "/domain"),
    ] {
        let mut wrong = asked.clone();
        wrong[field] = value;
        assert_eq!(ana.post("/api/v1/explain", &wrong).pointers(), [pointer]);
    }
}

#[test]
fn an_address_is_explained_in_every_spelling() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let rule = json!({ "id": "few", "endpoint": "/few", "per": "ip", "limits": [
        { "id": "l", "algorithm": "fixed_window", "limit": 5, "period": "1d" },
    ] });
    assert_eq!(ana.post("/api/v1/rules", &rule).status, 201);
    let explain = |value: &str| {
        ana.post("/api/v1/explain", &json!({ "identities": [{ "kind": "ip", "value": value }], "endpoint": "/few" }))
    };
    for (counted, spelling) in [("192.0.2.7", "::ffff:192.0.2.7"), ("2001:db8::", "2001:DB8:0::7")] {
        let who = [Identity::new("ip", counted).expect("valid")];
        let request = Request::new(&who).expect("valid").endpoint("/few").expect("short");
        assert!(server.engine.check(&request).is_allowed());
        let explained = explain(spelling).json();
        let limits = explained["limits"].as_array().expect("a list");
        let few = limits.iter().find(|limit| limit["limit_id"] == "default/rule:few/l").expect("the rule applies");
        assert_eq!((&few["used"], &few["counted"][0]["value"]), (&json!(1), &json!(counted)), "{spelling}");
    }
    let refused = explain("192.0.2.7:443");
    assert_eq!((refused.status, refused.pointers()), (422, vec!["/identities/0/value".to_owned()]));
}

#[test]
fn an_explanation_says_what_the_decision_says() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let shared = |on_failure: &str| json!([{ "id": "l", "algorithm": "fixed_window", "limit": 1, "period": "1d", "sharing": "strict", "on_failure": on_failure }]);
    for on_failure in ["open", "closed"] {
        let rule = json!({ "id": on_failure, "endpoint": format!("/{on_failure}"), "per": "user", "limits": shared(on_failure) });
        assert_eq!(ana.post("/api/v1/rules", &rule).status, 201);
    }
    let end = jiff::Timestamp::now().saturating_add(jiff::SignedDuration::from_hours(1)).expect("a time").to_string();
    let eve =
        json!({ "kind": "user", "value": "eve", "override": { "blocked": true, "reason": "abuse", "until": end } });
    assert_eq!(ana.post("/api/v1/clients", &eve).status, 201);
    let explain = |user: &str, path: &str| {
        let asked = json!({ "identities": [{ "kind": "user", "value": user }], "endpoint": path });
        ana.post("/api/v1/explain", &asked).json()
    };
    // No store is asked: what the limit says for that case decides.
    let open = explain("ada", "/open");
    assert_eq!((&open["decision"]["allowed"], &open["decision"]["degraded"]), (&json!(true), &json!("no_store")));
    assert_eq!(open["decision"]["allowed_after_ms"], 0);
    let closed = explain("ada", "/closed");
    assert_eq!(
        (&closed["decision"]["allowed"], &closed["decision"]["limit_id"]),
        (&json!(false), &json!("default/rule:closed/l"))
    );
    assert!(closed["decision"]["allowed_after_ms"].as_u64().is_some_and(|wait| wait > 0), "{closed}");
    // Who is blocked until an instant comes again then.
    let blocked = explain("eve", "/");
    let wait = blocked["decision"]["allowed_after_ms"].as_u64().expect("a number");
    assert!(wait > 3_500_000 && wait <= 3_600_000, "{blocked}");
}

#[test]
fn a_list_is_tried_with_what_it_changes_and_what_is_hardly_meant() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let limit = |id: &str, limit: u64, period: &str| json!({ "id": id, "algorithm": "sliding_window_log", "limit": limit, "period": period });
    let tier = json!({ "id": "new", "limits": [limit("minute", 10, "1m"), json!({ "id": "hour", "algorithm": "fixed_window", "limit": 1_000, "period": "1h" })] });
    let list = |tier: &Value| {
        json!({
            "base_version": 1, "message": "try it",
            "changes": [{ "op": "create", "kind": "tier", "id": "new", "value": tier }],
        })
    };
    let tried = ana.post("/api/v1/policy/validate", &list(&tier));
    assert_eq!(tried.status, 200, "{tried:?}");
    let tried = tried.json();
    assert_eq!((&tried["version"], &tried["on_top_of"]), (&json!(2), &json!(1)));
    assert_eq!((&tried["differences"][0]["id"], &tried["differences"][0]["to"]), (&json!("new"), &tier));
    let of_new = |warnings: &Value| {
        let warnings = warnings.as_array().expect("a list").iter().filter(|warning| warning["id"] == "new");
        warnings
            .map(|warning| (warning["code"].clone(), warning["limit"].clone(), warning["is_new"].clone()))
            .collect::<Vec<_>>()
    };
    let expected =
        [(json!("unused_tier"), Value::Null, json!(true)), (json!("never_binds"), json!("hour"), json!(true))];
    assert_eq!(of_new(&tried["warnings"]), expected);
    assert_eq!(server.engine.version(), 1, "nothing is published");
    let wrong = json!({ "id": "new", "limits": [limit("minute", 10, "0s")] });
    let refused = ana.post("/api/v1/policy/validate", &list(&wrong));
    assert_eq!((refused.status, refused.pointers()), (422, vec!["/changes/0/value/limits/0/period".to_owned()]));
    assert_eq!(ana.post("/api/v1/policy/changes", &list(&tier)).status, 201);
    let live = ana.get("/api/v1/policy/lint").json();
    assert_eq!(live["policy_version"], 2);
    let expected = expected.map(|(code, limit, _)| (code, limit, Value::Null));
    assert_eq!(of_new(&live["warnings"]), expected);
    assert_eq!(ana.post("/api/v1/policy/validate", &list(&tier)).status, 412, "as a publish would");
}

#[test]
fn what_loosens_is_said_before_it_is_published_whatever_way_it_comes() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let change = json!({ "op": "delete", "kind": "rule", "id": "sign-in" });
    let list = json!({
        "base_version": 1, "message": "no rule", "changes": [change], "if_match": { "rule:sign-in": "\"rule:sign-in:1\"" },
    });
    let told = |answer: &Value| {
        let loosens = answer["loosens"].as_array().expect("a list").iter();
        let name =
            |one: &Value| format!("{} {} {} {}", one["kind"], one["id"], one["code"], one["objects"]).replace('"', "");
        loosens.map(name).collect::<Vec<_>>()
    };
    assert_eq!(told(&ana.post("/api/v1/policy/validate", &list).json()), ["rule sign-in off 1"]);
    let csv = "kind,value,tier\nuser,one,free\nuser,two,free\n";
    let import = |query: &str, csv: &str| {
        ana.send("POST", &format!("/api/v1/clients/import?{query}"), &[("content-type", "text/csv")], Some(csv.into()))
    };
    assert_eq!(told(&import("dry_run=true", csv).json()), [""; 0], "as everybody");
    assert_eq!(import("", csv).status, 201);
    let unlimited = "kind,value,override,reason\nuser,one,unlimited,a test\nuser,two,unlimited,a test\n";
    assert_eq!(told(&import("dry_run=true", unlimited).json()), ["client user:one unlimited 2"]);
    let patch = json!({ "override": { "unlimited": true, "reason": "a test" } });
    let bulk = json!({ "matching": {}, "patch": patch, "expected": 2, "message": "free for all" });
    let tried = ana.post("/api/v1/clients/bulk?dry_run=true", &bulk);
    assert_eq!((tried.status, told(&tried.json())), (200, vec!["client user:one unlimited 2".to_owned()]), "{tried:?}");
    assert_eq!(server.engine.version(), 2, "nothing is published");
    assert_eq!(ana.post("/api/v1/policy/changes", &list).status, 201);
    let back = ana.post("/api/v1/policy/rollback?dry_run=true", &json!({ "to": 2 }));
    assert_eq!(told(&back.json()), [""; 0], "a rule that is there again lets nothing through");
    assert_eq!(ana.post("/api/v1/clients/bulk", &bulk).status, 201);
    let again = json!({ "matching": {}, "patch": { "override": null }, "expected": 2, "message": "no longer" });
    assert_eq!(ana.post("/api/v1/clients/bulk", &again).status, 201);
    let back = ana.post("/api/v1/policy/rollback?dry_run=true", &json!({ "to": 4 }));
    assert_eq!(told(&back.json()), ["client user:one unlimited 2"]);
}

#[test]
fn what_starts_to_refuse_is_said_before_it_is_published_whatever_way_it_comes() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let limit =
        |mode: &str| json!({ "id": "l", "algorithm": "token_bucket", "limit": 9, "period": "1m", "mode": mode });
    let rule = |mode: &str, is_enabled: bool| json!({ "id": "export", "endpoint": "/x", "per": "user", "enabled": is_enabled, "limits": [limit(mode)] });
    assert_eq!(ana.post("/api/v1/rules", &rule("shadow", true)).status, 201);
    let told = |answer: &Value| {
        let starts = answer["starts_to_refuse"].as_array().expect("a list").iter();
        let name = |one: &Value| {
            let names = format!("{} {} {} {} {}", one["kind"], one["id"], one["limit"], one["code"], one["objects"]);
            format!("{names} v{}", one["since"]["version"]).replace('"', "")
        };
        starts.map(name).collect::<Vec<_>>()
    };
    let try_it = |version: u64, value: Value| {
        let changes = json!([{ "op": "put", "kind": "rule", "id": "export", "value": value }]);
        let if_match = json!({ "rule:export": format!("\"rule:export:{version}\"") });
        let list = json!({ "base_version": version, "message": "try", "changes": changes, "if_match": if_match });
        let answer = ana.post("/api/v1/policy/validate", &list);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    };
    let tried = try_it(2, rule("enforce", true));
    assert_eq!((told(&tried), &tried["loosens"]), (vec!["rule export l shadow 1 v2".to_owned()], &json!([])));
    let one = &tried["starts_to_refuse"][0];
    assert_eq!(one["message"], "starts to refuse: was shadow since v2 at least");
    let published_at = ana.get("/api/v1/policy/versions/2").json()["published_at"].clone();
    assert_eq!(one["since"]["at"], published_at);
    assert_eq!(told(&try_it(2, rule("shadow", false))), [""; 0]);
    // By a file, which says what an object is without its version.
    let document = ana.get("/api/v1/policy").json()["document"].to_string();
    let enforced = document.replace("\"mode\":\"shadow\"", "\"mode\":\"enforce\"");
    assert_ne!(enforced, document);
    let files = json!({ "files": [{ "name": "policy.json", "text": enforced }] });
    let import = ana.post("/api/v1/policy/import?dry_run=true", &files);
    assert_eq!(told(&import.json()), ["rule export l shadow 1 v2"], "{import:?}");
    // A rule that was off, and going back to where it was not.
    let put = |version: u64, value: &Value| {
        let tag = format!("\"rule:export:{version}\"");
        ana.send("PUT", "/api/v1/rules/export", &[("if-match", &tag)], Some(value.to_string().into_bytes()))
    };
    assert_eq!(put(2, &rule("enforce", true)).status, 201);
    assert_eq!(put(3, &rule("enforce", false)).status, 201);
    assert_eq!(told(&try_it(4, rule("enforce", true))), ["rule export null off 1 v4"]);
    let back = ana.post("/api/v1/policy/rollback?dry_run=true", &json!({ "to": 3 }));
    assert_eq!(told(&back.json()), ["rule export null off 1 v4"]);
    // Clients: what holds for them may be of a tier, so since when is not said.
    let csv = "kind,value,tier,override,reason\nuser,one,free,unlimited,a test\nuser,two,free,unlimited,a test\n";
    let import = |query: &str, csv: &str| {
        ana.send("POST", &format!("/api/v1/clients/import?{query}"), &[("content-type", "text/csv")], Some(csv.into()))
    };
    assert_eq!(told(&import("dry_run=true", csv).json()), [""; 0]);
    assert_eq!(import("", csv).status, 201);
    let plain = "kind,value,override\nuser,one,\nuser,two,\n";
    assert_eq!(told(&import("dry_run=true", plain).json()), ["client user:one null unlimited 2 vnull"]);
    let bulk = json!({ "matching": {}, "patch": { "override": null }, "expected": 2, "message": "no longer" });
    let tried = ana.post("/api/v1/clients/bulk?dry_run=true", &bulk);
    assert_eq!(tried.status, 200, "{tried:?}");
    let tried = tried.json();
    assert_eq!(told(&tried), ["client user:one null unlimited 2 vnull"]);
    assert_eq!(tried["starts_to_refuse"][0]["message"], "starts to refuse: was unlimited");
    assert_eq!(server.engine.version(), 5, "nothing is published");
}

/// When a block ends, the limits of the tier are there again.
#[test]
fn who_is_blocked_is_told_when_all_limits_would_let_him_pass() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let hour = json!({ "id": "hour", "algorithm": "token_bucket", "limit": 1, "period": "1h" });
    let tier = json!({ "id": "slow", "limits": [hour] });
    assert_eq!(ana.post("/api/v1/tiers", &tier).status, 201);
    let client = json!({ "kind": "user", "value": "kim", "tier": "slow" });
    assert_eq!(ana.post("/api/v1/clients", &client).status, 201);
    assert!(server.check("kim").is_allowed());
    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(60);
    let block = json!({ "blocked": true, "until": until.to_string(), "reason": "a test" }).to_string().into_bytes();
    let path = "/api/v1/clients/user:kim";
    let etag = ana.get(path).header("etag").to_owned();
    assert_eq!(ana.send("PUT", &format!("{path}/override"), &[("if-match", &etag)], Some(block)).status, 201);
    let explained = ana.post("/api/v1/explain", &json!({ "identities": [{ "kind": "user", "value": "kim" }] })).json();
    let limits: Vec<_> =
        explained["limits"].as_array().expect("a list").iter().map(|limit| &limit["limit_id"]).collect();
    assert_eq!(limits, ["default/client:user:kim/blocked", "default/tier:slow/hour"]);
    assert_eq!(explained["decision"]["limit_id"], limits[0].clone(), "{explained}");
    let wait = explained["decision"]["allowed_after_ms"].as_u64().expect("a number");
    assert!(wait > 3_500_000, "the tier's limit is used up: {explained}");
    // A check meets the block alone.
    assert_eq!(server.check("kim").limit_id(), Some("default/client:user:kim/blocked"));
}
