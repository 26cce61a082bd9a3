//! Tests of `tidegate serve` as a process: checks under live changes, startup errors, connections, how it stops, and that a kill at
//! any time loses nothing that was acknowledged.

mod settings;

use std::{
    fs::{self, Permissions},
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use tempfile::TempDir;
use tidegate_testkit::{PATIENCE, wait_until};

use crate::support::{
    Run, SERVE, binary, command,
    server::Served,
    session::{Session, check, in_force},
    tidegate,
};

#[test]
#[expect(clippy::disallowed_methods, reason = "the refilled tokens depend on the real time that passed")]
fn a_limit_is_changed_under_live_traffic() {
    let folder = TempDir::new().expect("a folder");
    let served = Served::start(&folder.path().join("data"));
    let began = Instant::now();
    for number in 0..100 {
        assert_eq!(check(&served, "ada").0, 200, "check {number}");
    }
    let (status, denied) = check(&served, "ada");
    // A token comes back every 600 ms.
    if status == 429 {
        assert!((1..=600).contains(&denied["retry_after_ms"].as_u64().expect("a time")), "{denied}");
    }
    let session = Session::of_first_administrator(&served);
    let before_publish = began.elapsed();
    assert_eq!(session.publish(&served.admin, 1, "\"tier:free:1\"", 1_000), Some(2));
    let (status, allowed) = check(&served, "ada");
    assert_eq!((status, &allowed["policy_version"]), (200, &json!(2)));
    // The old limit gives a token back every 600 ms, the new one every 60 ms.
    let back =
        (before_publish.as_millis() / 600 + began.elapsed().saturating_sub(before_publish).as_millis() / 60 + 2) as u64;
    assert!((899..=899 + back).contains(&allowed["remaining"].as_u64().expect("a number")), "{allowed} after {back}");
}

#[test]
fn tidegate_check_prints_a_decision_of_the_server() {
    let folder = TempDir::new().expect("a folder");
    let served = Served::start(folder.path());
    let run = tidegate(["check", "--server", &served.checks, "user=ada"]);
    assert_eq!((run.stderr.as_str(), run.status), ("", Some(0)), "{run:?}");
    assert!(run.stdout.starts_with("allowed  default/tier:free/minute  99 of 100 left"), "{run:?}");
}

/// A kill during publishes leaves the version that was acknowledged last, or the one that was being published. The kills happen at
/// all stages of a publish, from its beginning to after its answer.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the time of a publish is measured, to kill the server at all its stages"
)]
fn a_hundred_kills_during_publishes_leave_whole_versions() {
    const KILLS: u32 = 100;
    // The number may grow if the machine was busy while the time of one publish was measured.
    const MOST: u32 = 10 * KILLS;
    let folder = TempDir::new().expect("a folder");
    let data = folder.path().join("data");
    let start = || Served::start_with(&data, &["--max-keys", "1000"]);
    let mut served = start();
    let session = Session::of_first_administrator(&served);
    // Version N has the limit 1,000 + N.
    let publish = |admin: &str, version: u64| {
        session.publish(admin, version, &format!("\"tier:free:{version}\""), 1_001 + version)
    };
    let began = Instant::now();
    for version in 1..11 {
        assert_eq!(publish(&served.admin, version), Some(version + 1));
    }
    let one_takes = began.elapsed() / 10;
    let (mut acknowledged, mut under_way_lost, mut under_way_kept) = (11, 0, 0);
    for kill in 0..MOST {
        if kill >= KILLS && under_way_lost > 0 && under_way_kept > 0 {
            break;
        }
        let (tell, acknowledgements) = mpsc::channel();
        thread::scope(|scope| {
            let (publish, admin) = (&publish, served.admin.clone());
            scope.spawn(move || {
                for version in acknowledged.. {
                    let Some(next) = publish(&admin, version) else { break };
                    tell.send(next).expect("the receiver exists");
                }
            });
            acknowledged = acknowledgements.recv().expect("it publishes");
            thread::sleep(one_takes * (kill * 37 % KILLS) * 5 / (4 * KILLS));
            served.kill();
            acknowledged = acknowledgements.iter().last().unwrap_or(acknowledged);
        });
        served = start();
        let (version, limit) = in_force(&served, &session);
        assert_eq!(limit, 1_000 + version, "a whole version");
        match version - acknowledged {
            0 => under_way_lost += 1,
            1 => under_way_kept += 1,
            _ => panic!("version {version} after {acknowledged} was acknowledged"),
        }
        acknowledged = version;
    }
    assert!(under_way_lost > 0 && under_way_kept > 0, "{under_way_lost} lost, {under_way_kept} kept");
}

