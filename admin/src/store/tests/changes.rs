//! Changes as such: one at a time, whole or not at all; what is read at one instant; notifications; the end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use sqlx::{query, query_scalar};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use crate::{
    base::caller::working_for,
    domain::version::Rollout,
    store::{
        audit::Audit,
        database::{Patience, Place, Store},
        error::{Trouble, trouble},
        tests::{Home, LINE, at_once},
    },
};

on_both! {
    a_change_is_kept_whole_or_dropped,
    changes_come_one_after_the_other,
    a_change_waits_only_so_long_for_its_turn,
    a_change_waits_for_one_of_each_other_caller,
    a_reading_is_of_one_instant,
    writing_is_tried,
    other_servers_are_told_of_a_publish,
    connections_apart_outlive_the_others,
    a_store_that_is_closed_does_nothing,
    the_end_waits_only_so_long,
}

/// The longest that a test waits for what has to come.
const LIMIT: Duration = Duration::from_mins(1);

async fn insert(change: &mut sqlx::AnyConnection, node: &str, at: i64) {
    query("INSERT INTO tries (node, at) VALUES ($1, $2)")
        .bind(node)
        .bind(at)
        .execute(change)
        .await
        .expect("it is written");
}

async fn a_change_is_kept_whole_or_dropped(home: &Home) {
    let store = &home.store;
    let count = async || home.number("SELECT count(*) FROM tries").await;
    let mut change = store.change().await.expect("a change");
    insert(&mut change, "a", 1).await;
    insert(&mut change, "b", 2).await;
    assert_eq!(count().await, 0, "no one else sees it yet");
    store.keep(change).await.expect("it is kept");
    assert_eq!(count().await, 2);
    let mut change = store.change().await.expect("a change");
    insert(&mut change, "c", 3).await;
    drop(change);
    assert_eq!(count().await, 2);
    let mut change = store.change().await.expect("a change");
    insert(&mut change, "d", 4).await;
    query("INSERT INTO tries (node, at) VALUES ('a', 1)").execute(&mut *change).await.expect_err("it is there");
    drop(change);
    assert_eq!(count().await, 2, "what failed leaves nothing");
}

async fn changes_come_one_after_the_other(home: &Home) {
    let stores = [home.store.clone(), home.another().await];
    home.execute("INSERT INTO tries (node, at) VALUES ('counter', 0)").await;
    let at_work = Arc::new(AtomicUsize::new(0));
    let counting = (0..12).map(|number| {
        let (store, at_work) = (stores[number % 2].clone(), Arc::clone(&at_work));
        async move {
            let mut change = store.change().await.expect("a change");
            assert_eq!(at_work.fetch_add(1, Ordering::SeqCst), 0, "it is alone");
            let counter = query_scalar("SELECT at FROM tries WHERE node = 'counter'").fetch_one(&mut *change);
            let counter: i64 = counter.await.expect("a number");
            // Others have every occasion to come in between.
            tokio::task::yield_now().await;
            query("UPDATE tries SET at = $1").bind(counter + 1).execute(&mut *change).await.expect("it is written");
            at_work.fetch_sub(1, Ordering::SeqCst);
            store.keep(change).await.expect("it is kept");
        }
    });
    at_once(counting).await;
    assert_eq!(home.number("SELECT at FROM tries WHERE node = 'counter'").await, 12, "nothing is lost");
}

async fn a_change_waits_only_so_long_for_its_turn(home: &Home) {
    let Patience { turn, close } = Patience::default();
    assert_eq!((turn, close), (Duration::from_secs(10), Duration::from_secs(5)));
    let hasty = Store { patience: Patience { turn: Duration::from_millis(20), close }, ..home.store.clone() };
    let change = home.store.change().await.expect("a change");
    let error = hasty.change().await.expect_err("another change is at work");
    assert!(matches!(trouble(&error), Some(Trouble::Busy)), "{error}");
    assert!(error.to_string().contains("took too long"), "{error}");
    drop(change);
    drop(hasty.change().await.expect("its turn"));
}

/// A caller has many changes, which were begun before.
async fn a_change_waits_for_one_of_each_other_caller(home: &Home) {
    let store = &home.store;
    let begin = |caller: &str| Box::pin(working_for(caller.to_owned(), store.change()));
    let present = store.change().await.expect("a change");
    let mut crowd: Vec<_> = (0..20).map(|_| begin("hostile")).collect();
    let mut other = begin("other");
    // It has another turn already, which others wait for.
    let mut in_turn = Box::pin(working_for("hostile".to_owned(), store.change_in_turn()));
    for waiting in crowd.iter_mut().chain([&mut other]) {
        assert!(timeout(Duration::ZERO, waiting).await.is_err(), "it waits");
    }
    assert!(timeout(Duration::ZERO, &mut in_turn).await.is_err(), "it waits");
    drop(present);
    let mut crowd = crowd.into_iter();
    drop(crowd.next().expect("the first").await.expect("a change"));
    // The others of the crowd are not asked for, so none of them may be before these.
    drop(other.await.expect("its turn"));
    drop(in_turn.await.expect("its turn"));
    for waiting in crowd {
        drop(waiting.await.expect("its turn"));
    }
}

