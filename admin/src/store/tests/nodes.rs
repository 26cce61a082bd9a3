//! The nodes of every server. A file has one server, which needs no database to know its nodes.

use std::{collections::HashSet, time::Duration};

use crate::store::{
    database::Store,
    nodes::{Elsewhere, Forgotten, KnownNode, NODES_MAX},
    tests::{Home, at_once},
};

on_both! {
    nodes_come_back_as_they_were_told,
    a_name_is_one_process,
    of_claims_at_once_one_is_made,
    nodes_of_a_server_that_fell_silent_are_free,
    a_telling_leaves_the_nodes_of_others,
    a_server_that_leaves_has_no_nodes,
    nodes_are_forgotten_unless_they_are_elsewhere,
    nodes_that_are_gone_are_remembered_for_a_day_and_bounded,
    nodes_that_cannot_read_a_schema_are_named,
}

const NOW: i64 = 1_800_000_000;

fn node(name: &str, instance: &str) -> KnownNode {
    KnownNode {
        name: name.to_owned(),
        schema: 2,
        version: 7,
        is_connected: 1,
        instance: instance.to_owned(),
        since: NOW - 5,
    }
}

async fn read(home: &Home, name: &str) -> Option<KnownNode> {
    KnownNode::read(&mut *home.connection().await, name).await.expect("an answer")
}

async fn tell(store: &Store, server: &str, nodes: &[KnownNode], now: i64) -> u64 {
    store.tell_nodes(server, nodes, now).await.expect("it is written")
}

async fn nodes_come_back_as_they_were_told(home: &Home) {
    let store = &home.store;
    assert_eq!(store.says_nodes_every(), Duration::from_secs(if home.is_postgres() { 3 } else { 30 }));
    let gone = KnownNode { is_connected: 0, version: 0, since: 0, ..node("n-3", "") };
    assert_eq!(tell(store, "a", &[node("n-2", "x"), node("n-1", "y"), gone.clone()], NOW).await, 2);
    assert_eq!(read(home, "n-1").await, Some(node("n-1", "y")));
    assert_eq!((read(home, "n-3").await, read(home, "n-4").await), (Some(gone), None));
    assert_eq!(store.connected_nodes(NOW).await.expect("names"), ["n-1", "n-2"]);
    let newer = KnownNode { version: 8, ..node("n-1", "y") };
    assert_eq!(tell(store, "a", std::slice::from_ref(&newer), NOW + 1).await, 2, "with those that were told before");
    assert_eq!(read(home, "n-1").await, Some(newer));
    let all = store.nodes_of("a").await.expect("names");
    let names = ["n-1", "n-2", "n-3"].map(str::to_owned);
    assert_eq!(all, home.is_postgres().then(|| HashSet::from(names)));
    assert_eq!(store.nodes_of("b").await.expect("names"), home.is_postgres().then(HashSet::new));
}

async fn a_name_is_one_process(home: &Home) {
    let store = &home.store;
    let claim =
        async |server, instance, now| store.claim_node(server, &node("n-1", instance), now).await.expect("an answer");
    if !home.is_postgres() {
        assert_eq!((claim("a", "x", NOW).await, claim("b", "y", NOW).await), (None, None));
        assert_eq!(read(home, "n-1").await, None, "nothing is written");
        return;
    }
    assert_eq!(claim("a", "x", NOW).await, None);
    assert_eq!(read(home, "n-1").await, Some(node("n-1", "x")));
    assert_eq!(
        claim("b", "y", NOW).await,
        Some(Elsewhere { server: "a".to_owned(), since: NOW - 5 }),
        "another process"
    );
    assert_eq!(read(home, "n-1").await, Some(node("n-1", "x")), "it was refused");
    assert_eq!(claim("b", "x", NOW).await, None, "the same process goes over to another server");
    assert_eq!(store.nodes_of("b").await.expect("names").map(|names| names.len()), Some(1));
    assert_eq!(claim("b", "y", NOW).await, None, "its own server decides for itself");
    // Where it is gone, or its server was not heard for ten seconds, another process has the name.
    assert!(claim("a", "z", NOW + 9).await.is_some());
    assert_eq!(claim("a", "z", NOW + 10).await, None);
    let gone = KnownNode { is_connected: 0, ..node("n-1", "z") };
    tell(store, "a", &[gone], NOW + 10).await;
    assert_eq!(claim("b", "x", NOW + 10).await, None);
    // A clock that is far ahead says nothing.
    assert!(claim("a", "z", NOW + 10 - 60).await.is_some());
    assert_eq!(claim("a", "z", NOW + 10 - 61).await, None);
}

