//! Figures of seconds, minutes and hours: what was counted is what is answered, also after a restart and where the clock is
//! set otherwise; the heaviest; endpoints without a rule.

use serde_json::{Value, json};
use tidegate::{Identity, Request};
use tidegate_testkit::wait_until;

use crate::{
    home::{Folder, block_on},
    support::{Client, Server, Time, fresh},
};

/// Asks until the answer is as it should be.
pub(crate) fn wait_for(client: &Client, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    tidegate_testkit::wait_for(path, || Some(client.get(path).json()).filter(&is_so))
}

/// Waits until so many requests are in the figures.
pub(crate) fn counted(client: &Client, allowed: u64, denied: u64) {
    wait_for(client, "/api/v1/metrics", |figures| {
        figures["newest"]["totals"]["allowed"] == allowed && figures["newest"]["totals"]["denied"] == denied
    });
}

/// Waits until so many requests are in the figures, whatever was decided.
fn decided(client: &Client, requests: u64) {
    wait_for(client, "/api/v1/metrics", |figures| {
        let totals = &figures["newest"]["totals"];
        totals["allowed"]
            .as_u64()
            .zip(totals["denied"].as_u64())
            .is_some_and(|(allowed, denied)| allowed + denied == requests)
    });
}

/// So many requests of one user.
pub(crate) fn checks(server: &Server, user: &str, count: usize) {
    for _ in 0..count {
        let _ = server.check(user);
    }
}

/// `t` of each point of a series, after the start in seconds, with what was allowed and denied.
pub(crate) fn points(figures: &Value, id: &str, start_ms: i64) -> Vec<(i64, u64, u64)> {
    let series = figures["series"].as_array().expect("a list").iter().find(|series| series["id"] == id);
    let number = |point: &Value, name: &str| point[name].as_u64().expect("a count");
    let of = |point: &Value| {
        let t = point["t"].as_i64().expect("an instant");
        ((t - start_ms) / 1_000, number(point, "allowed"), number(point, "denied"))
    };
    series.map_or_else(Vec::new, |series| series["points"].as_array().expect("a list").iter().map(of).collect())
}

pub(crate) fn range(time_ms: i64, from_ago_s: i64, step: &str, by: &str) -> String {
    format!("/api/v1/metrics?from={}&to={time_ms}&step={step}&by={by}", time_ms - from_ago_s * 1_000)
}

#[test]
fn seconds_add_up_to_what_was_decided() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    checks(&server, "ada", 130);
    let stranger = [Identity::new("planet", "mars").expect("valid")];
    let _ = server.engine.check(&Request::new(&stranger).expect("valid").domain("nowhere"));
    counted(&ana, 101, 30);
    let figures = ana.get("/api/v1/metrics?by=total").json();
    assert_eq!((&figures["step"], &figures["by"], &figures["left_out"]), (&json!("1s"), &json!("total"), &json!(0)));
    let all = points(&figures, "total", 0);
    assert_eq!((all.iter().map(|point| point.1).sum::<u64>(), all.iter().map(|point| point.2).sum::<u64>()), (101, 30));
    let busy = figures["series"][0]["points"].as_array().expect("a list").iter().find(|point| point["denied"] != 0);
    let busy = busy.expect("one");
    assert_eq!((&busy["no_limit"], &busy["unknown_domain"]), (&json!(1), &json!(1)), "{busy}");
    assert!(busy["p99_us"].as_u64().expect("measured") >= busy["p50_us"].as_u64().expect("measured"));
    // Of 131, one in 16 was measured.
    let figures = figures["series"][0]["points"].as_array().expect("a list").iter();
    assert_eq!(figures.map(|point| point["measured"].as_u64().expect("a count")).sum::<u64>(), 131 / 16, "{busy}");
    // A second apart, each once.
    assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0), "{all:?}");

    for (by, id, allowed) in
        [("limit", "default/tier:free/minute", 100), ("tier", "default/tier:free", 100), ("node", "here", 101)]
    {
        let figures = ana.get(&format!("/api/v1/metrics?by={by}")).json();
        assert_eq!(figures["series"].as_array().expect("a list").len(), 1, "{figures}");
        let points = points(&figures, id, 0);
        assert_eq!(points.iter().map(|point| point.1).sum::<u64>(), allowed);
        assert_eq!(points.iter().map(|point| point.2).sum::<u64>(), 30);
        // What decided nothing in a second is there with zeros: it was counted.
        assert!(points.len() >= all.len().min(2), "{points:?}");
        assert_eq!(ana.get(&format!("/api/v1/metrics?by={by}&id={id}")).json()["series"][0]["id"], id);
        assert_eq!(ana.get(&format!("/api/v1/metrics?by={by}&id=other")).json()["series"], json!([]));
    }
    assert_eq!(ana.get("/api/v1/metrics?by=rule").json()["series"], json!([]));
}

