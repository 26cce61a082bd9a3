//! Users, their roles, passwords and sessions.

use std::{
    io::{BufRead, BufReader},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tidegate_admin::{People, Role};
use tidegate_testkit::{PATIENCE, wait_until};

use crate::{
    home::{Folder, block_on},
    support::{Answer, Client, PASSWORD, Server, fresh},
};

const OTHER: &str = "another few words";

fn tag(client: &Client, name: &str) -> String {
    let answer = client.get(&format!("/api/v1/users/{name}"));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.header("etag").to_owned()
}

fn change(client: &Client, name: &str, tag: &str, of: &Value) -> Answer {
    let path = format!("/api/v1/users/{name}");
    client.send("PATCH", &path, &[("if-match", tag)], Some(of.to_string().into_bytes()))
}

fn remove(client: &Client, name: &str, tag: &str) -> Answer {
    client.send("DELETE", &format!("/api/v1/users/{name}"), &[("if-match", tag)], None)
}

fn code(answer: &Answer) -> (u16, String) {
    (answer.status, answer.json()["code"].as_str().expect("a code").to_owned())
}

#[test]
fn users_are_added_listed_changed_and_removed() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let made = ana.post("/api/v1/users", &json!({ "name": "ben", "role": "editor", "password": OTHER }));
    assert_eq!((made.status, made.header("location")), (201, "/api/v1/users/ben"), "{made:?}");
    assert!(!made.text.contains("argon2") && !made.text.contains(OTHER));
    let list = ana.get("/api/v1/users").json();
    let names: Vec<&str> =
        list["items"].as_array().expect("items").iter().filter_map(|user| user["id"].as_str()).collect();
    assert_eq!(names, ["ana", "ben"]);
    assert_eq!((&list["items"][0]["sessions"], &list["items"][1]["sessions"]), (&json!(1), &json!(0)));
    assert_eq!(list["items"][1]["last_seen_at"], json!(null));
    let again = ana.post("/api/v1/users", &json!({ "name": "ben", "role": "viewer", "password": OTHER }));
    assert_eq!(code(&again), (412, "conflict".to_owned()));
    for (body, pointers) in [
        (json!({ "name": "Ben", "role": "viewer", "password": OTHER }), vec!["/name"]),
        (json!({ "name": "b\u{0}n", "role": "viewer", "password": "elevenchars" }), vec!["/name", "/password"]),
        (json!({ "name": "carl", "role": "viewer", "password": "passwordpassword" }), vec!["/password"]),
    ] {
        let answer = ana.post("/api/v1/users", &body);
        assert_eq!((answer.status, answer.pointers()), (422, pointers.into_iter().map(str::to_owned).collect()));
    }
    let ben = server.sign_in_as("ben", OTHER);
    assert_eq!(ben.get("/api/v1/session").json()["role"], "editor");
    // A new role ends his sessions; a tag of before is refused with the present one.
    let old = tag(&ana, "ben");
    let changed = change(&ana, "ben", &old, &json!({ "role": "viewer" }));
    assert_eq!((changed.status, &changed.json()["role"]), (200, &json!("viewer")), "{changed:?}");
    assert_eq!(ben.get("/api/v1/session").status, 401);
    let stale = change(&ana, "ben", &old, &json!({ "role": "admin" }));
    assert_eq!(code(&stale), (412, "conflict".to_owned()));
    assert_eq!(stale.json()["conflicts"][0]["present"]["etag"], json!(tag(&ana, "ben")));
    assert_eq!(ana.send("DELETE", "/api/v1/users/ben", &[], None).status, 428);
    // A new password too; the old one is none any more.
    let ben = server.sign_in_as("ben", OTHER);
    assert_eq!(change(&ana, "ben", &tag(&ana, "ben"), &json!({ "password": PASSWORD })).status, 200);
    assert_eq!(ben.get("/api/v1/session").status, 401);
    let try_with = |password: &str| {
        server.stranger().post("/api/v1/session", &json!({ "name": "ben", "password": password })).status
    };
    assert_eq!((try_with(OTHER), try_with(PASSWORD)), (401, 200));
    assert_eq!(change(&ana, "ben", &tag(&ana, "ben"), &json!({})).status, 422);
    let ben = server.sign_in_as("ben", PASSWORD);
    assert_eq!(remove(&ana, "ben", &tag(&ana, "ben")).status, 204);
    assert_eq!((ben.get("/api/v1/session").status, try_with(PASSWORD)), (401, 401));
    for gone in ["ben", "%00", "Ana"] {
        assert_eq!(ana.get(&format!("/api/v1/users/{gone}")).status, 404, "{gone}");
    }
}

