//! Change lists that are shared before they are published.

use serde_json::{Value, json};

use crate::support::{Client, data_of, fresh, tier_change};

#[test]
fn a_list_is_shared_and_then_published_as_it_was_saved() {
    let (folder, mut server) = fresh();
    let ana = server.administrator();
    let (etag, mut free) = ana.tier("free");
    free["limits"][0]["limit"] = json!(500);
    let mut list = tier_change(1, &etag, &free);
    list["carry"] = json!({ "default/tier:free/minute": "reset" });
    let saved = ana.post("/api/v1/drafts", &list);
    assert_eq!(saved.status, 201, "{saved:?}");
    let path = saved.header("location").to_owned();
    assert_eq!((&saved.json()["author"], &saved.json()["message"]), (&json!("ana"), &json!("change free")));
    assert_eq!(server.engine.version(), 1, "nothing is published");
    // Whoever has the link has the list, after a restart too.
    drop(ana);
    server.stop();
    let server = crate::support::Server::start(&data_of(&folder));
    let ben = server.sign_in();
    let shared = ben.get(&path).json();
    let mut expected = list.clone();
    expected["changes"][0]["domain"] = json!("default");
    assert_eq!(shared["list"], expected);
    assert_eq!(ben.get("/api/v1/drafts").json()["items"][0]["id"], shared["id"]);
    let published = ben.post("/api/v1/policy/changes", &shared["list"]);
    assert_eq!(published.status, 201, "{published:?}");
    assert_eq!(ben.tier("free").1, free);
    let version = ben.get("/api/v1/policy/versions/2").json();
    assert_eq!(version["carry"], json!({ "default/tier:free/minute": "reset" }), "whoever follows can do the same");
    assert_eq!(ben.send("DELETE", &path, &[], None).status, 204);
    assert_eq!((ben.get(&path).status, ben.send("DELETE", &path, &[], None).status), (404, 404));
    assert_eq!(ben.get("/api/v1/drafts").json(), json!({ "items": [], "next": null }));
}

/// What cannot be in the audit log is not done.
#[test]
fn a_draft_and_its_line_are_kept_together() {
    let (folder, server) = fresh();
    let ana = server.administrator();
    let list = json!({ "base_version": 1, "message": "m", "changes": [] });
    let path = ana.post("/api/v1/drafts", &list).header("location").to_owned();
    folder.home().execute(if folder.home().is_postgres() {
        "CREATE TRIGGER no_line BEFORE INSERT ON audit FOR EACH ROW
         WHEN (NEW.action LIKE 'draft.%' OR NEW.action LIKE 'upload.%') EXECUTE FUNCTION refuse_change('no line')"
    } else {
        "CREATE TRIGGER no_line BEFORE INSERT ON audit WHEN NEW.action LIKE 'draft.%' OR NEW.action LIKE 'upload.%'
         BEGIN SELECT RAISE(ABORT, 'no line'); END"
    });
    assert_eq!(ana.post("/api/v1/drafts", &list).status, 500);
    assert_eq!(ana.send("DELETE", &path, &[], None).status, 500);
    let drafts = ana.get("/api/v1/drafts").json();
    assert_eq!(drafts["items"].as_array().expect("items").len(), 1, "{drafts}");
    let log = br#"192.0.2.7 - ada [12/Oct/2026:06:25:24 +0000] "GET /v1/search HTTP/1.1" 200 2326"#;
    assert_eq!(ana.send("POST", "/api/v1/uploads", &[], Some(log.to_vec())).status, 500);
    assert_eq!(ana.get("/api/v1/uploads").json()["items"], json!([]));
}

#[test]
fn drafts_are_paged_and_what_is_no_list_is_refused() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let list = |message: &str| json!({ "base_version": 1, "message": message, "changes": [] });
    for message in ["", "one", "two", "three", "four"] {
        assert_eq!(ana.post("/api/v1/drafts", &list(message)).status, 201);
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = ana.get(&format!("/api/v1/drafts?limit=2{cursor}")).json();
        let items = page["items"].as_array().expect("a list");
        assert!((1..=2).contains(&items.len()), "{page}");
        seen.extend(items.iter().map(|draft| draft["message"].as_str().expect("text").to_owned()));
        let Value::String(next) = &page["next"] else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, ["four", "three", "two", "one", ""], "newest first");
    assert_eq!(ana.post("/api/v1/drafts", &list(&"m".repeat(201))).pointers(), ["/message"]);
    let refused =
        ana.post("/api/v1/drafts", &json!({ "base_version": 1, "message": "m", "changes": [{ "op": "move" }] }));
    assert_eq!((refused.status, refused.pointers()), (400, vec!["/changes/0/op".to_owned()]));
    assert_eq!(server.stranger().post("/api/v1/drafts", &list("m")).status, 401);
}

#[test]
fn an_author_with_many_drafts_leaves_room_to_others() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let (script, _) = ana.script(&json!({ "role": "editor" }));
    let save =
        |client: &Client| client.post("/api/v1/drafts", &json!({ "base_version": 1, "message": "m", "changes": [] }));
    for _ in 0..100 {
        assert_eq!(save(&script).status, 201);
    }
    let refused = save(&script);
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("full")));
    assert!(refused.json()["detail"].as_str().expect("text").contains("remove some of them"), "{refused:?}");
    let of_ana = save(&ana);
    assert_eq!(of_ana.status, 201, "{of_ana:?}");
    server.gives_others_their_quota(&ana);
    // One that is removed makes room, whichever editor removes it.
    let own = script.get("/api/v1/drafts?limit=2").json()["items"][1]["id"].as_str().expect("an id").to_owned();
    assert_eq!(ana.send("DELETE", &format!("/api/v1/drafts/{own}"), &[], None).status, 204);
    assert_eq!((save(&script).status, save(&script).status), (201, 409));
}