#[test]
fn a_range_that_cannot_be_is_refused_by_name() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    for (query, name) in [
        ("step=1d", "step"),
        ("by=key", "by"),
        ("from=yesterday", "from"),
        ("from=2000&to=1000", "from"),
        ("from=-5&to=1000", "from"),
        ("from=0", "from"),
        ("to=9000000000000000000", "to"),
        ("from=1700000000000&to=1700090000000&step=1s", "step"),
        ("from=1700000000000&to=1700700000000&step=1m", "step"),
        ("since=5", "since"),
    ] {
        let answer = ana.get(&format!("/api/v1/metrics?{query}"));
        assert_eq!((answer.status, answer.wrong("parameter")), (422, vec![name.to_owned()]), "{query}: {answer:?}");
    }
    let answer = ana.get("/api/v1/metrics?from=1700000000000&to=1700090000000&step=1s");
    assert!(answer.text.contains("90000 points") && answer.text.contains("10080 fit"), "{}", answer.text);
    assert_eq!(server.stranger().get("/api/v1/metrics?by=total").status, 401);
}

#[test]
fn minutes_and_hours_are_the_sums_of_their_seconds() {
    let folder = Folder::new();
    let time = Time::at("2026-03-01T10:58:30Z");
    let mut server = Server::start_at(folder.home(), "a", &time);
    let mut ana = server.administrator();
    let start = "2026-03-01T10:00:00Z".parse::<jiff::Timestamp>().expect("an instant").as_millisecond();
    let minutes = |client: &Client, by| client.get(&range(time.now_ms(), 7_200, "1m", by)).json();
    let minute = |hour: i64, minute: i64| hour * 3_600 + minute * 60;

    checks(&server, "ada", 130);
    counted(&ana, 100, 30);
    time.go_on(60);
    checks(&server, "bob", 40);
    counted(&ana, 140, 30);
    // The minute that runs is not there yet.
    wait_for(&ana, &range(time.now_ms(), 7_200, "1m", "total"), |figures| {
        points(figures, "total", start) == [(minute(0, 58), 100, 30)]
    });
    // Nobody counted for three minutes; then the hour is another.
    time.set("2026-03-01T11:03:10Z");
    checks(&server, "bob", 5);
    counted(&ana, 145, 30);
    time.go_on(60);
    wait_for(&ana, &range(time.now_ms(), 7_200, "1m", "limit"), |figures| {
        points(figures, "default/tier:free/minute", start)
            == [(minute(0, 58), 100, 30), (minute(0, 59), 40, 0), (minute(1, 3), 5, 0)]
    });
    let hours = |client: &Client, by| client.get(&range(time.now_ms(), 36_000, "1h", by)).json();
    assert_eq!(points(&hours(&ana, "tier"), "default/tier:free", start), [(0, 140, 30)]);

    // What was begun of a minute is there after a restart, and goes on.
    checks(&server, "dan", 1);
    counted(&ana, 146, 30);
    server.stop();
    let mut server = Server::start_at(folder.home(), "a", &time);
    ana = server.sign_in();
    checks(&server, "cyd", 2);
    counted(&ana, 2, 0);
    time.go_on(60);
    wait_for(&ana, &range(time.now_ms(), 7_200, "1m", "total"), |figures| {
        points(figures, "total", start).last() == Some(&(minute(1, 4), 3, 0))
    });

    // The clock is set back: what is counted then is added to the minutes of then, and nothing is lost.
    time.set("2026-03-01T10:58:40Z");
    checks(&server, "cyd", 3);
    counted(&ana, 5, 0);
    time.set("2026-03-01T12:00:30Z");
    let expected = [(minute(0, 58), 103, 30), (minute(0, 59), 40, 0), (minute(1, 3), 5, 0), (minute(1, 4), 3, 0)];
    wait_for(&ana, &range(time.now_ms(), 7_200, "1m", "total"), |figures| {
        let points = points(figures, "total", start);
        points.iter().filter(|point| point.1 + point.2 > 0).copied().collect::<Vec<_>>() == expected
    });
    assert_eq!(points(&hours(&ana, "total"), "total", start), [(0, 143, 30), (3_600, 8, 0)]);
    assert!(
        hours(&ana, "total")["series"][0]["points"][0]["p99_us"].as_u64().is_some(),
        "of all decisions of the hour"
    );

    // Another node has rows of its own, and the total has both.
    server.stop();
    let mut server = Server::start_at(folder.home(), "b", &time);
    ana = server.sign_in();
    checks(&server, "ada", 9);
    counted(&ana, 9, 0);
    time.go_on(120);
    let of_nodes = wait_for(&ana, &range(time.now_ms(), 7_200, "1m", "node"), |figures| {
        points(figures, "b", start).iter().map(|point| point.1).sum::<u64>() == 9
    });
    // Where a node did not count it has no point.
    let noon = 7_200;
    assert!(points(&of_nodes, "a", start).iter().all(|point| point.0 <= noon), "{of_nodes}");
    assert_eq!(points(&of_nodes, "b", start), [(noon, 9, 0)], "{of_nodes}");
    assert_eq!(points(&minutes(&ana, "total"), "total", start).iter().map(|point| point.1).sum::<u64>(), 160);
    server.stop();
}

