//! Pools of the server: a hostile caller holds all of one that it can get, and others get all that is theirs.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    ops::Range,
    time::Duration,
};

use serde_json::{Value, json};
use sqlx::raw_sql;
use tidegate_admin::ConnectionCaps;
use tidegate_testkit::{
    hostile::{beside, connect_narrow},
    wait_until,
};
use tokio::runtime;

use crate::{
    attacks::address,
    bodies::{HOSTILE, OTHER, connect, head, is_answered},
    browsers::browser,
    clients::import,
    home::{Folder, block_on},
    nodes::{hello, limit_of, node_of, row},
    simulations::{done, tighter},
    stream::Events,
    support::{Client, PASSWORD, Server, fresh},
};

/// Returns a `GET` by a script, as it is sent.
fn get(script: &Client, path: &str) -> String {
    format!("GET /api/v1{path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", script.bearer)
}

/// Sends a `GET` by a script from the hostile address.
fn ask(server: &Server, script: &Client, path: &str) -> TcpStream {
    let mut stream = connect(server, HOSTILE);
    stream.write_all(get(script, path).as_bytes()).expect("it is read");
    stream
}

/// Sends a `POST` by a script from the hostile address.
fn post(server: &Server, script: &Client, path: &str, body: &Value) -> TcpStream {
    let (mut stream, body) = (connect(server, HOSTILE), body.to_string());
    let request = head(script, path, &format!("content-length: {}", body.len())) + &body;
    stream.write_all(request.as_bytes()).expect("it is read");
    stream
}

/// Reads how an answer begins.
fn status(stream: &mut TcpStream) -> String {
    let mut status = [0; 12];
    stream.read_exact(&mut status).expect("an answer");
    String::from_utf8_lossy(&status).into_owned()
}

/// Clients as a file has them.
fn clients(numbers: Range<u32>) -> String {
    let lines = numbers.map(|number| format!("\nuser,u-{number},free,,,"));
    lines.fold("kind,value,tier,override,until,reason".to_owned(), |file, line| file + &line)
}

/// Makes a call of another user, which comes after requests of one user that have one turn at a time. It is answered before most
/// of them: those that are left do not depend on how fast the server is, and without turns none would be.
fn is_before<T>(held: &[TcpStream], call: impl FnOnce() -> T) -> T {
    const FEW: usize = 20;
    let left = || held.iter().filter(|stream| !is_answered(stream)).count();
    let before = left();
    let answer = call();
    let after = left();
    assert!(after > FEW, "{before} were left before another user's call, and {after} after it");
    answer
}

#[test]
fn a_user_with_much_work_on_the_policy_leaves_others_their_turns() {
    const HELD: usize = 200;
    let folder = Folder::new();
    let server = Server::start_with(folder.home(), |settings| settings.periods.drain = Duration::from_secs(1));
    let ana = server.administrator();
    let ben = ana.add("editor", &server);
    let (script, _) = ana.script(&json!({ "role": "viewer" }));
    assert_eq!(import(&ana, "message=many", &clients(0..5_000)).status, 201);
    let held: Vec<TcpStream> = (0..HELD).map(|_| ask(&server, &script, "/policy/diff?from=1&to=2")).collect();
    // The same work, so both take as long.
    let shown = is_before(&held, || ben.get("/api/v1/policy/diff?from=1&to=2"));
    assert_eq!(shown.status, 200, "{shown:?}");
    let imported = import(&ben, "message=one", &clients(5_000..5_001));
    assert_eq!(imported.status, 201, "{imported:?}");
    server.gives_others_their_quota(&ben);
}

#[test]
fn a_user_with_many_scripts_that_publish_leaves_others_their_turns() {
    const SCRIPTS: usize = 60;
    let folder = Folder::new();
    let server = Server::start_with(folder.home(), |settings| settings.periods.drain = Duration::from_secs(1));
    let ana = server.administrator();
    let ben = ana.add("editor", &server);
    let script = |number| ana.script(&json!({ "name": format!("hostile-{number}"), "role": "editor" })).0;
    let scripts: Vec<Client> = (0..SCRIPTS).map(script).collect();
    assert_eq!(import(&ana, "message=many", &clients(0..5_000)).status, 201);
    let publish = |(number, script)| {
        post(&server, script, "/clients", &json!({ "kind": "user", "value": format!("v-{number}"), "tier": "free" }))
    };
    let held: Vec<TcpStream> = scripts.iter().enumerate().map(publish).collect();
    is_before(&held, || server.publishes_and_decides(&ben));
    server.gives_others_their_quota(&ben);
}

