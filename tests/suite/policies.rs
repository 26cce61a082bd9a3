//! `tidegate policy diff|import|export|publish`, against files and a running server.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::{Arc, Mutex, mpsc},
    thread,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Run, command, server::Served, tidegate};

const PASSWORD: &str = "correct horse battery";

const POLICY: &str = r#"[domains.default]
defaults = { user = "free" }

[[domains.default.tiers]]
id = "free"
limits = [{ id = "minute", algorithm = "token_bucket", limit = 100, period = "1m" }]
"#;

/// A server with an administrator, and a folder for files.
struct PolicyServer {
    served: Served,
    folder: TempDir,
}

impl PolicyServer {
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        let served = Served::start(&folder.path().join("data"));
        let body = json!({ "code": served.code(), "name": "ana", "password": PASSWORD });
        let answer = ureq::post(format!("{}/api/v1/setup", served.admin)).send_json(body).expect("an answer");
        assert_eq!(answer.status(), 201);
        Self { served, folder }
    }

    /// Writes a file, and returns its name.
    fn file(&self, name: &str, text: &str) -> String {
        let file = self.folder.path().join(name);
        fs::write(&file, text).expect("room for a file");
        file.display().to_string()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).expect("it is there")
    }

    /// Runs `tidegate policy` as ana.
    fn policy(&self, arguments: &[&str]) -> Run {
        self.policy_as("ana", PASSWORD, arguments)
    }

    fn policy_as(&self, user: &str, password: &str, arguments: &[&str]) -> Run {
        let mut command = command();
        command.args(["policy"]).args(arguments).args(["--user", user, "--admin", &self.served.admin]);
        // A machine that is busy takes long over a password.
        run(command.env("TIDEGATE_PASSWORD", password).env("TIDEGATE_TIMEOUT", "5m"))
    }
}

fn run(command: &mut Command) -> Run {
    let output = command.output().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Run { stdout: text(output.stdout), stderr: text(output.stderr), status: output.status.code() }
}

fn here(folder: &Path, arguments: &[&str]) -> Run {
    run(command().current_dir(folder).args(["policy"]).args(arguments))
}

fn of(run: &Run) -> (Option<i32>, &str, &str) {
    (run.status, &run.stdout, &run.stderr)
}

#[test]
fn files_are_compared_in_any_format() {
    let folder = TempDir::new().expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("room for a file");
    write("a.toml", POLICY);
    write("b.toml", &POLICY.replace("100", "200").replace("\"1m\"", "\"1m\", mode = \"shadow\""));
    let imported = here(folder.path(), &["import", "a.toml", "--from", "tidegate", "--out", "a.yaml"]);
    assert_eq!(of(&imported), (Some(0), "", ""));
    assert_eq!(of(&here(folder.path(), &["diff", "a.toml", "a.yaml"])), (Some(0), "", ""));
    let run = here(folder.path(), &["diff", "a.yaml", "b.toml"]);
    let told = "~ default/tier:free/minute  limit: 100 -> 200\n+ default/tier:free/minute  mode: shadow\n";
    assert_eq!(of(&run), (Some(1), told, ""));
    let run = here(folder.path(), &["diff", "b.toml", "a.toml", "--output", "json"]);
    let json: Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(run.status, Some(1));
    let limit = json!({ "domain": "default", "kind": "tier", "id": "free", "limit": "minute", "field": "limit", "from": 200, "to": 100 });
    assert_eq!(json["differences"][0], limit);
    write("wrong.toml", &POLICY.replace("1m", "1 minute"));
    for (arguments, says) in [
        (&["diff", "a.toml", "missing.toml"][..], "missing.toml: cannot read the policy"),
        (&["diff", "a.toml", "wrong.toml"], "wrong.toml:6: domains.default.tiers[0].limits[0].period: "),
        (&["diff", "a.toml"], "give two files, a file and --live"),
        (&["diff"], "give two files, a file and --live"),
        (&["diff", "a.toml", "-"], "does not read a policy from standard input"),
        (&["diff", "a.toml", "a.yaml", "b.toml"], "unexpected"),
        (&["diff", "a.toml", "--live"], "give --user NAME"),
        (&["diff", "a.toml", "--live", "--from", "1"], "cannot be used with"),
    ] {
        let run = here(folder.path(), arguments);
        assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run:?}");
        assert!(run.stderr.contains(says), "{arguments:?}: {run:?}");
    }
}

