//! Clients: overrides with an end and a reason, files of them, and many at once.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tidegate::{Identity, Request};
use tidegate_testkit::wait_until;

use crate::support::{Answer, Client, data_of, fresh};

fn make(ana: &Client, client: &Value) -> String {
    let made = ana.post("/api/v1/clients", client);
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["changes"][0]["etag"].as_str().expect("a tag").to_owned()
}

fn put(ana: &Client, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    ana.send("PUT", path, headers, Some(body.to_string().into_bytes()))
}

pub(crate) fn import(ana: &Client, query: &str, text: &str) -> Answer {
    import_with(ana, query, &[], text)
}

fn import_with(ana: &Client, query: &str, headers: &[(&str, &str)], text: impl Into<Vec<u8>>) -> Answer {
    let path = format!("/api/v1/clients/import?{query}");
    ana.send("POST", &path, &[&[("content-type", "text/csv")], headers].concat(), Some(text.into()))
}

#[test]
fn an_override_ends_after_a_week_unless_an_end_is_chosen_and_has_a_reason() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let etag = make(&ana, &json!({ "kind": "user", "value": "bob", "tier": "pro", "label": "Bob" }));
    let path = "/api/v1/clients/user:bob/override";
    assert_eq!(ana.get(path).status, 404);
    assert_eq!(put(&ana, path, &[], &json!({ "blocked": true, "reason": "abuse" })).status, 428);
    let tagged = [("if-match", etag.as_str())];
    assert_eq!(put(&ana, path, &tagged, &json!({ "blocked": true })).pointers(), ["/reason"]);
    let past = json!({ "blocked": true, "reason": "abuse", "until": "2020-01-01T00:00:00Z" });
    assert_eq!(put(&ana, path, &tagged, &past).pointers(), ["/until"]);
    let both = json!({ "blocked": true, "unlimited": true, "reason": "abuse" });
    assert_eq!(put(&ana, path, &tagged, &both).pointers(), [""]);
    assert_eq!(put(&ana, path, &tagged, &json!({ "blocked": true, "reason": "abuse" })).status, 201);
    assert!(!server.check("bob").is_allowed());
    let blocked = ana.get(path);
    let until: Timestamp = blocked.json()["value"]["until"].as_str().expect("text").parse().expect("a time");
    let left = until.duration_since(Timestamp::now());
    assert!(left > SignedDuration::from_hours(24 * 7 - 1) && left <= SignedDuration::from_hours(24 * 7), "{left}");
    // The whole of it is replaced, by one without an end; what else the client has stays.
    let forever = json!({ "unlimited": true, "reason": "partner", "until": null });
    assert_eq!(put(&ana, path, &[("if-match", blocked.header("etag"))], &forever).status, 201);
    let bob = ana.get("/api/v1/clients/user:bob");
    let expected = json!({
        "kind": "user", "value": "bob", "tier": "pro", "label": "Bob",
        "override": { "unlimited": true, "reason": "partner" },
    });
    assert_eq!(bob.json()["value"], expected);
    assert_eq!(ana.send("DELETE", path, &[("if-match", bob.header("etag"))], None).status, 201);
    assert_eq!((ana.get(path).status, ana.get("/api/v1/clients/user:bob").status), (404, 200));
    // Somebody whom nobody knew.
    let path = "/api/v1/clients/user:eve/override";
    let block = json!({ "blocked": true, "reason": "scraper" });
    assert_eq!(put(&ana, path, &[("if-match", "\"x\"")], &block).status, 412);
    assert_eq!(put(&ana, path, &[("if-none-match", "*")], &block).status, 201);
    assert!(!server.check("eve").is_allowed());
    let etag = ana.get(path).header("etag").to_owned();
    assert_eq!(ana.send("DELETE", path, &[("if-match", &etag)], None).status, 201);
    assert_eq!(ana.get("/api/v1/clients/user:eve").status, 404, "it had nothing else");
}

