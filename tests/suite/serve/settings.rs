//! Settings of `tidegate serve`: flags, variables and the file, and the errors and warnings about them.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    process::Stdio,
};

use serde_json::json;
use tempfile::TempDir;
use tidegate_testkit::certificate::Authority;

use crate::support::{
    SERVE, command,
    server::Served,
    session::{Session, check},
    tidegate,
};

#[test]
fn startup_errors_say_what_to_do() {
    let folder = TempDir::new().expect("a folder");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().expect("bound").to_string();
    for (arguments, words) in [
        (vec!["--admin", &taken], vec!["dashboard", &*taken, "--admin"]),
        (vec!["--http", &taken], vec!["checks", &*taken, "--http"]),
        (vec!["--grpc", &taken], vec!["checks", &*taken, "--grpc"]),
        (vec!["--log", "loud=shout"], vec!["--log", "info"]),
        (vec!["--admin", "localhost"], vec!["--admin"]),
        (vec!["--max-keys", "0"], vec!["--max-keys", "1000000000"]),
        (vec!["--metrics-tokens", "absent"], vec!["--metrics-tokens: absent: "]),
        (vec!["--allowed-origin", "app.example"], vec!["--allowed-origin", "https://app.example"]),
        (vec!["--allowed-host", "localhost:80"], vec!["--allowed-host", "limits.internal"]),
        (vec!["--clock-step", "5ms"], vec!["--clock-step", "10ms", "1m"]),
        (vec!["--config", "absent.toml"], vec!["absent.toml"]),
    ] {
        let arguments: Vec<&str> = arguments.into_iter().collect();
        let name = arguments[0];
        // A repeated flag would be another error, so each is given once.
        let base: Vec<&str> = SERVE[1..].chunks(2).filter(|pair| pair[0] != name).flatten().copied().collect();
        let data = folder.path().join("data");
        let run = tidegate([&["serve", "--data", data.to_str().expect("text")], &*base, &*arguments].concat());
        assert_eq!(run.status, Some(2), "{run:?}");
        for word in words {
            assert!(run.stderr.contains(word), "{word}: {run:?}");
        }
    }
}

