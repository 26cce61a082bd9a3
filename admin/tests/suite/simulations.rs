//! What-if: what a change would do to made-up traffic, to a log and to recorded requests, before it is published.

use std::{
    io::{Read, Write},
    num::NonZeroU32,
    path::Path,
    thread,
    time::Duration,
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde_json::{Value, json};
use tidegate::{Identity, Request};
use tidegate_admin::Keys;

use crate::{
    home::Folder,
    stream::Events,
    support::{Answer, Client, Server, fresh},
};

pub(crate) const SIMULATIONS: &str = "/api/v1/simulations";

/// Makes one of the tier `free` ten a minute instead of a hundred.
pub(crate) fn tighter() -> Value {
    json!({ "changes": { "changes": [{ "op": "put", "kind": "tier", "id": "free", "value": {
        "id": "free", "limits": [{ "id": "minute", "algorithm": "token_bucket", "limit": 10, "period": "1m" }],
    } }] } })
}

/// Twenty clients, of which each comes some sixty times in a minute.
pub(crate) fn made() -> Value {
    json!({ "made": {
        "rows": [{ "clients": 20, "rate": 60, "per": "1m", "for": "1m", "pattern": "poisson", "path": "/a" }],
        "seed": 7, "start": "2026-01-05T09:00:00Z",
    } })
}

pub(crate) fn start(client: &Client, ask: &Value) -> String {
    let answer = client.post(SIMULATIONS, ask);
    assert_eq!(answer.status, 202, "{answer:?}");
    let id = answer.json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(answer.header("location"), format!("{SIMULATIONS}/{id}"));
    id
}

/// The run when it is over.
fn ended(client: &Client, id: &str) -> Value {
    loop {
        let run = client.get(&format!("{SIMULATIONS}/{id}")).json();
        if !["queued", "running"].contains(&run["state"].as_str().expect("a state")) {
            return run;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn done(client: &Client, ask: &Value) -> Value {
    let run = ended(client, &start(client, ask));
    assert_eq!(run["state"], "done", "{run}");
    run
}

pub(crate) fn of_run(client: &Client, run: &Value, rest: &str) -> Answer {
    client.get(&format!("{SIMULATIONS}/{}{rest}", run["id"].as_str().expect("an id")))
}

#[test]
fn a_change_list_is_compared_with_the_live_policy() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let run = done(&ana, &json!({ "b": tighter(), "traffic": made() }));
    let summary = &run["summary"];
    let requests = summary["requests"].as_u64().expect("a number");
    assert!((1_050..1_350).contains(&requests) && run["done"] == requests && run["policy_version"] == 1, "{run}");
    assert_eq!(run["asked"]["a"], json!({ "version": 1 }));
    assert_eq!((&summary["a"]["denied"], &summary["a"]["clients_denied"]), (&json!(0), &json!(0)));
    assert_eq!(summary["newly_denied"]["requests"], summary["b"]["denied"]);
    assert_eq!((&summary["newly_denied"]["clients"], &summary["newly_allowed"]["clients"]), (&json!(20), &json!(0)));
    let first = of_run(&ana, &run, "/decisions?outcome=denied&limit=1").json()["items"][0].clone();
    let told = &summary["b"]["first_denial"];
    assert_eq!((&told["at"], &told["key"]), (&first["at"], &first["identities"][0]));
    let limit =
        summary["limits"].as_array().expect("a list").iter().find(|it| it["limit_id"] == "default/tier:free/minute");
    assert_eq!(limit.expect("it is there")["b"]["denied"], summary["b"]["denied"]);
    // Clients over time: every one is there, most changed first, and the buckets are the requests.
    let page = of_run(&ana, &run, "/timeline?limit=15&bucket=10s").json();
    let rest =
        of_run(&ana, &run, &format!("/timeline?limit=15&bucket=10s&cursor={}", page["next"].as_str().expect("more")))
            .json();
    let rows: Vec<Value> =
        [&page, &rest].iter().flat_map(|page| page["items"].as_array().expect("a list").clone()).collect();
    assert_eq!(
        (rows.len(), &rest["next"], &page["of"], &page["bucket_ms"]),
        (20, &Value::Null, &json!(20), &json!(10_000))
    );
    let changed = |row: &Value| row["newly_denied"].as_u64().expect("a number");
    assert!(rows.is_sorted_by(|one, other| changed(one) >= changed(other)));
    let in_buckets = |row: &Value| -> u64 {
        row["buckets"].as_array().expect("a list").iter().map(|it| it["requests"].as_u64().expect("a number")).sum()
    };
    assert_eq!(rows.iter().map(in_buckets).sum::<u64>(), requests);
    assert_eq!(rows[0]["key"], summary["top"][0]["key"]);
    // One client's decisions, page by page.
    let key = rows[0]["key"].as_str().expect("text").replace(':', "%3A");
    let denied = of_run(&ana, &run, &format!("/decisions?key={key}&outcome=newly_denied&limit=3")).json();
    assert_eq!(denied["items"].as_array().expect("a list").len() as u64, changed(&rows[0]).min(3));
    let first = &denied["items"][0];
    assert_eq!((&first["a"]["allowed"], &first["b"]["allowed"]), (&json!(true), &json!(false)));
    assert_eq!((&first["b"]["limit_id"], &first["b"]["remaining"]), (&json!("default/tier:free/minute"), &json!(0)));
    assert!(first["b"]["retry_after_ms"].as_u64().is_some_and(|ms| (1..=6_000).contains(&ms)), "{first}");
    let after = of_run(
        &ana,
        &run,
        &format!("/decisions?key={key}&outcome=newly_denied&cursor={}", denied["next"].as_str().expect("more")),
    )
    .json();
    assert!(after["items"][0]["number"].as_u64() > denied["items"][2]["number"].as_u64(), "{after}");
    let from = first["at"].as_str().expect("text");
    let again = of_run(&ana, &run, &format!("/decisions?key={key}&outcome=newly_denied&from={from}&limit=1")).json();
    assert_eq!(again["items"][0], *first);
    // Nothing live was touched.
    let totals = server.engine.totals();
    assert_eq!((totals.allowed, totals.denied, server.engine.version()), (0, 0, 1));
}

/// The same question twice gives the same bytes, whatever was asked in between and after a new start.
#[test]
fn the_same_run_gives_the_same_bytes_and_outlives_the_server() {
    let folder = Folder::with_file();
    let mut server = Server::start(folder.home());
    let mut ana = server.administrator();
    let bytes = |ana: &Client, run: &Value| {
        let own = |rest: &str| of_run(ana, run, rest).text;
        [run["summary"].to_string(), own("/timeline"), own("/decisions?limit=500")]
    };
    let ask = json!({ "a": "none", "b": tighter(), "traffic": made() });
    let first = done(&ana, &ask);
    let second = done(&ana, &ask);
    assert_ne!(first["id"], second["id"]);
    assert_eq!(bytes(&ana, &first), bytes(&ana, &second));
    assert_eq!(first["summary"]["a"], Value::Null);
    // The question can be asked again as it is told.
    let third = done(&ana, &first["asked"]);
    assert_eq!(bytes(&ana, &first), bytes(&ana, &third));
    let before = bytes(&ana, &first);
    server.stop();
    server = Server::start(folder.home());
    ana = server.sign_in();
    let kept = of_run(&ana, &first, "").json();
    assert_eq!(kept, first);
    assert_eq!(bytes(&ana, &kept), before);
    let listed = ana.get(&format!("{SIMULATIONS}?limit=2")).json();
    let ids: Vec<&Value> = listed["items"].as_array().expect("a list").iter().map(|run| &run["id"]).collect();
    assert_eq!(ids, [&third["id"], &second["id"]], "newest first");
    let rest = ana.get(&format!("{SIMULATIONS}?limit=2&cursor={}", listed["next"].as_str().expect("more"))).json();
    assert_eq!((&rest["items"][0]["id"], &rest["next"]), (&first["id"], &Value::Null));
    // A run that is over is forgotten. A stop that comes too late loses nothing.
    let path = format!("{SIMULATIONS}/{}", first["id"].as_str().expect("an id"));
    let late = ana.post(&format!("{path}/stop"), &json!({}));
    assert_eq!((late.status, late.json()), (200, first));
    assert_eq!(ana.send("DELETE", &path, &[], None).status, 204);
    assert_eq!((ana.get(&path).status, ana.send("DELETE", &path, &[], None).status), (404, 404));
    assert_eq!(ana.post(&format!("{path}/stop"), &json!({})).status, 404);
    // Whoever waits for it is told that it is not there.
    let id = path.rsplit('/').next().expect("an id").to_owned();
    let told = Events::open(&server.url, &ana, &format!("sim:{id}")).next_called("sim.done");
    assert_eq!(told, json!({ "id": id, "state": "absent" }));
    server.stop();
    server = Server::start(folder.home());
    assert_eq!(server.sign_in().get(&path).status, 404);
}

/// Two million requests, which take a debug build some minutes.
fn long() -> Value {
    json!({ "b": "live", "traffic": { "made": {
        "rows": [{ "clients": 2_000, "rate": 100, "per": "1m", "for": "10m" }], "start": "2026-01-05T09:00:00Z",
    } } })
}

#[test]
fn a_user_with_many_tokens_leaves_the_queue_to_others() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let [first, second] = [(); 2].map(|()| ana.script(&json!({ "role": "viewer" })).0);
    let ben = ana.add("viewer", &server);
    start(&ana, &long());
    let id = start(&first, &long());
    for client in [&ana, &first, &second] {
        assert_eq!(client.post(SIMULATIONS, &long()).json()["code"], "already_running");
    }
    start(&ben, &long());
    server.gives_others_their_quota(&ana);
    // The user ends what keeps them from more; neither another user nor another token may, nor forget what it found.
    let (run, stop) = (format!("{SIMULATIONS}/{id}"), format!("{SIMULATIONS}/{id}/stop"));
    for client in [&ben, &second] {
        assert_eq!(client.post(&stop, &json!({})).status, 403);
        assert_eq!(client.send("DELETE", &run, &[], None).status, 403);
    }
    assert_eq!(ana.post(&stop, &json!({})).status, 200);
    assert_eq!(first.send("DELETE", &run, &[], None).status, 204, "its author forgets it");
    start(&second, &long());
}

#[test]
fn a_user_who_asks_for_many_runs_leaves_others_theirs() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let ben = ana.add("editor", &server);
    let (script, _) = ana.script(&json!({ "role": "viewer" }));
    let made = json!({ "made": { "rows": [{ "rate": 1, "for": "1s" }] } });
    let ask = json!({ "b": "live", "traffic": made });
    let of_ben = done(&ben, &ask);
    let first = done(&script, &ask);
    // With these, there are more than a hundred.
    for _ in 0..100 {
        done(&script, &ask);
    }
    assert_eq!(of_run(&script, &first, "").status, 404);
    let kept = of_run(&ben, &of_ben, "");
    assert_eq!((kept.status, &kept.json()["state"]), (200, &json!("done")));
    server.gives_others_their_quota(&ben);
}

#[test]
fn a_run_tells_how_far_it_is_and_can_be_stopped() {
    let (_folder, mut server) = fresh();
    let ana = server.administrator();
    let long = long();
    let id = start(&ana, &long);
    let mut events = Events::open(&server.url, &ana, &format!("sim:{id}"));
    let mut last = 0;
    for _ in 0..3 {
        let progress = events.next_called("sim.progress");
        let now = progress["done"].as_u64().expect("a number");
        assert!(progress["id"] == *id && (now > last || last == 0) && now < 2_000_000, "{progress}");
        assert_eq!(progress["of"], 2_000_000);
        assert!(now == 0 || progress["at"].as_str().is_some_and(|at| at.starts_with("2026-01-05T09:")), "{progress}");
        last = now;
    }
    // One run at a time for each user.
    let refused = ana.post(SIMULATIONS, &long);
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("already_running")));
    let path = format!("{SIMULATIONS}/{id}");
    let early = ana.get(&format!("{path}/timeline"));
    assert_eq!((early.status, &early.json()["code"]), (409, &json!("no_result")));
    let refused = ana.send("DELETE", &path, &[], None);
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("not_ended")));
    let stopped = ana.post(&format!("{path}/stop"), &json!({}));
    assert_eq!((stopped.status, &stopped.json()["state"]), (200, &json!("stopped")));
    let told = events.next_called("sim.done");
    assert_eq!((&told["id"], &told["state"]), (&json!(id), &json!("stopped")));
    assert_eq!(ana.get(&path).json()["state"], "stopped");
    // Its thread is free for the next one, whose end is told too.
    let next = start(&ana, &json!({ "b": tighter(), "traffic": made() }));
    let mut events = Events::open(&server.url, &ana, &format!("sim:{next}"));
    assert_eq!(events.next_called("sim.done")["state"], "done");
    // A stop of the server does not wait for a run.
    start(&ana, &long);
    server.stop();
}

