//! Tests of log formats: a small log of every format, as servers write it, and its expected result.

use std::{
    cell::RefCell,
    io::{self, Read},
};

use tidegate::{Snapshot, formats::Format};
use tidegate_replay::{
    LogFormat, LogInput, LogKey, LogOptions, LogSource, Replay, ReplayOptions, ReplayReport, TextStyle,
    compare::Comparison,
    text_report,
    traffic::{LogTraffic, Traffic},
};

const POLICY: &str = r#"
[domains.default]
defaults = { ip = "free", user = "member" }
[[domains.default.tiers]]
id = "free"
limits = [{ id = "minute", algorithm = "fixed_window", limit = 2, period = "1m" }]
[[domains.default.tiers]]
id = "member"
unlimited = true
[[domains.default.rules]]
id = "login"
endpoint = "/login"
method = "POST"
per = "ip"
limits = [{ id = "login", algorithm = "fixed_window", limit = 1, period = "1m" }]
"#;

const TIME: &str = "[05/Jan/2026:09:00:01 +0000]";
const REST: &str = r#""POST /login?x HTTP/1.1" 200 5 "-" "x""#;

fn start(reading: LogOptions) -> Replay {
    let policy = Snapshot::parse(POLICY, Format::Toml).expect("right");
    Replay::new(policy, &ReplayOptions { reading, ..ReplayOptions::default() }).expect("few limits")
}

fn report(log: &[u8]) -> ReplayReport {
    let mut replay = start(LogOptions::default());
    let outcome = replay.read(log, "log", |_| ());
    assert!(outcome.is_ok(), "{outcome:?}: {}", String::from_utf8_lossy(log));
    replay.finish(0)
}

fn clients(report: &ReplayReport) -> Vec<String> {
    let mut clients: Vec<String> = report.clients.iter().map(|row| format!("{}={}", row.kind, row.value)).collect();
    clients.sort();
    clients
}

fn form(report: &ReplayReport) -> &str {
    &report.logs[0].forms[0].form
}

fn combined(client: &str, clock: &str) -> String {
    format!("{client} - - [05/Jan/2026:{clock} +0000] \"GET /a HTTP/1.1\" 200 5\n")
}

