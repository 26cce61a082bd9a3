//! Helpers that start an admin server and the nodes that follow it, and send changes.

use std::{fs, path::Path};

use serde_json::Value;

use super::{server::Served, session::Session};

impl Served {
    /// Starts the control plane alone, at this address, with more arguments.
    pub(crate) fn admin_alone(address: &str, data: &Path, arguments: &[&str]) -> Self {
        Self::run(&["admin", "--admin", address], data, arguments)
    }

    /// Starts a node that follows `admin` by the token in this file.
    pub(crate) fn node(admin: &str, token: &Path, name: &str, data: &Path) -> Self {
        Self::node_with(admin, token, name, data, &[])
    }

    pub(crate) fn node_with(admin: &str, token: &Path, name: &str, data: &Path, arguments: &[&str]) -> Self {
        let token = token.to_str().expect("UTF-8");
        let own = [
            "node",
            "--admin",
            admin,
            "--http",
            "127.0.0.1:0",
            "--grpc",
            "127.0.0.1:0",
            "--token-file",
            token,
            "--name",
            name,
        ];
        Self::run(&own, data, arguments)
    }
}

impl Session {
    /// Sends a change. Returns the status and the body of the response.
    pub(crate) fn send(&self, served: &Served, method: &str, path: &str, body: &Value) -> (u16, Value) {
        self.send_if(served, method, path, body, "")
    }

    /// Sends a change. Returns the status of the response; `None` if the server was killed before it responded.
    pub(crate) fn try_post(&self, admin: &str, path: &str, body: &Value) -> Option<u16> {
        let request = self.agent.post(format!("{admin}/api/v1{path}"));
        let request = request.header("cookie", self.cookie(admin)).header("x-csrf-token", &self.csrf);
        Some(request.send_json(body).ok()?.status().as_u16())
    }

    /// Sends a change of the object with this entity tag.
    pub(crate) fn send_if(&self, served: &Served, method: &str, path: &str, body: &Value, etag: &str) -> (u16, Value) {
        let request = ureq::http::Request::builder().method(method).uri(format!("{}/api/v1{path}", served.admin));
        let request = request.header("cookie", self.cookie(&served.admin)).header("x-csrf-token", &self.csrf);
        let request = if etag.is_empty() { request } else { request.header("if-match", etag) };
        let request = request.header("content-type", "application/json").body(body.to_string()).expect("a request");
        let mut answer = self.agent.run(request).expect("an answer");
        let text = answer.body_mut().with_config().limit(64 << 20).read_to_string().expect("text");
        (answer.status().as_u16(), serde_json::from_str(&text).unwrap_or_default())
    }
}

/// Writes a token and a line end into this file.
pub(crate) fn write_token(file: &Path, secret: &str) {
    fs::write(file, format!("{secret}\n")).expect("it is written");
}