#[test]
fn what_is_wrong_is_named() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let rows = |row: Value| json!({ "b": "live", "traffic": { "made": { "rows": [row] } } });
    let change = |change: Value| json!({ "b": { "changes": { "changes": [change] } }, "traffic": made() });
    let limit = json!({ "id": "l", "algorithm": "token_bucket", "limit": 1, "period": "1x" });
    let shared =
        json!({ "id": "l", "algorithm": "sliding_window_log", "limit": 1, "period": "1m", "sharing": "synced" });
    for (ask, pointer) in [
        (json!({ "b": "live", "traffic": made(), "c": 1 }), "/c"),
        (json!({ "b": "best", "traffic": made() }), "/b"),
        (json!({ "b": { "version": 9 }, "traffic": made() }), "/b/version"),
        (json!({ "a": { "draft": "x" }, "b": "live", "traffic": made() }), "/a/draft"),
        (json!({ "b": "live", "traffic": "recorded" }), "/traffic"),
        (json!({ "b": "live", "traffic": { "log": { "upload": "../x" } } }), "/traffic/log/upload"),
        (rows(json!({ "rate": 0, "for": "1m" })), "/traffic/made/rows/0/rate"),
        (rows(json!({ "rate": 1, "for": "1" })), "/traffic/made/rows/0/for"),
        (rows(json!({ "rate": 1, "for": "1m", "tier": "gold" })), "/traffic/made/rows/0/tier"),
        (rows(json!({ "rate": 1_000_000, "for": "1m" })), "/traffic/made/rows/0/rate"),
        (
            rows(json!({ "rate": 1, "for": "1m", "pattern": { "burst": { "size": 1 } } })),
            "/traffic/made/rows/0/pattern/burst/size",
        ),
        (json!({ "b": "live", "traffic": { "made": { "rows": [] } } }), "/traffic/made/rows"),
        (
            json!({ "b": "live", "traffic": { "made": { "rows": [{ "rate": 1, "for": "1s" }], "domain": "web" } } }),
            "/traffic/made/domain",
        ),
        (
            change(json!({ "op": "put", "kind": "tier", "id": "free", "value": { "id": "free", "limits": [limit] } })),
            "/b/changes/changes/0/value/limits/0/period",
        ),
        (
            change(json!({ "op": "put", "kind": "tier", "id": "free", "value": { "id": "free", "what": 1 } })),
            "/b/changes/changes/0/value/what",
        ),
        // Limits are not shared in a run, and wrong all the same if they cannot be.
        (
            change(json!({ "op": "put", "kind": "tier", "id": "free", "value": { "id": "free", "limits": [shared] } })),
            "/b/changes/changes/0/value/limits/0/sharing",
        ),
        (
            json!({ "b": { "document": { "domains": { "d": { "tiers": [{ "id": "t" }] } } } }, "traffic": made() }),
            "/b/document/domains/d/tiers/0",
        ),
    ] {
        let answer = ana.post(SIMULATIONS, &ask);
        // What cannot be read at all is a 400, as everywhere.
        let status = if ["/c", "/b", "/traffic/made/rows/0/pattern/burst/size"].contains(&pointer) { 400 } else { 422 };
        assert_eq!((answer.status, answer.pointers()), (status, vec![pointer.to_owned()]), "{ask}: {answer:?}");
        assert_eq!(answer.header("content-type"), "application/problem+json");
    }
    let lacking = ana.post(SIMULATIONS, &json!({ "traffic": made() }));
    assert!(lacking.status == 400 && lacking.text.contains("missing field `b`"), "{lacking:?}");
    // Somebody else's change of the same object.
    let stale = json!({ "changes": { "if_match": { "tier:free": "\"tier:free:9\"" }, "changes": tighter()["changes"]["changes"] } });
    assert_eq!(ana.post(SIMULATIONS, &json!({ "b": stale, "traffic": made() })).status, 412);
    let run = done(&ana, &json!({ "b": { "version": 1 }, "traffic": made() }));
    for rest in [
        "/timeline?sort=size",
        "/timeline?bucket=150ms",
        "/timeline?bucket=1",
        "/timeline?outcome=some",
        "/decisions?from=now",
    ] {
        assert_eq!(of_run(&ana, &run, rest).status, 422, "{rest}");
    }
    assert_eq!(of_run(&ana, &run, "/decisions?key=user:nobody").status, 404);
    assert_eq!(ana.get(&format!("{SIMULATIONS}/unknown")).status, 404);
    assert_eq!(server.stranger().get(SIMULATIONS).status, 401);
}

