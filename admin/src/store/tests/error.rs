//! What can be wrong with a database, and how the store says so.

use std::fs;

use sqlx::{Connection, error::DatabaseError, query, raw_sql};

use crate::{
    domain::version::{Carries, Version},
    store::{
        audit::Audit,
        database::{Place, Store},
        drafts::{Draft, DraftCaps, DraftOutcome},
        error::{Broken, Trouble, trouble},
        tests::{Home, LINE},
        versions::NewVersion,
    },
};

on_both! {
    what_is_there_already_is_no_trouble,
    a_database_that_takes_no_changes_is_told,
    a_database_that_others_have_is_busy,
    a_database_without_room_is_full,
    a_database_that_is_away_is_told,
    a_commit_that_may_have_been_done_is_an_unknown_outcome,
    a_text_that_the_database_cannot_hold_is_told,
    what_is_wrong_with_a_statement_is_no_trouble,
}

fn is(error: &sqlx::Error, expected: fn(&Trouble) -> bool) {
    assert!(trouble(error).as_ref().is_some_and(expected), "{error:?} is {:?}", trouble(error));
}

async fn what_is_there_already_is_no_trouble(home: &Home) {
    let again = "INSERT INTO token_names (name) VALUES ('ci')";
    home.execute(again).await;
    let error = query(again).execute(&home.store.pool).await.expect_err("it is there");
    assert!(error.as_database_error().is_some_and(DatabaseError::is_unique_violation), "{error}");
    assert!(trouble(&error).is_none());
    let absent = "INSERT INTO rollout (id, version, keeps, nodes, author, since) VALUES (1, 9, 9, '[]', '', '')";
    let error = query(absent).execute(&home.store.pool).await.expect_err("there is no such version");
    assert!(error.as_database_error().is_some_and(DatabaseError::is_foreign_key_violation), "{error}");
    assert!(trouble(&error).is_none());
}

async fn a_database_that_takes_no_changes_is_told(home: &Home) {
    let sql = if home.is_postgres() { "SET default_transaction_read_only = on" } else { "PRAGMA query_only = ON" };
    let store = home.with_one_connection(sql).await;
    is(&store.audit(LINE).await.expect_err("it only reads"), |trouble| matches!(trouble, Trouble::ReadOnly));
    is(&store.try_writing("n", 1).await.expect_err("it only reads"), |trouble| matches!(trouble, Trouble::ReadOnly));
    assert_eq!(store.last_audit_lines(9).await.expect("lines").len(), 1, "it can be read");
}

async fn a_database_that_others_have_is_busy(home: &Home) {
    let sql = if home.is_postgres() { "SET lock_timeout = '20ms'" } else { "PRAGMA busy_timeout = 20" };
    let store = home.with_one_connection(sql).await;
    let change = home.store.change().await.expect("a change");
    is(&store.change().await.expect_err("another process changes something"), |trouble| {
        matches!(trouble, Trouble::Busy)
    });
    is(&store.audit(LINE).await.expect_err("the same"), |trouble| matches!(trouble, Trouble::Busy));
    assert_eq!(store.newest_audit().await.expect("a number"), 1, "readers do not wait");
    drop(change);
    store.audit(LINE).await.expect("it is free");
}

async fn a_database_without_room_is_full(home: &Home) {
    let large = "x".repeat(1 << 20);
    let error = if home.is_postgres() {
        raise(home, "53100").await;
        publish(&home.store).await.expect_err("there is no room")
    } else {
        let store = home.with_one_connection("PRAGMA max_page_count = 1").await;
        store.audit(Audit { object: &large, ..LINE }).await.expect_err("there is no room")
    };
    is(&error, |trouble| matches!(trouble, Trouble::Full));
    home.store.audit(LINE).await.expect("there is room for others");
}

