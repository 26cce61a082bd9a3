//! Who may make which call: every route of the document, asked by everybody there is.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::support::{Client, fresh};

/// Every call, by what it takes. A call that is new has to be written here, and by that somebody has thought of who may
/// make it.
const TABLE: &[(&str, &[&str])] = &[
    (
        "nothing",
        &[
            "GET /openapi.json",
            "POST /session",
            "GET /session/oidc",
            "GET /session/oidc/callback",
            "GET /session/provider",
            "GET /setup",
            "POST /setup",
        ],
    ),
    ("known", &["GET /me"]),
    (
        "person",
        &[
            "GET /session",
            "DELETE /session",
            "PUT /me/password",
            "GET /me/second-factor",
            "POST /me/second-factor",
            "PUT /me/second-factor",
            "POST /me/second-factor/remove",
            "GET /me/sessions",
            "DELETE /me/sessions",
            "DELETE /me/sessions/{session}",
        ],
    ),
    (
        "viewer",
        &[
            "GET /alerts",
            "GET /audit",
            "GET /clients",
            "GET /clients/export",
            "POST /clients/standings",
            "GET /clients/{id}",
            "GET /clients/{id}/override",
            "GET /domains",
            "GET /domains/{id}",
            "GET /drafts",
            "GET /drafts/{id}",
            "POST /explain",
            "POST /keys/peek",
            "GET /meta",
            "GET /metrics",
            "GET /metrics/endpoints",
            "GET /metrics/top",
            "GET /nodes",
            "GET /nodes/{name}",
            "GET /nodes/{name}/history",
            "GET /policy",
            "GET /policy/diff",
            "GET /policy/export",
            "GET /policy/file",
            "GET /policy/lint",
            "POST /policy/validate",
            "GET /policy/versions",
            "GET /policy/versions/{version}",
            "GET /roles",
            "GET /rollout",
            "GET /rules",
            "GET /rules/{id}",
            "GET /simulations",
            "POST /simulations",
            "POST /simulations/preview",
            "DELETE /simulations/{id}",
            "GET /simulations/{id}",
            "GET /simulations/{id}/decisions",
            "POST /simulations/{id}/stop",
            "GET /simulations/{id}/timeline",
            "GET /stream",
            "GET /tiers",
            "GET /tiers/{id}",
            "GET /uploads",
            "POST /uploads",
            "DELETE /uploads/{id}",
        ],
    ),
    (
        "operator",
        &[
            "PUT /clients/{id}/override",
            "DELETE /clients/{id}/override",
            "POST /keys/charge",
            "POST /keys/reset",
            "POST /keys/sample",
            "POST /keys/watch",
            "POST /nodes/{name}/resync",
        ],
    ),
    (
        "editor",
        &[
            "POST /clients",
            "POST /clients/bulk",
            "POST /clients/import",
            "DELETE /clients/{id}",
            "PATCH /clients/{id}",
            "PUT /clients/{id}",
            "PATCH /domains/{id}",
            "PUT /domains/{id}",
            "POST /drafts",
            "DELETE /drafts/{id}",
            "POST /policy/changes",
            "POST /policy/import",
            "POST /policy/rollback",
            "POST /rollout",
            "POST /rules",
            "DELETE /rules/{id}",
            "PATCH /rules/{id}",
            "PUT /rules/{id}",
            "POST /tiers",
            "DELETE /tiers/{id}",
            "PATCH /tiers/{id}",
            "PUT /tiers/{id}",
        ],
    ),
    (
        "admin",
        &[
            "GET /audit/export",
            "DELETE /nodes/{name}",
            "GET /tokens",
            "POST /tokens",
            "DELETE /tokens/{id}",
            "POST /tokens/{id}/replace",
            "GET /users",
            "POST /users",
            "DELETE /users/{id}",
            "GET /users/{id}",
            "PATCH /users/{id}",
            "DELETE /users/{id}/second-factor",
            "GET /users/{id}/sessions",
            "DELETE /users/{id}/sessions",
            "DELETE /users/{id}/sessions/{session}",
        ],
    ),
    (
        "node",
        &[
            "GET /snapshots/stream",
            "POST /nodes/acknowledgements",
            "POST /nodes/answers",
            "POST /nodes/goodbyes",
            "POST /nodes/reports",
        ],
    ),
];

