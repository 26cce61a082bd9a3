//! Sign-in by a provider, against a real one.

use std::{io::Write, net::TcpListener, thread, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use ring::{aead, hmac};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tidegate_admin::{People, StartError};

use crate::{
    home::{Folder, Home, block_on},
    provider::{Browser, CALLBACK, Provider, person, settings},
    support::{Answer, Client, PASSWORD, Server, open_with},
};

/// A provider, a server that has it, and the server's administrator, who signs in by a password.
fn with_provider() -> (Folder, Provider, Server, Client) {
    let (folder, provider) = (Folder::new(), Provider::start());
    let server = provider.server(folder.home());
    let ana = server.administrator();
    (folder, provider, server, ana)
}

fn signed_in(server: &Server, person: &Value) -> Client {
    let mut browser = Browser::of(server);
    let answer = browser.sign_in(person);
    assert_eq!(answer.status, 200, "{answer:?}");
    browser.client
}

pub(crate) fn code(answer: &Answer) -> (u16, String) {
    (answer.status, answer.json()["code"].as_str().expect("a code").to_owned())
}

fn detail(answer: &Answer) -> String {
    answer.json()["detail"].as_str().expect("words").to_owned()
}

/// Actions and results of the audit log on somebody, newest first.
fn audited(ana: &Client, actor: &str) -> Vec<(String, String)> {
    lines(ana, &format!("actor={actor}"))
}

/// The same, once they are so: refusals are written beside the answer.
pub(crate) fn written(
    ana: &Client,
    sought: &str,
    is_so: impl Fn(&[(String, String)]) -> bool,
) -> Vec<(String, String)> {
    tidegate_testkit::wait_for(sought, || Some(lines(ana, sought)).filter(|lines| is_so(lines)))
}

fn lines(ana: &Client, sought: &str) -> Vec<(String, String)> {
    let lines = ana.get(&format!("/api/v1/audit?{sought}")).json();
    let text = |line: &Value, name: &str| line[name].as_str().expect("text").to_owned();
    lines["items"].as_array().expect("lines").iter().map(|line| (text(line, "action"), text(line, "result"))).collect()
}

#[test]
fn groups_give_roles_and_the_first_sign_in_makes_the_user() {
    let (_folder, _provider, server, ana) = with_provider();
    assert_eq!(server.stranger().get("/api/v1/session/provider").json(), json!({ "name": "our sign-in" }));
    for (name, groups, role) in [
        ("vic", &["staff", "others"][..], "viewer"),
        ("olga", &["support"], "operator"),
        ("ed", &["ops", "staff"], "editor"),
        ("ada", &["staff", "admins", "ops"], "admin"),
    ] {
        let client = signed_in(&server, &person(name, groups));
        let session = client.get("/api/v1/session").json();
        assert_eq!((&session["name"], &session["role"]), (&json!(name), &json!(role)));
        let user = ana.get(&format!("/api/v1/users/{name}")).json();
        assert_eq!((&user["signs_in"], &user["sessions"]), (&json!("provider"), &json!(1)), "{user}");
        assert_eq!(client.get("/api/v1/me").json()["signs_in"], "provider");
        let add = format!("done: {role}, by the provider");
        let lines = [("session.begin", "done: by the provider"), ("user.add", add.as_str())];
        assert_eq!(audited(&ana, name), lines.map(|(action, result)| (action.to_owned(), result.to_owned())));
    }
    assert_eq!(ana.get("/api/v1/users/ana").json()["signs_in"], "password");
    assert_eq!(ana.get("/api/v1/me").json()["signs_in"], "password");
    // One text is a group too, and a name comes from an address or the subject where there is no better one.
    for (person, name) in [
        (json!({ "sub": "1", "preferred_username": "Uma@example.com", "groups": "staff" }), "uma"),
        (json!({ "sub": "2", "email": "tom.t@example.com", "groups": ["staff"] }), "tom.t"),
        (json!({ "sub": "subject-3", "preferred_username": "not a name", "groups": ["staff"] }), "subject-3"),
    ] {
        assert_eq!(signed_in(&server, &person).get("/api/v1/session").json()["name"], name);
    }
    // Whoever comes again is who he was, whatever he is called by now.
    let again = json!({ "sub": "2", "preferred_username": "ana", "groups": ["staff"] });
    assert_eq!(signed_in(&server, &again).get("/api/v1/session").json()["name"], "tom.t");
}

#[test]
fn the_way_there_and_back_carries_what_it_has_to() {
    let (_folder, provider, server, _ana) = with_provider();
    let mut browser = Browser::of(&server);
    let sent = browser.client.get("/api/v1/session/oidc?return=/tiers/pro%3Fdomain%3Dx%26y%22%3E");
    let cookie = sent.header("set-cookie").to_owned();
    let port = server.url.rsplit_once(':').expect("a port").1;
    assert!(cookie.starts_with(&format!("tidegate_session_{port}_oidc_")), "{cookie}");
    for part in ["HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=600"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let url = browser.go("?return=/tiers/pro%3Fdomain%3Dx%26y%22%3E");
    assert!(url.starts_with(&format!("{}/auth?", provider.issuer)), "{url}");
    let callback = format!("http%3A%2F%2F127.0.0.1%3A{port}%2Fapi%2Fv1%2Fsession%2Foidc%2Fcallback");
    for part in [
        "response_type=code",
        "client_id=tidegate",
        "code_challenge_method=S256",
        "scope=openid+profile+email",
        &format!("redirect_uri={callback}"),
    ] {
        assert!(url.split(['?', '&']).any(|parameter| parameter == part), "{part}: {url}");
    }
    for name in ["state", "nonce", "code_challenge"] {
        let value = url.split(['?', '&']).find_map(|part| part.strip_prefix(&format!("{name}=")));
        assert!(value.is_some_and(|value| value.len() == 43), "{name}: {url}");
    }
    let back = browser.at_provider(&url, &person("ed", &["ops"]));
    let answer = browser.back(&back);
    assert_eq!((answer.status, answer.header("content-type")), (200, "text/html; charset=utf-8"), "{answer:?}");
    let refresh = "<meta http-equiv=\"refresh\" content=\"0; url=/tiers/pro?domain=x&amp;y&quot;&gt;\">";
    assert!(answer.text.contains(refresh), "{answer:?}");
    assert!(answer.header("content-security-policy").starts_with("default-src 'none'"));
    assert!(!answer.text.contains("<script") && !answer.text.contains("style="), "{answer:?}");
    let cookies: Vec<&str> =
        answer.headers.get_all("set-cookie").iter().map(|cookie| cookie.to_str().expect("text")).collect();
    assert!(cookies.iter().any(|cookie| cookie.contains("SameSite=Strict") && cookie.contains("HttpOnly")));
    assert!(cookies.iter().any(|cookie| cookie.contains("_oidc_") && cookie.contains("Max-Age=0")), "{cookies:?}");
    assert_eq!(browser.client.get("/api/v1/session").json()["role"], "editor");
}

#[test]
fn nobody_is_sent_to_another_site() {
    let (_folder, _provider, server, _ana) = with_provider();
    let stranger = server.stranger();
    for to in
        ["//evil.example", "/%5Cevil.example", "https://evil.example", "/%09/evil.example", "evil", "%0a//evil", ""]
    {
        let answer = stranger.get(&format!("/api/v1/session/oidc?return={to}"));
        assert_eq!((answer.status, answer.wrong("parameter")), (422, vec!["return".to_owned()]), "{to}: {answer:?}");
    }
}

#[test]
fn a_try_is_of_one_browser_and_of_one_time() {
    let (folder, _provider, server, ana) = with_provider();
    let mut browser = Browser::of(&server);
    let url = browser.go("");
    let back = browser.at_provider(&url, &person("ed", &["ops"]));
    let over = (400, "sign_in_over".to_owned());
    // Another browser: without a try, and with one of its own.
    let mut other = Browser::of(&server);
    assert_eq!(code(&other.back(&back)), over);
    other.go("");
    assert_eq!(code(&other.back(&back)), over);
    assert_eq!(other.tries.len(), 1, "its own stays");
    // A made-up state, and none.
    let (_, rest) = back.split_once("state=").expect("a state");
    let state = rest.split('&').next().expect("a part");
    assert_eq!(code(&browser.back(&back.replace(state, &"A".repeat(43)))), over);
    let none = browser.back(&back.replace("state=", "estate="));
    assert_eq!((none.status, none.wrong("parameter")), (422, vec!["state".to_owned()]));
    // None of that took it from its own browser, which has it once; so has who copies it.
    other.tries.clone_from(&browser.tries);
    assert_eq!(browser.back(&back).status, 200);
    assert!(browser.tries.is_empty());
    assert_eq!(code(&browser.back(&back)), over);
    assert_eq!(code(&other.back(&back)), over);
    assert!(other.tries.is_empty());
    // What another sealed, what was sealed for another state, and what is too old.
    let url = other.go("");
    let late = other.at_provider(&url, &person("ed", &["ops"]));
    let name = other.tries[0].0.clone();
    let now = Timestamp::now().as_second();
    let key = key_of(folder.home());
    for sealed in [
        sealed(&[7; 32], state_of(&late), now + 600),
        sealed(&key, "another", now + 600),
        sealed(&key, state_of(&late), now),
        "nonsense".to_owned(),
        String::new(),
    ] {
        other.tries = vec![(name.clone(), sealed)];
        assert_eq!(code(&other.back(&late)), over, "{:?}", other.tries);
    }
    // And a code of another try; this one is sealed as it should be.
    other.tries = vec![(name, sealed(&key, state_of(&late), now + 600))];
    assert_eq!(code(&other.back(&late)), over, "PKCE");
    // The provider refuses.
    let refusal = other.sign_in(&json!({ "sub": "x", "refuses": true }));
    assert_eq!(code(&refusal), (403, "not_admitted".to_owned()));
    assert!(detail(&refusal).contains("access_denied"), "{refusal:?}");
    assert_eq!(audited(&ana, "ed").iter().filter(|(action, _)| action == "session.begin").count(), 1);
    written(&ana, "action=session.begin&q=another+browser", |lines| lines.len() == 11);
}

/// The state that a browser comes back with.
fn state_of(back: &str) -> &str {
    let (_, rest) = back.split_once("state=").expect("a state");
    rest.split('&').next().expect("a part")
}

/// By which a server seals what a browser keeps.
fn key_of(home: &Home) -> Vec<u8> {
    let sql = "SELECT value FROM secrets WHERE name = 'sign_ins'";
    let value: String = block_on(async {
        let mut connection = home.connect().await;
        sqlx::query_scalar(sql).fetch_one(&mut connection).await.expect("a secret")
    });
    URL_SAFE_NO_PAD.decode(value).expect("base64")
}

/// A try, as a server seals it that has this key.
fn sealed(key: &[u8], state: &str, ends_at: i64) -> String {
    let try_ = json!({ "nonce": "n", "verifier": "v".repeat(43), "return_to": "/", "ends_at": ends_at });
    let key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), state.as_bytes());
    let key = aead::UnboundKey::new(&aead::CHACHA20_POLY1305, key.as_ref()).expect("a key");
    let mut bytes = try_.to_string().into_bytes();
    let nonce = aead::Nonce::assume_unique_for_key([0; aead::NONCE_LEN]);
    aead::LessSafeKey::new(key).seal_in_place_append_tag(nonce, aead::Aad::empty(), &mut bytes).expect("it is sealed");
    URL_SAFE_NO_PAD.encode(bytes)
}

