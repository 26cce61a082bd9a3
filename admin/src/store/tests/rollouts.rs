//! The rollout that is open.

use crate::{
    domain::version::Rollout,
    store::{
        audit::Audit,
        tests::{Home, LINE},
    },
};

on_both! {
    a_rollout_is_open_until_it_goes_to_all,
    a_change_that_is_dropped_leaves_the_rollout,
}

fn rollout(nodes: &[&str]) -> Rollout {
    Rollout {
        version: 1,
        keeps: 1,
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        author: "ana".to_owned(),
        since: "2026-01-01T00:00:00Z".to_owned(),
    }
}

async fn a_rollout_is_open_until_it_goes_to_all(home: &Home) {
    let store = &home.store;
    let read = async || Rollout::read(&mut *home.connection().await).await.expect("an answer");
    assert_eq!(read().await, None);
    let line = Audit { action: "rollout.go_on", ..LINE };
    for nodes in [&["n-2", "n-1"][..], &["n-1", "n-2", "n'3"], &[]] {
        let change = store.change().await.expect("a change");
        store.go_on(change, Some(&rollout(nodes)), &[line, line]).await.expect("it is kept");
        assert_eq!(read().await, Some(rollout(nodes)), "one at most, the last one");
    }
    let change = store.change().await.expect("a change");
    store.go_on(change, None, &[line]).await.expect("it is kept");
    assert_eq!(read().await, None);
    assert_eq!(home.lines("rollout.go_on").await, 7);
    // One that this build cannot read is an error, not none.
    home.execute("INSERT INTO rollout (id, version, keeps, nodes, author, since) VALUES (1, 1, 1, 'n-1', 'a', 's')")
        .await;
    let error = Rollout::read(&mut *home.connection().await).await.expect_err("no JSON");
    assert!(matches!(error, sqlx::Error::Decode(_)), "{error}");
}

async fn a_change_that_is_dropped_leaves_the_rollout(home: &Home) {
    let store = &home.store;
    let change = store.change().await.expect("a change");
    store.go_on(change, Some(&rollout(&["n-1"])), &[]).await.expect("it is kept");
    let mut change = store.change().await.expect("a change");
    Rollout::write(None, &mut change).await.expect("it is written");
    assert_eq!(Rollout::read(&mut change).await.expect("an answer"), None, "within the change");
    drop(change);
    assert_eq!(Rollout::read(&mut *home.connection().await).await.expect("an answer"), Some(rollout(&["n-1"])));
}