#[test]
fn every_way_to_name_a_policy_and_tiers_of_rows() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    // A tier that only the change has.
    let wide =
        json!({ "id": "wide", "limits": [{ "id": "l", "algorithm": "fixed_window", "limit": 3, "period": "1m" }] });
    let list = json!({ "base_version": 1, "message": "", "changes": [{ "op": "create", "kind": "tier", "id": "wide", "value": wide }] });
    let traffic = json!({ "made": { "start": "2026-01-05T09:00:00Z", "rows": [
        { "clients": 2, "tier": "wide", "rate": 10, "per": "1m", "for": "1m" },
        { "kind": "ip", "tier": "internal", "rate": 200, "for": "1s", "path": "/login", "method": "POST" },
        { "kind": "api_key", "value": "k1", "rate": 300, "for": "1s" },
    ] } });
    let mut draft = list.clone();
    draft["message"] = json!("shared");
    let draft = ana.post("/api/v1/drafts", &draft).json()["id"].clone();
    let document = ana.get("/api/v1/policy").json()["document"].clone();
    let denied = |run: &Value| [run["summary"]["a"]["denied"].clone(), run["summary"]["b"]["denied"].clone()];
    // 2 x 7 by the new tier, 195 by the rule, 199 by the default tier.
    for b in [json!({ "changes": list }), json!({ "draft": draft })] {
        assert_eq!(denied(&done(&ana, &json!({ "b": b, "traffic": traffic }))), [json!(394), json!(408)]);
    }
    for (a, b) in [(json!("live"), json!({ "document": document })), (json!({ "version": 1 }), json!("live"))] {
        let traffic = json!({ "made": { "start": "2026-01-05T09:00:00Z", "rows": traffic["made"]["rows"].as_array().expect("rows")[1..] } });
        assert_eq!(denied(&done(&ana, &json!({ "a": a, "b": b, "traffic": traffic }))), [json!(394), json!(394)]);
    }
}

/// Sends a log.
fn upload(client: &Client, query: &str, log: &[u8]) -> Answer {
    client.send("POST", &format!("/api/v1/uploads{query}"), &[("content-type", "text/plain")], Some(log.to_owned()))
}

fn line(second: u32, ip: &str, user: &str) -> String {
    format!(
        "{ip} - {user} [05/Jan/2026:09:{:02}:{:02} +0000] \"GET /a?token=x HTTP/1.1\" 200 5\n",
        second / 60,
        second % 60
    )
}

/// Files of the data folder below `name`.
fn files(folder: &Folder, name: &str) -> usize {
    folder.home().data.join(name).read_dir().expect("it is there").count()
}

