//! The Redis protocol of a real server with real clients: redis-cli, redis-benchmark, a client library.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
};

use redis::{Commands, ConnectionLike, ErrorKind, Value, cmd, pipe};
use serde_json::json;
use tempfile::TempDir;
use tidegate_testkit::{PATIENCE, certificate::Authority, port::ReservedPort};

use crate::support::{SERVE, fleet::write_token, server::Served, session::Session, tidegate};

/// A server or a node, and where it speaks the Redis protocol.
struct Speaking {
    served: Served,
    port: ReservedPort,
}

fn serve(folder: &Path, arguments: &[&str]) -> Speaking {
    let port = ReservedPort::new();
    let address = port.address().to_string();
    let served = Served::start_with(&folder.join("data"), &[&["--resp", &address], arguments].concat());
    Speaking { served, port }
}

fn connect(served: &Speaking) -> redis::Connection {
    connect_as(served, "")
}

/// Connects with a URL that has `more` after its address.
fn connect_as(served: &Speaking, more: &str) -> redis::Connection {
    let client = redis::Client::open(format!("redis://{}/{more}", served.port.address())).expect("a URL");
    client.get_connection().expect("it listens")
}

fn port(served: &Speaking) -> String {
    served.port.port().to_string()
}

/// Runs redis-cli, and returns its output.
fn redis_cli(served: &Speaking, arguments: &[&str], input: &str) -> String {
    let mut child = Command::new("redis-cli")
        .args(["-p", &port(served)])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the Debian package redis-tools is there");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn redis_cli_gets_replies() {
    let folder = TempDir::new().expect("a folder");
    let served = serve(folder.path(), &[]);
    let one = |line: &str| redis_cli(&served, &["--no-raw"], line);
    let numbers = "1) (integer) 0\n2) (integer) 16\n3) (integer) 15\n4) (integer) -1\n5) (integer) 2\n";
    assert_eq!(one("CL.THROTTLE user123 15 30 60"), numbers);
    assert_eq!(one("CL.THROTTLE \"a b\" 15 30 60"), numbers);
    let checked = one("TIDEGATE.CHECK user ada *");
    assert!(checked.ends_with("6) \"default/tier:free/minute\"\n"), "{checked}");
    assert_eq!(
        one("CL.THROTTLE user123 15"),
        "(error) Cell error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]\n"
    );
    assert!(redis_cli(&served, &["-3", "HELLO", "3"], "").contains("server tidegate"));
    assert!(redis_cli(&served, &["INFO"], "").contains("tidegate_version:"));
    // It asks for them by itself, where a person types.
    assert!(redis_cli(&served, &["COMMAND", "DOCS"], "").contains("key max_burst count period [quantity]"));
    assert!(one("help tidegate.check").contains("kind value endpoint"));
    let piped = redis_cli(&served, &["--pipe"], &"CL.THROTTLE piped 999 1 3600\r\n".repeat(1_000));
    assert!(piped.ends_with("errors: 0, replies: 1000\n"), "{piped}");
    assert_eq!(one("CL.THROTTLE piped 999 1 3600 0").lines().nth(2), Some("3) (integer) 0"), "each was counted");
}

#[test]
fn redis_benchmark_gets_replies_at_any_pipeline_depth() {
    const COMMANDS: u64 = 20_000;
    let folder = TempDir::new().expect("a folder");
    let served = serve(folder.path(), &[]);
    for depth in ["1", "16", "500"] {
        let output = Command::new("redis-benchmark")
            .args([
                "-p",
                &port(&served),
                "-n",
                &COMMANDS.to_string(),
                "-c",
                "20",
                "-P",
                depth,
                "-e",
                "-r",
                "1000",
                "--csv",
            ])
            .args(["CL.THROTTLE", "key:__rand_int__", "15", "30", "86400"])
            .output()
            .expect("the Debian package redis-tools is there");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("\"CL.THROTTLE"), "{said}");
    }
    let mut scrape = ureq::get(format!("{}/metrics", served.served.checks)).call().expect("an answer");
    let scrape = scrape.body_mut().read_to_string().expect("text");
    let of = |status: &str| {
        let series = format!(r#"tidegate_requests_total{{door="resp",route="cl.throttle",status="{status}"}} "#);
        let count = scrape.lines().find_map(|line| line.strip_prefix(&series)?.parse::<u64>().ok());
        count.unwrap_or(0)
    };
    // It asks in whole pipelines.
    let (allowed, denied) = (of("ok"), of("denied"));
    assert!(allowed + denied >= 3 * COMMANDS && of("error") == 0, "{allowed} allowed, {denied} denied");
    // A thousand keys of 16 each, and what came back meanwhile: a token in three seconds.
    assert!((15_900..16_200).contains(&allowed), "{allowed}");
}