#[test]
fn an_override_stops_at_its_end_and_goes_with_the_next_version() {
    // Both have to be blocked before the end, so a slow machine has more time.
    let in_time = [2, 4, 8, 16, 32].into_iter().find_map(|seconds| {
        let (folder, server) = fresh();
        let ana = server.administrator();
        let soon = Timestamp::now().saturating_add(SignedDuration::from_secs(seconds)).expect("a time");
        let block = |value: &str, more: Value| {
            let mut client = json!({
                "kind": "user", "value": value,
                "override": { "blocked": true, "reason": "abuse", "until": soon.to_string() },
            });
            client.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            ana.post("/api/v1/clients", &client).status
        };
        let made = [block("bob", json!({ "tier": "pro" })), block("eve", json!({}))];
        let are_blocked = !server.check("bob").is_allowed() && !server.check("eve").is_allowed();
        let is_in_time = Timestamp::now() < soon;
        assert!(!is_in_time || (made, are_blocked) == ([201, 201], true), "{made:?} {are_blocked}");
        is_in_time.then_some((folder, server, ana, soon))
    });
    let (_folder, server, ana, soon) = in_time.expect("two blocks within half a minute");
    wait_until("the engine's own clock ends it", || {
        server.check("bob").is_allowed() && server.check("eve").is_allowed()
    });
    assert!(Timestamp::now() >= soon, "not before its end");
    assert_eq!(ana.get("/api/v1/clients").json()["matching"], 2, "nothing was published since");
    let next = ana.post("/api/v1/tiers", &json!({ "id": "new", "unlimited": true }));
    assert_eq!(next.json()["ended"], json!(["client:user:bob", "client:user:eve"]), "{next:?}");
    let left = ana.get("/api/v1/clients").json();
    assert_eq!(
        (&left["matching"], &left["items"][0]["value"]),
        (&json!(1), &json!({ "kind": "user", "value": "bob", "tier": "pro" }))
    );
    assert_eq!(left["items"][0]["etag"], "\"client:user:bob:4\"");
}