/// Stops a server by SIGINT, as Ctrl+C does. Returns how long that took.
#[expect(clippy::disallowed_methods, reason = "how long a stop takes is measured")]
fn stop_by_ctrl_c() -> Duration {
    let folder = TempDir::new().expect("a folder");
    let served = Served::start(folder.path());
    assert_eq!(check(&served, "ada").0, 200);
    let signalled = Command::new("kill").args(["-INT", &served.id().to_string()]).status().expect("kill is there");
    assert!(signalled.success());
    let began = Instant::now();
    assert_eq!(served.wait(), Some(0));
    let took = began.elapsed();
    // The write-ahead log was merged into the database.
    assert!(!folder.path().join("tidegate.db-wal").exists());
    took
}

#[test]
fn ctrl_c_finishes_requests_and_exits_with_success() {
    stop_by_ctrl_c();
}

/// Readiness fails first, while checks are still answered, so that load balancers can react.
#[test]
fn sigterm_reports_not_ready_before_the_server_stops() {
    let folder = TempDir::new().expect("a folder");
    let served = Served::start_with(folder.path(), &["--drain-delay", "3s"]);
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let ready = || agent.get(format!("{}/readyz", served.checks)).call().expect("it answers").status().as_u16();
    assert_eq!(ready(), 200);
    let signalled = Command::new("kill").args(["-TERM", &served.id().to_string()]).status().expect("kill is there");
    assert!(signalled.success());
    while ready() == 200 {}
    assert_eq!(check(&served, "ada").0, 200, "checks are answered on");
    assert_eq!(served.wait(), Some(0));
}

#[test]
fn reaching_a_connection_cap_is_logged() {
    let folder = TempDir::new().expect("a folder");
    let log = folder.path().join("log");
    let mut command = command();
    command.args(SERVE).arg("--data").arg(folder.path().join("data"));
    command.args(["--connections-per-peer", "1", "--admin-connections-per-peer", "1"]);
    command.stderr(fs::File::create(&log).expect("room for a file"));
    let served = Served::started(command);
    for (listener, url) in [("http", &served.checks), ("admin", &served.admin)] {
        let address = url.strip_prefix("http://").expect("an address");
        let _held = [(); 2].map(|()| TcpStream::connect(address).expect("it listens"));
        wait_until("the refusal is logged", || {
            let logged = fs::read_to_string(&log).expect("text");
            let of_listener = format!("listener=\"{listener}\"");
            logged.lines().any(|line| line.contains(&of_listener) && line.contains("peer=127.0.0.1 reason=\"peer\""))
        });
    }
}

/// Ten thousand connections are served; one more is rejected until another one ends.
#[test]
fn ten_thousand_connections_are_served_and_no_more() {
    const MOST: usize = 10_000;
    let folder = TempDir::new().expect("a folder");
    // All connections come from one address.
    let served = Served::start_with(folder.path(), &["--connections-per-peer", "10000"]);
    let address = served.checks.strip_prefix("http://").expect("an address");
    let request = "GET /readyz HTTP/1.1\r\nHost: tidegate\r\n\r\n";
    let ask = |mut connection: &TcpStream| connection.write_all(request.as_bytes());
    let is_answered = |mut connection: &TcpStream| connection.read(&mut [0; 512]).is_ok_and(|bytes| bytes > 0);
    let connect = || {
        let connection = TcpStream::connect(address).expect("it listens");
        connection.set_read_timeout(Some(PATIENCE)).expect("a socket");
        connection
    };
    let open: Vec<TcpStream> = (0..MOST)
        .map(|_| {
            let connection = connect();
            ask(&connection).expect("it is read");
            assert!(is_answered(&connection));
            connection
        })
        .collect();
    let mut refusal = String::new();
    connect().read_to_string(&mut refusal).expect("an end");
    assert!(refusal.starts_with("HTTP/1.1 503 "), "{refusal}");
    for connection in open.iter().step_by(1_000) {
        ask(connection).expect("it is read");
        assert!(is_answered(connection), "the others go on");
    }
    drop(open);
    wait_until("there is room for one more", || {
        let (mut connection, mut answer) = (connect(), [0; 12]);
        // An error means that the connection was rejected before the request was sent.
        ask(&connection).is_ok() && connection.read_exact(&mut answer).is_ok() && answer == *b"HTTP/1.1 200"
    });
}

