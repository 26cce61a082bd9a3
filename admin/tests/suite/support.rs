//! Starts an admin server as the binary does, on port 0, and asks it as a browser or a script would.

use std::{
    net::TcpListener,
    sync::{Arc, Mutex, OnceLock},
    thread::{self, JoinHandle},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tidegate::{Decision, Engine, Identity, Request};
use tidegate_admin::{Admin, FiguresClock, Keys, Settings, StartError};
use tokio::{runtime, sync::oneshot};
use ureq::Agent;

use crate::home::{Folder, Home};

use crate::documented;

pub(crate) const PASSWORD: &str = "correct horse battery";

/// A running server. Stopped when it is dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) setup_path: Option<String>,
    pub(crate) engine: Arc<Engine>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Opens a server on this home, without serving.
pub(crate) fn open(home: &Home) -> Result<(), StartError> {
    open_with(home, |_| ())
}

/// With settings that `change` makes other than usual.
pub(crate) fn open_with(home: &Home, change: impl FnOnce(&mut Settings)) -> Result<(), StartError> {
    let mut settings = settings(home).0;
    change(&mut settings);
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(Admin::open(settings)).map(drop)
}

/// A clock for figures that stands until it is set.
#[derive(Clone)]
pub(crate) struct Time(Arc<Mutex<Timestamp>>);

impl Time {
    pub(crate) fn at(time: &str) -> Self {
        Self(Arc::new(Mutex::new(time.parse().expect("an instant"))))
    }

    pub(crate) fn set(&self, time: &str) {
        *self.0.lock().expect("whole") = time.parse().expect("an instant");
    }

    pub(crate) fn go_on(&self, seconds: i64) {
        let mut now = self.0.lock().expect("whole");
        *now += SignedDuration::from_secs(seconds);
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.0.lock().expect("whole").as_millisecond()
    }

    pub(crate) fn clock(&self) -> FiguresClock {
        let time = self.clone();
        FiguresClock::of(move || *time.0.lock().expect("whole"))
    }
}

fn settings(home: &Home) -> (Settings, Arc<Engine>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let engine = Arc::new(Engine::with_max_keys(10_000));
    let settings = Settings {
        data: home.data.clone(),
        database: home.url(),
        keeps_files: false,
        listener,
        store: None,
        engine: Arc::clone(&engine),
        environment: Some("test".to_owned()),
        production: false,
        is_node: true,
        node: "here".to_owned(),
        figures_clock: FiguresClock::default(),
        url: None,
        policy: None,
        keys: Keys::default(),
        record: None,
        check_url: Some("http://127.0.0.1:1".to_owned()),
        process: tidegate_admin::Process { max_keys: Some(10_000), ..tidegate_admin::Process::default() },
        errors: tidegate_admin::ErrorCounts::of(|| [("bad_request", 2)].into()),
        access: tidegate_admin::Access::default(),
        connections: tidegate_admin::ConnectionCaps::default(),
        periods: tidegate_admin::Periods {
            node_heartbeat: Duration::from_millis(500),
            ..tidegate_admin::Periods::default()
        },
    };
    (settings, engine, url)
}

impl Server {
    pub(crate) fn start(home: &Home) -> Self {
        Self::start_with(home, |_| ())
    }

    /// Under this name, keeping figures by this time.
    pub(crate) fn start_at(home: &Home, node: &str, time: &Time) -> Self {
        Self::start_with(home, |settings| {
            node.clone_into(&mut settings.node);
            settings.figures_clock = time.clock();
        })
    }

    /// With settings that `change` makes other than usual.
    pub(crate) fn start_with(home: &Home, change: impl FnOnce(&mut Settings)) -> Self {
        let (mut settings, engine, url) = settings(home);
        change(&mut settings);
        let (opened, is_open) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let admin = Admin::open(settings).await.expect("it starts");
                opened.send(admin.setup_path()).expect("somebody waits");
                admin.serve(async { drop(stopped.await) }).await.expect("it serves");
            });
        });
        let setup_path = is_open.recv().expect("it opens");
        Self { url, setup_path, engine, stop: Some(stop), thread: Some(thread) }
    }

    /// Stops as on Ctrl+C.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends well");
        }
    }

    /// The code of the one-time link.
    pub(crate) fn code(&self) -> &str {
        self.setup_path.as_deref().and_then(|path| path.strip_prefix("/setup#code=")).expect("no administrator yet")
    }

    pub(crate) fn stranger(&self) -> Client {
        let config = Agent::config_builder().http_status_as_error(false).build();
        Client {
            url: self.url.clone(),
            agent: config.new_agent(),
            token: String::new(),
            csrf: String::new(),
            bearer: String::new(),
        }
    }

    /// Makes the first administrator.
    pub(crate) fn administrator(&self) -> Client {
        let mut client = self.stranger();
        let body = json!({ "code": self.code(), "name": "ana", "password": PASSWORD });
        client.enter("/api/v1/setup", &body);
        client
    }

    /// A new session of the administrator that [`administrator`](Self::administrator) made.
    pub(crate) fn sign_in(&self) -> Client {
        self.sign_in_as("ana", PASSWORD)
    }

    pub(crate) fn sign_in_as(&self, name: &str, password: &str) -> Client {
        let mut client = self.stranger();
        client.enter("/api/v1/session", &json!({ "name": name, "password": password }));
        client
    }

    /// Signs a user in through a trusted proxy that names this client address.
    pub(crate) fn sign_in_from(&self, address: &str, name: &str, password: &str) -> Client {
        let mut client = self.stranger();
        let body = json!({ "name": name, "password": password }).to_string().into_bytes();
        let answer = client.send("POST", "/api/v1/session", &[("x-forwarded-for", address)], Some(body));
        client.keep(&answer);
        client
    }

    /// A request of this user, of cost 1.
    pub(crate) fn check(&self, user: &str) -> Decision<'_> {
        let who = [Identity::new("user", user).expect("valid")];
        self.engine.check(&Request::new(&who).expect("valid"))
    }

    /// Shows that a hostile caller takes nothing from others: a user who signs in, and this one, who reads and publishes the tier
    /// `free`, are answered with what they ask for; and a user of that tier gets exactly its limit.
    pub(crate) fn gives_others_their_quota(&self, other: &Client) {
        assert_eq!(self.sign_in().get("/api/v1/tiers").status, 200);
        self.publishes_and_decides(other);
    }

    /// Shows the same without a sign-in.
    pub(crate) fn publishes_and_decides(&self, other: &Client) {
        let version = self.engine.version();
        let limit = 50 + version;
        let (etag, mut free) = other.tier("free");
        // Nothing comes back meanwhile.
        free["limits"] = json!([{ "id": "day", "algorithm": "fixed_window", "limit": limit, "period": "300d" }]);
        let published = other.publish_tier(version, &etag, &free);
        assert_eq!(published.status, 201, "{published:?}");
        let user = format!("user-{version}");
        let allowed = (0..2 * limit).filter(|_| self.check(&user).is_allowed()).count() as u64;
        assert_eq!(allowed, limit, "each user has its quota");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A home, and the server that made its database.
pub(crate) fn fresh() -> (Folder, Server) {
    let folder = Folder::new();
    let server = Server::start(folder.home());
    (folder, server)
}

/// The same, where the server made the tables too.
pub(crate) fn first_start() -> (Folder, Server) {
    let folder = Folder::untouched();
    let server = Server::start(folder.home());
    (folder, server)
}

/// What another server on the same home is told.
pub(crate) fn data_of(folder: &Folder) -> Home {
    folder.home().clone()
}

/// A browser, signed in or not, or a script.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) url: String,
    pub(crate) agent: Agent,
    /// Of its session.
    pub(crate) token: String,
    pub(crate) csrf: String,
    /// Of a script or node, instead of a session; empty: none.
    pub(crate) bearer: String,
}

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: ureq::http::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).expect("JSON")
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }

    /// What is wrong: the pointers into the body.
    pub(crate) fn pointers(&self) -> Vec<String> {
        self.wrong("pointer")
    }

    /// What is wrong: each `pointer`, `parameter` or `header` that is named.
    pub(crate) fn wrong(&self, what: &str) -> Vec<String> {
        let json = self.json();
        let errors = json["errors"].as_array().expect("a list of what is wrong");
        errors.iter().filter_map(|error| Some(error.get(what)?.as_str().expect("text").to_owned())).collect()
    }
}