#[test]
fn a_log_is_sent_looked_at_and_used() {
    let folder = Folder::with_file();
    let server = Server::start(folder.home());
    let ana = server.administrator();
    let mut log: String = (0..110).map(|second| line(second, "192.0.2.7", "ada")).collect();
    log += "not a line\n\n{\"time\": 1767603700, \"ip\": \"192.0.2.8\"}\n";
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(log.as_bytes()).expect("memory");
    let gzip = gzip.finish().expect("memory");
    for (query, sent) in [("", log.as_bytes()), ("?format=auto&save=true", &gzip)] {
        let answer = upload(&ana, query, sent);
        assert_eq!(answer.status, 201, "{answer:?}");
        let upload = answer.json();
        assert_eq!((&upload["lines"], &upload["requests"], &upload["refused"]), (&json!(112), &json!(111), &json!(1)));
        assert_eq!(
            (&upload["clients"], &upload["users"], &upload["bytes"]),
            (&json!(2), &json!(1), &json!(sent.len()))
        );
        assert_eq!((&upload["from"], &upload["to"]), (&json!("2026-01-05T09:00:00Z"), &json!("2026-01-05T09:01:49Z")));
        assert_eq!(upload["first"].as_array().expect("a list").len(), 20);
        assert_eq!(
            upload["first"][0],
            json!({ "line": 1, "at": "2026-01-05T09:00:00Z", "ip": "192.0.2.7", "user": "ada", "method": "GET", "endpoint": "/a" })
        );
        assert!(upload["first_refused"][0]["line"] == 111 && upload["first_refused"][0]["why"].is_string(), "{upload}");
        let ask = json!({ "b": tighter(), "traffic": { "log": { "upload": upload["id"] } } });
        let run = done(&ana, &ask);
        // Ten at once and one in six seconds, of a request in each second.
        assert_eq!(run["summary"]["b"]["denied"], json!(82), "{}", run["summary"]);
        let decision = &of_run(&ana, &run, "/decisions?outcome=changed&limit=1").json()["items"][0];
        assert_eq!(
            (&decision["endpoint"], &decision["identities"]),
            (&json!("/a"), &json!(["ip:192.0.2.7", "user:ada"]))
        );
        let listed = ana.get("/api/v1/uploads").json();
        let is_saved = !query.is_empty();
        assert_eq!(listed["items"].as_array().expect("a list").len(), usize::from(is_saved));
        assert_eq!(files(&folder, "uploads"), usize::from(is_saved));
        assert_eq!(ana.post(SIMULATIONS, &ask).status, if is_saved { 202 } else { 422 });
    }
    let id = ana.get("/api/v1/uploads").json()["items"][0]["id"].as_str().expect("an id").to_owned();
    let path = format!("/api/v1/uploads/{id}");
    assert_eq!([1, 2].map(|_| ana.send("DELETE", &path, &[], None).status), [204, 404]);
    assert_eq!(files(&folder, "uploads"), 0);
}

/// Looked up in each policy, or one for all of a kind, as far as a policy has it.
#[test]
fn the_tiers_of_a_log_are_looked_up_or_given() {
    let folder = Folder::with_file();
    let server = Server::start(folder.home());
    let ana = server.administrator();
    let bob = json!({ "op": "create", "kind": "client", "id": "user:bob", "value": { "kind": "user", "value": "bob", "tier": "free" } });
    let list = json!({ "base_version": 1, "message": "m", "changes": [bob] });
    assert_eq!(ana.post("/api/v1/policy/changes", &list).status, 201);
    let log: String = (0..110).map(|second| line(second, "192.0.2.7", "bob")).collect();
    let sent = upload(&ana, "?save=true", log.as_bytes()).json();
    let ask =
        |b: Value, tiers: Value| json!({ "b": b, "traffic": { "log": { "upload": sent["id"], "tiers": tiers } } });
    let denied = |b: Value, tiers: Value| {
        let run = done(&ana, &ask(b, tiers));
        [run["summary"]["a"]["denied"].clone(), run["summary"]["b"]["denied"].clone()]
    };
    assert_eq!(denied(tighter(), json!({})), [json!(0), json!(82)]);
    assert_eq!(denied(tighter(), json!({ "user": "pro" })), [json!(0), json!(82)], "of the address");
    assert_eq!(denied(tighter(), json!({ "ip": "internal", "user": "pro" })), [json!(0), json!(0)]);
    let tiny =
        json!({ "id": "tiny", "limits": [{ "id": "hour", "algorithm": "token_bucket", "limit": 1, "period": "1h" }] });
    let more = json!({ "changes": { "changes": [{ "op": "create", "kind": "tier", "id": "tiny", "value": tiny }] } });
    assert_eq!(denied(more, json!({ "user": "tiny" })), [json!(0), json!(109)], "the live one has no such tier");
    for (tiers, pointer) in
        [(json!({ "user": "gold" }), "/traffic/log/tiers/user"), (json!({ "No kind": "pro" }), "/traffic/log/tiers")]
    {
        assert_eq!(ana.post(SIMULATIONS, &ask(json!("live"), tiers)).pointers(), [pointer]);
    }
}