/// What each caller may, by the names of the table.
const CALLERS: &[(&str, &[&str])] = &[
    ("nobody", &["nothing"]),
    ("a made-up session", &["nothing"]),
    ("a made-up token", &["nothing"]),
    ("an ended token", &["nothing"]),
    ("a revoked token", &["nothing"]),
    ("a token of a node", &["nothing", "node", "known"]),
    ("a token of a viewer", &["nothing", "viewer", "known"]),
    ("a token of an operator", &["nothing", "viewer", "operator", "known"]),
    ("a token of an editor", &["nothing", "viewer", "operator", "editor", "known"]),
    ("a token of an admin", &["nothing", "viewer", "operator", "editor", "admin", "known"]),
    ("a session of a viewer", &["nothing", "viewer", "known", "person"]),
    ("a session of an operator", &["nothing", "viewer", "operator", "known", "person"]),
    ("a session of an editor", &["nothing", "viewer", "operator", "editor", "known", "person"]),
    ("an ended session", &["nothing"]),
    ("an idle session", &["nothing"]),
    ("a session of an admin", &["nothing", "viewer", "operator", "editor", "admin", "known", "person"]),
];

/// Method and path of every call of the document, with what it says that the call needs.
fn calls(client: &Client) -> BTreeMap<String, String> {
    let document = client.get("/api/v1/openapi.json").json();
    let paths = document["paths"].as_object().expect("paths");
    let of = |(path, methods): (&String, &serde_json::Value)| {
        let methods = methods.as_object().expect("methods").clone();
        let path = path.clone();
        methods.into_iter().map(move |(method, call)| {
            let needs = call["x-needs"].as_str().expect("it says who may").to_owned();
            (format!("{} {path}", method.to_uppercase()), needs)
        })
    };
    paths.iter().flat_map(of).collect()
}

