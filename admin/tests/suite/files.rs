//! The policy as a file: exported, imported, and imported from other limiters.

use serde_json::{Value, json};

use crate::support::{Answer, Client, fresh};

const PATH: &str = "/api/v1/policy/import";

/// Imports files: names and texts; on top of version `present`, if one is given.
fn import(client: &Client, query: &str, present: Option<u64>, files: &[(&str, &str)]) -> Answer {
    import_with(client, query, present, files, &[])
}

fn import_with(
    client: &Client,
    query: &str,
    present: Option<u64>,
    files: &[(&str, &str)],
    more: &[(&str, &str)],
) -> Answer {
    let files: Vec<Value> = files.iter().map(|(name, text)| json!({ "name": name, "text": text })).collect();
    let etag = present.map(|version| format!("\"policy:{version}\""));
    let headers: Vec<(&str, &str)> =
        etag.iter().map(|etag| ("if-match", etag.as_str())).chain(more.iter().copied()).collect();
    let body = json!({ "files": files }).to_string().into_bytes();
    client.send("POST", &format!("{PATH}?{query}"), &headers, Some(body))
}

const TWO_TIERS: &str = r#"
[domains.default]
defaults = { user = "small" }
[[domains.default.tiers]]
id = "small"
limits = [{ id = "minute", algorithm = "token_bucket", limit = 10, period = "1m" }]
[[domains.default.tiers]]
id = "large"
unlimited = true
[[domains.default.clients]]
kind = "user"
value = "zoe"
tier = "large"
[[domains.default.clients]]
kind = "user"
value = "ada"
tier = "large"
"#;

#[test]
fn what_is_exported_is_imported_as_it_was() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let first = ana.get("/api/v1/policy").json();
    assert_eq!(import(&ana, "message=mine", Some(1), &[("mine.toml", TWO_TIERS)]).status, 201);
    let second = ana.get("/api/v1/policy").json();
    assert_eq!(second["message"], "mine");
    let mut from = 2;
    for format in ["toml", "yaml", "json"] {
        let file = format!("policy.{format}");
        for (version, policy) in [(1, &first), (2, &second)] {
            let exported = ana.get(&format!("/api/v1/policy/export?format={format}&version={version}"));
            assert_eq!((exported.status, exported.header("content-type")), (200, "text/plain; charset=utf-8"));
            assert_eq!(exported.header("etag"), format!("\"policy:{version}\""));
            let named = format!("attachment; filename=\"policy-{version}.{format}\"");
            assert_eq!(exported.header("content-disposition"), named);
            let answer = import(&ana, "", Some(from), &[(&file, &exported.text)]);
            assert_eq!(answer.status, 201, "{answer:?}");
            from += 1;
            let now = ana.get("/api/v1/policy").json();
            assert_eq!((&now["document"], &now["sha256"]), (&policy["document"], &policy["sha256"]));
            assert_eq!(now["message"], format!("import {file}"));
            // Once more there is nothing to do.
            let again = import(&ana, "", Some(from), &[(&file, &exported.text)]);
            assert_eq!(
                (again.status, again.json()),
                (
                    200,
                    json!({ "version": from, "differences": [], "loosens": [], "starts_to_refuse": [], "notes": [], "ended": [] })
                )
            );
        }
    }
    let newest = ana.get("/api/v1/policy/export");
    assert!(newest.text.starts_with("[domains.default]\ndefaults = { user = \"small\" }\n"), "{}", newest.text);
    assert_eq!(server.engine.version(), from);
    for (query, status) in [("version=99", 404), ("version=x", 422), ("format=xml", 422)] {
        assert_eq!(ana.get(&format!("/api/v1/policy/export?{query}")).status, status, "{query}");
    }
}

#[test]
fn a_dry_run_says_what_would_change_and_changes_nothing() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let answer = import(&ana, "dry_run=true", None, &[("p.toml", TWO_TIERS)]);
    assert_eq!(answer.status, 200, "{answer:?}");
    let json = answer.json();
    let differences = json["differences"].as_array().expect("a list");
    let small = differences.iter().find(|it| it["id"] == "small").expect("is new");
    assert_eq!((&small["kind"], &small["to"]["id"], small.get("from")), (&json!("tier"), &json!("small"), None));
    assert_eq!((&json["version"], server.engine.version()), (&json!(1), 1));
    // The same as published.
    assert_eq!(import(&ana, "", Some(1), &[("p.toml", TWO_TIERS)]).status, 201);
    assert_eq!(ana.get("/api/v1/policy/diff?from=1&to=2").json()["differences"], json["differences"]);
}