#[test]
fn tabs_of_one_browser_sign_in_beside_each_other() {
    let (_folder, _provider, server, ana) = with_provider();
    let mut browser = Browser::of(&server);
    let ed = person("ed", &["ops"]);
    let tab = |browser: &mut Browser, to: &str| {
        let url = browser.go(&format!("?return={to}"));
        browser.at_provider(&url, &ed)
    };
    let (first, second) = (tab(&mut browser, "/first"), tab(&mut browser, "/second"));
    for (back, to) in [(second, "url=/second"), (first, "url=/first")] {
        let answer = browser.back(&back);
        assert!(answer.status == 200 && answer.text.contains(to), "{answer:?}");
    }
    assert_eq!(ana.get("/api/v1/users/ed").json()["sessions"], 2);
    // The oldest go.
    let tabs: Vec<String> = (0..6).map(|n| tab(&mut browser, &format!("/{n}"))).collect();
    assert_eq!(browser.tries.len(), 4);
    let went = tabs.iter().map(|back| browser.back(back).status);
    assert_eq!(went.collect::<Vec<_>>(), [400, 400, 200, 200, 200, 200]);
    // Cookies of others, and what is none, keep nobody out.
    let prefix = format!("tidegate_session_{}_oidc_", server.url.rsplit_once(':').expect("a port").1);
    let encoded = (0..6).map(|n| format!("{prefix}%0{n}=x")).collect::<Vec<_>>().join("; ");
    let junk = ("cookie", &*format!("=; ;; _oidc_; {prefix}=x; {prefix}1=x; \"=\"; {encoded}"));
    let answer = browser.client.send("GET", "/api/v1/session/oidc", &[junk], None);
    assert_eq!(answer.status, 303, "{answer:?}");
}