#[test]
fn a_policy_file_is_compared_published_and_exported() {
    let server = PolicyServer::new();
    let policy = server.file("policy.toml", POLICY);
    let run = server.policy(&["diff", &policy, "--live"]);
    assert_eq!((run.status, run.stderr.as_str()), (Some(1), ""), "{run:?}");
    assert!(run.stdout.contains("- default/tier:pro {\"id\":\"pro\""), "{run:?}");
    // First the dry run, then it; what is told is the same.
    let dry = server.policy(&["publish", &policy, "--message", "mine", "--dry-run"]);
    assert_eq!((dry.status, dry.stderr.as_str()), (Some(0), ""));
    assert!(dry.stdout.ends_with("nothing was published: this was a dry run on version 1\n"), "{dry:?}");
    let published = server.policy(&["publish", &policy, "--message", "mine, \"quoted\" & 100 %"]);
    let expected =
        dry.stdout.replace("nothing was published: this was a dry run on version 1\n", "published as version 2\n");
    assert_eq!(of(&published), (Some(0), expected.as_str(), ""));
    assert!(expected.starts_with(&run.stdout), "{expected}");
    let again = server.policy(&["publish", &policy, "--message", "mine"]);
    assert_eq!(of(&again), (Some(0), "nothing to publish: version 2 already has this policy\n", ""));
    assert_eq!(of(&server.policy(&["diff", &policy, "--live"])), (Some(0), "", ""));
    // Out again.
    for format in ["toml", "yaml", "json"] {
        let out = server.folder.path().join(format!("out.{format}")).display().to_string();
        assert_eq!(of(&server.policy(&["export", "--out", &out])), (Some(0), "", ""));
        assert_eq!(of(&tidegate(["policy", "diff", &out, &policy])), (Some(0), "", ""));
    }
    assert_eq!(server.read("out.toml"), POLICY, "what was written by hand as we write it");
}

#[test]
fn a_policy_goes_to_named_nodes_first_and_then_to_all_or_back() {
    let server = PolicyServer::new();
    let policy = server.file("policy.toml", POLICY);
    let stage = |nodes: &str| server.policy(&["publish", &policy, "--message", "staged", "--nodes", nodes]);
    let refused = stage("absent");
    assert!(refused.status == Some(2) && refused.stderr.contains("no node is called `absent`"), "{refused:?}");
    let none = server.policy(&["rollout"]);
    assert!(none.status == Some(2) && none.stderr.contains("No rollout is open"), "{none:?}");
    // The server decides too, as a node that is called as its machine.
    let here = rustix::system::uname().nodename().to_str().expect("UTF-8").to_owned();
    let staged = stage(&here);
    assert!(staged.status == Some(0) && staged.stdout.ends_with("published as version 2\n"), "{staged:?}");
    let shown = format!("version 2 is rolled out to {here}; all other nodes keep version 1\n{here} has version 2\n");
    assert_eq!(of(&server.policy(&["rollout"])), (Some(0), shown.as_str(), ""));
    let other = server.file("other.toml", &POLICY.replace("100", "200"));
    let second = server.policy(&["publish", &other, "--message", "another"]);
    assert!(second.status == Some(2) && second.stderr.contains("alone since"), "{second:?}");
    // An override is for every node.
    let client = "[[domains.default.clients]]\nkind = \"user\"\nvalue = \"eve\"\noverride = { blocked = true }\n";
    let blocked = server.file("blocked.toml", &format!("{POLICY}\n{client}"));
    let blocked = server.policy(&["publish", &blocked, "--message", "block eve"]);
    let told = "published as version 4, and as version 3 for all other nodes\n";
    assert!(blocked.status == Some(0) && blocked.stdout.ends_with(told), "{blocked:?}");
    let shown = format!("version 4 is rolled out to {here}; all other nodes keep version 3\n{here} has version 4\n");
    assert_eq!(of(&server.policy(&["rollout"])), (Some(0), shown.as_str(), ""));
    assert_eq!(of(&server.policy(&["rollout", "back"])), (Some(0), "all nodes get version 5\n", ""));
    assert_eq!(stage(&here).status, Some(0));
    assert_eq!(of(&server.policy(&["rollout", "all"])), (Some(0), "all nodes get version 6\n", ""));
}