#[test]
fn a_file_of_clients_is_tried_told_line_by_line_and_imported_whole() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    make(&ana, &json!({ "kind": "user", "value": "old", "tier": "pro", "label": "Old" }));
    make(&ana, &json!({ "kind": "user", "value": "same", "tier": "free" }));
    let text = "kind,value,tier,override,until,reason\n\
                user,new,pro,,,\n\
                user,old,free,,,\n\
                user,same,free,,,\n\
                ip,10.0.0.0/8,,unlimited,never,office\n\
                user,bad,none,,,\n\
                user,new,free,,,\n\
                user,cut\n\
                user,big,,\"[{\"\"id\"\": \"\"m\"\", \"\"algorithm\"\": \"\"token_bucket\"\", \"\"limit\"\": 5, \"\"period\"\": \"\"1m\"\"}]\",2099-01-01T00:00:00Z,\"a, \"\"b\"\"\"\n\
                user,why,,blocked,,\n";
    let tried = import(&ana, "dry_run=true", text);
    assert_eq!(tried.status, 200, "{tried:?}");
    let report = &tried.json()["report"];
    let told: Vec<_> = report["lines"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|line| (line["line"].as_u64(), line["outcome"].as_str(), line["column"].as_str()))
        .collect();
    let of = |line: u64, outcome: &'static str, column: Option<&'static str>| (Some(line), Some(outcome), column);
    assert_eq!(
        told,
        [
            of(2, "new", None),
            of(3, "changed", None),
            of(4, "unchanged", None),
            of(5, "new", None),
            of(6, "wrong", Some("tier")),
            of(7, "wrong", None),
            of(8, "wrong", None),
            of(9, "new", None),
            of(10, "wrong", Some("reason")),
        ]
    );
    let counts =
        ["new", "changed", "unchanged", "wrong", "removed"].map(|name| report[name].as_u64().expect("a number"));
    assert_eq!(counts, [3, 1, 1, 4, 0]);
    // One that is wrong keeps all of them out.
    let refused = import(&ana, "", text);
    assert_eq!(
        (refused.status, refused.pointers()),
        (422, vec!["/6/tier".into(), "/7".into(), "/8".into(), "/10/reason".into()])
    );
    assert_eq!(server.engine.version(), 3);
    let is_good = |line: &&str| !["bad", "new,free", "cut", "why"].iter().any(|bad| line.contains(bad));
    let good = text.lines().filter(is_good).collect::<Vec<_>>().join("\n");
    let done = import(&ana, "message=from%20the%20list", &good);
    assert_eq!((done.status, &done.json()["version"]), (201, &json!(4)), "{done:?}");
    assert_eq!(done.json()["report"]["new"], 3);
    assert_eq!(
        ana.get("/api/v1/clients/user:old").json()["value"],
        json!({ "kind": "user", "value": "old", "tier": "free", "label": "Old" }),
        "a column that is absent leaves what was there"
    );
    let big = ana.get("/api/v1/clients/user:big").json();
    assert_eq!(
        (&big["value"]["override"]["limits"][0]["limit"], &big["value"]["override"]["reason"]),
        (&json!(5), &json!("a, \"b\""))
    );
    // Again, it changes nothing, and makes no version.
    let again = import(&ana, "", &good);
    assert_eq!((again.status, &again.json()["report"]["unchanged"]), (200, &json!(5)), "{again:?}");
    // Export, then import, is the identity, of whatever values.
    make(&ana, &json!({ "kind": "user", "value": "a\"b,\nc \u{fc}", "tier": "pro", "note": " two\r\nlines " }));
    let exported = ana.get("/api/v1/clients/export");
    assert_eq!(exported.header("content-type"), "text/csv; charset=utf-8");
    let same = import(&ana, "missing=remove", &exported.text).json();
    assert_eq!((&same["report"]["unchanged"], &same["version"]), (&json!(6), &json!(5)), "{same}");
    assert_eq!(import(&ana, "missing=remove", "kind,value,tier\nuser,old,free\n").status, 428);
    let tag = ana.get("/api/v1/policy").header("etag").to_owned();
    let fewer = import_with(&ana, "missing=remove", &[("if-match", &tag)], "kind,value,tier\nuser,old,free\n");
    assert_eq!((fewer.status, &fewer.json()["report"]["removed"]), (201, &json!(5)));
    assert_eq!(ana.get("/api/v1/clients").json()["matching"], 1);
    for (text, wanted) in [
        ("kind,value,teir\n", "no column `teir`"),
        ("kind,tier\n", "column `value` is missing"),
        ("kind,value,kind\n", "twice"),
        ("", "is missing"),
    ] {
        let refused = import(&ana, "", text);
        assert!(refused.status == 422 && refused.text.contains(wanted), "{text:?}: {refused:?}");
    }
    let moved = ana.send(
        "POST",
        "/api/v1/clients/import",
        &[("content-type", "text/csv"), ("if-match", "\"policy:1\"")],
        Some(good.into_bytes()),
    );
    assert_eq!(moved.status, 412);
    assert_eq!(ana.post("/api/v1/clients/import", &json!({})).status, 415);
}

