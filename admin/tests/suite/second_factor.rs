//! Second factors: codes of an authenticator app, and recovery codes for when it is lost.

use std::cell::Cell;

use jiff::Timestamp;
use ring::hmac;
use serde_json::json;
use tidegate_admin::People;
use tidegate_testkit::wait_until;

use crate::{
    browsers::browser,
    home::{Folder, block_on},
    support::{Answer, Client, PASSWORD, Server},
};

/// An authenticator app, which has a secret.
struct App(Vec<u8>);

impl App {
    /// Takes the secret of an answer over.
    fn of(answer: &Answer) -> Self {
        let json = answer.json();
        let text = |name: &str| json[name].as_str().expect("text").to_owned();
        let (secret, uri) = (text("secret"), text("uri"));
        assert!(uri.starts_with("otpauth://totp/Tidegate%20test:"), "{uri}");
        assert!(uri.contains(&format!("?secret={secret}&issuer=Tidegate%20test&")), "{uri}");
        let bits = secret.chars().flat_map(|letter| {
            let value = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".find(letter).expect("base32");
            (0..5).rev().map(move |place| u8::from(value & (1 << place) != 0))
        });
        let bits: Vec<u8> = bits.collect();
        Self(bits.chunks(8).map(|byte| byte.iter().fold(0, |byte, bit| (byte << 1) | bit)).collect())
    }

    /// What it shows so many steps of 30 seconds from now.
    fn code(&self, steps: i64) -> String {
        let step = Timestamp::now().as_second() / 30 + steps;
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.0);
        let tag = hmac::sign(&key, &step.to_be_bytes());
        let tag: &[u8] = tag.as_ref();
        let at = usize::from(tag[19] & 15);
        let word = u32::from_be_bytes(tag[at..at + 4].try_into().expect("four bytes")) & 0x7fff_ffff;
        format!("{:06}", word % 1_000_000)
    }
}

/// A server behind a proxy that is trusted, so that each sign-in comes from an address of its own: tries are limited by
/// address and name.
struct Site {
    folder: Folder,
    server: Server,
    sign_ins: Cell<u8>,
}

impl Site {
    fn new() -> Self {
        let folder = Folder::new();
        let server = Server::start_with(folder.home(), |settings| {
            settings.access.trusted_proxies = vec!["127.0.0.0/8".parse().expect("a network")];
        });
        Self { folder, server, sign_ins: Cell::default() }
    }

    /// Signs in with a code, in a browser that has this cookie; empty: without.
    fn sign_in_with(&self, cookie: &str, name: &str, password: &str, code: &str) -> Answer {
        self.sign_ins.set(self.sign_ins.get() + 1);
        let address = format!("198.51.100.{}", self.sign_ins.get());
        let mut body = json!({ "name": name, "password": password });
        if !code.is_empty() {
            body["code"] = json!(code);
        }
        let headers = [("x-forwarded-for", address.as_str()), ("cookie", cookie)];
        self.server.stranger().send("POST", "/api/v1/session", &headers, Some(body.to_string().into_bytes()))
    }

    fn sign_in(&self, name: &str, code: &str) -> Answer {
        self.sign_in_with("", name, PASSWORD, code)
    }
}

fn code(answer: &Answer) -> (u16, String) {
    (answer.status, answer.json()["code"].as_str().expect("a code").to_owned())
}