#[test]
fn an_older_version_is_published_again_from_a_file() {
    let server = PolicyServer::new();
    let policy = server.file("policy.toml", POLICY);
    assert_eq!(server.policy(&["publish", &policy, "--message", "mine"]).status, Some(0));
    let first = server.folder.path().join("first.yaml").display().to_string();
    let printed = server.policy(&["export", "--version", "1", "--to", "yaml"]);
    assert_eq!(server.policy(&["export", "--version", "1", "--out", &first]).status, Some(0));
    assert_eq!(printed.stdout, server.read("first.yaml"));
    let back = server.policy(&["publish", &first, "--message", "back", "--base-version", "2", "--output", "json"]);
    let json: Value = serde_json::from_str(&back.stdout).expect("JSON");
    assert_eq!((back.status, &json["version"], &json["is_new"]), (Some(0), &json!(3), &json!(true)), "{back:?}");
    assert_eq!(of(&server.policy(&["diff", "--from", "1", "--to", "3"])), (Some(0), "", ""));
    let newest = server.policy(&["diff", "--from", "2"]);
    assert_eq!(
        (newest.status, newest.stdout.lines().count()),
        (Some(1), json["differences"].as_array().map_or(0, Vec::len))
    );
    assert_eq!(server.policy(&["diff", "--to", "3"]).stdout, newest.stdout);
    assert_eq!(server.policy(&["diff", &policy, "--from", "2"]).status, Some(0));
}

#[test]
fn a_publish_in_between_is_reported_and_not_overwritten() {
    let server = PolicyServer::new();
    let policy = server.file("policy.toml", POLICY);
    assert_eq!(server.policy(&["publish", &policy, "--message", "one"]).status, Some(0));
    let other = server.file("other.toml", &POLICY.replace("100", "300"));
    assert_eq!(server.policy(&["publish", &other, "--message", "two"]).status, Some(0));
    let third = server.file("third.toml", &POLICY.replace("100", "400"));
    let dry = server.policy(&["publish", &third, "--message", "three", "--base-version", "2", "--dry-run"]);
    assert_eq!((dry.status, dry.stdout.as_str()), (Some(2), ""), "{dry:?}");
    assert!(
        dry.stderr
            .contains("the file would not be published: version 3 is in force, not 2. Changes since 2:\n~ default"),
        "{dry:?}"
    );
    let run = server.policy(&["publish", &third, "--message", "three", "--base-version", "2"]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run:?}");
    assert!(run.stderr.contains("version 3 is in force, not 2; ana published it at 20"), "{run:?}");
    assert!(run.stderr.ends_with("Changes since 2:\n~ default/tier:free/minute  limit: 100 -> 300\n"), "{run:?}");
    assert_eq!(server.policy(&["diff", &other, "--live"]).status, Some(0), "nothing changed");
}

#[test]
fn errors_of_the_server_are_printed() {
    let server = PolicyServer::new();
    let policy = server.file("policy.toml", POLICY);
    let wrong = server.policy_as("ana", "wrong", &["diff", &policy, "--live"]);
    assert_eq!((wrong.status, wrong.stdout.as_str()), (Some(2), ""));
    assert!(wrong.stderr.contains("wrong name or password"), "{wrong:?}");
    for (arguments, says) in [
        (&["publish", policy.as_str(), "--message", " "][..], "say in a line what changes and why"),
        (&["publish", policy.as_str()], "--message"),
        (&["export", "--version", "99"], "There is no version 99."),
        (&["diff", "--from", "1", "--to", "99"], "There is no version 99."),
    ] {
        let run = server.policy(arguments);
        assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run:?}");
        assert!(run.stderr.contains(says), "{arguments:?}: {run:?}");
    }
    let asks = |arguments: &[&str]| run(command().args(["policy", "export", "--user", "ana"]).args(arguments));
    let no_password = asks(&["--admin", &server.served.admin]);
    assert!(no_password.stderr.contains("TIDEGATE_PASSWORD"), "{no_password:?}");
    let secret = |arguments: &[&str]| {
        run(command()
            .args(["policy", "export"])
            .args(arguments)
            .env("TIDEGATE_PASSWORD", PASSWORD)
            .env("TIDEGATE_USER", "ana"))
    };
    let unreachable = secret(&["--admin", "127.0.0.1:9"]);
    assert!(
        unreachable.stderr.contains("http://127.0.0.1:9: cannot connect") && unreachable.stderr.contains("--admin"),
        "{unreachable:?}"
    );
    let checks = secret(&["--admin", &server.served.checks]);
    assert!(checks.stderr.contains("not an admin server"), "{checks:?}");
    let tls = secret(&["--admin", &server.served.admin.replace("http:", "https:"), "--ca", "missing.pem"]);
    assert!(tls.stderr.contains("missing.pem"), "{tls:?}");
    for refused in [no_password, unreachable, checks, tls] {
        assert_eq!((refused.status, refused.stdout.as_str()), (Some(2), ""), "{refused:?}");
    }
    let flag = secret(&["--password", PASSWORD]);
    assert!(flag.status == Some(2) && flag.stderr.contains("unexpected argument"), "a password is no flag: {flag:?}");
}