#[test]
fn many_who_begin_keep_nobody_out() {
    let (folder, provider) = (Folder::new(), Provider::start());
    let server = Server::start_with(folder.home(), |settings| {
        settings.access.oidc = Some(provider.settings());
        settings.access.trusted_proxies = vec!["127.0.0.1".parse::<std::net::IpAddr>().expect("an address").into()];
    });
    let mut browser = Browser::of(&server);
    let url = browser.go("");
    let back = browser.at_provider(&url, &person("ed", &["ops"]));
    let crowd = Browser::of(&server).client;
    for n in 0..1_200 {
        let from = format!("198.51.100.{}", n % 40);
        let answer = crowd.send("GET", "/api/v1/session/oidc", &[("x-forwarded-for", &from)], None);
        assert_eq!(answer.status, 303, "{answer:?}");
    }
    assert_eq!(browser.back(&back).status, 200);
}

#[test]
fn a_token_that_is_not_right_names_nobody() {
    let (_folder, _provider, server, ana) = with_provider();
    let mut browser = Browser::of(&server);
    for (fault, says) in [
        ("none", "No signature found"),
        ("tampered", "Crypto error"),
        ("hmac", "Disallowed signature algorithm"),
        ("secret", "Disallowed signature algorithm"),
        ("stranger", "No matching key"),
        ("expired", "ID token expired"),
        ("audience", "Invalid audiences"),
        ("audiences", "not a trusted audience"),
        ("issuer", "Invalid issuer"),
        ("nonce", "Invalid nonce"),
        ("without_nonce", "Invalid nonce"),
        ("nobody", "it names nobody"),
        ("absent", "no ID token"),
    ] {
        let eve =
            json!({ "sub": format!("eve-{fault}"), "preferred_username": "eve", "groups": ["staff"], "fault": fault });
        let answer = Browser::of(&server).sign_in(&eve);
        assert_eq!(code(&answer), (502, "provider".to_owned()), "{fault}: {answer:?}");
        written(&ana, "action=session.begin&limit=1", |lines| {
            lines.first().is_some_and(|(_, result)| result.contains(says))
        });
    }
    assert_eq!(ana.get("/api/v1/users/eve").status, 404);
    // A key that is not known is asked for; after that the old one is none.
    let rotated = json!({ "sub": "1", "preferred_username": "ed", "groups": ["ops"], "fault": "rotated" });
    assert_eq!(browser.sign_in(&rotated).status, 200);
    let old = Browser::of(&server).sign_in(&person("olga", &["support"]));
    assert_eq!(code(&old), (502, "provider".to_owned()), "{old:?}");
}

