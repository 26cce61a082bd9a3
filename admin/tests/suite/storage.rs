//! Whatever the database is: one that is not what was published, or is newer, stops the start with a message and is left as
//! it is; versions and log are only added to.

use serde_json::{Value, json};
use sqlx::{Connection, raw_sql};
use tidegate_admin::StartError;

use crate::{
    home::{Folder, block_on},
    support::{Server, fresh, open},
};

/// A home with a database, whose server is stopped.
fn used() -> Folder {
    let (folder, server) = fresh();
    server.administrator();
    drop(server);
    folder
}

fn refused(folder: &Folder) -> StartError {
    open(folder.home()).expect_err("it must not start")
}

/// Changes what nobody may change.
fn force(folder: &Folder, sql: &str) {
    let around = if folder.home().is_postgres() {
        "SET session_replication_role = replica;"
    } else {
        "PRAGMA foreign_keys = OFF; DROP TRIGGER policy_versions_stay; DROP TRIGGER policy_versions_remain;"
    };
    folder.home().execute(&format!("{around}{sql}"));
}

#[test]
fn a_policy_that_is_not_what_was_published_is_not_enforced() {
    let folder = used();
    force(&folder, "UPDATE policy_versions SET document = replace(document, '10000', '99999')");
    let error = refused(&folder);
    assert!(matches!(error, StartError::Damaged { .. }), "{error:?}");
    assert!(error.to_string().contains("not what was published"), "{error}");
}

#[test]
fn a_policy_that_is_lost_is_not_taken_for_a_first_start() {
    let folder = used();
    force(&folder, "DELETE FROM policy_versions");
    let error = refused(&folder);
    assert!(matches!(error, StartError::Damaged { .. }), "{error:?}");
    assert!(error.to_string().contains("no policy"), "{error}");
}

#[test]
fn a_database_of_a_newer_version_is_left_alone() {
    let folder = used();
    let (truth, bytes) = if folder.home().is_postgres() { ("true", "'\\x00'") } else { ("1", "x'00'") };
    let future = format!(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'of the future', {truth}, {bytes}, 0)"
    );
    folder.home().execute(&future);
    let error = refused(&folder);
    assert!(matches!(error, StartError::Newer { found: 9_999, .. }), "{error:?}");
    assert!(error.to_string().contains("newer Tidegate"), "{error}");
    folder.home().execute("DELETE FROM _sqlx_migrations WHERE version = 9999");
    open(folder.home()).expect("it was left as it is");
}

#[test]
fn the_log_and_the_versions_are_only_added_to() {
    let folder = used();
    block_on(async {
        let mut connection = folder.home().connect().await;
        for sql in [
            "UPDATE audit SET actor = 'nobody'",
            "DELETE FROM audit",
            "UPDATE policy_versions SET author = 'nobody'",
            "DELETE FROM policy_versions",
        ] {
            let error = raw_sql(sql).execute(&mut connection).await.expect_err("it is refused");
            assert!(error.to_string().contains("only added to") || error.to_string().contains("never"), "{error}");
        }
        let lines: Vec<(String, String, String)> =
            sqlx::query_as("SELECT actor, action, result FROM audit ORDER BY id")
                .fetch_all(&mut connection)
                .await
                .expect("lines");
        let lines: Vec<(&str, &str, &str)> =
            lines.iter().map(|(a, b, c)| (a.as_str(), b.as_str(), c.as_str())).collect();
        assert_eq!(
            lines,
            [("tidegate", "policy.publish", "done"), ("ana", "setup", "done"), ("ana", "session.begin", "done")]
        );
        connection.close().await.expect("it closes");
    });
}

/// What versions of before changed is known from the audit log, as far as it has it.
#[test]
fn objects_of_older_versions_come_from_the_audit_log() {
    let (folder, server) = fresh();
    let ana = server.administrator();
    let (etag, mut free) = ana.tier("free");
    free["limits"][0]["limit"] = json!(7);
    assert_eq!(ana.publish_tier(1, &etag, &free).status, 201);
    let clients: Vec<Value> = (0..101)
        .map(|number| {
            let value = format!("u{number:03}");
            json!({ "op": "create", "kind": "client", "id": format!("user:{value}"), "value": { "kind": "user", "value": value, "tier": "pro" } })
        })
        .collect();
    let list = json!({ "base_version": 2, "message": "many", "changes": clients });
    assert_eq!(ana.post("/api/v1/policy/changes", &list).status, 201);
    drop(server);
    folder.home().execute(
        "DROP TABLE version_objects; ALTER TABLE policy_versions DROP COLUMN objects;
         DELETE FROM _sqlx_migrations WHERE version = 20",
    );
    let server = Server::start(folder.home());
    let ana = server.sign_in();
    let objects = |version: u64| ana.get(&format!("/api/v1/policy/versions/{version}")).json()["objects"].clone();
    let free = json!({ "kind": "tier", "domain": "default", "id": "free", "removed": false });
    assert_eq!(objects(2), json!({ "count": 1, "first": [free] }));
    assert_eq!((&objects(3)["count"], objects(3)["first"].as_array().map(Vec::len)), (&Value::Null, Some(10)));
    assert_eq!(objects(1), json!({ "count": null, "first": [] }));
    let of =
        |name: &str| ana.get(&format!("/api/v1/policy/versions?object=client:user:{name}")).json()["items"].clone();
    assert_eq!((of("u099")[0]["version"].clone(), of("u100")), (json!(3), json!([])));
    let (etag, mut free) = ana.tier("free");
    free["limits"][0]["limit"] = json!(8);
    assert_eq!(ana.publish_tier(3, &etag, &free).status, 201);
    assert_eq!(objects(4)["count"], 1);
}

/// What one of the databases cannot hold is refused by both, or kept by both, and is never the server's fault.
#[test]
fn no_text_is_too_strange() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    for path in ["drafts/%00", "drafts?cursor=2026-01-01T00:00:00Z,%00", "simulations/%00", "simulations?cursor=%00"] {
        let answer = ana.get(&format!("/api/v1/{path}"));
        let named = if path.contains('?') { json!("cursor") } else { Value::Null };
        assert_eq!(answer.json()["errors"][0]["parameter"], named, "{path}: {answer:?}");
        assert_eq!(answer.status, if named.is_null() { 404 } else { 422 }, "{path}: {answer:?}");
    }
    let draft = json!({ "base_version": 1, "message": "a\0b", "changes": [] });
    assert_eq!(ana.post("/api/v1/drafts", &draft).pointers(), ["/message"]);
    for name in ["a\0na", "\u{10ffff}", "' OR 1=1 --", "$1"] {
        let answer = ana.post("/api/v1/session", &json!({ "name": name, "password": "x\0y" }));
        assert_eq!(answer.status, 401, "{name:?}: {answer:?}");
    }
    for (value, status) in [("\0", 422), ("\u{10ffff}", 201), ("it's", 201), ("$1", 201)] {
        let client = json!({ "kind": "user", "value": value, "tier": "free", "note": "a\0b" });
        let list = json!({
            "base_version": 1, "message": "strange",
            "changes": [{ "op": "create", "kind": "client", "id": format!("user:{value}"), "value": client }],
        });
        let answer = ana.post("/api/v1/policy/changes", &list);
        assert_eq!(answer.status, status, "{value:?}: {answer:?}");
    }
}

/// A home that another server has made is opened, not made anew.
#[test]
fn a_restart_finds_everybody() {
    let folder = used();
    let server = Server::start(folder.home());
    assert_eq!(server.setup_path, None);
    server.sign_in();
}