#[test]
fn a_user_with_many_changes_leaves_others_their_turns() {
    const HELD: usize = 200;
    let folder = Folder::new();
    let server = Server::start_with(folder.home(), |settings| settings.periods.drain = Duration::from_secs(1));
    let ana = server.administrator();
    let ben = ana.add("editor", &server);
    let script = |number| ana.script(&json!({ "name": format!("hostile-{number}"), "role": "operator" })).0;
    let scripts: Vec<Client> = (0..10).map(script).collect();
    let reset = json!({ "request": { "identities": [{ "kind": "user", "value": "eve" }] } });
    let held: Vec<TcpStream> =
        scripts.iter().cycle().take(HELD).map(|script| post(&server, script, "/keys/reset", &reset)).collect();
    let done = is_before(&held, || ben.post("/api/v1/keys/reset", &reset));
    assert_eq!(done.status, 200, "{done:?}");
    server.gives_others_their_quota(&ben);
}

/// Each look at a rollout finds out what other servers published, and so does an override.
#[test]
fn a_viewer_with_many_looks_leaves_others_their_publishes() {
    const HELD: usize = 200;
    let folder = Folder::new();
    let server = Server::start_with(folder.home(), |settings| settings.periods.drain = Duration::from_secs(1));
    let ana = server.administrator();
    let ben = ana.add("editor", &server);
    let (script, _) = ana.script(&json!({ "role": "viewer" }));
    let override_of = |user: &str| {
        let body = json!({ "blocked": true, "reason": "abuse" });
        let path = format!("/api/v1/clients/user:{user}/override");
        ben.send("PUT", &path, &[("if-none-match", "*")], Some(body.to_string().into_bytes()))
    };
    let look = || ask(&server, &script, "/rollout");
    let before: Vec<TcpStream> = (0..HELD).map(|_| look()).collect();
    let blocked = override_of("eve");
    assert_eq!(blocked.status, 201, "{blocked:?}");
    server.gives_others_their_quota(&ben);
    wait_until("each is answered", || before.iter().all(is_answered));
}

/// No secret is found until the test lets the server have the table, and each lookup holds a connection to the database.
#[test]
fn strangers_with_many_secrets_leave_others_the_database() {
    let (folder, server) = Folder::on_server();
    let ana = server.administrator();
    let ben = ana.add("editor", &server);
    let wrong = Client { bearer: format!("tg_{}", "0".repeat(43)), ..server.stranger() };
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut lock = runtime.block_on(folder.home().connect());
    let sql = "BEGIN; LOCK TABLE tokens IN ACCESS EXCLUSIVE MODE";
    runtime.block_on(raw_sql(sql).execute(&mut lock)).expect("it is free");
    let held: Vec<TcpStream> = (0..100).map(|_| ask(&server, &wrong, "/tiers")).collect();
    server.gives_others_their_quota(&ben);
    for _ in 0..4 {
        server.publishes_and_decides(&ben);
    }
    runtime.block_on(raw_sql("ROLLBACK").execute(&mut lock)).expect("it is given back");
    wait_until("each is answered", || held.iter().all(is_answered));
}