#[test]
fn a_log_in_csv_is_read_and_a_field_of_it_says_who_came() {
    let folder = Folder::with_file();
    let server = Server::start(folder.home());
    let ana = server.administrator();
    let mut log = "Time,Path,API Key\n".to_owned();
    log.extend((0..40).map(|second| format!("{},\"/a,{second}\",k{}\n", 1_767_603_600 + second, second % 2)));
    log += "never,/,k1\n1767603600,/\n";
    let answer = upload(&ana, "?format=csv&key=api%20key&kind=user", log.as_bytes());
    assert_eq!(answer.status, 201, "{answer:?}");
    let sent = answer.json();
    assert_eq!((&sent["requests"], &sent["clients"], &sent["users"]), (&json!(40), &json!(0), &json!(2)));
    assert_eq!(
        (&sent["key"], &sent["fields"]),
        (&json!({ "field": "api key", "kind": "user" }), &json!(["api key", "path", "time"]))
    );
    assert_eq!(
        sent["first"][1],
        json!({ "line": 3, "at": "2026-01-05T09:00:01Z", "ip": null, "user": "k1", "method": null, "endpoint": "/a,1" })
    );
    assert_eq!(
        sent["first_refused"],
        json!([
            { "line": 42, "why": "its time cannot be read; RFC 3339 and Unix seconds can; here stands `never`" },
            { "line": 43, "why": "its number of fields is not that of the header; it has 2 fields, the header 3" },
        ])
    );
    let run = done(&ana, &json!({ "b": tighter(), "traffic": { "log": { "upload": sent["id"] } } }));
    assert_eq!((&run["summary"]["requests"], &run["about"]["refused"]), (&json!(40), &json!(2)));
    let rows = of_run(&ana, &run, "/timeline?sort=key").json()["items"].clone();
    // Ten at once and one in six seconds of each key, of a request in two seconds.
    let told: Vec<_> = rows.as_array().expect("a list").iter().map(|row| (&row["key"], &row["denied_b"])).collect();
    assert_eq!(told, [(&json!("user:k0"), &json!(4)), (&json!("user:k1"), &json!(4))]);
    // Other names, and what the log does not say of its times and clients.
    let other = b"at;peer;path\n2026-01-05T10:00:00;host.example;/a\n2026-01-05T10:00:01;-;/a\n";
    let answer = upload(&ana, "?map=client%3Dpeer,time%3Dat&time_zone=Europe/Berlin&host_names=true", other);
    assert_eq!(answer.status, 201, "{answer:?}");
    let sent = answer.json();
    assert_eq!((&sent["requests"], &sent["without_client"], &sent["refused"]), (&json!(1), &json!(1), &json!(0)));
    assert_eq!((&sent["first"][0]["ip"], &sent["from"]), (&json!("host.example"), &json!("2026-01-05T09:00:00Z")));
    for (query, parameter) in [
        ("?map=x", "map"),
        ("?time_zone=Nowhere", "time_zone"),
        ("?format=x", "format"),
        ("?trusted_proxy=x", "trusted_proxy"),
        ("?ipv6_prefix=0", "ipv6_prefix"),
    ] {
        let refused = upload(&ana, query, other);
        assert_eq!((refused.status, refused.json().to_string().contains(parameter)), (422, true), "{refused:?}");
    }
    // Behind proxies, and IPv6 as this server counts it or as the log's server did.
    let addresses = ["2001:db8::1", "2001:db8::2", "2001:db8::3, 203.0.113.9"];
    let log_v6: String = addresses.iter().map(|address| line(0, address, "-").repeat(10)).collect();
    for (query, denied) in
        [("?trusted_proxy=203.0.113.0/24", 20), ("?trusted_proxy=203.0.113.0/24&ipv6_prefix=128", 0), ("", 10)]
    {
        let answer = upload(&ana, query, log_v6.as_bytes());
        assert_eq!(answer.status, 201, "{answer:?}");
        let traffic = json!({ "log": { "upload": answer.json()["id"] } });
        let run = done(&ana, &json!({ "b": tighter(), "traffic": traffic }));
        assert_eq!(run["summary"]["b"]["denied"], json!(denied), "{query}: {}", run["summary"]);
    }
    let unknown = upload(&ana, "?key=session", log.as_bytes());
    assert_eq!(unknown.status, 422);
    assert!(unknown.json()["detail"].as_str().expect("text").contains("line 1"), "{unknown:?}");
}

#[test]
fn logs_that_cannot_be_used_leave_nothing_behind() {
    let folder = Folder::with_file();
    let mut server = Server::start(folder.home());
    let ana = server.administrator();
    let unreadable = upload(&ana, "", b"one\ntwo\n");
    assert_eq!(unreadable.status, 422);
    assert!(unreadable.json()["detail"].as_str().expect("text").contains("line 1"), "{unreadable:?}");
    let mut broken = GzEncoder::new(Vec::new(), Compression::default());
    broken.write_all(line(1, "192.0.2.7", "-").repeat(1_000).as_bytes()).expect("memory");
    let broken = broken.finish().expect("memory");
    for (query, log, status) in [
        ("", b"".as_slice(), 422),
        ("?format=xml", b"x", 422),
        ("?format=csv", b"x", 422),
        ("?key=id&kind=No%20Kind", b"x", 422),
        ("?key=id", line(1, "192.0.2.7", "-").as_bytes(), 422),
        ("?save=maybe", b"x", 422),
        ("?format=combined", line(1, "192.0.2.7", "-").as_bytes(), 422),
        ("", &broken[..broken.len() / 2], 400),
        // The lines fit unpacked in 200 MB, and are too many.
        ("", &gzip_of_lines(2_000_001), 422),
        ("", &vec![b'x'; (200 << 20) + 1], 413),
    ] {
        let answer = upload(&ana, query, log);
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (status, "application/problem+json"),
            "{query} {answer:?}"
        );
    }
    assert_eq!(files(&folder, "uploads"), 0);
    // There is room for a few, and of each user for fewer.
    let (viewer, editor) = (ana.add("viewer", &server), ana.add("editor", &server));
    let one = line(1, "192.0.2.7", "-");
    let statuses = [&ana, &ana, &ana, &viewer, &viewer, &editor].map(|who| upload(who, "", one.as_bytes()).status);
    assert_eq!(statuses, [201, 201, 409, 201, 201, 409]);
    assert_eq!(files(&folder, "uploads"), 4);
    server.stop();
    server = Server::start(folder.home());
    assert_eq!(files(&folder, "uploads"), 0, "they do not outlive the server");
    assert_eq!(server.sign_in().get("/api/v1/uploads").json()["items"], json!([]));
}

fn gzip_of_lines(lines: usize) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let many = "x\n".repeat(1_000);
    for _ in 0..lines / 1_000 {
        gzip.write_all(many.as_bytes()).expect("memory");
    }
    gzip.write_all(&many.as_bytes()[..lines % 1_000 * 2]).expect("memory");
    gzip.finish().expect("memory")
}

/// A log of a real site, where it is at hand.
#[test]
#[expect(clippy::print_stderr, reason = "whoever runs it must know")]
fn a_real_log_gives_the_same_bytes_again() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = ["../../shared/data/access.log", "../shared/data/access.log"];
    let Some(log) = places.iter().find_map(|place| std::fs::read(root.join(place)).ok()) else {
        eprintln!("NOT TESTED: there is no real log at {places:?}, below {}", root.display());
        return;
    };
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let sent = upload(&ana, "?save=true", &log).json();
    assert_eq!((&sent["lines"], &sent["refused"]), (&json!(10_000), &json!(0)));
    let ask = json!({ "b": tighter(), "traffic": { "log": { "upload": sent["id"] } } });
    let [one, other] = [(); 2].map(|()| done(&ana, &ask));
    assert_eq!(one["summary"], other["summary"]);
    assert!(one["summary"]["newly_denied"]["clients"].as_u64() > Some(10), "{}", one["summary"]);
    for rest in ["/timeline?limit=500", "/decisions?limit=500&outcome=changed"] {
        assert_eq!(of_run(&ana, &one, rest).text, of_run(&ana, &other, rest).text);
    }
}

/// What a change would give for a week it gives for a week of the traffic.
#[test]
fn an_override_that_is_tried_begins_with_the_traffic() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let blocked = json!({ "kind": "user", "value": "made-1-1", "override": { "reason": "tried", "blocked": true } });
    let b = json!({ "changes": { "changes": [
        { "op": "create", "kind": "client", "id": "user:made-1-1", "value": blocked },
    ] } });
    let rows = json!([{ "clients": 1, "rate": 1, "per": "1h", "for": "10d" }]);
    let found = ["2016-02-01T00:00:00Z", "2026-01-05T09:00:00Z", "2046-02-01T00:00:00Z"].map(|start| {
        let ask = json!({ "b": b, "traffic": { "made": { "rows": rows, "start": start } } });
        let run = done(&ana, &ask);
        assert_eq!(run["summary"]["b"]["first_denial"]["at"], start);
        let again = done(&ana, &run["asked"]);
        assert_eq!(again["summary"], run["summary"]);
        run["summary"]["b"]["denied"].clone()
    });
    assert_eq!(found, [json!(168), json!(168), json!(168)], "an hour each, for seven days");
    for wrong in ["1969-12-31T23:59:59Z", "2600-01-01T00:00:00Z", "soon"] {
        let ask = json!({ "b": b, "traffic": { "made": { "rows": rows, "start": wrong } } });
        let refused = ana.post(SIMULATIONS, &ask);
        assert_eq!((refused.status, refused.pointers()), (422, vec!["/traffic/made/start".to_owned()]), "{wrong}");
    }
}