fn is(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

fn begin(client: &Client) -> App {
    let begun = client.post("/api/v1/me/second-factor", &json!({ "password": PASSWORD }));
    assert_eq!(begun.status, 200, "{begun:?}");
    App::of(&begun)
}

fn confirm(client: &Client, code: &str) -> Answer {
    let body = json!({ "code": code }).to_string().into_bytes();
    client.send("PUT", "/api/v1/me/second-factor", &[], Some(body))
}

/// Sets an app up; the app, the code that it showed, and the recovery codes.
fn set_up(client: &Client) -> (App, String, Vec<String>) {
    let app = begin(client);
    let shown = app.code(0);
    let set = confirm(client, &shown);
    assert_eq!(set.status, 200, "{set:?}");
    let codes = set.json();
    let codes = codes["recovery_codes"].as_array().expect("a list").iter();
    (app, shown, codes.map(|code| code.as_str().expect("text").to_owned()).collect())
}

fn results(client: &Client, query: &str) -> Vec<String> {
    let list = client.get(&format!("/api/v1/audit?{query}")).json();
    let lines = list["items"].as_array().expect("items").iter();
    lines.map(|line| line["result"].as_str().expect("text").to_owned()).collect()
}

#[test]
fn a_sign_in_takes_a_code_once_an_app_is_set_up() {
    let site = Site::new();
    let ana = site.server.administrator();
    let path = "/api/v1/me/second-factor";
    assert_eq!(ana.get(path).json(), json!({ "made_at": null, "recovery_codes": 0 }));
    assert_eq!(confirm(&ana, "123456").status, 404, "nothing was begun");
    let wrong = ana.post(path, &json!({ "password": "not mine" }));
    assert_eq!((wrong.status, wrong.pointers()), (422, vec!["/password".to_owned()]));
    let first = begin(&ana);
    let app = begin(&ana);
    let wrong = confirm(&ana, &first.code(0));
    assert_eq!((wrong.status, wrong.pointers()), (422, vec!["/code".to_owned()]), "another one took its place");
    assert_eq!(site.sign_in("ana", "").status, 200, "it has shown no code");
    let shown = app.code(0);
    let set = confirm(&ana, &shown);
    assert_eq!(set.status, 200, "{set:?}");
    assert_eq!(confirm(&ana, &shown).status, 404, "it is set up");
    let state = ana.get(path).json();
    assert!(state["made_at"].is_string() && state["recovery_codes"] == 10, "{state}");
    assert_eq!(ana.get("/api/v1/users/ana").json()["has_second_factor"], true);

    let needed = site.sign_in("ana", "");
    assert_eq!((code(&needed), needed.header("set-cookie")), (is(401, "code_needed"), ""));
    assert_eq!(code(&site.sign_in("ana", " - ")), is(401, "code_needed"));
    let wrong = site.sign_in_with("", "ana", "not mine", &app.code(1));
    assert_eq!(code(&wrong), is(401, "wrong_credentials"), "a code is no password");
    assert_eq!(code(&site.sign_in("ana", &shown)), is(401, "wrong_code"), "it was used");
    let next = app.code(1);
    let spaced = format!("{} {}", &next[..3], &next[3..]);
    assert_eq!(site.sign_in("ana", &spaced).status, 200);
    let again = site.sign_in("ana", &next);
    assert_eq!((code(&again), again.header("set-cookie")), (is(401, "wrong_code"), ""));
    assert!(again.json()["tries_left"].as_u64().is_some_and(|left| left <= 7), "{again:?}");

    let recovery = set.json()["recovery_codes"].as_array().expect("a list").clone();
    let recovery: Vec<&str> = recovery.iter().map(|code| code.as_str().expect("text")).collect();
    assert_eq!(site.sign_in("ana", recovery[0]).status, 200);
    assert_eq!(code(&site.sign_in("ana", recovery[0])), is(401, "wrong_code"), "once");
    let typed = recovery[1].to_uppercase().replace('-', " ");
    assert_eq!(site.sign_in("ana", &typed).status, 200);
    assert_eq!(ana.get(path).json()["recovery_codes"], 8);
    // What is secret is told nowhere, and who was refused is in the log.
    let refused = || results(&ana, "action=session.begin&object=user:ana&result=refused");
    wait_until("refusals are written", || refused().iter().filter(|result| result.contains("wrong code")).count() == 3);
    let done = results(&ana, "action=session.begin&result=done");
    for (result, count) in [("done: with a code", 1), ("done: with a recovery code", 2)] {
        assert_eq!(done.iter().filter(|done| *done == result).count(), count, "{done:?}");
    }
    for path in ["/api/v1/audit?limit=500", "/api/v1/me", "/api/v1/users"] {
        assert!(!ana.get(path).text.contains(recovery[2]), "{path}");
    }
}

#[test]
fn a_user_without_a_second_factor_needs_no_code() {
    let site = Site::new();
    site.server.administrator();
    assert_eq!(site.sign_in("ana", "123456").status, 200);
    assert_eq!(code(&site.sign_in("eve", "123456")), is(401, "wrong_credentials"));
}

#[test]
fn codes_are_few_and_those_of_a_known_browser_are_counted_apart() {
    let site = Site::new();
    let ana = site.server.administrator();
    let known = browser(&site.sign_in("ana", ""));
    let (app, shown, _) = set_up(&ana);
    let tried: Vec<_> = (0..11).map(|_| code(&site.sign_in("ana", &shown))).collect();
    assert_eq!(tried[..10], vec![is(401, "wrong_code"); 10]);
    assert_eq!(tried[10], is(429, "too_many"));
    assert_eq!(site.sign_in("ana", &app.code(1)).status, 429, "the right one too");
    let right = site.sign_in_with(&known, "ana", PASSWORD, &app.code(1));
    assert_eq!(right.status, 200, "{right:?}");
}

#[test]
fn a_second_factor_is_removed_by_its_user_an_administrator_or_a_command() {
    let site = Site::new();
    let ana = site.server.administrator();
    let added = ana.post("/api/v1/users", &json!({ "name": "ben", "role": "viewer", "password": PASSWORD }));
    assert_eq!((added.status, &added.json()["has_second_factor"]), (201, &json!(false)), "{added:?}");
    let mut ben = site.server.stranger();
    ben.keep(&site.sign_in("ben", ""));
    let remove = |password: &str| ben.post("/api/v1/me/second-factor/remove", &json!({ "password": password }));
    let is_asked = || match code_of(&site.sign_in("ben", "")).as_deref() {
        None => false,
        Some("code_needed") => true,
        Some(other) => panic!("{other}"),
    };
    // By its user, who knows the password.
    set_up(&ben);
    assert!(is_asked());
    let wrong = remove("not mine");
    assert_eq!((wrong.status, wrong.pointers()), (422, vec!["/password".to_owned()]));
    assert!(is_asked());
    assert_eq!((remove(PASSWORD).status, remove(PASSWORD).status), (204, 404));
    assert!(!is_asked());
    // By an administrator: of another user.
    set_up(&ben);
    let as_admin = |name: &str| ana.send("DELETE", &format!("/api/v1/users/{name}/second-factor"), &[], None).status;
    assert_eq!((as_admin("ben"), as_admin("ben"), as_admin("eve"), as_admin("ana")), (204, 404, 404, 409));
    assert!(!is_asked());
    // By a command on the machine; a new password leaves it.
    set_up(&ben);
    let home = site.folder.home();
    block_on(async {
        let people = People::open(&home.data, home.url().as_ref()).await.expect("it opens");
        for (name, says) in [("ana", "`ana` has no second factor"), ("eve", "no user `eve`"), ("E\u{0}", "no user")] {
            let refused = people.remove_second_factor(name).await.expect_err("it is refused");
            assert!(refused.to_string().contains(says), "{refused}");
        }
        people.reset("ben", None, PASSWORD.to_owned()).await.expect("a new password");
        people.close().await;
    });
    assert!(is_asked());
    block_on(async {
        let people = People::open(&home.data, home.url().as_ref()).await.expect("it opens");
        people.remove_second_factor("ben").await.expect("it is removed");
        people.close().await;
    });
    assert!(!is_asked());
    let told = || results(&ana, "action=user.second_factor&object=user:ben");
    wait_until("all is written", || told().len() == 7);
    let count = |result: &str| told().iter().filter(|told| *told == result).count();
    assert_eq!((count("done: set up"), count("done: removed"), count("wrong password")), (3, 3, 1));
}

/// The code of a refusal; `None`: it is none.
fn code_of(answer: &Answer) -> Option<String> {
    (answer.status != 200).then(|| code(answer).1)
}