/// The host names of a loopback listener are known; for other addresses the administrator chooses them.
#[test]
fn a_loopback_listener_accepts_only_its_own_host_names() {
    let folder = TempDir::new().expect("a folder");
    let status = |served: &Served| {
        let port = served.checks.rsplit_once(':').expect("a port").1;
        let mut connection = TcpStream::connect(format!("127.0.0.1:{port}")).expect("it listens");
        connection.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let request = "GET /metrics HTTP/1.1\r\nHost: limits.example\r\nConnection: close\r\n\r\n";
        connection.write_all(request.as_bytes()).expect("it is read");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("text");
        answer.split(' ').nth(1).expect("a status").to_owned()
    };
    let on_loopback = Served::start(&folder.path().join("first"));
    assert_eq!(status(&on_loopback), "403");
    let allowed = Served::start_with(&folder.path().join("second"), &["--allowed-host", "limits.example"]);
    assert_eq!(status(&allowed), "200");
    let beyond = ["serve", "--admin", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--http", "0.0.0.0:0"];
    let beyond = Served::run(&beyond, &folder.path().join("third"), &[]);
    assert_eq!(status(&beyond), "200");
}

#[test]
fn a_policy_file_is_published_if_it_changed_and_the_server_did_not() {
    let folder = TempDir::new().expect("a folder");
    let (data, file) = (folder.path().join("data"), folder.path().join("policy.toml"));
    let write = |limit: u64, comment: &str| {
        let text = format!(
            "# {comment}\n[domains.default]\ndefaults = {{ user = \"free\" }}\n[[domains.default.tiers]]\nid = \"free\"\n\
             limits = [{{ id = \"minute\", algorithm = \"token_bucket\", limit = {limit}, period = \"1m\" }}]\n"
        );
        fs::write(&file, text).expect("it is ours");
    };
    let file_name = file.to_str().expect("text").to_owned();
    let start = |more: &[&str]| Served::start_with(&data, &[&["--policy", file_name.as_str()], more].concat());
    write(5, "first");
    let served = start(&[]);
    let session = Session::of_first_administrator(&served);
    assert_eq!(in_force(&served, &session), (2, 5), "after the example");
    assert_eq!(session.get(&served, "/policy")["author"], "tidegate");
    drop(served);
    write(5, "another comment");
    assert_eq!(in_force(&start(&[]), &session), (2, 5), "it says the same");
    write(6, "more");
    let served = start(&[]);
    assert_eq!(in_force(&served, &session), (3, 6));
    // The policy was edited at the server: the file is not published.
    assert_eq!(session.publish(&served.admin, 3, "\"tier:free:3\"", 60), Some(4));
    drop(served);
    write(7, "and more");
    assert_eq!(in_force(&start(&[]), &session), (4, 60));
    assert_eq!(in_force(&start(&["--policy-force"]), &session), (5, 7));
    // An invalid file is a startup error with its name and line.
    write(1 << 60, "too much");
    let run = serve_with(&["--policy", &file_name], folder.path());
    assert_eq!(run.status, Some(2));
    assert!(run.stderr.contains("policy.toml:6: domains.default.tiers[0].limits[0].limit"), "{run:?}");
}

fn serve_with(arguments: &[&str], folder: &Path) -> Run {
    let data = folder.join("data");
    tidegate([&SERVE[..], &["--data", data.to_str().expect("text")], arguments].concat())
}

#[test]
fn a_damaged_database_is_a_startup_error() {
    let folder = TempDir::new().expect("a folder");
    Served::start(&folder.path().join("data")).kill();
    fs::write(folder.path().join("data/tidegate.db"), "not a database").expect("it is ours");
    let run = serve_with(&[], folder.path());
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""));
    assert!(run.stderr.contains("is not a Tidegate database"), "{run:?}");
    assert_eq!(fs::read(folder.path().join("data/tidegate.db")).expect("it is there"), b"not a database");
}