#[test]
fn an_oidc_provider_is_set_by_file_variables_and_flags() {
    let folder = TempDir::new().expect("a folder");
    let (secret, file) = (folder.path().join("secret"), folder.path().join("tidegate.toml"));
    fs::write(&secret, "of the client").expect("it is ours");
    let whole = format!(
        "oidc_issuer = \"https://id.example\"\noidc_client_id = \"tidegate\"\noidc_client_secret_file = {secret:?}\n\
         oidc_role = [\"staff=viewer\", \"cn=ops,ou=all=editor\"]\noidc_name = \"ours\"\n"
    );
    fs::write(&file, &whole).expect("it is ours");
    let config = file.to_str().expect("text");
    let served = Served::start_with(&folder.path().join("data"), &["--config", config]);
    let shown = ureq::get(format!("{}/api/v1/session/provider", served.admin)).call().expect("an answer");
    assert_eq!(shown.into_body().read_json::<serde_json::Value>().expect("JSON"), json!({ "name": "ours" }));
    drop(served);
    for (settings, arguments, says) in [
        (whole.replace("staff=viewer", "staff=root"), vec![], "the roles are viewer, operator, editor and admin"),
        (whole.replace("staff=viewer", "staff"), vec![], "write GROUP=ROLE"),
        (whole.replace("oidc_client_id", "#"), vec![], "--oidc-client-id"),
        (whole.replace("https", "http"), vec![], "--oidc-issuer"),
        (whole.clone(), vec!["--oidc-client-secret-file", "absent"], "--oidc-client-secret-file: absent"),
        (whole.clone(), vec!["--admin", "0.0.0.0:0"], "--admin-url"),
        (String::new(), vec!["--oidc-client-id", "tidegate"], "--oidc-issuer"),
    ] {
        fs::write(&file, settings).expect("it is ours");
        let mut command = command();
        let base = if arguments.first() == Some(&"--admin") { vec![] } else { vec!["--admin", "127.0.0.1:0"] };
        command
            .args(["serve", "--config", config, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--data"])
            .arg(folder.path().join("data"));
        let output = command.args(base).args(arguments).output().expect("the binary runs");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.code() == Some(2) && said.contains(says), "{says}: {said}");
    }
}

/// Browsers keep no session if they reach the dashboard from another machine without TLS.
#[test]
fn a_dashboard_reachable_without_tls_logs_a_warning() {
    for (url, is_warned) in
        [("http://limits.example", true), ("https://limits.example", false), ("http://localhost:8080", false)]
    {
        let folder = TempDir::new().expect("a folder");
        let mut command = command();
        command.args(SERVE).args(["--admin-url", url, "--data"]);
        let command = command.arg(folder.path().join("data")).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
        // This is the last line that the server prints.
        assert!(lines.any(|line| line == "Ctrl+C stops."));
        child.kill().expect("it runs");
        let said = String::from_utf8(child.wait_with_output().expect("it ends").stderr).expect("text");
        assert_eq!(said.contains("other machines can reach the dashboard without TLS"), is_warned, "{url}: {said}");
    }
}

#[test]
fn unprotected_listeners_that_other_machines_reach_log_a_warning() {
    let folder = TempDir::new().expect("a folder");
    let [tokens, certificate, key] = ["tokens", "cert.pem", "key.pem"].map(|name| folder.path().join(name));
    fs::write(&tokens, "morning-star-0001").expect("it is ours");
    Authority::new().write(&certificate, &key);
    let [tokens, certificate, key] = [&tokens, &certificate, &key].map(|file| file.to_str().expect("text"));
    let (tls, token) = (["--tls-cert", certificate, "--tls-key", key], ["--check-tokens", tokens]);
    for (http, protection, says) in [
        ("127.0.0.1:0", vec![], vec![]),
        ("0.0.0.0:0", vec![], vec!["without TLS", "--tls-cert", "--check-tokens"]),
        ("0.0.0.0:0", token.to_vec(), vec!["without TLS", "--tls-cert"]),
        ("0.0.0.0:0", tls.to_vec(), vec!["every caller may check", "--check-tokens"]),
        ("0.0.0.0:0", [&tls[..], &token].concat(), vec![]),
    ] {
        let data = TempDir::new().expect("a folder");
        let mut command = command();
        command.args(["serve", "--admin", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--http", http]).args(&protection);
        let command = command.arg("--data").arg(data.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
        assert!(lines.any(|line| line == "Ctrl+C stops."));
        child.kill().expect("it runs");
        let said = String::from_utf8(child.wait_with_output().expect("it ends").stderr).expect("text");
        let warning = said.lines().find(|line| line.contains("other machines can reach the listeners at http"));
        assert_eq!(warning.is_some(), !says.is_empty(), "{http} {protection:?}: {said}");
        let warning = warning.unwrap_or_default();
        assert!(says.iter().all(|words| warning.contains(words)), "{http} {protection:?}: {warning}");
        assert!(!warning.contains("127.0.0.1"), "the other listener is on loopback: {warning}");
    }
}

#[test]
fn flags_override_variables_and_variables_override_the_file() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("tidegate.toml");
    let run = |settings: &str, variable: Option<&str>, arguments: &[&str]| {
        fs::write(&file, settings).expect("it is ours");
        let mut command = command();
        command.current_dir(folder.path()).args(arguments);
        if let Some(value) = variable {
            command.env("TIDEGATE_MAX_KEYS", value);
        }
        let output = command.output().expect("the binary runs");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    // An error shows that a source is read. A source of lower rank is not read if a higher one has the setting.
    let serve = SERVE;
    let (status, said) = run("max_keys = 0", None, &serve);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("tidegate.toml") && said.contains("--max-keys"), "{said}");
    let (_, said) = run("max_keys = 0", Some("many"), &serve);
    assert!(said.contains("many") && !said.contains("tidegate.toml"), "{said}");
    let (_, said) = run("max_keys = 0", Some("many"), &[&serve[..], &["--max-keys", "all"]].concat());
    assert!(said.contains("all") && !said.contains("many"), "{said}");
    // `tidegate` without a command serves, with the settings of the file.
    let (status, said) = run("max_keys = 0", None, &[]);
    assert!(status == Some(2) && said.contains("--max-keys"), "{said}");
    for (settings, words) in [
        ("max_key = 1", vec!["tidegate.toml", "max_key"]),
        ("max_keys = 1.5", vec!["tidegate.toml: max_keys: `1.5` stands here; write a text or a whole number\n"]),
        ("max_keys = [1]", vec!["tidegate.toml: max_keys: a list stands here; write a text or a whole number\n"]),
        ("max_keys = ", vec!["tidegate.toml: line 1: not TOML: `=` and a value must follow the key\n"]),
        ("a = 1\na = 2", vec!["tidegate.toml: line 2: not TOML: this key stands here twice; keep one\n"]),
        ("a = secret", vec!["tidegate.toml: line 1: not TOML: a text stands here without quotes; put it in quotes\n"]),
        ("no_color = 1", vec!["tidegate.toml: no_color: `1` stands here; write true or false\n"]),
        ("no_color = \"secret\"", vec!["tidegate.toml: no_color: a text stands here; write true or false\n"]),
        ("config = \"x\"", vec!["tidegate.toml", "config"]),
    ] {
        let (status, said) = run(settings, None, &serve);
        assert_eq!(status, Some(2), "{said}");
        for word in words {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
    // Errors name the flags of the command, and unknown ones.
    let (_, said) = run("", None, &["--max-keys", "0"]);
    assert!(said.contains("--max-keys") && said.contains("1000000000"), "{said}");
    let (_, said) = run("", None, &["--max-kys", "1"]);
    assert!(said.contains("--max-kys"), "{said}");
    // The settings of one command do not affect another one.
    let (status, said) = run("max_keys = 1000\nadmin = \"127.0.0.1:0\"\nseed = 7", None, &["replay", "--demo"]);
    assert_eq!(status, Some(0), "{said}");
    let (status, said) = run("seed = \"x\"", None, &["replay", "--demo"]);
    assert!(status == Some(2) && said.contains("tidegate.toml"), "{said}");
}

#[test]
fn recording_and_the_display_of_keys_are_settings() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("tidegate.toml");
    fs::write(&file, "record = \"1/1\"\nkeys = \"hashed\"\n").expect("it is written");
    let config = file.to_str().expect("text");
    for (arguments, keys, recorded) in [
        (&[][..], "truncated", json!(null)),
        (&["--config", config], "hashed", json!(1)),
        (&["--config", config, "--keys", "clear"], "clear", json!(1)),
        (&["--config", config, "--record", "off"], "hashed", json!(null)),
    ] {
        let data = TempDir::new().expect("a folder");
        let served = Served::start_with(&data.path().join("data"), arguments);
        assert_eq!(check(&served, "ada").0, 200);
        let meta = Session::of_first_administrator(&served).get(&served, "/meta");
        assert_eq!((&meta["keys"], &meta["recorder"]["requests"]), (&json!(keys), &recorded), "{arguments:?}");
    }
    for (flag, value, hint) in
        [("--record", "1/0", "1/10"), ("--record", "10", "1/10"), ("--keys", "open", "truncated")]
    {
        let run = tidegate([&SERVE[..], &[flag, value]].concat());
        assert!(run.status == Some(2) && run.stderr.contains(flag) && run.stderr.contains(hint), "{run:?}");
    }
}

/// Only the setting makes an environment production, not its name.
#[test]
fn only_the_setting_makes_an_environment_production() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("tidegate.toml");
    fs::write(&file, "environment = \"eu\"\nproduction = true\n").expect("it is written");
    let config = file.to_str().expect("text");
    for (arguments, environment, production) in [
        (&[][..], json!(null), false),
        (&["--environment", "prod-eu"], json!("prod-eu"), false),
        (&["--environment", "prod-eu", "--production"], json!("prod-eu"), true),
        (&["--config", config], json!("eu"), true),
    ] {
        let data = TempDir::new().expect("a folder");
        let served = Served::start_with(&data.path().join("data"), arguments);
        let session = Session::of_first_administrator(&served).get(&served, "/session");
        assert_eq!(
            (&session["environment"], &session["production"]),
            (&environment, &json!(production)),
            "{arguments:?}"
        );
    }
}
