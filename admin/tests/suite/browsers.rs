//! Browsers that are known: a crowd that tries a name keeps its user out of no browser in which they signed in before.

use serde_json::json;
use tidegate_testkit::{wait_for, wait_until};

use crate::{
    home::Folder,
    support::{Answer, Client, PASSWORD, Server},
};

const OTHER: &str = "another few words";

/// A server behind a proxy that is trusted: tries come from the addresses that the test names.
struct Site {
    _folder: Folder,
    server: Server,
}

impl Site {
    fn new() -> Self {
        let folder = Folder::new();
        let server = Server::start_with(folder.home(), |settings| {
            settings.access.trusted_proxies = vec!["127.0.0.0/8".parse().expect("a network")];
        });
        Self { _folder: folder, server }
    }

    /// Tries to sign in from this address, with this cookie besides.
    fn attempt(&self, address: &str, cookie: &str, name: &str, password: &str) -> Answer {
        let body = json!({ "name": name, "password": password }).to_string().into_bytes();
        let headers = [("x-forwarded-for", address), ("cookie", cookie)];
        self.server.stranger().send("POST", "/api/v1/session", &headers, Some(body))
    }

    /// Has a crowd try a name, each from an address of its own, until one of them is refused; how many were not.
    fn crowd(&self, name: &str) -> usize {
        let of = |n: u32| self.attempt(&format!("203.0.113.{n}"), "", name, "wrong").status;
        (0..250).map(of).take_while(|status| *status == 401).count()
    }

    /// Is a browser with this cookie known for the name, which a crowd has tried? A stranger may find the one try that came
    /// back meanwhile, and none after it.
    fn knows(&self, cookie: &str, name: &str) -> bool {
        let answer = self.attempt("198.51.100.9", cookie, name, "wrong");
        assert!(matches!(answer.status, 401 | 429), "{answer:?}");
        answer.json()["tries_left"].as_u64().is_some_and(|left| left > 4)
    }
}

/// The cookies by which a browser is known that an answer sets, with their attributes.
fn cookies(answer: &Answer) -> Vec<String> {
    let all = answer.headers.get_all("set-cookie").iter().map(|cookie| cookie.to_str().expect("text").to_owned());
    all.filter(|cookie| cookie.contains("_browser_")).collect()
}

/// Such a cookie as the browser sends it.
pub(crate) fn browser(answer: &Answer) -> String {
    let cookies = cookies(answer);
    assert_eq!(cookies.len(), 1, "{answer:?}");
    cookies[0].split(';').next().expect("a part").to_owned()
}

fn lines(client: &Client, query: &str) -> Vec<(String, String)> {
    let list = client.get(&format!("/api/v1/audit?{query}")).json();
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    list["items"].as_array().expect("items").iter().map(|line| (text(&line["actor"]), text(&line["object"]))).collect()
}

#[test]
fn a_crowd_keeps_no_user_out_of_a_browser_that_is_known() {
    let site = Site::new();
    let ana = site.server.administrator();
    let signed_in = site.attempt("198.51.100.1", "", "ana", PASSWORD);
    assert_eq!(signed_in.status, 200, "{signed_in:?}");
    for part in ["; HttpOnly", "; SameSite=Strict", "; Path=/", "; Max-Age="] {
        assert!(cookies(&signed_in)[0].contains(part), "{signed_in:?}");
    }
    let known = browser(&signed_in);
    // Thirty tries of a name, one of which is made; one comes back every 20 seconds. The same without a user.
    assert!((28..40).contains(&site.crowd("ana")));
    assert!((30..40).contains(&site.crowd("eve")));
    for (name, password) in [("ana", PASSWORD), ("eve", "wrong")] {
        let attempt = || Some(site.attempt("198.51.100.2", "", name, password));
        let stranger = wait_for("a refusal", || attempt().filter(|answer| answer.status == 429));
        assert_eq!(stranger.json()["code"], "too_many", "{name}");
        assert!((1..=20).contains(&stranger.header("retry-after").parse::<u64>().expect("seconds")), "{stranger:?}");
    }
    assert_eq!(site.attempt("198.51.100.2", "", "ben", "wrong").status, 401, "another name");
    // From whatever address.
    let wrong = site.attempt("203.0.113.1", &known, "ana", "wrong");
    assert_eq!((wrong.status, &wrong.json()["tries_left"]), (401, &json!(9)), "{wrong:?}");
    assert!(cookies(&wrong).is_empty());
    let right = site.attempt("203.0.113.1", &known, "ana", PASSWORD);
    assert_eq!(right.status, 200, "{right:?}");
    let renewed = browser(&right);
    assert_ne!(renewed, known);
    assert!(site.knows(&renewed, "ana"));
    // For nobody else, and not as it was altered.
    let (name, value) = known.split_once('=').expect("a value");
    assert!(!site.knows(&known, "eve"));
    assert!(!site.knows(&format!("{name}={value}x"), "ana") && !site.knows(&format!("{name}="), "ana"));
    // A known browser has few tries too.
    let tried = (0..20).map(|_| site.attempt("203.0.113.1", &known, "ana", "wrong").status);
    assert!(tried.collect::<Vec<_>>().contains(&429));

    // The first refusal of each name is told.
    let told = || {
        let mut told = lines(&ana, "action=session.limited");
        told.sort_unstable();
        told
    };
    wait_until("both are told", || told().len() == 2);
    let of = |object: &str| ("tidegate".to_owned(), object.to_owned());
    assert_eq!(told(), [of("typed:eve"), of("user:ana")]);
    let metrics = ana.get("/metrics").text;
    let value = |name: &str| -> u32 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} in {metrics}")).parse().expect("a number")
    };
    assert!(value("tidegate_admin_sign_ins_limited_by_name_total") >= 4);
    assert!(value("tidegate_admin_sign_ins_total{result=\"done\"}") >= 2);
    assert!(value("tidegate_admin_sign_ins_total{result=\"wrong\"}") >= 58);
    let alerts = ana.get("/api/v1/alerts").json();
    assert!(alerts["items"].as_array().expect("items").iter().any(|alert| alert["code"] == "sign_ins_limited"));
}

