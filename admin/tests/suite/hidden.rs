//! Whoever may ask what-if over recorded requests learns no more of their identities than `--keys` shows, however he asks.

use std::num::NonZeroU32;

use serde_json::{Value, json};
use tidegate::{Identity, Request};
use tidegate_admin::{Keys, StartError};

use crate::{
    home::{Folder, Home},
    simulations::{SEVENS, SIMULATIONS, done, made, of_run, recording, start, tighter, traffic},
    support::{Client, Server, open_with},
};

const KEY: &str = "sk_abcdef";

/// Ten requests of somebody with an API key, to a path of his own.
fn come(server: &Server) {
    let who = [Identity::new("api_key", KEY), Identity::new("user", "ada-lovelace")].map(|who| who.expect("valid"));
    for _ in 0..10 {
        let request = Request::new(&who).and_then(|request| request.endpoint("/of/ada-lovelace")).expect("valid");
        let _ = server.engine.check(&request);
    }
}

fn no_limit(id: &str) -> Value {
    json!({ "id": id, "algorithm": "token_bucket", "limit": 1, "period": "1h" })
}

/// A rule that nobody else meets.
fn rule(id: &str, endpoint: &str, condition: &Value) -> Value {
    json!({ "id": id, "endpoint": endpoint, "per": "everyone", "where": condition, "limits": [no_limit("l")] })
}

fn document(client: &Client, change: impl FnOnce(&mut Value)) -> Value {
    let mut document = client.get("/api/v1/policy").json()["document"].clone();
    change(&mut document["domains"]["default"]);
    json!({ "document": document })
}

fn create(kind: &str, id: &str, value: &Value) -> Value {
    json!({ "changes": { "changes": [{ "op": "create", "kind": kind, "id": id, "value": value }] } })
}

/// Values that are guessed, by every way in which a policy can hold one.
fn guesses(ana: &Client) -> Vec<(Value, &'static str)> {
    let in_where = rule("p-sk-a", "*", &json!({ "api_key": "sk_a*" }));
    let client = |kind: &str, value: &str| json!({ "kind": kind, "value": value, "tier": "pro" });
    let mut with_override = client("user", "ada-lovelace");
    with_override["override"] = json!({ "reason": "guess", "limits": [no_limit("mine")] });
    let draft = json!({ "base_version": ana.get("/api/v1/policy").json()["version"], "message": "guess", "if_match": {},
        "changes": [{ "op": "create", "kind": "client", "id": "user:ada-lovelace", "value": with_override }] });
    let draft = ana.post("/api/v1/drafts", &draft).json()["id"].clone();
    vec![
        (
            document(ana, |domain| domain["rules"] = json!([in_where])),
            "/b/document/domains/default/rules/0/where/api_key",
        ),
        (create("rule", "p-sk-a", &in_where), "/b/changes/changes/0/value/where/api_key"),
        (
            document(ana, |domain| domain["clients"] = json!([client("api_key", "sk_a*")])),
            "/b/document/domains/default/clients/0/value",
        ),
        (create("client", "api_key:sk_a*", &client("api_key", "sk_a*")), "/b/changes/changes/0/value/value"),
        (create("client", "user:ada-lovelace", &with_override), "/b/changes/changes/0/value/value"),
        (create("client", "ip:198.51.100.0/25", &client("ip", "198.51.100.0/25")), "/b/changes/changes/0/value/value"),
        (json!({ "draft": draft }), "/b/draft/changes/0/value/value"),
    ]
}

#[test]
fn no_value_is_found_by_guessing() {
    for keys in [Keys::Truncated, Keys::Hashed, Keys::Clear] {
        let (_folder, server) = recording(keys, 1);
        let ana = server.administrator();
        let viewer = ana.add("viewer", &server);
        come(&server);
        traffic(&server);
        for (b, pointer) in guesses(&ana) {
            let asked = json!({ "b": b, "traffic": "recorded" });
            // Not by those either who may write it: nobody would know that they asked.
            for who in [&viewer, &ana] {
                if keys == Keys::Clear {
                    done(who, &asked);
                    continue;
                }
                let refused = who.post(SIMULATIONS, &asked);
                assert_eq!((refused.status, refused.pointers()), (422, vec![pointer.to_owned()]), "{refused:?}");
                // As `a` they are no better.
                let refused = who.post(SIMULATIONS, &json!({ "a": b, "b": "live", "traffic": "recorded" }));
                assert_eq!(refused.status, 422, "{refused:?}");
            }
            // Traffic of their own they may try it on.
            done(&viewer, &json!({ "b": b, "traffic": made() }));
        }
    }
}

