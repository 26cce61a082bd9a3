//! `tidegate admin user`: users of a database, beside a server that runs on it and without one.

use std::path::Path;

use serde_json::json;
use tempfile::TempDir;

use crate::support::{Run, server::Served, tidegate_reading};

const PASSWORD: &str = "correct horse battery";
const OTHER: &str = "another few words";

/// Runs `tidegate admin user` with these arguments and this standard input.
fn user(data: &Path, arguments: &[&str], stdin: &str) -> (Option<i32>, String, String) {
    let data = data.to_str().expect("text");
    let place = ["--data", data];
    let all = ["admin", "user"].iter().chain(arguments).chain(&place);
    let Run { stdout, stderr, status } = tidegate_reading(stdin.as_bytes(), all);
    (status, stdout, stderr)
}

fn sign_in(served: &Served, name: &str, password: &str) -> (u16, String) {
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let body = json!({ "name": name, "password": password });
    let answer = agent.post(format!("{}/api/v1/session", served.admin)).send_json(body).expect("an answer");
    let cookie = answer.headers().get("set-cookie").map_or("", |cookie| cookie.to_str().expect("text"));
    (answer.status().as_u16(), cookie.split(';').next().expect("a part").to_owned())
}

fn session(served: &Served, cookie: &str) -> u16 {
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let answer = agent.get(format!("{}/api/v1/session", served.admin)).header("cookie", cookie).call();
    answer.expect("an answer").status().as_u16()
}

#[test]
fn users_are_added_and_reset_beside_a_server_and_without_one() {
    let folder = TempDir::new().expect("a folder");
    let data = folder.path().join("data");
    let (status, _, stderr) = user(&data, &["list"], "");
    assert!(status == Some(2) && stderr.contains("--data") && !data.exists(), "{stderr}");
    let mut served = Served::start(&data);
    let added = user(&data, &["add", "ana", "--role", "admin"], &format!("{PASSWORD}\n"));
    assert_eq!(added, (Some(0), String::new(), String::new()));
    // The server knows at once; its link for the first administrator is dead.
    let (status, cookie) = sign_in(&served, "ana", PASSWORD);
    assert_eq!(status, 200);
    assert_eq!(session(&served, &cookie), 200);
    let reset = user(&data, &["reset", "ana"], OTHER);
    assert_eq!(reset, (Some(0), String::new(), String::new()));
    assert_eq!(session(&served, &cookie), 401);
    assert_eq!((sign_in(&served, "ana", PASSWORD).0, sign_in(&served, "ana", OTHER).0), (401, 200));
    for (arguments, stdin, says) in [
        (&["add", "ana"][..], OTHER, "there is a user `ana` already"),
        (&["add", "Ben"], OTHER, "begin with a-z"),
        (&["add", "ben"], "short", "12 characters or more"),
        (&["add", "ben"], "", "12 characters or more"),
        (&["add", "ben", "--role", "root"], OTHER, "the roles are viewer, operator, editor and admin"),
        (&["reset", "ben"], OTHER, "there is no user `ben`"),
        (&["reset", "ana", "--role", "viewer"], OTHER, "`ana` is the last administrator"),
        (&["remove-second-factor", "ben"], "", "there is no user `ben`"),
        (&["remove-second-factor", "ana"], "", "`ana` has no second factor"),
        (&["add", "ben", "--password", OTHER], "", "unexpected argument"),
    ] {
        let (status, stdout, stderr) = user(&data, arguments, stdin);
        assert_eq!((status, stdout.as_str()), (Some(2), ""), "{arguments:?}: {stderr}");
        assert!(stderr.contains(says), "{arguments:?}: {stderr}");
    }
    served.kill();
    let added = user(&data, &["add", "ben"], OTHER);
    assert_eq!(added, (Some(0), String::new(), String::new()));
    let (status, stdout, _) = user(&data, &["list"], "");
    let lines: Vec<Vec<&str>> = stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((status, lines), (Some(0), vec![vec!["ana", "admin"], vec!["ben", "viewer"]]));
    let served = Served::start(&data);
    assert_eq!(served.sign_in, None, "there is an administrator");
    assert_eq!(sign_in(&served, "ben", OTHER).0, 200);
}
