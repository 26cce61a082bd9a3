//! Sessions.

use crate::{
    domain::roles::Role,
    store::{
        audit::Audit,
        database::Store,
        sessions::{Ending, NewSession, OF_USER_MAX, Proof, UsedSignIn},
        tests::{Home, LIFE, LINE, at_once},
        users::Means,
    },
};

on_both! {
    a_session_comes_back_until_it_ends,
    a_session_that_is_used_lives_on,
    a_new_session_removes_those_that_ended,
    a_user_keeps_the_sessions_that_were_used_last,
    sessions_of_a_user_are_listed_by_their_use,
    sessions_end_as_they_are_named,
    of_endings_at_once_one_counts,
    no_session_begins_of_a_user_who_was_changed,
    sessions_of_one_user_at_once_all_begin,
    a_sign_in_begins_one_session_at_once,
}

const ENDED: Audit<'static> = Audit { action: "session.end", ..LINE };
const BEGUN: Audit<'static> = Audit { action: "session.begin", ..LINE };

async fn first(store: &Store) -> (i64, i64) {
    store.add_first_administrator("ana", "hash", 1, LINE).await.expect("an answer").expect("the first")
}

fn new(token_sha256: &str, user: (i64, i64), begins_at: i64) -> NewSession<'_> {
    NewSession {
        token_sha256,
        user,
        csrf: "csrf",
        proof: Proof::Password,
        begins_at,
        life: LIFE,
        address: "192.0.2.1",
        browser: "b/1",
    }
}

async fn begin(store: &Store, token_sha256: &str, user: (i64, i64), begins_at: i64) -> bool {
    store.begin_session(new(token_sha256, user, begins_at), BEGUN).await.expect("an answer")
}

async fn is_there(store: &Store, token_sha256: &str, now: i64) -> bool {
    store.session(token_sha256, now, LIFE).await.expect("an answer").is_some()
}

async fn a_session_comes_back_until_it_ends(home: &Home) {
    let store = &home.store;
    let ana = first(store).await;
    assert!(begin(store, "a", ana, 100).await);
    let session = store.session("a", 100, LIFE).await.expect("an answer").expect("the session");
    assert_eq!((&*session.token_sha256, session.user, &*session.name, session.role), ("a", ana.0, "ana", Role::Admin));
    assert_eq!((&*session.csrf, session.expires_at, session.last_seen_at), ("csrf", 100 + LIFE.whole_s, 100));
    assert!(!is_there(store, "b", 100).await && !is_there(store, "", 100).await);
    assert!(is_there(store, "a", 100 + LIFE.idle_s - 1).await && !is_there(store, "a", 100 + LIFE.idle_s).await);
    let count = async |now| store.count_sessions(now, LIFE).await.expect("a count");
    assert_eq!((count(100).await, count(100 + LIFE.idle_s - 1).await, count(100 + LIFE.idle_s).await), (1, 1, 0));
    let seen = store.user("ana", 100, LIFE).await.expect("an answer").expect("the user").last_seen_at;
    assert_eq!((seen, home.lines("session.begin").await), (100, 1));
}

async fn a_session_that_is_used_lives_on(home: &Home) {
    let store = &home.store;
    let ana = first(store).await;
    assert!(begin(store, "a", ana, 100).await);
    store.saw_session("a", ana.0, "192.0.2.9", 150).await.expect("it is written");
    assert!(is_there(store, "a", 150 + LIFE.idle_s - 1).await && !is_there(store, "a", 150 + LIFE.idle_s).await);
    let row = &store.sessions_of(ana.0, 150, LIFE).await.expect("a list")[0];
    assert_eq!((&*row.address, row.last_seen_at, row.created_at), ("192.0.2.9", 150, 100));
    assert_eq!(store.user("ana", 150, LIFE).await.expect("an answer").expect("the user").last_seen_at, 150);
    // However much it is used, it ends.
    let end = 100 + LIFE.whole_s;
    store.saw_session("a", ana.0, "192.0.2.9", end - 1).await.expect("it is written");
    assert!(is_there(store, "a", end - 1).await && !is_there(store, "a", end).await);
    assert_eq!(store.count_sessions(end, LIFE).await.expect("a count"), 0);
    // A session that is gone is not made by its use.
    store.saw_session("b", ana.0, "", 150).await.expect("nothing to do");
    assert_eq!(home.number("SELECT count(*) FROM sessions").await, 1);
}

