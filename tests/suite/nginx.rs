//! The recipe of docs/proxies.md in a real nginx before a real server.

use std::{fs, process::Stdio};

use tempfile::TempDir;
use tidegate_testkit::{port::ReservedPort, process, proxy::ProxyProcess};

use crate::support::{
    SERVE, command,
    proxy::{self, Proxy, recipe, serve_hello},
};

/// Starts nginx with the configuration of the document.
fn before(checks: &str) -> Proxy {
    let folder = TempDir::new().expect("a folder");
    let port = ReservedPort::new();
    let recipe = recipe(
        "docs/proxies.md",
        "nginx",
        &[
            ("127.0.0.1:9080", checks.strip_prefix("http://").expect("a URL")),
            ("listen 80;", &format!("listen {};", port.address())),
            ("127.0.0.1:3000", &serve_hello().to_string()),
        ],
    );
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths = paths.map(|of| format!("{of}_temp_path {of};")).join("\n");
    let whole = format!(
        "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log error.log;\nevents {{}}\n\
         http {{\naccess_log off;\n{paths}\n{recipe}\n}}\n"
    );
    fs::write(folder.path().join("nginx.conf"), whole).expect("it is ours");
    let mut nginx = process::command("nginx");
    nginx.arg("-p").arg(folder.path()).args(["-c", "nginx.conf", "-e", "error.log"]).stderr(Stdio::inherit());
    Proxy(ProxyProcess::start(nginx, port, folder))
}

#[test]
fn the_recipe_denies_and_lets_requests_pass_while_the_server_is_down() {
    proxy::denies_and_lets_requests_pass_while_the_server_is_down(before, "Too many requests.\n");
}

#[test]
fn path_and_method_reach_the_rules_and_a_403_of_the_service_passes() {
    proxy::sends_path_and_method(before);
}

#[test]
fn invalid_settings_for_proxies_are_startup_errors() {
    for (arguments, says) in [
        (["--identity", "ip"], "KIND=SOURCE"),
        (["--identity", "IP=address"], "not a kind"),
        (["--identity", "user=cookie"], "not a source"),
        (["--identity", "ip=address,ip=bearer"], "given twice"),
        (["--trusted-proxy", "proxy"], "10.0.0.0/8"),
        (["--ipv6-prefix", "0"], "1 to 128"),
        (["--endpoint-header", "a b"], "name of a header"),
    ] {
        let folder = TempDir::new().expect("a folder");
        let data = folder.path();
        let output = command().args(SERVE).arg("--data").arg(data).args(arguments).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && said.contains(says) && said.contains(arguments[0]),
            "{says}: {said}"
        );
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
