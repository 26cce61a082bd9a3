//! Tests of the store settings: invalid addresses, the help text, and a store that starts later.

use std::path::PathBuf;

use std::fs;

use serde_json::json;
use tempfile::TempDir;
use tidegate_testkit::{
    certificate::{Authority, CertificateFiles},
    redis::{Redis, TlsRedis},
    wait_for, wait_until,
};

use crate::support::{
    SERVE, command,
    server::Served,
    session::{Session, check},
    shared::{Fleet, publish},
    tidegate,
};

const SECRET: &str = "hunter2";

#[test]
fn an_invalid_store_address_is_a_startup_error_and_not_shown() {
    let folder = TempDir::new().expect("a folder");
    let data = folder.path().join("data");
    let data = ["--data", data.to_str().expect("UTF-8")];
    for (urls, words) in [
        ("127.0.0.1:6379", ["--redis: the address: it does not begin with redis://", "redis://HOST:PORT"]),
        ("rediss://:hunter2@store#insecure", ["--redis: the address: it has a #", "rediss:// for TLS"]),
        (
            "redis-sentinel://ana:hunter2@a",
            ["--redis: the address: it has no name of a master", "redis-sentinel://HOST:PORT/MASTER"],
        ),
        (
            "redis-sentinel://:hunter2@a/m,redis-sentinel://b/m",
            ["--redis: the second of 2 addresses: its user or password is another", "all have the same"],
        ),
        (
            "redis://a,rediss://b",
            ["--redis: the second of 2 addresses: one of it and the first one asks for TLS", "all"],
        ),
        ("redis://:hunter2/x@store", ["--redis: the address: there is a / or ? or # before its @", "%2F for /"]),
        ("redis://ana:hunter2@store:port", ["no port from 1 to 65535", "%40 for @"]),
        (
            "redis://a,redis://:hunter2@b",
            ["--redis: the second of 2 addresses: its user or password is another", "all"],
        ),
        ("redis://:hunter2,x@a", ["--redis: the first of 2 addresses: it has no host", "%2C for a comma"]),
    ] {
        let run = tidegate([&SERVE[..], &data[..], &["--redis", urls]].concat());
        assert_eq!(run.status, Some(2), "{run:?}");
        assert!(words.iter().all(|word| run.stderr.contains(word)), "{run:?}");
        assert!(!run.stderr.contains(SECRET) && !run.stdout.contains(SECRET), "{run:?}");
        let output = command().args(SERVE).args(data).env("TIDEGATE_REDIS", urls).output().expect("it runs");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(said.contains(words[0]) && !said.contains(SECRET), "{said}");
    }
    // Each with its own flag.
    let run = tidegate([&SERVE[..], &data[..], &["--redis", "redis://a", "--redis", "b"]].concat());
    assert!(run.stderr.contains("--redis: the second of 2 addresses: it does not begin"), "{run:?}");
}

#[test]
fn unusable_tls_files_are_startup_errors() {
    let folder = TempDir::new().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let files = CertificateFiles::of(&Authority::new());
    let of = |path: PathBuf| path.to_str().expect("UTF-8").to_owned();
    let (ca, cert, key) = (of(files.authority()), of(files.certificate()), of(files.key()));
    let (absent, data) = (path("absent"), path("data"));
    let (over_tls, plain) = ("rediss://127.0.0.1:9", "redis://127.0.0.1:9");
    for (url, files, says) in [
        (over_tls, ["--redis-ca", &absent].to_vec(), format!("--redis-ca {absent}: No such file")),
        (
            over_tls,
            ["--redis-ca", &key].to_vec(),
            format!("--redis-ca {key}: the certificate of the authority: there is no"),
        ),
        (
            over_tls,
            ["--redis-cert", &absent, "--redis-key", &key].to_vec(),
            format!("--redis-cert {absent}: No such file"),
        ),
        (
            over_tls,
            ["--redis-cert", &cert, "--redis-key", &cert].to_vec(),
            format!("--redis-cert {cert}, --redis-key {cert}: the client's key: there is no key"),
        ),
        (over_tls, ["--redis-key", &key].to_vec(), "--redis-cert <FILE>".to_owned()),
        (plain, ["--redis-ca", &ca].to_vec(), format!("--redis-ca {ca}: no address asks for TLS: write rediss://")),
        (
            plain,
            ["--redis-cert", &cert, "--redis-key", &key].to_vec(),
            format!("--redis-key {key}: no address asks for TLS: write rediss://"),
        ),
        ("", ["--redis-ca", &ca].to_vec(), "--redis-ca needs --redis: the URL of the store".to_owned()),
    ] {
        let url: &[&str] = if url.is_empty() { &[] } else { &["--redis", url] };
        let run = tidegate([&SERVE[..], &["--data", &data], url, &files].concat());
        assert_eq!(run.status, Some(2), "{run:?}");
        assert!(run.stderr.contains(&says), "{says}: {run:?}");
    }
}