/// Two requests of one client to `POST /login` in a minute: the second one is denied, in every format.
#[test]
// Long: a table of cases.
fn every_format_gives_the_same_request() {
    let alb = "2026-01-05T09:00:01.186641Z app/web/50 192.0.2.7:2817 10.0.0.1:80 0.08 0.04 -1 200 200 0 57 \
        \"POST https://www.example.org:443/login?b=c HTTP/1.1\" \"curl/8\" ECDHE TLSv1.2";
    let docker = format!(
        r#"{{"log":"192.0.2.7 - ada {TIME} {}\n","stream":"stdout","time":"2026-01-05T09:00:02Z"}}"#,
        REST.replace('"', "\\\"")
    );
    let w3c = |between: &str, names: &[&str], values: &[&str]| {
        format!("#Version: 1.0\n#Fields: {}\n{}", names.join(between), values.join(between))
    };
    let iis_names = [
        "date",
        "time",
        "s-ip",
        "cs-method",
        "cs-uri-stem",
        "cs-uri-query",
        "s-port",
        "cs-username",
        "c-ip",
        "cs(User-Agent)",
    ];
    let iis =
        ["2026-01-05", "09:00:01", "10.0.0.2", "POST", "/login", "-", "443", "ada", "192.0.2.7", "Mozilla/5.0+(X)"];
    let front_names = ["date", "time", "x-edge-location", "sc-bytes", "c-ip", "cs-method", "cs(Host)", "cs-uri-stem"];
    let front = ["2026-01-05", "09:00:01", "FRA2", "57", "192.0.2.7", "POST", "d.example.net", "/login"];
    for (log, user, read_by) in [
        (format!("192.0.2.7 - ada {TIME} {REST}"), true, "combined"),
        (format!("192.0.2.7 - - {TIME} \"POST /login HTTP/1.1\" 200 5"), false, "common"),
        (format!("www.example.org:443 192.0.2.7 - ada {TIME} {REST}"), true, "combined, vhost first"),
        (format!("[::ffff:192.0.2.7]:4711 - - [2026-01-05T09:00:01+00:00] {REST}"), false, "combined"),
        (format!("203.0.113.9, 192.0.2.7, 10.0.0.1 - - [2026-01-05T09:00:01.123456789Z] {REST}"), false, "combined"),
        (format!("10.0.0.1 - [192.0.2.7, 10.0.0.1] - ada {TIME} {REST} 458 0.047 [svc-80] 10.0.0.9:5000"), true, "ingress-nginx of old"),
        (format!("192.0.2.7 - - [1767603601.123] {REST}"), false, "combined"),
        (format!("192.0.2.7 - - [05/Jan/2026:10:00:01 +01:00] {REST}"), false, "combined"),
        (format!("access.log.1:12:192.0.2.7 - - {TIME} {REST}"), false, "combined, file name first"),
        (format!("2026-01-05T09:00:01.000000001Z stdout F 192.0.2.7 - - {TIME} {REST}"), false, "combined, container stamp first"),
        (format!("2026-01-05T09:00:01.000000001Z www.example.org 192.0.2.7 - - {TIME} {REST}"), false, "combined, container stamp first, vhost first"),
        (format!("Jan  5 09:00:01 web1 nginx: 192.0.2.7 - - {TIME} {REST}"), false, "combined, syslog header first"),
        (format!("<190>1 2026-01-05T09:00:01Z web1 nginx 12 - - 192.0.2.7 - - {TIME} {REST}"), false, "combined, syslog header first"),
        (docker.clone(), true, "combined, in a field of JSON"),
        (format!("2026-01-05T09:00:01Z stdout F {docker}"), true, "combined, container stamp first, in a field of JSON"),
        (format!(r#"{{"textPayload":{},"timestamp":"2026-01-05T09:00:05Z"}}"#, serde_json::Value::from(docker)), true, "combined, in a field of JSON"),
        (format!(r#"{{"line":42,"message":{}}}"#, serde_json::Value::from(format!("192.0.2.7 - - {TIME} {REST}"))), false, "combined, in a field of JSON"),
        (r#"{"jsonPayload":{"remote_addr":"192.0.2.7","request":"POST /login HTTP/1.1","time":"2026-01-05T09:00:01Z"},"logName":"a"}"#.to_owned(), false, "JSON"),
        (r#"2026-01-05T09:00:01Z stdout F {"time":"2026-01-05T09:00:01Z","ip":"192.0.2.7","request":"POST /login HTTP/2.0"}"#.to_owned(), false, "JSON, container stamp first"),
        (r#"{"time_iso8601":"2026-01-05T10:00:01+01:00","remote_addr":"10.0.0.1","http_x_forwarded_for":"192.0.2.7","remote_user":"ada","request":"POST /login HTTP/1.1","status":"200"}"#.to_owned(), true, "JSON"),
        (r#"{"ClientAddr":"192.0.2.7:3231","ClientHost":"192.0.2.7","ClientUsername":"ada","RequestMethod":"POST","RequestPath":"/login","StartUTC":"2026-01-05T09:00:01.201712623Z","time":"2026-01-05T12:00:00Z"}"#.to_owned(), true, "JSON"),
        (r#"{"level":"info","ts":1767603601.5,"request":{"remote_addr":"192.0.2.7:41342","method":"POST","uri":"/login?a","headers":{"X":["y"]}},"user_id":"ada"}"#.to_owned(), true, "JSON"),
        (r#"{"ts":1767603601.5,"request":{"remote_ip":"10.0.0.1","client_ip":"192.0.2.7","method":"POST","uri":"/login"},"user_id":""}"#.to_owned(), false, "JSON"),
        (r#"{"start_time":"2026-01-05T09:00:01.000Z","method":"POST","path":"/login?x","downstream_remote_address":"10.0.0.1:5123","x_forwarded_for":"192.0.2.7"}"#.to_owned(), false, "JSON"),
        (r#"{"ClientIP":"192.0.2.7","ClientRequestMethod":"POST","ClientRequestURI":"/login?x","EdgeStartTimestamp":1767603601000000000}"#.to_owned(), false, "JSON"),
        (r#"{"httpRequest":{"requestMethod":"POST","requestUrl":"https://www.example.org/login?x","remoteIp":"192.0.2.7","status":200},"timestamp":"2026-01-05T09:00:01.5Z"}"#.to_owned(), false, "JSON"),
        (r#"{"@timestamp":"2026-01-05T09:00:01.000Z","source":{"ip":"192.0.2.7"},"http":{"request":{"method":"POST"}},"url":{"path":"/login"},"user":{"name":"ada"}}"#.to_owned(), true, "JSON"),
        (format!(r#"unix: - - {TIME} {REST} "192.0.2.7""#), false, "combined"),
        (r#"{"timestamp":1767603601000,"httpRequest":{"clientIp":"192.0.2.7","uri":"/login","httpMethod":"POST"}}"#.to_owned(), false, "JSON"),
        (r#"{"requestTime":"05/Jan/2026:09:00:01 +0000","ip":"192.0.2.7","httpMethod":"POST","path":"/login","user":"-"}"#.to_owned(), false, "JSON"),
        (format!("https {alb}"), false, "AWS load balancer"),
        (alb.to_owned(), false, "AWS load balancer"),
        (format!(r#"{{"source_ip":"10.0.0.5","message":{},"timestamp":"2026-01-05T09:00:03Z"}}"#, serde_json::Value::from(format!("192.0.2.7 - - {TIME} {REST}"))), false, "combined, in a field of JSON"),
        (r#"{"time":"2026-01-05T09:00:01Z","src_ip":"192.0.2.7","request":"POST /login HTTP/1.1","message":"192.0.2.8 - - [05/Jan/2026:09:00:03 +0000] \"GET / HTTP/1.1\" 200 5"}"#.to_owned(), false, "JSON"),
        (format!("192.0.2.7 - - {TIME} \"h.example.org\" {REST}"), false, "combined"),
        (w3c(" ", &iis_names, &iis), true, "W3C extended"),
        ("#Fields: date\ttime\tc-ip\tcs-username\tcs-method\tcs-uri-stem\tcs-uri-query\n2026-01-05\t09:00:01\t192.0.2.7\t\tPOST\t/login\t".to_owned(), false, "W3C extended"),
        (w3c("\t", &front_names, &front), false, "W3C extended"),
        ("Time;IP;Path;Method;User\n2026-01-05T09:00:01Z;192.0.2.7;/login;POST;ada".to_owned(), true, "CSV"),
        ("sep=;\r\ntime;ip;path;method\r\n2026-01-05T09:00:01Z;192.0.2.7;/login;POST\r".to_owned(), false, "CSV"),
        ("user\ttime\tip\tpath\tmethod\tnote\n\t2026-01-05T09:00:01Z\t192.0.2.7\t/login\tPOST\t".to_owned(), false, "CSV"),
    ] {
        let last = log.rsplit('\n').next().expect("a line");
        let twice = format!("{log}\n{last}\n");
        let marked = format!("\u{feff}{twice}");
        let utf16: Vec<u8> = marked.encode_utf16().flat_map(u16::to_le_bytes).collect();
        for bytes in [twice.as_bytes(), marked.as_bytes(), &utf16] {
            let report = report(bytes);
            assert_eq!((report.requests, report.unreadable, report.allowed, report.denied), (2, 0, 1, 1), "{log}");
            let all = if user { &["ip=192.0.2.7", "user=ada"][..] } else { &["ip=192.0.2.7"] };
            assert_eq!(clients(&report), all, "{log}");
            assert_eq!(form(&report), read_by, "{log}");
            assert_eq!(report.from.expect("a time").to_string().get(..19), Some("2026-01-05T09:00:01"), "{log}");
        }
    }
}

#[test]
fn what_is_nearly_a_form_is_refused_and_shown() {
    let good = combined("192.0.2.7", "09:00:00");
    for (line, why) in [
        (format!("host.example - - {TIME} {REST}"), "`host.example`"),
        (format!("192.0.2.256 - - {TIME} {REST}"), "it does not begin with an address; here stands `192.0.2.256`"),
        (format!("192.0.2.7 - [x] - - {TIME} {REST}"), "a field too many"),
        (format!("192.0.2.7 a b - - {TIME} {REST}"), "a field too many"),
        (format!("192.0.2.7 - - [05/Jan/2026:09:00:01] {REST}"), "--time-zone"),
        (format!("192.0.2.7 - - [2026-01-05 09:00:01] {REST}"), "--time-zone"),
        (format!("nginx: 192.0.2.7 - - {TIME}"), "address"),
        (
            r#"{"level":"info","at":1,"peer":{"addr":"192.0.2.7"}}"#.to_owned(),
            "its fields are `at`, `level`, `peer.addr`",
        ),
        (r#"{"time":1,"peer":"192.0.2.7"}"#.to_owned(), "--map client=FIELD"),
        (r#"{"time":[1],"ip":"192.0.2.7"}"#.to_owned(), "no time"),
        (r#"{"time":1,"ip":"192.0"#.to_owned(), "cut off"),
        ("[{}]".to_owned(), "jq -c"),
        (
            format!("192.0.2.7:4711 [05/Jan/2026:09:00:01.655] in app/srv1 10/0/30/69/109 200 5 - - ---- {REST}"),
            "httplog clf",
        ),
        ("2026-01-05 09:00:01 10.0.0.2 GET /a - 443 - 192.0.2.7".to_owned(), "#Fields:"),
        ("{".to_owned(), "jq -c"),
    ] {
        let mut replay = start(LogOptions::default());
        replay.read(format!("{good}{line}\n").as_bytes(), "log", |_| ()).expect("one line is good");
        let told = replay.first_unreadable().first().map(ToString::to_string).unwrap_or_default();
        assert!(told.starts_with("log:2: ") && told.contains(why), "{line}: {told}");
        for internal in ["invalid", "expected", "EOF", "line 1 column"] {
            assert!(!told.contains(internal), "{told}");
        }
        let report = replay.finish(0);
        assert_eq!(
            (report.requests, report.unreadable, clients(&report)),
            (1, 1, vec!["ip=192.0.2.7".to_owned()]),
            "{line}"
        );
    }
    // A log of another format than the settings have.
    let mut replay = start(LogFormat::W3c.into());
    let error = replay.read(good.as_bytes(), "log", |_| ()).expect_err("no header").to_string();
    assert!(error.contains("#Fields:"), "{error}");
    let mut replay = start(LogFormat::Alb.into());
    assert!(replay.read(good.as_bytes(), "log", |_| ()).is_err());
}

#[test]
fn the_parts_of_a_containers_line_are_joined() {
    let part = |stream: &str, tag: &str, text: &str| format!("2026-01-05T09:00:01Z {stream} {tag} {text}\n");
    let (start_of, end_of) = (format!("192.0.2.7 - - {TIME} \"GET /"), "a HTTP/1.1\" 200 5");
    let filler = "x".repeat(40 << 10);
    let log = [
        part("stdout", "P", &start_of),
        part("stderr", "P", &start_of.replace("2.7", "2.8")),
        part("stdout", "F", end_of),
        part("stderr", "P", "b"),
        part("stderr", "F", end_of),
        part("stdout", "P", &filler),
        part("stdout", "P", &filler),
        part("stdout", "P", "the end is missing"),
    ];
    let mut replay = start(LogOptions::default());
    replay.read(log.concat().as_bytes(), "log", |_| ()).expect("two lines are good");
    let told: Vec<String> = replay.first_unreadable().iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        ["log:7: its parts together are longer than 64 KiB", "log:8: the last part of the line is missing"]
    );
    let report = replay.finish(0);
    assert_eq!((report.requests, form(&report)), (2, "common, container stamp first"));
    assert_eq!(clients(&report), ["ip=192.0.2.7", "ip=192.0.2.8"]);
}

#[test]
fn an_array_of_json_is_read_with_an_object_a_line_and_named_otherwise() {
    let object = r#"{"time":1,"ip":"192.0.2.7"}"#;
    let lines = report(format!("[\n{object},\n  {object}\n]\n").as_bytes());
    assert_eq!((lines.requests, lines.unreadable, form(&lines)), (2, 0, "JSON"));
    for array in [
        format!("[{object},{object}]"),
        format!("[{}]", vec![object; 3_000].join(",")),
        "[\n{\n\"time\":1\n}\n]".to_owned(),
    ] {
        let error = start(LogOptions::default()).read(array.as_bytes(), "log", |_| ()).expect_err("no object a line");
        assert!(error.to_string().contains("jq -c"), "{error}");
    }
}

#[test]
fn a_line_in_a_field_is_read_by_the_map_of_fields_too() {
    let inner = r#"{"at":1767603601,"peer":"192.0.2.7","api_key":"k1"}"#;
    let log = format!(
        "{{\"log\":{},\"stream\":\"stdout\",\"time\":\"2026-01-05T09:00:09Z\"}}\n",
        serde_json::Value::from(inner)
    );
    let key = Some(LogKey::new("api_key", "api_key").expect("a kind"));
    let fields = "client=peer,time=at".parse().expect("right");
    let mut replay = start(LogOptions { key, fields, ..LogOptions::default() });
    replay.read(log.as_bytes(), "log", |_| ()).expect("readable");
    let report = replay.finish(0);
    assert_eq!(
        (clients(&report), form(&report)),
        (vec!["api_key=k1".to_owned(), "ip=192.0.2.7".to_owned()], "JSON, in a field of JSON")
    );
    // The error is about the line, not the object around it.
    let docker = format!(
        "{{\"log\":\"host.example - - {TIME} x\\n\",\"stream\":\"stdout\",\"time\":\"2026-01-05T09:00:09Z\"}}\n"
    );
    let error = start(LogOptions::default()).read(docker.as_bytes(), "log", |_| ()).expect_err("a host name");
    assert!(error.to_string().contains("--host-names"), "{error}");
}

#[test]
fn a_quote_that_is_left_open_costs_one_line() {
    let row = |second: u32, path: &str| format!("2026-01-05T09:00:0{second}Z,192.0.2.{second},{path}\n");
    let log =
        ["time,ip,path\n".to_owned(), row(1, "\"/a"), row(2, "/b"), row(3, "\"/c,\nd\""), row(4, "\"/e"), row(5, "/f")];
    let mut replay = start(LogOptions::default());
    replay.read(log.concat().as_bytes(), "log", |_| ()).expect("most lines are good");
    let unreadable: Vec<u64> = replay.first_unreadable().iter().map(|line| line.number).collect();
    assert!(replay.first_unreadable()[0].why.contains("a quote that is not closed"));
    let report = replay.finish(0);
    assert_eq!(
        (unreadable, clients(&report)),
        (vec![2, 6], ["ip=192.0.2.2", "ip=192.0.2.3", "ip=192.0.2.5"].map(str::to_owned).to_vec())
    );
}

#[test]
fn a_line_without_a_client_uses_nobodys_quota() {
    let none = combined("-", "09:00:00").repeat(5);
    let json = "{\"time\":1,\"remote_addr\":\"-\",\"request\":\"GET / HTTP/1.1\"}\n{\"time\":2,\"ip\":null}\n";
    let report = report([&*none, json, &combined("192.0.2.7", "09:00:01")].concat().as_bytes());
    assert_eq!((report.lines, report.requests, report.without_client), (8, 1, 7));
    assert_eq!((report.allowed, report.denied, report.unreadable), (1, 0, 0));
    assert_eq!(clients(&report), ["ip=192.0.2.7"]);
    assert!(text_report(&report, &TextStyle { width: 80, color: false }).contains("7 without a client"));
}

#[test]
fn addresses_of_one_network_share_a_limit_as_they_do_live() {
    let log: String = (1..=6).map(|host| combined(&format!("2001:db8:5:5::{host}"), "09:00:01")).collect();
    let report = report(log.as_bytes());
    assert_eq!((report.allowed, report.denied, clients(&report)), (2, 4, vec!["ip=2001:db8:5:5::".to_owned()]));
    let mut reading = LogOptions::default();
    reading.clients.ipv6_prefix = 128;
    let mut replay = start(reading);
    replay.read(log.as_bytes(), "log", |_| ()).expect("readable");
    assert_eq!(replay.finish(0).denied, 0);
}

/// A policy that names IPv6 addresses: they match as in a server.
#[test]
fn an_address_that_the_policy_names_is_met_within_its_network() {
    let policy = || {
        let policy = r#"
            [domains.default]
            defaults = { ip = "free" }
            [[domains.default.tiers]]
            id = "free"
            limits = [{ id = "minute", algorithm = "fixed_window", limit = 1, period = "1m" }]
            [[domains.default.tiers]]
            id = "partner"
            unlimited = true
            [[domains.default.clients]]
            kind = "ip"
            value = "2001:db8::66"
            override = { blocked = true }
            [[domains.default.clients]]
            kind = "ip"
            value = "2001:db8:0:0:7::/80"
            tier = "partner"
        "#;
        Snapshot::parse(policy, Format::Toml).expect("right")
    };
    let addresses = ["2001:db8::66", "2001:db8::7:0:0:1", "2001:db8::7:0:0:2", "2001:db8::9", "2001:db8::a"];
    let log: String = addresses.iter().map(|address| combined(address, "09:00:01")).collect();
    let mut replay = Replay::new(policy(), &ReplayOptions::default()).expect("few limits");
    replay.read(log.as_bytes(), "log", |_| ()).expect("readable");
    let report = replay.finish(0);
    let rows: Vec<_> = report.clients.iter().map(|row| (&*row.value, row.allowed, row.denied)).collect();
    assert_eq!(rows, [("2001:db8::", 1, 1), ("2001:db8::66", 0, 1), ("2001:db8:0:0:7::", 2, 0)]);
    // The dashboard's comparison of two policies decides alike.
    let mut compare = Comparison::new([None, Some(policy())], 1_000).expect("few limits").counting_addresses(64);
    let mut traffic = LogTraffic::new(log.as_bytes(), &LogOptions::default(), "default", 9_999).expect("plain");
    while traffic.step(&mut |now, request| compare.decide(now, request)).expect("readable") {}
    let outcome = compare.finish(|kind, value, _| format!("{kind}={value}"));
    let rows: Vec<_> = outcome.summary.top.iter().map(|row| (&*row.key, row.requests, row.newly_denied)).collect();
    assert_eq!(rows, [("ip=2001:db8::66", 1, 1), ("ip=2001:db8::", 2, 1)]);
}

#[test]
fn options_give_what_a_log_does_not_say() {
    let read = |log: &str, reading: LogOptions| {
        let mut replay = start(reading);
        replay.read(log.as_bytes(), "log", |_| ()).map(|()| replay.finish(0)).map_err(|error| error.to_string())
    };
    let zone = Some("+02:00".parse().expect("an offset"));
    let log = format!("192.0.2.7 - - [05/Jan/2026:11:00:01] {REST}\n");
    let report = read(&log, LogOptions { time_zone: zone, ..LogOptions::default() }).expect("readable");
    assert_eq!(report.from.expect("a time").to_string(), "2026-01-05T09:00:01Z");
    // Other names of fields, in JSON and in CSV.
    let fields: tidegate_replay::FieldMap =
        "client=peer.addr,time=at,path=target,user=who,status=code".parse().expect("right");
    let json = "{\"at\":1,\"peer\":{\"addr\":\"192.0.2.7:1\"},\"time\":\"x\",\"ip\":\"192.0.2.8\",\"target\":\"/a\",\"who\":\"ada\"}\n";
    let csv = "at,peer.addr,ip,target,who\n1,192.0.2.7:1,192.0.2.8,/a,ada\n";
    for log in [json, csv] {
        let reading = LogOptions { fields: fields.clone(), ..LogOptions::default() };
        assert_eq!(clients(&read(log, reading).expect(log)), ["ip=192.0.2.7", "user=ada"], "{log}");
    }
    let reading = LogOptions { fields: "client=addr".parse().expect("right"), ..LogOptions::default() };
    let refused = read("{\"time\":1,\"ip\":\"192.0.2.7\"}\n", reading).expect_err("no such field");
    assert!(refused.contains("no field `addr`; its fields are `ip`, `time`"), "{refused}");
    // A name of the map that no line has, or no header.
    for (log, map, told) in [
        (
            "{\"at\":1,\"ip\":\"192.0.2.7\",\"u\":\"/\"}\n",
            "time=at,path=url",
            "no line has the field `url` that --map names; its fields are `at`, `ip`, `u`",
        ),
        ("{\"at\":1,\"ip\":\"192.0.2.7\"}\n", "time=at,user=who", "no line has the field `who`"),
        ("at,ip,u\n1,192.0.2.7,/\n", "time=at,path=url", "no field `url`; its fields are `at`, `ip`, `u`"),
        ("at;ip\n1;192.0.2.7\n", "time=ad", "no field `ad`; its fields are `at`, `ip`"),
        (
            "#Fields: date time c-ip x-u\n2026-01-05 09:00:01 192.0.2.7 /\n",
            "path=x-url",
            "no field `x-url`; its fields are `date`",
        ),
    ] {
        let reading = LogOptions { fields: map.parse().expect("right"), ..LogOptions::default() };
        let refused = read(log, reading).expect_err(log);
        assert!(refused.contains(told), "{refused}");
    }
    let mut reading = LogOptions::default();
    reading.clients.host_names = true;
    let log = format!(
        "host.example - - {TIME} {REST}\nJan  5 09:00:01 web1 nginx: host.example - - {TIME} {REST}\nwww.example.org 192.0.2.7 - - {TIME} {REST}\n"
    );
    assert_eq!(clients(&read(&log, reading).expect("names")), ["ip=192.0.2.7", "ip=host.example"]);
}

#[test]
fn logs_are_merged_by_time_whatever_order_they_come_in() {
    let part =
        |hour: u32| (0..2).map(|second| combined("192.0.2.7", &format!("{hour:02}:00:0{second}"))).collect::<String>();
    let (old, middle, new) = (part(9), part(12), part(18));
    // Two servers, whose hours are not in the window together.
    let server =
        |client: &str| ["00", "06", "12", "18"].map(|hour| combined(client, &format!("{hour}:00:01"))).concat();
    let (one, two) = (server("192.0.2.1"), server("192.0.2.2"));
    let orders: [&[&String]; 4] =
        [&[&new, &middle, &old], &[&middle, &old, &new], &[&one, &two], &[&two, &new, &one, &old]];
    for logs in orders {
        for is_file in [true, false] {
            let mut replay = start(LogOptions::default());
            let log = |(place, text): (usize, &&String)| {
                let bytes = text.as_bytes().to_vec();
                if is_file {
                    LogSource::file(place.to_string(), move || {
                        Ok(Box::new(io::Cursor::new(bytes.clone())) as LogInput<'_>)
                    })
                } else {
                    LogSource::stream(place.to_string(), io::Cursor::new(bytes))
                }
            };
            let errors = replay.read_all(logs.iter().enumerate().map(log).collect(), |_| ());
            assert!(errors.is_empty(), "{errors:?}");
            let lines: usize = logs.iter().map(|log| log.lines().count()).sum();
            let report = replay.finish(0);
            assert_eq!((report.requests, report.late, report.denied), (lines as u64, 0, 0), "{is_file}");
        }
    }
}

/// A reader that counts the open readers.
struct Counted<'c>(io::Cursor<Vec<u8>>, &'c RefCell<(usize, usize)>);

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.1.borrow_mut().0 -= 1;
    }
}

#[test]
fn of_many_parts_of_a_log_few_are_open_at_once() {
    let open = RefCell::new((0, 0));
    let part = |hour: u32| {
        let (bytes, open) = (combined("192.0.2.7", &format!("{hour:02}:00:00")).into_bytes(), &open);
        LogSource::file(hour.to_string(), move || {
            let mut counts = open.borrow_mut();
            counts.0 += 1;
            counts.1 = counts.1.max(counts.0);
            Ok(Box::new(Counted(io::Cursor::new(bytes.clone()), open)) as LogInput<'_>)
        })
    };
    let mut replay = start(LogOptions::default());
    assert!(replay.read_all((0..24).rev().map(part).collect(), |_| ()).is_empty());
    assert_eq!((replay.finish(0).requests, open.borrow().0), (24, 0));
    assert!(open.borrow().1 <= 2, "{} at once", open.borrow().1);
}

#[test]
fn what_makes_a_report_wrong_stands_at_its_top() {
    let look = TextStyle { width: 100, color: false };
    let many = combined("192.0.2.7", "09:00:00").repeat(99);
    let few = report(format!("{many}noise\n").as_bytes());
    assert!(!text_report(&few, &look).contains("Warning"), "one in a hundred");
    let more = report(format!("{many}noise\nother noise\n{{}}\n").as_bytes());
    let told = text_report(&more, &look);
    let first: Vec<&str> = told.lines().take(3).collect();
    assert!(first[0].starts_with("Warning: lines that cannot be read: 3 (2.9 %)"), "{told}");
    assert!(first[1].contains("2 such as log:100: ") && first[1].contains("`noise`"), "{told}");
    assert!(first[2].contains("1 such as log:102: no time"), "{told}");
    assert!(told.contains("read as common: log"), "{told}");
    // Numbers of a line do not make it a kind of its own.
    let line = |other: &str| format!("2026-01-05T09:00:01Z,192.0.2.7,/{other}\n");
    let csv = ["time,ip,path\n", &line(""), &line(",a"), &line(",a,b")].concat();
    let json = ["{\"time\":1,\"ip\":\"192.0.2.7\"}\n", "{\"a\":1}x\n", "{\"a\":12}x\n"].concat();
    let w3c = ["#Fields: date time c-ip\n2026-01-05 09:00:01 192.0.2.7\n", "2026-01-05\n", "2026-01-05 a\n"].concat();
    for (log, problem, example) in [
        (
            csv,
            "its number of fields is not that of the header",
            "log:3: its number of fields is not that of the header; it has 4 fields, the header 3",
        ),
        (json, "it is no JSON", "log:2: it is no JSON; from column 8 on stands `x`"),
        (
            w3c,
            "its number of fields is not that of the line #Fields: before it",
            "log:3: its number of fields is not that of the line #Fields: before it; it has 1 fields, that line 3",
        ),
    ] {
        let kinds = report(log.as_bytes()).unreadable_kinds;
        let kinds: Vec<_> = kinds.iter().map(|kind| (&*kind.problem, kind.lines, &*kind.example)).collect();
        assert_eq!(kinds, [(problem, 2, example)]);
    }
    let pathless = report(format!("{many}192.0.2.8 - - {TIME} \"-\" 408 -\n").as_bytes());
    assert_eq!(pathless.without_path, 1);
    let told = text_report(&pathless, &look);
    assert!(told.starts_with("100 lines, 100 requests, 1 without a path\n"), "{told}");
    let late = report((combined("192.0.2.7", "12:00:00") + &combined("192.0.2.7", "09:00:00")).as_bytes());
    let told = text_report(&late, &look);
    assert!(told.starts_with("Warning: lines later than the window: 1."), "{told}");
}
