//! A session at an admin server that has just started, as its first administrator or as a viewer.

use std::io::{BufRead, BufReader, Read};

use serde_json::{Value, json};
use ureq::Agent;

use crate::BenchResult;

const PASSWORD: &str = "correct horse battery";

/// The session of one user.
#[derive(Debug)]
pub struct AdminSession {
    /// The address of the server.
    pub url: String,
    /// The session cookie, as requests carry it.
    pub cookie: String,
    /// The CSRF token, which requests that change something carry as well.
    csrf: String,
    agent: Agent,
}

impl AdminSession {
    /// Creates the first administrator of the server that prints `output`, and signs in.
    /// It fails if the server prints no link to sign in with, or rejects the request.
    pub fn set_up(output: impl Read) -> BenchResult<Self> {
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

    /// Creates a viewer, and signs in as that user.
    /// It fails if the server rejects the request.
    pub fn add_viewer(&self, name: &str) -> BenchResult<Self> {
        let credentials = json!({ "name": name, "password": PASSWORD });
        let mut user = credentials.clone();
        user["role"] = json!("viewer");
        self.post("/users", &user)?;
        Self::begin(self.url.clone(), "/session", &credentials)
    }

    fn begin(url: String, path: &str, credentials: &Value) -> BenchResult<Self> {
        let agent = Agent::new_with_defaults();
        let mut answer = agent.post(format!("{url}/api/v1{path}")).send_json(credentials)?;
        let cookie = answer.headers()["set-cookie"].to_str()?.split(';').next().unwrap_or_default().to_owned();
        let csrf = answer.body_mut().read_json::<Value>()?["csrf"].as_str().ok_or("no token")?.to_owned();
        Ok(Self { url, cookie, csrf, agent })
    }

    /// Sends a `GET` request.
    /// It fails if the server rejects the request.
    pub fn get(&self, path: &str) -> BenchResult<Value> {
        let request = self.agent.get(format!("{}/api/v1{path}", self.url)).header("cookie", &self.cookie);
        Ok(request.call()?.body_mut().read_json()?)
    }

    /// Sends a `POST` request with a JSON body.
    /// It fails if the server rejects the request.
    pub fn post(&self, path: &str, body: &Value) -> BenchResult<Value> {
        self.send(path, "application/json", &body.to_string())
    }

    /// Sends a `POST` request with a body of this media type.
    /// It fails if the server rejects the request.
    pub fn send(&self, path: &str, media_type: &str, body: &str) -> BenchResult<Value> {
        let request = self.agent.post(format!("{}/api/v1{path}", self.url)).header("cookie", &self.cookie);
        Ok(request.header("x-csrf-token", &self.csrf).content_type(media_type).send(body)?.body_mut().read_json()?)
    }
}