#[test]
fn a_server_shares_limits_over_tls() {
    let authority = Authority::new();
    let redis = TlsRedis::that_asks_for_certificates(&authority);
    let folder = TempDir::new().expect("a folder");
    let of = |path: PathBuf| path.to_str().expect("UTF-8").to_owned();
    let (ca, cert, key) = (of(redis.files.authority()), of(redis.files.certificate()), of(redis.files.key()));
    let url = redis.url();
    let settings = ["--redis", &url, "--redis-ca", &ca, "--redis-cert", &cert, "--redis-key", &key];
    let served = Served::start_with(folder.path(), &[&settings[..], &["--redis-timeout", "10s"]].concat());
    let ana = Session::of_first_administrator(&served);
    let limit = json!({ "id": "s", "algorithm": "fixed_window", "limit": 100, "period": "300d", "sharing": "strict" });
    publish(&served, &ana, &limit);
    let (_, decision) = check(&served, "ada");
    assert!(decision.get("degraded").is_none() && decision["remaining"] == 99, "{decision}");
}

#[test]
fn an_invalid_key_prefix_is_a_startup_error() {
    let folder = TempDir::new().expect("a folder");
    let data = folder.path().join("data");
    let data = ["--data", data.to_str().expect("UTF-8")];
    for (prefix, word) in [("", "it is empty"), ("{shop}", "it has '{'")] {
        let store = ["--redis", "redis://127.0.0.1:9", "--redis-prefix", prefix];
        let run = tidegate([&SERVE[..], &data[..], &store].concat());
        assert_eq!(run.status, Some(2), "{run:?}");
        assert!(run.stderr.contains(&format!("--redis-prefix: the key prefix: {word}")), "{run:?}");
    }
}

#[test]
fn help_explains_the_store_and_shows_no_password() {
    for of in ["serve", "node"] {
        let url = format!("redis://:{SECRET}@store");
        let output = command().args([of, "--help"]).env("TIDEGATE_REDIS", url).output().expect("it runs");
        let said = String::from_utf8(output.stdout).expect("text");
        let line = said.split_whitespace().collect::<Vec<_>>().join(" ");
        for word in [
            "redis://USER:PASSWORD@HOST:PORT",
            "%40 for @",
            "rediss://",
            "redis-sentinel://USER:PASSWORD@HOST:PORT/MASTER/DATABASE",
            "on_failure",
            "TIDEGATE_REDIS",
            "--redis-prefix",
            "--redis-ca",
            "--redis-cert",
        ] {
            assert!(line.contains(word), "{of}: {word}");
        }
        assert!(!said.contains(SECRET), "{said}");
    }
}