#[test]
fn a_stock_client_gets_replies_in_both_protocol_versions() {
    let folder = TempDir::new().expect("a folder");
    let served = serve(folder.path(), &[]);
    for (version, left) in [("", 9), ("?protocol=resp3", 7)] {
        let mut connection = connect_as(&served, version);
        let throttle = || cmd("CL.THROTTLE").arg("ada").arg(9).arg(1).arg(3_600).to_owned();
        let answer: Vec<i64> = throttle().query(&mut connection).expect("five numbers");
        assert_eq!(&answer[..4], [0, 10, left, -1], "{version}");
        let piped: Vec<Vec<i64>> = pipe()
            .add_command(throttle())
            .cmd("THROTTLE")
            .arg("bob")
            .arg(2)
            .arg(1)
            .arg(60)
            .arg(0)
            .query(&mut connection)
            .expect("two answers");
        assert_eq!((piped[0][2], &piped[1][..]), (left - 1, &[1, 2, 2, 0, 0][..]));
        let checked: (i64, i64, i64, i64, i64, Option<String>) =
            cmd("TIDEGATE.CHECK").arg("user").arg("ada").arg("*").arg(0).query(&mut connection).expect("a decision");
        assert_eq!((checked.0, checked.5.as_deref()), (0, Some("default/tier:free/minute")));
        let checked: (i64, i64, i64, i64, i64, Option<String>) =
            cmd("TIDEGATE.CHECK").arg("device").arg("d").arg("*").query(&mut connection).expect("a decision");
        assert_eq!(checked, (0, -1, -1, -1, 0, None));
        assert!(connection.check_connection());
        let error = connection.del::<_, u64>("ada").expect_err("no token was sent");
        assert_eq!(error.code(), Some("NOPERM"), "{error}");
        let of_transaction = pipe().atomic().add_command(throttle()).query::<Value>(&mut connection);
        of_transaction.expect_err("there are none");
        let answer: Vec<i64> = throttle().arg(0).query(&mut connection).expect("five numbers");
        assert_eq!(answer[2], left - 1, "it was not charged");
        let error = connection.get::<_, Value>("ada").expect_err("not here");
        assert!(error.to_string().contains("unknown command 'GET'"), "{error}");
    }
}

#[test]
fn the_token_of_the_server_is_the_password_of_redis_clients() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("tokens");
    write_token(&file, "morning-star-0001");
    let served = serve(folder.path(), &["--check-tokens", file.to_str().expect("UTF-8")]);
    let error = cmd("PING").query::<String>(&mut connect(&served)).expect_err("no token");
    assert_eq!(error.code(), Some("NOAUTH"), "{error}");
    let client = |user: &str, token: &str| {
        redis::Client::open(format!("redis://{user}:{token}@{}/", served.port.address()))
            .expect("a URL")
            .get_connection()
    };
    let wrong = client("", "evening-star-0002").err().expect("the token is unknown");
    assert_eq!(wrong.kind(), ErrorKind::AuthenticationFailed, "{wrong}");
    for user in ["", "somebody"] {
        let answer = cmd("PING").query::<String>(&mut client(user, "morning-star-0001").expect("it is known"));
        assert_eq!(answer.as_deref(), Ok("PONG"));
    }
    let said = redis_cli(&served, &["-a", "morning-star-0001", "--no-auth-warning", "PING"], "");
    assert_eq!(said, "PONG\n");
}

/// A token of this role.
fn token(admin: &Speaking, session: &Session, role: &str) -> String {
    let (status, made) = session.send(&admin.served, "POST", "/tokens", &json!({ "name": role, "role": role }));
    assert_eq!(status, 201, "{made}");
    made["secret"].as_str().expect("a secret").to_owned()
}

/// Asserts that an operator can reset an exhausted key, and a viewer cannot.
fn assert_that_operators_reset(served: &Speaking, operator: &str, viewer: &str) {
    let mut connection = connect(served);
    let mut spend = |quantity: i64| -> Vec<i64> {
        cmd("CL.THROTTLE").arg("ada").arg(4).arg(1).arg(3_600).arg(quantity).query(&mut connection).expect("numbers")
    };
    assert_eq!((spend(5)[0], spend(1)[0]), (0, 1));
    let mut other = connect(served);
    let error = cmd("AUTH").arg(viewer).query::<()>(&mut other).expect_err("a viewer cannot reset");
    assert!(error.code() == Some("WRONGPASS"), "{error}");
    assert_eq!(other.del::<_, u64>("ada").expect_err("the connection may not reset").code(), Some("NOPERM"));
    assert_eq!(spend(1)[0], 1);
    cmd("AUTH").arg(operator).query::<()>(&mut other).expect("an operator may reset");
    assert_eq!(other.del::<_, u64>(&["ada", "absent"]).expect("the operator may reset keys"), 1);
    assert_eq!(spend(5)[0], 0, "it has all of it again");
}

