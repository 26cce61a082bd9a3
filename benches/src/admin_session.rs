//! A session at an admin server that has just started and has no administrator yet.

use std::io::{BufRead, BufReader, Read};

use serde_json::{Value, json};
use ureq::Agent;

use crate::servers::Outcome;

const PASSWORD: &str = "correct horse battery";

/// The session of one user.
#[derive(Debug)]
pub struct AdminSession {
    /// Address of the server.
    pub url: String,
    /// The cookie of the session, as requests carry it.
    pub cookie: String,
    /// The token that a change carries besides.
    csrf: String,
    agent: Agent,
}

impl AdminSession {
    /// Becomes the first administrator of the server that prints `output`.
    ///
    /// # Errors
    ///
    /// It prints no link to sign in with, or refuses.
    pub fn set_up(output: impl Read) -> Outcome<Self> {
        let (mut url, mut code) = (String::new(), String::new());
        for line in BufReader::new(output).lines() {
            let line = line?;
            match line.split_once("  ").map(|(name, value)| (name, value.trim())) {
                Some(("dashboard", value)) => value.clone_into(&mut url),
                Some(("sign in", value)) => value.split_once("#code=").ok_or("no code")?.1.clone_into(&mut code),
                _ if line == "Ctrl+C stops." => break,
                _ => {}
            }
        }
        Self::begin(url, "/setup", &json!({ "code": code, "name": "bench", "password": PASSWORD }))
    }

    /// Creates a viewer, and signs in as that one.
    ///
    /// # Errors
    ///
    /// The server refuses.
    pub fn add_viewer(&self, name: &str) -> Outcome<Self> {
        let credentials = json!({ "name": name, "password": PASSWORD });
        let mut user = credentials.clone();
        user["role"] = json!("viewer");
        self.post("/users", &user)?;
        Self::begin(self.url.clone(), "/session", &credentials)
    }

    fn begin(url: String, path: &str, credentials: &Value) -> Outcome<Self> {
        let agent = Agent::new_with_defaults();
        let mut answer = agent.post(format!("{url}/api/v1{path}")).send_json(credentials)?;
        let cookie = answer.headers()["set-cookie"].to_str()?.split(';').next().unwrap_or_default().to_owned();
        let csrf = answer.body_mut().read_json::<Value>()?["csrf"].as_str().ok_or("no token")?.to_owned();
        Ok(Self { url, cookie, csrf, agent })
    }

    /// Reads.
    ///
    /// # Errors
    ///
    /// The server refuses.
    pub fn get(&self, path: &str) -> Outcome<Value> {
        let request = self.agent.get(format!("{}/api/v1{path}", self.url)).header("cookie", &self.cookie);
        Ok(request.call()?.body_mut().read_json()?)
    }

    /// Changes something by a document.
    ///
    /// # Errors
    ///
    /// The server refuses.
    pub fn post(&self, path: &str, body: &Value) -> Outcome<Value> {
        self.send(path, "application/json", &body.to_string())
    }

    /// Changes something by a text of this media type.
    ///
    /// # Errors
    ///
    /// The server refuses.
    pub fn send(&self, path: &str, media_type: &str, body: &str) -> Outcome<Value> {
        let request = self.agent.post(format!("{}/api/v1{path}", self.url)).header("cookie", &self.cookie);
        Ok(request.header("x-csrf-token", &self.csrf).content_type(media_type).send(body)?.body_mut().read_json()?)
    }
}
