//! A node's view of one key of a `synced` limit: what all nodes have used as far as it knows, and its own charges that
//! it has not sent yet. Pure: time is an argument, and nothing here sends a request.

use tidegate::{
    algorithm::{Carry, Meter},
    internals::{Receipt, StoreAnswer, Verdict},
    time::Nanos,
};

#[cfg(test)]
use crate::store::simulation::Mutation;

/// A view of a key: the use by all nodes as far as it is known here, and the charges that were not sent yet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct SyncedUsage {
    word: u64,
    unsent: u64,
    /// The end of the window of those charges.
    ends: Nanos,
    /// The time of the first of them.
    since: Nanos,
    number: u64,
    /// The tokens that are being sent, under the number.
    in_flight: Option<u64>,
    is_listed: bool,
}

impl SyncedUsage {
    /// Makes a view. Its numbers go on after those of any earlier view that this process had of the key, since the
    /// store takes a number once. They are microseconds of this node's clock, and each exchange takes longer than that.
    pub(crate) fn new(own_now: Nanos) -> Self {
        Self { number: own_now / 1_000, ..Self::default() }
    }

    /// Spends tokens. Returns `true` if the view now has something to send and is not listed for the next exchange.
    pub(crate) fn spend(&mut self, meter: &Meter, cost: u64, now: Nanos) -> (StoreAnswer, bool) {
        let verdict = meter.step(self.word, now, cost);
        let Verdict::Admit(word) = verdict else {
            return (StoreAnswer::Decided { verdict, word: self.word, now }, false);
        };
        self.word = word;
        (StoreAnswer::Decided { verdict, word, now }, self.add(meter, cost, now))
    }

    fn add(&mut self, meter: &Meter, cost: u64, now: Nanos) -> bool {
        if self.unsent == 0 {
            self.since = now;
        }
        let ends = meter.window_end(self.word);
        if matches!(meter, Meter::FixedWindow(_)) && ends != self.ends {
            // Charges of the window before no longer count.
            self.unsent = 0;
        }
        self.ends = ends;
        self.unsent = self.unsent.saturating_add(cost);
        !std::mem::replace(&mut self.is_listed, true)
    }

    /// Charges what was used already, as far as at most `max_debt` tokens are owed above the capacity.
    pub(crate) fn overcharge(&mut self, meter: &Meter, cost: u64, max_debt: u64, now: Nanos) -> bool {
        let cost = cost.min(meter.debt_room(self.word, now, max_debt));
        self.word = meter.overcharge(self.word, now, cost);
        self.add(meter, cost, now)
    }

    pub(crate) fn look(&self, meter: &Meter, cost: u64, now: Nanos) -> StoreAnswer {
        match meter.step(self.word, now, cost.max(1)) {
            Verdict::Admit(_) => StoreAnswer::WouldAdmit { word: self.word, now },
            verdict => StoreAnswer::Decided { verdict, word: self.word, now },
        }
    }

    /// Takes back a charge of a denied request. Returns the tokens that were sent already, which the store must take
    /// back.
    pub(crate) fn put_back(&mut self, meter: &Meter, receipt: &Receipt, now: Nanos) -> u64 {
        if let Some(word) = meter.give_back(self.word, now, receipt) {
            self.word = word;
        }
        // A charge from before the first unsent one was sent, or is of another window.
        let is_unsent = receipt.charged_at >= self.since && meter.window_end(receipt.word) == self.ends;
        let here = if is_unsent { receipt.cost.min(self.unsent) } else { 0 };
        self.unsent -= here;
        receipt.cost - here
    }

    /// Returns the number and the tokens to send; the same again until an answer arrives. `None`: there is nothing to
    /// send.
    pub(crate) fn next_delta(&mut self) -> Option<(u64, u64)> {
        if self.in_flight.is_none() && self.unsent > 0 {
            self.number += 1;
            self.in_flight = Some(std::mem::take(&mut self.unsent));
        }
        self.is_listed = self.in_flight.is_some();
        #[cfg(test)]
        if Mutation::DeltaGetsNewNumber.is_on() {
            self.number += 1;
        } else if Mutation::DeltaIsForgotten.is_on() {
            return self.in_flight.take().map(|tokens| (self.number, tokens));
        }
        self.in_flight.map(|tokens| (self.number, tokens))
    }

    /// Takes in the store's answer to what was sent. Returns `true` if there is more to send.
    pub(crate) fn take_reply(&mut self, meter: &Meter, word: u64, now: Nanos) -> bool {
        self.in_flight = None;
        let all = if self.unsent > 0 { meter.overcharge(word, now, self.unsent) } else { word };
        self.word = meter.merge(self.word, all);
        self.is_listed = self.unsent > 0;
        self.is_listed
    }

    /// Takes in the state of a store that was asked instead of this view. Unsent charges are added in the next
    /// exchange.
    pub(crate) fn merge(&mut self, meter: &Meter, word: u64) {
        self.word = meter.merge(self.word, word);
    }

    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Switches to other numbers.
    pub(crate) fn carry(&mut self, from: &Meter, to: &Meter, now: Nanos) {
        self.word = from.carry_over(self.word, now, to, Carry::Keep);
        self.ends = to.window_end(self.word);
    }

    /// Returns the tokens that were spent here and that no request to the store has carried yet.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Returns the tokens that were spent here and that no answer of the store has covered yet, those under way
    /// included.
    pub(crate) fn unanswered(&self) -> u64 {
        self.unsent + self.in_flight.unwrap_or(0)
    }

    /// Returns the time since which something is unsent or under way.
    pub(crate) fn since(&self) -> Option<Nanos> {
        (self.unsent > 0 || self.in_flight.is_some()).then_some(self.since)
    }