#[test]
fn all_that_match_are_changed_together() {
    let (folder, mut server) = fresh();
    let ana = server.administrator();
    let tier = |n: u32| if n.is_multiple_of(3) { "pro" } else { "free" };
    let text = (0..1_200).map(|n| format!("user,u{n:04},{}", tier(n))).collect::<Vec<_>>().join("\n");
    assert_eq!(import(&ana, "", &format!("kind,value,tier\n{text}")).status, 201);
    let bulk = |expected: u64, patch: Value| {
        let matching = json!({ "kind": "user", "prefix": "u00", "tier": "pro" });
        let body = json!({ "matching": matching, "patch": patch, "expected": expected, "message": "move them" });
        ana.post("/api/v1/clients/bulk", &body)
    };
    let moved = bulk(30, json!({ "tier": "free" }));
    assert_eq!((moved.status, &moved.json()["conflicts"][0]["matching"]), (412, &json!(34)));
    assert_eq!(bulk(34, json!({ "tier": "none" })).pointers(), ["/patch/tier"]);
    assert_eq!(bulk(34, json!({ "override": { "blocked": true } })).pointers(), ["/patch/override/reason"]);
    let done = bulk(34, json!({ "tier": "free", "override": { "blocked": true, "reason": "abuse" } }));
    assert_eq!((done.status, &done.json()["version"]), (201, &json!(3)), "{done:?}");
    assert_eq!(ana.get("/api/v1/clients?tier=pro").json()["matching"], 366);
    assert_eq!(ana.get("/api/v1/clients?has_override=true").json()["matching"], 34);
    assert!(!server.check("u0000").is_allowed() && server.check("u0001").is_allowed());
    let gone = json!({ "matching": { "ids": ["user:u0001", "user:u0002", "user:none"] }, "expected": 2, "remove": true, "message": "go" });
    let mut unsaid = gone.clone();
    unsaid["remove"] = json!(false);
    assert_eq!(ana.post("/api/v1/clients/bulk", &unsaid).pointers(), ["/patch"]);
    let elsewhere =
        ana.send("POST", "/api/v1/clients/bulk", &[("if-match", "\"policy:1\"")], Some(gone.to_string().into_bytes()));
    assert_eq!(elsewhere.status, 412);
    assert_eq!(ana.post("/api/v1/clients/bulk", &gone).status, 201);
    assert_eq!(ana.get("/api/v1/clients").json()["matching"], 1_198);
    // More than one statement takes out.
    let everybody = json!({ "matching": {}, "expected": 1_198, "remove": true, "message": "start anew" });
    assert_eq!(ana.post("/api/v1/clients/bulk", &everybody).status, 201);
    drop(ana);
    server.stop();
    let server = crate::support::Server::start(&data_of(&folder));
    assert_eq!(server.sign_in().get("/api/v1/clients").json()["matching"], 0, "and so after a restart");
}

#[test]
fn lines_are_counted_as_editors_count_them() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    make(&ana, &json!({ "kind": "ip", "value": "10.0.0.1/32", "tier": "free" }));
    make(&ana, &json!({ "kind": "user", "value": "a:b", "tier": "free" }));
    let wrong = |text: &str| {
        let tried = import(&ana, "dry_run=true&missing=keep", text);
        assert_eq!(tried.status, 200, "{tried:?}");
        let report = tried.json()["report"].clone();
        let lines = report["lines"].as_array().expect("a list").iter().filter(|line| line["outcome"] == "wrong");
        lines.map(|line| (line["line"].as_u64().expect("a number"), line["column"].clone())).collect::<Vec<_>>()
    };
    for end in ["\n", "\r\n", "\r"] {
        let text = ["\u{feff}kind,value,tier,note", "user,x,pro,\"two", "lines\"", "", "user,y,none,", "user,z,pro,"]
            .join(end);
        assert_eq!(wrong(&text), [(5, json!("tier"))], "{end:?}");
        // What is not UTF-8 is a line like others.
        let lines: [&[u8]; 6] = [b"kind,value,tier", b"", b"user,\xff,pro", b"user,\xff,pro", b"user,y,none", b""];
        let tried = import_with(&ana, "dry_run=true", &[], lines.join(end.as_bytes()));
        let lines = tried.json()["report"]["lines"].clone();
        let numbers: Vec<_> = lines.as_array().expect("a list").iter().map(|line| line["line"].clone()).collect();
        assert_eq!(numbers, [3, 4, 5], "{end:?}: {lines}");
    }
    // A kind has no colon, and this is not the user `a:b`.
    assert_eq!(wrong("kind,value,tier\nuser:a,b,pro\n"), [(2, json!("kind"))]);
    // The same address, written another way: the file's line is told, not the policy's.
    assert_eq!(wrong("kind,value,tier\nip,10.0.0.1,pro\n"), [(2, json!("value"))]);
    assert_eq!(wrong("kind,value,tier,until,reason\nuser,x,pro,never,\n"), [(2, json!("until"))]);
    assert_eq!(wrong("kind,value,tier\nUSER,x,none\n"), [(2, json!("kind"))]);
    let tried = import(&ana, "dry_run=true&missing=remove", "kind,value,tier,override\nuser,a:b,,oops\n").json();
    assert_eq!(
        (&tried["report"]["wrong"], &tried["report"]["removed"]),
        (&json!(1), &json!(1)),
        "it is in the file: {tried}"
    );
}

