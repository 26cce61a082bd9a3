//! Users.

use crate::{
    domain::roles::{May, Role},
    store::{
        audit::Audit,
        database::Store,
        sessions::{NewSession, Proof},
        tests::{Home, LIFE, LINE, at_once},
        tokens::{Added, Token},
        users::{Edit, Means, Outcome, User},
    },
};

on_both! {
    one_first_administrator_is_made,
    of_first_administrators_at_once_one_is_made,
    users_come_back_in_the_order_of_their_names,
    a_name_and_a_subject_are_one_user,
    of_users_at_once_one_has_the_name,
    logins_are_of_those_who_have_a_password,
    a_user_is_changed_only_as_they_were_read,
    of_changes_at_once_one_is_made,
    the_last_administrator_stays,
    of_two_administrators_at_once_one_stays,
    a_lower_role_takes_sessions_and_tokens_away,
    a_user_is_removed_with_what_is_theirs,
    shutting_out_leaves_a_viewer,
}

const ADDED: Audit<'static> = Audit { action: "user.add", ..LINE };
const CHANGED: Audit<'static> = Audit { action: "user.change", ..LINE };
const REMOVED: Audit<'static> = Audit { action: "user.remove", ..LINE };

async fn first(store: &Store) -> (i64, i64) {
    let added = store.add_first_administrator("ana", "hash of ana", 7, ADDED).await;
    added.expect("an answer").expect("the first administrator")
}

async fn add(store: &Store, name: &str, role: Role) -> User {
    assert!(store.add_user((name, role, Means::Password("hash")), 9, ADDED).await.expect("an answer"));
    store.user(name, 9, LIFE).await.expect("an answer").expect("the user")
}

fn key(user: &User) -> (i64, i64) {
    (user.id, user.revision)
}

async fn begin(store: &Store, user: (i64, i64), token_sha256: &str) {
    let proof = Proof::Password;
    let new = NewSession { token_sha256, user, csrf: "c", proof, begins_at: 9, life: LIFE, address: "", browser: "" };
    assert!(store.begin_session(new, LINE).await.expect("an answer"), "{token_sha256}");
}

async fn token(store: &Store, made_by: &str, may: May) -> String {
    let id = format!("{made_by}-{}", may.name());
    let token = Token {
        id: id.clone(),
        name: id.clone(),
        may,
        kinds: None,
        made_by: made_by.to_owned(),
        made_at: 9,
        ends_at: 0,
        last_used_at: 0,
        last_used_address: String::new(),
        replaced_at: 0,
    };
    assert_eq!(store.add_token(&token, &id, None, 100, LINE).await.expect("an answer"), Added::Done);
    id
}

async fn tokens(store: &Store) -> Vec<String> {
    let mut ids: Vec<String> = store.tokens(9).await.expect("a list").into_iter().map(|token| token.id).collect();
    ids.sort_unstable();
    ids
}

async fn one_first_administrator_is_made(home: &Home) {
    let store = &home.store;
    assert!(!store.has_administrator().await.expect("an answer"));
    // A name that is taken is not taken over.
    add(store, "ben", Role::Viewer).await;
    assert_eq!(store.add_first_administrator("ben", "hash", 7, ADDED).await.expect("an answer"), None);
    assert!(!store.has_administrator().await.expect("an answer"));
    let newest = store.newest_audit().await.expect("a number");
    let (id, revision) = first(store).await;
    assert!(store.has_administrator().await.expect("an answer"));
    let ana = store.user("ana", 9, LIFE).await.expect("an answer").expect("the user");
    assert_eq!((ana.id, ana.revision, ana.role, ana.made_at, ana.last_seen_at), (id, revision, Role::Admin, 7, 0));
    assert_eq!(revision, newest, "above every revision that there was");
    assert_eq!(store.add_first_administrator("eve", "hash", 8, ADDED).await.expect("an answer"), None);
    assert!(store.user("eve", 9, LIFE).await.expect("an answer").is_none());
    assert_eq!(home.lines("user.add").await, 2);
}

async fn of_first_administrators_at_once_one_is_made(home: &Home) {
    let stores = [home.store.clone(), home.another().await];
    let making = (0..8).map(|number| {
        let store = stores[number % 2].clone();
        async move {
            let name = format!("admin-{number}");
            store.add_first_administrator(&name, "hash", 7, ADDED).await.expect("an answer").is_some()
        }
    });
    assert_eq!(at_once(making).await.into_iter().filter(|made| *made).count(), 1);
    let users = home.store.users(9, LIFE).await.expect("a list");
    assert_eq!((users.len(), users[0].role, home.lines("user.add").await), (1, Role::Admin, 1));
}

