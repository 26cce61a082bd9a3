//! `PostgreSQL`: what keeps a server from starting on a database there, and what happens while it is away.

use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::{postgres::PgListener, query_scalar};
use tidegate_admin::{Periods, StartError};
use tidegate_testkit::postgres::Database;
use tokio::time::timeout;

use crate::{
    home::{Folder, Home, block_on},
    silence::Silence,
    support::{Server, open},
    two_servers::wait_for,
};

/// Ends every other connection to the database.
const CUT_OFF: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                       WHERE datname = current_database() AND pid <> pg_backend_pid();";

fn refused(home: &Home, words: &[&str]) -> StartError {
    let error = open(home).expect_err("it must not start");
    for word in words {
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
    error
}

#[test]
#[ignore = "needs PostgreSQL"]
fn a_database_of_somebody_else_is_not_taken() {
    let folder = Folder::untouched_on_server();
    folder.home().execute("CREATE TABLE thesis (x int)");
    let error = refused(folder.home(), &["thesis", "--database"]);
    assert!(matches!(error, StartError::ForeignTables { .. }), "{error:?}");
    // Another program that keeps its migrations as we do.
    let folder = Folder::untouched_on_server();
    folder.home().execute(
        "CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY, description TEXT, success BOOLEAN, checksum BYTEA,
         execution_time BIGINT); INSERT INTO _sqlx_migrations VALUES (1, 'theirs', true, '\\x00', 0)",
    );
    refused(folder.home(), &["another program"]);
}

/// The server of `scripts/postgres` asks for passwords.
#[test]
#[ignore = "needs PostgreSQL"]
fn who_may_not_is_told_what_to_do_and_no_password_is_shown() {
    let folder = Folder::untouched_on_server();
    let (user, password) = (format!("eve_{}", std::process::id()), "hunter2");
    Database::maintain(&format!("CREATE ROLE {user} LOGIN PASSWORD '{password}'"));
    let with = |user: &str, password: &str| {
        folder.home().altered(|url| {
            let (_, rest) = url.split_once('@').expect("an address with a user");
            format!("postgres://{user}:{password}@{rest}")
        })
    };
    for (home, words) in [
        (with(&user, "hunter22"), ["refuses the user or the password", "postgres://USER:PASSWORD@HOST"]),
        (with("nobody", password), ["refuses the user or the password", "nobody@"]),
        // She may look, and not make tables.
        (with(&user, password), ["permission denied", "owner of the database"]),
        (
            folder.home().altered(|url| url.replace("tidegate_test_", "absent_")),
            ["no such database", "createdb absent_"],
        ),
    ] {
        let error = refused(&home, &words);
        assert!(!format!("{error} {error:?}").contains(password), "{error:?}");
    }
    Database::maintain(&format!("DROP ROLE {user}"));
    // A server whose certificate is not signed by whom the address names is not talked to.
    let distrusted = folder.home().altered(|url| url.split_once("&sslrootcert").expect("a certificate").0.to_owned());
    refused(&distrusted, &["cannot be reached", "certificate"]);
}

#[test]
#[ignore = "needs PostgreSQL"]
fn a_server_that_takes_no_changes_is_not_opened() {
    let (folder, server) = Folder::on_server();
    drop(server);
    let separator = |url: &str| if url.contains('?') { '&' } else { '?' };
    let read_only = "options=-c%20default_transaction_read_only%3Don";
    let standby = folder.home().altered(|url| format!("{url}{}{read_only}", separator(url)));
    let error = refused(&standby, &["standby", "--database"]);
    assert!(matches!(error, StartError::Standby(_)), "{error:?}");
}

/// A start that was killed between its migrations and its first policy is finished by the next.
#[test]
#[ignore = "needs PostgreSQL"]
fn a_first_start_that_broke_off_is_finished() {
    let (folder, server) = Folder::on_server();
    drop(server);
    folder.home().execute("SET session_replication_role = replica; TRUNCATE audit, policy_versions, policy_revisions, policy_removals, version_objects, policy_files, publish_keys CASCADE");
    let server = Server::start(folder.home());
    assert_eq!(server.engine.version(), 1);
}

#[test]
#[ignore = "needs PostgreSQL"]
fn connections_that_are_cut_off_are_made_anew() {
    let (folder, a) = Folder::on_server();
    let b = Server::start(folder.home());
    let ana = a.administrator();
    for round in 1..=5 {
        // The notification of this publish finds nobody who listens.
        folder.home().execute(CUT_OFF);
        let (etag, mut free) = ana.tier("free");
        free["limits"][0]["limit"] = json!(1_000 + round);
        assert_eq!(ana.publish_tier(round, &etag, &free).status, 201);
        wait_for(&b, round + 1);
    }
}

#[test]
#[ignore = "needs PostgreSQL"]
fn checks_go_on_while_the_database_is_away() {
    let (folder, server) = Folder::on_server();
    let ana = server.administrator();
    let (etag, mut free) = ana.tier("free");
    free["limits"][0]["limit"] = json!(7);
    let url = folder.home().url().expect("an address").to_string();
    let name = url.rsplit_once('/').expect("a name").1;
    let allow = |allowed: bool| Database::maintain(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {allowed}"));
    allow(false);
    Database::maintain(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"));
    let refused = ana.publish_tier(1, &etag, &free);
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("storage")), "{refused:?}");
    assert!(server.check("ada").is_allowed());
    assert_eq!(server.engine.version(), 1, "nothing came into force");
    allow(true);
    assert_eq!(ana.publish_tier(1, &etag, &free).status, 201);
}