impl Client {
    fn enter(&mut self, path: &str, body: &Value) {
        let answer = self.post(path, body);
        self.keep(&answer);
    }

    /// Takes the session of an answer.
    pub(crate) fn keep(&mut self, answer: &Answer) {
        assert!(matches!(answer.status, 200 | 201), "{answer:?}");
        let cookie = answer.header("set-cookie").split(';').next().expect("a part");
        cookie.split_once('=').expect("a value").1.clone_into(&mut self.token);
        answer.json()["csrf"].as_str().expect("text").clone_into(&mut self.csrf);
    }

    /// Named by the server's port; both as it is with TLS and without.
    pub(crate) fn cookie(&self) -> String {
        let cookie = format!("tidegate_session_{}={}", self.url.rsplit_once(':').expect("a port").1, self.token);
        format!("{cookie}; __Host-{cookie}")
    }

    /// The same session, asking another server on the same database.
    pub(crate) fn at(&self, other: &Server) -> Self {
        Self { url: other.url.clone(), ..self.clone() }
    }

    /// Adds a user who is called as his role, and signs him in.
    pub(crate) fn add(&self, role: &str, server: &Server) -> Self {
        let body = json!({ "name": role, "role": role, "password": PASSWORD });
        let added = self.post("/api/v1/users", &body);
        assert_eq!(added.status, 201, "{added:?}");
        server.sign_in_as(role, PASSWORD)
    }