async fn users_come_back_in_the_order_of_their_names(home: &Home) {
    let store = &home.store;
    let ana = first(store).await;
    for (name, role) in [("zoe", Role::Editor), ("ben", Role::Viewer), ("b-1", Role::Operator), ("b_2", Role::Viewer)] {
        add(store, name, role).await;
    }
    begin(store, ana, "a").await;
    begin(store, ana, "b").await;
    let users = async |now| store.users(now, LIFE).await.expect("a list");
    let all = users(9).await;
    let rows: Vec<_> = all.iter().map(|user| (&*user.name, user.role, user.sessions, user.made_at)).collect();
    assert_eq!(
        rows,
        [
            ("ana", Role::Admin, 2, 7),
            ("b-1", Role::Operator, 0, 9),
            ("b_2", Role::Viewer, 0, 9),
            ("ben", Role::Viewer, 0, 9),
            ("zoe", Role::Editor, 0, 9)
        ],
        "in the order of bytes"
    );
    assert!(all.iter().all(|user| user.issuer.is_empty()));
    assert_eq!(all[0].last_seen_at, 9);
    // A session that idled is not counted, here or of one user.
    assert_eq!((users(9 + LIFE.idle_s - 1).await[0].sessions, users(9 + LIFE.idle_s).await[0].sessions), (2, 0));
    let of_one = async |now| store.user("ana", now, LIFE).await.expect("an answer").expect("the user").sessions;
    assert_eq!((of_one(9 + LIFE.idle_s - 1).await, of_one(9 + LIFE.idle_s).await), (2, 0));
    assert!(store.user("Ana", 9, LIFE).await.expect("an answer").is_none(), "letters are not folded");
    assert_eq!(store.role_of(ana.0).await.expect("an answer"), Some(Role::Admin));
    assert_eq!(store.role_of(ana.0 + 1_000).await.expect("an answer"), None);
    home.execute("UPDATE users SET role = 'king' WHERE name = 'zoe'").await;
    assert!(matches!(store.users(9, LIFE).await, Err(sqlx::Error::Decode(_))), "a role of a newer build is an error");
}

async fn a_name_and_a_subject_are_one_user(home: &Home) {
    let store = &home.store;
    let add_as = async |name: &str, issuer, subject| {
        let means = Means::Provider { issuer, subject };
        store.add_user((name, Role::Editor, means), 9, ADDED).await.expect("an answer")
    };
    assert!(
        add_as("ed", "https://a", "1").await
            && add_as("eve", "https://a", "2").await
            && add_as("eli", "https://b", "1").await
    );
    assert!(!add_as("ed", "https://a", "3").await, "the name is taken");
    assert!(!add_as("edd", "https://a", "1").await, "the subject is taken");
    assert!(!store.add_user(("ed", Role::Admin, Means::Password("hash")), 9, ADDED).await.expect("an answer"));
    add(store, "ben", Role::Viewer).await;
    add(store, "bea", Role::Viewer).await;
    assert_eq!(home.lines("user.add").await, 5, "a refusal writes no line");
    let of = async |issuer, subject| store.user_of_provider((issuer, subject), 9, LIFE).await.expect("an answer");
    let ed = of("https://a", "1").await.expect("the user");
    assert_eq!((&*ed.name, &*ed.issuer, ed.role), ("ed", "https://a", Role::Editor));
    assert_eq!(of("https://b", "1").await.expect("the user").name, "eli");
    assert!(of("https://b", "2").await.is_none() && of("https://a", "").await.is_none());
}

async fn of_users_at_once_one_has_the_name(home: &Home) {
    let stores = [home.store.clone(), home.another().await];
    let adding = (0..8).map(|number| {
        let store = stores[number % 2].clone();
        async move {
            let hash = format!("hash {number}");
            store.add_user(("ben", Role::Viewer, Means::Password(&hash)), 9, ADDED).await.expect("an answer")
        }
    });
    assert_eq!(at_once(adding).await.into_iter().filter(|added| *added).count(), 1);
    assert_eq!((home.number("SELECT count(*) FROM users").await, home.lines("user.add").await), (1, 1));
}

async fn logins_are_of_those_who_have_a_password(home: &Home) {
    let store = &home.store;
    let ana = first(store).await;
    let means = Means::Provider { issuer: "https://a", subject: "1" };
    assert!(store.add_user(("ed", Role::Editor, means), 9, ADDED).await.expect("an answer"));
    let login = store.login("ana").await.expect("an answer").expect("a login");
    assert_eq!((login.id, login.revision, &*login.password_hash), (ana.0, ana.1, "hash of ana"));
    for name in ["ed", "eve", "", "ANA"] {
        assert!(store.login(name).await.expect("an answer").is_none(), "{name}");
    }
}

