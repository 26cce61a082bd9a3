//! Whether the file of `--policy` still is what is in force.

use std::fs;

use serde_json::{Value, json};
use tidegate::{formats::Format, policy::Policy};
use tidegate_admin::PolicyFile;

use crate::support::{Client, Server, data_of, fresh};

const FILE: &str = r#"
[domains.default]
defaults = { user = "free" }
[[domains.default.tiers]]
id = "free"
limits = [{ id = "minute", algorithm = "token_bucket", limit = 5, period = "1m" }]
"#;

fn compared(ana: &Client) -> Value {
    let answer = ana.get("/api/v1/policy/file");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["file"].clone()
}

#[test]
fn a_file_that_differs_from_the_live_policy_is_told() {
    let (folder, mut server) = fresh();
    assert_eq!(compared(&server.administrator()), Value::Null, "there is none");
    server.stop();
    let files = tempfile::TempDir::new().expect("a folder");
    let path = files.path().join("policy.toml");
    let name = path.to_str().expect("a name").to_owned();
    fs::write(&path, FILE).expect("it is written");
    let policy = Policy::parse(FILE, Format::Toml).expect("a policy");
    let server = Server::start_with(&data_of(&folder), |settings| {
        settings.policy = Some(PolicyFile { name: name.clone(), policy, force: true });
    });
    let ana = server.sign_in();
    let state = |differs: Value| json!({ "path": name, "differs": differs, "problem": null });
    assert_eq!(compared(&ana), state(json!(false)));
    let (etag, mut free) = ana.tier("free");
    free["limits"][0]["limit"] = json!(6);
    let version = ana.get("/api/v1/policy").json()["version"].as_u64().expect("a number");
    assert_eq!(ana.publish_tier(version, &etag, &free).status, 201);
    assert_eq!(compared(&ana), state(json!(true)), "the live one was edited");
    fs::write(&path, FILE.replace("limit = 5", "limit = 6")).expect("it is written");
    assert_eq!(compared(&ana), state(json!(false)), "and so was the file");
    fs::write(&path, "[domains").expect("it is written");
    let broken = compared(&ana);
    assert_eq!(broken["differs"], Value::Null);
    assert!(broken["problem"].as_str().expect("text").contains("line 1"), "{broken}");
    fs::remove_file(&path).expect("it is there");
    assert!(compared(&ana)["problem"].is_string());
}