async fn a_database_that_is_away_is_told(home: &Home) {
    let store = &home.store;
    match &store.place {
        Place::File(file) => {
            let elsewhere = file.path.with_extension("elsewhere");
            fs::rename(&file.path, &elsewhere).expect("it moves");
            let gone = store.change().await.expect_err("the file is gone");
            is(&gone, |trouble| matches!(trouble, Trouble::Gone));
            assert!(gone.to_string().contains("removed or replaced"), "{gone}");
            // Another file under its name is not taken for it.
            fs::copy(&elsewhere, &file.path).expect("a copy");
            is(&store.audit(LINE).await.expect_err("it is another"), |trouble| matches!(trouble, Trouble::Gone));
            fs::rename(&elsewhere, &file.path).expect("it moves back");
        }
        Place::Server(_) => {
            let name = home.url.as_ref().expect("an address").to_string();
            let name = name.rsplit_once('/').expect("a name").1;
            let server = store.pool.connect_options().database_url.to_string();
            let server = server.replace(name, "postgres");
            let maintain = async |sql: String| {
                let mut connection = sqlx::AnyConnection::connect(&server).await.expect("the server");
                raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.expect("it is done");
                connection.close().await.expect("it closes");
            };
            let change = store.change().await.expect("a change");
            maintain(format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false")).await;
            maintain(format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")).await;
            is(&store.keep(change).await.expect_err("its connection is cut off"), |trouble| {
                matches!(trouble, Trouble::Unknown)
            });
            is(&store.change().await.expect_err("it is away"), |trouble| matches!(trouble, Trouble::Unreachable));
            is(&store.newest_audit().await.expect_err("it is away"), |trouble| matches!(trouble, Trouble::Unreachable));
            maintain(format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true")).await;
        }
    }
    store.audit(LINE).await.expect("it is back");
    assert_eq!(home.lines("test").await, 1);
}

/// Publishes version 2.
async fn publish(store: &Store) -> sqlx::Result<()> {
    let version = Version {
        version: 2,
        sha256: String::new(),
        author: String::new(),
        message: String::new(),
        published_at: "2026-01-01T00:00:00Z".to_owned(),
        carry: Carries::default(),
        follows: 1,
    };
    let new = NewVersion {
        version: &version,
        document: "",
        kept: None,
        touched: &[],
        removed: &[],
        objects: &[],
        answered: None,
        file: None,
        rollout: None,
        audit: &[],
    };
    let change = store.change().await?;
    store.add_version(change, new).await
}

/// Makes every commit of a version fail in `PostgreSQL` with this state.
async fn raise(home: &Home, state: &str) {
    home.execute(&format!(
        "CREATE OR REPLACE FUNCTION break_off() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN RAISE EXCEPTION 'broken off' USING ERRCODE = '{state}'; END $$;
         DROP TRIGGER IF EXISTS break_off ON policy_versions;
         CREATE CONSTRAINT TRIGGER break_off AFTER INSERT ON policy_versions
         DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION break_off()"
    ))
    .await;
}

async fn a_commit_that_may_have_been_done_is_an_unknown_outcome(home: &Home) {
    let store = &home.store;
    if home.is_postgres() {
        for state in ["57P01", "40003", "08006", "58030"] {
            raise(home, state).await;
            let error = publish(store).await.expect_err(state);
            is(&error, |trouble| matches!(trouble, Trouble::Unknown));
        }
        raise(home, "40001").await;
        is(&publish(store).await.expect_err("it is told what became of it"), |trouble| {
            matches!(trouble, Trouble::Busy)
        });
        raise(home, "23514").await;
        assert!(trouble(&publish(store).await.expect_err("it is refused")).is_none(), "a refusal is no trouble");
        home.execute("DROP TRIGGER break_off ON policy_versions").await;
    } else {
        // A reference that is looked at when the change ends is refused, and that is known.
        let mut change = store.change().await.expect("a change");
        raw_sql("PRAGMA defer_foreign_keys = ON").execute(&mut *change).await.expect("it is set");
        let absent = "INSERT INTO rollout (id, version, keeps, nodes, author, since) VALUES (1, 9, 9, '[]', '', '')";
        query(absent).execute(&mut *change).await.expect("it is looked at later");
        assert!(trouble(&store.keep(change).await.expect_err("it is refused")).is_none(), "a refusal is no trouble");
    }
    publish(store).await.expect("it is kept");
    let unknown = sqlx::Error::from(Broken::Unknown("no answer".to_owned()));
    is(&unknown, |trouble| matches!(trouble, Trouble::Unknown));
    assert!(unknown.to_string().contains("whether the change was kept is unknown: no answer"), "{unknown}");
}

async fn a_text_that_the_database_cannot_hold_is_told(home: &Home) {
    let strange = Draft {
        id: "a".to_owned(),
        author: "ana".to_owned(),
        message: "a\0b".to_owned(),
        saved_at: "2026-01-01T00:00:00Z".to_owned(),
        ends_at: "2027-01-01T00:00:00Z".to_owned(),
    };
    let added = home.store.add_draft(&strange, "", "2026-01-01T00:00:00Z", DraftCaps { all: 9, author: 9 }, LINE).await;
    if home.is_postgres() {
        is(&added.expect_err("it cannot hold a NUL"), |trouble| matches!(trouble, Trouble::Text));
        is(&home.store.login("a\0b").await.expect_err("nor look for one"), |trouble| matches!(trouble, Trouble::Text));
    } else {
        assert_eq!(added.expect("it holds a NUL"), DraftOutcome::Saved);
        let (found, _) = home.store.draft("a", "2026-01-01T00:00:00Z").await.expect("an answer").expect("the draft");
        assert_eq!(found.message, "a\0b");
    }
    home.store.audit(LINE).await.expect("it goes on");
}

async fn what_is_wrong_with_a_statement_is_no_trouble(home: &Home) {
    for sql in ["SELECT nothing FROM nowhere", "SELEC 1"] {
        let error = query(sql).execute(&home.store.pool).await.expect_err(sql);
        assert!(trouble(&error).is_none(), "{error:?}");
    }
    let mut change = home.store.change().await.expect("a change");
    query("SELECT nothing FROM nowhere").execute(&mut *change).await.expect_err("there is no such table");
    drop(change);
    home.store.audit(LINE).await.expect("the connection is whole");
}