/// A backup that was put back under a running server is not published on.
#[test]
#[ignore = "needs PostgreSQL"]
fn a_database_that_went_back_in_time_takes_no_publish() {
    let (folder, server) = Folder::on_server();
    let ana = server.administrator();
    let (etag, mut free) = ana.tier("free");
    free["limits"][0]["limit"] = json!(7);
    assert_eq!(ana.publish_tier(1, &etag, &free).status, 201);
    folder.home().execute("SET session_replication_role = replica; DELETE FROM policy_versions WHERE version = 2");
    free["limits"][0]["limit"] = json!(8);
    let refused = ana.publish_tier(2, "\"tier:free:2\"", &free);
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.text.contains("restart"), "{refused:?}");
}

/// A copy that was behind may have come to the same number by a publish of its own.
#[test]
#[ignore = "needs PostgreSQL"]
fn a_database_with_another_history_takes_no_publish() {
    let (folder, server) = Folder::on_server();
    let ana = server.administrator();
    let (etag, mut free) = ana.tier("free");
    free["limits"][0]["limit"] = json!(7);
    assert_eq!(ana.publish_tier(1, &etag, &free).status, 201);
    folder.home().execute(
        "SET session_replication_role = replica;
         UPDATE policy_versions SET published_at = '2026-01-01T00:00:00Z' WHERE version = 2",
    );
    let refused = ana.publish_tier(2, "\"tier:free:2\"", &free);
    assert_eq!((refused.status, refused.text.contains("restart")), (503, true), "{refused:?}");
}

/// A server that ends while it commits may have kept the change all the same.
#[test]
#[ignore = "needs PostgreSQL"]
fn an_error_of_a_commit_that_may_have_been_done_is_an_unknown_outcome() {
    let (folder, server) = Folder::on_server();
    let ana = server.administrator();
    let (etag, mut free) = ana.tier("free");
    free["limits"][0]["limit"] = json!(7);
    for (state, code) in [("57P01", "outcome_unknown"), ("40003", "outcome_unknown"), ("53100", "storage")] {
        folder.home().execute(&format!(
            "CREATE OR REPLACE FUNCTION break_off() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'broken off' USING ERRCODE = '{state}'; END $$;
             DROP TRIGGER IF EXISTS break_off ON policy_versions;
             CREATE CONSTRAINT TRIGGER break_off AFTER INSERT ON policy_versions
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION break_off()"
        ));
        let refused = ana.publish_tier(1, &etag, &free);
        assert_eq!((refused.status, &refused.json()["code"]), (503, &json!(code)), "{state}: {refused:?}");
    }
    folder.home().execute("DROP TRIGGER break_off ON policy_versions");
    assert_eq!(ana.publish_tier(1, &etag, &free).status, 201);
}

/// A machine that goes away sends no word, so connections to it stay, and are silent.
#[test]
#[ignore = "needs PostgreSQL"]
fn connections_that_fall_silent_are_given_up() {
    fall_silent(Duration::from_secs(1));
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: the twenty seconds for which a silent database is waited for"]
    fn connections_that_fall_silent_are_given_up_after_twenty_seconds() {
        fall_silent(Periods::default().look_timeout);
    }
}

fn fall_silent(look_timeout: Duration) {
    let (folder, a) = Folder::on_server();
    let silence = Silence::before(folder.home().database().0);
    let b = Server::start_with(&silence.home(folder.home()), |settings| {
        settings.periods.look_timeout = look_timeout;
    });
    let ana = a.administrator();
    silence.fall();
    let (etag, mut free) = ana.tier("free");
    free["limits"][0]["limit"] = json!(7);
    assert_eq!(ana.publish_tier(1, &etag, &free).status, 201);
    wait_for(&b, 2);
}

/// Nor is a server kept from ending by them.
#[test]
#[ignore = "needs PostgreSQL"]
#[expect(clippy::disallowed_methods, reason = "how long it takes to end is what this is about")]
fn a_server_ends_though_its_database_is_silent() {
    let (folder, _a) = Folder::on_server();
    let silence = Silence::before(folder.home().database().0);
    let mut b = Server::start(&silence.home(folder.home()));
    silence.fall();
    let began = Instant::now();
    b.stop();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// Another server hears of a publish at once, not only when it asks.
#[test]
#[ignore = "needs PostgreSQL"]
fn a_publish_is_announced_and_heard() {
    let (folder, server) = Folder::on_server();
    let ana = server.administrator();
    let (etag, mut free) = ana.tier("free");
    free["limits"][0]["limit"] = json!(7);
    block_on(async {
        let mut listener = PgListener::connect(&folder.home().database().1).await.expect("it connects");
        listener.listen("tidegate_published").await.expect("it listens");
        assert_eq!(ana.publish_tier(1, &etag, &free).status, 201);
        let heard = timeout(Duration::from_secs(30), listener.recv()).await.expect("it is announced");
        assert_eq!(heard.expect("a notification").channel(), "tidegate_published");
        let listens = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                       AND query LIKE 'LISTEN %tidegate_published%'";
        let listeners = query_scalar(listens).fetch_one(&mut folder.home().connect().await).await;
        assert_eq!(listeners.ok(), Some(2_i64), "the test and the server");
    });
}