async fn of_claims_at_once_one_is_made(home: &Home) {
    let stores = [home.store.clone(), home.another().await];
    let claiming = (0..8).map(|number| {
        let store = stores[number % 2].clone();
        async move {
            let name = format!("server-{number}");
            (store.claim_node(&name, &node("n-1", &name), NOW).await.expect("an answer"), name)
        }
    });
    let claims = at_once(claiming).await;
    if !home.is_postgres() {
        assert!(claims.iter().all(|(elsewhere, _)| elsewhere.is_none()), "a file has one server");
        return;
    }
    let won: Vec<&String> = claims.iter().filter(|(elsewhere, _)| elsewhere.is_none()).map(|(_, name)| name).collect();
    assert_eq!(won.len(), 1, "{claims:?}");
    assert!(claims.iter().all(|(elsewhere, _)| elsewhere.as_ref().is_none_or(|other| other.server == *won[0])));
    assert_eq!(read(home, "n-1").await.expect("the node").instance, *won[0]);
}

async fn nodes_of_a_server_that_fell_silent_are_free(home: &Home) {
    let store = &home.store;
    tell(store, "a", &[node("n-1", "x")], NOW).await;
    tell(store, "b", &[node("n-2", "x")], NOW + 60).await;
    let others = async |server, now| store.nodes_of_others(server, now).await.expect("names");
    let connected = async |now| store.connected_nodes(now).await.expect("names");
    let names = |names: &[&str]| -> Vec<String> {
        if home.is_postgres() { names.iter().map(|name| (*name).to_owned()).collect() } else { Vec::new() }
    };
    assert_eq!(others("b", NOW + 89).await, names(&["n-1"]));
    assert_eq!(others("b", NOW + 90).await, names(&[]));
    assert_eq!((others("a", NOW + 90).await, others("a", NOW + 150).await), (names(&["n-2"]), names(&[])));
    assert_eq!(
        (connected(NOW + 89).await, connected(NOW + 90).await),
        (vec!["n-1".into(), "n-2".into()], vec!["n-2".to_owned()])
    );
    // What a server says of one node is said of all that it has.
    tell(store, "a", &[], NOW + 100).await;
    assert_eq!(connected(NOW + 189).await, ["n-1"]);
}

async fn a_telling_leaves_the_nodes_of_others(home: &Home) {
    let store = &home.store;
    tell(store, "a", &[node("n-1", "x")], NOW).await;
    assert_eq!(tell(store, "b", &[node("n-1", "x"), node("n-2", "y")], NOW + 1).await, 1, "not even the same process");
    let gone = KnownNode { is_connected: 0, ..node("n-1", "x") };
    tell(store, "b", std::slice::from_ref(&gone), NOW + 1).await;
    assert_eq!(read(home, "n-1").await, Some(node("n-1", "x")));
    tell(store, "a", std::slice::from_ref(&gone), NOW + 2).await;
    assert_eq!(read(home, "n-1").await, Some(gone), "its own server knows");
    assert_eq!(tell(store, "b", &[node("n-1", "z")], NOW + 3).await, 2);
    assert_eq!(read(home, "n-1").await, Some(node("n-1", "z")), "and then it is free");
}

async fn a_server_that_leaves_has_no_nodes(home: &Home) {
    let store = &home.store;
    tell(store, "a", &[node("n-1", "x"), node("n-2", "x")], NOW).await;
    tell(store, "b", &[node("n-3", "x")], NOW).await;
    store.leave_nodes("a", NOW + 1).await.expect("it is written");
    assert_eq!(store.connected_nodes(NOW + 1).await.expect("names"), ["n-3"]);
    assert_eq!(read(home, "n-1").await.expect("it is remembered").is_connected, 0);
    assert_eq!(home.number("SELECT count(*) FROM nodes WHERE at = 1800000001").await, 2, "when that was");
}

