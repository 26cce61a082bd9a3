//! Compares replays with a slow, simple model: all lines sorted by time, token buckets and windows in exact integers.

use std::{collections::HashMap, fs, path::Path};

use proptest::prelude::*;
use tidegate::{Snapshot, formats::Format, time::SECOND_NS};
use tidegate_replay::{Replay, ReplayOptions, ReplayReport, Utc, demo};

const POLICY: &str = r#"
[domains.default]
defaults = { ip = "free", user = "member" }
[[domains.default.tiers]]
id = "free"
limits = [
  { id = "second", algorithm = "token_bucket", limit = 2, period = "1s", burst = 3 },
  { id = "minute", algorithm = "fixed_window", limit = 9, period = "1m" },
]
[[domains.default.tiers]]
id = "member"
limits = [{ id = "hour", algorithm = "token_bucket", limit = 36, period = "1h", burst = 12 }]
[[domains.default.rules]]
id = "search"
endpoint = "/search"
method = "GET"
per = "ip"
limits = [{ id = "rate", algorithm = "token_bucket", limit = 1, period = "4s", burst = 2 }]
[[domains.default.rules]]
id = "all"
endpoint = "*"
per = "everyone"
limits = [{ id = "window", algorithm = "fixed_window", limit = 7, period = "5s" }]
"#;

/// A request of a log.
#[derive(Clone, Debug)]
struct Hit {
    time_ns: u64,
    client: String,
    user: Option<String>,
    method: String,
    path: String,
}

#[derive(Clone, Copy)]
enum Rate {
    Bucket { limit: i128, period_ns: i128, burst: i128 },
    Window { limit: i128, period_ns: i128 },
}

/// The limits in the policy's order.
const LIMITS: [(&str, Rate); 5] = [
    ("default/tier:free/second", Rate::Bucket { limit: 2, period_ns: SECOND, burst: 3 }),
    ("default/tier:free/minute", Rate::Window { limit: 9, period_ns: 60 * SECOND }),
    ("default/tier:member/hour", Rate::Bucket { limit: 36, period_ns: 3_600 * SECOND, burst: 12 }),
    ("default/rule:search/rate", Rate::Bucket { limit: 1, period_ns: 4 * SECOND, burst: 2 }),
    ("default/rule:all/window", Rate::Window { limit: 7, period_ns: 5 * SECOND }),
];
const SECOND: i128 = SECOND_NS as i128;

/// State of a bucket or window: `level` in tokens x period at `since`, or the use of the window `since`.
#[derive(Clone, Copy)]
struct Counter {
    level: i128,
    since: i128,
}

impl Rate {
    /// Returns the counter at `now`.
    fn at(self, counter: Option<Counter>, now: i128) -> Counter {
        match self {
            Self::Bucket { limit, period_ns, burst } => {
                let full = burst * period_ns;
                let level = counter.map_or(full, |c| full.min(c.level + (now - c.since) * limit));
                Counter { level, since: now }
            }
            Self::Window { period_ns, .. } => {
                let window = now / period_ns;
                counter.filter(|c| c.since == window).unwrap_or(Counter { level: 0, since: window })
            }
        }
    }

    fn admits(self, counter: Counter) -> bool {
        match self {
            Self::Bucket { period_ns, .. } => counter.level >= period_ns,
            Self::Window { limit, .. } => counter.level < limit,
        }
    }

    fn charged(self, counter: Counter) -> Counter {
        match self {
            Self::Bucket { period_ns, .. } => Counter { level: counter.level - period_ns, ..counter },
            Self::Window { .. } => Counter { level: counter.level + 1, ..counter },
        }
    }
}

/// Results that must be equal. Clients by kind and value: allowed, denied, first denial.
#[derive(PartialEq, Debug, Default)]
struct Outcome {
    allowed: u64,
    denied: u64,
    span: Option<(u64, u64)>,
    limits: Vec<(String, u64, u64)>,
    clients: Vec<(String, String, u64, u64, Option<u64>)>,
}

/// Returns the limits of a hit in the order of the engine: each identity's tier and rules, then rules for everyone.
fn plan(hit: &Hit) -> Vec<(usize, String)> {
    let mut plan = vec![(0, hit.client.clone()), (1, hit.client.clone())];
    if hit.path == "/search" && hit.method == "GET" {
        plan.push((3, hit.client.clone()));
    }
    plan.extend(hit.user.iter().map(|user| (2, user.clone())));
    plan.push((4, String::new()));
    plan
}