#[test]
fn the_last_administrator_stays_and_nobody_demotes_himself() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let own = "own_account".to_owned();
    assert_eq!(code(&change(&ana, "ana", &tag(&ana, "ana"), &json!({ "role": "viewer" }))), (409, own.clone()));
    assert_eq!(code(&remove(&ana, "ana", &tag(&ana, "ana"))), (409, own.clone()));
    // Nor by a token that he made, or that this one made.
    let (script, _) = ana.script(&json!({ "role": "admin" }));
    let (second, _) = script.script(&json!({ "role": "admin" }));
    for script in [&script, &second] {
        assert_eq!(code(&remove(script, "ana", &tag(&ana, "ana"))), (409, own.clone()));
        assert_eq!(code(&change(script, "ana", &tag(&ana, "ana"), &json!({ "password": OTHER }))), (409, own.clone()));
    }
    assert_eq!(ana.get("/api/v1/session").status, 200, "nothing was changed");
    // With another one there, the first can go; what he made for more than he is now goes too, but for nodes.
    let other = ana.add("admin", &server);
    let (editor, _) = ana.script(&json!({ "role": "editor" }));
    let (node, _) = ana.script(&json!({ "scope": "node" }));
    assert_eq!(change(&other, "ana", &tag(&other, "ana"), &json!({ "role": "editor" })).status, 200);
    assert_eq!((script.get("/api/v1/me").status, editor.get("/api/v1/me").status), (401, 200));
    assert_eq!(remove(&other, "ana", &tag(&other, "ana")).status, 204);
    assert_eq!((editor.get("/api/v1/me").status, node.get("/api/v1/me").json()["is_node"].clone()), (401, json!(true)));
}

#[test]
fn sessions_are_listed_and_ended() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let ben = ana.add("viewer", &server);
    let second = server.sign_in_as("viewer", PASSWORD);
    let ids = |client: &Client, path: &str| -> Vec<(String, bool)> {
        let list = client.get(path).json();
        let of = |item: &Value| (item["id"].as_str().expect("text").to_owned(), item["is_this"] == true);
        list["items"].as_array().expect("items").iter().map(of).collect()
    };
    let own = ids(&ben, "/api/v1/me/sessions");
    assert_eq!((own.len(), own.iter().filter(|(_, is_this)| *is_this).count()), (2, 1));
    let row = &ana.get("/api/v1/users/viewer/sessions").json()["items"][0];
    assert_eq!(row["address"], "127.0.0.1");
    assert!(row["browser"].as_str().is_some_and(|name| name.contains("ureq")), "{row}");
    let other = &own.iter().find(|(_, is_this)| !is_this).expect("another").0;
    assert_eq!(ana.send("DELETE", &format!("/api/v1/me/sessions/{other}"), &[], None).status, 404, "of somebody else");
    assert_eq!(ben.send("DELETE", &format!("/api/v1/me/sessions/{other}"), &[], None).status, 204);
    assert_eq!((ben.get("/api/v1/session").status, second.get("/api/v1/session").status), (200, 401));
    let third = server.sign_in_as("viewer", PASSWORD);
    assert_eq!(third.send("DELETE", "/api/v1/me/sessions", &[], None).status, 204);
    assert_eq!((ben.get("/api/v1/session").status, third.get("/api/v1/session").status), (401, 200));
    let id = &ids(&ana, "/api/v1/users/viewer/sessions")[0].0;
    assert_eq!(ana.send("DELETE", &format!("/api/v1/users/viewer/sessions/{id}"), &[], None).status, 204);
    assert_eq!(third.get("/api/v1/session").status, 401);
    let fourth = server.sign_in_as("viewer", PASSWORD);
    assert_eq!(ana.send("DELETE", "/api/v1/users/viewer/sessions", &[], None).status, 204);
    assert_eq!(fourth.get("/api/v1/session").status, 401);
    assert_eq!(ids(&ana, "/api/v1/users/viewer/sessions"), []);
}