#[test]
fn an_import_that_is_sent_twice_is_made_once() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let once = || {
        let headers = [("content-type", "text/csv"), ("idempotency-key", "k"), ("if-match", "\"policy:1\"")];
        ana.send("POST", "/api/v1/clients/import", &headers, Some(b"kind,value,tier\nuser,x,pro\n".to_vec()))
    };
    let first = once();
    assert_eq!(first.status, 201, "{first:?}");
    let second = once();
    assert_eq!((second.status, &second.text), (201, &first.text));
    let end = |key: &str, etag: &str| {
        ana.send("DELETE", "/api/v1/clients/user:e/override", &[("idempotency-key", key), ("if-match", etag)], None)
    };
    let etag = make(
        &ana,
        &json!({ "kind": "user", "value": "e", "tier": "pro", "override": { "blocked": true, "reason": "r" } }),
    );
    let first = end("e", &etag);
    assert_eq!((first.status, &end("e", &etag).text), (201, &first.text));
    assert_eq!(server.engine.version(), 4);
}

#[test]
fn an_override_without_an_end_stays_without_one() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let block =
        json!({ "kind": "user", "value": "eve", "override": { "blocked": true, "reason": "old", "until": null } });
    let etag = make(&ana, &block);
    let patch = json!({ "override": { "reason": "new" } }).to_string().into_bytes();
    assert_eq!(ana.send("PATCH", "/api/v1/clients/user:eve", &[("if-match", &etag)], Some(patch)).status, 201);
    let eve = ana.get("/api/v1/clients/user:eve").json();
    assert_eq!(eve["value"]["override"], json!({ "blocked": true, "reason": "new" }));
}

/// A long answer is kept without its lines.
#[test]
fn a_repeat_of_a_large_import_is_answered_in_short() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let lines = (0..3_000).map(|number| format!("user,one-of-many-{number},free\n"));
    let file = format!("kind,value,tier\n{}", lines.collect::<String>());
    let send = || {
        let headers = [("content-type", "text/csv"), ("idempotency-key", "k"), ("if-match", "\"policy:1\"")];
        ana.send("POST", "/api/v1/clients/import?message=many", &headers, Some(file.clone().into_bytes()))
    };
    let (first, second) = (send(), send());
    assert_eq!((first.status, second.status), (201, 201), "{second:?}");
    let count = |answer: &Answer| answer.json()["report"]["lines"].as_array().expect("lines").len();
    assert_eq!((count(&first), count(&second)), (3_000, 0));
    assert!(first.text.len() > 64 << 10 && second.text.len() < 1 << 10);
    assert_eq!(second.json()["report"]["new"], 3_000);
    assert_eq!(second.json()["version"], first.json()["version"]);
}

/// Ids of the clients that a query finds, page by page.
fn found(ana: &Client, query: &str) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = ana.get(&format!("/api/v1/clients?limit=2&{query}{cursor}"));
        assert_eq!(page.status, 200, "{page:?}");
        let page = page.json();
        let items = page["items"].as_array().expect("items").clone();
        ids.extend(items.iter().map(|item| item["id"].as_str().expect("an id").to_owned()));
        let Some(next) = page["next"].as_str() else {
            assert_eq!(page["matching"], ids.len(), "{query}");
            return ids;
        };
        cursor = format!("&cursor={next}");
    }
}

