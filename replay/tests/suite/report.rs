//! Tests of reports about small logs, with results that were worked out by hand.

use tidegate::{Snapshot, formats::Format, time::SECOND_NS};
use tidegate_replay::{
    LogFormat, LogKey, LogOptions, ReadError, Replay, ReplayOptions, ReplayReport, UNREADABLE_SHOWN,
};

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

fn start(options: &ReplayOptions) -> Replay {
    Replay::new(Snapshot::parse(POLICY, Format::Toml).expect("right"), options).expect("few limits")
}

fn report(log: &str, options: &ReplayOptions) -> ReplayReport {
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
    let report = report(&log.concat(), &ReplayOptions::default());
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
        report.clients.iter().map(|client| (&*client.kind, &*client.value, client.allowed, client.denied)).collect();
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
    let sorted = report(&log.concat(), &ReplayOptions::default());
    let first_denied = sorted.clients[0].first_denied_at.map(|at| at.to_string());
    assert_eq!((sorted.denied, first_denied.as_deref()), (1, Some("2026-01-05T09:00:03Z")));
    assert_eq!((sorted.lines, sorted.unreadable, sorted.late), (4, 1, 0));
    // Without a window the later lines are late, and everything is decided at the newest time.
    let late = report(&log.concat(), &ReplayOptions { window_ns: SECOND_NS, ..ReplayOptions::default() });
    assert_eq!((late.late, late.denied), (2, 1));
    assert_eq!((late.from, late.to), (sorted.to, sorted.to));
}

#[test]
fn a_log_without_requests_has_an_empty_report() {
    let report = report("", &ReplayOptions::default());
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
    let mut replay = start(&ReplayOptions::default());
    replay.read(log.concat().as_bytes(), "log", |_| ()).expect("readable");
    let told: Vec<String> = replay.first_unreadable().iter().map(ToString::to_string).collect();
    assert_eq!((replay.requests(), told.len()), (2, 3));
    assert!(
        told[0].starts_with("log:2: endpoint: 9001 bytes")
            && told[1].starts_with("log:3: it does not begin with an address"),
        "{told:?}"
    );
}

#[test]
fn a_format_that_is_given_is_the_only_one() {
    let common = line("192.0.2.1", "-", "09:00:00", "/");
    let combined = common.replace(" 5\n", " 5 \"-\" \"curl\"\n");
    let json = "{\"time\":1,\"ip\":\"192.0.2.1\"}\n";
    for (format, requests) in
        [(LogFormat::Auto, 3), (LogFormat::Common, 2), (LogFormat::Combined, 1), (LogFormat::Json, 1)]
    {
        let mut replay = start(&ReplayOptions { reading: format.into(), ..ReplayOptions::default() });
        replay.read([&*common, &combined, json].concat().as_bytes(), "log", |_| ()).expect("readable");
        assert_eq!(replay.requests(), requests, "{format:?}");
    }
}

#[test]
fn csv_is_read_by_its_header_and_lines_that_are_wrong_are_named() {
    let csv = "\u{feff}Path,Time,IP,User,Agent\r\n\
        /a,2026-01-05T09:00:00Z,192.0.2.1,ada,\"two\nlines, \"\"quoted\"\"\"\r\n\
        /b,soon,192.0.2.1,ada,x\r\n\
        \r\n\
        /c,1767603601,192.0.2.1,ada\r\n\
        \"/d,e\",1767603602.5,192.0.2.2,-,\r\n";
    for format in [LogFormat::Auto, LogFormat::Csv] {
        let mut replay = start(&ReplayOptions { reading: format.into(), ..ReplayOptions::default() });
        replay.read(csv.as_bytes(), "log", |_| ()).expect("readable");
        let told: Vec<String> = replay.first_unreadable().iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "log:4: its time cannot be read; RFC 3339 and Unix seconds can; here stands `soon`",
                "log:6: its number of fields is not that of the header; it has 4 fields, the header 5"
            ]
        );
        let report = replay.finish(0);
        assert_eq!((report.requests, report.unreadable), (2, 2));
        let clients: Vec<_> = report.clients.iter().map(|client| (&*client.kind, &*client.value)).collect();
        assert_eq!(clients, [("ip", "192.0.2.1"), ("ip", "192.0.2.2"), ("user", "ada")]);
        assert_eq!(report.to.map(|at| at.to_string()).as_deref(), Some("2026-01-05T09:00:02.5Z"));
    }
    // A header of something else is a line that cannot be read.
    let mut replay = start(&ReplayOptions { reading: LogFormat::Csv.into(), ..ReplayOptions::default() });
    let error = replay.read(b"name,size\na,1\n".as_slice(), "list", |_| ()).expect_err("no log").to_string();
    assert!(error.contains("line 1: the header has no time"), "{error}");
}

#[test]
fn a_field_may_say_who_came() {
    let json = r#"{"time":1,"ip":"192.0.2.1","user":"ada","account":{"id":42}}
{"time":2,"account":{"id":"x"}}
{"time":3,"ip":"192.0.2.1","account":null}
"#;
    let csv = "time,account.id\n1,42\n2,x\n3,\n";
    let combined = line("192.0.2.1", "ada", "09:00:00", "/");
    for (log, ip) in [(json, true), (csv, false)] {
        let key = Some(LogKey::new("account.id", "account").expect("a kind"));
        let reading = LogOptions { key, ..LogOptions::default() };
        let mut replay = start(&ReplayOptions { reading, ..ReplayOptions::default() });
        replay.read(log.as_bytes(), "log", |_| ()).expect("readable");
        replay.read(combined.as_bytes(), "other", |_| ()).expect_err("its fields have no names");
        let told: Vec<String> = replay.first_unreadable().iter().map(ToString::to_string).collect();
        let number = if ip { 3 } else { 4 };
        assert_eq!(
            told,
            [
                format!("log:{number}: it says nothing in the field `account.id`"),
                "other:1: it is neither JSON nor CSV, so it has no field `account.id`".to_owned()
            ]
        );
        let clients = replay.finish(0).clients;
        let clients: Vec<_> = clients.iter().map(|client| (&*client.kind, &*client.value)).collect();
        let both = [("ip", "192.0.2.1"), ("account", "42"), ("account", "x")];
        assert_eq!(clients, both[usize::from(!ip)..]);
    }
    // In the place of the address.
    let reading = LogOptions { key: Some(LogKey::new("peer", "ip").expect("a kind")), ..LogOptions::default() };
    let mut replay = start(&ReplayOptions { reading, ..ReplayOptions::default() });
    replay.read(br#"{"time":1,"peer":"192.0.2.9","user":"ada"}"#.as_slice(), "log", |_| ()).expect("readable");
    let clients = replay.finish(0).clients;
    assert_eq!(clients.iter().map(|client| &*client.value).collect::<Vec<_>>(), ["192.0.2.9", "ada"]);
    assert!(LogKey::new("any", "No Kind").is_err());
}

#[test]
fn logs_that_are_not_logs_end_clearly() {
    let mut replay = start(&ReplayOptions::default());
    let error = replay.read("noise\n".repeat(50).as_bytes(), "noise", |_| ()).expect_err("no line");
    assert!(matches!(error, ReadError::Unreadable { lines: 50, .. }), "{error}");
    assert_eq!(replay.first_unreadable().len(), UNREADABLE_SHOWN);
    let error = replay.read([0x1f, 0x8b, 8, 0].as_slice(), "cut.gz", |_| ()).expect_err("no header");
    assert!(matches!(error, ReadError::Broken { lines: 0, .. }), "{error}");
}