    /// A script with a new token, which is made of this: a role, or a scope. It is called `script`, where there were others
    /// `script-2` and so on, unless a name is given. With its id.
    pub(crate) fn script(&self, of: &Value) -> (Self, String) {
        let ask = |name: String| {
            let mut body = json!({ "name": name });
            body.as_object_mut().expect("an object").extend(of.as_object().expect("an object").clone());
            self.post("/api/v1/tokens", &body)
        };
        let names = (2..50).map(|number| format!("script-{number}"));
        let made = ["script".to_owned()].into_iter().chain(names).map(ask).find(|made| made.status != 422);
        let made = made.expect("a name");
        assert_eq!(made.status, 201, "{made:?}");
        let made = made.json();
        let text = |name: &str| made[name].as_str().expect("text").to_owned();
        let script = Self { token: String::new(), csrf: String::new(), bearer: text("secret"), ..self.clone() };
        (script, text("id"))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], None)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[], Some(body.to_string().into_bytes()))
    }

    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<Vec<u8>>) -> Answer {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.url));
        request = if self.bearer.is_empty() {
            request.header("cookie", self.cookie())
        } else {
            request.header("authorization", format!("Bearer {}", self.bearer))
        };
        if !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/json");
        }
        if !self.csrf.is_empty() {
            request = request.header("x-csrf-token", &self.csrf);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body.unwrap_or_default()).expect("a request");
        let mut answer = self.agent.run(request).expect("an answer");
        let text = answer.body_mut().with_config().limit(100 << 20).read_to_string().expect("text");
        let answer = Answer { status: answer.status().as_u16(), headers: answer.headers().clone(), text };
        if let Some(path) = path.strip_prefix("/api/v1") {
            documented::check(&self.document(), method, path, &answer);
        }
        answer
    }

    /// What the server says of its calls: the same for all servers of a build, but for the cookie's name.
    fn document(&self) -> Arc<Value> {
        static DOCUMENT: OnceLock<Arc<Value>> = OnceLock::new();
        let read = || {
            let answer = self.agent.get(format!("{}/api/v1/openapi.json", self.url)).call();
            Arc::new(answer.expect("an answer").body_mut().read_json().expect("a document"))
        };
        Arc::clone(DOCUMENT.get_or_init(read))
    }

    /// A tier as the server has it: its tag and value.
    pub(crate) fn tier(&self, id: &str) -> (String, Value) {
        let answer = self.get(&format!("/api/v1/tiers/{id}"));
        assert_eq!(answer.status, 200, "{answer:?}");
        let json = answer.json();
        (json["etag"].as_str().expect("a tag").to_owned(), json["value"].clone())
    }

    /// Publishes one tier.
    pub(crate) fn publish_tier(&self, base_version: u64, etag: &str, value: &Value) -> Answer {
        self.post("/api/v1/policy/changes", &tier_change(base_version, etag, value))
    }
}

/// A change list of one tier.
pub(crate) fn tier_change(base_version: u64, etag: &str, value: &Value) -> Value {
    let id = value["id"].as_str().expect("a tier has an id");
    let key = format!("tier:{id}");
    json!({
        "base_version": base_version,
        "message": format!("change {id}"),
        "changes": [{ "op": "put", "kind": "tier", "id": id, "value": value }],
        "if_match": { key: etag },
    })
}