async fn a_user_is_changed_only_as_they_were_read(home: &Home) {
    let store = &home.store;
    first(store).await;
    let ben = add(store, "ben", Role::Viewer).await;
    let edit = Edit { role: Some(Role::Editor), ..Edit::default() };
    let change =
        async |key, edit: Edit<'_>| store.change_user(key, edit, &[CHANGED, CHANGED]).await.expect("an answer");
    for stale in [(ben.id, ben.revision + 1), (ben.id, ben.revision - 1), (ben.id + 1_000, ben.revision)] {
        assert_eq!(change(stale, edit).await, Outcome::Changed, "{stale:?}");
        assert_eq!(store.remove_user(stale, REMOVED).await.expect("an answer"), Outcome::Changed, "{stale:?}");
    }
    assert_eq!((home.lines("user.change").await, home.lines("user.remove").await), (0, 0));
    assert_eq!(change(key(&ben), edit).await, Outcome::Done);
    let after = store.user("ben", 9, LIFE).await.expect("an answer").expect("the user");
    assert_eq!((after.role, after.revision, after.id), (Role::Editor, ben.revision + 1, ben.id));
    assert_eq!(
        store.login("ben").await.expect("an answer").expect("a login").password_hash,
        "hash",
        "the password stays"
    );
    assert_eq!(home.lines("user.change").await, 2, "every line");
    assert_eq!(change(key(&ben), edit).await, Outcome::Changed, "the same once more");
    let edit = Edit { password_hash: Some("another"), ..Edit::default() };
    assert_eq!(change(key(&after), edit).await, Outcome::Done);
    let after = store.user("ben", 9, LIFE).await.expect("an answer").expect("the user");
    assert_eq!(after.role, Role::Editor, "the role stays");
    assert_eq!(store.login("ben").await.expect("an answer").expect("a login").password_hash, "another");
    // The name comes back with a revision that no one before it had.
    assert_eq!(store.remove_user(key(&after), REMOVED).await.expect("an answer"), Outcome::Done);
    let next = add(store, "ben", Role::Viewer).await;
    assert!(next.revision > after.revision, "{next:?}");
}

async fn of_changes_at_once_one_is_made(home: &Home) {
    let stores = [home.store.clone(), home.another().await];
    first(&home.store).await;
    let ben = key(&add(&home.store, "ben", Role::Viewer).await);
    let changing = (0..8).map(|number| {
        let store = stores[number % 2].clone();
        async move {
            let hash = format!("hash {number}");
            let edit = Edit { password_hash: Some(&hash), ..Edit::default() };
            (number, store.change_user(ben, edit, &[CHANGED]).await.expect("an answer"))
        }
    });
    let outcomes = at_once(changing).await;
    let done: Vec<usize> = outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Done).map(|(n, _)| *n).collect();
    assert_eq!(done.len(), 1, "{outcomes:?}");
    assert!(outcomes.iter().all(|(_, outcome)| matches!(outcome, Outcome::Done | Outcome::Changed)));
    let login = home.store.login("ben").await.expect("an answer").expect("a login");
    assert_eq!((login.revision, login.password_hash), (ben.1 + 1, format!("hash {}", done[0])));
    assert_eq!(home.lines("user.change").await, 1);
}

async fn the_last_administrator_stays(home: &Home) {
    let store = &home.store;
    let ana = first(store).await;
    let demote = Edit { role: Some(Role::Editor), ..Edit::default() };
    assert_eq!(store.change_user(ana, demote, &[CHANGED]).await.expect("an answer"), Outcome::LastAdministrator);
    assert_eq!(store.remove_user(ana, REMOVED).await.expect("an answer"), Outcome::LastAdministrator);
    assert_eq!((home.lines("user.change").await, home.lines("user.remove").await), (0, 0));
    let login = store.login("ana").await.expect("an answer").expect("a login");
    assert_eq!((login.id, login.revision), ana, "nothing was changed");
    let edit = Edit { password_hash: Some("another"), ..Edit::default() };
    assert_eq!(store.change_user(ana, edit, &[CHANGED]).await.expect("an answer"), Outcome::Done, "the role stays");
    add(store, "ben", Role::Admin).await;
    let ana = (ana.0, ana.1 + 1);
    assert_eq!(store.change_user(ana, demote, &[CHANGED]).await.expect("an answer"), Outcome::Done);
}

