//! Opening a database: the first start, further ones, beside others; and a copy of it.

use std::{fs, sync::Barrier, thread};

use tempfile::TempDir;
use tidegate_testkit::{
    port::ReservedPort,
    postgres::{Database, block_on},
};

use crate::{
    base::startup_error::StartError,
    domain::version::Version,
    publish::stored_policy::write_first,
    store::{
        address::DatabaseUrl,
        backup::{BackupError, backup},
        data_directory::DataFolder,
        database::Store,
        tests::{Home, LINE},
    },
};

on_both! {
    a_second_start_finds_what_is_there,
    a_store_beside_others_must_be_made_already,
    the_name_of_a_store_shows_no_password,
    a_backup_is_a_database_of_its_own,
}

async fn newest(store: &Store) -> u64 {
    Version::newest(&mut store.reading().await.expect("a transaction")).await.expect("a number")
}

async fn never(_: &Store) -> sqlx::Result<()> {
    panic!("there is a policy already")
}

async fn a_second_start_finds_what_is_there(home: &Home) {
    home.store.audit(LINE).await.expect("it is written");
    let store = if let Some(url) = &home.url {
        let (store, is_first) = Store::of_server(url, never).await.expect("it opens");
        assert!(!is_first);
        store
    } else {
        home.store.close().await;
        let data = home.data.with_file_name("copy");
        fs::create_dir(&data).expect("a folder");
        fs::copy(home.data.join("tidegate.db"), data.join("tidegate.db")).expect("a copy");
        let mut folder = DataFolder::take(&data).expect("it is free");
        assert!(!folder.is_new());
        Store::open(&mut folder).await.expect("it opens")
    };
    assert_eq!(newest(&store).await, 1);
    assert_eq!(store.last_audit_lines(9).await.expect("lines").len(), 2);
}

async fn a_store_beside_others_must_be_made_already(home: &Home) {
    let other = home.another().await;
    home.store.audit(LINE).await.expect("it is written");
    assert_eq!(other.last_audit_lines(9).await.expect("lines").len(), 2);
    other.audit(LINE).await.expect("it is written");
    assert_eq!(home.store.last_audit_lines(9).await.expect("lines").len(), 3);
    let attach = async || Store::attach(&home.data, home.url.as_ref()).await.expect_err("it is refused");
    let (truth, bytes) = if home.is_postgres() { ("true", "'\\x00'") } else { ("1", "x'00'") };
    home.execute(&format!(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'of the future', {truth}, {bytes}, 0)"
    ))
    .await;
    assert!(matches!(attach().await, StartError::Newer { found: 9_999, .. }));
    home.execute("DELETE FROM _sqlx_migrations WHERE version > 18").await;
    let older = attach().await;
    assert!(matches!(older, StartError::Database { .. }) && older.to_string().contains("older build"), "{older}");
    if !home.is_postgres() {
        let missing = Store::attach(&home.data.join("absent"), None).await.expect_err("there is none");
        assert!(missing.to_string().contains("there is no database"), "{missing}");
    }
}

async fn the_name_of_a_store_shows_no_password(home: &Home) {
    let name = home.store.name();
    match &home.url {
        None => assert_eq!(name, home.data.join("tidegate.db").display().to_string()),
        Some(url) => {
            assert_eq!(name, url.to_string());
            let secret = home.store.pool.connect_options().database_url.password().expect("a password").to_owned();
            assert!(!name.contains(&secret) && !format!("{:?}", home.store.place).contains(&secret));
        }
    }
}

async fn a_backup_is_a_database_of_its_own(home: &Home) {
    let to = home.data.with_file_name("copy.db");
    home.store.audit(LINE).await.expect("it is written");
    let copied = backup(&home.data, home.url.as_ref(), &to).await;
    if home.is_postgres() {
        let refused = copied.expect_err("its own tools copy it");
        assert!(
            matches!(refused, BackupError::Postgres { .. }) && refused.to_string().contains("pg_dump"),
            "{refused}"
        );
        assert!(!to.exists());
        return;
    }
    let copied = copied.expect("it is copied");
    assert_eq!((copied.policy_version, copied.bytes), (1, fs::metadata(&to).expect("the copy").len()));
    let data = TempDir::new().expect("a folder");
    fs::copy(&to, data.path().join("tidegate.db")).expect("a copy");
    let mut folder = DataFolder::take(data.path()).expect("it is free");
    let store = Store::open(&mut folder).await.expect("it opens");
    assert_eq!(store.last_audit_lines(9).await.expect("lines").len(), 2, "what was not yet brought home too");
    assert!(matches!(backup(&home.data, None, &to).await, Err(BackupError::Exists(_))));
    assert!(matches!(
        backup(&home.data.join("absent"), None, &to.with_extension("2")).await,
        Err(BackupError::Missing(_))
    ));
    let left: Vec<_> = fs::read_dir(home.data.parent().expect("a folder"))
        .expect("files")
        .map(|file| file.expect("a file").file_name())
        .filter(|name| name.to_string_lossy().contains("unfinished"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Starts from an empty database, since the template has the tables already.
#[test]
#[ignore = "needs PostgreSQL"]
fn of_first_starts_at_once_one_fills_the_database() {
    let database = Database::empty();
    let (url, barrier) = (DatabaseUrl::new(database.url()), Barrier::new(4));
    let start = || {
        barrier.wait();
        block_on(async {
            let (store, is_first) = Store::of_server(&url, write_first).await.expect("it opens");
            let found = (newest(&store).await, store.last_audit_lines(9).await.expect("lines").len());
            store.close().await;
            (is_first, found)
        })
    };
    let started: Vec<_> = thread::scope(|scope| {
        let threads = [(); 4].map(|()| scope.spawn(start));
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    // Several may find it empty; one of them writes.
    assert!(started.iter().any(|(is_first, _)| *is_first), "{started:?}");
    assert!(started.iter().all(|(_, found)| *found == (1, 1)), "{started:?}");
}

#[tokio::test]
async fn a_folder_is_filled_once() {
    let data = TempDir::new().expect("a folder");
    let mut folder = DataFolder::take(data.path()).expect("it is free");
    let failed = Store::create(&mut folder, async |_| Err(sqlx::Error::RowNotFound)).await;
    assert!(matches!(failed, Err(StartError::Database { .. })));
    assert!(!data.path().join("tidegate.db").exists(), "it has its name only when it is whole");
    let store = Store::create(&mut folder, write_first).await.expect("it is made");
    assert_eq!(newest(&store).await, 1);
    drop(folder);
    store.close().await;
    let mut folder = DataFolder::take(data.path()).expect("it is free");
    assert!(!folder.is_new());
    assert_eq!(newest(&Store::open(&mut folder).await.expect("it opens")).await, 1);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    let dead = ReservedPort::new();
    let url = DatabaseUrl::new(format!("postgres://ana:hunter2@{}/tide", dead.address()));
    let data = TempDir::new().expect("a folder");
    for error in [
        Store::of_server(&url, never).await.map(drop).expect_err("there is no server"),
        Store::attach(data.path(), Some(&url)).await.map(drop).expect_err("there is no server"),
    ] {
        assert!(matches!(error, StartError::Unreachable { .. }), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }
}