#[test]
fn a_script_authenticates_with_a_token() {
    let server = PolicyServer::new();
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let asks = |path: &str| agent.post(format!("{}/api/v1{path}", server.served.admin));
    let signed_in = json!({ "name": "ana", "password": PASSWORD });
    let mut session = asks("/session").send_json(signed_in).expect("an answer");
    let cookie = session.headers()["set-cookie"].to_str().expect("text").to_owned();
    let csrf: Value = session.body_mut().read_json().expect("JSON");
    let make = |role: &str| {
        let request = asks("/tokens").header("cookie", cookie.split(';').next().expect("a part"));
        let request = request.header("x-csrf-token", csrf["csrf"].as_str().expect("text"));
        let mut made = request.send_json(json!({ "name": format!("ci-{role}"), "role": role })).expect("an answer");
        let made: Value = made.body_mut().read_json().expect("JSON");
        made["secret"].as_str().expect("a secret").to_owned()
    };
    let with = |token: &str, arguments: &[&str]| {
        let mut command = command();
        run(command
            .args(["policy"])
            .args(arguments)
            .args(["--admin", &server.served.admin])
            .env("TIDEGATE_TOKEN", token))
    };
    let (editor, viewer) = (make("editor"), make("viewer"));
    let exported = with(&viewer, &["export"]);
    assert_eq!((exported.status, exported.stderr.as_str()), (Some(0), ""), "{exported:?}");
    let policy = server.file("p.toml", POLICY);
    let publish = ["publish", policy.as_str(), "--message", "by a script"];
    let refused = with(&viewer, &publish);
    assert!(refused.status == Some(2) && refused.stderr.contains("`editor`"), "{refused:?}");
    let published = with(&editor, &publish);
    assert_eq!((published.status, published.stderr.as_str()), (Some(0), ""), "{published:?}");
    let unknown = with("tg_x", &["export"]);
    assert!(unknown.status == Some(2) && unknown.stderr.contains("TIDEGATE_TOKEN"), "{unknown:?}");
    let neither = run(command().args(["policy", "export", "--admin", &server.served.admin]));
    assert!(neither.status == Some(2) && neither.stderr.contains("TIDEGATE_TOKEN"), "{neither:?}");
}

#[test]
fn a_script_that_signs_in_too_often_waits() {
    let server = PolicyServer::new();
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let path = format!("{}/api/v1/session", server.served.admin);
    let (tell, told) = mpsc::channel();
    // All at once: a try is counted before its password is looked at, which takes long.
    let tries: Vec<_> = (0..20)
        .map(|_| {
            let (agent, path, tell) = (agent.clone(), path.clone(), tell.clone());
            thread::spawn(move || {
                let answer = agent.post(path).send_json(json!({ "name": "ana", "password": "wrong" }));
                let _ = tell.send(answer.expect("an answer").status().as_u16());
            })
        })
        .collect();
    drop(tell);
    assert!(told.iter().any(|status| status == 429), "tries are limited");
    assert_eq!(of(&server.policy(&["export", "--out", "/dev/null"])), (Some(0), "", ""));
    for asked in tries {
        asked.join().expect("an answer");
    }
}

/// Starts a proxy before the server that records what clients send. Returns its address and the record.
fn relay(server: &str) -> (String, Arc<Mutex<String>>) {
    relay_until(server, "\0")
}

