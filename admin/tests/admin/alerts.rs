//! What needs a look: told when it comes, and when it goes.

use serde_json::{Value, json};
use tidegate::{Identity, Request};

use crate::{
    figures::wait_for,
    home::Folder,
    stream::Events,
    support::{Server, Time},
};

const DAY: i64 = 24 * 3_600;

/// The alerts of this code: their objects.
fn of_code<'a>(alerts: &'a Value, code: &str) -> Vec<&'a Value> {
    alerts["items"].as_array().expect("a list").iter().filter(|alert| alert["code"] == code).collect()
}

#[test]
fn what_needs_a_look_comes_and_goes() {
    let folder = Folder::new();
    // Objects of the policy change at the time that is now.
    let now = jiff::Timestamp::now();
    let time = Time::at(&now.to_string());
    let server = Server::start_at(folder.home(), "a", &time);
    let ana = server.administrator();
    let alerts = || ana.get("/api/v1/alerts").json();
    let at_first = alerts();
    assert_eq!((&at_first["left_out"], &at_first["next"]), (&json!(0), &Value::Null));
    // The example has tiers that nobody is in.
    let unused = of_code(&at_first, "unused_tier");
    assert!(
        unused
            .iter()
            .any(|alert| alert["object"] == json!({ "kind": "tier", "domain": "default", "id": "pro", "limit": null }))
    );
    assert!(unused[0]["since"].as_str().expect("an instant") > "2020" && unused[0]["message"].is_string());

    let mut events = Events::open(&server.url, &ana, "alerts");
    assert_eq!(events.next_called("alert")["state"], "opened", "those that are open come first");
    let until = (now + jiff::SignedDuration::from_hours(3 * 24)).to_string();
    let client = json!({ "kind": "user", "value": "eve", "tier": "pro", "override": { "blocked": true, "reason": "abuse", "until": until } });
    assert_eq!(ana.post("/api/v1/clients", &client).status, 201);
    let closed = loop {
        let alert = events.next_called("alert");
        if alert["state"] == "closed" {
            break alert;
        }
    };
    assert_eq!(
        (&closed["code"], &closed["object"]["id"]),
        (&json!("unused_tier"), &json!("pro")),
        "somebody is in it now"
    );
    assert!(of_code(&alerts(), "override_ends").is_empty());
    time.go_on(2 * DAY + 60);
    let ending = alerts();
    let ending = of_code(&ending, "override_ends");
    assert_eq!((ending.len(), &ending[0]["object"]["id"]), (1, &json!("user:eve")));

    // A shadow of two weeks, and a rule that nothing meets for a month.
    let rule = |id: &str, mode: &str| {
        json!({
            "id": id, "endpoint": format!("/{id}"), "per": "user",
            "limits": [{ "id": "minute", "algorithm": "token_bucket", "limit": 5, "period": "1m", "mode": mode }],
        })
    };
    for (id, mode) in [("met", "enforce"), ("unmet", "enforce"), ("try", "shadow")] {
        assert_eq!(ana.post("/api/v1/rules", &rule(id, mode)).status, 201);
    }
    let ask = |path: &str, domain: &str| {
        let who = [Identity::new("user", "ada").expect("valid")];
        let request = Request::new(&who).expect("valid").endpoint(path).expect("short").domain(domain);
        let _ = server.engine.check(&request);
    };
    ask("/met", "nowhere");
    wait_for(&ana, "/api/v1/alerts", |alerts| !of_code(alerts, "unknown_domain").is_empty());
    time.go_on(11 * DAY);
    assert!(of_code(&alerts(), "long_shadow").is_empty() && of_code(&alerts(), "rule_unmatched").is_empty());
    assert!(of_code(&alerts(), "unknown_domain").is_empty(), "it was long ago");
    ask("/met", "default");
    wait_for(&ana, "/api/v1/metrics", |figures| figures["newest"]["totals"]["allowed"] == 2);
    time.go_on(120);
    let minutes = format!("/api/v1/metrics?step=1m&by=rule&from={}&to={}", time.now_ms() - 300_000, time.now_ms());
    wait_for(&ana, &minutes, |figures| figures["series"][0]["id"] == "default/rule:met");
    time.go_on(2 * DAY);
    let shadows = alerts();
    let shadows = of_code(&shadows, "long_shadow");
    assert_eq!(
        (shadows.len(), &shadows[0]["object"]["id"], &shadows[0]["object"]["limit"]),
        (1, &json!("try"), &json!("minute"))
    );
    time.go_on(20 * DAY);
    // Figures are there once there is an hour of them.
    let unmatched = wait_for(&ana, "/api/v1/alerts", |alerts| !of_code(alerts, "rule_unmatched").is_empty());
    let ids: Vec<_> = of_code(&unmatched, "rule_unmatched").iter().map(|alert| alert["object"]["id"].clone()).collect();
    assert!(ids.contains(&json!("unmet")) && ids.contains(&json!("try")), "{ids:?}");
    assert!(!ids.contains(&json!("met")), "it was met three weeks ago");

    // Whoever comes now is told of all that are open.
    let open = alerts()["items"].as_array().expect("a list").len();
    let mut events = Events::open(&server.url, &ana, "alerts");
    let told: Vec<Value> = (0..open).map(|_| events.next_called("alert")).collect();
    assert!(told.iter().all(|alert| alert["state"] == "opened"), "{told:?}");
    assert!(told.iter().any(|alert| alert["code"] == "rule_unmatched"));
}