/// Each read of a table waits until the test lets the server have it, and holds a connection to the database.
#[test]
fn a_viewer_with_many_reads_leaves_others_the_database() {
    let of_drafts = "BEGIN; LOCK TABLE drafts IN ACCESS EXCLUSIVE MODE";
    let of_audit = "BEGIN; LOCK TABLE audit IN ACCESS EXCLUSIVE MODE";
    for (lock_table, table, others) in [(of_drafts, "drafts", "audit"), (of_audit, "audit", "drafts")] {
        let (folder, server) = Folder::on_server();
        let ana = server.administrator();
        let ben = ana.add("editor", &server);
        let (script, _) = ana.script(&json!({ "role": "viewer" }));
        let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut lock = runtime.block_on(folder.home().connect());
        runtime.block_on(raw_sql(lock_table).execute(&mut lock)).expect("it is free");
        let held: Vec<TcpStream> = (0..50).map(|_| ask(&server, &script, &format!("/{table}"))).collect();
        let read = || ben.get(&format!("/api/v1/{others}")).status;
        assert_eq!(read(), 200);
        // Each of them waits for five seconds at most.
        assert!(!held.iter().any(is_answered), "they wait for {table}");
        assert!((0..20).all(|_| read() == 200));
        if table == "drafts" {
            server.gives_others_their_quota(&ben);
        }
        runtime.block_on(raw_sql("ROLLBACK").execute(&mut lock)).expect("it is given back");
        wait_until("each is answered", || held.iter().all(is_answered));
    }
}

#[test]
fn a_user_with_many_previews_leaves_others_their_turns() {
    const HELD: usize = 200;
    let folder = Folder::new();
    let server = Server::start_with(folder.home(), |settings| settings.periods.drain = Duration::from_secs(1));
    let ana = server.administrator();
    let ben = ana.add("editor", &server);
    let (script, _) = ana.script(&json!({ "role": "viewer" }));
    let limit = json!({ "id": "minute", "algorithm": "token_bucket", "limit": 100, "period": "1m" });
    let ask = json!({
        "kind": "tier",
        "draft": { "id": "free", "limits": [limit] },
        "traffic": { "rate": 1_000, "per": "1s", "for": "20s" },
    });
    let held: Vec<TcpStream> = (0..HELD).map(|_| post(&server, &script, "/simulations/preview", &ask)).collect();
    let shown = is_before(&held, || ben.post("/api/v1/simulations/preview", &ask));
    assert_eq!(shown.status, 200, "{shown:?}");
    server.gives_others_their_quota(&ben);
}

/// Each of these looks at much: at 5,000 clients, or at what a run kept of 500.
#[test]
fn a_user_with_many_queries_leaves_others_their_turns() {
    const HELD: usize = 100;
    let folder = Folder::new();
    let server = Server::start_with(folder.home(), |settings| settings.periods.drain = Duration::from_secs(1));
    let ana = server.administrator();
    let ben = ana.add("admin", &server);
    let [hostile, script] = [&ana, &ben].map(|user| user.script(&json!({ "role": "viewer" })).0);
    assert_eq!(import(&ana, "message=many", &clients(0..5_000)).status, 201);
    let rows = json!([{ "clients": 500, "rate": 20, "per": "1m", "for": "4m", "pattern": "poisson", "path": "/a" }]);
    let run = done(&ben, &json!({ "b": tighter(), "traffic": { "made": { "rows": rows, "seed": 7 } } }));
    let decisions = format!("/simulations/{}/decisions?limit=500", run["id"].as_str().expect("an id"));
    for query in ["/alerts", &decisions] {
        let mut held: Vec<TcpStream> = (0..HELD).map(|_| connect(&server, HOSTILE)).collect();
        let mut found = connect(&server, HOSTILE);
        for stream in &mut held {
            stream.write_all(get(&hostile, query).as_bytes()).expect("it is read");
        }
        let found = is_before(&held, || {
            found.write_all(get(&script, query).as_bytes()).expect("it is read");
            status(&mut found)
        });
        assert_eq!(found, "HTTP/1.1 200", "{query}");
        server.gives_others_their_quota(&ben);
    }
}