#[test]
fn clients_are_found_by_a_part_of_their_value_or_label() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let text = "kind,value,tier,label\nuser,acme,pro,Acme GmbH\nuser,u1,pro,The ACME shop\nuser,u2,free,\nip,192.0.2.1,free,Bob\n\
                user,bob-acme,free,\n";
    assert_eq!(import(&ana, "", text).status, 201);
    assert_eq!(found(&ana, "q=aCme"), ["user:acme", "user:bob-acme", "user:u1"]);
    assert_eq!(found(&ana, "q=acme&sort=-name"), ["user:u1", "user:bob-acme", "user:acme"]);
    assert_eq!(found(&ana, "q=acme&tier=pro"), ["user:acme", "user:u1"]);
    assert_eq!(found(&ana, "q=bob"), ["ip:192.0.2.1", "user:bob-acme"]);
    assert_eq!(found(&ana, "q=shop&kind=user&prefix=u"), ["user:u1"]);
    assert_eq!((found(&ana, "q=").len(), found(&ana, "q=nobody").len(), found(&ana, "q=user").len()), (5, 0, 0));
    // The same are meant where many are changed.
    let bulk = json!({ "matching": { "q": "acme" }, "patch": { "tier": "free" }, "expected": 3, "message": "m" });
    assert_eq!(ana.post("/api/v1/clients/bulk", &bulk).status, 201);
    assert_eq!(found(&ana, "tier=pro"), Vec::<String>::new());
}

#[test]
fn clients_have_tags_by_which_they_are_found() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let text = "kind,value,tier,tags\nuser,acme,pro,beta eu\nuser,bob,free,eu\nuser,eve,free,\n";
    assert_eq!(import(&ana, "", text).status, 201);
    assert_eq!(found(&ana, "tag=eu"), ["user:acme", "user:bob"]);
    assert_eq!(found(&ana, "tag=beta&sort=-name"), ["user:acme"]);
    assert_eq!(found(&ana, "tag=eu&tier=free"), ["user:bob"]);
    assert_eq!((found(&ana, "tag=e").len(), found(&ana, "tag=EU").len()), (0, 0));
    let mut acme = json!({ "kind": "user", "value": "acme", "tier": "pro", "tags": ["beta", "eu"] });
    assert_eq!(ana.get("/api/v1/clients/user:acme").json()["value"], acme);
    // What a file says nothing of stays; an empty cell takes it away.
    assert_eq!(import(&ana, "", "kind,value,tier\nuser,bob,pro\n").status, 201);
    assert_eq!(import(&ana, "", "kind,value,tags\nuser,acme,eu  gold \n").status, 201);
    acme["tags"] = json!(["eu", "gold"]);
    assert_eq!(ana.get("/api/v1/clients/user:acme").json()["value"], acme);
    assert_eq!(found(&ana, "tag=eu"), ["user:acme", "user:bob"]);
    let exported = ana.get("/api/v1/clients/export").text;
    assert!(exported.contains("user,acme,pro,,eu gold,,,,"), "{exported}");
    assert_eq!(import(&ana, "", &exported).json()["report"]["unchanged"], 3);
    let version = server.engine.version();
    let differs = ana.get(&format!("/api/v1/policy/diff?from={}&to={version}", version - 1)).json();
    let tags = json!([{
        "domain": "default", "kind": "client", "id": "user:acme", "field": "tags",
        "from": ["beta", "eu"], "to": ["eu", "gold"],
    }]);
    assert_eq!(differs["differences"], tags);
    // What is wrong stands at its place, in a file at its column.
    let wrong = "kind,value,tags\nuser,acme,eu Gold\nuser,bob,a a\n";
    assert_eq!(import(&ana, "", wrong).pointers(), ["/2/tags", "/3/tags"]);
    let patch = |tags: &Value| {
        let body = json!({ "tags": tags }).to_string().into_bytes();
        ana.send("PATCH", "/api/v1/clients/user:bob", &[("if-match", "*")], Some(body))
    };
    assert_eq!(patch(&json!(["a", "b", "a"])).pointers(), ["/tags/2"]);
    let many: Vec<_> = (0..17).map(|number| format!("t{number}")).collect();
    assert_eq!(patch(&json!(many)).pointers(), ["/tags"]);
    // All that have one are changed at once.
    let bulk = json!({ "matching": { "tag": "eu" }, "patch": { "tags": null }, "expected": 2, "message": "m" });
    assert_eq!(ana.post("/api/v1/clients/bulk", &bulk).status, 201);
    assert_eq!(found(&ana, "tag=eu"), Vec::<String>::new());
    assert_eq!(ana.get("/api/v1/clients/user:bob").json()["value"].get("tags"), None);
}