#[test]
fn without_a_group_or_a_name_nobody_comes_in() {
    let (_folder, _provider, server, ana) = with_provider();
    let not_admitted = (403, "not_admitted".to_owned());
    for (person, says) in [
        (person("eve", &["guests"]), "No group of the claim `groups` has a role here."),
        (person("eve", &[]), "`groups`"),
        (json!({ "sub": "x", "preferred_username": "eve" }), "no groups in the claim `groups`"),
        (json!({ "sub": "1", "preferred_username": "Ève", "groups": ["staff"] }), "no name that a user can have"),
        // As the audit log calls the server.
        (json!({ "sub": "1", "preferred_username": "tidegate", "groups": ["staff"] }), "no name that a user can have"),
        // A user of this name signs in by a password: he is not taken over.
        (person("ana", &["admins"]), "There is a user `ana` already"),
        (json!({ "sub": "x", "email": "ana@evil.example", "groups": ["admins"] }), "There is a user `ana` already"),
    ] {
        let mut browser = Browser::of(&server);
        let answer = browser.sign_in(&person);
        assert_eq!(code(&answer), not_admitted, "{person}");
        assert!(detail(&answer).contains(says), "{answer:?}");
        // Nothing but that its try is over.
        assert_eq!(answer.headers.get_all("set-cookie").iter().count(), 1, "{answer:?}");
        assert!(answer.header("set-cookie").contains("_oidc_") && browser.tries.is_empty(), "{answer:?}");
    }
    assert_eq!(ana.get("/api/v1/users").json()["items"].as_array().expect("users").len(), 1);
    assert_eq!(ana.get("/api/v1/session").json()["role"], "admin");
    let lines = written(&ana, "object=provider:eve", |lines| lines.len() == 3);
    assert!(lines.iter().all(|(action, result)| action == "session.begin" && result.contains("`groups`")), "{lines:?}");
    // Another of the provider has the name.
    signed_in(&server, &person("ed", &["ops"]));
    let second = json!({ "sub": "other", "preferred_username": "ed", "groups": ["admins"] });
    assert_eq!(code(&Browser::of(&server).sign_in(&second)), not_admitted);
    assert_eq!(ana.get("/api/v1/users/ed").json()["role"], "editor");
    // People are told by a page.
    let mut browser = Browser::of(&server);
    let url = browser.go("");
    let back = browser.at_provider(&url, &person("eve", &["<b>"]));
    let request = browser.client.agent.get(format!("{}{back}", server.url)).header("cookie", browser.cookies());
    let mut page = request.header("accept", "text/html,*/*;q=0.8").call().expect("an answer");
    assert_eq!(page.status().as_u16(), 403);
    assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
    let text = page.body_mut().read_to_string().expect("text");
    assert!(text.contains("the claim `groups`") && text.contains("href=\"/login\""), "{text}");
}