/// Requests of ten users from ten addresses, each user 30 times.
pub(crate) fn traffic(server: &Server) {
    for number in 0..300 {
        let (ip, user) = (format!("198.51.100.{}", number / 30), format!("secret-user-{}", number % 10));
        let who = [Identity::new("ip", &ip).expect("valid"), Identity::new("user", &user).expect("valid")];
        let path = format!("/users/{user}?token=hidden");
        let request = Request::new(&who).and_then(|request| request.endpoint(&path)).expect("valid");
        let _ = server.engine.check(&request);
    }
}

pub(crate) fn recording(keys: Keys, one_in: u32) -> (Folder, Server) {
    let folder = Folder::new();
    let server = Server::start_with(folder.home(), |settings| {
        (settings.keys, settings.record) = (keys, NonZeroU32::new(one_in));
    });
    (folder, server)
}

#[test]
fn recorded_requests_are_tried_and_shown_as_the_setting_says() {
    for (keys, user, ip) in [
        (Keys::Clear, "user:secret-user-1", "ip:198.51.100.0"),
        (Keys::Truncated, "user:secr…#3", "ip:198.51.100.0/24#1"),
        (Keys::Hashed, "", ""),
    ] {
        let (folder, server) = recording(keys, 1);
        let ana = server.administrator();
        traffic(&server);
        let meta = ana.get("/api/v1/meta").json();
        assert_eq!((&meta["keys"], &meta["recorder"]["requests"]), (&json!(keys.to_string()), &json!(300)), "{meta}");
        // One of the users has a limit of his own, which is named by him.
        let own = json!({ "id": "own", "algorithm": "token_bucket", "limit": 5, "period": "1h" });
        let client =
            json!({ "kind": "user", "value": "secret-user-0", "override": { "reason": "tried", "limits": [own] } });
        assert_eq!(ana.post("/api/v1/clients", &client).status, 201);
        let run = done(&ana, &json!({ "a": { "version": 1 }, "b": tighter(), "traffic": "recorded" }));
        assert_eq!(run["keys"], json!(keys.to_string()));
        let summary = &run["summary"];
        // Ten of thirty each, whatever is shown: no two values become one.
        assert_eq!((&summary["requests"], &summary["newly_denied"]["clients"]), (&json!(300), &json!(20)), "{summary}");
        assert!(
            summary["limits"].as_array().expect("a list").iter().all(|limit| limit["b"]["sampled"] == true),
            "{summary}"
        );
        let rows = of_run(&ana, &run, "/timeline?sort=key").json()["items"].clone();
        let keys_shown: Vec<&str> =
            rows.as_array().expect("a list").iter().map(|row| row["key"].as_str().expect("text")).collect();
        assert_eq!(keys_shown.len(), 20);
        assert!(keys_shown.is_sorted() && keys_shown.windows(2).all(|pair| pair[0] != pair[1]), "{keys_shown:?}");
        // What is told, but for the question, and what is on the disk.
        let mut told = run.clone();
        told["asked"] = Value::Null;
        let decisions = of_run(&ana, &run, "/decisions?limit=500").text;
        let everything = [told.to_string(), rows.to_string(), decisions, written(&folder)].concat();
        assert!(!everything.contains("hidden"), "the query of a path is told");
        assert_eq!(everything.contains("/users/{user}"), keys != Keys::Clear);
        let own = summary["limits"].as_array().expect("a list").last().expect("some")["limit_id"].clone();
        let own = own.as_str().expect("text").strip_prefix("default/client:").and_then(|own| own.strip_suffix("/own"));
        assert!(keys_shown.contains(&own.expect("it is the client's")), "{own:?} {keys_shown:?}");
        // Whom the policy names has a number alone.
        let named = if keys == Keys::Clear { "user:secret-user-0" } else { "user:#2" };
        assert_eq!(own, Some(named));
        if keys == Keys::Hashed {
            let is_hash = |key: &str| key.rsplit(':').next().expect("a part").len() == 16;
            assert!(keys_shown.iter().all(|key| *key == named || is_hash(key)), "{keys_shown:?}");
        } else {
            assert!(keys_shown.contains(&user) && keys_shown.contains(&ip), "{keys_shown:?}");
        }
        assert_eq!(everything.contains("secret-user-0"), keys == Keys::Clear);
        assert_eq!(everything.contains("198.51.100.0\""), keys == Keys::Clear);
        // Whoever is shown can be asked for.
        let key = keys_shown[0].replace('%', "%25").replace('#', "%23").replace('…', "%E2%80%A6").replace('/', "%2F");
        let own = of_run(&ana, &run, &format!("/decisions?key={key}")).json();
        assert_eq!(own["items"].as_array().expect("a list").len(), 30, "{key}");
    }
}

/// What is on the disk of runs, unpacked, but for the questions: who asks names whom he likes.
fn written(folder: &Folder) -> String {
    let mut text = String::new();
    // Runs of a server on PostgreSQL are in a temporary folder; what is written is the same.
    if folder.home().is_postgres() {
        return text;
    }
    for entry in folder.home().data.join("simulations").read_dir().expect("it is there") {
        let path = entry.expect("a file").path();
        let file = std::fs::File::open(&path).expect("a file");
        if path.extension().is_some_and(|it| it == "gz") {
            GzDecoder::new(file).read_to_string(&mut text).expect("text");
        } else {
            let mut run: Value = serde_json::from_reader(file).expect("JSON");
            run["asked"] = Value::Null;
            text += &run.to_string();
        }
    }
    text
}