/// What the policy in force names may be tried, and is not paired with what is shown of anybody.
#[test]
fn whom_a_policy_names_is_shown_by_a_number() {
    for keys in [Keys::Truncated, Keys::Hashed] {
        let (_folder, server) = recording(keys, 1);
        let ana = server.administrator();
        let published = rule("of-acme", "*", &json!({ "api_key": "sk_a*" }));
        assert_eq!(ana.post("/api/v1/rules", &published).status, 201);
        let client = json!({ "kind": "user", "value": "secret-user-3", "tier": "pro" });
        assert_eq!(ana.post("/api/v1/clients", &client).status, 201);
        come(&server);
        traffic(&server);
        // Limits by which the tier would give them away, though no name does.
        let told = json!({ "changes": { "changes": [{ "op": "put", "kind": "tier", "id": "pro", "value": {
            "id": "pro", "limits": [no_limit("told")] } }] } });
        let run = done(&ana, &json!({ "b": told, "traffic": "recorded" }));
        let rows = of_run(&ana, &run, "/decisions?limit=500").json()["items"].clone();
        let (mut of_rule, mut of_tier) = (0, 0);
        for row in rows.as_array().expect("a list") {
            let shown = |kind: &str| {
                let all = row["identities"].as_array().expect("a list");
                let found = all.iter().filter_map(Value::as_str).find(|key| key.starts_with(kind));
                found.map(|key| key[kind.len()..].to_owned())
            };
            let by = row["b"]["limit_id"].as_str().unwrap_or_default();
            let is_number = |key: Option<String>| key.is_some_and(|key| key.starts_with('#'));
            if by == "default/rule:of-acme/l" {
                assert!(is_number(shown("api_key:")), "{row}");
                of_rule += 1;
            } else if by == "default/tier:pro/told" {
                assert!(is_number(shown("user:")), "{row}");
                of_tier += 1;
            }
        }
        assert!(of_rule > 0 && of_tier > 0, "{rows}");
        let everything = [run["summary"].to_string(), rows.to_string(), of_run(&ana, &run, "/timeline").text].concat();
        for value in [KEY, "ada-lovelace", "secret-user", "198.51.100.1\""] {
            assert!(!everything.contains(value), "{keys}: {value}");
        }
    }
}

/// Whom an older version named would be found again by the instants of his requests, beside the hash of another run.
#[test]
fn an_older_version_names_nobody_either() {
    let (_folder, server) = recording(Keys::Hashed, 1);
    let ana = server.administrator();
    let client = json!({ "kind": "api_key", "value": KEY, "tier": "pro" });
    let made = ana.post("/api/v1/clients", &client);
    assert_eq!(made.status, 201);
    come(&server);
    let ask = json!({ "a": { "version": 2 }, "b": tighter(), "traffic": "recorded" });
    let rows = of_run(&ana, &done(&ana, &ask), "/decisions").text;
    assert!(rows.contains("api_key:#1"), "{rows}");
    let tag = ana.get(&format!("/api/v1/clients/api_key:{KEY}")).header("etag").to_owned();
    let gone = ana.send("DELETE", &format!("/api/v1/clients/api_key:{KEY}"), &[("if-match", &tag)], None);
    assert_eq!(gone.status, 201, "{gone:?}");
    done(&ana, &json!({ "b": tighter(), "traffic": "recorded" }));
    let refused = ana.post(SIMULATIONS, &ask);
    assert_eq!((refused.status, refused.pointers()), (422, vec!["/a".to_owned()]), "{refused:?}");
}

/// A rule for somebody's own path would tell whose it is.
#[test]
fn a_path_tells_nobody() {
    let (_folder, server) = recording(Keys::Hashed, 1);
    let ana = server.administrator();
    come(&server);
    let denied = |endpoint: &str| {
        let run =
            done(&ana, &json!({ "b": create("rule", "r", &rule("r", endpoint, &json!({}))), "traffic": "recorded" }));
        run["summary"]["newly_denied"]["requests"].clone()
    };
    assert_eq!((denied("/of/ada-lovelace"), denied("/of/{user}"), denied("/of/*")), (json!(0), json!(9), json!(9)));
}

/// How a user is shown in a run over recorded requests.
fn hash(server: &Server, ana: &Client) -> String {
    come(server);
    let run = done(ana, &json!({ "b": tighter(), "traffic": "recorded" }));
    let row = of_run(ana, &run, "/decisions?limit=1").json()["items"][0]["identities"][0].clone();
    row.as_str().and_then(|key| key.strip_prefix("api_key:")).expect("a hash").to_owned()
}

