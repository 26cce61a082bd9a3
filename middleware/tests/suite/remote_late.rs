//! The client of servers that are paused or slow: what it waits for, and what it learns of what comes late.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use tidegate::policy::OnError;
use tokio::time::{self, Instant};

use crate::{
    remote::{PATIENT, PAUSE, check, decided, degraded, remote},
    server::{Server, Way},
};

/// Waits until so many answers were carried, and the client has read them.
async fn carried(way: &Way, answers: u64) {
    let all_came = async {
        while way.answers() < answers {
            time::sleep(Duration::from_millis(10)).await;
        }
    };
    time::timeout(PATIENT, all_came).await.expect("what is late comes");
    all_is_done().await;
}

/// Waits until the tasks of the test's runtime have done all that they can: it has one thread, which waits for events as often
/// as this sleeps, so that a machine that stands still makes no difference.
async fn all_is_done() {
    for _ in 0..20 {
        time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_server_that_is_paused_is_not_waited_for_and_enforces_again_when_it_goes_on() {
    let server = Server::start();
    let usual = remote(&[server.address]);
    assert_eq!(check(&usual, "192.0.2.1", 2).await.remaining, Some(0));
    let remote = usual.deadline(Duration::from_millis(5));
    server.pause();
    // The breaker may open, and its pause pass, before the last of these is answered.
    let begun = Instant::now();
    for _ in 0..5 {
        assert_eq!(degraded(&check(&remote, "192.0.2.1", 1).await), Some("timeout"));
    }
    let mut trials = 0;
    for _ in 0..1_000 {
        let mut asked = pin!(check(&remote, "192.0.2.1", 1));
        let at_once = poll_fn(|context| Poll::Ready(asked.as_mut().poll(context))).await;
        let is_at_once = at_once.is_ready();
        let ruling = if let Poll::Ready(ruling) = at_once { ruling } else { asked.await };
        match degraded(&ruling) {
            Some("breaker_open") => assert!(is_at_once, "it waits for nothing"),
            Some("timeout") => trials += 1,
            other => panic!("{other:?}"),
        }
    }
    // A trial comes in between if all of them take longer than the pause.
    let trials_max = begun.elapsed().as_millis() / PAUSE.as_millis();
    assert!(trials <= trials_max, "{trials} trials, and not {trials_max}");
    server.go_on();
    let remote = remote.deadline(PATIENT);
    let enforced = decided(&remote, "192.0.2.1").await;
    assert!(!enforced.allowed, "{enforced:?}");
    let closed = remote.on_error(OnError::Closed);
    server.pause();
    let closed = closed.deadline(Duration::from_millis(5));
    let denied = check(&closed, "192.0.2.3", 1).await;
    assert_eq!((denied.allowed, degraded(&denied), denied.limit_id.as_deref()), (false, Some("timeout"), None));
    server.go_on();
}

#[tokio::test]
async fn late_answers_are_nobody_elses_and_leave_connections_whole() {
    let server = Server::start();
    let way = Way::to(server.address).await;
    let slow = remote(&[way.address]).breaker(1_000, PAUSE).deadline(Duration::from_millis(20));
    way.delay(Duration::from_millis(200));
    for _ in 0..8 {
        assert_eq!(degraded(&check(&slow, "192.0.2.1", 1).await), Some("timeout"));
    }
    way.delay(Duration::ZERO);
    carried(&way, 8).await;
    let connections = way.connections();
    let patient = slow.deadline(PATIENT);
    // It was asked eight times for two.
    let late = check(&patient, "192.0.2.1", 1).await;
    assert!(!late.allowed, "{late:?}");
    // Who comes after it gets answers of his own.
    for user in 10..60 {
        let address = format!("192.0.2.{user}");
        let (first, second) = (check(&patient, &address, 1).await, check(&patient, &address, 1).await);
        assert_eq!((first.remaining, second.remaining), (Some(1), Some(0)));
        assert_eq!((degraded(&first), degraded(&second)), (None, None));
    }
    assert_eq!(way.connections(), connections, "what was late is used again");
}

/// As connections of TLS are that have to be made first: what comes late shows that the server is there.
#[tokio::test]
async fn an_answer_that_comes_late_brings_the_next_trial_forward() {
    let server = Server::start();
    let way = Way::to(server.address).await;
    let hasty = remote(&[way.address]).breaker(1, Duration::from_hours(1)).deadline(Duration::from_millis(20));
    way.delay(Duration::from_millis(200));
    assert_eq!(degraded(&check(&hasty, "192.0.2.1", 1).await), Some("timeout"));
    assert_eq!(degraded(&check(&hasty, "192.0.2.1", 1).await), Some("breaker_open"));
    way.delay(Duration::ZERO);
    carried(&way, 1).await;
    let patient = hasty.deadline(PATIENT);
    for remaining in [0, 0] {
        let ruling = check(&patient, "192.0.2.1", 1).await;
        assert_eq!((degraded(&ruling), ruling.remaining), (None, Some(remaining)));
    }
}

/// A caller that goes away, as services are dropped whose clients hang up.
#[tokio::test]
async fn a_check_that_nobody_waits_for_is_read_and_learnt_all_the_same() {
    let server = Server::start();
    let way = Way::to(server.address).await;
    let remote = remote(&[way.address]).breaker(1, Duration::from_hours(1));
    way.delay(Duration::from_millis(200));
    let dropped = time::timeout(Duration::from_millis(20), check(&remote, "192.0.2.1", 1)).await;
    assert!(dropped.is_err(), "{dropped:?}");
    way.delay(Duration::ZERO);
    carried(&way, 1).await;
    assert_eq!(check(&remote, "192.0.2.1", 1).await.remaining, Some(0));
    assert_eq!(way.connections(), 1);
    let hasty = remote.deadline(Duration::from_millis(20));
    // No answer comes late and brings a trial forward.
    way.delay(PATIENT);
    let mut asked = Box::pin(check(&hasty, "192.0.2.1", 1));
    assert!(poll_fn(|context| Poll::Ready(asked.as_mut().poll(context).is_pending())).await);
    drop(asked);
    // It fails at its deadline, though it was given up before.
    time::sleep(Duration::from_millis(20)).await;
    all_is_done().await;
    assert_eq!(degraded(&check(&hasty, "192.0.2.1", 1).await), Some("breaker_open"));
}

#[tokio::test]
async fn a_server_that_hangs_does_not_take_the_time_of_the_others() {
    let servers = [Server::start(), Server::start()];
    // Each check that asks the one that hangs takes a connection of its own: none becomes free.
    let way = Way::to(servers[0].address).await;
    let addresses = [way.address, servers[1].address];
    let remote = remote(&addresses).breaker(5, Duration::from_hours(1)).deadline(Duration::from_millis(800));
    servers[0].pause();
    for client in 0..50 {
        let ruling = check(&remote, &format!("192.0.2.{client}"), 1).await;
        assert_eq!((degraded(&ruling), ruling.remaining), (None, Some(1)), "by the other one");
    }
    // Five fail one after the other: each counts from 800 ms to 1,200 ms after the one before, as every other check asks the
    // one that hangs first, for 400 ms. So at most three begin for each that counts, and one more before it is known.
    let slow = way.connections();
    assert!((5..=16).contains(&slow), "{slow}");
    servers[0].go_on();
}

#[tokio::test]
async fn a_slow_server_is_asked_so_many_checks_at_once_and_no_more() {
    const DELAY: Duration = Duration::from_millis(700);
    let server = Server::start();
    let (way, hasty) = loop {
        let way = Way::to(server.address).await;
        let hasty = remote(&[way.address]).breaker(1_000, PAUSE).deadline(Duration::from_millis(20)).at_once(3);
        way.delay(DELAY);
        let begun = Instant::now();
        let mut reasons = Vec::new();
        for client in 0..8 {
            let ruling = check(&hasty, &format!("192.0.2.{client}"), 1).await;
            reasons.push(ruling.degraded.expect("no server decides in time"));
        }
        // Else the machine stood still, and answers may have come in between.
        if begun.elapsed() < DELAY {
            assert_eq!(reasons, [["timeout"; 3].as_slice(), &["busy"; 5]].concat());
            break (way, hasty);
        }
    };
    assert_eq!(way.connections(), 3);
    way.delay(Duration::ZERO);
    carried(&way, 3).await;
    let patient = hasty.deadline(PATIENT);
    for client in 10..20 {
        assert_eq!(degraded(&check(&patient, &format!("192.0.2.{client}"), 1).await), None);
    }
    assert_eq!(way.connections(), 3);
}