/// Starts such a proxy that closes the connection instead of sending `last`.
fn relay_until(server: &str, last: &'static str) -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let (server, sent) = (server.trim_start_matches("http://").to_owned(), Arc::<Mutex<String>>::default());
    let heard = Arc::clone(&sent);
    thread::spawn(move || {
        for from in listener.incoming() {
            let (mut from, mut to) = (from.expect("a connection"), TcpStream::connect(&server).expect("it listens"));
            let (mut back, mut answers) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
            thread::spawn(move || std::io::copy(&mut answers, &mut back));
            let heard = Arc::clone(&heard);
            thread::spawn(move || {
                let mut bytes = [0; 4_096];
                while let Ok(count @ 1..) = from.read(&mut bytes) {
                    let text = String::from_utf8_lossy(&bytes[..count]);
                    if text.contains(last) {
                        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                        return;
                    }
                    heard.lock().expect("no thread panics").push_str(&text);
                    to.write_all(&bytes[..count]).expect("it listens");
                }
            });
        }
    });
    (url, sent)
}

#[test]
fn a_session_ends_with_the_command_after_success_and_failure() {
    let server = PolicyServer::new();
    for (arguments, status) in [(&["export"][..], 0), (&["export", "--version", "99"], 2)] {
        let (url, sent) = relay(&server.served.admin);
        let mut asking = command();
        asking.args(["policy"]).args(arguments).args(["--user", "ana", "--admin", &url]);
        assert_eq!(run(asking.env("TIDEGATE_PASSWORD", PASSWORD).env("TIDEGATE_TIMEOUT", "5m")).status, Some(status));
        let sent = sent.lock().expect("no thread panics").clone();
        assert!(sent.contains("DELETE /api/v1/session "), "{sent}");
        let cookie = sent.lines().find_map(|line| line.strip_prefix("cookie: ")).expect("it was signed in");
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let path = format!("{}/api/v1/session", server.served.admin);
        let after = agent.get(path).header("cookie", cookie).call().expect("an answer");
        assert_eq!(after.status(), 401, "the session has ended");
    }
}

const ENVOY: &str = r"domain: shop
descriptors:
  - key: api_key
    value: gold-*
    rate_limit: { unit: minute, requests_per_unit: 600 }
  - key: api_key
    rate_limit: { unit: minute, requests_per_unit: 60 }
";

#[test]
fn a_configuration_of_envoy_becomes_a_policy_with_a_report() {
    let server = PolicyServer::new();
    let envoy = server.file("envoy.yaml", ENVOY);
    let out = server.folder.path().join("policy.toml").display().to_string();
    let run = tidegate(["policy", "import", &envoy, "--from", "envoy", "--out", &out]);
    assert_eq!((run.status, run.stdout.as_str(), run.stderr.lines().count()), (Some(0), "", 4), "{run:?}");
    assert!(!run.stderr.contains("changes decisions"), "{run:?}");
    let text = server.read("policy.toml");
    assert!(text.starts_with("[domains.shop]\ndescriptor_paths = \"identity\"\n\n[[domains.shop.rules]]\nid = \"api_key-gold\"\nendpoint = \"*\"\nper = \"api_key\"\nwhere = { api_key = \"gold-*\" }\n"), "{text}");
    assert_eq!(tidegate(["policy", "check", &out]).status, Some(0));
    // The imported policy is published and decides.
    assert_eq!(server.policy(&["publish", &out, "--message", "from envoy"]).status, Some(0));
    let asked = run_check(&server.served.checks, "gold-1");
    assert!(asked.stdout.contains("shop/rule:api_key-gold/minute  599 of 600 left"), "{asked:?}");
    let asked = run_check(&server.served.checks, "iron");
    assert!(asked.stdout.contains("shop/rule:api_key/minute  59 of 60 left"), "{asked:?}");
}

#[test]
fn notes_of_an_import_set_its_status_unless_they_are_accepted() {
    let server = PolicyServer::new();
    let envoy = server.file("mid.yaml", &ENVOY.replace("gold-*", "\"g*d\""));
    let run = tidegate(["policy", "import", &envoy, "--from", "envoy", "--to", "yaml"]);
    assert_eq!(run.status, Some(1), "{run:?}");
    assert!(
        run.stdout.starts_with("domains:\n  shop:\n    descriptor_paths: identity\n    rules:\n      - id: api_key\n"),
        "{run:?}"
    );
    let told = format!(
        "{envoy}:3: descriptors[0].value: a `*` before the end of a value; it is left out [changes decisions]\n"
    );
    assert_eq!(run.stderr.lines().count(), 5);
    assert!(run.stderr.ends_with(&told), "{run:?}");
    let run = tidegate(
        [&["policy"], &["import", &envoy, "--from", "envoy", "--accept", "--report", "json"] as &[&str]].concat(),
    );
    let report: Value = serde_json::from_str(&run.stderr).expect("JSON");
    assert_eq!(
        (run.status, &report["notes"][4]["line"], &report["notes"][4]["changes_decisions"]),
        (Some(0), &json!(3), &json!(true))
    );
    let limits = server.file("limits.yaml", "- { namespace: shop, max_value: 5, seconds: 60, variables: [user] }\n");
    let run = tidegate(["policy", "import", &limits, "--from", "limitador", "--to", "json"]);
    // The windows of limitador begin at other times.
    assert_eq!((run.status, run.stderr.lines().count()), (Some(1), 3), "{run:?}");
    let run = tidegate(["policy", "import", &limits, "--from", "limitador", "--accept"]);
    assert_eq!(run.status, Some(0), "{run:?}");
}

