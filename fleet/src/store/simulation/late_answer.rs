//! Test only: a reply that carries a charge arrives late, while another check waits.

use std::{sync::Arc, time::Duration};

use tidegate::{
    Identity, Request,
    internals::BeginResult,
    policy::{Algorithm, Sharing},
    time::SECOND_NS,
};
use tokio::{runtime, time::sleep};

use super::{
    network::{Network, NetworkConditions},
    node::{SharedLimit, SimulatedNode, snapshot},
    scenario::EPOCH,
};
use crate::store::config::StoreSettings;

/// Returns whether a check of this many tokens is admitted.
async fn is_admitted(node: &SimulatedNode, cost: u64) -> bool {
    let who = [Identity::new("user", "0").expect("a user")];
    let request = Request::new(&who).and_then(|request| request.cost(cost)).expect("a request");
    let decision = match node.shared.begin(&request) {
        BeginResult::Decided(decision) => decision,
        BeginResult::Pending(pending) => {
            let answers = node.shared.ask(&pending).await;
            node.shared.finish(pending, &answers)
        }
    };
    decision.is_allowed() && decision.degraded().is_none()
}

async fn play() {
    let limit = SharedLimit {
        sharing: Sharing::Leased,
        algorithm: Algorithm::FixedWindow,
        tokens: 100,
        period_s: 10,
        burst: 1,
    };
    let settings = StoreSettings { timeout: Duration::from_millis(20), ..StoreSettings::default() };
    let network = Network::new(1, EPOCH, (false, false), NetworkConditions { delay_ms: 0, ..NetworkConditions::IDEAL });
    let policy = snapshot(&[limit]);
    let node = |place| SimulatedNode::start(&network, place, (Arc::clone(&policy), 1), settings, EPOCH);
    let (late, other) = (Arc::new(node(0).await), node(1).await);
    let window_ends = EPOCH + 10 * SECOND_NS;
    sleep(Duration::from_nanos(window_ends - 30_000_000 - network.now())).await;
    // More tokens than may be lent, so the store charges the check at once; the reply arrives in the next window.
    late.wire.hold(Duration::from_millis(60));
    let first = Arc::clone(&late);
    let first = tokio::spawn(async move { is_admitted(&first, 30).await });
    sleep(Duration::from_millis(45)).await;
    assert!(network.now() > window_ends && first.is_finished());
    assert!(!first.await.expect("no panic"), "it did not wait so long");
    // Another check waits when the reply arrives.
    let mut admitted = if is_admitted(&late, 30).await { 30 } else { 0 };
    for _ in 0..20 {
        admitted += if is_admitted(&other, 10).await { 10 } else { 0 };
        sleep(Duration::from_millis(150)).await;
    }
    assert_eq!(admitted, 100, "what one window has");
}

#[test]
fn a_late_reply_is_not_taken_by_a_check_that_came_later() {
    let runtime = runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(play());
}