async fn of_two_administrators_at_once_one_stays(home: &Home) {
    let (a, b) = (home.store.clone(), home.another().await);
    let ana = first(&a).await;
    let ben = key(&add(&a, "ben", Role::Admin).await);
    let leaving = [(a, ana), (b, ben)]
        .map(|(store, key)| async move { store.remove_user(key, REMOVED).await.expect("an answer") });
    let mut outcomes = at_once(leaving).await;
    outcomes.sort_unstable_by_key(|outcome| *outcome == Outcome::LastAdministrator);
    assert_eq!(outcomes, [Outcome::Done, Outcome::LastAdministrator]);
    assert!(home.store.has_administrator().await.expect("an answer"));
}

async fn a_lower_role_takes_sessions_and_tokens_away(home: &Home) {
    let store = &home.store;
    first(store).await;
    let ben = add(store, "ben", Role::Admin).await;
    for session in ["one", "two"] {
        begin(store, key(&ben), session).await;
    }
    for may in [May::Role(Role::Viewer), May::Role(Role::Editor), May::Role(Role::Admin), May::Node] {
        token(store, "ben", may).await;
    }
    token(store, "ana", May::Role(Role::Admin)).await;
    let edit = Edit { role: Some(Role::Editor), but_session: "two", ..Edit::default() };
    assert_eq!(store.change_user(key(&ben), edit, &[]).await.expect("an answer"), Outcome::Done);
    assert_eq!(tokens(store).await, ["ana-admin", "ben-editor", "ben-node", "ben-viewer"]);
    let sessions = store.sessions_of(ben.id, 9, LIFE).await.expect("a list");
    assert_eq!(sessions.iter().map(|session| &*session.token_sha256).collect::<Vec<_>>(), ["two"]);
    // One's own password leaves one's tokens.
    let own = Edit { password_hash: Some("own"), but_session: "two", ..Edit::default() };
    let seen = (ben.id, ben.revision + 1);
    assert_eq!(store.change_user(seen, own, &[]).await.expect("an answer"), Outcome::Done);
    assert_eq!(tokens(store).await.len(), 4);
    // One that another person gave takes all away but those of nodes.
    let given = Edit { password_hash: Some("given"), ..Edit::default() };
    let seen = (ben.id, ben.revision + 2);
    assert_eq!(store.change_user(seen, given, &[]).await.expect("an answer"), Outcome::Done);
    assert_eq!(tokens(store).await, ["ana-admin", "ben-node"]);
    assert!(store.sessions_of(ben.id, 9, LIFE).await.expect("a list").is_empty());
}

async fn a_user_is_removed_with_what_is_theirs(home: &Home) {
    let store = &home.store;
    let ana = first(store).await;
    let ben = add(store, "ben", Role::Editor).await;
    begin(store, key(&ben), "of ben").await;
    begin(store, ana, "of ana").await;
    for may in [May::Role(Role::Viewer), May::Node] {
        token(store, "ben", may).await;
        token(store, "ana", may).await;
    }
    assert_eq!(store.remove_user(key(&ben), REMOVED).await.expect("an answer"), Outcome::Done);
    assert!(store.user("ben", 9, LIFE).await.expect("an answer").is_none());
    assert_eq!(store.role_of(ben.id).await.expect("an answer"), None);
    assert_eq!(tokens(store).await, ["ana-node", "ana-viewer", "ben-node"]);
    assert!(store.session("of ben", 9, LIFE).await.expect("an answer").is_none());
    assert!(store.session("of ana", 9, LIFE).await.expect("an answer").is_some());
    assert_eq!(store.remove_user(key(&ben), REMOVED).await.expect("an answer"), Outcome::Changed);
    assert_eq!(home.lines("user.remove").await, 1);
}

async fn shutting_out_leaves_a_viewer(home: &Home) {
    let store = &home.store;
    let ben = add(store, "ben", Role::Editor).await;
    begin(store, key(&ben), "of ben").await;
    token(store, "ben", May::Role(Role::Viewer)).await;
    token(store, "ben", May::Node).await;
    let shut_out = async || store.shut_out(ben.id, "ben", CHANGED).await.expect("an answer");
    assert!(shut_out().await);
    let after = store.user("ben", 9, LIFE).await.expect("an answer").expect("they stay");
    assert_eq!((after.role, after.sessions, after.revision), (Role::Viewer, 0, ben.revision + 1));
    assert_eq!(tokens(store).await, ["ben-node"]);
    assert!(!shut_out().await, "there is nothing left to end");
    let again = store.user("ben", 9, LIFE).await.expect("an answer").expect("they stay");
    assert_eq!(again.revision, after.revision + 1, "a sign-in that is on its way does not come in");
    assert_eq!(home.lines("user.change").await, 1);
    // Each of the three is something.
    begin(store, key(&again), "later").await;
    assert!(shut_out().await);
    token(store, "ben", May::Role(Role::Operator)).await;
    assert!(shut_out().await);
}
