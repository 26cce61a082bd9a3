//! Tokens of scripts and nodes: made, used, replaced, revoked.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tidegate_testkit::PATIENCE;

use crate::support::{Client, fresh};

/// What the list says of this token.
fn listed(client: &Client, id: &str) -> Option<Value> {
    let list = client.get("/api/v1/tokens").json();
    list["items"].as_array().expect("items").iter().find(|token| token["id"] == id).cloned()
}

fn days_left(token: &Value) -> f64 {
    let end: Timestamp = token["ends_at"].as_str().expect("an end").parse().expect("an instant");
    end.duration_since(Timestamp::now()).as_secs_f64() / 86_400.0
}

#[test]
fn a_secret_is_shown_once_and_works_until_it_is_revoked() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let made = ana.post("/api/v1/tokens", &json!({ "name": "ci", "role": "viewer" }));
    assert_eq!(made.status, 201, "{made:?}");
    let token = made.json();
    let (id, secret) = (token["id"].as_str().expect("text"), token["secret"].as_str().expect("text"));
    assert_eq!(made.header("location"), format!("/api/v1/tokens/{id}"));
    assert!(secret.starts_with("tg_") && secret.len() == 3 + 43, "{secret}");
    assert!((89.9..90.1).contains(&days_left(&token)), "{token}");
    let list = ana.get("/api/v1/tokens");
    assert!(!list.text.contains(secret) && !list.text.contains("sha256"), "{list:?}");
    let row = listed(&ana, id).expect("it is there");
    assert_eq!((&row["name"], &row["role"], &row["made_by"]), (&json!("ci"), &json!("viewer"), &json!("ana")));
    assert_eq!((&row["scope"], &row["kinds"], &row["last_used_at"]), (&json!(null), &json!(null), &json!(null)));

    let ci = Client { bearer: secret.to_owned(), ..server.stranger() };
    assert_eq!(ci.get("/api/v1/tiers").status, 200);
    // It is noted beside the request.
    let used =
        tidegate_testkit::wait_for("it is noted", || listed(&ana, id).filter(|row| row["last_used_at"] != json!(null)));
    assert_eq!(used["last_used_address"], "127.0.0.1");
    // One letter more, one less, another scheme, no secret at all.
    for wrong in [format!("{secret}A"), secret[..secret.len() - 1].to_owned(), secret.replacen("tg_", "", 1)] {
        assert_eq!(Client { bearer: wrong, ..server.stranger() }.get("/api/v1/tiers").status, 401);
    }
    for wrong in [format!("Basic {secret}"), "Bearer".to_owned(), secret.to_owned()] {
        let answer = server.stranger().send("GET", "/api/v1/tiers", &[("authorization", &wrong)], None);
        assert_eq!((answer.status, answer.header("www-authenticate")), (401, "Bearer"), "{wrong}");
        // What a proxy sends along is not meant for us.
        assert_eq!(ana.send("GET", "/api/v1/tiers", &[("authorization", &wrong)], None).status, 200, "{wrong}");
    }
    assert_eq!(ana.send("DELETE", &format!("/api/v1/tokens/{id}"), &[], None).status, 204);
    assert_eq!(ci.get("/api/v1/tiers").status, 401);
    assert_eq!(listed(&ana, id), None);
    assert_eq!(ana.send("DELETE", &format!("/api/v1/tokens/{id}"), &[], None).status, 404);
}

#[test]
fn a_token_that_is_replaced_goes_on_for_a_day() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let of = json!({ "name": "ci", "role": "editor", "kinds": ["rule", "tier", "rule"] });
    let (old, id) = ana.script(&of);
    let made = ana.post(&format!("/api/v1/tokens/{id}/replace"), &json!({}));
    assert_eq!(made.status, 201, "{made:?}");
    let token = made.json();
    assert_ne!(token["id"], json!(id));
    assert_eq!((&token["name"], &token["role"]), (&json!("ci"), &json!("editor")));
    assert_eq!(token["kinds"], json!(["tier", "rule"]));
    assert!((89.9..90.1).contains(&days_left(&token)), "{token}");
    let new = Client { bearer: token["secret"].as_str().expect("text").to_owned(), ..server.stranger() };
    assert_eq!((old.get("/api/v1/tiers").status, new.get("/api/v1/tiers").status), (200, 200));
    let row = listed(&ana, &id).expect("it is there for a day");
    assert!((0.99..=1.0).contains(&days_left(&row)), "{row}");
    // The old one is not replaced again; the new one is, and lives as long.
    let again = ana.post(&format!("/api/v1/tokens/{id}/replace"), &json!({}));
    assert_eq!((again.status, &again.json()["code"]), (409, &json!("replaced")), "{again:?}");
    assert!(row["replaced_at"].is_string() && token["replaced_at"].is_null(), "{row}");
    let id = token["id"].as_str().expect("text");
    let next = ana.post(&format!("/api/v1/tokens/{id}/replace"), &json!({}));
    assert!(next.status == 201 && (89.9..90.1).contains(&days_left(&next.json())), "{next:?}");
    // One that would have ended sooner does; one without an end has none again.
    let soon = Timestamp::now() + SignedDuration::from_secs(3_600);
    let (_, id) = ana.script(&json!({ "role": "viewer", "ends_at": soon.to_string() }));
    assert_eq!(ana.post(&format!("/api/v1/tokens/{id}/replace"), &json!({})).status, 201);
    assert!(days_left(&listed(&ana, &id).expect("it is there")) < 0.05);
    let (_, id) = ana.script(&json!({ "scope": "node", "ends_at": null }));
    assert_eq!(listed(&ana, &id).expect("it is there")["ends_at"], json!(null));
    let made = ana.post(&format!("/api/v1/tokens/{id}/replace"), &json!({})).json();
    assert_eq!((&made["ends_at"], &made["scope"]), (&json!(null), &json!("node")));
    assert_eq!(ana.post("/api/v1/tokens/none/replace", &json!({})).status, 404);
}