fn model(hits: &[Hit]) -> Outcome {
    let mut sorted = hits.to_vec();
    sorted.sort_by_key(|hit| hit.time_ns);
    let mut counters: HashMap<(usize, String), Counter> = HashMap::new();
    let mut outcome =
        Outcome { limits: LIMITS.map(|(name, _)| (name.to_owned(), 0, 0)).to_vec(), ..Default::default() };
    let mut clients: HashMap<(&str, String), (u64, u64, Option<u64>)> = HashMap::new();
    for hit in &sorted {
        let now = i128::from(hit.time_ns);
        let plan = plan(hit);
        let state = |key: &(usize, String)| LIMITS[key.0].1.at(counters.get(key).copied(), now);
        let refusing = plan.iter().position(|key| !LIMITS[key.0].1.admits(state(key)));
        for (limit, _) in &plan[..refusing.map_or(plan.len(), |place| place + 1)] {
            outcome.limits[*limit].1 += 1;
        }
        if let Some(place) = refusing {
            outcome.limits[plan[place].0].2 += 1;
            outcome.denied += 1;
        } else {
            let charged: Vec<_> = plan.iter().map(|key| (key.clone(), LIMITS[key.0].1.charged(state(key)))).collect();
            counters.extend(charged);
            outcome.allowed += 1;
        }
        for who in [Some(("ip", hit.client.clone())), hit.user.clone().map(|user| ("user", user))].into_iter().flatten()
        {
            let row = clients.entry(who).or_default();
            *(if refusing.is_some() { &mut row.1 } else { &mut row.0 }) += 1;
            if refusing.is_some() {
                row.2.get_or_insert(hit.time_ns);
            }
        }
    }
    outcome.span = sorted.first().zip(sorted.last()).map(|(first, last)| (first.time_ns, last.time_ns));
    outcome.clients = clients.into_iter().map(|((k, v), (a, d, f))| (k.to_owned(), v, a, d, f)).collect();
    outcome.clients.sort_by(|a, b| (b.3, b.2, &a.0, &a.1).cmp(&(a.3, a.2, &b.0, &b.1)));
    outcome
}

fn outcome(report: &ReplayReport) -> Outcome {
    let ns = |at: Utc| at.0;
    let client = |row: &tidegate_replay::ClientRow| {
        (row.kind.clone(), row.value.clone(), row.allowed, row.denied, row.first_denied_at.map(ns))
    };
    Outcome {
        allowed: report.allowed,
        denied: report.denied,
        span: report.from.map(ns).zip(report.to.map(ns)),
        limits: report.limits.iter().map(|limit| (limit.limit_id.clone(), limit.checked, limit.denied)).collect(),
        clients: report.clients.iter().map(client).collect(),
    }
}

fn replay(log: &[u8], window_ns: u64) -> ReplayReport {
    let policy = Snapshot::parse(POLICY, Format::Toml).expect("right");
    let mut replay = Replay::new(policy, &ReplayOptions { window_ns, ..ReplayOptions::default() }).expect("few limits");
    replay.read(log, "log", |_| ()).expect("readable");
    let report = replay.finish(0);
    assert_eq!(report.lines, report.requests + report.unreadable);
    assert_eq!(report.timeline.iter().map(|row| row.allowed).sum::<u64>(), report.allowed);
    assert_eq!(report.timeline.iter().map(|row| row.denied).sum::<u64>(), report.denied);
    report
}