async fn a_reading_is_of_one_instant(home: &Home) {
    let store = &home.store;
    let mut reading = store.reading().await.expect("a transaction");
    assert_eq!(Rollout::read(&mut reading).await.expect("an answer"), None);
    let count = "SELECT count(*) FROM tries";
    assert_eq!(query_scalar::<_, i64>(count).fetch_one(&mut *reading).await.expect("a number"), 0);
    store.try_writing("a", 1).await.expect("readers hold no writer up");
    assert_eq!(query_scalar::<_, i64>(count).fetch_one(&mut *reading).await.expect("a number"), 0);
    drop(reading);
    let mut reading = store.reading().await.expect("a transaction");
    assert_eq!(query_scalar::<_, i64>(count).fetch_one(&mut *reading).await.expect("a number"), 1);
    if home.is_postgres() {
        let error = query("DELETE FROM tries").execute(&mut *reading).await.expect_err("it only reads");
        assert!(matches!(trouble(&error), Some(Trouble::ReadOnly)), "{error}");
    }
}

async fn writing_is_tried(home: &Home) {
    let store = &home.store;
    for (node, at) in [("a", 1), ("b", 2), ("a", 3)] {
        store.try_writing(node, at).await.expect("it can be written");
    }
    assert_eq!(home.number("SELECT at FROM tries WHERE node = 'a'").await, 3);
    assert_eq!(home.number("SELECT count(*) FROM tries").await, 2);
    let other = home.another().await;
    at_once((0..4).map(|number| {
        let store = if number % 2 == 0 { store.clone() } else { other.clone() };
        async move { store.try_writing("c", number).await.expect("it can be written") }
    }))
    .await;
    assert_eq!(home.number("SELECT count(*) FROM tries").await, 3);
}

async fn other_servers_are_told_of_a_publish(home: &Home) {
    let (told, times) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let listening = {
        let (store, told, times) = (home.another().await, Arc::clone(&told), Arc::clone(&times));
        tokio::spawn(async move {
            store
                .listen(|| {
                    times.fetch_add(1, Ordering::SeqCst);
                    told.notify_one();
                })
                .await;
        })
    };
    if home.is_postgres() {
        // Until the listener is there, it is told by looking every two seconds; then each publish tells it.
        let listens =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'";
        let is_there = async {
            while home.number(listens).await == 0 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(LIMIT, is_there).await.expect("it listens");
        let before = times.load(Ordering::SeqCst);
        let change = home.store.change().await.expect("a change");
        home.store.go_on(change, None, &[]).await.expect("it is kept");
        let is_told = async {
            while times.load(Ordering::SeqCst) == before {
                told.notified().await;
            }
        };
        timeout(LIMIT, is_told).await.expect("it is told");
    } else {
        let change = home.store.change().await.expect("a change");
        home.store.go_on(change, None, &[]).await.expect("it is kept");
        // It would be told within a moment.
        for _ in 0..20 {
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!((times.load(Ordering::SeqCst), listening.is_finished()), (0, false), "a file has one server");
    }
    listening.abort();
}

async fn connections_apart_outlive_the_others(home: &Home) {
    let apart = home.store.apart();
    assert_eq!(apart.name(), home.store.name());
    // They take turns all the same.
    let hasty =
        Store { patience: Patience { turn: Duration::from_millis(20), ..Patience::default() }, ..apart.clone() };
    let change = home.store.change().await.expect("a change");
    assert!(matches!(trouble(&hasty.change().await.expect_err("one at a time")), Some(Trouble::Busy)));
    drop(change);
    if home.is_postgres() {
        home.store.close().await;
    }
    apart.audit(Audit { action: "apart", ..LINE }).await.expect("it is written");
    assert_eq!(home.another().await.last_audit_lines(1).await.expect("lines")[0].action, "apart");
    apart.close().await;
}

async fn a_store_that_is_closed_does_nothing(home: &Home) {
    let store = home.another().await;
    store.close().await;
    for error in [
        store.change().await.expect_err("it is closed"),
        store.audit(LINE).await.expect_err("it is closed"),
        store.newest_audit().await.expect_err("it is closed"),
        store.reading().await.expect_err("it is closed"),
    ] {
        assert!(matches!(error, sqlx::Error::PoolClosed) && trouble(&error).is_none(), "{error:?}");
    }
    store.close().await;
    home.store.audit(LINE).await.expect("the other one goes on");
    if !home.is_postgres() {
        let Place::File(file) = &home.store.place else { unreachable!("a file") };
        home.store.close().await;
        // A connection that was on its way back to the pool is closed a moment later.
        let is_home = async {
            while file.path.with_extension("db-wal").exists() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LIMIT, is_home).await.expect("the last one brings the log home");
    }
}

async fn the_end_waits_only_so_long(home: &Home) {
    let patience = Patience { close: Duration::from_millis(20), ..Patience::default() };
    let store = Store { patience, ..home.another().await };
    let change = store.change().await.expect("a change");
    timeout(LIMIT, store.close()).await.expect("a connection that is busy is not waited for");
    drop(change);
}
