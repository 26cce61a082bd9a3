//! Lists: paging, filters and sorting are the same for all.

use serde_json::{Value, json};

use super::support::{Client, fresh};

/// Ids of all pages.
fn walk(ana: &Client, path: &str, query: &str) -> Vec<Vec<String>> {
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let answer = ana.get(&format!("{path}?{query}{cursor}"));
        assert_eq!(answer.status, 200, "{answer:?}");
        let page = answer.json();
        let id = |item: &Value| item.get("id").unwrap_or(&item["version"]).to_string().replace('"', "");
        pages.push(page["items"].as_array().expect("items").iter().map(id).collect());
        let Some(next) = page["next"].as_str() else { return pages };
        cursor = format!("&cursor={}", next.replace('/', "%2F"));
    }
}

#[test]
fn every_list_is_paged_alike() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let limits = json!([{ "id": "m", "algorithm": "token_bucket", "limit": 1, "period": "1m" }]);
    for id in ["c", "a", "b"] {
        for (path, body) in [
            ("/api/v1/rules", json!({ "id": id, "endpoint": format!("/{id}"), "per": "ip", "limits": limits })),
            ("/api/v1/clients", json!({ "kind": "user", "value": id, "tier": "free" })),
            (
                "/api/v1/drafts",
                json!({ "base_version": 1, "message": id, "changes": [{ "op": "delete", "kind": "tier", "id": id }] }),
            ),
        ] {
            assert_eq!(ana.post(path, &body).status, 201, "{path}");
        }
        let domain = json!({}).to_string().into_bytes();
        let answer = ana.send("PUT", &format!("/api/v1/domains/{id}"), &[("if-none-match", "*")], Some(domain));
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    for path in ["tiers", "rules", "clients", "domains", "drafts", "policy/versions"] {
        let path = format!("/api/v1/{path}");
        let whole = walk(&ana, &path, "");
        assert_eq!(whole.len(), 1, "100 fit unless told otherwise: {path}");
        assert!(whole[0].len() >= 3, "{path}: {whole:?}");
        let paged = walk(&ana, &path, "limit=2");
        assert!(paged.len() > 1 && paged.iter().all(|page| page.len() <= 2), "{path}: {paged:?}");
        assert_eq!(paged.concat(), whole[0], "{path}");
        for (query, named) in [
            ("limit=0", "limit"),
            ("limit=501", "limit"),
            ("limit=ten", "limit"),
            ("limit=1&limit=2", "limit"),
            ("cursor=nonsense", "cursor"),
            ("page=2", "page"),
        ] {
            let answer = ana.get(&format!("{path}?{query}"));
            assert_eq!((answer.status, answer.wrong("parameter")), (422, vec![named.to_owned()]), "{path} {answer:?}");
        }
    }
    for path in ["tiers", "rules", "clients", "domains"] {
        let path = format!("/api/v1/{path}");
        let mut sorted = walk(&ana, &path, "")[0].clone();
        sorted.sort();
        assert_eq!(walk(&ana, &path, "sort=name&limit=2").concat(), sorted, "{path}");
        sorted.reverse();
        assert_eq!(walk(&ana, &path, "sort=-name&limit=2").concat(), sorted, "{path}");
        assert_eq!(ana.get(&format!("{path}?sort=age")).wrong("parameter"), ["sort"], "{path}");
        let q = &sorted[0];
        let q = q.rsplit(':').next().expect("a part");
        let found = ana.get(&format!("{path}?q={q}")).json();
        let ids: Vec<&str> =
            found["items"].as_array().expect("items").iter().filter_map(|item| item["id"].as_str()).collect();
        assert!(ids.contains(&&*sorted[0]) && ids.iter().all(|id| id.contains(q)), "{path}: {ids:?}");
        assert_eq!(found["matching"], ids.len(), "{path}");
    }
    // The others are the newest first, and found by what is said of them.
    for (path, q, least) in [("policy/versions", "ANA", 3), ("drafts", "ana", 3), ("drafts", "B", 1)] {
        let found = walk(&ana, &format!("/api/v1/{path}"), &format!("q={q}&limit=2")).concat();
        assert!(found.len() >= least, "{path}?q={q}: {found:?}");
    }
    for path in ["policy/versions", "drafts", "simulations", "uploads"] {
        for q in ["nobody%20said%20this", "%25", "_"] {
            assert_eq!(walk(&ana, &format!("/api/v1/{path}"), &format!("q={q}")).concat(), [""; 0], "{path}?q={q}");
        }
    }
}

#[test]
fn a_sorted_list_is_walked_while_what_was_read_goes() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    for id in ["a", "b", "c", "d"] {
        assert_eq!(ana.post("/api/v1/tiers", &json!({ "id": id, "unlimited": true })).status, 201);
    }
    let first = ana.get("/api/v1/tiers?limit=2&sort=name").json();
    assert_eq!(first["next"], "b");
    let etag = ana.tier("b").0;
    assert_eq!(ana.send("DELETE", "/api/v1/tiers/b", &[("if-match", &etag)], None).status, 201);
    let second = ana.get("/api/v1/tiers?limit=2&sort=name&cursor=b").json();
    assert_eq!((&second["items"][0]["id"], &second["items"][1]["id"]), (&json!("c"), &json!("d")));
    // Without a sort it cannot be known where that was.
    assert_eq!(ana.get("/api/v1/tiers?limit=2&cursor=b").wrong("parameter"), ["cursor"]);
}

#[test]
fn what_is_wrong_beside_the_body_is_named() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let big = json!({ "id": "big", "unlimited": true }).to_string();
    let send = |query: &str, headers: &[(&str, &str)]| {
        ana.send("POST", &format!("/api/v1/tiers{query}"), headers, Some(big.clone().into_bytes()))
    };
    assert_eq!(send("?mesage=typo", &[]).wrong("parameter"), ["mesage"]);
    assert_eq!(send("?message=%20", &[]).wrong("parameter"), ["message"]);
    assert_eq!(send("", &[("idempotency-key", "")]).wrong("header"), ["Idempotency-Key"]);
    assert_eq!(send("", &[("idempotency-key", &"k".repeat(101))]).wrong("header"), ["Idempotency-Key"]);
    let put = ana.send("PUT", "/api/v1/tiers/big", &[("if-none-match", "\"x\"")], Some(big.into_bytes()));
    assert_eq!((put.status, put.wrong("header")), (422, vec!["If-None-Match".to_owned()]));
    assert_eq!(ana.get("/api/v1/policy/versions/first").status, 404);
    let draft = json!({ "base_version": 9_007_199_254_740_992_u64, "message": "m", "changes": [] });
    assert_eq!(ana.post("/api/v1/drafts", &draft).pointers(), ["/base_version"]);
    assert_eq!(server.engine.version(), 1, "nothing was published");
}