#[test]
fn a_role_follows_the_groups_and_what_it_gave_ends() {
    let (_folder, _provider, server, ana) = with_provider();
    let ed = signed_in(&server, &person("ed", &["admins"]));
    let (script, _) = ed.script(&json!({ "role": "admin" }));
    let (editor, _) = ed.script(&json!({ "role": "editor" }));
    let (node, _) = ed.script(&json!({ "scope": "node" }));
    // The same groups: the other session goes on.
    let second = signed_in(&server, &person("ed", &["admins", "staff"]));
    assert_eq!(ed.get("/api/v1/session").status, 200);
    // A lower role: all that it gave ends, but the session that begins.
    let third = signed_in(&server, &person("ed", &["ops"]));
    assert_eq!(third.get("/api/v1/session").json()["role"], "editor");
    assert_eq!((ed.get("/api/v1/session").status, second.get("/api/v1/session").status), (401, 401));
    assert_eq!((script.get("/api/v1/me").status, editor.get("/api/v1/me").status), (401, 200));
    let change = ("user.role".to_owned(), "done: admin to editor, by the groups at the provider".to_owned());
    assert!(audited(&ana, "ed").contains(&change));
    // A claim that is absent may be a mistake: he does not come in, and keeps what he has.
    let mut unread = person("ed", &[]);
    unread.as_object_mut().expect("an object").remove("groups");
    assert_eq!(code(&Browser::of(&server).sign_in(&unread)), (403, "not_admitted".to_owned()));
    assert_eq!((third.get("/api/v1/session").status, editor.get("/api/v1/me").status), (200, 200));
    // No group any more: nothing is left to him, but the node stays.
    assert_eq!(code(&Browser::of(&server).sign_in(&person("ed", &[]))), (403, "not_admitted".to_owned()));
    assert_eq!((third.get("/api/v1/session").status, editor.get("/api/v1/me").status), (401, 401));
    assert_eq!(node.get("/api/v1/me").json()["is_node"], true);
    assert_eq!(node.get("/api/v1/me").json()["signs_in"], "token");
    assert!(audited(&ana, "ed").iter().any(|(action, _)| action == "user.shut_out"));
    // The last administrator is not made less by his groups; he does not come in either.
    signed_in(&server, &person("ed", &["admins"]));
    let tag = |name: &str| ana.get(&format!("/api/v1/users/{name}")).header("etag").to_owned();
    let ed = signed_in(&server, &person("ed", &["admins"]));
    let remove = |client: &Client, name: &str| {
        client.send("DELETE", &format!("/api/v1/users/{name}"), &[("if-match", &tag(name))], None).status
    };
    assert_eq!(remove(&ed, "ana"), 204);
    let last = Browser::of(&server).sign_in(&person("ed", &["staff"]));
    assert_eq!(code(&last), (409, "last_of_its_kind".to_owned()));
    assert_eq!(ed.get("/api/v1/session").json()["role"], "admin");
    // Who is removed comes back by his groups, as somebody new.
    let ada = signed_in(&server, &person("ada", &["admins"]));
    let of_ed = ada.get("/api/v1/users/ed").header("etag").to_owned();
    assert_eq!(ada.send("DELETE", "/api/v1/users/ed", &[("if-match", &of_ed)], None).status, 204);
    assert_eq!(ed.get("/api/v1/session").status, 401);
    assert_eq!(signed_in(&server, &person("ed", &["staff"])).get("/api/v1/session").json()["role"], "viewer");
}