#[test]
fn an_import_is_on_top_of_what_was_read_and_once() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let file = [("p.toml", TWO_TIERS)];
    assert_eq!(import(&ana, "", None, &file).status, 428);
    let key = [("idempotency-key", "k1")];
    let answer = import_with(&ana, "", Some(1), &file, &key);
    assert_eq!(answer.status, 201, "{answer:?}");
    let again = import_with(&ana, "", Some(1), &file, &key);
    assert_eq!((again.status, &again.text), (201, &answer.text), "the same request is answered the same");
    let other = import_with(&ana, "", Some(2), &file, &key);
    assert_eq!((other.status, &other.json()["errors"][0]["header"]), (422, &json!("Idempotency-Key")), "{other:?}");
    let late = import(&ana, "", Some(1), &[("p.toml", &TWO_TIERS.replace("10", "20"))]);
    assert_eq!(late.status, 412, "{late:?}");
    let conflict = &late.json()["conflicts"][0];
    assert_eq!(
        (&conflict["kind"], &conflict["version"], &conflict["changed_by"]),
        (&json!("policy"), &json!(2), &json!("ana"))
    );
    assert_eq!(server.engine.version(), 2);
}

#[test]
fn what_is_wrong_is_told_in_the_files_terms() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let wrong = TWO_TIERS.replace("\"1m\"", "\"1 minute\"").replace("tier = \"large\"", "tier = \"huge\"");
    let refused = import(&ana, "dry_run=true", None, &[("p.toml", &wrong)]);
    assert_eq!((refused.status, refused.pointers()), (422, vec!["/files/0/text".to_owned(); 3]), "{refused:?}");
    let messages = refused.json()["errors"].clone();
    assert!(
        messages[0]["message"]
            .as_str()
            .is_some_and(|it| it.starts_with("line 6: domains.default.tiers[0].limits[0].period: ")),
        "{messages}"
    );
    let broken =
        import(&ana, "from=envoy&dry_run=true", None, &[("a.yaml", "domain: a"), ("b.yaml", "domain: b\nfoo: 1")]);
    assert_eq!((broken.status, broken.pointers()), (422, vec!["/files/1/text".to_owned()]), "{broken:?}");
    for (query, files, at) in [
        ("dry_run=true", &[("policy", TWO_TIERS)][..], json!({ "parameter": "format" })),
        ("dry_run=true", &[("a.toml", TWO_TIERS), ("b.toml", TWO_TIERS)], json!({ "pointer": "/files" })),
        ("dry_run=true", &[], json!({ "pointer": "/files" })),
        ("from=nginx", &[("a.toml", TWO_TIERS)], json!({ "parameter": "from" })),
        ("messages=x", &[("a.toml", TWO_TIERS)], json!({ "parameter": "messages" })),
    ] {
        let refused = import(&ana, query, None, files);
        let error = &refused.json()["errors"][0];
        assert_eq!(refused.status, 422, "{refused:?}");
        for (name, value) in at.as_object().expect("an object") {
            assert_eq!(&error[name], value, "{refused:?}");
        }
    }
    // Two files of one name: the place says which.
    let twice = [("a.yaml", "domain: a"), ("a.yaml", "domain: b\nfoo: 1")];
    assert_eq!(import(&ana, "from=envoy&dry_run=true", None, &twice).pointers(), ["/files/1/text"]);
    // A name that tells no format, with the format said.
    assert_eq!(import(&ana, "format=toml&dry_run=true", None, &[("policy", TWO_TIERS)]).status, 200);
    let nobody = server.stranger();
    assert_eq!((import(&nobody, "", None, &[]).status, nobody.get("/api/v1/policy/export").status), (401, 401));
}