#[test]
fn a_session_that_is_used_goes_on_until_its_end() {
    let (folder, server) = fresh();
    let ana = server.administrator();
    let hours_left = || {
        let end: jiff::Timestamp =
            ana.get("/api/v1/session").json()["expires_at"].as_str().expect("an end").parse().expect("an instant");
        end.duration_since(jiff::Timestamp::now()).as_hours()
    };
    let now = jiff::Timestamp::now().as_second();
    let seen = || -> jiff::Timestamp {
        let list = ana.get("/api/v1/me/sessions").json();
        list["items"][0]["last_seen_at"].as_str().expect("an instant").parse().expect("an instant")
    };
    // Eleven hours idle, and one to go: being here is noted beside the request.
    folder.home().execute(&format!("UPDATE sessions SET last_seen_at = {}", now - 11 * 3_600));
    wait_until("it was used", || seen().as_second() >= now);
    assert_eq!(hours_left(), 11);
    folder.home().execute(&format!("UPDATE sessions SET expires_at = {}", now + 3_700));
    assert_eq!(hours_left(), 1, "its whole life is nearly over");
    folder.home().execute(&format!("UPDATE sessions SET expires_at = {now}"));
    assert_eq!(ana.get("/api/v1/session").status, 401);
}

#[test]
fn ones_own_password_is_changed_by_who_knows_it() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let other = server.sign_in();
    let put = |present: &str, password: &str| {
        let body = json!({ "present": present, "password": password }).to_string().into_bytes();
        ana.send("PUT", "/api/v1/me/password", &[], Some(body))
    };
    let wrong = put("not my password", OTHER);
    assert_eq!((wrong.status, wrong.pointers()), (422, vec!["/present".to_owned()]));
    let common = put(PASSWORD, "passwordpassword");
    assert_eq!((common.status, common.pointers()), (422, vec!["/password".to_owned()]));
    assert_eq!(put(PASSWORD, OTHER).status, 204);
    assert_eq!((ana.get("/api/v1/session").status, other.get("/api/v1/session").status), (200, 401));
    let try_with = |password: &str| {
        server.stranger().post("/api/v1/session", &json!({ "name": "ana", "password": password })).status
    };
    assert_eq!((try_with(PASSWORD), try_with(OTHER)), (401, 200));
    assert_eq!(
        ana.get("/api/v1/me").json(),
        json!({ "name": "ana", "role": "admin", "signs_in": "password", "is_node": false, "kinds": null })
    );
    let roles = ana.get("/api/v1/roles").json();
    let roles: Vec<&str> =
        roles["items"].as_array().expect("items").iter().filter_map(|role| role["id"].as_str()).collect();
    assert_eq!(roles, ["viewer", "operator", "editor", "admin"]);
}

/// Who changes his password while an administrator gives him another one does not undo that.
#[test]
#[expect(clippy::disallowed_methods, reason = "the limit of a wait is real time")]
fn a_password_that_an_administrator_gave_stays() {
    let folder = Folder::new();
    let server = Server::start_with(folder.home(), |settings| {
        settings.access.trusted_proxies = vec!["127.0.0.0/8".parse().expect("a network")];
    });
    let ana = server.administrator();
    let (mut turn, mut given_meanwhile) = (0, 0);
    let began = Instant::now();
    while turn < 4 || given_meanwhile == 0 {
        assert!(began.elapsed() < 3 * PATIENCE, "they never were at it at once");
        // Tries are limited by name and by address, so each turn has its own.
        let (name, address) = (format!("ben-{turn}"), format!("198.51.{}.{}", 100 + turn / 250, 1 + turn % 250));
        let from = [("x-forwarded-for", address.as_str())];
        let added = ana.post("/api/v1/users", &json!({ "name": name, "role": "viewer", "password": PASSWORD }));
        assert_eq!(added.status, 201, "{added:?}");
        let ben = server.sign_in_from(&address, &name, PASSWORD);
        let (own, given) = (format!("a password of his own, {turn}"), format!("a password that was given, {turn}"));
        let etag = tag(&ana, &name);
        let (changed, reset) = std::thread::scope(|scope| {
            let body = json!({ "present": PASSWORD, "password": own }).to_string().into_bytes();
            let (ben, from) = (&ben, &from);
            let changing = scope.spawn(move || ben.send("PUT", "/api/v1/me/password", from, Some(body)).status);
            // At another moment of the other request in each turn.
            std::thread::sleep(Duration::from_millis(turn % 16 * 2));
            let reset = change(&ana, &name, &etag, &json!({ "password": given })).status;
            (changing.join().expect("it ends well"), reset)
        });
        let holds = if reset == 200 { given } else { own };
        // Where the new one is there already, what he says is his present one is wrong.
        assert!(matches!((changed, reset), (204, 412) | (401 | 412 | 422, 200)), "{turn}: {changed} {reset}");
        given_meanwhile += u32::from(changed == 412);
        server.sign_in_from(&address, &name, &holds);
        turn += 1;
    }
}