/// All wait for a database that is locked when they come.
#[test]
fn a_script_with_many_changes_of_drafts_leaves_others_theirs() {
    const HELD: usize = 100;
    let (folder, server) = fresh();
    let ana = server.administrator();
    let ben = ana.add("admin", &server);
    let [hostile, script] = [&ana, &ben].map(|user| user.script(&json!({ "role": "editor" })).0);
    let list = json!({ "base_version": 1, "message": "m", "changes": [] }).to_string();
    let save = |script| head(script, "/drafts", &format!("content-length: {}", list.len()));
    let remove = get(&hostile, "/drafts/none").replacen("GET", "DELETE", 1);
    let mut held: Vec<TcpStream> = (0..HELD).map(|_| connect(&server, HOSTILE)).collect();
    let mut saved = connect(&server, OTHER);
    block_on(async {
        let mut busy = folder.home().connect().await;
        let lock =
            if folder.home().is_postgres() { "BEGIN; LOCK TABLE audit IN EXCLUSIVE MODE" } else { "BEGIN IMMEDIATE" };
        raw_sql(lock).execute(&mut busy).await.expect("it is free");
        let requests = [save(&hostile) + &list, remove];
        for (stream, request) in held.iter_mut().zip(requests.iter().cycle()) {
            stream.write_all(request.as_bytes()).expect("it is read");
        }
        saved.write_all((save(&script) + &list).as_bytes()).expect("it is read");
        // By now the server has taken it in.
        assert_eq!(ben.get("/api/v1/drafts").status, 200);
        raw_sql("ROLLBACK").execute(&mut busy).await.expect("it is free again");
    });
    assert_eq!(is_before(&held, || status(&mut saved)), "HTTP/1.1 201");
    wait_until("the others are answered", || held.iter().all(is_answered));
    server.gives_others_their_quota(&ben);
}

#[test]
fn a_user_who_reads_no_answer_leaves_others_theirs() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let (script, _) = ana.script(&json!({ "role": "viewer" }));
    let ben = ana.add("editor", &server);
    assert_eq!(import(&ana, "message=many", &clients(0..20_000)).status, 201);
    let policy = |client: &Client| client.get("/api/v1/policy");
    let length = policy(&ben).text.len();
    assert!(length > 900_000, "{length}");
    // The system takes in the first ones on each connection, and then the server holds one. Ten are more than 8 MiB, the share;
    // those that are refused while it is nearly full leave enough others.
    let held = (0..20).map(|_| {
        let mut stream = connect_narrow(address(&server));
        stream.write_all(get(&script, "/policy").repeat(10).as_bytes()).expect("it is read");
        stream
    });
    let held: Vec<TcpStream> = held.collect();
    // The tokens of a user are theirs. Until the system takes no more, there is room again in between.
    wait_until("the share is taken", || {
        [&script, &ana].into_iter().map(policy).all(|it| it.status == 503 && it.json()["code"] == "overload")
    });
    for _ in 0..5 {
        assert_eq!(policy(&ben).text.len(), length);
    }
    server.gives_others_their_quota(&ben);
    drop(held);
    wait_until("the room is given back", || policy(&script).status == 200);
}

#[test]
fn a_node_with_many_names_leaves_others_their_streams() {
    const HELD: usize = 20;
    let folder = Folder::new();
    let server = Server::start_with(folder.home(), |settings| settings.connections = ConnectionCaps::new(60, HELD));
    let ana = server.administrator();
    let [hostile, node] = [(); 2].map(|()| node_of(&ana));
    let stream = |number: usize| {
        ask(&server, &hostile, &format!("/snapshots/stream?{}", hello(&format!("hostile-{number}"), "a")))
    };
    let held: Vec<TcpStream> = (0..HELD).map(stream).collect();
    wait_until("all are open", || held.iter().all(is_answered));
    let mut refusal = String::new();
    stream(HELD).read_to_string(&mut refusal).expect("an end");
    assert!(refusal.starts_with("HTTP/1.1 503 "), "{refusal}");
    let mut events = Events::of_node(&server.url, &node, &hello("good", "a"));
    assert_eq!(events.next_called("snapshot")["version"], 1);
    for version in 2..5 {
        server.gives_others_their_quota(&ana);
        let snapshot = events.next_called("snapshot");
        assert_eq!((&snapshot["version"], limit_of(&snapshot)), (&json!(version), json!(49 + version)));
        let at = json!({
            "name": "good", "instance": "a", "version": version, "at_ms": 1, "took_ms": 7, "refused": null,
            "not_kept": null,
        });
        assert_eq!(node.post("/api/v1/nodes/acknowledgements", &at).status, 204);
        assert_eq!(row(&ana, "good")["policy_version"], version);
    }
}

