//! Second factors.

use crate::{
    domain::roles::Role,
    store::{
        audit::Audit,
        database::Store,
        second_factors::NewFactor,
        sessions::{NewSession, Proof},
        tests::{Home, LIFE, LINE, at_once},
        users::{Means, Outcome},
    },
};

on_both! {
    codes_are_asked_for_once_an_app_has_shown_one,
    a_code_begins_one_session_at_once,
    a_recovery_code_begins_one_session_at_once,
    a_second_factor_goes_with_its_user,
}

const CHANGED: Audit<'static> = Audit { action: "user.second_factor", ..LINE };

async fn first(store: &Store) -> (i64, i64) {
    store.add_first_administrator("ana", "hash", 1, LINE).await.expect("an answer").expect("the first")
}

/// Takes an app into use that was begun, which showed the code of this step.
async fn set(store: &Store, user: i64, secret: &[u8], step: i64) -> bool {
    let recovery_sha256 = &["one".to_owned(), "two".to_owned()];
    let new = NewFactor { secret, step, recovery_sha256, made_at: 9 };
    store.set_second_factor(user, new, CHANGED).await.expect("an answer")
}

/// The first administrator, with an app that showed the code of this step.
async fn with_app(store: &Store, step: i64) -> (i64, i64) {
    let ana = first(store).await;
    store.begin_second_factor(ana.0, &[1; 20]).await.expect("it is written");
    assert!(set(store, ana.0, &[1; 20], step).await);
    (ana.0, ana.1 + 1)
}

async fn begin(store: &Store, token_sha256: &str, user: (i64, i64), proof: Proof<'_>) -> bool {
    let new = NewSession { token_sha256, user, csrf: "c", proof, begins_at: 9, life: LIFE, address: "", browser: "" };
    store.begin_session(new, LINE).await.expect("an answer")
}

async fn codes_are_asked_for_once_an_app_has_shown_one(home: &Home) {
    let store = &home.store;
    let ana = first(store).await;
    let login = async || store.login("ana").await.expect("an answer").expect("a login");
    let factor = async || store.second_factor(ana.0).await.expect("an answer");
    let begun = async || store.begun_second_factor(ana.0).await.expect("an answer");
    let is_shown = async || store.user("ana", 9, LIFE).await.expect("an answer").expect("the user").has_second_factor;
    assert!(!login().await.has_second_factor() && !is_shown().await);
    assert_eq!((factor().await, begun().await), (None, None));
    store.begin_second_factor(ana.0, &[1; 20]).await.expect("it is written");
    assert_eq!((factor().await, begun().await), (None, Some(vec![1; 20])));
    assert!(!login().await.has_second_factor() && !is_shown().await);
    // Another one takes its place.
    store.begin_second_factor(ana.0, &[2; 20]).await.expect("it is written");
    assert!(!set(store, ana.0, &[1; 20], 7).await && !set(store, ana.0 + 1_000, &[2; 20], 7).await);
    assert!(set(store, ana.0, &[2; 20], 7).await && !set(store, ana.0, &[2; 20], 8).await);
    let after = login().await;
    assert_eq!((after.app_secret().expect("bytes"), after.last_step), (vec![2; 20], 7));
    assert_eq!(after.revision, ana.1 + 1, "a sign-in that is on its way does not come in");
    assert_eq!((factor().await, begun().await), (Some((9, 2)), None));
    assert!(is_shown().await);
    assert!(begin(store, "a", (ana.0, after.revision), Proof::RecoveryCode("one")).await);
    assert_eq!(factor().await, Some((9, 1)));
    // A further one is begun, and the one that is in use stays until then.
    store.begin_second_factor(ana.0, &[3; 20]).await.expect("it is written");
    assert_eq!(login().await.app_secret().expect("bytes"), vec![2; 20]);
    assert!(set(store, ana.0, &[3; 20], 9).await);
    assert_eq!((login().await.app_secret().expect("bytes"), factor().await), (vec![3; 20], Some((9, 2))));
    let remove = async || store.remove_second_factor(ana.0, CHANGED).await.expect("an answer");
    assert_eq!((remove().await, remove().await), (true, false));
    assert_eq!((factor().await, home.number("SELECT count(*) FROM recovery_codes").await), (None, 0));
    let after = login().await;
    assert_eq!((after.has_second_factor(), after.revision), (false, ana.1 + 3));
    assert_eq!(home.lines("user.second_factor").await, 3);
    // Nothing is begun of a user who is gone.
    store.begin_second_factor(ana.0 + 1_000, &[1; 20]).await.expect("nothing to do");
    assert_eq!(home.number("SELECT count(*) FROM second_factors").await, 0);
    home.execute(&format!("INSERT INTO second_factors VALUES ({}, '%%%', 0, 0, '')", ana.0)).await;
    let broken = login().await.app_secret().expect_err("it is no secret");
    assert!(matches!(broken, sqlx::Error::Decode(_)) && !broken.to_string().contains("%%%"), "{broken}");
}

async fn a_code_begins_one_session_at_once(home: &Home) {
    let stores = [home.store.clone(), home.another().await];
    let ana = with_app(&home.store, 7).await;
    assert!(!begin(&home.store, "before", ana, Proof::Code(7)).await, "it was shown to set the app up");
    let beginning = (0..8).map(|number| {
        let store = stores[number % 2].clone();
        async move { begin(&store, &number.to_string(), ana, Proof::Code(8)).await }
    });
    assert_eq!(at_once(beginning).await.into_iter().filter(|begun| *begun).count(), 1);
    for (step, is_new) in [(8, false), (6, false), (9, true)] {
        assert_eq!(begin(&home.store, &format!("step {step}"), ana, Proof::Code(step)).await, is_new, "{step}");
    }
    assert_eq!(home.store.count_sessions(9, LIFE).await.expect("a count"), 2);
}

async fn a_recovery_code_begins_one_session_at_once(home: &Home) {
    let stores = [home.store.clone(), home.another().await];
    let ana = with_app(&home.store, 7).await;
    assert!(home.store.add_user(("ben", Role::Viewer, Means::Password("h")), 1, LINE).await.expect("an answer"));
    let ben = home.store.user("ben", 1, LIFE).await.expect("an answer").expect("the user");
    assert!(!begin(&home.store, "of ben", (ben.id, ben.revision), Proof::RecoveryCode("one")).await, "of another user");
    assert!(!begin(&home.store, "three", ana, Proof::RecoveryCode("three")).await, "none");
    let beginning = (0..8).map(|number| {
        let store = stores[number % 2].clone();
        async move { begin(&store, &number.to_string(), ana, Proof::RecoveryCode("one")).await }
    });
    assert_eq!(at_once(beginning).await.into_iter().filter(|begun| *begun).count(), 1);
    assert!(begin(&home.store, "two", ana, Proof::RecoveryCode("two")).await);
    assert_eq!(home.store.second_factor(ana.0).await.expect("an answer"), Some((9, 0)));
}

async fn a_second_factor_goes_with_its_user(home: &Home) {
    let store = &home.store;
    let ana = with_app(store, 7).await;
    assert!(store.add_user(("ben", Role::Admin, Means::Password("h")), 1, LINE).await.expect("an answer"));
    assert_eq!(store.remove_user(ana, LINE).await.expect("an answer"), Outcome::Done);
    for table in ["second_factors", "recovery_codes"] {
        assert_eq!(home.number(&format!("SELECT count(*) FROM {table}")).await, 0, "{table}");
    }
}
