//! Tests of the database on the command line: where it is, errors of opening it, and its copies. No password is ever shown.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tidegate_testkit::{port::ReservedPort, postgres::Database, process, wait_for};

use crate::support::{
    Run, SERVE, binary, command,
    server::Served,
    session::{Session, in_force},
    tidegate,
};

const SECRET: &str = "hunter2";

fn assert_says(run: &Run, words: &[&str]) {
    assert_eq!(run.status, Some(2), "{run:?}");
    for word in words {
        assert!(run.stderr.contains(word), "{word}: {run:?}");
    }
    assert!(!format!("{run:?}").contains(SECRET), "{run:?}");
}

#[test]
fn errors_of_opening_a_database_do_not_show_its_password() {
    // Nothing listens there.
    let port = ReservedPort::new();
    let free = port.address();
    let unreachable = format!("postgres://ana:{SECRET}@{free}/tide");
    for (url, words) in [
        (unreachable.as_str(), vec![&*format!("postgres://ana@{free}/tide"), "cannot be reached", "refused"]),
        ("postgres://ana:hunter2@host.invalid/tide", vec!["postgres://ana@host.invalid/tide", "cannot be reached"]),
        (
            "mysql://ana:hunter2@localhost/tide",
            vec!["--database", "`mysql` is not known", "postgres://USER:PASSWORD@HOST"],
        ),
        ("sqlite:///tmp/hunter2", vec!["--data"]),
        ("postgres://ana:hunter2@localhost:port/tide", vec!["--database", "%40"]),
        ("postgres://ana@localhost/tide?pasword=hunter2", vec!["`pasword` is not known"]),
        (SECRET, vec!["--database", "postgres://USER:PASSWORD@HOST"]),
    ] {
        assert_says(&tidegate([&SERVE[..], &["--database", url]].concat()), &words);
        let output = command().args(SERVE).env("TIDEGATE_DATABASE", url).output().expect("it runs");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(said.contains(words[0]) && !said.contains(SECRET), "{said}");
    }
}

