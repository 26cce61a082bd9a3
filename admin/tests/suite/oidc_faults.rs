//! Sign-in by providers that are not as others, or not as they should be.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    thread,
    time::Duration,
};

use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tidegate_admin::Oidc;

use crate::{
    home::Folder,
    oidc::{code, written},
    provider::{Browser, Provider, person, settings},
    support::Server,
};

#[test]
fn where_people_come_by_tls_all_of_it_goes_over_tls() {
    let (folder, provider) = (Folder::new(), Provider::start());
    let server = Server::start_with(folder.home(), |settings| {
        settings.access.oidc = Some(provider.settings());
        settings.url = Some("https://limits.example".to_owned());
    });
    let mut browser = Browser::of(&server);
    let url = browser.go("?return=/rules");
    let callback = "redirect_uri=https%3A%2F%2Flimits.example%2Fapi%2Fv1%2Fsession%2Foidc%2Fcallback";
    assert!(url.contains(callback), "{url}");
    assert!(browser.tries[0].0.starts_with("__Host-tidegate_session_"), "{:?}", browser.tries);
    let back = browser.at_provider(&url, &person("ed", &["ops"]));
    let answer = browser.back(&back);
    assert_eq!((answer.status, answer.header("strict-transport-security")), (200, "max-age=31536000"), "{answer:?}");
    let cookies: Vec<&str> =
        answer.headers.get_all("set-cookie").iter().map(|cookie| cookie.to_str().expect("text")).collect();
    assert_eq!(cookies.len(), 2, "{cookies:?}");
    for cookie in cookies {
        assert!(cookie.starts_with("__Host-tidegate_session_"), "{cookie}");
        assert!(cookie.contains("; Secure") && cookie.contains("; Path=/;") && !cookie.contains("Domain"), "{cookie}");
    }
    assert_eq!(browser.client.get("/api/v1/session").json()["role"], "editor");
}

/// Answers what is asked of a provider by what `answer` makes of its address, and keys; where it is.
fn saying(answer: impl Fn(&str) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let here = url.clone();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let first = lines.next().unwrap_or_default();
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let body = if first.contains("/jwks") { r#"{"keys":[]}"#.to_owned() } else { answer(&here) };
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
            // Who has read enough does not read on.
            let _ = write!(stream, "{head}\r\nconnection: close\r\n\r\n{body}");
        }
    });
    url
}

#[test]
fn a_provider_that_says_wrong_things_of_itself_is_not_gone_to() {
    let metadata = |url: &str, other: Value| {
        let mut said = json!({
            "issuer": url,
            "authorization_endpoint": format!("{url}/auth"),
            "token_endpoint": format!("{url}/token"),
            "jwks_uri": format!("{url}/jwks"),
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        });
        said.as_object_mut().expect("an object").extend(other.as_object().expect("an object").clone());
        said.to_string()
    };
    let mut secret = NamedTempFile::new().expect("a file");
    writeln!(secret, "secret").expect("it is written");
    let go = |issuer: &str| {
        let folder = Folder::new();
        let oidc = settings(issuer, secret.path());
        let server = Server::start_with(folder.home(), |settings| settings.access.oidc = Some(oidc));
        Browser::of(&server).client.get("/api/v1/session/oidc")
    };
    let right = go(&saying(move |url| metadata(url, json!({}))));
    assert!(right.status == 303 && right.header("location").contains("/auth?"), "{right:?}");
    for wrong in [
        json!({ "issuer": "https://id.example" }),
        json!({ "issuer": null }),
        json!({ "token_endpoint": null }),
        json!({ "authorization_endpoint": "http://id.example/auth" }),
        json!({ "authorization_endpoint": "javascript:alert(1)" }),
        json!({ "jwks_uri": "http://id.example/jwks" }),
        json!({ "padding": "x".repeat(1 << 20) }),
    ] {
        let said = wrong.to_string();
        let answer = go(&saying(move |url| metadata(url, wrong.clone())));
        let what = &said[..said.len().min(80)];
        assert_eq!(code(&answer), (502, "provider".to_owned()), "{what}: {answer:?}");
        assert_eq!((answer.header("location"), answer.header("set-cookie")), ("", ""), "{what}");
        // What a provider says is for the log alone.
        assert!(!answer.text.contains("id.example"), "{answer:?}");
    }
    // It is called otherwise than it is asked for: by an address with one more character.
    let slash = go(&saying(move |url| metadata(&format!("{url}/"), json!({}))));
    assert_eq!(code(&slash), (502, "provider".to_owned()));
    assert_eq!(code(&go(&saying(|_| "<html>".to_owned()))), (502, "provider".to_owned()));
}

