//! A real provider (admin/tests/oidc), and a browser that goes there and comes back.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tidegate_admin::{Oidc, Role};
use ureq::{Agent, http::HeaderMap};

use crate::{
    home::Home,
    support::{Answer, Client, Server},
};

pub(crate) const CALLBACK: &str = "/api/v1/session/oidc/callback";
const SECRET: &str = "a secret: 100% + more/";

/// A running provider. Ends when it is dropped.
pub(crate) struct Provider {
    child: Child,
    pub(crate) issuer: String,
    secret: NamedTempFile,
}

impl Provider {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// With variables that make it other than usual.
    pub(crate) fn start_with(variables: &[(&str, &str)]) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oidc");
        assert!(folder.join("node_modules").is_dir(), "install the provider first: npm --prefix admin/tests/oidc ci");
        let mut child = Command::new("node")
            .arg("provider.js")
            .current_dir(folder)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("node runs");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let issuer = lines.find(|line| line.starts_with("http:")).expect("it says where it is");
        // What else it prints nobody reads, and it must not have to wait for a reader.
        thread::spawn(move || lines.for_each(drop));
        let mut secret = NamedTempFile::new().expect("a file");
        writeln!(secret, "{SECRET}").expect("it is written");
        Self { child, issuer, secret }
    }

    pub(crate) fn settings(&self) -> Oidc {
        settings(&self.issuer, self.secret.path())
    }

    /// A server whose people may sign in by it.
    pub(crate) fn server(&self, home: &Home) -> Server {
        Server::start_with(home, |settings| settings.access.oidc = Some(self.settings()))
    }

    pub(crate) fn end(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn settings(issuer: &str, secret: &Path) -> Oidc {
    let role = |group: &str, role| (group.to_owned(), role);
    Oidc {
        issuer: issuer.to_owned(),
        client_id: "tidegate".to_owned(),
        client_secret: PathBuf::from(secret),
        name: "our sign-in".to_owned(),
        scopes: vec!["profile".to_owned(), "email".to_owned()],
        groups_claim: "groups".to_owned(),
        roles: vec![
            role("staff", Role::Viewer),
            role("support", Role::Operator),
            role("ops", Role::Editor),
            role("admins", Role::Admin),
        ],
        ca: None,
        timeout: Oidc::PATIENCE,
    }
}

/// A browser, which follows no redirection by itself.
pub(crate) struct Browser {
    pub(crate) client: Client,
    /// Names and values of the cookies of tries, the oldest first.
    pub(crate) tries: Vec<(String, String)>,
    /// Cookies of the provider.
    there: BTreeMap<String, String>,
}

impl Browser {
    pub(crate) fn of(server: &Server) -> Self {
        let config = Agent::config_builder().http_status_as_error(false).max_redirects(0);
        let agent = config.max_redirects_will_error(false).build().new_agent();
        Self { client: Client { agent, ..server.stranger() }, tries: Vec::new(), there: BTreeMap::new() }
    }

    /// Begins to sign in; where the browser is sent.
    pub(crate) fn go(&mut self, query: &str) -> String {
        let path = format!("/api/v1/session/oidc{query}");
        let sent = self.client.send("GET", &path, &[("cookie", &self.cookies())], None);
        assert_eq!(sent.status, 303, "{sent:?}");
        self.take(&sent);
        sent.header("location").to_owned()
    }

    /// Signs this person in at the provider; path and query with which the browser comes back.
    pub(crate) fn at_provider(&mut self, url: &str, person: &Value) -> String {
        let hint: String = form_urlencoded::byte_serialize(person.to_string().as_bytes()).collect();
        let (origin, _) = url.split_once("/auth").expect("its address");
        let mut url = format!("{url}&login_hint={hint}");
        for _ in 0..10 {
            let cookies: Vec<String> = self.there.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let mut answer =
                self.client.agent.get(&url).header("cookie", cookies.join("; ")).call().expect("an answer");
            self.keep(answer.headers());
            let to = answer.headers().get("location").map(|to| to.to_str().expect("text").to_owned());
            assert!(to.is_some(), "{url}: {}", answer.body_mut().read_to_string().expect("text"));
            let to = to.expect("it sends the browser on");
            if let Some((_, query)) = to.split_once(CALLBACK) {
                return format!("{CALLBACK}{query}");
            }
            url = if to.starts_with('/') { format!("{origin}{to}") } else { to };
        }
        unreachable!("the provider sends the browser round in circles: {url}");
    }

    fn keep(&mut self, headers: &HeaderMap) {
        for cookie in headers.get_all("set-cookie") {
            let cookie = cookie.to_str().expect("text").split(';').next().expect("a part");
            let (name, value) = cookie.split_once('=').expect("a value");
            self.there.insert(name.to_owned(), value.to_owned());
        }
    }

    /// Comes back; where that signs in, with the new session.
    pub(crate) fn back(&mut self, path: &str) -> Answer {
        let answer = self.client.send("GET", path, &[("cookie", &self.cookies())], None);
        self.take(&answer);
        if answer.status == 200 {
            let session = self.client.get("/api/v1/session").json();
            session["csrf"].as_str().expect("text").clone_into(&mut self.client.csrf);
        }
        answer
    }

    /// Of tries, for a request.
    pub(crate) fn cookies(&self) -> String {
        let cookies: Vec<String> = self.tries.iter().map(|(name, value)| format!("{name}={value}")).collect();
        cookies.join("; ")
    }

    /// Takes over what the server sets: cookies of tries, which may be taken away, and a session's.
    fn take(&mut self, answer: &Answer) {
        for cookie in answer.headers.get_all("set-cookie") {
            let cookie = cookie.to_str().expect("text");
            let (name, value) = cookie.split(';').next().expect("a part").split_once('=').expect("a value");
            if !name.contains("_oidc_") {
                value.clone_into(&mut self.client.token);
                continue;
            }
            self.tries.retain(|(known, _)| known != name);
            if !cookie.contains("Max-Age=0") {
                self.tries.push((name.to_owned(), value.to_owned()));
            }
        }
    }

    /// The whole way.
    pub(crate) fn sign_in(&mut self, person: &Value) -> Answer {
        let url = self.go("");
        let back = self.at_provider(&url, person);
        self.back(&back)
    }
}

/// Somebody of these groups; the name is the subject too.
pub(crate) fn person(name: &str, groups: &[&str]) -> Value {
    json!({ "sub": format!("sub-{name}"), "preferred_username": name, "groups": groups })
}