#[test]
fn busy_connections_of_one_address_leave_others_their_turns() {
    const REQUESTS: usize = 50;
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let to_come = "GET /api/v1/tiers HTTP/1.1\r\nhost: x\r\n\r\n".repeat(REQUESTS - 1);
    let requests = to_come + "GET /api/v1/tiers HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let caller = || {
        for _ in 0..3 {
            server.gives_others_their_quota(&ana);
        }
    };
    beside(caller, || {
        let mut busy: Vec<TcpStream> = (0..100).map(|_| connect(&server, HOSTILE)).collect();
        for stream in &mut busy {
            stream.write_all(requests.as_bytes()).expect("it is read");
        }
        for mut stream in busy {
            let mut answers = String::new();
            stream.read_to_string(&mut answers).expect("an end");
            assert_eq!(answers.matches("HTTP/1.1 401 ").count(), REQUESTS, "{answers}");
        }
    });
}

/// Strangers at many addresses, each of whom has a few tries, have as many passwords hashed as may be at a time.
#[test]
fn strangers_who_try_many_passwords_leave_users_who_are_known_their_turns() {
    const NEW_PASSWORD: &str = "another few words";
    let folder = Folder::new();
    let server = Server::start_with(folder.home(), |settings| {
        settings.access.trusted_proxies = vec!["127.0.0.0/8".parse().expect("a network")];
    });
    let ana = server.administrator();
    let credentials = |name: &str, password: &str| json!({ "name": name, "password": password }).to_string();
    let sign_in = |cookie: &str, password: &str| {
        let body = credentials("ana", password).into_bytes();
        server.stranger().send("POST", "/api/v1/session", &[("cookie", cookie)], Some(body))
    };
    let first = sign_in("", PASSWORD);
    assert_eq!(first.status, 200, "{first:?}");
    let known = browser(&first);
    let caller = || {
        for _ in 0..5 {
            let signed_in = sign_in(&known, PASSWORD);
            assert_eq!(signed_in.status, 200, "a browser that is known: {signed_in:?}");
        }
        server.publishes_and_decides(&ana);
        let change = json!({ "present": PASSWORD, "password": NEW_PASSWORD }).to_string().into_bytes();
        let changed = ana.send("PUT", "/api/v1/me/password", &[], Some(change));
        assert_eq!(changed.status, 204, "a session: {changed:?}");
    };
    let mut strangers = 0..;
    beside(caller, || {
        let tries = strangers.by_ref().take(60).map(|number: u32| {
            let body = credentials(&format!("name-{number}"), "wrong");
            let address = Ipv4Addr::from_bits((10 << 24) + number);
            let mut stream = connect(&server, HOSTILE);
            let request = format!(
                "POST /api/v1/session HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n\
                 x-forwarded-for: {address}\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(request.as_bytes()).expect("it is read");
            stream
        });
        for mut stream in tries.collect::<Vec<_>>() {
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("an end");
            assert!(answer.starts_with("HTTP/1.1 401 ") || answer.starts_with("HTTP/1.1 429 "), "{answer}");
        }
    });
    assert_eq!(sign_in("", NEW_PASSWORD).status, 200, "strangers have their turns again");
}

#[test]
fn a_user_with_many_logs_leaves_others_theirs() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let ben = ana.add("editor", &server);
    let log = br#"192.0.2.7 - ada [12/Oct/2026:06:25:24 +0000] "GET /v1/search HTTP/1.1" 200 2326"#;
    let upload = |client: &Client| client.send("POST", "/api/v1/uploads", &[], Some(log.to_vec()));
    let [first, second] = [(); 2].map(|()| ana.script(&json!({ "role": "viewer" })).0);
    for script in [&first, &second] {
        assert_eq!(upload(script).status, 201);
    }
    for client in [&first, &second, &ana] {
        let refused = upload(client);
        assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("full")));
    }
    assert_eq!(upload(&ben).status, 201);
    server.gives_others_their_quota(&ben);
}
