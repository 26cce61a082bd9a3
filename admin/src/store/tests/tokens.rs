//! Tokens of scripts and nodes.

use crate::{
    domain::{
        objects::Kind as ObjectKind,
        roles::{May, Role},
    },
    store::{
        audit::Audit,
        database::Store,
        tests::{Home, LINE, at_once},
        tokens::{Added, Token},
    },
};

on_both! {
    tokens_come_back_until_they_end,
    tokens_are_listed_newest_first,
    tokens_are_bounded_and_names_are_given_once,
    of_tokens_at_once_one_has_the_name,
    the_last_place_is_taken_once,
    a_token_is_replaced_once,
    of_replacements_at_once_one_is_made,
    a_token_is_removed_once,
    the_first_use_of_a_day_is_in_the_audit_log,
}

const ADDED: Audit<'static> = Audit { action: "token.add", ..LINE };
const REMOVED: Audit<'static> = Audit { action: "token.remove", ..LINE };
const DAY: i64 = 86_400;

fn token(id: &str, made_at: i64, ends_at: i64) -> Token {
    Token {
        id: id.to_owned(),
        name: format!("name of {id}"),
        may: May::Role(Role::Editor),
        kinds: None,
        made_by: "ana".to_owned(),
        made_at,
        ends_at,
        last_used_at: 0,
        last_used_address: String::new(),
        replaced_at: 0,
    }
}

async fn add(store: &Store, token: &Token, replaces: Option<(&str, i64)>, count_max: i64) -> Added {
    store.add_token(token, &format!("sha of {}", token.id), replaces, count_max, ADDED).await.expect("an answer")
}

async fn tokens_come_back_until_they_end(home: &Home) {
    let store = &home.store;
    let kinds = [ObjectKind::Tier, ObjectKind::Client];
    let made = Token { kinds: Some(kinds.to_vec()), ..token("a", 100, 200) };
    let node = Token { may: May::Node, ..token("n", 100, 0) };
    assert_eq!((add(store, &made, None, 9).await, add(store, &node, None, 9).await), (Added::Done, Added::Done));
    let found = store.token("a", 100).await.expect("an answer").expect("the token");
    assert_eq!(
        (&*found.id, &*found.name, found.may, found.kinds.as_deref()),
        ("a", "name of a", made.may, Some(&kinds[..]))
    );
    assert_eq!((&*found.made_by, found.made_at, found.ends_at), ("ana", 100, 200));
    assert_eq!((found.last_used_at, &*found.last_used_address, found.replaced_at), (0, "", 0));
    let by_sha = async |sha: &str, now| store.token_of(sha, now).await.expect("an answer").map(|token| token.id);
    assert_eq!(by_sha("sha of a", 199).await.as_deref(), Some("a"));
    assert_eq!((by_sha("sha of a", 200).await, by_sha("a", 100).await, by_sha("", 100).await), (None, None, None));
    assert!(
        store.token("a", 199).await.expect("an answer").is_some()
            && store.token("a", 200).await.expect("an answer").is_none()
    );
    let node = store.token_of("sha of n", i64::MAX).await.expect("an answer").expect("it never ends");
    assert_eq!((node.may, node.kinds), (May::Node, None));
    home.execute("UPDATE tokens SET kinds = 'tier,wish' WHERE id = 'a'").await;
    assert!(matches!(store.token("a", 100).await, Err(sqlx::Error::Decode(_))), "never taken for a token of all kinds");
    home.execute("UPDATE tokens SET role = 'king' WHERE id = 'n'").await;
    assert!(matches!(store.token_of("sha of n", 100).await, Err(sqlx::Error::Decode(_))));
}

async fn tokens_are_listed_newest_first(home: &Home) {
    let store = &home.store;
    for (id, made_at, ends_at) in [("b", 100, 0), ("c", 101, 300), ("a", 100, 200), ("d", 99, 0)] {
        assert_eq!(add(store, &token(id, made_at, ends_at), None, 9).await, Added::Done);
    }
    let ids =
        async |now| store.tokens(now).await.expect("a list").into_iter().map(|token| token.id).collect::<String>();
    assert_eq!(
        (ids(101).await, ids(199).await, ids(200).await, ids(300).await),
        ("cabd".into(), "cabd".into(), "cbd".into(), "bd".to_owned())
    );
}

async fn tokens_are_bounded_and_names_are_given_once(home: &Home) {
    let store = &home.store;
    assert_eq!(add(store, &token("a", 100, 200), None, 2).await, Added::Done);
    assert_eq!(add(store, &token("b", 100, 0), None, 2).await, Added::Done);
    assert_eq!(add(store, &token("c", 150, 0), None, 2).await, Added::Full);
    let taken = Token { name: "name of a".to_owned(), ..token("d", 150, 0) };
    assert_eq!(add(store, &taken, None, 9).await, Added::NameTaken);
    assert_eq!(home.lines("token.add").await, 2, "a refusal writes no line");
    // The name that was refused for want of room is free; what ended made room, and left its name.
    assert_eq!(add(store, &token("c", 200, 0), None, 2).await, Added::Done);
    let taken = Token { made_at: 201, ..taken };
    assert_eq!(add(store, &taken, None, 9).await, Added::NameTaken);
    assert_eq!(home.number("SELECT count(*) FROM tokens").await, 2);
}