/// A stricter setting forgets what was shown more clearly, at the start; and what is left half written is removed.
#[test]
fn runs_outlive_the_server_as_far_as_they_may() {
    let folder = Folder::with_file();
    let keep = |keys| {
        move |settings: &mut tidegate_admin::Settings| {
            (settings.keys, settings.record) = (keys, NonZeroU32::new(1));
        }
    };
    let mut server = Server::start_with(folder.home(), keep(Keys::Clear));
    let mut ana = server.administrator();
    let mut ids = Vec::new();
    for keys in [Keys::Clear, Keys::Truncated, Keys::Hashed] {
        if keys != Keys::Clear {
            server.stop();
            server = Server::start_with(folder.home(), keep(keys));
            ana = server.sign_in();
        }
        traffic(&server);
        for traffic in [json!("recorded"), made()] {
            ids.push(done(&ana, &json!({ "b": tighter(), "traffic": traffic }))["id"].clone());
        }
    }
    let listed = |ana: &Client| {
        let page = ana.get(SIMULATIONS).json();
        page["items"].as_array().expect("a list").iter().map(|run| run["id"].clone()).rev().collect::<Vec<_>>()
    };
    // Those of made-up traffic stay, and of recorded requests what was hashed.
    let stay = [&ids[1], &ids[3], &ids[4], &ids[5]].map(Value::clone);
    assert_eq!(listed(&ana)[..3], [ids[1].clone(), ids[3].clone(), ids[4].clone()]);
    server.stop();
    let simulations = folder.home().data.join("simulations");
    for name in ["AAAAAAAAAAAAAAAA.json.gz", "BBBBBBBBBBBBBBBB.new", "notes.txt"] {
        std::fs::write(simulations.join(name), "x").expect("it is written");
    }
    server = Server::start_with(folder.home(), keep(Keys::Hashed));
    ana = server.sign_in();
    assert_eq!(listed(&ana), stay);
    assert_eq!(files(&folder, "simulations"), 2 * stay.len() + 1, "and what is none of ours");
    std::fs::remove_file(simulations.join("notes.txt")).expect("it is there");
    assert!(!written(&folder).contains("secret-user"));
}

/// A policy may have a hundred thousand clients, and be tried whole.
#[test]
fn a_large_policy_can_be_tried() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let mut document = ana.get("/api/v1/policy").json()["document"].clone();
    let client =
        |number: u32| json!({ "kind": "user", "value": format!("a-client-with-a-name-{number}"), "tier": "pro" });
    document["domains"]["default"]["clients"] = (0..20_000).map(client).collect();
    assert!(document.to_string().len() > 1 << 20);
    let run = done(&ana, &json!({ "b": { "document": document }, "traffic": made() }));
    // A question of this size is not kept.
    assert_eq!((&run["asked"], &run["summary"]["newly_denied"]["requests"]), (&Value::Null, &json!(0)));
}

/// A secret of sevens.
pub(crate) const SEVENS: &str = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc";

#[test]
fn a_sample_says_what_it_cannot_tell() {
    // Who is in the sample hangs on the database's secret.
    let folder = Folder::with_file();
    let mut server = Server::start(folder.home());
    drop(server.administrator());
    server.stop();
    folder.home().execute(&format!("UPDATE secrets SET value = '{SEVENS}'"));
    let server = Server::start_with(folder.home(), |settings| {
        (settings.keys, settings.record) = (Keys::Hashed, NonZeroU32::new(3));
    });
    let ana = server.sign_in();
    let everyone = json!({ "id": "all", "endpoint": "*", "per": "everyone",
        "limits": [{ "id": "l", "algorithm": "token_bucket", "limit": 5, "period": "1h" }] });
    let tenants = json!({ "id": "pairs", "endpoint": "*", "per": ["ip", "user"],
        "limits": [{ "id": "l", "algorithm": "token_bucket", "limit": 2, "period": "1h" }] });
    let create = |rule: &Value| json!({ "op": "create", "kind": "rule", "id": rule["id"], "value": rule });
    traffic(&server);
    let meta = ana.get("/api/v1/meta").json();
    let recorded = meta["recorder"]["requests"].as_u64().expect("a number");
    assert_eq!((recorded, &meta["recorder"]["one_in"], &meta["recorder"]["complete"]), (174, &json!(3), &json!(true)));
    let b = json!({ "changes": { "changes": [create(&everyone), create(&tenants)] } });
    let run = done(&ana, &json!({ "b": b, "traffic": "recorded" }));
    assert_eq!((&run["about"]["recorded"]["one_in"], &run["about"]["recorded"]["lost"]), (&json!(3), &json!(0)));
    let limit = |id: &str| {
        let limits = run["summary"]["limits"].as_array().expect("a list");
        limits.iter().find(|limit| limit["limit_id"] == id).expect("it is there").clone()
    };
    let all = limit("default/rule:all/l");
    assert!(
        all["b"]["sampled"] == false && all["b"]["reason"].as_str().is_some_and(|why| why.contains("everyone")),
        "{all}"
    );
    let pairs = limit("default/rule:pairs/l");
    assert!(
        pairs["b"]["sampled"] == true && pairs["a"] == Value::Null && pairs["b"]["checked"].as_u64() > Some(0),
        "{pairs}"
    );
    // Only those are listed whose requests are all there.
    let rows = of_run(&ana, &run, "/timeline").json()["items"].clone();
    assert!(rows.as_array().expect("a list").iter().all(|row| row["requests"] == 30), "{rows}");
}

