//! For whoever runs the server: alive, ready, and what it counts of itself.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::Duration,
};

use serde_json::json;
use tidegate_testkit::wait_until;

use crate::{
    home::Folder,
    stream::Events,
    support::{Server, fresh},
};

#[test]
fn a_server_says_how_it_is_to_everybody() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let nobody = server.stranger();
    assert_eq!((nobody.get("/healthz").status, nobody.get("/healthz").text.as_str()), (200, "ok\n"));
    assert_eq!((nobody.get("/readyz").status, nobody.get("/readyz").text.as_str()), (200, "policy version 1\n"));

    let (etag, mut free) = ana.tier("free");
    free["limits"][0]["limit"] = json!(200);
    assert_eq!(ana.publish_tier(1, &etag, &free).status, 201);
    assert_eq!(ana.publish_tier(1, &etag, &free).status, 412);
    let mut broken = free.clone();
    broken["limits"][0]["period"] = json!("never");
    assert_eq!(ana.publish_tier(2, "\"tier:free:2\"", &broken).status, 422);
    let mut events = Events::open(&server.url, &ana, "");
    events.next_called("hello");

    let answer = nobody.get("/metrics");
    assert_eq!(answer.header("content-type"), "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let value = |name: &str| {
        let line = answer.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} in {}", answer.text)).parse::<f64>().expect("a number")
    };
    let is = |name, expected: f64| assert!((value(name) - expected).abs() < 1e-9, "{name}: {}", value(name));
    is("tidegate_admin_policy_version", 2.0);
    is("tidegate_admin_sessions", 1.0);
    is("tidegate_admin_streams", 1.0);
    is("tidegate_admin_publishes_total{result=\"published\"}", 1.0);
    is("tidegate_admin_publishes_total{result=\"conflict\"}", 1.0);
    is("tidegate_admin_publishes_total{result=\"refused\"}", 1.0);
    is("tidegate_admin_sign_ins_limited_by_name_total", 0.0);
    is("tidegate_admin_http_requests_total{status=\"412\"}", 1.0);
    is("tidegate_admin_figure_minutes{result=\"failed\"}", 0.0);
    assert!(value("tidegate_admin_store_seconds_count{operation=\"commit\"}") >= 2.0);
    assert!(value("tidegate_admin_store_seconds_sum{operation=\"session\"}") > 0.0);
    assert!(answer.text.contains("tidegate_admin_build_info{version=\""));
    assert!(answer.text.ends_with("# EOF\n"));
    for secret in ["ana", "free", "tier"] {
        assert!(!answer.text.contains(secret), "{secret} is nobody's business: {}", answer.text);
    }
}

#[test]
fn a_server_whose_database_is_gone_is_not_ready() {
    let folder = Folder::with_file();
    let server = Server::start(folder.home());
    fs::rename(folder.home().data.join("tidegate.db"), folder.path().join("elsewhere")).expect("it moves");
    let answer = server.stranger().get("/readyz");
    assert_eq!(answer.status, 503);
    assert!(answer.text.contains("removed or replaced"), "{}", answer.text);
    assert_eq!(server.stranger().get("/healthz").status, 200, "it is alive");
    let metrics = server.stranger().get("/metrics").text;
    assert!(metrics.contains("tidegate_admin_store_errors_total{operation=\"begin\"} 1"), "{metrics}");
    fs::rename(folder.path().join("elsewhere"), folder.home().data.join("tidegate.db")).expect("it moves back");
    wait_until("it is ready", || server.stranger().get("/readyz").status == 200);
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: the minute for which proxies keep idle connections"]
    fn a_connection_that_was_idle_for_a_minute_is_still_answered() {
        let (_folder, server) = fresh();
        let address = server.url.strip_prefix("http://").expect("a URL");
        let mut connection = TcpStream::connect(address).expect("it listens");
        let mut request = || {
            connection.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").expect("it reads");
            let mut answer = Vec::new();
            while !answer.ends_with(b"ok\n") {
                let mut byte = [0];
                connection.read_exact(&mut byte).expect("an answer");
                answer.push(byte[0]);
            }
        };
        request();
        thread::sleep(Duration::from_secs(61));
        request();
    }
}