#[test]
fn operators_reset_keys_on_nodes_too() {
    let folder = TempDir::new().expect("a folder");
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    // No client trusts the authority of this certificate, but the server still connects to itself.
    Authority::new().write(&certificate, &key);
    let tls =
        ["--admin-tls-cert", certificate.to_str().expect("UTF-8"), "--admin-tls-key", key.to_str().expect("UTF-8")];
    for tls in [&[][..], &tls] {
        let folder = TempDir::new().expect("a folder");
        let mut admin = serve(folder.path(), tls);
        if !tls.is_empty() {
            let error = cmd("AUTH").arg("tg_nobody").query::<()>(&mut connect(&admin)).expect_err("it is not known");
            assert_eq!(error.code(), Some("WRONGPASS"), "it was asked: {error}");
            continue;
        }
        let ana = Session::of_first_administrator(&admin.served);
        let (operator, viewer) = (token(&admin, &ana, "operator"), token(&admin, &ana, "viewer"));
        assert_that_operators_reset(&admin, &operator, &viewer);

        let (status, made) = ana.send(&admin.served, "POST", "/tokens", &json!({ "name": "node", "scope": "node" }));
        assert_eq!(status, 201, "{made}");
        let of_node = made["secret"].as_str().expect("a secret").to_owned();
        let file = folder.path().join("token");
        write_token(&file, &of_node);
        let port = ReservedPort::new();
        let (address, data) = (port.address().to_string(), folder.path().join("node"));
        let served = Served::node_with(&admin.served.admin, &file, "n", &data, &["--resp", &address]);
        let node = Speaking { served, port };
        assert_that_operators_reset(&node, &operator, &viewer);
        let error = cmd("AUTH").arg(&of_node).query::<()>(&mut connect(&node)).expect_err("nodes are no operators");
        assert_eq!(error.code(), Some("WRONGPASS"), "{error}");
        admin.served.kill();
        let error = cmd("AUTH").arg(&operator).query::<()>(&mut connect(&node)).expect_err("the admin server is down");
        assert!(error.to_string().contains("the admin server cannot be asked for tokens now"), "{error}");
    }
}

/// Stops a server after `delay`, and asks it until its connection ends. Returns how many answers came, and how many of them after
/// it had said that it is not ready any more.
fn answers_until_the_end(delay: &str) -> (u64, u64) {
    let folder = TempDir::new().expect("a folder");
    let served = serve(folder.path(), &["--drain-delay", delay]);
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let ready = format!("{}/readyz", served.served.checks);
    let is_ready = || agent.get(&ready).call().is_ok_and(|answer| answer.status() == 200);
    let mut stream = BufReader::new(TcpStream::connect(served.port.address()).expect("it listens"));
    stream.get_ref().set_read_timeout(Some(PATIENCE)).expect("a socket");
    let told = Command::new("kill").args(["-TERM", &served.served.id().to_string()]).status().expect("kill is there");
    assert!(told.success());
    let (mut answers, mut after) = (0, 0);
    let mut is_stopping = false;
    loop {
        is_stopping = is_stopping || !is_ready();
        let mut line = String::new();
        if stream.get_mut().write_all(b"PING\r\n").is_err() || !matches!(stream.read_line(&mut line), Ok(1..)) {
            break;
        }
        assert_eq!(line, "+PONG\r\n");
        answers += 1;
        after += u64::from(is_stopping);
    }
    assert_eq!(served.served.wait(), Some(0));
    (answers, after)
}

#[test]
fn the_server_replies_until_it_stops_by_sigterm() {
    let (answers, after) = answers_until_the_end("3s");
    assert!(after > 0, "{answers}, none of them after it said that it stops");
}

#[test]
fn an_address_in_use_is_a_startup_error() {
    let folder = TempDir::new().expect("a folder");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let data = folder.path().join("other");
    let run = tidegate([&SERVE[..], &["--resp", &address, "--data", data.to_str().expect("UTF-8")]].concat());
    assert_eq!(run.status, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("for the Redis protocol") && run.stderr.contains("--resp"), "{}", run.stderr);
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: asks as often as an idle machine can"]
    fn the_server_replies_a_hundred_times_in_the_last_second() {
        let (answers, _) = answers_until_the_end("1s");
        assert!(answers > 100, "{answers} within a second");
    }
}