/// Nobody is called as the provider's people are in refusals, and each of these is there once.
#[test]
fn a_refusal_has_one_line_under_a_name_that_is_no_users() {
    let (_folder, _provider, server, ana) = with_provider();
    let ed = signed_in(&server, &person("ed", &["admins"]));
    let tag = ed.get("/api/v1/users/ana").header("etag").to_owned();
    assert_eq!(ed.send("DELETE", "/api/v1/users/ana", &[("if-match", &tag)], None).status, 204);
    drop(ana);
    let last = Browser::of(&server).sign_in(&person("ed", &["staff"]));
    assert_eq!(code(&last), (409, "last_of_its_kind".to_owned()));
    for (who, object) in [
        (json!({ "sub": "2", "preferred_username": "ed", "groups": ["staff"] }), "provider:ed"),
        (json!({ "sub": "user:ed", "preferred_username": "?", "groups": ["staff"] }), "provider:user:ed"),
        (json!({ "sub": "token:ci", "preferred_username": "?", "groups": ["staff"] }), "provider:token:ci"),
    ] {
        assert_eq!(code(&Browser::of(&server).sign_in(&who)), (403, "not_admitted".to_owned()));
        written(&ed, &format!("object={object}"), |lines| !lines.is_empty());
    }
    // Those that came later are written, so there is nothing more to come.
    let of_last = lines(&ed, "q=is+the+last+one");
    assert!(of_last.len() == 1 && of_last[0].0 == "session.begin", "{of_last:?}");
    let of_user = lines(&ed, "object=user:ed");
    assert!(of_user.iter().all(|(action, _)| action == "user.add"), "{of_user:?}");
    for name in ["provider:ed", "provider", "user:ed"] {
        let made = ed.post("/api/v1/users", &json!({ "name": name, "role": "viewer", "password": PASSWORD }));
        assert_eq!(made.status, if name == "provider" { 201 } else { 422 }, "{name}: {made:?}");
    }
}

/// Whatever takes a role away, no session keeps it.
#[test]
fn a_session_has_the_role_that_its_user_has_now() {
    let (folder, _provider, server, ana) = with_provider();
    let [first, second] = [(); 2].map(|()| signed_in(&server, &person("ed", &["admins"])));
    assert_eq!(first.get("/api/v1/users").status, 200);
    folder.home().execute("UPDATE users SET role = 'viewer' WHERE name = 'ed'");
    assert_eq!(first.get("/api/v1/session").json()["role"], "viewer");
    assert_eq!(code(&first.get("/api/v1/users")), (403, "forbidden".to_owned()));
    folder.home().execute("UPDATE users SET role = 'admin' WHERE name = 'ed'");
    // The last administrator, too, loses all that he has with his last group.
    let tag = first.get("/api/v1/users/ana").header("etag").to_owned();
    assert_eq!(first.send("DELETE", "/api/v1/users/ana", &[("if-match", &tag)], None).status, 204);
    assert_eq!(ana.get("/api/v1/session").status, 401);
    assert_eq!(code(&Browser::of(&server).sign_in(&person("ed", &["guests"]))), (403, "not_admitted".to_owned()));
    assert_eq!((first.get("/api/v1/session").status, second.get("/api/v1/session").status), (401, 401));
    assert_eq!(signed_in(&server, &person("ed", &["staff"])).get("/api/v1/session").json()["role"], "viewer");
}

