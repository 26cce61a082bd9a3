//! Health, readiness, and metrics over HTTP.

use std::{thread, time::Duration};

use tidegate::{Identity, Request};
use tidegate_service::{ListenerSettings, Timeouts};
use tidegate_testkit::{hostile, wait_until};

use super::{
    HUNDRED,
    support::{Connection, Server, request},
    user,
};

#[test]
fn a_server_is_alive_at_once_and_ready_with_a_policy() {
    let server = Server::without_policy();
    assert_eq!((server.get("/healthz").status, server.get("/healthz").text().as_str()), (200, "ok\n"));
    let answer = server.get("/readyz");
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains("no policy has been published"), "{}", answer.text());
    assert_eq!(server.metric("tidegate_policy_version"), 0);
    server.publish(HUNDRED);
    assert_eq!(server.get("/readyz").status, 200);
    assert_eq!(server.metric("tidegate_policy_version"), 1);
}

#[test]
fn responses_to_head_have_no_body() {
    let server = Server::with(HUNDRED);
    let mut connection = server.connect();
    for path in ["/healthz", "/readyz", "/metrics"] {
        let head = format!("HEAD {path} HTTP/1.1\r\nHost: tidegate\r\n\r\n");
        // With a body, the next response could not be read.
        assert_eq!(connection.head(&head).status, 200, "{path}");
    }
}