#[test]
fn the_secret_is_shown_as_the_provider_takes_it() {
    for method in ["client_secret_post", "client_secret_basic"] {
        let folder = Folder::new();
        let provider = Provider::start_with(&[("TIDEGATE_TEST_AUTH", method)]);
        let server = provider.server(folder.home());
        let answer = Browser::of(&server).sign_in(&person("ed", &["ops"]));
        assert_eq!(answer.status, 200, "{method}: {answer:?}");
    }
}

#[test]
fn a_provider_that_hangs_at_one_code_is_waited_for_by_nobody_else() {
    hangs_at_one_code(Duration::from_secs(5), Duration::from_secs(20));
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: the ten seconds for which a provider is waited for"]
    fn a_provider_that_hangs_at_one_code_is_waited_for_ten_seconds() {
        hangs_at_one_code(Duration::from_secs(10), Duration::from_secs(5));
    }
}

/// It is given up after `timeout`, at most so much `late`.
fn hangs_at_one_code(timeout: Duration, late: Duration) {
    let (folder, provider) = (Folder::new(), Provider::start());
    let oidc = Oidc { timeout, ..provider.settings() };
    let server = Server::start_with(folder.home(), |settings| settings.access.oidc = Some(oidc));
    let ana = server.administrator();
    let mut eve = Browser::of(&server);
    let url = eve.go("");
    let hangs = json!({ "sub": "eve", "preferred_username": "eve", "groups": ["staff"], "fault": "hangs" });
    let back = eve.at_provider(&url, &hangs);
    let began = Timestamp::now();
    let waiting = thread::spawn(move || eve.back(&back));
    assert_eq!(Browser::of(&server).sign_in(&person("ed", &["ops"])).status, 200);
    assert_eq!(server.sign_in().get("/api/v1/tiers").status, 200);
    assert!(!waiting.is_finished(), "they did not wait for it");
    let answer = waiting.join().expect("an answer");
    let took = Timestamp::now().duration_since(began);
    assert_eq!(code(&answer), (502, "provider".to_owned()), "{answer:?}");
    let took = Duration::try_from(took).expect("it goes on");
    let (least, most) = (timeout * 9 / 10, timeout + late);
    assert!(took > least && took < most, "{took:?}");
    let says = format!("does not answer within {} s", timeout.as_secs());
    written(&ana, "action=session.begin&limit=1", |lines| {
        lines.first().is_some_and(|(_, result)| result.contains(&says))
    });
    assert_eq!(ana.get("/api/v1/users/eve").status, 404);
}

/// Whatever the provider does with a code that comes twice.
#[test]
fn one_state_begins_one_session() {
    for codes in ["once", "again"] {
        let folder = Folder::new();
        let provider = Provider::start_with(&[("TIDEGATE_TEST_CODES", codes)]);
        let server = provider.server(folder.home());
        let ana = server.administrator();
        let mut browser = Browser::of(&server);
        let url = browser.go("");
        let back = browser.at_provider(&url, &person("ed", &["ops"]));
        let callback = || {
            let (client, back, cookies) = (browser.client.clone(), back.clone(), browser.cookies());
            thread::spawn(move || client.send("GET", &back, &[("cookie", &cookies)], None).status)
        };
        let at_once = [(); 8].map(|()| callback());
        let mut answers = at_once.map(|answer| answer.join().expect("an answer"));
        answers.sort_unstable();
        assert_eq!(answers, [200, 400, 400, 400, 400, 400, 400, 400], "{codes}");
        assert_eq!(callback().join().expect("an answer"), 400, "{codes}");
        assert_eq!(ana.get("/api/v1/users/ed").json()["sessions"], 1, "{codes}");
        written(&ana, "action=session.begin&q=another+browser", |lines| lines.len() == 8);
    }
}
