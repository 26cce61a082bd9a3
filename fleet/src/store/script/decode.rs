//! Decodes the answers of the script into replies to requests.

use tidegate::{
    algorithm::Carry,
    internals::{StoreAnswer, Verdict},
    time::Nanos,
};

use crate::store::script::{
    grant::Grant,
    op::ScriptOp,
    plan::{Intent, KeyRequest, SlotRequest},
    record::StoredRecord,
};

/// The outcome of an operation, as the script names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum OpOutcome {
    Charged,
    Refused,
    /// The operation fits, but another operation of the same request was refused.
    Spared,
    Looked,
    /// A charge with this number was made before.
    Known,
    /// The record is not the one that the operation was planned for.
    Other,
    /// An earlier operation of the request was refused or found another record, so this one was not tried.
    Unasked,
}

impl OpOutcome {
    /// The names that the script gives to the outcomes, in their order.
    const NAMES: [(&str, Self); 7] = [
        ("charged", Self::Charged),
        ("refused", Self::Refused),
        ("spared", Self::Spared),
        ("looked", Self::Looked),
        ("known", Self::Known),
        ("other", Self::Other),
        ("unasked", Self::Unasked),
    ];

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::NAMES.into_iter().find_map(|(its, outcome)| (its == name).then_some(outcome))
    }

    #[cfg(any(test, feature = "model"))]
    pub(super) fn name(self) -> &'static str {
        Self::NAMES.into_iter().find_map(|(name, outcome)| (outcome == self).then_some(name)).unwrap_or_default()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct KeyReply {
    pub(crate) answer: StoreAnswer,
    /// The grant, if the request was for a lease.
    pub(crate) grant: Option<Grant>,
    /// The bucket state under the requester's numbers, as if all lent tokens had been spent.
    pub(crate) word: u64,
    /// The text of the record in the store.
    pub(crate) text: String,
    pub(crate) now: Nanos,
}

/// Returns the replies to a request; `None`: it must be sent again.
pub(crate) fn replies_of(
    slot_request: &mut SlotRequest,
    done: Vec<(OpOutcome, String)>,
    now: Nanos,
) -> Option<Vec<KeyReply>> {
    for request in slot_request.iter_mut() {
        request.tries = request.tries.saturating_add(1);
    }
    let answers: Vec<_> =
        slot_request.iter_mut().zip(done).map(|(request, (done, text))| request.answer(done, text, now)).collect();
    answers.into_iter().collect()
}

impl KeyRequest {
    /// Returns the reply for an outcome; `None`: the request must be sent again.
    // Long: one arm for each intent, over the same record.
    pub(super) fn answer(&mut self, done: OpOutcome, text: String, now: Nanos) -> Option<KeyReply> {
        let reply = |answer, word, text| KeyReply { answer, grant: None, word, text, now };
        if done == OpOutcome::Unasked {
            return Some(reply(StoreAnswer::Failed, 0, String::new()));
        }
        if done == OpOutcome::Other && self.found.as_ref().is_some_and(|found| found.text == text) {
            self.late = self.late.saturating_add(1);
        }
        self.found = Some(StoredRecord::read(text.clone(), &self.own.meter));
        let (held, _) = self.held(now);
        let own = self.own.meter;
        let seen = |word| {
            if held.under.meter == own { word } else { held.under.meter.carry_over(word, now, &own, Carry::Keep) }
        };
        let (word, full) = (seen(held.word), seen(held.full(now)));
        let failed = |is_over: bool| is_over.then(|| reply(StoreAnswer::Failed, full, text.clone()));
        match self.intent {
            // Charged or taken back; or there is nothing left to take back, or no room to owe more.
            Intent::GiveBack(_) | Intent::Overcharge { .. } => {
                failed(done == OpOutcome::Charged || self.op(now).is_err())
            }
            Intent::Reset => failed(done == OpOutcome::Charged),
            Intent::Delta { .. } => failed(matches!(done, OpOutcome::Charged | OpOutcome::Known)),
            Intent::Lease(ask) => {
                match done {
                    OpOutcome::Charged => {}
                    // There was nothing to swap, and there still is not.
                    OpOutcome::Looked if self.op(now).is_ok_and(|op| matches!(op, ScriptOp::Look)) => {}
                    _ => return None,
                }
                // Others may have used and lent more since the grant was planned.
                let grant = self.grant?;
                let others = held.leases.out().saturating_sub(grant.kept + grant.given);
                let grant = Grant { word: seen(held.with(others, now)), ..grant };
                let verdict = match own.step(full, now, ask.need.max(1)) {
                    _ if grant.is_charged || grant.kept + grant.given >= ask.need => Verdict::Admit(grant.word),
                    // It did not fit by what was known earlier, and fits now.
                    Verdict::Admit(_) => Verdict::Later { wait_ns: 1 },
                    refused => refused,
                };
                let answer = StoreAnswer::Decided { verdict, word: grant.word, now };
                Some(KeyReply { grant: Some(grant), ..reply(answer, full, text) })
            }
            // A look is a step of one token whose result is not stored.
            Intent::Look(cost) => {
                let answer = match held.under.meter.step(held.full(now), now, cost.max(1)) {
                    Verdict::Admit(_) => StoreAnswer::WouldAdmit { word: full, now },
                    verdict => StoreAnswer::Decided { verdict, word: full, now },
                };
                Some(reply(answer, full, text))
            }
            Intent::Charge(cost) => {
                let step = held.under.meter.step(held.full(now), now, cost);
                let answer = match (done, step) {
                    (OpOutcome::Charged, _) => StoreAnswer::Decided { verdict: Verdict::Admit(word), word: full, now },
                    // It fits now, but was not charged.
                    (OpOutcome::Looked, Verdict::Admit(_)) if self.is_refused => return None,
                    (OpOutcome::Spared, _) | (OpOutcome::Looked, Verdict::Admit(_)) => {
                        StoreAnswer::WouldAdmit { word: full, now }
                    }
                    // It did not fit by what was known earlier, and fits now.
                    (OpOutcome::Refused, Verdict::Admit(_))
                    | (OpOutcome::Other | OpOutcome::Unasked | OpOutcome::Known, _) => return None,
                    (OpOutcome::Refused | OpOutcome::Looked, verdict) => {
                        StoreAnswer::Decided { verdict, word: full, now }
                    }
                };
                Some(reply(answer, full, text))
            }
        }
    }
}