#[test]
fn the_editor_is_shown_what_its_limits_would_do() {
    const PREVIEW: &str = "/api/v1/simulations/preview";
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let tier = |limit: u64| json!({ "id": "t", "limits": [{ "id": "m", "algorithm": "token_bucket", "limit": limit, "period": "1m" }] });
    let ask = |kind: &str, published: Value, draft: Value| {
        json!({ "sequence": 42, "kind": kind, "published": published, "draft": draft,
            "traffic": { "pattern": { "burst": { "requests": 50 } }, "rate": 1, "for": "1m" } })
    };
    let shown = ana.post(PREVIEW, &ask("tier", tier(60), tier(30)));
    assert_eq!(shown.status, 200, "{shown:?}");
    let shown = shown.json();
    assert_eq!((&shown["sequence"], &shown["requests"], &shown["cut_at_ms"]), (&json!(42), &json!(109), &Value::Null));
    let figures =
        |side: &str| ["allowed", "denied", "first_denied_ms", "longest_wait_ms"].map(|name| shown[side][name].clone());
    // 60 at once and one a second; 30 at once, and one in two seconds.
    assert_eq!(figures("published"), [json!(109), json!(0), Value::Null, json!(0)]);
    assert_eq!(figures("draft"), [json!(59), json!(50), json!(0), json!(2_000)]);
    assert_eq!((&shown["bucket_ms"], &shown["draft"]["buckets"][0]), (&json!(500), &json!([30, 20])));
    assert_eq!(shown["draft"]["buckets"].as_array().expect("a list").len(), 120);
    assert_eq!(
        shown["words"],
        json!({ "sentence": null, "limits": [{ "id": "m",
            "says": "A client that was idle may send 30 at once, then 30 a minute. From empty, a full burst is back after 1 min.",
            "sharing": "Each node counts alone: on n nodes at most n times the limit." }] })
    );
    // A rule, as if every request were one that it counts; it costs three.
    let rule = json!({ "id": "r", "endpoint": "/x/{id}", "method": "POST", "per": ["ip", "tenant"], "tiers": ["pro", "gold"],
        "where": { "plan": "trial*" }, "cost": 3, "limits": tier(60)["limits"] });
    let shown = ana.post(PREVIEW, &ask("rule", Value::Null, rule.clone())).json();
    assert_eq!((&shown["published"], &shown["draft"]["allowed"]), (&Value::Null, &json!(39)), "{shown}");
    let words = &shown["words"];
    assert_eq!(
        words["sentence"],
        "Each ip + tenant in tier pro or gold may POST /x/{id} 60 times a minute, where plan is trial*. A request counts 3 times."
    );
    assert!(
        words["limits"][0]["says"].as_str().expect("text").starts_with("Each ip + tenant that was idle"),
        "{words}"
    );
    let broken = |object: &Value, field: &str, value: Value| {
        let mut object = object.clone();
        object[field] = value;
        object
    };
    let limit = |field: &str, value: Value| json!([broken(&tier(1)["limits"][0], field, value)]);
    for (body, pointer) in [
        (ask("tier", Value::Null, broken(&tier(1), "limits", limit("burst", json!(0)))), "/draft/limits/0/burst"),
        (ask("tier", broken(&tier(1), "limits", limit("period", json!("x"))), tier(1)), "/published/limits/0/period"),
        (ask("tier", Value::Null, broken(&tier(1), "limits", json!([]))), "/draft"),
        (
            ask("tier", Value::Null, broken(&tier(1), "limits", limit("on_failure", json!("closed")))),
            "/draft/limits/0/on_failure",
        ),
        (ask("tier", Value::Null, broken(&tier(1), "id", json!("T"))), "/draft/id"),
        (ask("tier", Value::Null, broken(&tier(1), "color", json!("red"))), "/draft/color"),
        (ask("rule", Value::Null, broken(&rule, "endpoint", json!("x"))), "/draft/endpoint"),
        (ask("rule", Value::Null, broken(&rule, "per", json!("IP"))), "/draft/per"),
        (broken(&ask("tier", Value::Null, tier(1)), "traffic", json!({ "rate": 0, "for": "1m" })), "/traffic/rate"),
        (broken(&ask("tier", Value::Null, tier(1)), "traffic", json!({ "rate": 1, "for": "soon" })), "/traffic/for"),
        (broken(&ask("tier", Value::Null, tier(1)), "domain", json!("web")), "/domain"),
    ] {
        let answer = ana.post(PREVIEW, &body);
        assert_eq!(answer.status, 422, "{body}: {answer:?}");
        assert!(answer.pointers().iter().any(|it| it.starts_with(pointer)), "{pointer}: {:?}", answer.pointers());
    }
    // The same again in the same bytes.
    let again = || ana.post(PREVIEW, &ask("tier", tier(60), tier(30))).text;
    assert_eq!(again(), again());
    // More than fits is cut, and says where.
    let long = broken(&ask("tier", Value::Null, tier(1)), "traffic", json!({ "rate": 1_000_000, "for": "366d" }));
    let shown = ana.post(PREVIEW, &long).json();
    assert_eq!((&shown["requests"], &shown["cut_at_ms"]), (&json!(20_000), &json!(20)));
}

/// The requests that a client made a while ago, as they were recorded.
#[test]
fn the_editor_is_shown_what_its_limits_would_have_done_to_a_client() {
    const PREVIEW: &str = "/api/v1/simulations/preview";
    let tier =
        json!({ "id": "t", "limits": [{ "id": "m", "algorithm": "token_bucket", "limit": 12, "period": "1h" }] });
    let ask = |client: &str| json!({ "kind": "tier", "draft": tier, "traffic": { "recorded": { "client": client } } });
    // However identities are shown: whoever asks named him.
    for keys in [Keys::Clear, Keys::Truncated, Keys::Hashed] {
        let (_folder, server) = recording(keys, 1);
        let ana = server.administrator();
        let nobody = ana.post(PREVIEW, &ask("user:secret-user-1"));
        assert_eq!((nobody.status, nobody.pointers()), (422, vec!["/traffic/recorded/client".to_owned()]));
        assert!(nobody.text.contains("sent no request to the domain `default` in the last 15 minutes"), "{nobody:?}");
        traffic(&server);
        let shown = ana.post(PREVIEW, &ask("user:secret-user-1"));
        assert_eq!(shown.status, 200, "{shown:?}");
        let shown = shown.json();
        assert_eq!(
            (&shown["requests"], &shown["draft"]["allowed"], &shown["draft"]["denied"], &shown["published"]),
            (&json!(30), &json!(12), &json!(18), &Value::Null)
        );
        assert_eq!(shown["recorded"]["complete"], true);
        let ends = ["from", "to"].map(|end| shown["recorded"][end].as_str().expect("a time").to_owned());
        assert!(ends[0] < ends[1], "{ends:?}");
        let buckets = shown["draft"]["buckets"].as_array().expect("a list");
        let sum: u64 = buckets.iter().flat_map(|it| it.as_array().expect("two")).filter_map(Value::as_u64).sum();
        assert_eq!(sum, 30);
        let rule = json!({ "id": "r", "endpoint": "/x", "per": "ip", "cost": 4, "limits": tier["limits"] });
        let by_rule =
            json!({ "kind": "rule", "draft": rule, "traffic": { "recorded": { "client": "ip:198.51.100.3" } } });
        let by_rule = ana.post(PREVIEW, &by_rule).json();
        assert_eq!((&by_rule["draft"]["allowed"], &by_rule["draft"]["denied"]), (&json!(3), &json!(27)));
        for (client, pointer) in [("ada", "/traffic/recorded/client"), (":x", "/traffic/recorded/client")] {
            assert_eq!(ana.post(PREVIEW, &ask(client)).pointers(), [pointer]);
        }
        let who = [Identity::new("ip", "2001:db8::").expect("valid")];
        let _ = server.engine.check(&Request::new(&who).expect("valid"));
        assert_eq!(ana.post(PREVIEW, &ask("ip:2001:DB8:0::66")).json()["requests"], 1);
        assert_eq!(ana.post(PREVIEW, &ask("ip:2001:db8::g")).pointers(), ["/traffic/recorded/client"]);
        let odd = json!({ "kind": "tier", "draft": tier, "traffic": { "recorded": { "who": "x" } } });
        assert_eq!(ana.post(PREVIEW, &odd).pointers(), ["/traffic/recorded/who"]);
    }
    // Who is not in the sample is not told from the few that came along with somebody who is.
    let (_folder, server) = recording(Keys::Clear, 1_000_000);
    let refused = server.administrator().post(PREVIEW, &ask("user:secret-user-1"));
    assert!(refused.text.contains("is not recorded: one user in 1000000 is"), "{refused:?}");
    let (_folder, server) = fresh();
    let refused = server.administrator().post(PREVIEW, &ask("user:secret-user-1"));
    assert!(refused.text.contains("nothing is recorded; start the server with --record"), "{refused:?}");
}