#[test]
fn errors_of_an_import_name_the_file_and_send_no_control_characters() {
    let server = PolicyServer::new();
    let envoy = server.file("envoy.yaml", ENVOY);
    let steering = server.file("steering.yaml", "domain: shop\n\"\\e[2Jx\": 1\n");
    for from in ["envoy", "limitador", "tidegate"] {
        let run = tidegate(["policy", "import", &steering, "--from", from]);
        assert_eq!(run.status, Some(2), "{run:?}");
        assert!(!run.stderr.contains('\u{1b}'), "{run:?}");
    }
    for (from, what) in [
        ("envoy", "the configuration of envoyproxy/ratelimit"),
        ("limitador", "the limits file of limitador"),
        ("tidegate", "the policy"),
    ] {
        fs::write(&steering, b"domain: \xff\n").expect("written");
        let run = tidegate(["policy", "import", &steering, "--from", from]);
        let says = format!("{steering}: {what} is not UTF-8 text; save it as UTF-8");
        assert!(run.status == Some(2) && run.stderr.contains(&says), "{run:?}");
    }
    let wrong = server.file("wrong.yaml", "domain: shop\nfoo: 1\n");
    let run = tidegate(["policy", "import", &envoy, &wrong, "--from", "envoy"]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run:?}");
    assert!(run.stderr.contains(&format!("{wrong}:2: foo: unknown field")), "{run:?}");
    assert_eq!(tidegate(["policy", "import", &envoy]).status, Some(2), "the format of the file must be given");
    assert_eq!(tidegate(["policy", "import", &envoy, &envoy, "--from", "tidegate"]).status, Some(2));
}

#[test]
fn expired_entries_are_no_difference() {
    let server = PolicyServer::new();
    let bob = "[[domains.default.clients]]\nkind = \"user\"\nvalue = \"bob\"\noverride = { blocked = true, reason = \"x\", until = \"2020-01-01T00:00:00Z\" }\n";
    let policy = server.file("policy.toml", &format!("{POLICY}{bob}"));
    let told = "overrides that have ended are not published: client:user:bob\n";
    let published = server.policy(&["publish", &policy, "--message", "one"]);
    assert_eq!((published.status, published.stderr.as_str()), (Some(0), told));
    assert!(published.stdout.ends_with("published as version 2\n"), "{published:?}");
    assert_eq!(of(&server.policy(&["diff", &policy, "--live"])), (Some(0), "", told));
    let again = server.policy(&["publish", &policy, "--message", "one"]);
    assert_eq!(of(&again), (Some(0), "nothing to publish: version 2 already has this policy\n", told));
}

#[test]
fn changes_are_printed_before_they_are_published() {
    let server = PolicyServer::new();
    let policy = server.file("policy.toml", POLICY);
    // A server that is not there any more when it comes to publishing.
    let (url, sent) = relay_until(&server.served.admin, "policy/import?message=mine HTTP");
    let mut asking = command();
    asking.args(["policy", "publish", &policy, "--message", "mine", "--user", "ana", "--admin", &url]);
    let run = run(asking.env("TIDEGATE_PASSWORD", PASSWORD).env("TIDEGATE_TIMEOUT", "5m"));
    assert!(sent.lock().expect("no thread panics").contains("dry_run=true"));
    assert_eq!(run.status, Some(2), "{run:?}");
    assert!(run.stdout.contains("- default/tier:pro {"), "{run:?}");
    assert!(!run.stdout.contains("published"), "{run:?}");
}

fn run_check(server: &str, key: &str) -> Run {
    run(command().args(["check", &format!("api_key={key}"), "--domain", "shop", "--server", server]))
}
