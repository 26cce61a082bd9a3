//! `SQLite`'s file: one that is missing, read-only, damaged, foreign or newer stops the start with a message, and is left as
//! it is.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use tempfile::TempDir;
use tidegate_admin::StartError;
use tidegate_testkit::wait_until;

use crate::{
    home::{Folder, Home},
    support::{self, Server},
};

fn fresh() -> (Folder, Server) {
    let folder = Folder::with_file();
    let server = Server::start(folder.home());
    (folder, server)
}

fn data_of(folder: &Folder) -> PathBuf {
    folder.home().data.clone()
}

fn open(data: &Path) -> Result<(), StartError> {
    support::open(&Home::in_file(data))
}

/// A data folder with a database, whose server is stopped.
fn used() -> (Folder, PathBuf) {
    let (folder, mut server) = fresh();
    server.administrator();
    server.stop();
    let data = data_of(&folder);
    // A connection that was on its way back to the pool when its thread ended is closed a moment later.
    wait_until("the log is brought home", || !data.join("tidegate.db-wal").exists());
    (folder, data)
}

fn database(data: &Path) -> PathBuf {
    data.join("tidegate.db")
}

/// The start is refused for this reason, in these words, and the database is the very same afterwards.
fn assert_refused(data: &Path, words: &str, reason: impl Fn(&StartError) -> bool) {
    let before = fs::read(database(data)).ok();
    let error = open(data).expect_err("it must not start");
    assert!(reason(&error), "{error:?}");
    assert!(error.to_string().contains(words), "{error}");
    assert_eq!(fs::read(database(data)).ok(), before, "nothing was changed");
}

fn change(data: &Path, sql: &str) {
    Home::in_file(data).execute(sql);
}

#[test]
fn a_database_that_is_missing_is_missed() {
    let (_folder, data) = used();
    fs::remove_file(database(&data)).expect("it was there");
    assert_refused(&data, "put it back from a backup", |error| matches!(error, StartError::Missing(_)));
    assert!(!database(&data).exists(), "no empty one took its place");
}

#[test]
fn a_database_that_is_read_only_is_not_opened() {
    let (_folder, data) = used();
    fs::set_permissions(database(&data), Permissions::from_mode(0o444)).expect("it is ours");
    assert_refused(&data, "read-only", |error| matches!(error, StartError::ReadOnly(_)));
    fs::set_permissions(database(&data), Permissions::from_mode(0o600)).expect("it is ours");
    open(&data).expect("all is well again");
}

#[test]
fn a_database_that_is_damaged_is_not_opened() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage, &str); 5] = [
        ("empty", |bytes| bytes.clear(), "empty"),
        ("cut short", |bytes| bytes.truncate(bytes.len() / 2), "damaged"),
        ("its first page overwritten", |bytes| bytes[..4_096].fill(b'x'), "not a Tidegate database"),
        ("its pages overwritten", |bytes| bytes[4_096..].fill(0xa5), "damaged"),
        ("another file", |bytes| *bytes = b"hello\n".to_vec(), "not a Tidegate database"),
    ];
    for (what, damage, words) in damages {
        let (_folder, data) = used();
        let mut bytes = fs::read(database(&data)).expect("it is there");
        damage(&mut bytes);
        fs::write(database(&data), bytes).expect("it is ours");
        assert_refused(&data, words, |error| {
            assert!(matches!(error, StartError::Damaged { .. } | StartError::Foreign(_)), "{what}: {error:?}");
            true
        });
    }
}

/// Without a write-ahead log a look must not bring one in.
fn leave_wal(data: &Path) {
    change(data, "PRAGMA journal_mode = DELETE;");
}

#[test]
fn a_database_of_a_newer_version_is_left_alone() {
    let (_folder, data) = used();
    leave_wal(&data);
    change(
        &data,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'of the future', 1, x'00', 0);",
    );
    assert_refused(&data, "newer Tidegate", |error| matches!(error, StartError::Newer { found: 9_999, .. }));
}