#[test]
fn files_of_other_limiters_come_beside_what_is_there() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let clean = "domain: shop\ndescriptors:\n- key: api_key\n  rate_limit: { unit: minute, requests_per_unit: 2 }\n";
    assert_eq!(import(&ana, "from=envoy", Some(1), &[("shop.yaml", clean)]).status, 201);
    let domains = |client: &Client| {
        let document = client.get("/api/v1/policy").json()["document"]["domains"].clone();
        document.as_object().expect("an object").keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(domains(&ana), ["default", "shop"]);
    let changing = "- { namespace: api, max_value: 2, seconds: 60, conditions: [\"a != 'b'\"] }\n";
    let tried = import(&ana, "from=limitador&dry_run=true", None, &[("limits.yaml", changing)]).json();
    let notes: Vec<_> =
        tried["notes"].as_array().expect("a list").iter().map(|it| it["changes_decisions"].clone()).collect();
    // Counters, windows, and the condition.
    assert_eq!(notes, [json!(false), json!(true), json!(true)], "{tried}");
    let refused = import(&ana, "from=limitador", Some(2), &[("limits.yaml", changing)]);
    assert_eq!((refused.status, &refused.json()["errors"][0]["parameter"]), (422, &json!("accept")), "{refused:?}");
    let key = [("idempotency-key", "k")];
    let published = import_with(&ana, "from=limitador&accept=true", Some(2), &[("limits.yaml", changing)], &key);
    assert_eq!((published.status, &published.json()["notes"]), (201, &tried["notes"]), "{published:?}");
    let again = import_with(&ana, "from=limitador&accept=true", Some(2), &[("limits.yaml", changing)], &key);
    assert_eq!((again.status, &again.text), (201, &published.text), "whoever asks again gets the notes too");
    assert_eq!(domains(&ana), ["api", "default", "shop"]);
    assert_eq!(import(&ana, "from=envoy&missing=remove", Some(3), &[("shop.yaml", clean)]).status, 201);
    assert_eq!(domains(&ana), ["shop"]);
    assert_eq!(import(&ana, "missing=keep", Some(4), &[("p.toml", TWO_TIERS)]).status, 201);
    assert_eq!(domains(&ana), ["default", "shop"]);
}

/// What has ended by now is not published, and no difference either.
#[test]
fn overrides_that_have_ended_do_not_make_versions() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let client = |value: &str, until: &str| {
        let made = format!("override = {{ blocked = true, reason = \"abuse\", until = \"{until}\" }}");
        format!("[[domains.default.clients]]\nkind = \"user\"\nvalue = \"{value}\"\n{made}\n")
    };
    let (old, new) = (client("bob", "2020-01-01T00:00:00Z"), client("eve", "2100-01-01T00:00:00Z"));
    let file = format!("{TWO_TIERS}{old}{new}");
    let answer = import(&ana, "", Some(1), &[("p.toml", &file)]);
    assert_eq!((answer.status, &answer.json()["ended"]), (201, &json!(["client:user:bob"])), "{answer:?}");
    let again = import(&ana, "", Some(2), &[("p.toml", &file)]);
    let wanted = json!({ "version": 2, "differences": [], "loosens": [], "starts_to_refuse": [], "notes": [], "ended": ["client:user:bob"] });
    assert_eq!((again.status, again.json()), (200, wanted));
    let clients = ana.get("/api/v1/policy").json()["document"]["domains"]["default"]["clients"].clone();
    let values: Vec<_> = clients.as_array().expect("a list").iter().map(|it| it["value"].clone()).collect();
    assert_eq!(values, ["ada", "eve", "zoe"]);
}

#[test]
fn of_a_domain_that_is_there_other_limiters_have_only_the_rules() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let mine =
        TWO_TIERS.replace("[domains.default]", "[domains.default]\nheaders = \"ietf\"\ntimezone = \"Europe/Berlin\"");
    let mine = format!(
        "{mine}[[domains.default.rules]]\nid = \"mine\"\nendpoint = \"*\"\nper = \"user\"\nlimits = [{{ id = \"day\", algorithm = \"token_bucket\", limit = 10, period = \"1d\" }}]\n"
    );
    assert_eq!(import(&ana, "", Some(1), &[("p.toml", &mine)]).status, 201);
    let mut wanted = ana.get("/api/v1/policy").json()["document"]["domains"]["default"].clone();
    let file = "domain: default\ndescriptors:\n- key: key\n  rate_limit: { unit: minute, requests_per_unit: 2 }\n";
    let answer = import(&ana, "from=envoy", Some(2), &[("e.yaml", file)]);
    assert_eq!(answer.status, 201, "{answer:?}");
    let found = ana.get("/api/v1/policy").json()["document"]["domains"]["default"].clone();
    assert_eq!(found["rules"].as_array().map(Vec::len), Some(1));
    assert_eq!(found["rules"][0]["id"], "key");
    wanted["rules"] = found["rules"].clone();
    wanted["descriptor_paths"] = json!("identity");
    assert_eq!(found, wanted, "clients, tiers, headers and time zone stay");
    // What the files come to together with what is there is nobody's line.
    let keys: Vec<String> = (0..64)
        .map(|key| format!("- {{ key: k{key}, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}\n"))
        .collect();
    let refused = import(
        &ana,
        "from=envoy",
        Some(3),
        &[("e.yaml", &format!("domain: default\ndescriptors:\n{}", keys.concat()))],
    );
    assert_eq!((refused.status, refused.pointers()), (422, vec!["/files".to_owned()]), "{refused:?}");
    assert!(refused.text.contains("65 kinds of identities"), "{refused:?}");
}