    pub(crate) fn is_idle(&self, meter: &Meter, now: Nanos) -> bool {
        self.since().is_none() && meter.reset_after_ns(self.word, now) == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate::time::SECOND_NS;

    use super::*;
    use crate::store::script::plan::excess;

    const START: Nanos = 1_790_035_200 * SECOND_NS;

    #[test]
    fn a_refund_of_sent_tokens_is_not_taken_off_unsent_ones() {
        let meter: Meter = "token_bucket/1000/1000000000/1000".parse().expect("a meter");
        let mut view = SyncedUsage::default();
        let (StoreAnswer::Decided { word, now, .. }, true) = view.spend(&meter, 5, START) else { panic!("it is new") };
        let receipt = Receipt { cost: 5, charged_at: now, word, moved_ns: u64::MAX };
        assert_eq!(view.next_delta().map(|(_, tokens)| tokens), Some(5));
        view.take_reply(&meter, word, START + 1_000_000);
        let _ = view.spend(&meter, 7, START + 2_000_000);
        assert_eq!((view.put_back(&meter, &receipt, START + 3_000_000), view.unsent()), (5, 7));
    }

    #[test]
    fn a_view_takes_in_what_the_store_charged_instead_of_it() {
        let meter: Meter = "token_bucket/10/1000000000/10".parse().expect("a meter");
        let Verdict::Admit(word) = meter.step(0, START, 8) else { panic!("it has ten") };
        let mut view = SyncedUsage::default();
        view.merge(&meter, word);
        assert!(!view.is_listed(), "the store has it");
        let admits = |(answer, _)| matches!(answer, StoreAnswer::Decided { verdict: Verdict::Admit(_), .. });
        assert!(!admits(view.spend(&meter, 3, START)));
        assert!(admits(view.spend(&meter, 2, START)));
        // A view is only ever corrected upwards.
        view.merge(&meter, word);
        assert!(!admits(view.spend(&meter, 1, START)));
    }

    /// A step of nodes that share a limit by views.
    #[derive(Clone, Debug)]
    enum Exchange {
        Check(usize, u64),
        /// A node sends its charges; the reply of the store arrives or is lost.
        Tell(usize, bool),
        /// A node takes back what it has just spent.
        PutBack(usize),
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]
        // Long: the steps share what the test knows of each node.
        #[test]
        fn views_are_never_behind_the_last_answer_and_the_store_counts_each_token_once(
            steps in prop::collection::vec(
                prop_oneof![
                    6 => (0_usize..3, 1_u64..5).prop_map(|(node, cost)| Exchange::Check(node, cost)),
                    3 => (0_usize..3, prop::bool::weighted(0.7)).prop_map(|(node, is_heard)| Exchange::Tell(node, is_heard)),
                    1 => (0_usize..3).prop_map(Exchange::PutBack),
                ],
                0..200,
            ),
            limit in 1_u64..200,
        ) {
            let meter: Meter = format!("fixed_window/{limit}/{}", 1_000_000 * SECOND_NS).parse().expect("a meter");
            let (mut views, mut word) = ([SyncedUsage::default(); 3], 0);
            // By node: the tokens that it admitted, those of them that the store has, the last number that the store
            // has, and the tokens of every node that the store had when this node last had an answer.
            let (mut admitted, mut counted, mut numbers, mut heard) = ([0_u64; 3], [0_u64; 3], [0_u64; 3], [[0_u64; 3]; 3]);
            let mut last = [None; 3];
            for step in steps {
                match step {
                    Exchange::Check(node, cost) => {
                        let (answer, _) = views[node].spend(&meter, cost, START);
                        last[node] = None;
                        if let StoreAnswer::Decided { verdict: Verdict::Admit(word), now, .. } = answer {
                            admitted[node] += cost;
                            last[node] = Some(Receipt { cost, charged_at: now, word, moved_ns: u64::MAX });
                            // Above the limit only by what other nodes admitted since then.
                            let unseen: u64 = (0..3).filter(|&other| other != node).map(|other| admitted[other] - heard[node][other]).sum();
                            prop_assert!(admitted.iter().sum::<u64>() <= limit + unseen);
                        }
                    }
                    Exchange::Tell(node, is_heard) => {
                        let Some((number, tokens)) = views[node].next_delta() else { continue };
                        if number > numbers[node] {
                            numbers[node] = number;
                            counted[node] += tokens;
                            word = meter.overcharge(word, START, tokens);
                        }
                        last[node] = None;
                        if is_heard {
                            views[node].take_reply(&meter, word, START);
                            heard[node] = counted;
                        }
                    }
                    Exchange::PutBack(node) => {
                        if let Some(receipt) = last[node].take() {
                            prop_assert_eq!(views[node].put_back(&meter, &receipt, START), 0);
                            admitted[node] -= receipt.cost;
                        }
                    }
                }
                for node in 0..3 {
                    let known: u64 = (0..3).map(|other| if other == node { admitted[other] } else { heard[node][other] }).sum();
                    prop_assert!(meter.remaining(views[node].word, START) <= limit.saturating_sub(known), "{node}");
                }
            }
            for node in 0..3 {
                while let Some((number, tokens)) = views[node].next_delta() {
                    if number > numbers[node] {
                        numbers[node] = number;
                        word = meter.overcharge(word, START, tokens);
                    }
                    views[node].take_reply(&meter, word, START);
                }
            }
            // The bucket state has room for what was used above the limit: it is a debt.
            prop_assert_eq!(excess(&meter, word, START), admitted.iter().sum::<u64>().saturating_sub(limit));
            prop_assert_eq!(meter.remaining(word, START), limit.saturating_sub(admitted.iter().sum()));
        }
    }
}