/// Whoever comes back under a name is another user, with another tag.
#[test]
fn a_tag_is_of_one_user() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let add = || {
        let added = ana.post("/api/v1/users", &json!({ "name": "ben", "role": "viewer", "password": OTHER }));
        assert_eq!(added.status, 201, "{added:?}");
    };
    add();
    let first = tag(&ana, "ben");
    assert_eq!(remove(&ana, "ben", &first).status, 204);
    add();
    assert_ne!(tag(&ana, "ben"), first);
    assert_eq!(code(&remove(&ana, "ben", &first)), (412, "conflict".to_owned()));
}

/// Lines of his event stream, after its beginning: before a sign of life by itself, which comes after 15 seconds.
fn stream(server: &Server, of: &Client) -> impl Iterator<Item = String> + use<> {
    let agent = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(14))).build().new_agent();
    let answer = agent.get(format!("{}/api/v1/stream", server.url)).header("cookie", of.cookie()).call();
    let mut lines = BufReader::new(answer.expect("a stream").into_body().into_reader()).lines().map_while(Result::ok);
    assert!(lines.by_ref().any(|line| line == "event: hello"));
    lines
}

#[test]
fn a_stream_says_that_the_role_changed() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let ben = ana.add("viewer", &server);
    let mut lines = stream(&server, &ben);
    assert_eq!(change(&ana, "viewer", &tag(&ana, "viewer"), &json!({ "role": "operator" })).status, 200);
    assert!(lines.by_ref().any(|line| line == "event: bye"));
    assert!(lines.any(|line| line.contains("role changed")));
}

/// `tidegate admin user` has the database, and not the server.
#[test]
fn what_a_command_does_holds_at_once_in_a_server_that_runs() {
    let (folder, server) = fresh();
    let ana = server.administrator();
    let ben = ana.add("viewer", &server);
    let home = folder.home();
    let mut lines = block_on(async {
        let people = People::open(&home.data, home.url().as_ref()).await.expect("it opens");
        people.add("carl", Role::Operator, OTHER.to_owned()).await.expect("he is added");
        for (name, says) in [("carl", "there is a user `carl`"), ("tidegate", "server itself"), ("Carl", "begin with")]
        {
            let refused = people.add(name, Role::Viewer, OTHER.to_owned()).await.expect_err("it is refused");
            assert!(refused.to_string().contains(says), "{refused}");
        }
        let last = people.reset("ana", Some(Role::Viewer), OTHER.to_owned()).await.expect_err("it is refused");
        assert!(last.to_string().contains("last administrator"), "{last}");
        let lines = stream(&server, &ben);
        people.reset("viewer", Some(Role::Operator), OTHER.to_owned()).await.expect("he is there");
        let users = people.list().await.expect("a list");
        let users: Vec<_> = users.iter().map(|(name, role)| (name.as_str(), *role)).collect();
        assert_eq!(users, [("ana", "admin"), ("carl", "operator"), ("viewer", "operator")]);
        people.close().await;
        lines
    });
    assert!(lines.any(|line| line == "event: bye"));
    assert_eq!(ben.get("/api/v1/me").status, 401);
    assert_eq!(server.sign_in_as("viewer", OTHER).get("/api/v1/me").json()["role"], "operator");
    assert_eq!(server.sign_in_as("carl", OTHER).get("/api/v1/me").json()["role"], "operator");
    let lines = ana.get("/api/v1/audit?actor=tidegate&object=user:viewer").json();
    assert_eq!(lines["items"].as_array().expect("items").len(), 2, "{lines}");
}
