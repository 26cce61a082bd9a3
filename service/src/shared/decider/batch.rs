//! Decides the checks of batches and streams, in turns that leave other connections of the thread their time.

use std::pin::pin;

use futures_util::stream::{self, StreamExt};
use tidegate::{Decision, Request, clock::Clock};
use tokio::task::yield_now;

use super::{CheckResult, Decider, catch_panic, without_reservation};
use crate::shared::{caller_shares::Caller, request_id_cache::CallKind};

/// Checks of one batch or stream that wait at once for the store, or for a [place](super::StoreConcurrency) there, of
/// which a peer has as many. Each takes a kilobyte, and one peer may have 1,250 batches over HTTP and 128 times as many
/// streams over gRPC.
pub(crate) const CONCURRENT_CHECKS_MAX: usize = 16;
/// Checks of a batch that are decided in one turn of their task: 0.1 ms. A batch of 10,000 would keep all other
/// connections of its thread waiting.
pub(crate) const TURN_CHECKS: usize = 128;

impl<C: Clock> Decider<C> {
    /// Decides requests in their order, each after the charges of those before it, and calls `tell` with each outcome.
    pub(crate) async fn check_batch<'e>(
        &'e self,
        requests: &[Request<'_>],
        caller: &Caller,
        mut tell: impl FnMut(CheckResult<'e>),
    ) {
        if self.store.is_some() {
            // Without a request ID there is no `Reused` error.
            let decide = |request| async move {
                let decided = self.decide_once((None, CallKind::Check), caller, request, &mut None).await;
                self.outcome_or_undecided(request, decided.ok().flatten())
            };
            return self.decide_each(requests, decide, tell).await;
        }
        for (turn, requests) in requests.chunks(TURN_CHECKS).enumerate() {
            if turn > 0 {
                yield_now().await;
            }
            let mut count = 0;
            let add = |decision| {
                count += 1;
                tell(self.outcome(without_reservation(decision)));
            };
            let decided = catch_panic(|| self.engine.check_batch(requests, &mut DecisionSink(add)));
            // Deciding the next request panicked. It may have been charged, so it is not decided again. The panic may
            // also be of a broken clock, before any of the next 16 requests was charged. The later requests are decided
            // one by one, so that a panic of one of them leaves the others their decisions, and no plan is made for
            // others in vain.
            if decided.is_none()
                && let Some((panicked, later)) = requests[count..].split_first()
            {
                tell(self.undecided(panicked.parts().domain));
                for request in later {
                    let decided = catch_panic(|| without_reservation(self.engine.check(request)));
                    tell(self.outcome_or_undecided(request, decided));
                }
            }
        }
    }

    /// Calls `decide` for each item, and `tell` with each result, in their order. Where there is a store, the calls
    /// begin in order, and up to [`CONCURRENT_CHECKS_MAX`] wait for it at once, all of which begin in the first turn.
    /// After each [`TURN_CHECKS`] other tasks of the thread have a turn.
    pub(crate) async fn decide_each<T, F: Future>(
        &self,
        all: impl IntoIterator<Item = T>,
        decide: impl Fn(T) -> F,
        mut tell: impl FnMut(F::Output),
    ) {
        if self.store.is_none() {
            for (number, item) in (1..).zip(all) {
                tell(decide(item).await);
                end_turn(number).await;
            }
            return;
        }
        let mut decided = pin!(stream::iter(all).map(decide).buffered(CONCURRENT_CHECKS_MAX).zip(stream::iter(1..)));
        while let Some((result, number)) = decided.next().await {
            tell(result);
            end_turn(number).await;
        }
    }
}

/// A collection that calls a function with each decision as it is added.
struct DecisionSink<F>(F);

impl<'e, F: FnMut(Decision<'e>)> Extend<Decision<'e>> for DecisionSink<F> {
    fn extend<I: IntoIterator<Item = Decision<'e>>>(&mut self, decisions: I) {
        decisions.into_iter().for_each(&mut self.0);
    }
}

/// Gives other tasks of the thread a turn after each [`TURN_CHECKS`] checks of a batch; `number` counts them from 1.
async fn end_turn(number: usize) {
    if number.is_multiple_of(TURN_CHECKS) {
        yield_now().await;
    }
}