#[test]
fn every_call_is_made_by_those_who_may_and_by_nobody_else() {
    let (folder, server) = fresh();
    let ana = server.administrator();
    let table: BTreeMap<String, String> = TABLE
        .iter()
        .flat_map(|(needs, calls)| calls.iter().map(|call| ((*call).to_owned(), (*needs).to_owned())))
        .collect();
    assert_eq!(calls(&ana), table, "the document, and the table of this test");

    let soon = Timestamp::now() + SignedDuration::from_hours(1);
    let (ended, ended_id) = ana.script(&json!({ "role": "admin", "ends_at": soon.to_string() }));
    let past = Timestamp::now().as_second() - 1;
    folder.home().execute(&format!("UPDATE tokens SET ends_at = {past} WHERE id = '{ended_id}'"));
    let (revoked, id) = ana.script(&json!({ "role": "admin" }));
    assert_eq!(revoked.get("/api/v1/tokens").status, 200);
    assert_eq!(ana.send("DELETE", &format!("/api/v1/tokens/{id}"), &[], None).status, 204);
    let made_up = |bearer: &str| Client { bearer: bearer.to_owned(), ..server.stranger() };
    let script = |of: &str| ana.script(&json!({ "role": of })).0;
    let person = |role: &str| ana.add(role, &server);
    let (ended_session, idle) = (server.sign_in(), server.sign_in());
    let because = |client: &Client, set: &str| {
        folder.home().execute(&format!("UPDATE sessions SET {set} WHERE csrf = '{}'", client.csrf));
    };
    because(&ended_session, &format!("expires_at = {}", Timestamp::now().as_second() - 1));
    because(&idle, &format!("last_seen_at = {}", Timestamp::now().as_second() - 12 * 3_600 - 1));
    let callers: BTreeMap<&str, Client> = [
        ("nobody", server.stranger()),
        ("a made-up session", Client { token: "A".repeat(43), ..server.stranger() }),
        ("a made-up token", made_up(&format!("tg_{}", "A".repeat(43)))),
        ("an ended token", ended),
        ("a revoked token", revoked),
        ("a token of a node", ana.script(&json!({ "scope": "node" })).0),
        ("a token of a viewer", script("viewer")),
        ("a token of an operator", script("operator")),
        ("a token of an editor", script("editor")),
        ("a token of an admin", script("admin")),
        ("a session of a viewer", person("viewer")),
        ("a session of an operator", person("operator")),
        ("a session of an editor", person("editor")),
        ("an ended session", ended_session),
        ("an idle session", idle),
        ("a session of an admin", ana.clone()),
    ]
    .into();
    let mut asked = 0;
    for (caller, may) in CALLERS {
        let client = &callers[caller];
        for (call, needs) in &table {
            let (method, path) = call.split_once(' ').expect("two words");
            let path = path
                .replace("{id}", "user:x")
                .replace("{version}", "1")
                .replace("{session}", "x")
                .replace("{name}", "x");
            // Whoever may is told that there is no such parameter, so nothing is done.
            let answer = client.send(method, &format!("/api/v1{path}?no-such-parameter"), &[], None);
            let expected = match () {
                () if may.contains(&needs.as_str()) => (422, "invalid"),
                () if may.contains(&"known") => (403, "forbidden"),
                () => (401, "unauthorized"),
            };
            let json = answer.json();
            assert_eq!((answer.status, json["code"].as_str().expect("a code")), expected, "{caller}: {call}");
            asked += 1;
        }
    }
    assert_eq!(asked, CALLERS.len() * table.len());
}

#[test]
fn without_the_sessions_own_token_people_only_look() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let forged = Client { csrf: String::new(), ..ana.clone() };
    // What only nodes may, no person may, with or without it.
    for (call, needs) in calls(&ana).into_iter().filter(|(_, needs)| needs != "node") {
        let (method, path) = call.split_once(' ').expect("two words");
        let path =
            path.replace("{id}", "user:x").replace("{version}", "1").replace("{session}", "x").replace("{name}", "x");
        let answer = forged.send(method, &format!("/api/v1{path}?no-such-parameter"), &[], None);
        let expected = if method == "GET" || needs == "nothing" { (422, "invalid") } else { (403, "csrf") };
        assert_eq!((answer.status, answer.json()["code"].as_str().expect("a code")), expected, "{call}");
    }
    // A token needs no other, and a session beside it does not count.
    let (script, _) = ana.script(&json!({ "role": "viewer" }));
    let both = [("cookie", ana.cookie()), ("x-csrf-token", ana.csrf.clone())];
    let both: Vec<(&str, &str)> = both.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(script.send("POST", "/api/v1/tokens", &both, Some(b"{}".to_vec())).status, 403);
    // A body is not even read of somebody who may not.
    let answer = script.send("POST", "/api/v1/policy/changes", &[], Some(b"nonsense".to_vec()));
    assert_eq!((answer.status, &answer.json()["code"]), (403, &json!("forbidden")));
    assert!(answer.json()["detail"].as_str().expect("text").contains("`editor`"), "{answer:?}");
}