async fn a_new_session_removes_those_that_ended(home: &Home) {
    let store = &home.store;
    let ana = first(store).await;
    for (token, at) in [("idle", 100), ("there", 101)] {
        assert!(begin(store, token, ana, at).await);
    }
    assert!(begin(store, "new", ana, 100 + LIFE.idle_s).await);
    assert_eq!(home.number("SELECT count(*) FROM sessions").await, 2);
    assert!(is_there(store, "there", 100 + LIFE.idle_s).await);
    let end = 101 + LIFE.whole_s;
    store.saw_session("there", ana.0, "", end).await.expect("it is written");
    assert!(begin(store, "newer", ana, end).await);
    assert_eq!(home.number("SELECT count(*) FROM sessions").await, 1, "one had lived its whole life");
}

async fn a_user_keeps_the_sessions_that_were_used_last(home: &Home) {
    let store = &home.store;
    let ana = first(store).await;
    assert!(store.add_user(("ben", Role::Viewer, Means::Password("hash")), 1, LINE).await.expect("an answer"));
    let ben = store.login("ben").await.expect("an answer").expect("there is one");
    assert!(begin(store, "of ben", (ben.id, ben.revision), 100).await);
    let name = |number: i64| format!("s-{number:03}");
    for number in 1..=OF_USER_MAX {
        assert!(begin(store, &name(number), ana, 100).await);
    }
    assert!(is_there(store, &name(1), 100).await && is_there(store, &name(2), 100).await, "it has all that it may");
    for number in (1..=OF_USER_MAX).filter(|number| *number != 2) {
        store.saw_session(&name(number), ana.0, "", 101).await.expect("it is noted");
    }
    assert!(begin(store, "new", ana, 102).await);
    assert!(!is_there(store, &name(2), 102).await, "the one that was not used");
    for kept in [&name(1), &name(3), &name(OF_USER_MAX), "new", "of ben"] {
        assert!(is_there(store, kept, 102).await, "{kept}");
    }
}

async fn sessions_of_a_user_are_listed_by_their_use(home: &Home) {
    let store = &home.store;
    let ana = first(store).await;
    assert!(store.add_user(("ben", Role::Viewer, Means::Password("h")), 1, LINE).await.expect("an answer"));
    let ben = store.user("ben", 1, LIFE).await.expect("an answer").expect("the user");
    for (token, user, at) in [("b", ana, 100), ("a", ana, 100), ("c", ana, 101), ("d", (ben.id, ben.revision), 100)] {
        assert!(begin(store, token, user, at).await);
    }
    let of = async |user, now| {
        let rows = store.sessions_of(user, now, LIFE).await.expect("a list");
        rows.into_iter().map(|row| row.token_sha256).collect::<String>()
    };
    assert_eq!((of(ana.0, 101).await, of(ben.id, 101).await), ("cab".to_owned(), "d".to_owned()));
    store.saw_session("b", ana.0, "", 110).await.expect("it is written");
    assert_eq!((of(ana.0, 110).await, of(ana.0, 100 + LIFE.idle_s).await), ("bca".to_owned(), "bc".to_owned()));
    assert_eq!(of(ana.0 + 1_000, 101).await, "");
    let row = &store.sessions_of(ben.id, 101, LIFE).await.expect("a list")[0];
    assert_eq!((&*row.browser, row.expires_at), ("b/1", 100 + LIFE.whole_s));
}