#[test]
fn that_something_was_decided_is_known_after_a_restart() {
    let folder = Folder::new();
    let time = Time::at("2026-03-01T10:58:30Z");
    let anything = |client: &Client| client.get("/api/v1/metrics").json()["newest"]["anything_yet"].clone();
    let mut server = Server::start_at(folder.home(), "a", &time);
    assert_eq!(anything(&server.administrator()), false);
    // A minute of nothing is kept too. The server may not have seen the first instant yet, so time goes on until it has.
    let rows = || {
        block_on(async {
            let mut connection = folder.home().connect().await;
            let rows = sqlx::query("SELECT 1 FROM figures WHERE step = 3600").fetch_all(&mut connection).await;
            rows.expect("it reads").len()
        })
    };
    wait_until("an hour of nothing is written", || {
        time.go_on(60);
        rows() > 0
    });
    server.stop();
    let mut server = Server::start_at(folder.home(), "a", &time);
    let ana = server.sign_in();
    assert_eq!(anything(&ana), false);
    // It met no limit, and was decided.
    let stranger = [Identity::new("planet", "mars").expect("valid")];
    let _ = server.engine.check(&Request::new(&stranger).expect("valid"));
    wait_for(&ana, "/api/v1/metrics", |figures| figures["newest"]["anything_yet"] == true);
    server.stop();
    let server = Server::start_at(folder.home(), "a", &time);
    let newest = server.sign_in().get("/api/v1/metrics").json()["newest"].clone();
    assert_eq!((&newest["anything_yet"], &newest["totals"]["allowed"]), (&json!(true), &json!(0)));
}

#[test]
fn a_tier_has_each_request_once_whatever_becomes_of_its_limits() {
    let folder = Folder::new();
    let time = Time::at("2026-03-01T10:58:30Z");
    let server = Server::start_at(folder.home(), "a", &time);
    let ana = server.administrator();
    let (etag, free) = ana.tier("free");
    let limit = |id: &str| {
        let mut limit = free["limits"][0].clone();
        (limit["id"], limit["limit"]) = (json!(id), json!(1_000));
        limit
    };
    let with = |ids: &[&str]| {
        let mut tier = free.clone();
        tier["limits"] = ids.iter().map(|id| limit(id)).collect();
        tier
    };
    assert_eq!(ana.publish_tier(1, &etag, &with(&["a", "b"])).status, 201);
    checks(&server, "ada", 10);
    counted(&ana, 10, 0);
    // Within the minute one of its limits goes, and within the hour the other.
    assert_eq!(ana.publish_tier(2, "\"tier:free:2\"", &with(&["b"])).status, 201);
    checks(&server, "ada", 7);
    counted(&ana, 17, 0);
    time.go_on(60);
    assert_eq!(ana.publish_tier(3, "\"tier:free:3\"", &with(&["c"])).status, 201);
    checks(&server, "ada", 5);
    counted(&ana, 22, 0);
    time.go_on(3_600);
    let start = time.now_ms();
    let tier = |step: &str| range(time.now_ms(), 7_200, step, "tier");
    let sums =
        |figures: &Value| points(figures, "default/tier:free", start).iter().map(|point| point.1).collect::<Vec<_>>();
    wait_for(&ana, &tier("1m"), |figures| sums(figures) == [17, 5]);
    wait_for(&ana, &tier("1h"), |figures| sums(figures) == [22]);
    assert_eq!(ana.get("/api/v1/metrics/top?by=tier&of=all").json()["items"][0]["count"], 22);
}