#[test]
fn decisions_and_requests_are_counted() {
    let server = Server::with(&format!(
        r#"{HUNDRED}
        [[domains.default.clients]]
        kind = "user"
        value = 'q"b\s'
        override = {{ limits = [{{ id = "own", algorithm = "token_bucket", limit = 1, period = "1m" }}] }}"#
    ));
    for _ in 0..103 {
        server.check(&user("ada"));
    }
    server.check(r#"{"identities":[{"kind":"ip","value":"192.0.2.7"}]}"#);
    server.check(&user("ada").replace("]}", r#"],"domain":"shop"}"#));
    server.check("{");
    server.check(r#"{"identities":[]}"#);
    server.get("/nowhere");
    for (series, count) in [
        (r#"tidegate_decisions_total{result="allowed"}"#, 102),
        (r#"tidegate_decisions_total{result="denied"}"#, 3),
        (
            r#"tidegate_limit_decisions_total{domain="default",limit_id="default/tier:free/minute",result="allowed"}"#,
            100,
        ),
        (r#"tidegate_limit_decisions_total{domain="default",limit_id="default/tier:free/minute",result="denied"}"#, 3),
        ("tidegate_no_limit_checks_total", 2),
        ("tidegate_unknown_domain_checks_total", 1),
        ("tidegate_overflow_charges_total", 0),
        ("tidegate_denied_without_room_total", 0),
        ("tidegate_drained_limits", 0),
        (r#"tidegate_limit_slots{domain="default",limit_id="default/tier:free/minute"}"#, 1),
        ("tidegate_log_charges_without_ring_total", 0),
        ("tidegate_give_backs_total", 0),
        ("tidegate_leases_begun_total", 0),
        ("tidegate_leases_ended_total", 0),
        (concat!("tidegate_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), 1),
        (r#"tidegate_requests_total{door="http",route="/v1/check",status="200"}"#, 102),
        (r#"tidegate_requests_total{door="http",route="/v1/check",status="429"}"#, 3),
        (r#"tidegate_requests_total{door="http",route="/v1/check",status="400"}"#, 2),
        (r#"tidegate_requests_total{door="http",route="other",status="404"}"#, 1),
        (r#"tidegate_bad_requests_total{door="http",code="bad_json"}"#, 1),
        (r#"tidegate_bad_requests_total{door="http",code="bad_identities"}"#, 1),
        (r#"tidegate_bad_requests_total{door="http",code="not_found"}"#, 1),
    ] {
        assert_eq!(server.metric(series), count, "{series}");
    }
    let answer = server.get("/metrics");
    assert!(answer.header("content-type").is_some_and(|kind| kind.starts_with("application/openmetrics-text")));
    assert!(answer.text().ends_with("# EOF\n"));
    assert!(!answer.text().contains("ada"), "keys are never labels");
    assert!(!answer.text().contains("client:"), "nor are the limits of single clients: there may be very many");
}

#[test]
fn metrics_have_the_latencies_and_the_fill_of_the_table() {
    let server = Server::with(HUNDRED);
    for _ in 0..3 {
        server.check(&user("ada"));
    }
    server.check("{");
    for (series, count) in [
        (r#"tidegate_request_duration_seconds_count{door="http",route="/v1/check"}"#, 4),
        (r#"tidegate_request_duration_seconds_bucket{le="+Inf",door="http",route="/v1/check"}"#, 4),
        (r#"tidegate_request_duration_seconds_count{door="http",route="/v1/reserve"}"#, 0),
        (r#"tidegate_health_degraded{reason="errors"}"#, 0),
    ] {
        assert_eq!(server.metric(series), count, "{series}");
    }
    assert_eq!(server.metric("tidegate_active_keys"), 1);
    let [known, most] = ["tidegate_known_limits", "tidegate_known_limits_max"].map(|series| server.metric(series));
    assert_eq!((known, most), (1, (1 << 20) - 1));
    assert!(server.metric("tidegate_resident_memory_bytes") > 1 << 20);
    let text = server.get("/metrics").text();
    assert!(text.contains("tidegate_policy_age_seconds ") && text.contains("tidegate_table_fill 0.0"), "{text}");
}

/// Eight scrapers cost no more than one.
#[test]
fn scrapes_within_its_period_read_one_page() {
    let timeouts = Timeouts { metrics_page: Duration::from_mins(10), ..Timeouts::default() };
    let server = Server::listening(ListenerSettings { timeouts, ..ListenerSettings::default() });
    server.publish(HUNDRED);
    server.check(&user("ada"));
    let first = server.metrics();
    let series = r#"tidegate_requests_total{door="http",route="/v1/check",status="200"} 1"#;
    assert!(first.lines().any(|line| line == series), "{first}");
    server.check(&user("ada"));
    assert_eq!(server.metrics(), first, "however many ask");
}

/// Each worker has connections of its own. If a worker wrote the page, the checks of its connections would wait.
#[test]
fn checks_are_answered_while_a_page_of_metrics_is_written() {
    // Only the page reads the clock, so only the page is blocked.
    let long = Duration::from_mins(10);
    let timeouts = Timeouts { metrics_page: long, health_sample: long, ..Timeouts::default() };
    let server = Server::listening(ListenerSettings { timeouts, ..ListenerSettings::default() });
    server.publish(HUNDRED);
    let mut scrapes = [(); 4].map(|()| Connection::over(hostile::connect(server.http)));
    let go_on = server.hold_next_reading();
    for scrape in &mut scrapes {
        scrape.write("GET /metrics HTTP/1.1\r\nHost: tidegate\r\n\r\n");
    }
    wait_until("a page is begun", || server.is_reading_held());
    let allowed = (0..110).filter(|_| server.check(&user("ada")).status == 200).count();
    assert_eq!(allowed, 100, "another peer has its quota meanwhile");
    drop(go_on);
    let [first, others @ ..] = scrapes.map(|mut scrape| scrape.answer());
    assert_eq!(first.status, 200);
    assert!(others.iter().all(|answer| answer.text() == first.text()), "they waited for the same page");
}

#[test]
fn too_many_errors_show_in_the_health() {
    let server = Server::with(HUNDRED);
    server.break_clock(true);
    for _ in 0..100 {
        assert_eq!(server.check(&user("ada")).status, 200, "it fails open");
    }
    server.break_clock(false);
    let answer = server.get("/healthz");
    assert_eq!(answer.status, 200, "it is alive");
    assert!(answer.text().starts_with("degraded: 100 of 100 checks ended in an error"), "{}", answer.text());
    assert_eq!(server.metric(r#"tidegate_health_degraded{reason="errors"}"#), 1);
    assert_eq!(server.get("/readyz").status, 200);
}

#[test]
fn wall_time_that_was_set_back_shows_in_the_health_and_windows_follow_it() {
    let timeouts = Timeouts { health_sample: Duration::from_millis(10), ..Timeouts::default() };
    let server = Server::listening(ListenerSettings { timeouts, ..ListenerSettings::default() });
    server.publish(
        r#"
        [domains.default]
        defaults = { user = "free" }
        [[domains.default.tiers]]
        id = "free"
        limits = [{ id = "hour", algorithm = "fixed_window", limit = 1, period = "1h" }]"#,
    );
    let ada = [Identity::new("user", "ada").expect("valid")];
    let ada = Request::new(&ada).expect("valid");
    assert!(server.engine.check(&ada).is_allowed());
    let left = || server.engine.peek(&ada).reset_after().expect("a limit").as_secs();
    // The window began 14 minutes after the hour.
    assert_eq!((server.get("/healthz").text().as_str(), left()), ("ok\n", 46 * 60));

    server.set_wall_back(Duration::from_mins(10));
    wait_until("the engine follows wall time", || left() == 56 * 60);
    assert_eq!(server.engine.peek(&ada).remaining(), Some(0), "what was used stays used");
    let health = server.get("/healthz").text();
    assert!(health.starts_with("degraded: the system's clock was set back by 600.0s 0 s ago"), "{health}");
    assert_eq!(server.metric(r#"tidegate_health_degraded{reason="clock"}"#), 1);
    assert_eq!(server.metric(r#"tidegate_clock_steps_total{kind="ahead"}"#), 1);
    assert!(server.get("/metrics").text().contains("tidegate_clock_ahead_seconds 600.0"));
    server.clock.advance(Duration::from_mins(56));
    assert!(server.engine.check(&ada).is_allowed(), "the hour of wall time is over");
    assert_eq!(server.get("/healthz").text(), "ok\n", "ten minutes have passed");
}

#[test]
fn the_time_of_a_slow_sender_is_not_part_of_the_latency() {
    // Two servers: one waits for a slow sender, and one does not.
    let [patient, strict] = [Duration::from_mins(10), Duration::from_millis(1_200)].map(|request| {
        let server = Server::listening(ListenerSettings {
            timeouts: Timeouts { request, ..Timeouts::default() },
            ..ListenerSettings::default()
        });
        server.publish(HUNDRED);
        server
    });
    let whole = request("/v1/check", "", user("ada"));
    let took = |server: &Server, le: &str| {
        let labels = format!(r#"le="{le}",door="http",route="/v1/check""#);
        server.metric(&format!("tidegate_request_duration_seconds_bucket{{{labels}}}"))
    };
    // On a busy machine the server itself may take more than a second: such an attempt is void.
    let is_shown = (1..=20).any(|number| {
        let (mut slow, mut late) = (patient.connect(), strict.connect());
        slow.write(&whole[..whole.len() - 1]);
        late.write("POST /v1/check HTTP/1.1\r\nHost: tidegate\r\nContent-Length: 50\r\n\r\n{");
        thread::sleep(Duration::from_millis(1_200));
        assert_eq!((slow.send(&whole[whole.len() - 1..]).status, late.answer().status), (200, 408));
        [&patient, &strict].iter().all(|server| {
            assert_eq!(took(server, "+Inf"), number);
            took(server, "1.0") > 0
        })
    });
    assert!(is_shown, "the time that it waits for a sender is counted");
}