/// Whoever had the name is the author of versions, drafts, runs and lines under it, and knows their repeats.
#[test]
fn a_name_is_given_once() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let ask = || ana.post("/api/v1/tokens", &json!({ "name": "ci", "role": "editor" }));
    let made = ask();
    assert_eq!(made.status, 201, "{made:?}");
    for _ in 0..2 {
        let taken = ask();
        assert_eq!((taken.status, taken.pointers()), (422, vec!["/name".to_owned()]), "{taken:?}");
        let id = made.json()["id"].as_str().expect("text").to_owned();
        // Also after it was revoked.
        ana.send("DELETE", &format!("/api/v1/tokens/{id}"), &[], None);
    }
    assert_eq!(ana.get("/api/v1/tokens").json()["items"], json!([]));
}

#[test]
fn what_cannot_be_a_token_is_refused_with_the_field() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    for (body, pointer) in [
        (json!({ "name": "", "role": "viewer" }), "/name"),
        (json!({ "name": " ci", "role": "viewer" }), "/name"),
        (json!({ "name": "c\u{0}i", "role": "viewer" }), "/name"),
        (json!({ "name": "x".repeat(65), "role": "viewer" }), "/name"),
        (json!({ "name": "ci" }), "/role"),
        (json!({ "name": "ci", "role": "viewer", "scope": "node" }), "/role"),
        (json!({ "name": "ci", "role": "viewer", "kinds": ["tier"] }), "/kinds"),
        (json!({ "name": "ci", "role": "editor", "kinds": [] }), "/kinds"),
        (json!({ "name": "ci", "scope": "node", "kinds": ["tier"] }), "/kinds"),
        (json!({ "name": "ci", "role": "viewer", "ends_at": "2001-01-01T00:00:00Z" }), "/ends_at"),
        (json!({ "name": "ci", "role": "viewer", "ends_at": "soon" }), "/ends_at"),
    ] {
        let answer = ana.post("/api/v1/tokens", &body);
        assert_eq!((answer.status, answer.pointers()), (422, vec![pointer.to_owned()]), "{body}: {answer:?}");
    }
    for body in [json!({ "name": "ci", "role": "root" }), json!({ "name": "ci", "scope": "all" })] {
        assert_eq!(ana.post("/api/v1/tokens", &body).status, 400, "{body}");
    }
    assert_eq!(ana.get("/api/v1/tokens").json()["items"], json!([]));
}

/// Whoever answers for them: also where a token made a token.
#[test]
fn tokens_go_with_who_answers_for_them() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let user = "/api/v1/users/admin";
    let change = |of: &Value| {
        let tag = ana.get(user).header("etag").to_owned();
        let changed = ana.send("PATCH", user, &[("if-match", &tag)], Some(of.to_string().into_bytes()));
        assert_eq!(changed.status, 200, "{changed:?}");
    };
    let ben = ana.add("admin", &server);
    for end in [json!({ "password": "another few words" }), json!({ "role": "viewer" })] {
        let ben = if end["role"].is_null() { ben.clone() } else { server.sign_in_as("admin", "another few words") };
        let (first, _) = ben.script(&json!({ "role": "admin" }));
        let (second, id) = first.script(&json!({ "role": "admin" }));
        let (node, _) = first.script(&json!({ "scope": "node" }));
        assert_eq!(listed(&ana, &id).expect("it is there")["made_by"], "admin");
        change(&end);
        for (script, status) in [(&first, 401), (&second, 401), (&node, 403)] {
            assert_eq!(script.get("/api/v1/tiers").status, status, "{end}");
        }
    }
}

#[test]
fn the_stream_of_a_revoked_token_ends() {
    use std::io::{BufRead, BufReader};
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let (script, id) = ana.script(&json!({ "role": "viewer" }));
    let config = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).build();
    let request = config.new_agent().get(format!("{}/api/v1/stream", server.url));
    let answer = request.header("authorization", format!("Bearer {}", script.bearer)).call().expect("a stream");
    let mut lines = BufReader::new(answer.into_body().into_reader()).lines().map_while(Result::ok);
    assert!(lines.by_ref().any(|line| line == "event: hello"));
    assert!(lines.by_ref().any(|line| line.contains(r#""role":"viewer""#) && line.contains(r#""session_end":null"#)));
    assert_eq!(ana.send("DELETE", &format!("/api/v1/tokens/{id}"), &[], None).status, 204);
    assert!(lines.by_ref().any(|line| line == "event: bye"));
    assert!(lines.any(|line| line.contains("token ended")));
}