#[test]
fn a_new_password_or_signing_out_everywhere_ends_browsers_that_are_known() {
    let site = Site::new();
    let ana = site.server.administrator();
    let added = ana.post("/api/v1/users", &json!({ "name": "ben", "role": "viewer", "password": PASSWORD }));
    assert_eq!(added.status, 201, "{added:?}");
    let (one, two) =
        (site.attempt("198.51.100.1", "", "ben", PASSWORD), site.attempt("198.51.100.2", "", "ben", PASSWORD));
    let (here, there) = (browser(&one), browser(&two));
    let mut ben = site.server.stranger();
    ben.keep(&one);
    site.crowd("ben");
    assert!(site.knows(&here, "ben") && site.knows(&there, "ben"));
    assert_eq!(ben.send("DELETE", "/api/v1/me/sessions/none", &[], None).status, 404, "one session is no sign-out");
    assert!(site.knows(&there, "ben"));
    // The browser in which it is done stays known.
    let signed_out = ben.send("DELETE", "/api/v1/me/sessions", &[], None);
    assert_eq!(signed_out.status, 204);
    assert!(!site.knows(&here, "ben") && !site.knows(&there, "ben"));
    let here = browser(&signed_out);
    assert!(site.knows(&here, "ben"));
    let body = json!({ "present": PASSWORD, "password": OTHER }).to_string().into_bytes();
    let changed = ben.send("PUT", "/api/v1/me/password", &[], Some(body));
    assert_eq!(changed.status, 204, "{changed:?}");
    assert!(!site.knows(&here, "ben"));
    let here = browser(&changed);
    assert!(site.knows(&here, "ben"));
    assert_eq!(ana.send("DELETE", "/api/v1/users/ben/sessions", &[], None).status, 204);
    assert!(!site.knows(&here, "ben"));
}

/// A browser keeps few cookies of this kind, since all are sent with each request.
#[test]
fn a_browser_is_known_for_four_users_at_most() {
    let site = Site::new();
    let ana = site.server.administrator();
    let mut kept: Vec<String> = Vec::new();
    for number in 0..6 {
        let name = format!("ben-{number}");
        let added = ana.post("/api/v1/users", &json!({ "name": name, "role": "viewer", "password": PASSWORD }));
        assert_eq!(added.status, 201, "{added:?}");
        let signed_in = site.attempt("198.51.100.1", &kept.join("; "), &name, PASSWORD);
        for cookie in cookies(&signed_in) {
            let pair = cookie.split(';').next().expect("a part").to_owned();
            let (name, value) = pair.split_once('=').expect("a value");
            kept.retain(|known| !known.starts_with(&format!("{name}=")));
            if !value.is_empty() {
                kept.push(pair);
            }
        }
    }
    assert_eq!(kept.len(), 4, "{kept:?}");
    for (name, is_known) in [("ben-1", false), ("ben-2", true), ("ben-5", true)] {
        site.crowd(name);
        assert_eq!(site.knows(&kept.join("; "), name), is_known, "{name}");
    }
}