#[test]
fn a_client_that_is_an_address_is_denied_in_every_spelling() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let clients = ["ip:2001:DB8:0::66", "ip:::ffff:192.0.2.1", "remote_address:2001:DB8::7"];
    let lines = clients.map(|id| id.replacen(':', ",", 1) + ",free\n");
    let text = format!("kind,value,tier\nip,2001:db8::67,free\nuser,2001:db8::7,free\n{}", lines.concat());
    assert_eq!(import(&ana, "", &text).status, 201);
    for (kind, value) in [("ip", "2001:db8::66"), ("ip", "192.0.2.1"), ("remote_address", "2001:db8::7")] {
        let identity = [Identity::new(kind, value).expect("valid")];
        for _ in 0..3_000 {
            let _ = server.engine.check(&Request::new(&identity).expect("valid"));
        }
    }
    wait_until("they are denied now", || found(&ana, "denied_now=true") == clients);
    let stands = ana.post("/api/v1/clients/standings", &json!({ "ids": clients })).json();
    let items = stands["items"].as_array().expect("a list");
    let denied: Vec<bool> = items.iter().map(|item| item["denied_per_minute"].as_u64() > Some(0)).collect();
    assert_eq!(denied, [true; 3], "{stands}");
}

#[test]
fn how_clients_stand_is_told_in_one_answer() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let text = "kind,value,tier,label\nuser,acme,free,\nuser,mallory,free,\nuser,mal*,free,\nip,192.0.2.0/24,free,\n";
    assert_eq!(import(&ana, "", text).status, 201);
    for _ in 0..3_000 {
        let _ = server.check("mallory");
    }
    assert_eq!(found(&ana, "denied_now=false").len(), 4);
    let denied = tidegate_testkit::wait_for("it is denied now", || {
        Some(found(&ana, "denied_now=true")).filter(|found| !found.is_empty())
    });
    assert_eq!(denied, ["user:mallory"]);
    assert_eq!(found(&ana, "denied_now=true&q=acme"), Vec::<String>::new());
    // What was used comes back meanwhile.
    for (user, count) in [("acme", 25), ("mallory", 100)] {
        for _ in 0..count {
            let _ = server.check(user);
        }
    }
    let ask = |ids: &[&str]| ana.post("/api/v1/clients/standings", &json!({ "ids": ids }));
    let told = ask(&["user:mallory", "user:nobody", "user:acme", "user:mal*", "ip:192.0.2.0/24"]);
    assert_eq!(told.status, 200, "{told:?}");
    let told = told.json();
    assert_eq!(told["did_not_answer"], json!([]));
    let items = told["items"].as_array().expect("items");
    assert_eq!(items.len(), 2, "who is configured and one: {told}");
    let [mallory, acme] = [&items[0], &items[1]];
    let used = |item: &Value| item["fullest"]["used"].as_u64().expect("a number");
    assert_eq!(mallory["id"], "user:mallory");
    assert!((95..=100).contains(&used(mallory)) && (15..=25).contains(&used(acme)), "{told}");
    assert_eq!(mallory["fullest"]["share"], used(mallory) as f64 / 100.0);
    assert!(mallory["denied_per_minute"].as_u64().expect("a number") > 1_000, "{mallory}");
    let at: Timestamp = mallory["last_denied_at"].as_str().expect("an instant").parse().expect("an instant");
    assert!(Timestamp::now().duration_since(at) < SignedDuration::from_mins(1), "{at}");
    assert_eq!(
        (&acme["fullest"]["limit_id"], &acme["fullest"]["limit"]),
        (&json!("default/tier:free/minute"), &json!(100))
    );
    assert_eq!((&acme["denied_per_minute"], &acme["last_denied_at"]), (&json!(0), &Value::Null));
    assert_eq!(ask(&["user:nobody"]).json()["items"], json!([]));
    let many: Vec<&str> = vec!["user:acme"; 101];
    for wrong in [&[][..], &many] {
        assert_eq!(ask(wrong).pointers(), ["/ids"]);
    }
    let elsewhere = json!({ "domain": "none", "ids": ["user:acme"] });
    assert_eq!(ana.post("/api/v1/clients/standings", &elsewhere).status, 404);
}