/// Writes a log: combined lines for whole seconds, JSON for the others.
fn written(hits: &[Hit]) -> String {
    let line = |hit: &Hit| {
        let Hit { time_ns, client, user, method, path } = hit;
        let user = user.as_deref().unwrap_or("-");
        if time_ns.is_multiple_of(SECOND_NS) {
            let (day, clock) = (time_ns / SECOND_NS / 86_400, time_ns / SECOND_NS % 86_400);
            let stamp = format!("{:02}:{:02}:{:02}", clock / 3_600, clock / 60 % 60, clock % 60);
            assert!(day < 31, "in January");
            let day = day + 1;
            format!(
                "{client} - {user} [{day:02}/Jan/1970:{stamp} +0000] \"{method} {path}?q HTTP/1.1\" 200 5 \"-\" \"x\"\n"
            )
        } else {
            let at = Utc(*time_ns);
            format!(r#"{{"time":"{at}","ip":"{client}","user":"{user}","method":"{method}","path":"{path}"}}"#) + "\n"
        }
    };
    hits.iter().map(line).collect()
}

fn hits() -> impl Strategy<Value = Vec<Hit>> {
    let user = prop_oneof![3 => Just(None), 1 => (0..2).prop_map(|user| Some(format!("user{user}")))];
    let method = prop_oneof![4 => Just("GET"), 1 => Just("POST")];
    let path = prop_oneof![Just("/search"), Just("/"), Just("/search/more")];
    // In quarters of a second.
    let hit = (0..480_u64, 0..4, user, method, path).prop_map(|(time, client, user, method, path)| Hit {
        time_ns: time * SECOND_NS / 4,
        client: format!("192.0.2.{client}"),
        user,
        method: method.to_owned(),
        path: path.to_owned(),
    });
    prop::collection::vec(hit, 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Lines in any order within the window.
    #[test]
    fn the_replay_agrees_with_the_model(hits in hits()) {
        prop_assert_eq!(outcome(&replay(written(&hits).as_bytes(), 120 * SECOND_NS)), model(&hits));
    }

    /// No bytes stop a replay, and every line that is not blank is counted.
    #[test]
    fn no_bytes_stop_a_replay(noise in prop::collection::vec(any::<u8>(), 0..2_000), good in any::<bool>()) {
        let policy = Snapshot::parse(POLICY, Format::Toml).expect("right");
        let mut replay = Replay::new(policy, &ReplayOptions { max_keys: 64, ..ReplayOptions::default() }).expect("few limits");
        let line: &[u8] = b"\n192.0.2.1 - - [01/Jan/1970:00:00:00 +0000] \"GET / HTTP/1.1\" 200 5\n";
        // May fail, must not panic.
        let _ = replay.read([noise.as_slice(), if good { line } else { b"" }].concat().as_slice(), "noise", |_| ());
        let lines = replay.lines();
        prop_assert_eq!(replay.finish(0).lines, lines);
    }

    /// Lines that are nearly valid do not stop a replay either.
    #[test]
    fn no_damaged_line_stops_a_replay(at in 0..120_usize, byte in any::<u8>(), cut in 0..120_usize, json in any::<bool>()) {
        let hit = Hit {
            time_ns: if json { 1 } else { SECOND_NS },
            client: "192.0.2.1".to_owned(),
            user: Some("ada".to_owned()),
            method: "GET".to_owned(),
            path: "/a".to_owned(),
        };
        let mut line = written(&[hit]).into_bytes();
        let at = at % line.len();
        line[at] = byte;
        line.truncate(line.len() - cut % line.len());
        let policy = Snapshot::parse(POLICY, Format::Toml).expect("right");
        let mut replay = Replay::new(policy, &ReplayOptions { max_keys: 64, ..ReplayOptions::default() }).expect("few limits");
        let _ = replay.read(line.as_slice(), "damaged", |_| ());
        let _ = replay.finish(0);
    }
}

/// Reads `ADDRESS - - [DD/May/2015:HH:MM:SS +0000] "METHOD PATH ...`, and nothing else.
fn read_simply(line: &str) -> Hit {
    let (client, rest) = line.split_once(' ').expect("an address");
    let (stamp, rest) = rest.split_once('[').and_then(|(_, rest)| rest.split_once(']')).expect("a time");
    let mut request = rest.split('"').nth(1).expect("a request").split(' ');
    let number = |from: usize| stamp[from..from + 2].parse::<u64>().expect("digits");
    assert_eq!(&stamp[2..12], "/May/2015:");
    // 1 May 2015 was 16,556 days after the epoch.
    let days = 16_556 + number(0) - 1;
    let seconds = days * 86_400 + number(12) * 3_600 + number(15) * 60 + number(18);
    let method = request.next().unwrap_or_default().to_owned();
    let path = request.next().unwrap_or_default().split(['?', '#']).next().unwrap_or_default().to_owned();
    Hit { time_ns: seconds * SECOND_NS, client: client.to_owned(), user: None, method, path }
}

#[test]
fn a_real_log_agrees_with_the_model() {
    let places = ["../../shared/data/access.log", "../shared/data/access.log"];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Some(log) = places.iter().find_map(|place| fs::read_to_string(root.join(place)).ok()) else {
        #[expect(clippy::print_stderr, reason = "whoever runs the test should know")]
        {
            eprintln!("skipped: no real log at {}", places[0]);
        }
        return;
    };
    let hits: Vec<Hit> = log.lines().map(read_simply).collect();
    let report = replay(log.as_bytes(), 3_600 * SECOND_NS);
    assert_eq!((report.lines, report.requests, report.unreadable, report.late), (10_000, 10_000, 0, 0));
    assert!(report.denied > 1_000 && report.allowed > 1_000);
    assert_eq!(outcome(&report), model(&hits));
}

#[test]
fn the_same_log_makes_the_same_bytes_however_it_is_stored() {
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    let log = demo::log(3);
    let (front, back) = log.split_at(log.len() / 2);
    let gzip = |text: &str| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(text.as_bytes()).and_then(|()| gzip.finish()).expect("in memory")
    };
    let json = |log: &[u8]| serde_json::to_string(&replay(log, 3_600 * SECOND_NS)).expect("plain data");
    let plain = json(log.as_bytes());
    assert_eq!(plain, json(log.as_bytes()));
    assert_eq!(plain, json(&gzip(&log)));
    assert_eq!(plain, json(&[gzip(front), gzip(back)].concat()));
    assert_eq!(plain, json(log.replace('\n', "\r\n\n").as_bytes()));
}