#[test]
fn a_server_starts_before_its_store_and_connects_to_it_later() {
    let mut redis = Redis::start();
    redis.kill();
    let folder = TempDir::new().expect("a folder");
    let url = redis.url();
    let settings = ["--redis", &url, "--redis-timeout", "1s", "--redis-pause", "200ms"];
    let served = Served::start_with(folder.path(), &settings);
    let ana = Session::of_first_administrator(&served);
    let limit = json!({ "id": "s", "algorithm": "fixed_window", "limit": 100, "period": "300d", "sharing": "strict" });
    publish(&served, &ana, &limit);
    for _ in 0..5 {
        let (status, decision) = check(&served, "ada");
        assert_eq!((status, &decision["degraded"]), (200, &json!("store_failed")), "{decision}");
    }
    let is_away = || ana.get(&served, "/nodes")["items"][0]["store"]["is_away"] == true;
    assert!(is_away());
    redis.start_again();
    wait_for("the node sees without a check that the store is back", || (!is_away()).then_some(()));
    let (_, decision) = check(&served, "ada");
    assert!(decision.get("degraded").is_none() && decision["remaining"] == 99, "{decision}");
}

#[test]
fn a_server_starts_before_its_cluster() {
    let folder = TempDir::new().expect("a folder");
    // No store listens there.
    let served = Served::start_with(folder.path(), &["--redis", "redis://127.0.0.1:9,redis://127.0.0.1:19"]);
    assert_eq!(check(&served, "ada").0, 200);
}

/// Names of keys are derived with a secret of the admin server, which its nodes keep.
#[test]
fn nodes_of_one_admin_server_share_and_those_of_another_do_not() {
    let redis = Redis::start();
    let limit = json!({ "id": "s", "algorithm": "fixed_window", "limit": 100, "period": "300d", "sharing": "strict" });
    let remaining = |node: &Served| check(node, "ada").1["remaining"].as_u64();
    let [mut one, other] = [(); 2].map(|()| Fleet::start(&redis, &limit, (&["n-1", "n-2"], "2s")));
    assert_eq!((remaining(&one.nodes[0]), remaining(&one.nodes[1])), (Some(99), Some(98)));
    assert_eq!((remaining(&other.nodes[0]), remaining(&other.nodes[1])), (Some(99), Some(98)));
    // A node that starts while its admin server is away has it on its disk.
    one.admin.kill();
    one.nodes[1].kill();
    let again = one.start_node("n-2");
    assert_eq!(remaining(&again), Some(97));
    // One without it asks nothing of the store.
    let new = Served::node_with(&one.admin.admin, &one.token(), "n-3", &one.data("n-3"), &["--redis", &redis.url()]);
    wait_until("the fault is reported", || {
        let mut page = ureq::get(format!("{}/metrics", new.checks)).call().expect("an answer");
        let page = page.body_mut().read_to_string().expect("text");
        page.contains("tidegate_store_fault{code=\"no_secret\"} 1\n")
    });
}

#[test]
fn a_secret_of_keys_is_read_from_a_file() {
    let (redis, folder) = (Redis::start(), TempDir::new().expect("a folder"));
    let file = folder.path().join("secret");
    let (url, name) = (redis.url(), file.to_str().expect("UTF-8").to_owned());
    let arguments = ["--redis", &url, "--redis-timeout", "2s", "--redis-secret-file", &name];
    let limit = json!({ "id": "s", "algorithm": "fixed_window", "limit": 100, "period": "300d", "sharing": "strict" });
    let remaining = |data: &str, secret: &str| {
        fs::write(&file, secret).expect("it is written");
        let served = Served::start_with(&folder.path().join(data), &arguments);
        publish(&served, &Session::of_first_administrator(&served), &limit);
        check(&served, "ada").1["remaining"].as_u64()
    };
    assert_eq!(remaining("one", "0123456789abcdef\n"), Some(99));
    assert_eq!(remaining("two", "0123456789abcdef"), Some(98));
    assert_eq!(remaining("three", "another secret of keys"), Some(99));
    fs::write(&file, "short").expect("it is written");
    let data = folder.path().join("four");
    let run = tidegate([&SERVE[..], &["--data", data.to_str().expect("UTF-8")], &arguments].concat());
    assert_eq!(run.status, Some(2), "{run:?}");
    assert!(run.stderr.contains(&format!("--redis-secret-file {name}: the secret has fewer than 16 bytes")), "{run:?}");
}
