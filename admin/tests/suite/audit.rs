//! The audit log: what is in it, looking through it, taking it out; and that nothing changes it.

use std::{net::TcpStream, thread};

use serde_json::{Value, json};
use tidegate_testkit::wait_until;

use crate::{
    home::block_on,
    support::{Client, PASSWORD, Server, fresh},
};

fn lines(client: &Client, query: &str) -> Vec<Value> {
    let answer = client.get(&format!("/api/v1/audit{query}"));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["items"].as_array().expect("items").clone()
}

/// The newest line of this query, which may be written beside the answer that it is about.
fn newest(client: &Client, query: &str) -> Value {
    tidegate_testkit::wait_for(query, || lines(client, query).first().cloned())
}

fn has(line: &Value, of: &Value) {
    for (name, value) in of.as_object().expect("an object") {
        assert_eq!(&line[name], value, "{line}");
    }
}

#[test]
fn changes_sign_ins_and_refusals_are_in_it() {
    let (_folder, server) = fresh();
    let guess = json!({ "code": "guess", "name": "eve", "password": PASSWORD });
    assert_eq!(server.stranger().post("/api/v1/setup", &guess).status, 404);
    let ana = server.administrator();
    has(&newest(&ana, "?action=setup&q=code"), &json!({ "actor": "", "address": "127.0.0.1", "object": "" }));
    let viewer = ana.add("viewer", &server);
    has(
        &newest(&ana, "?action=session.begin"),
        &json!({ "actor": "viewer", "address": "127.0.0.1", "result": "done" }),
    );
    has(
        &newest(&ana, "?object=user:viewer"),
        &json!({ "actor": "ana", "action": "user.add", "result": "done: viewer" }),
    );
    let wrong = json!({ "name": "eve", "password": "wrong" });
    assert_eq!(server.stranger().post("/api/v1/session", &wrong).status, 401);
    let nobody = json!({ "actor": "", "action": "session.begin", "result": "wrong name or password" });
    has(&newest(&ana, "?object=typed:eve"), &nobody);
    assert_eq!(viewer.post("/api/v1/tiers", &json!({ "id": "x", "unlimited": true })).status, 403);
    let line = newest(&ana, "?actor=viewer&action=refused");
    has(&line, &json!({ "object": "POST /api/v1/tiers", "address": "127.0.0.1" }));
    assert!(line["result"].as_str().expect("text").contains("`editor`"), "{line}");
    let made_up = Client { bearer: "tg_made-up".to_owned(), ..server.stranger() };
    assert_eq!(made_up.get("/api/v1/policy").status, 401);
    has(
        &newest(&ana, "?q=no+such+token"),
        &json!({ "actor": "", "action": "refused", "object": "GET /api/v1/policy" }),
    );
    let forged = Client { csrf: "x".to_owned(), ..ana.clone() };
    assert_eq!(forged.post("/api/v1/drafts", &json!({})).status, 403);
    has(
        &newest(&ana, "?q=X-CSRF-token"),
        &json!({ "actor": "ana", "action": "refused", "object": "POST /api/v1/drafts" }),
    );
    let tag = ana.get("/api/v1/users/ana").header("etag").to_owned();
    assert_eq!(ana.send("DELETE", "/api/v1/users/ana", &[("if-match", &tag)], None).status, 409);
    has(&newest(&ana, "?object=DELETE+/api/v1/users/ana"), &json!({ "actor": "ana", "action": "refused" }));
    let ended = server.sign_in();
    assert_eq!(ended.send("DELETE", "/api/v1/session", &[], None).status, 204);
    assert_eq!(ended.get("/api/v1/alerts").status, 401);
    has(&newest(&ana, "?object=GET+/api/v1/alerts"), &json!({ "actor": "", "action": "refused" }));
    // Whoever shows nothing is nobody.
    assert_eq!(server.stranger().get("/api/v1/session").status, 401);
    let (script, id) = ana.script(&json!({ "role": "viewer" }));
    assert_eq!(script.get("/api/v1/policy/export").status, 200);
    has(&newest(&ana, "?action=policy.export"), &json!({ "actor": "token:script", "object": "version:1" }));
    has(&newest(&ana, "?action=token.use"), &json!({ "actor": "token:script", "object": format!("token:{id}") }));
    assert_eq!(script.get("/api/v1/clients/export").status, 200);
    has(&newest(&ana, "?action=clients.export"), &json!({ "actor": "token:script" }));
    assert!(lines(&ana, "?action=refused&object=GET+/api/v1/session").is_empty());
    assert_eq!(viewer.send("DELETE", "/api/v1/session", &[], None).status, 204);
    has(&newest(&ana, "?action=session.end"), &json!({ "actor": "viewer", "result": "done" }));
}

