//! What a report says about small logs that one can work out by hand.

use tidegate::{Snapshot, formats::Format, time::SECOND_NS};
use tidegate_replay::{LogFormat, Options, ReadError, Replay, Report, UNREADABLE_SHOWN};

const POLICY: &str = r#"
[domains.default]
defaults = { ip = "free", user = "member" }
[[domains.default.tiers]]
id = "free"
limits = [{ id = "minute", algorithm = "fixed_window", limit = 2, period = "1m" }]
[[domains.default.tiers]]
id = "member"
limits = [{ id = "minute", algorithm = "fixed_window", limit = 1, period = "1m" }]
[[domains.default.clients]]
kind = "ip"
value = "10.0.0.0/8"
override = { blocked = true }
[[domains.default.clients]]
kind = "ip"
value = "192.0.2.9"
override = { limits = [{ id = "own", algorithm = "fixed_window", limit = 9, period = "1m" }] }
[[domains.default.rules]]
id = "report"
endpoint = "/report/{id}"
per = "ip"
limits = [{ id = "hour", algorithm = "fixed_window", limit = 1, period = "1h" }]
"#;

fn start(options: &Options) -> Replay {
    Replay::new(Snapshot::parse(POLICY, Format::Toml).expect("right"), options).expect("few limits")
}

fn report(log: &str, options: &Options) -> Report {
    let mut replay = start(options);
    replay.read(log.as_bytes(), "log", |_| ()).expect("readable");
    replay.finish(0)
}

fn line(client: &str, user: &str, clock: &str, path: &str) -> String {
    format!("{client} - {user} [05/Jan/2026:{clock} +0000] \"GET {path} HTTP/1.1\" 200 5\n")
}

#[test]
fn limits_are_listed_in_the_policys_order_and_clients_own_only_when_met() {
    let log = [
        line("192.0.2.1", "-", "09:00:00", "/report/7?page=1"),
        line("192.0.2.1", "-", "09:00:01", "/report/8"),
        line("10.1.2.3", "-", "09:00:02", "/"),
        line("192.0.2.2", "ada", "09:00:03", "/"),
        line("192.0.2.3", "ada", "09:00:04", "/"),
    ];
    let report = report(&log.concat(), &Options::default());
    let limits: Vec<_> =
        report.limits.iter().map(|limit| (&*limit.id, &*limit.limit_id, limit.checked, limit.denied)).collect();
    assert_eq!(
        limits,
        [
            ("minute", "default/tier:free/minute", 4, 0),
            ("minute", "default/tier:member/minute", 2, 1),
            ("blocked", "default/client:ip:10.0.0.0/8/blocked", 1, 1),
            ("hour", "default/rule:report/hour", 2, 1),
        ]
    );
    let clients: Vec<_> =
        report.clients.iter().map(|client| (client.kind, &*client.value, client.allowed, client.denied)).collect();
    assert_eq!(
        clients,
        [
            ("ip", "192.0.2.1", 1, 1),
            ("user", "ada", 1, 1),
            ("ip", "10.1.2.3", 0, 1),
            ("ip", "192.0.2.3", 0, 1),
            ("ip", "192.0.2.2", 1, 0),
        ]
    );
    assert_eq!((report.allowed, report.denied), (2, 3));
}

#[test]
fn order_of_time_decides_who_is_denied_and_order_of_input_breaks_ties() {
    let log = [
        line("192.0.2.1", "-", "09:00:03", "/third"),
        line("192.0.2.1", "-", "09:00:01", "/first"),
        line("192.0.2.1", "-", "11:00:02 +0200\"", "/unreadable"),
        line("192.0.2.1", "-", "09:00:01", "/second"),
    ];
    let sorted = report(&log.concat(), &Options::default());
    let first_denied = sorted.clients[0].first_denied_at.map(|at| at.to_string());
    assert_eq!((sorted.denied, first_denied.as_deref()), (1, Some("2026-01-05T09:00:03Z")));
    assert_eq!((sorted.lines, sorted.unreadable, sorted.late), (4, 1, 0));
    // Without a window the later lines are late, and everything is decided at the newest time.
    let late = report(&log.concat(), &Options { window_ns: SECOND_NS, ..Options::default() });
    assert_eq!((late.late, late.denied), (2, 1));
    assert_eq!((late.from, late.to), (sorted.to, sorted.to));
}

#[test]
fn a_log_without_requests_has_an_empty_report() {
    let report = report("", &Options::default());
    assert_eq!((report.lines, report.from, report.to, report.timeline.len()), (0, None, None, 0));
    assert_eq!(report.limits.len(), 3);
}

#[test]
fn what_cannot_be_a_request_is_unreadable() {
    let much = "x".repeat(9_000);
    let log = [
        line("192.0.2.1", "-", "09:00:00", "/"),
        line("192.0.2.1", "-", "09:00:00", &format!("/{much}")),
        line(&much, "-", "09:00:00", "/"),
        line("192.0.2.1", &much, "09:00:00", "/"),
        // A query does not count.
        line("192.0.2.1", "-", "09:00:00", &format!("/?{much}")),
    ];
    let mut replay = start(&Options::default());
    replay.read(log.concat().as_bytes(), "log", |_| ()).expect("readable");
    let told: Vec<String> = replay.first_unreadable().iter().map(ToString::to_string).collect();
    assert_eq!((replay.requests(), told.len()), (2, 3));
    assert!(told[0].starts_with("log:2: endpoint: 9001 bytes") && told[1].starts_with("log:3: value: "), "{told:?}");
}

#[test]
fn a_format_that_is_given_is_the_only_one() {
    let common = line("192.0.2.1", "-", "09:00:00", "/");
    let combined = common.replace(" 5\n", " 5 \"-\" \"curl\"\n");
    let json = "{\"time\":1,\"ip\":\"192.0.2.1\"}\n";
    for (format, requests) in
        [(LogFormat::Auto, 3), (LogFormat::Common, 2), (LogFormat::Combined, 1), (LogFormat::Json, 1)]
    {
        let mut replay = start(&Options { format, ..Options::default() });
        replay.read([&*common, &combined, json].concat().as_bytes(), "log", |_| ()).expect("readable");
        assert_eq!(replay.requests(), requests, "{format:?}");
    }
}

#[test]
fn logs_that_are_not_logs_end_clearly() {
    let mut replay = start(&Options::default());
    let error = replay.read("noise\n".repeat(50).as_bytes(), "noise", |_| ()).expect_err("no line");
    assert!(matches!(error, ReadError::Unreadable { lines: 50, .. }), "{error}");
    assert_eq!(replay.first_unreadable().len(), UNREADABLE_SHOWN);
    let error = replay.read([0x1f, 0x8b, 8, 0].as_slice(), "cut.gz", |_| ()).expect_err("no header");
    assert!(matches!(error, ReadError::Broken { lines: 0, .. }), "{error}");
}
