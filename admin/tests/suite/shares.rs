//! Pools of the server: a hostile caller holds all of one that it can get, and others get all that is theirs.

use std::{io::Write, net::TcpStream, ops::Range, time::Duration};

use serde_json::json;

use crate::{
    bodies::{HOSTILE, connect, is_answered},
    clients::import,
    home::Folder,
    support::{Client, Server},
};

/// Sends a `GET` by a script from the hostile address.
fn ask(server: &Server, script: &Client, path: &str) -> TcpStream {
    let mut stream = connect(server, HOSTILE);
    let request = format!("GET /api/v1{path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", script.bearer);
    stream.write_all(request.as_bytes()).expect("it is read");
    stream
}

/// Clients as a file has them.
fn clients(numbers: Range<u32>) -> String {
    let lines = numbers.map(|number| format!("\nuser,u-{number},free,,,"));
    lines.fold("kind,value,tier,override,until,reason".to_owned(), |file, line| file + &line)
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
    let imported = import(&ben, "message=one", &clients(5_000..5_001));
    assert_eq!(imported.status, 201, "{imported:?}");
    let answered = held.iter().filter(|stream| is_answered(stream)).count();
    assert!(answered < HELD / 2, "{answered} were answered before another user's, who came after them");
    server.gives_others_their_quota(&ben);
}
