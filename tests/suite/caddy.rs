//! The recipe of docs/proxies.md, as it stands there, in a real Caddy before a real server.

#[path = "support/proxy.rs"]
mod proxy;
#[path = "support/server.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod server;
#[path = "support/mod.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod support;

use std::{
    fs,
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::{
    proxy::{Proxy, free_address, recipe, serve_by, serve_hello},
    support::command,
};

/// Caddy with the recipe.
fn before(checks: &str) -> Proxy {
    let folder = TempDir::new().expect("a folder");
    let address = free_address();
    let recipe = recipe(
        "docs/proxies.md",
        "caddyfile",
        &[
            ("127.0.0.1:9080", checks.strip_prefix("http://").expect("a URL")),
            // By any name, and without a certificate of one.
            ("example.com {", &format!("http://:{} {{\nbind 127.0.0.1", address.port())),
            ("127.0.0.1:3000", &serve_hello().to_string()),
        ],
    );
    fs::write(folder.path().join("Caddyfile"), format!("{{\nadmin off\n}}\n{recipe}")).expect("it is ours");
    let mut caddy = Command::new("caddy");
    caddy.args(["run", "--adapter", "caddyfile", "--config"]).arg(folder.path().join("Caddyfile"));
    // Where it keeps what it does.
    caddy.env("HOME", folder.path()).env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME");
    caddy.stderr(Stdio::null());
    Proxy::start(caddy, address, folder)
}

#[test]
fn the_recipe_denies_and_lets_pass_while_nobody_decides() {
    proxy::denies_and_lets_pass_while_nobody_decides(before, "\"limit_id\":\"default/tier:free/day\"");
}

#[test]
fn path_and_method_reach_the_rules_and_the_service_may_say_403_itself() {
    proxy::tells_path_and_method(before);
}

/// Caddy would tell the names of its variables.
#[test]
fn where_there_are_no_numbers_nobody_is_told_any() {
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