#[test]
fn who_signs_in_by_the_provider_has_no_password() {
    let (folder, _provider, server, ana) = with_provider();
    let ed = signed_in(&server, &person("ed", &["ops"]));
    let stranger = server.stranger();
    let try_as = |name: &str, password: &str| {
        let answer = stranger.post("/api/v1/session", &json!({ "name": name, "password": password }));
        let mut json = answer.json();
        let body = json.as_object_mut().expect("an object");
        body.remove("request_id");
        // They are counted by name, whoever has it.
        body.remove("tries_left");
        (answer.status, json)
    };
    let nobody = try_as("nobody", PASSWORD);
    assert_eq!(nobody.0, 401);
    for password in ["", PASSWORD] {
        assert_eq!(try_as("ed", password), nobody, "a stranger sees no difference");
    }
    let by_provider = (409, "by_provider".to_owned());
    let own = json!({ "present": "", "password": PASSWORD }).to_string().into_bytes();
    assert_eq!(code(&ed.send("PUT", "/api/v1/me/password", &[], Some(own))), by_provider);
    for path in ["/api/v1/me/second-factor", "/api/v1/me/second-factor/remove"] {
        assert_eq!(code(&ed.post(path, &json!({ "password": PASSWORD }))), by_provider, "{path}");
    }
    let tag = ana.get("/api/v1/users/ed").header("etag").to_owned();
    for change in [json!({ "password": PASSWORD }), json!({ "role": "admin" })] {
        let body = Some(change.to_string().into_bytes());
        let answer = ana.send("PATCH", "/api/v1/users/ed", &[("if-match", &tag)], body);
        assert_eq!(code(&answer), by_provider, "{change}");
    }
    written(&ana, "action=refused&q=users/ed", |lines| lines.len() == 2);
    // Nor does the command line give him one.
    let reset = block_on(async {
        let people = People::open(&folder.home().data, folder.home().url().as_ref()).await.expect("it opens");
        let reset = people.reset("ed", None, PASSWORD.to_owned()).await;
        people.close().await;
        reset
    });
    assert!(reset.is_err_and(|error| error.to_string().contains("`ed` signs in by the provider")));
    assert_eq!(try_as("ed", PASSWORD), nobody);
    assert_eq!(ed.get("/api/v1/session").json()["role"], "editor");
}

#[test]
fn tries_are_limited_by_address() {
    let (_folder, _provider, server, _ana) = with_provider();
    let mut browser = Browser::of(&server);
    let url = browser.go("");
    let back = browser.at_provider(&url, &person("ed", &["ops"]));
    // The administrator was a try too; one comes back each second.
    let went = (0..600).take_while(|_| browser.client.get("/api/v1/session/oidc").status == 303).count();
    assert!((58..300).contains(&went), "{went}");
    let nobodys = format!("{CALLBACK}?state=x&code=y");
    assert!((0..600).any(|_| code(&browser.client.get(&nobodys)) == (429, "too_many".to_owned())));
    // Who comes back too early may come again.
    let answer =
        tidegate_testkit::wait_for("another try", || Some(browser.back(&back).status).filter(|status| *status != 429));
    assert_eq!(answer, 200);
}

#[test]
fn a_provider_that_is_away_costs_the_sign_in_by_it_alone() {
    let (folder, mut provider) = (Folder::new(), Provider::start());
    let mut server = provider.server(folder.home());
    let ana = server.administrator();
    let mut browser = Browser::of(&server);
    let url = browser.go("");
    let back = browser.at_provider(&url, &person("ed", &["ops"]));
    provider.end();
    let away = (502, "provider".to_owned());
    assert_eq!(code(&browser.back(&back)), away);
    assert_eq!(code(&browser.client.get("/api/v1/session/oidc")), away);
    server.stop();
    // It starts all the same, and by a password people sign in.
    let server = provider.server(folder.home());
    assert_eq!(code(&server.stranger().get("/api/v1/session/oidc")), away);
    assert_eq!(server.sign_in().get("/api/v1/session").json()["role"], "admin");
    drop((ana, server));
}

#[test]
fn all_wait_for_a_provider_that_answers_nothing_at_the_same_time() {
    // The server has two workers: one after the other on each, the requests would take a minute.
    ask_silent_provider(60, Duration::from_secs(2), Duration::from_secs(40));
}

/// Sends `requests` requests at once that need a provider which never answers; each may take `timeout`. Asserts that all are
/// answered within `at_most`.
fn ask_silent_provider(requests: usize, timeout: Duration, at_most: Duration) {
    let folder = Folder::new();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut secret = NamedTempFile::new().expect("a file");
    writeln!(secret, "secret").expect("it is written");
    let issuer = format!("http://{}", silent.local_addr().expect("bound"));
    let oidc = tidegate_admin::Oidc { timeout, ..settings(&issuer, secret.path()) };
    let server = Server::start_with(folder.home(), |settings| settings.access.oidc = Some(oidc));
    let began = Timestamp::now();
    let ask = || {
        let client = server.stranger();
        thread::spawn(move || code(&client.get("/api/v1/session/oidc")))
    };
    let answers: Vec<_> = (0..requests).map(|_| ask()).collect();
    for answer in answers {
        assert_eq!(answer.join().expect("an answer"), (502, "provider".to_owned()));
    }
    let took = Timestamp::now().duration_since(began).unsigned_abs();
    assert!(took >= timeout * 9 / 10 && took < at_most, "{took:?}");
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: the ten seconds for which a provider is waited for"]
    fn a_provider_that_answers_nothing_is_waited_for_ten_seconds() {
        ask_silent_provider(3, Duration::from_secs(10), Duration::from_secs(15));
    }
}