#[test]
fn operators_give_overrides_of_a_day_and_write_nothing_else() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let (operator, _) = ana.script(&json!({ "role": "operator" }));
    let put = |client: &Client, id: &str, headers: &[(&str, &str)], of: serde_json::Value| {
        let path = format!("/api/v1/clients/{id}/override");
        client.send("PUT", &path, headers, Some(of.to_string().into_bytes()))
    };
    let new = [("if-none-match", "*")];
    let blocked = json!({ "blocked": true, "reason": "abuse" });
    let made = put(&operator, "user:eve", &new, blocked.clone());
    assert_eq!(made.status, 201, "{made:?}");
    assert!(!server.check("eve").is_allowed());
    let of_eve = ana.get("/api/v1/clients/user:eve/override").json();
    let until: Timestamp = of_eve["value"]["until"].as_str().expect("an end").parse().expect("an instant");
    let left = until.duration_since(Timestamp::now());
    assert!(left > SignedDuration::from_secs(86_300) && left <= SignedDuration::from_hours(24), "{left}");
    assert_eq!(ana.get("/api/v1/policy/versions").json()["items"][0]["author"], "token:script");

    let at = |hours: i64| (Timestamp::now() + SignedDuration::from_hours(hours)).to_string();
    for until in [json!(null), json!(at(25)), json!("2099-01-01T00:00:00Z")] {
        let long = json!({ "blocked": true, "reason": "abuse", "until": until });
        let refused = put(&operator, "user:bob", &new, long);
        assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("forbidden")), "{refused:?}");
    }
    for until in ["tomorrow", "2099-01-01", "2099-01-01T00:00:00+01:00[Europe/Berlin]"] {
        let odd = put(&operator, "user:bob", &new, json!({ "blocked": true, "reason": "abuse", "until": until }));
        assert!([403, 422].contains(&odd.status), "{odd:?}");
    }
    let short = json!({ "limits": [{ "id": "m", "algorithm": "token_bucket", "limit": 1, "period": "1m" }],
        "reason": "abuse", "until": at(1) });
    assert_eq!(put(&operator, "user:bob", &new, short).status, 201);
    // What an editor gave for longer stays.
    assert_eq!(put(&ana, "user:max", &new, blocked.clone()).status, 201);
    let tag = ana.get("/api/v1/clients/user:max/override").header("etag").to_owned();
    let with = [("if-match", tag.as_str())];
    let path = "/api/v1/clients/user:max/override";
    assert_eq!(put(&operator, "user:max", &with, blocked).status, 403);
    assert_eq!(operator.send("DELETE", path, &with, None).status, 403);
    let tag = ana.get("/api/v1/clients/user:eve/override").header("etag").to_owned();
    let removed = operator.send("DELETE", "/api/v1/clients/user:eve/override", &[("if-match", &tag)], None);
    assert_eq!(removed.status, 201, "{removed:?}");
    assert!(server.check("eve").is_allowed());
}

#[test]
fn a_token_that_is_limited_to_kinds_changes_no_others() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let (script, _) = ana.script(&json!({ "role": "editor", "kinds": ["client", "rule"] }));
    let client = json!({ "kind": "user", "value": "bob", "tier": "free" });
    assert_eq!(script.post("/api/v1/clients", &client).status, 201);
    let tier = json!({ "id": "huge", "unlimited": true });
    let refused = script.post("/api/v1/tiers", &tier);
    assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("forbidden")));
    assert!(refused.json()["detail"].as_str().expect("text").contains("tier:huge"), "{refused:?}");
    // Also where it is one of many, or comes by another way.
    let version = ana.get("/api/v1/policy").json()["version"].clone();
    let list = json!({ "base_version": version, "message": "both", "changes": [
        { "op": "create", "kind": "tier", "id": "huge", "value": tier },
        { "op": "create", "kind": "client", "id": "user:eve", "value": { "kind": "user", "value": "eve", "tier": "huge" } },
    ] });
    assert_eq!(script.post("/api/v1/policy/changes", &list).status, 403);
    assert_eq!(ana.post("/api/v1/tiers", &tier).status, 201);
    let tag = ana.get("/api/v1/policy").header("etag").to_owned();
    let back = json!({ "to": 2 }).to_string().into_bytes();
    assert_eq!(script.send("POST", "/api/v1/policy/rollback", &[("if-match", &tag)], Some(back)).status, 403);
    assert_eq!(ana.get("/api/v1/tiers/huge").status, 200, "nothing was changed");
}