async fn nodes_are_forgotten_unless_they_are_elsewhere(home: &Home) {
    let store = &home.store;
    let forget = async |server, name, now| store.forget_node(server, name, now).await.expect("an answer");
    let gone = KnownNode { is_connected: 0, ..node("gone", "x") };
    tell(store, "a", &[node("own", "x"), node("there", "x"), gone], NOW).await;
    assert_eq!(forget("b", "absent", NOW).await, Forgotten::WasNone);
    assert_eq!(forget("b", "gone", NOW).await, Forgotten::IsGone);
    assert_eq!(forget("a", "own", NOW).await, Forgotten::IsGone);
    assert_eq!(forget("a", "own", NOW).await, Forgotten::WasNone);
    if home.is_postgres() {
        assert_eq!(forget("b", "there", NOW + 89).await, Forgotten::IsElsewhere);
        assert_eq!(forget("b", "there", NOW - 60).await, Forgotten::IsElsewhere);
        assert!(read(home, "there").await.is_some());
    }
    assert_eq!(forget("b", "there", NOW + 90).await, Forgotten::IsGone, "its server is not heard any more");
    tell(store, "a", &[node("ahead", "x")], NOW).await;
    assert_eq!(forget("b", "ahead", NOW - 61).await, Forgotten::IsGone, "by a clock that is ahead");
}

async fn nodes_that_are_gone_are_remembered_for_a_day_and_bounded(home: &Home) {
    let store = &home.store;
    let gone = |name: &str| KnownNode { is_connected: 0, ..node(name, "x") };
    tell(store, "a", &[gone("old")], NOW).await;
    tell(store, "b", &[node("other", "x")], NOW + 1).await;
    tell(store, "a", &[], NOW + 86_400).await;
    assert!(read(home, "old").await.is_some());
    tell(store, "a", &[], NOW + 86_401).await;
    assert!(read(home, "old").await.is_none() && read(home, "other").await.is_some());
    // As many as there may be are remembered, those that are gone longest make room; those that are connected never.
    let most = i64::try_from(NODES_MAX).expect("a small number");
    let rows: Vec<String> =
        (0..=most).map(|n| format!("('g-{n}', 'c', 2, 1, 0, '', 0, {})", NOW + 86_401 + n)).collect();
    home.execute(&format!(
        "INSERT INTO nodes (name, server, \"schema\", version, is_connected, instance, since, at) VALUES {}",
        rows.join(", ")
    ))
    .await;
    tell(store, "b", &[], NOW + 86_500).await;
    assert_eq!(home.number("SELECT count(*) FROM nodes WHERE is_connected = 0").await, most + 1);
    let newer = NOW + 86_402 + most;
    tell(store, "b", &[gone("last")], newer).await;
    assert_eq!(home.number("SELECT count(*) FROM nodes WHERE is_connected = 0").await, most + 1);
    assert!(
        read(home, "g-0").await.is_none() && read(home, "g-1").await.is_some() && read(home, "other").await.is_some()
    );
}

async fn nodes_that_cannot_read_a_schema_are_named(home: &Home) {
    let store = &home.store;
    let of_schema = |name: &str, schema| KnownNode { schema, ..node(name, "x") };
    let gone = KnownNode { is_connected: 0, ..of_schema("gone", 1) };
    tell(store, "a", &[of_schema("c", 1), of_schema("b", 2), of_schema("d", 0), gone], NOW).await;
    tell(store, "b", &[of_schema("e", 1)], NOW).await;
    let cannot = async |server, schema, now| {
        KnownNode::cannot_read(&mut *home.connection().await, server, schema, now).await.expect("names").concat()
    };
    assert_eq!((cannot("x", 2, NOW).await, cannot("x", 1, NOW).await), ("cde".to_owned(), "d".to_owned()));
    assert_eq!((cannot("b", 2, NOW).await, cannot("a", 2, NOW).await), ("cd".to_owned(), "e".to_owned()));
    assert_eq!((cannot("x", 2, NOW + 89).await, cannot("x", 2, NOW + 90).await), ("cde".to_owned(), String::new()));
}