#[test]
fn settings_that_cannot_work_stop_the_start_by_name() {
    let folder = Folder::new();
    let mut secret = NamedTempFile::new().expect("a file");
    writeln!(secret, "secret").expect("it is written");
    let empty = NamedTempFile::new().expect("a file");
    let ours = || settings("http://127.0.0.1:1", secret.path());
    let start = |oidc, change: fn(&mut tidegate_admin::Settings)| {
        open_with(folder.home(), |settings| {
            settings.access.oidc = Some(oidc);
            change(settings);
        })
    };
    let refused = |oidc, change: fn(&mut tidegate_admin::Settings), says: &str| {
        let error = start(oidc, change).expect_err("it must not start");
        assert!(matches!(error, StartError::Oidc { .. }), "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
    };
    let as_is = |_: &mut tidegate_admin::Settings| {};
    start(ours(), as_is).expect("it starts, whatever is at that address");
    for issuer in ["http://id.example", "id.example", "ftp://127.0.0.1", ""] {
        refused(settings(issuer, secret.path()), as_is, "--oidc-issuer");
    }
    refused(settings("https://id.example", empty.path()), as_is, "--oidc-client-secret-file");
    refused(settings("https://id.example", &folder.path().join("none")), as_is, "--oidc-client-secret-file");
    refused(tidegate_admin::Oidc { roles: Vec::new(), ..ours() }, as_is, "--oidc-role");
    let ca = |path: &std::path::Path| tidegate_admin::Oidc { ca: Some(path.to_owned()), ..ours() };
    refused(ca(&folder.path().join("none")), as_is, "--oidc-ca");
    let issuer = "https://id.example".to_owned();
    refused(tidegate_admin::Oidc { issuer, ..ca(secret.path()) }, as_is, "--oidc-ca: the certificate of the authority");
    let everywhere = |settings: &mut tidegate_admin::Settings| {
        settings.listener = TcpListener::bind("0.0.0.0:0").expect("a port");
    };
    refused(ours(), everywhere, "--admin-url");
}

#[test]
fn without_a_provider_there_is_none() {
    let (_folder, server) = crate::support::fresh();
    let stranger = server.stranger();
    assert_eq!(stranger.get("/api/v1/session/provider").json(), json!({ "name": null }));
    for path in ["/api/v1/session/oidc", "/api/v1/session/oidc/callback?state=x&code=y&session_state=z"] {
        assert_eq!(code(&stranger.get(path)), (404, "not_found".to_owned()), "{path}");
    }
}

/// The browser may come back to another server than it began at.
#[test]
#[ignore = "needs PostgreSQL"]
fn a_try_ends_at_another_server() {
    let ((folder, first), provider) = (Folder::on_server(), Provider::start());
    drop(first);
    let start = || {
        Server::start_with(folder.home(), |settings| {
            settings.access.oidc = Some(provider.settings());
            settings.url = Some("http://127.0.0.1:1".to_owned());
        })
    };
    let (a, b) = (start(), start());
    let (mut at_a, mut at_b) = (Browser::of(&a), Browser::of(&b));
    let url = at_a.go("");
    let back = at_a.at_provider(&url, &person("ed", &["ops"]));
    // Its cookie is named by the port, which is the same behind a balancer.
    let port = |server: &Server| server.url.rsplit_once(':').expect("a port").1.to_owned();
    at_b.tries.clone_from(&at_a.tries);
    at_b.tries[0].0 = at_b.tries[0].0.replace(&port(&a), &port(&b));
    assert_eq!(at_b.back(&back).status, 200);
    assert_eq!(at_b.client.get("/api/v1/session").json()["name"], "ed");
    assert_eq!(code(&at_a.back(&back)), (400, "sign_in_over".to_owned()));
}
