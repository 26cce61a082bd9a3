//! Test only: one check of a run, with the record of what was admitted.

use std::{sync::Mutex, time::Duration};

use tidegate::{
    Identity, Request,
    internals::{BeginResult, StoreAnswer},
    policy::Sharing,
    time::Nanos,
};
use tokio::time::sleep;

use super::{
    history::RunHistory,
    judge::Admission,
    network::Network,
    node::{SimulatedNode, place_of},
};
use crate::lock::lock;

/// Makes one check, and records what was admitted.
// Long: one check from its beginning to its refund.
pub(super) async fn check(
    node: &SimulatedNode,
    network: &Network,
    history: &Mutex<RunHistory>,
    (key, cost): (usize, u64),
    refund: Option<Duration>,
) {
    let user = key.to_string();
    let who = [Identity::new("user", &user).expect("a user")];
    let request = Request::new(&who).and_then(|request| request.cost(cost)).expect("a request");
    let shared = &node.shared;
    let asked_at = network.now();
    let begun = if refund.is_some() {
        shared.begin_if_shared(&request, false).expect("a limit")
    } else {
        shared.begin(&request)
    };
    let mut reserved = None;
    let (decision, times) = match begun {
        BeginResult::Decided(decision) => (decision, Vec::new()),
        BeginResult::Pending(pending) => {
            let limits: Vec<_> = pending.charges().map(|charge| (place_of(charge.limit_id), charge.sharing)).collect();
            let answers = shared.ask(&pending).await;
            let times = limits.into_iter().zip(answers.iter().map(time_of)).collect();
            let decision = if refund.is_some() {
                let (decision, its) = shared.finish_reserved(pending, &answers);
                reserved = its;
                decision
            } else {
                shared.finish(pending, &answers)
            };
            (decision, times)
        }
    };
    let now = network.now();
    let admitted = {
        let mut history = lock(history);
        history.digest([now, key as u64, cost, u64::from(decision.is_allowed())]);
        history.note(now, || {
            let what = if decision.is_allowed() { "admits" } else { "denies" };
            format!("node {} {what} {cost} of key {key} {:?} {times:?}", node.place, decision.degraded())
        });
        history.report.checks += 1;
        history.report.degraded += u64::from(decision.degraded().is_some());
        // The caller of a dead node got no answer.
        if !decision.is_allowed() || decision.degraded().is_some() || node.wire.is_dead() {
            return;
        }
        history.report.admitted += 1;
        let first = history.admissions.len();
        let admission = |limit, from, until| Admission { limit, key, from, until, cost };
        if times.is_empty() || now == asked_at {
            let limits = history.limits;
            history.admissions.extend((0..limits).map(|limit| admission(limit, now, now)));
        }
        for &((limit, sharing), at) in times.iter().filter(|_| now > asked_at) {
            let at = at.unwrap_or(now);
            // For a lease or a view the node states its own time, which may be a little early.
            let until = if sharing == Sharing::Strict { at } else { now.max(at) };
            history.admissions.push(admission(limit, at.max(asked_at).min(until), until));
        }
        first..history.admissions.len()
    };
    if let (Some(refund), Some(reserved)) = (refund, reserved) {
        sleep(refund).await;
        if node.wire.is_dead() {
            return;
        }
        shared.settle(reserved, 0);
        let mut history = lock(history);
        history.note(network.now(), || format!("node {} gives back {cost} of key {key}", node.place));
        history.admissions[admitted].iter_mut().for_each(|it| it.cost = 0);
    }
}

fn time_of(answer: &StoreAnswer) -> Option<Nanos> {
    match *answer {
        StoreAnswer::Decided { now, .. } => Some(now),
        _ => None,
    }
}
