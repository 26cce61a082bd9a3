//! The client of servers that are paused or slow: how long it waits, and what it does with late responses.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use tidegate::policy::OnError;
use tokio::time::{self, Instant};

use crate::{
    remote::{PATIENT, PAUSE, check, decided, degraded, remote},
    server::{DelayProxy, Server},
};

/// Waits until the proxy has carried this many answers, and the client has read them.
async fn wait_for_answers(proxy: &DelayProxy, answers: u64) {
    let all_came = async {
        while proxy.answers() < answers {
            time::sleep(Duration::from_millis(10)).await;
        }
    };
    time::timeout(PATIENT, all_came).await.expect("the late answers come");
    wait_for_tasks().await;
}

/// Waits until the tasks of the test's runtime have done all that they can: it has one thread, which waits for events as often
/// as this sleeps, so that a machine that stands still makes no difference.
async fn wait_for_tasks() {
    for _ in 0..20 {
        time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_paused_server_costs_the_deadline_and_decides_again_afterwards() {
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
        let decision = if let Poll::Ready(decision) = at_once { decision } else { asked.await };
        match degraded(&decision) {
            Some("breaker_open") => assert!(is_at_once, "an open breaker costs no time"),
            Some("timeout") => trials += 1,
            other => panic!("{other:?}"),
        }
    }
    // A trial comes in between if all of them take longer than the pause.
    let trials_max = begun.elapsed().as_millis() / PAUSE.as_millis();
    assert!(trials <= trials_max, "{trials} trials, and not {trials_max}");
    server.resume();
    let remote = remote.deadline(PATIENT);
    let enforced = decided(&remote, "192.0.2.1").await;
    assert!(!enforced.is_allowed, "{enforced:?}");
    let closed = remote.on_error(OnError::Closed);
    server.pause();
    let closed = closed.deadline(Duration::from_millis(5));
    let denied = check(&closed, "192.0.2.3", 1).await;
    assert_eq!((denied.is_allowed, degraded(&denied), denied.limit_id.as_deref()), (false, Some("timeout"), None));
    server.resume();
}

#[tokio::test]
async fn a_late_answer_reaches_no_other_check_and_its_connection_is_reused() {
    let server = Server::start();
    let proxy = DelayProxy::to(server.address).await;
    let slow = remote(&[proxy.address]).breaker(1_000, PAUSE).deadline(Duration::from_millis(20));
    proxy.delay(Duration::from_millis(200));
    for _ in 0..8 {
        assert_eq!(degraded(&check(&slow, "192.0.2.1", 1).await), Some("timeout"));
    }
    proxy.delay(Duration::ZERO);
    wait_for_answers(&proxy, 8).await;
    let connections = proxy.connections();
    let patient = slow.deadline(PATIENT);
    // Eight checks were sent, of which the limit allows two.
    let late = check(&patient, "192.0.2.1", 1).await;
    assert!(!late.is_allowed, "{late:?}");
    // Later checks get their own answers.
    for user in 10..60 {
        let address = format!("192.0.2.{user}");
        let (first, second) = (check(&patient, &address, 1).await, check(&patient, &address, 1).await);
        assert_eq!((first.remaining, second.remaining), (Some(1), Some(0)));
        assert_eq!((degraded(&first), degraded(&second)), (None, None));
    }
    assert_eq!(proxy.connections(), connections, "the late connections are reused");
}

/// A connection over TLS takes longer to make than a check may: the late answer shows that the server runs.
#[tokio::test]
async fn a_late_answer_brings_the_next_trial_forward() {
    let server = Server::start();
    let proxy = DelayProxy::to(server.address).await;
    let hasty = remote(&[proxy.address]).breaker(1, Duration::from_hours(1)).deadline(Duration::from_millis(20));
    proxy.delay(Duration::from_millis(200));
    assert_eq!(degraded(&check(&hasty, "192.0.2.1", 1).await), Some("timeout"));
    assert_eq!(degraded(&check(&hasty, "192.0.2.1", 1).await), Some("breaker_open"));
    proxy.delay(Duration::ZERO);
    wait_for_answers(&proxy, 1).await;
    let patient = hasty.deadline(PATIENT);
    for remaining in [0, 0] {
        let decision = check(&patient, "192.0.2.1", 1).await;
        assert_eq!((degraded(&decision), decision.remaining), (None, Some(remaining)));
    }
}

/// The caller drops the check, as a service is dropped whose client closes its connection.
#[tokio::test]
async fn a_dropped_check_is_read_to_its_end_and_recorded_in_the_breaker() {
    let server = Server::start();
    let proxy = DelayProxy::to(server.address).await;
    let remote = remote(&[proxy.address]).breaker(1, Duration::from_hours(1));
    proxy.delay(Duration::from_millis(200));
    let dropped = time::timeout(Duration::from_millis(20), check(&remote, "192.0.2.1", 1)).await;
    assert!(dropped.is_err(), "{dropped:?}");
    proxy.delay(Duration::ZERO);
    wait_for_answers(&proxy, 1).await;
    assert_eq!(check(&remote, "192.0.2.1", 1).await.remaining, Some(0));
    assert_eq!(proxy.connections(), 1);
    let hasty = remote.deadline(Duration::from_millis(20));
    // No late answer may bring a trial forward.
    proxy.delay(PATIENT);
    let mut asked = Box::pin(check(&hasty, "192.0.2.1", 1));
    assert!(poll_fn(|context| Poll::Ready(asked.as_mut().poll(context).is_pending())).await);
    drop(asked);
    // The dropped check fails at its deadline.
    time::sleep(Duration::from_millis(20)).await;
    wait_for_tasks().await;
    assert_eq!(degraded(&check(&hasty, "192.0.2.1", 1).await), Some("breaker_open"));
}

#[tokio::test]
async fn a_server_that_hangs_leaves_time_for_the_others() {
    let servers = [Server::start(), Server::start()];
    // Each check to the server that hangs takes a connection of its own, because none becomes free.
    let proxy = DelayProxy::to(servers[0].address).await;
    let addresses = [proxy.address, servers[1].address];
    let remote = remote(&addresses).breaker(5, Duration::from_hours(1)).deadline(Duration::from_millis(800));
    servers[0].pause();
    for client in 0..50 {
        let decision = check(&remote, &format!("192.0.2.{client}"), 1).await;
        assert_eq!((degraded(&decision), decision.remaining), (None, Some(1)), "the other server decides");
    }
    // Five fail one after the other: each counts from 800 ms to 1,200 ms after the one before, as every other check asks the
    // one that hangs first, for 400 ms. So at most three begin for each that counts, and one more before it is known.
    let slow = proxy.connections();
    assert!((5..=16).contains(&slow), "{slow}");
    servers[0].resume();
}

#[tokio::test]
async fn checks_in_flight_to_a_slow_server_are_bounded() {
    const DELAY: Duration = Duration::from_millis(700);
    let server = Server::start();
    let (proxy, hasty) = loop {
        let proxy = DelayProxy::to(server.address).await;
        let hasty = remote(&[proxy.address]).breaker(1_000, PAUSE).deadline(Duration::from_millis(20)).max_in_flight(3);
        proxy.delay(DELAY);
        let begun = Instant::now();
        let mut reasons = Vec::new();
        for client in 0..8 {
            let decision = check(&hasty, &format!("192.0.2.{client}"), 1).await;
            reasons.push(decision.degraded.expect("no server decides in time"));
        }
        // Otherwise the machine stood still, and answers may have come in between.
        if begun.elapsed() < DELAY {
            assert_eq!(reasons, [["timeout"; 3].as_slice(), &["busy"; 5]].concat());
            break (proxy, hasty);
        }
    };
    assert_eq!(proxy.connections(), 3);
    proxy.delay(Duration::ZERO);
    wait_for_answers(&proxy, 3).await;
    let patient = hasty.deadline(PATIENT);
    for client in 10..20 {
        assert_eq!(degraded(&check(&patient, &format!("192.0.2.{client}"), 1).await), None);
    }
    assert_eq!(proxy.connections(), 3);
}