async fn sessions_end_as_they_are_named(home: &Home) {
    let store = &home.store;
    let ana = first(store).await;
    assert!(store.add_user(("ben", Role::Viewer, Means::Password("h")), 1, LINE).await.expect("an answer"));
    let ben = store.user("ben", 1, LIFE).await.expect("an answer").expect("the user");
    let long = ["0123456789abcdefone", "0123456789abcdeetwo", "three", "four"];
    for token in long {
        assert!(begin(store, token, ana, 100).await);
    }
    assert!(begin(store, "of ben", (ben.id, ben.revision), 100).await);
    let end = async |user, which| store.end_sessions(user, which, ENDED).await.expect("a count");
    assert_eq!(end(ben.id, Ending::One("0123456789abcdef")).await, 0, "of another user");
    assert_eq!(end(ana.0, Ending::One("0123")).await, 0, "less than an id");
    assert_eq!(home.lines("session.end").await, 0, "nothing was ended");
    assert_eq!(end(ana.0, Ending::One("0123456789abcdef")).await, 1);
    assert!(!is_there(store, long[0], 100).await && is_there(store, long[1], 100).await);
    assert_eq!(end(ana.0, Ending::Others("three")).await, 2);
    assert!(is_there(store, "three", 100).await && !is_there(store, "four", 100).await);
    let sign_outs = async || store.login("ana").await.expect("an answer").expect("a login").sign_outs;
    assert_eq!(sign_outs().await, 1, "not by the end of one");
    assert_eq!((end(ana.0, Ending::All).await, end(ana.0, Ending::All).await), (1, 0));
    assert!(is_there(store, "of ben", 100).await);
    // Browsers that are known end without a session too.
    assert_eq!((sign_outs().await, home.lines("session.end").await), (3, 4));
    assert_eq!(store.login("ben").await.expect("an answer").expect("a login").sign_outs, 0);
}

async fn of_endings_at_once_one_counts(home: &Home) {
    let stores = [home.store.clone(), home.another().await];
    let ana = first(&home.store).await;
    for number in 0..3 {
        assert!(begin(&home.store, &number.to_string(), ana, 100).await);
    }
    let ending = (0..6).map(|number| {
        let store = stores[number % 2].clone();
        async move { store.end_sessions(ana.0, Ending::All, ENDED).await.expect("a count") }
    });
    let mut ended = at_once(ending).await;
    ended.sort_unstable();
    assert_eq!(ended, [0, 0, 0, 0, 0, 3]);
    // Each ends the browsers that are known.
    assert_eq!(home.lines("session.end").await, 6);
}

async fn no_session_begins_of_a_user_who_was_changed(home: &Home) {
    let store = &home.store;
    let ana = first(store).await;
    for stale in [(ana.0, ana.1 + 1), (ana.0 + 1_000, ana.1)] {
        assert!(!begin(store, "a", stale, 100).await);
    }
    assert_eq!((home.lines("session.begin").await, home.number("SELECT count(*) FROM sessions").await), (0, 0));
    assert!(begin(store, "a", ana, 100).await);
    // One token is one session.
    let again = store.begin_session(new("a", ana, 100), BEGUN).await.expect_err("it is there");
    assert!(again.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation), "{again}");
    assert_eq!(home.lines("session.begin").await, 1);
}

async fn sessions_of_one_user_at_once_all_begin(home: &Home) {
    let stores = [home.store.clone(), home.another().await];
    let ana = first(&home.store).await;
    let beginning = (0..8).map(|number| {
        let store = stores[number % 2].clone();
        async move { begin(&store, &number.to_string(), ana, 100).await }
    });
    assert!(at_once(beginning).await.into_iter().all(|begun| begun));
    assert_eq!(home.store.count_sessions(100, LIFE).await.expect("a count"), 8);
    assert_eq!(home.lines("session.begin").await, 8);
}

async fn a_sign_in_begins_one_session_at_once(home: &Home) {
    let stores = [home.store.clone(), home.another().await];
    let ana = first(&home.store).await;
    let beginning = (0..8).map(|number| {
        let store = stores[number % 2].clone();
        async move {
            let token = number.to_string();
            let proof = Proof::Provider(UsedSignIn { state_sha256: "state", ends_at: 110 });
            let new = NewSession { proof, ..new(&token, ana, 100) };
            store.begin_session(new, BEGUN).await.expect("an answer")
        }
    });
    assert_eq!(at_once(beginning).await.into_iter().filter(|begun| *begun).count(), 1);
    assert_eq!(home.store.count_sessions(100, LIFE).await.expect("a count"), 1);
    assert_eq!(home.lines("session.begin").await, 1);
}