/// One value has one hash on every server of the database, and after a restart.
#[test]
fn a_hash_stays_what_it_is() {
    let (folder, mut server) = recording(Keys::Hashed, 1);
    let ana = server.administrator();
    let first = hash(&server, &ana);
    let again = |home: &Home| {
        let server = Server::start_with(home, |settings| {
            (settings.keys, settings.record) = (Keys::Hashed, NonZeroU32::new(1));
        });
        hash(&server, &server.sign_in())
    };
    if folder.home().is_postgres() {
        assert_eq!(again(folder.home()), first, "beside the first");
    }
    server.stop();
    assert_eq!(again(folder.home()), first, "after it");
    folder.home().execute(&format!("UPDATE secrets SET value = '{SEVENS}'"));
    assert_ne!(again(folder.home()), first, "it is the database's secret");
}

/// Older builds kept the secret in the folder.
#[test]
fn a_secret_of_the_folder_is_taken_over_once() {
    let folder = Folder::with_file();
    let start = || {
        Server::start_with(folder.home(), |settings| {
            (settings.keys, settings.record) = (Keys::Hashed, NonZeroU32::new(1));
        })
    };
    let mut server = start();
    drop(server.administrator());
    server.stop();
    folder.home().execute("DELETE FROM secrets");
    let file = folder.home().data.join("tidegate.secret");
    std::fs::write(&file, [7; 32]).expect("it is written");
    let mut server = start();
    let taken = hash(&server, &server.sign_in());
    assert!(!file.exists());
    server.stop();
    folder.home().execute(&format!("UPDATE secrets SET value = '{SEVENS}'"));
    let server = start();
    assert_eq!(hash(&server, &server.sign_in()), taken);
}

/// Where a folder is given beside a database, runs outlive the server there; one server has it.
#[test]
fn runs_stay_in_a_folder_that_is_given() {
    for keeps_files in [true, false] {
        let folder = Folder::new();
        let start = || Server::start_with(folder.home(), |settings| settings.keeps_files = keeps_files);
        let mut server = start();
        let run = done(&server.administrator(), &json!({ "b": tighter(), "traffic": made() }));
        let is_kept = keeps_files || !folder.home().is_postgres();
        if is_kept {
            let refused = open_with(folder.home(), |settings| settings.keeps_files = true).expect_err("it is taken");
            assert!(matches!(refused, StartError::InUse(_)), "{refused:?}");
        }
        server.stop();
        let server = start();
        let decisions = of_run(&server.sign_in(), &run, "/decisions?limit=1");
        assert_eq!(decisions.status, if is_kept { 200 } else { 404 });
    }
}

/// Viewers stop and remove what they made; what others made an editor does.
#[test]
fn what_others_made_is_theirs() {
    let (_folder, server) = recording(Keys::Clear, 1);
    let ana = server.administrator();
    let [viewer, operator, editor] = ["viewer", "operator", "editor"].map(|role| ana.add(role, &server));
    let run = |who: &Client| start(who, &json!({ "b": tighter(), "traffic": made() }));
    let stop = |who: &Client, id: &str| who.send("POST", &format!("{SIMULATIONS}/{id}/stop"), &[], None);
    let forget = |who: &Client, id: &str| who.send("DELETE", &format!("{SIMULATIONS}/{id}"), &[], None);
    let log = |who: &Client| {
        let line = b"192.0.2.7 - ada [12/Oct/2026:06:25:24 +0000] \"GET /a HTTP/1.1\" 200 2326\n";
        let headers = [("content-type", "application/octet-stream")];
        let sent = who.send("POST", "/api/v1/uploads?save=true", &headers, Some(line.to_vec()));
        assert_eq!(sent.status, 201, "{sent:?}");
        format!("/api/v1/uploads/{}", sent.json()["id"].as_str().expect("an id"))
    };
    for own in [true, false] {
        let (id, log) = (run(&viewer), log(&viewer));
        for refused in [stop(&operator, &id), forget(&operator, &id), operator.send("DELETE", &log, &[], None)] {
            assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("forbidden")));
            let detail = refused.json()["detail"].as_str().expect("text").to_owned();
            assert!(detail.contains("of viewer") && detail.contains("`editor`"), "{detail}");
        }
        let who = if own { &viewer } else { &editor };
        assert_eq!(stop(who, &id).status, 200);
        assert_eq!(forget(who, &id).status, 204);
        assert_eq!(who.send("DELETE", &log, &[], None).status, 204);
        assert_eq!(stop(who, &id).status, 404);
        assert_eq!(who.send("DELETE", &log, &[], None).status, 404);
    }
}