#[test]
fn what_is_old_goes() {
    let folder = Folder::new();
    let time = Time::at("2026-03-01T10:00:35Z");
    let server = Server::start_at(folder.home(), "a", &time);
    let ana = server.administrator();
    let start = time.now_ms() - 35_000;
    checks(&server, "ada", 10);
    counted(&ana, 10, 0);
    let week = 7 * 24 * 3_600;
    // The minute is there until a week has passed, and the hour until ninety days have.
    let minutes = |from: i64| format!("/api/v1/metrics?from={from}&to={}&step=1m", from + 60_000);
    let hours = format!("/api/v1/metrics?from={start}&to={}&step=1h&by=limit", start + 3_600_000);
    let is_there = |figures: &Value| figures["series"] != json!([]);
    time.go_on(60);
    wait_for(&ana, &minutes(start), is_there);
    time.go_on(week - 90);
    checks(&server, "ada", 1);
    counted(&ana, 11, 0);
    time.go_on(60);
    wait_for(&ana, &minutes(start + week * 1_000), is_there);
    assert!(is_there(&ana.get(&minutes(start)).json()), "a week");
    time.go_on(120);
    wait_for(&ana, &minutes(start), |figures| !is_there(figures));
    assert!(is_there(&ana.get(&hours).json()));
    time.go_on(83 * 24 * 3_600 - 300);
    checks(&server, "ada", 1);
    counted(&ana, 12, 0);
    time.go_on(60);
    wait_for(&ana, &minutes(start + 90 * 24 * 3_600_000 - 120_000), is_there);
    assert!(is_there(&ana.get(&hours).json()), "less than ninety days");
    time.go_on(600);
    checks(&server, "ada", 1);
    counted(&ana, 13, 0);
    time.go_on(60);
    wait_for(&ana, &hours, |figures| !is_there(figures));
}

#[test]
fn the_heaviest_are_found_and_shown_cut() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    for round in 0..2_000 {
        let _ = server.check("mallory");
        if round % 4 == 0 {
            let _ = server.check(&format!("guest-{round}"));
        }
    }
    // 1,900 were denied, all of one key; one in 16 was looked at.
    let top = wait_for(&ana, "/api/v1/metrics/top", |top| top["items"][0]["count"].as_u64() >= Some(1_600));
    let first = &top["items"][0];
    assert_eq!(
        (&first["id"], &first["identities"]),
        (&json!("default/tier:free/minute"), &json!([{ "kind": "user", "value": "mal…" }]))
    );
    let count = first["count"].as_u64().expect("a count");
    assert!(count <= 2_200, "{top}");
    assert_eq!((&first["error"], &first["share"]), (&json!(0), &json!(1.0)));
    // All came within a minute.
    assert_eq!(first["per_minute"], count);
    assert_eq!(first["per_minute_seen"], count / 16, "{top}");
    assert_eq!(
        (&top["by"], &top["of"], &top["one_in"], &top["next"]),
        (&json!("key"), &json!("denied"), &json!(16), &Value::Null)
    );
    assert_eq!(top["error_max"], 1.0 / 256.0);
    assert!(!top.to_string().contains("mallory"));

    let busiest = ana.get("/api/v1/metrics/top?of=all&limit=2").json();
    assert_eq!(busiest["items"].as_array().expect("a list").len(), 2);
    let share = busiest["items"][0]["share"].as_f64().expect("a share");
    assert!((0.7..0.9).contains(&share), "2,000 of 2,500: {busiest}");

    // Limits, tiers and rules exactly.
    for (by, id) in [("limit", "default/tier:free/minute"), ("tier", "default/tier:free")] {
        let path = format!("/api/v1/metrics/top?by={by}");
        let top = wait_for(&ana, &path, |top| top["items"][0]["count"] == 1_900);
        assert_eq!(top["items"][0]["id"], id);
        assert_eq!((&top["one_in"], &top["items"][0]["identities"]), (&json!(1), &Value::Null));
        wait_for(&ana, &format!("{path}&of=all"), |top| top["items"][0]["count"] == 2_500);
    }
    assert_eq!(ana.get("/api/v1/metrics/top?by=rule").json()["items"], json!([]));
    for (query, name) in [("by=planet", "by"), ("of=some", "of"), ("limit=0", "limit"), ("limit=101", "limit")] {
        let answer = ana.get(&format!("/api/v1/metrics/top?{query}"));
        assert_eq!((answer.status, answer.wrong("parameter")), (422, vec![name.to_owned()]));
    }
}

