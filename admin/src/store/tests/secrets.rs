//! Secrets that all servers have in common.

use crate::store::tests::{Home, at_once};

on_both! {
    the_first_secret_of_a_name_stays,
    of_servers_at_once_one_makes_the_secret,
    a_secret_that_was_altered_is_an_error,
}

async fn the_first_secret_of_a_name_stays(home: &Home) {
    let (a, b) = (&home.store, home.another().await);
    assert_eq!(a.secret("one", &[1; 32]).await.expect("a secret"), [1; 32]);
    assert_eq!(a.secret("one", &[2; 32]).await.expect("a secret"), [1; 32]);
    assert_eq!(b.secret("one", &[3; 32]).await.expect("a secret"), [1; 32]);
    assert_eq!(b.secret("another", &[255; 32]).await.expect("a secret"), [255; 32]);
}

async fn of_servers_at_once_one_makes_the_secret(home: &Home) {
    let stores = [home.store.clone(), home.another().await];
    let making = (0..8_u8).map(|number| {
        let store = stores[usize::from(number) % 2].clone();
        async move { store.secret("hashing", &[number; 32]).await.expect("a secret") }
    });
    let secrets = at_once(making).await;
    assert!(secrets.iter().all(|secret| *secret == secrets[0]), "{secrets:?}");
    assert_eq!(home.store.secret("hashing", &[99; 32]).await.expect("a secret"), secrets[0]);
    assert_eq!(home.number("SELECT count(*) FROM secrets").await, 1);
}

async fn a_secret_that_was_altered_is_an_error(home: &Home) {
    for (name, value) in [("short", "AAAA"), ("text", "%%%")] {
        home.execute(&format!("INSERT INTO secrets (name, value) VALUES ('{name}', '{value}')")).await;
        let error = home.store.secret(name, &[1; 32]).await.expect_err("it is no secret");
        assert!(matches!(error, sqlx::Error::Decode(_)) && error.to_string().contains(name), "{error}");
        assert!(!error.to_string().contains(value), "it is not shown");
    }
}