async fn of_tokens_at_once_one_has_the_name(home: &Home) {
    let stores = [home.store.clone(), home.another().await];
    let adding = (0..8).map(|number| {
        let store = stores[number % 2].clone();
        let token = Token { name: "ci".to_owned(), ..token(&number.to_string(), 100, 0) };
        async move { add(&store, &token, None, 100).await }
    });
    let outcomes = at_once(adding).await;
    assert_eq!(outcomes.iter().filter(|added| **added == Added::Done).count(), 1, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|added| **added == Added::NameTaken).count(), 7, "{outcomes:?}");
    assert_eq!((home.number("SELECT count(*) FROM tokens").await, home.lines("token.add").await), (1, 1));
}

async fn the_last_place_is_taken_once(home: &Home) {
    let stores = [home.store.clone(), home.another().await];
    let adding = (0..6).map(|number| {
        let store = stores[number % 2].clone();
        async move { add(&store, &token(&number.to_string(), 100, 0), None, 2).await }
    });
    let outcomes = at_once(adding).await;
    assert_eq!(outcomes.iter().filter(|added| **added == Added::Done).count(), 2, "{outcomes:?}");
    assert_eq!(home.number("SELECT count(*) FROM token_names").await, 2, "names of those that had no room are free");
}

async fn a_token_is_replaced_once(home: &Home) {
    let store = &home.store;
    for (id, ends_at) in [("never", 0), ("later", 900), ("sooner", 400)] {
        assert_eq!(add(store, &token(id, 100, ends_at), None, 9).await, Added::Done);
        let next = Token { name: format!("name of {id}"), ..token(&format!("{id}-2"), 200, 0) };
        assert_eq!(add(store, &next, Some((id, 500)), 9).await, Added::Done, "under the same name");
        let old = store.token(id, 200).await.expect("an answer").expect("it goes on for a while");
        assert_eq!((old.replaced_at, old.ends_at), (200, if id == "sooner" { 400 } else { 500 }), "{id}");
        let third = Token { id: format!("{id}-3"), ..next };
        assert_eq!(add(store, &third, Some((id, 500)), 9).await, Added::Replaced);
    }
    assert_eq!(add(store, &token("x", 200, 0), Some(("absent", 500)), 9).await, Added::Absent);
    assert_eq!(add(store, &token("x", 500, 0), Some(("never", 900)), 9).await, Added::Absent, "it has ended by then");
    assert_eq!(home.lines("token.add").await, 6);
    // Where there is no room, the other is left as it is.
    let full = token("full", 200, 0);
    assert_eq!(add(store, &full, Some(("never-2", 500)), 3).await, Added::Full);
    assert_eq!(store.token("never-2", 200).await.expect("an answer").expect("it is there").replaced_at, 0);
}

async fn of_replacements_at_once_one_is_made(home: &Home) {
    let stores = [home.store.clone(), home.another().await];
    assert_eq!(add(&home.store, &token("old", 100, 0), None, 9).await, Added::Done);
    let replacing = (0..6).map(|number| {
        let store = stores[number % 2].clone();
        async move { add(&store, &token(&number.to_string(), 200, 0), Some(("old", 500)), 9).await }
    });
    let outcomes = at_once(replacing).await;
    assert_eq!(outcomes.iter().filter(|added| **added == Added::Done).count(), 1, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|added| **added == Added::Replaced).count(), 5, "{outcomes:?}");
    assert_eq!(home.store.tokens(200).await.expect("a list").len(), 2);
}

async fn a_token_is_removed_once(home: &Home) {
    let (a, b) = (home.store.clone(), home.another().await);
    assert_eq!(add(&a, &token("a", 100, 0), None, 9).await, Added::Done);
    let removing =
        [a.clone(), b].map(|store| async move { store.remove_token("a", REMOVED).await.expect("an answer") });
    let mut removed = at_once(removing).await;
    removed.sort_unstable();
    assert_eq!(removed, [false, true]);
    assert!(!a.remove_token("absent", REMOVED).await.expect("an answer"));
    assert!(a.token_of("sha of a", 100).await.expect("an answer").is_none());
    assert_eq!(home.lines("token.remove").await, 1);
}

async fn the_first_use_of_a_day_is_in_the_audit_log(home: &Home) {
    let store = &home.store;
    assert_eq!(add(store, &token("a", 100, 0), None, 9).await, Added::Done);
    let start = store.newest_audit().await.expect("a number");
    let see = async |at| store.saw_token("a", "token:ci", ("192.0.2.7", "r-1"), at).await.expect("it is written");
    for at in [10 * DAY, 10 * DAY + 1, 11 * DAY - 1] {
        see(at).await;
    }
    let lines = store.audit_lines_after(start, 9).await.expect("lines");
    let about: Vec<_> = lines
        .iter()
        .map(|line| {
            [&line.actor, &line.address, &line.action, &line.object, &line.result, &line.request_id].map(|text| &**text)
        })
        .collect();
    assert_eq!(about, [["token:ci", "192.0.2.7", "token.use", "token:a", "first of the day", "r-1"]]);
    see(11 * DAY).await;
    let found = store.token("a", 100).await.expect("an answer").expect("the token");
    assert_eq!((found.last_used_at, &*found.last_used_address), (11 * DAY, "192.0.2.7"));
    assert_eq!(home.lines("token.use").await, 2);
    store.saw_token("gone", "token:gone", ("", ""), 12 * DAY).await.expect("nothing to do");
    assert_eq!(home.lines("token.use").await, 2, "a token that is gone writes no line");
    // At once it is the first use once.
    let seeing = [home.store.clone(), home.another().await].map(|store| async move {
        store.saw_token("a", "token:ci", ("192.0.2.7", "r-1"), 13 * DAY).await.expect("it is written");
    });
    at_once(seeing).await;
    assert_eq!(home.lines("token.use").await, 3);
}
