//! The recipe of docs/proxies.md in a real Caddy before a real server.

use std::{fs, process::Stdio};

use tempfile::TempDir;
use tidegate_testkit::{port::ReservedPort, process, proxy::ProxyProcess};

use crate::support::proxy::{self, Proxy, recipe, serve_by, serve_hello};

/// Starts Caddy with the configuration of the document.
fn before(checks: &str) -> Proxy {
    let folder = TempDir::new().expect("a folder");
    let port = ReservedPort::new();
    let recipe = recipe(
        "docs/proxies.md",
        "caddyfile",
        &[
            ("127.0.0.1:9080", checks.strip_prefix("http://").expect("a URL")),
            // By any name, and without a certificate of one.
            ("example.com {", &format!("http://:{} {{\nbind 127.0.0.1", port.port())),
            ("127.0.0.1:3000", &serve_hello().to_string()),
        ],
    );
    fs::write(folder.path().join("Caddyfile"), format!("{{\nadmin off\n}}\n{recipe}")).expect("it is ours");
    let mut caddy = process::command("caddy");
    caddy.args(["run", "--adapter", "caddyfile", "--config"]).arg(folder.path().join("Caddyfile"));
    // The folder where Caddy keeps its state.
    caddy.env("HOME", folder.path()).env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME");
    caddy.stderr(Stdio::null());
    Proxy(ProxyProcess::start(caddy, port, folder))
}

#[test]
fn the_recipe_denies_and_lets_requests_pass_while_the_server_is_down() {
    proxy::denies_and_lets_requests_pass_while_the_server_is_down(before, "\"limit_id\":\"default/tier:free/day\"");
}

#[test]
fn path_and_method_reach_the_rules_and_a_403_of_the_service_passes() {
    proxy::sends_path_and_method(before);
}

/// Caddy would send the names of its variables if its configuration did not test that the headers are numbers.
#[test]
fn without_limits_responses_have_no_rate_limit_headers() {
    let folder = TempDir::new().expect("a folder");
    let mut served = serve_by(folder.path(), "[domains.default]\n");
    let caddy = before(&served.checks);
    for is_there in [true, false] {
        let answer = caddy.ask("GET / HTTP/1.1\r\nX-RateLimit-Limit: 7\r\nX-RateLimit-Reset: 7\r\n");
        assert_eq!((answer.status(), answer.header("X-RateLimit-Limit")), ("200", None), "{is_there}: {}", answer.0);
        assert!(!answer.0.to_lowercase().contains("x-ratelimit"), "{is_there}: {}", answer.0);
        served.kill();
    }
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: bounds the time of an answer, which a busy machine does not keep"]
    fn the_recipe_lets_requests_pass_within_two_seconds_while_the_server_hangs() {
        proxy::lets_requests_pass_within_two_seconds_while_the_server_hangs(before);
    }
}