/// Whoever has not shown who he is acts under no name: neither another's, nor the server's, nor a token's.
#[test]
fn nobody_acts_under_a_name_that_he_has_only_typed() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let typed = [
        ("ana", "user:ana"),
        ("tidegate", ""),
        ("token:ci", ""),
        ("my password, in the wrong field", ""),
        ("eve", "typed:eve"),
    ];
    for (name, _) in typed {
        let wrong = json!({ "name": name, "password": "wrong" });
        assert_eq!(server.stranger().post("/api/v1/session", &wrong).status, 401);
    }
    newest(&ana, "?object=typed:eve");
    let written = lines(&ana, "?q=wrong+name");
    assert_eq!(written.len(), typed.len());
    for (line, (_, object)) in written.iter().rev().zip(typed) {
        has(line, &json!({ "actor": "", "object": object, "action": "session.begin" }));
        assert!(!line.to_string().contains("my password"), "{line}");
    }
    for name in ["tidegate", "token:ci"] {
        let added = ana.post("/api/v1/users", &json!({ "name": name, "role": "viewer", "password": PASSWORD }));
        assert_eq!((added.status, added.pointers()), (422, vec!["/name".to_owned()]), "{name}");
    }
}

#[test]
fn a_publish_names_what_it_changed_and_how_it_came() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    assert_eq!(ana.post("/api/v1/tiers", &json!({ "id": "x", "unlimited": true })).status, 201);
    has(&newest(&ana, "?object=version:2"), &json!({ "action": "policy.publish", "result": "done" }));
    has(&newest(&ana, "?object=tier:x"), &json!({ "action": "object.change", "result": "version:2", "actor": "ana" }));
    let tag = [("if-match", "\"policy:2\"")];
    assert_eq!(ana.send("POST", "/api/v1/policy/rollback", &tag, Some(br#"{"to":1}"#.to_vec())).status, 201);
    has(&newest(&ana, "?object=version:3"), &json!({ "action": "policy.rollback" }));
    has(&newest(&ana, "?object=tier:x"), &json!({ "action": "object.remove", "result": "version:3" }));
    let clients: Vec<String> = (0..150).map(|n| format!("user,u{n},pro\n")).collect();
    let text = format!("kind,value,tier\n{}", clients.concat()).into_bytes();
    let imported = ana.send("POST", "/api/v1/clients/import", &[("content-type", "text/csv")], Some(text));
    assert_eq!(imported.status, 201, "{imported:?}");
    has(&newest(&ana, "?object=version:4"), &json!({ "action": "clients.import" }));
    assert_eq!(lines(&ana, "?q=version:4&limit=500").len(), 101, "the first hundred of many");
}

#[test]
fn it_is_looked_through_page_by_page() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    for limit in [200, 300, 400, 500] {
        let (tag, mut tier) = ana.tier("free");
        tier["limits"][0]["limit"] = json!(limit);
        let version = ana.get("/api/v1/policy").json()["version"].as_u64().expect("a number");
        assert_eq!(ana.publish_tier(version, &tag, &tier).status, 201);
    }
    let publishes = lines(&ana, "?action=policy");
    assert_eq!(publishes.iter().filter(|line| line["actor"] == "ana").count(), 4, "what begins with policy.");
    assert_eq!(lines(&ana, "?action=poli"), Vec::<Value>::new());
    let objects: Vec<&str> = publishes.iter().take(2).filter_map(|line| line["object"].as_str()).collect();
    assert_eq!(objects, ["version:5", "version:4"], "newest first");
    // All pages together are the whole.
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = ana.get(&format!("/api/v1/audit?limit=2{cursor}")).json();
        all.extend(page["items"].as_array().expect("items").clone());
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(all, lines(&ana, "?limit=500"));
    // By time, to the second; by text, in which no letter means more than itself.
    let at = publishes[0]["at"].as_str().expect("an instant");
    let of = |query: &str| lines(&ana, query).iter().any(|line| line["object"] == "version:5");
    assert!(of(&format!("?from={at}")) && !of(&format!("?to={at}")));
    assert!(of("?to=2099-01-01T00:00:00%2B02:00") && !of("?from=2099-01-01T00:00:00Z"));
    assert!(of("?q=VERSION:5") && !of("?q=version_5") && !of("?q=%25") && !of("?q=~"));
    for wrong in ["?from=yesterday", "?to=1", "?actor=%00", "?cursor=x", "?limit=0", "?who=ana"] {
        assert_eq!(ana.get(&format!("/api/v1/audit{wrong}")).status, 422, "{wrong}");
    }
}

#[test]
fn a_line_is_found_by_its_request_and_by_what_came_of_it() {
    let (folder, server) = fresh();
    let ana = server.administrator();
    let made = ana.post("/api/v1/tiers", &json!({ "id": "x", "unlimited": true }));
    let (script, _) = ana.script(&json!({ "role": "viewer" }));
    let refused = script.post("/api/v1/drafts", &json!({}));
    let wrong = server.stranger().post("/api/v1/session", &json!({ "name": "ana", "password": "wrong" }));
    assert_eq!((made.status, refused.status, wrong.status), (201, 403, 401));
    newest(&ana, "?q=wrong+name");
    newest(&ana, "?action=refused");
    let of = |answer: &crate::support::Answer| {
        let id = answer.header("x-request-id").to_owned();
        let found = lines(&ana, &format!("?request={id}"));
        assert_eq!(found, lines(&ana, &format!("?q={id}")), "as a text too");
        found.iter().map(|line| line["action"].as_str().expect("text").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of(&made), ["object.change", "policy.publish"]);
    // Its first use of the day is in it too.
    assert!(of(&refused).contains(&"refused".to_owned()));
    assert_eq!(of(&wrong), ["session.begin"]);
    // Every line is the one or the other; what nobody asked for has no request.
    let actions = |query: &str| {
        let found = lines(&ana, query);
        found.into_iter().map(|line| line["id"].as_i64().expect("a number")).collect::<Vec<_>>()
    };
    let (done, not) = (actions("?result=done&limit=500"), actions("?result=refused&limit=500"));
    assert_eq!(not.len(), 2, "{not:?}");
    let mut all = [done, not.clone()].concat();
    all.sort_unstable_by(|one, other| other.cmp(one));
    assert_eq!(all, actions("?limit=500"));
    assert_eq!(lines(&ana, "?object=version:1")[0]["request_id"], "");
    let csv = ana.get("/api/v1/audit/export?result=refused").text;
    assert_eq!(csv.lines().count(), 3);
    assert!(csv.contains(wrong.header("x-request-id")), "{csv}");
    for wrong in ["?result=both", "?request=%00"] {
        assert_eq!(ana.get(&format!("/api/v1/audit{wrong}")).status, 422, "{wrong}");
    }
    // A line of before there were ids.
    folder.home().execute(
        "INSERT INTO audit (at, actor, address, action, object, result)
         VALUES ('2026-01-01T00:00:00Z', 'x', '', 'test', 'old', 'done')",
    );
    has(&lines(&ana, "?object=old")[0], &json!({ "request_id": "", "result": "done" }));
}

/// Letters beyond A to Z are what they are, in every list and over both databases.
#[test]
fn a_text_is_found_as_it_was_written() {
    let (folder, server) = fresh();
    let ana = server.administrator();
    let list = json!({ "base_version": 1, "message": "\u{c9}lan vital", "changes": [] });
    assert_eq!(ana.post("/api/v1/drafts", &list).status, 201);
    let (etag, mut tier) = ana.tier("free");
    tier["limits"][0]["limit"] = json!(7);
    let mut change = crate::support::tier_change(1, &etag, &tier);
    change["message"] = json!("\u{c9}lan vital");
    assert_eq!(ana.post("/api/v1/policy/changes", &change).status, 201);
    folder.home().execute(
        "INSERT INTO audit (at, actor, address, action, object, result)
         VALUES ('2026-01-01T00:00:00Z', 'x', '', 'test', '\u{c9}lan', 'Vital')",
    );
    for path in ["/api/v1/drafts", "/api/v1/policy/versions", "/api/v1/audit"] {
        let found = |q: &str| ana.get(&format!("{path}?q={q}")).json()["items"].as_array().expect("items").len();
        // The letter with its accent, upper and lower.
        assert_eq!(
            [found("%C3%89LAN"), found("%C3%89lan"), found("%C3%A9lan"), found("VITAL")],
            [1, 1, 0, 1],
            "{path}"
        );
    }
}

#[test]
fn it_is_taken_out_whole() {
    let (folder, server) = fresh();
    let ana = server.administrator();
    // More than are read at a time, one of which a spreadsheet would take for a formula.
    let rows: Vec<String> =
        (0..2_100).map(|n| format!("('2026-01-01T00:00:00Z', '=cmd', '', 'test', 'o,{n}', 'done')")).collect();
    folder
        .home()
        .execute(&format!("INSERT INTO audit (at, actor, address, action, object, result) VALUES {}", rows.join(", ")));
    let csv = ana.get("/api/v1/audit/export?action=test");
    assert_eq!((csv.status, csv.header("content-type")), (200, "text/csv; charset=utf-8"));
    assert!(csv.header("content-disposition").contains("audit.csv"));
    let mut of_csv = csv.text.lines();
    assert_eq!(of_csv.next(), Some("id,at,actor,address,action,object,result,request_id"));
    for (n, line) in of_csv.by_ref().take(2_100).enumerate() {
        assert!(line.ends_with(&format!(",2026-01-01T00:00:00Z,'=cmd,,test,\"o,{n}\",done,")), "{line}");
    }
    assert_eq!(of_csv.next(), None);
    let json = ana.get("/api/v1/audit/export?format=ndjson&action=test");
    assert_eq!(json.header("content-type"), "application/x-ndjson");
    let objects: Vec<Value> = json.text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(
        (objects.len(), &objects[2_099]["object"], &objects[0]["actor"]),
        (2_100, &json!("o,2099"), &json!("=cmd"))
    );
    assert_eq!(
        ana.get("/api/v1/audit/export?action=none").text,
        "id,at,actor,address,action,object,result,request_id\n"
    );
    assert_eq!(ana.get("/api/v1/audit/export?action=none&format=ndjson").text, "");
    assert_eq!(lines(&ana, "?action=audit.export").len(), 4);
}

/// A flood is counted, and hides neither those who are known nor what is left out.
#[test]
fn a_flood_of_refusals_is_counted() {
    let (folder, mut server) = fresh();
    let ana = server.administrator();
    let (script, _) = ana.script(&json!({ "role": "viewer" }));
    let made_up = Client { bearer: "tg_made-up".to_owned(), ..server.stranger() };
    for _ in 0..80 {
        assert_eq!(made_up.get("/api/v1/policy").status, 401);
    }
    assert_eq!(script.post("/api/v1/drafts", &json!({})).status, 403);
    newest(&ana, "?action=refused&actor=token:script");
    assert_eq!(lines(&ana, "?action=refused&limit=500").len(), 21, "20 one by one, and the one who is known");
    server.stop();
    // What was left out is told at the latest when the server ends.
    let server = Server::start(folder.home());
    let ana = server.sign_in_as("ana", PASSWORD);
    let told = lines(&ana, "?action=refused&limit=500");
    assert_eq!(told.len(), 22);
    has(&told[0], &json!({ "actor": "tidegate", "address": "127.0.0.1", "result": "60 more within a minute" }));
}

/// The database is busy when it is refused, and the server is stopped meanwhile.
#[test]
fn a_refusal_just_before_the_end_is_in_it() {
    let (folder, mut server) = fresh();
    let ana = server.administrator();
    let (script, _) = ana.script(&json!({ "role": "viewer" }));
    block_on(async {
        let mut busy = folder.home().connect().await;
        let lock =
            if folder.home().is_postgres() { "BEGIN; LOCK TABLE audit IN EXCLUSIVE MODE" } else { "BEGIN IMMEDIATE" };
        sqlx::raw_sql(lock).execute(&mut busy).await.expect("it is free");
        for _ in 0..3 {
            assert_eq!(script.post("/api/v1/drafts", &json!({})).status, 403);
        }
        let address = server.url.replace("http://", "");
        let stopping = thread::spawn(move || server.stop());
        wait_until("it takes no more requests", || TcpStream::connect(&address).is_err());
        assert!(!stopping.is_finished(), "it waits for the lines");
        sqlx::raw_sql("ROLLBACK").execute(&mut busy).await.expect("it is free again");
        stopping.join().expect("it ends well");
    });
    let server = Server::start(folder.home());
    assert_eq!(lines(&server.sign_in(), "?object=POST+/api/v1/drafts").len(), 3);
}

#[test]
fn nothing_changes_a_line() {
    let (folder, _server) = fresh();
    block_on(async {
        let mut connection = folder.home().connect().await;
        let replace = if folder.home().is_postgres() {
            "INSERT INTO audit OVERRIDING SYSTEM VALUE SELECT * FROM audit ON CONFLICT (id) DO UPDATE SET actor = 'x'"
        } else {
            "INSERT OR REPLACE INTO audit SELECT id, at, 'x', address, action, object, result, request_id FROM audit"
        };
        for sql in ["UPDATE audit SET actor = 'x'", "DELETE FROM audit", replace] {
            let refused = sqlx::query(sql).execute(&mut connection).await;
            let why = refused.expect_err("it is refused").to_string();
            assert!(why.contains("the audit log is only added to"), "{sql}: {why}");
        }
    });
}