#[test]
fn a_folder_of_somebody_else_is_not_taken() {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("thesis.tex"), "years").expect("it is ours");
    assert_refused(folder.path(), "thesis.tex", |error| matches!(error, StartError::NotEmpty { .. }));
    assert!(!database(folder.path()).exists());
    // Another program's database under our name.
    let folder = TempDir::new().expect("a folder");
    fs::write(database(folder.path()), "").expect("it is ours");
    change(folder.path(), "CREATE TABLE t (x)");
    assert_refused(folder.path(), "not a Tidegate database", |error| matches!(error, StartError::Foreign(_)));
    assert_eq!(fs::read(folder.path().join("tidegate.lock")).expect("a lock"), b"", "the folder is not marked as ours");
    // Not even a file.
    let folder = TempDir::new().expect("a folder");
    fs::create_dir(database(folder.path())).expect("it is ours");
    assert_refused(folder.path(), "not a Tidegate database", |error| matches!(error, StartError::Foreign(_)));
}

#[test]
fn a_database_that_is_removed_while_it_is_open_takes_no_publish() {
    let (folder, server) = fresh();
    let ana = server.administrator();
    let (etag, mut free) = ana.tier("free");
    free["limits"][0]["limit"] = serde_json::json!(7);
    let data = data_of(&folder);
    fs::rename(database(&data), data.join("elsewhere.db")).expect("it is ours");
    let refused = ana.publish_tier(1, &etag, &free);
    assert_eq!((refused.status, &refused.json()["code"]), (503, &serde_json::json!("storage")), "{refused:?}");
    assert_eq!(server.engine.version(), 1, "nothing came into force");
    fs::rename(data.join("elsewhere.db"), database(&data)).expect("it is ours");
    assert_eq!(ana.publish_tier(1, &etag, &free).status, 201);
}

#[test]
fn one_process_has_the_folder() {
    let (folder, server) = fresh();
    let error = open(&data_of(&folder)).expect_err("it is taken");
    assert!(matches!(error, StartError::InUse(_)), "{error:?}");
    // Also when somebody tidied up.
    fs::remove_file(data_of(&folder).join("tidegate.lock")).expect("it is ours");
    let error = open(&data_of(&folder)).expect_err("it is taken");
    assert!(matches!(error, StartError::InUse(_)), "{error:?}");
    drop(server);
    open(&data_of(&folder)).expect("it is free");
}

#[test]
fn only_its_owner_can_open_a_database() {
    let (_folder, data) = used();
    let modes = || {
        ["", "tidegate.db", "tidegate.lock"]
            .map(|name| fs::metadata(data.join(name)).expect("it is there").permissions().mode() & 0o777)
    };
    assert_eq!(modes(), [0o700, 0o600, 0o600]);
    // Older builds left these modes in a folder that was there before the first start.
    fs::set_permissions(&data, Permissions::from_mode(0o755)).expect("it is ours");
    fs::set_permissions(database(&data), Permissions::from_mode(0o644)).expect("it is ours");
    open(&data).expect("it opens");
    assert_eq!(modes(), [0o755, 0o600, 0o600]);
    fs::set_permissions(&data, Permissions::from_mode(0o777)).expect("it is ours");
    assert_refused(&data, "chmod 700", |error| matches!(error, StartError::WritableByAll(_)));
}

#[test]
fn a_first_start_that_broke_off_is_begun_anew() {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("tidegate.lock"), "").expect("it is ours");
    fs::write(folder.path().join("tidegate.db.new"), "half").expect("it is ours");
    fs::write(folder.path().join("tidegate.db.new-wal"), "half").expect("it is ours");
    let server = Server::start(&Home::in_file(folder.path()));
    assert_eq!(server.engine.version(), 1);
    let files: Vec<_> =
        fs::read_dir(folder.path()).expect("it is there").map(|file| file.expect("a file").file_name()).collect();
    assert!(!files.iter().any(|file| file.to_string_lossy().starts_with("tidegate.db.new")), "{files:?}");
}
