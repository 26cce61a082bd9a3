//! `Session`: a signed-in user at a running server.

use std::time::Duration;

use serde_json::{Value, json};
use ureq::Agent;

use super::server::Served;

const PASSWORD: &str = "correct horse battery";

fn agent() -> Agent {
    Agent::config_builder().http_status_as_error(false).timeout_global(Some(Duration::from_mins(4))).build().into()
}

/// A signed-in session: the value of its cookie, and the token against cross-site request forgery.
pub(crate) struct Session {
    pub(crate) agent: Agent,
    token: String,
    pub(crate) csrf: String,
}

impl Session {
    pub(crate) fn of_first_administrator(served: &Served) -> Self {
        let agent = agent();
        let body = json!({ "code": served.code(), "name": "ana", "password": PASSWORD });
        let mut answer = agent.post(format!("{}/api/v1/setup", served.admin)).send_json(&body).expect("an answer");
        assert_eq!(answer.status(), 201);
        let cookie = answer.headers()["set-cookie"].to_str().expect("text");
        let cookie = cookie.split(';').next().expect("a part");
        let token = cookie.split_once('=').expect("a value").1.to_owned();
        let csrf = json_of(&mut answer)["csrf"].as_str().expect("a token").to_owned();
        Self { agent, token, csrf }
    }

    /// Returns the cookie header. The name of the cookie has the port of the server, which changes at each start.
    pub(crate) fn cookie(&self, admin: &str) -> String {
        format!("tidegate_session_{}={}", admin.rsplit_once(':').expect("a port").1, self.token)
    }

    pub(crate) fn get(&self, served: &Served, path: &str) -> Value {
        let url = format!("{}/api/v1{path}", served.admin);
        json_of(&mut self.agent.get(url).header("cookie", self.cookie(&served.admin)).call().expect("an answer"))
    }

    /// Publishes the tier `free` with this limit. Returns the version; `None` if the server was killed before it responded.
    pub(crate) fn publish(&self, admin: &str, version: u64, etag: &str, limit: u64) -> Option<u64> {
        let value = json!({
            "id": "free",
            "limits": [{ "id": "minute", "algorithm": "token_bucket", "limit": limit, "period": "1m" }],
        });
        let list = json!({
            "base_version": version,
            "message": format!("limit {limit}"),
            "changes": [{ "op": "put", "kind": "tier", "id": "free", "value": value }],
            "if_match": { "tier:free": etag },
        });
        let request = self.agent.post(format!("{admin}/api/v1/policy/changes"));
        let request = request.header("cookie", self.cookie(admin)).header("x-csrf-token", &self.csrf);
        let mut answer = request.send_json(&list).ok()?;
        assert_eq!(answer.status(), 201, "{:?}", answer.body_mut().read_to_string());
        json_of(&mut answer)["version"].as_u64()
    }
}

fn json_of(answer: &mut ureq::http::Response<ureq::Body>) -> Value {
    serde_json::from_str(&answer.body_mut().read_to_string().expect("text")).expect("JSON")
}

/// Sends a check. Returns the status and the body of the response.
pub(crate) fn check(served: &Served, user: &str) -> (u16, Value) {
    let body = json!({ "identities": [{ "kind": "user", "value": user }] });
    let mut answer = agent().post(format!("{}/v1/check", served.checks)).send_json(&body).expect("an answer");
    (answer.status().as_u16(), json_of(&mut answer))
}

/// Returns the version in force and its limit of the tier `free`, on which the admin server and a check must agree.
pub(crate) fn in_force(served: &Served, session: &Session) -> (u64, u64) {
    let policy = session.get(served, "/policy");
    let version = policy["version"].as_u64().expect("a version");
    let limit = policy["document"]["domains"]["default"]["tiers"][0]["limits"][0]["limit"].as_u64().expect("a limit");
    let (_, decision) = check(served, "ada");
    assert_eq!(
        (&decision["policy_version"], &decision["limit"]),
        (&json!(version), &json!(limit)),
        "both planes agree"
    );
    (version, limit)
}