#[test]
fn help_and_errors_in_the_file_show_no_password() {
    let folder = TempDir::new().expect("a folder");
    for arguments in [
        &["serve", "--help"][..],
        &["serve", "-h"],
        &["admin", "backup", "--help"],
        &[&SERVE[..], &["--max-keys", "0"]].concat(),
    ] {
        let url = format!("postgres://ana:{SECRET}@localhost/tide");
        let output = command().args(arguments).env("TIDEGATE_DATABASE", url).output().expect("it runs");
        assert!(!format!("{output:?}").contains(SECRET) && output.stdout.is_ascii(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(!text.contains(SECRET) && !text.is_empty(), "{text}");
    }
    for (settings, words) in [
        ("seed = 1\ndatabase = \"postgres://ana:hunter2@localhost/tide", "line 2"),
        ("database = postgres://ana:hunter2@localhost/tide", "line 1"),
        ("database = [\"postgres://ana:hunter2@localhost/tide\"]", "database: a list stands here; write a text"),
        ("database = \"nothing://ana:hunter2@localhost/tide\"", "`nothing` is not known"),
    ] {
        fs::write(folder.path().join("tidegate.toml"), settings).expect("it is ours");
        let output = command().args(SERVE).current_dir(folder.path()).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(words) && !said.contains(SECRET), "{said}");
    }
}

fn backup(data: &Path, file: &Path) -> Run {
    tidegate(["admin", "backup", "--data", data.to_str().expect("text"), file.to_str().expect("text")])
}

/// Returns a command that runs the binary with a umask that takes nothing from the modes of new files.
fn command_without_umask() -> Command {
    let mut command = process::command("sh");
    command.env_clear().args(["-c", "umask 000; exec \"$0\" \"$@\""]).arg(binary());
    command
}

#[test]
fn only_the_owner_can_open_the_files_under_any_umask() {
    let folder = TempDir::new().expect("a folder");
    let (data, copy, said) = (folder.path().join("data"), folder.path().join("copy.db"), folder.path().join("said"));
    fs::create_dir(&data).expect("it is ours");
    fs::set_permissions(&data, Permissions::from_mode(0o755)).expect("it is ours");
    let mut serve = command_without_umask();
    serve.args(SERVE).arg("--data").arg(&data).stderr(File::create(&said).expect("it is ours"));
    let served = Served::started(serve);
    let _session = Session::of_first_administrator(&served);
    let copied = command_without_umask().args(["admin", "backup", "--data"]).args([&data, &copy]).output();
    let copied = copied.expect("it runs");
    assert!(copied.status.success(), "{copied:?}");
    let files = ["tidegate.db", "tidegate.db-wal", "tidegate.db-shm", "tidegate.lock"].map(|name| data.join(name));
    for file in files.iter().chain([&copy]) {
        let mode = fs::metadata(file).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
    let said = fs::read_to_string(said).expect("text");
    assert!(said.contains(&format!("chmod 700 {}", data.display())), "{said}");
}

/// Starts a server on a copy of the database, and returns the version in force.
fn version_of(copy: &Path, session: &Session) -> (u64, u64) {
    let folder = TempDir::new().expect("a folder");
    fs::copy(copy, folder.path().join("tidegate.db")).expect("it is there");
    let served = Served::start(folder.path());
    in_force(&served, session)
}

/// Publishes in a loop while `during` runs, and passes it the version that was acknowledged last.
fn publishing(served: &Served, session: &Session, during: impl FnOnce(&dyn Fn() -> u64)) {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    let (acknowledged, is_over) = (AtomicU64::new(1), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            for version in 1.. {
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                let etag = format!("\"tier:free:{version}\"");
                let next = session.publish(&served.admin, version, &etag, 1_001 + version).expect("it is published");
                acknowledged.store(next, Ordering::SeqCst);
            }
        });
        during(&|| acknowledged.load(Ordering::SeqCst));
        is_over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn a_copy_made_during_publishes_has_every_acknowledged_version() {
    let folder = TempDir::new().expect("a folder");
    let data = folder.path().join("data");
    let served = Served::start(&data);
    let session = Session::of_first_administrator(&served);
    publishing(&served, &session, |acknowledged| {
        for number in 0..5 {
            let before = acknowledged();
            let copy = folder.path().join(format!("copy-{number}.db"));
            let run = backup(&data, &copy);
            assert_eq!((run.status, &*run.stderr), (Some(0), ""), "{run:?}");
            let mode = fs::metadata(&copy).expect("it is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "password hashes are in it");
            let (version, limit) = version_of(&copy, &session);
            assert!(version >= before, "{version} after {before} was acknowledged");
            assert_eq!(limit, if version == 1 { 100 } else { 1_000 + version }, "a whole version");
            assert!(run.stdout.contains(&format!("policy version {version}, ")), "{run:?}");
            // Let some be published before the next.
            while acknowledged() < before + 3 {
                thread::sleep(Duration::from_millis(5));
            }
        }
    });
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).expect("it is there").map(|e| e.expect("a file").file_name()).collect();
    names.sort();
    assert_eq!(names, ["copy-0.db", "copy-1.db", "copy-2.db", "copy-3.db", "copy-4.db", "data"], "and nothing else");
}

/// The copying is killed at all stages: under the name of the copy there is a whole one, or none.
#[test]
#[expect(clippy::disallowed_methods, reason = "how long a copy takes here is measured, to kill at all its places")]
fn a_copy_that_is_killed_leaves_no_partial_file_under_its_name() {
    const KILLS: u32 = 60;
    /// The most rounds over all stages of a copy. A copy may take longer than the one that was measured.
    const ROUNDS: u32 = 10;
    let folder = TempDir::new().expect("a folder");
    let data = folder.path().join("data");
    let served = Served::start(&data);
    let session = Session::of_first_administrator(&served);
    for version in 1..30 {
        session.publish(&served.admin, version, &format!("\"tier:free:{version}\""), 1_001 + version);
    }
    let began = Instant::now();
    assert_eq!(backup(&data, &folder.path().join("first.db")).status, Some(0));
    let mut longest = began.elapsed() * 3 / 2;
    let (mut whole, mut unfinished) = (0, 0);
    for kill in 0..ROUNDS * KILLS {
        if kill > 0 && kill % KILLS == 0 {
            match (whole, unfinished) {
                (0, _) => longest *= 2,
                (_, 0) => longest /= 2,
                _ => break,
            }
        }
        let place = folder.path().join(kill.to_string());
        fs::create_dir(&place).expect("it is ours");
        let copy = place.join("copy.db");
        let mut child = command()
            .args(["admin", "backup", "--data"])
            .args([&data, &copy])
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        thread::sleep(longest * (kill % KILLS) / KILLS);
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
        if copy.exists() {
            whole += 1;
            assert_eq!(version_of(&copy, &session), (30, 1_030));
        } else {
            unfinished += u32::from(fs::read_dir(&place).expect("it is there").next().is_some());
        }
    }
    assert!(whole > 0 && unfinished > 0, "{whole} whole, {unfinished} begun and not finished");
}

#[test]
fn a_harmful_or_impossible_copy_is_rejected() {
    let folder = TempDir::new().expect("a folder");
    let data = folder.path().join("data");
    let served = Served::start(&data);
    let there = folder.path().join("there.db");
    fs::write(&there, "precious").expect("it is ours");
    assert_says(&backup(&data, &there), &["is there already"]);
    assert_eq!(fs::read(&there).expect("it is there"), b"precious");
    assert_says(&backup(&data, &folder.path().join("absent/copy.db")), &["absent/copy.db"]);
    assert_says(
        &backup(&folder.path().join("nowhere"), &folder.path().join("copy.db")),
        &["nowhere/tidegate.db", "--data"],
    );
    assert_says(&tidegate(["admin", "backup"]), &["FILE"]);
    let url = format!("postgres://ana:{SECRET}@localhost/tide");
    let run = tidegate(["admin", "backup", "copy.db", "--database", &url]);
    assert_says(&run, &["pg_dump --format=custom --file=copy.db postgres://ana@localhost/tide", "pg_restore"]);
    // A database that is damaged is not copied, and nothing is left of the try.
    drop(served);
    let mut bytes = fs::read(data.join("tidegate.db")).expect("it is there");
    bytes[4_096..].fill(0xa5);
    fs::write(data.join("tidegate.db"), bytes).expect("it is ours");
    let copies = folder.path().join("copies");
    fs::create_dir(&copies).expect("it is ours");
    assert_says(&backup(&data, &copies.join("copy.db")), &["damaged"]);
    assert_eq!(fs::read_dir(&copies).expect("it is there").count(), 0);
}

/// Copying needs no running server.
#[test]
fn a_database_without_a_server_is_copied_unchanged() {
    let folder = TempDir::new().expect("a folder");
    let data = folder.path().join("data");
    let served = Served::start(&data);
    let session = Session::of_first_administrator(&served);
    session.publish(&served.admin, 1, "\"tier:free:1\"", 7);
    let signalled = Command::new("kill").args(["-INT", &served.id().to_string()]).status().expect("kill is there");
    assert!(signalled.success());
    assert_eq!(served.wait(), Some(0));
    let before = fs::read(data.join("tidegate.db")).expect("it is there");
    let copy = folder.path().join("copy.db");
    assert_eq!(backup(&data, &copy).status, Some(0));
    assert_eq!(fs::read(data.join("tidegate.db")).expect("it is there"), before);
    assert_eq!(version_of(&copy, &session), (2, 7));
    // What a server that was killed left in its write-ahead log is copied too.
    let mut served = Served::start(&data);
    session.publish(&served.admin, 2, "\"tier:free:2\"", 8);
    served.kill();
    assert!(fs::metadata(data.join("tidegate.db-wal")).expect("it is there").len() > 0);
    let copy = folder.path().join("another.db");
    assert_eq!(backup(&data, &copy).status, Some(0));
    assert_eq!(version_of(&copy, &session), (3, 8));
}

/// Two servers publish into one `PostgreSQL` database. One is killed repeatedly, which loses nothing that it acknowledged and does
/// not delay the other one.
#[test]
#[ignore = "needs PostgreSQL"]
fn a_server_that_is_killed_loses_nothing_acknowledged() {
    let database = Database::empty();
    let folder = TempDir::new().expect("a folder");
    let start =
        |own: &str| Served::start_with(&folder.path().join(own), &["--max-keys", "1000", "--database", database.url()]);
    let survivor = start("survivor");
    let session = Session::of_first_administrator(&survivor);
    let publish = |admin: &str, version: u64| {
        session.publish(admin, version, &format!("\"tier:free:{version}\""), 1_001 + version)
    };
    let newest = || {
        let versions = session.get(&survivor, "/policy/versions?limit=1");
        versions["items"][0]["version"].as_u64().expect("a version")
    };
    let mut version = 1;
    for kill in 0..20 {
        let mut victim = start("victim");
        let admin = victim.admin.clone();
        let acknowledged = thread::scope(|scope| {
            let (told, first) = mpsc::channel();
            let (publish, admin) = (&publish, &admin);
            let publishing = scope.spawn(move || {
                let acknowledged = |version| publish(admin, version).inspect(|_| _ = told.send(()));
                (version..).map_while(acknowledged).last().unwrap_or(version)
            });
            first.recv().expect("the victim publishes");
            thread::sleep(Duration::from_millis(3 * kill));
            victim.kill();
            publishing.join().expect("no panic")
        });
        // The publish that the kill interrupted is either kept or not, once the database notices that its client is gone.
        let (found, next) = wait_for("nothing holds the survivor up", || {
            let found = newest();
            Some((found, publish(&survivor.admin, found)?))
        });
        assert!([acknowledged, acknowledged + 1].contains(&found), "{found} after {acknowledged} was acknowledged");
        version = next;
        assert_eq!(in_force(&survivor, &session), (version, 1_000 + version));
    }
}

/// Runs the command that `tidegate admin backup` names for `PostgreSQL`, and restores its output.
#[test]
#[ignore = "needs PostgreSQL"]
fn the_tools_of_postgres_copy_and_restore() {
    let folder = TempDir::new().expect("a folder");
    let (from, to) = (Database::empty(), Database::empty());
    let served = Served::start_with(&folder.path().join("from"), &["--database", from.url()]);
    let session = Session::of_first_administrator(&served);
    assert_eq!(session.publish(&served.admin, 1, "\"tier:free:1\"", 7), Some(2));
    let copy = folder.path().join("copy.dump");
    let run = tidegate(["admin", "backup", copy.to_str().expect("text"), "--database", from.url()]);
    let line = run.stderr.lines().map(str::trim).find(|line| line.starts_with("pg_dump")).expect("a command");
    // The password is asked for, or comes from the environment.
    let (_, password) = from.url().split_once("://tidegate:").expect("an address");
    let (password, query) = (password.split_once('@').expect("a host").0, from.url().split_once('?').expect("TLS").1);
    let certificate = query.split_once("sslrootcert=").expect("a certificate").1;
    let run = |command: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).env("PGPASSWORD", password).env("PGSSLROOTCERT", certificate);
        assert!(shell.status().expect("there is a shell").success(), "{command}");
    };
    run(line);
    run(&format!("pg_restore --no-owner --dbname='{}' {}", to.url(), copy.display()));
    let other = Served::start_with(&folder.path().join("to"), &["--database", to.url()]);
    assert_eq!(in_force(&other, &session), (2, 7));
}