#[test]
fn endpoints_without_a_rule_of_their_own_are_told() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let rule = json!({
        "id": "all", "endpoint": "/*", "method": "GET", "per": "ip",
        "limits": [{ "id": "minute", "algorithm": "token_bucket", "limit": 1000, "period": "1m" }],
    });
    assert_eq!(ana.post("/api/v1/rules", &rule).status, 201);
    let who = [Identity::new("user", "ada").expect("valid")];
    for number in 0..320 {
        for (method, path) in
            [("GET", format!("/users/{number}?q=1")), ("POST", "/login".to_owned()), ("PUT", "/x".to_owned())]
        {
            let request = Request::new(&who).expect("valid").endpoint(&path).expect("short").method(method);
            let _ = server.engine.check(&request);
        }
    }
    decided(&ana, 960);
    let found = ana.get("/api/v1/metrics/endpoints").json();
    let items = found["items"].as_array().expect("a list");
    let of = |endpoint: &str| items.iter().find(|item| item["endpoint"] == endpoint);
    // One in 16, of each in turn.
    // No rule has these names in its pattern.
    let users = of("/us…/{id}").expect("folded");
    assert_eq!(
        (&users["method"], &users["rules"], &users["domain"]),
        (&json!("GET"), &json!(["all"]), &json!("default"))
    );
    assert!((200..=440).contains(&users["requests"].as_u64().expect("a count")), "{found}");
    assert!((10..=30).contains(&users["seen"].as_u64().expect("a count")), "{found}");
    assert_eq!(of("/…").expect("no rule")["rules"], json!([]));
    assert!(of("/login").is_none() && of("/lo…").is_none(), "a rule is for it: {found}");
}

/// However many decisions there are in a second; and nobody's name is told.
#[test]
fn endpoints_are_counted_at_any_rate_and_shown_as_keys_says() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).expect("valid").endpoint("/inbox/ada@example.org").expect("short");
    for _ in 0..40_000 {
        let _ = server.engine.check(&request);
    }
    decided(&ana, 40_000);
    let found = ana.get("/api/v1/metrics/endpoints").json();
    let items = found["items"].as_array().expect("a list");
    assert_eq!((items.len(), &items[0]["endpoint"]), (1, &json!("/in…/ada@…")), "{found}");
    let requests = items[0]["requests"].as_u64().expect("a count");
    assert!((39_900..=40_100).contains(&requests), "{found}");
}

/// The name of a limit of a single client has the client in it.
#[test]
fn a_client_with_an_override_is_shown_as_others_are() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let client =
        json!({ "kind": "user", "value": "mallory-secret", "override": { "blocked": true, "reason": "abuse" } });
    assert_eq!(ana.post("/api/v1/clients", &client).status, 201);
    let top = wait_for(&ana, "/api/v1/metrics/top", |top| {
        for _ in 0..200 {
            assert!(!server.check("mallory-secret").is_allowed());
        }
        top["items"] != json!([])
    });
    let id = top["items"][0]["id"].as_str().expect("a name");
    assert!(id.starts_with("default/client:user:mall…/"), "{top}");
    assert!(!top.to_string().contains("secret"), "{top}");
}