/// Another user owns the database, in a folder of the server: one file may not be opened, and one has a mode that lets its owner
/// write. Root can open and write both, so the server runs as another user.
#[test]
fn a_database_of_another_user_is_not_opened() {
    const OTHER_USER: u32 = 65_534;
    let folder = TempDir::new().expect("a folder");
    let data = folder.path().join("data");
    drop(Served::start(&data));
    if fs::metadata(&data).expect("it is there").uid() != 0 {
        return;
    }
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("it is ours");
    let give = |path| chown(path, Some(OTHER_USER), Some(OTHER_USER)).expect("we are root");
    give(data.clone());
    // That user may not have access to the folder of the binary, so it runs a copy.
    let copy = folder.path().join("tidegate");
    fs::copy(binary(), &copy).expect("it is there");
    let assert_refused = |because: &str| {
        let mut command = Command::new(&copy);
        command.args(SERVE).arg("--data").arg(&data).env_clear().uid(OTHER_USER).gid(OTHER_USER);
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(because), "{said}");
    };
    let files = ["tidegate.db-shm", "tidegate.db-wal", "tidegate.db"].map(|name| data.join(name));
    assert_refused("tidegate.lock may not be opened: it belongs to user 0 and has the mode 600");
    give(data.join("tidegate.lock"));
    for file in files {
        // A killed server leaves all three files.
        assert_refused("may not be opened: it belongs to user 0 and has the mode 600");
        fs::set_permissions(file, Permissions::from_mode(0o644)).expect("it is ours");
    }
    assert_refused("is read-only");
}

/// Each command that serves raises its soft limit to the hard one, and logs a warning if that is still too low.
#[test]
fn the_limit_of_open_files_is_raised_to_the_hard_limit() {
    let folder = TempDir::new().expect("a folder");
    let token = folder.path().join("token");
    fs::write(&token, "t").expect("written");
    let token = token.to_str().expect("text");
    let commands: [&[&str]; 3] = [
        &[&SERVE[..], &["--workers", "1"]].concat(),
        &["admin", "--admin", "127.0.0.1:0"],
        &[
            "node",
            "--admin",
            "http://127.0.0.1:1",
            "--token-file",
            token,
            "--http",
            "127.0.0.1:0",
            "--grpc",
            "127.0.0.1:0",
            "--workers",
            "1",
        ],
    ];
    for (arguments, connections) in commands.into_iter().zip([25_120, 5_120, 20_000]) {
        let data = folder.path().join(arguments[0]);
        let mut child = Command::new("/bin/sh")
            .env_clear()
            .args(["-c", "ulimit -S -n 100 && ulimit -H -n 1000 && exec \"$0\" \"$@\""])
            .arg(binary())
            .args(arguments)
            .arg("--data")
            .arg(data)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let is_ready = lines.map(|line| line.expect("text")).any(|line| line == "Ctrl+C stops.");
        let limits = fs::read_to_string(format!("/proc/{}/limits", child.id()));
        child.kill().expect("it runs");
        let said = child.wait_with_output().expect("it ends").stderr;
        let said = String::from_utf8_lossy(&said);
        assert!(is_ready, "{arguments:?}: {said}");
        let limits = limits.expect("it runs");
        let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
        assert_eq!(files.split_whitespace().collect::<Vec<_>>()[3..5], ["1000", "1000"], "{arguments:?}");
        assert!(said.contains("descriptors=1000") && said.contains(&format!("connections={connections}")), "{said}");
    }
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: bounds the time of a stop, which a busy machine does not keep"]
    fn ctrl_c_stops_the_server_within_nine_seconds() {
        assert!(stop_by_ctrl_c() < Duration::from_secs(9));
    }
}
