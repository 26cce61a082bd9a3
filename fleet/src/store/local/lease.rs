//! The lease of a node on one key of a `leased` limit: tokens that it took in advance. Pure: time is an argument, and
//! nothing here sends a request.

use std::time::Duration;

use tidegate::{
    Answer,
    algorithm::{Meter, Receipt, Verdict},
    time::{Nanos, SECOND_NS},
};

use crate::store::{
    client::clock_reading::ClockReading,
    script::grant::{Grant, LeaseRequest},
};

/// The longest and the shortest time for which a batch should last at the key's current rate.
const HORIZON_MAX: Duration = Duration::from_secs(8);

const HORIZON_MIN: Duration = Duration::from_millis(100);

/// The time for which the first batch should last. A batch that may last as long has at least a 64th of the limit:
/// otherwise a key that is used now and then would ask again and again for all that is left.
const HORIZON_FIRST: Duration = Duration::from_secs(1);

/// The time before its end at which a batch is renewed, at the key's current rate.
const AHEAD: Duration = Duration::from_millis(100);

/// The age at which a lease in use is renewed, the time without use after which it goes back, and the interval of the
/// checks for both.
const fn renewed_at_ns(lease_ns: Nanos) -> Nanos {
    lease_ns / 3 * 2
}

const fn unused_ns(lease_ns: Nanos) -> Nanos {
    lease_ns / 2
}

pub(crate) const fn look_every(lease_ns: Nanos) -> Duration {
    Duration::from_nanos(lease_ns / 6)
}

/// The longest pause after the store had fewer tokens than were wanted; it is shorter where a 16th of the limit comes
/// back sooner. No node takes the tokens that come back meanwhile, but they are not lost.
const PAUSE_MAX_NS: Nanos = SECOND_NS / 10;

/// The time for which a denial by the store's last answer is repeated without asking again.
const STALE_NS: Nanos = SECOND_NS;

/// The time within which a store that is reachable answers, even on a busy machine.
const ANSWER_NS: Nanos = SECOND_NS / 20;

/// The retry time of a denial while an answer is about to arrive.
const SOON_NS: Nanos = SECOND_NS / 1_000;

/// The number of denials in a pause from which on checks are a crowd: they are denied at once instead of waiting for an
/// answer.
const CROWD: u32 = 32;

/// A lease: tokens that were taken in advance. Times are by this node's own clock, except the end of a window.
#[derive(Clone, Copy, PartialEq, Debug)]
// The fields that each check needs come first, in one cache line.
#[repr(C)]
pub(crate) struct Lease {
    left: u64,
    /// The time from which on nothing of it is spent.
    over_at: Nanos,
    /// The bucket state as if all tokens that other nodes hold, and those that were spent here, had been charged.
    word: u64,
    /// The number of tokens below which it is renewed.
    mark: u64,
    closed_until: Nanos,
    used_at: Nanos,
    /// The tokens that were spent since the last request, and the time of that request.
    spent: u64,
    asked_at: Nanos,
    heard_at: Nanos,
    /// Denials since the last crowd, and the time until which there is a crowd.
    denied: u32,
    pub(crate) is_asking: bool,
    crowd_until: Nanos,
    /// The time from which on what is spent belongs to this lease.
    since: Nanos,
    /// The lease as the store counts it: the epoch, the end of the window, and the tokens that are out.
    epoch: u64,
    ends: Nanos,
    out: u64,
    /// The rate of use, tokens a second.
    rate: f64,
    horizon: Duration,
}

/// The result of spending tokens of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpendResult {
    /// The answer, and whether it is time to renew the lease.
    Answer(Answer, bool),
    /// The store must be asked.
    Ask,
}

/// The upkeep that a lease needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Upkeep {
    Keep,
    Renew,
    GiveBack,
    /// The node can forget the lease.
    Forget,
}

impl Lease {
    pub(crate) fn new() -> Self {
        Self {
            word: 0,
            heard_at: 0,
            since: 0,
            epoch: 0,
            ends: 0,
            out: 0,
            left: 0,
            over_at: 0,
            mark: 0,
            asked_at: 0,
            spent: 0,
            rate: 0.0,
            horizon: HORIZON_FIRST,
            closed_until: 0,
            denied: 0,
            crowd_until: 0,
            is_asking: false,
            used_at: 0,
        }
    }

    /// Returns the tokens that can be spent.
    fn left(&self, now: ClockReading) -> u64 {
        if now.own < self.over_at { self.left } else { 0 }
    }

    /// Returns the tokens that the store counts as out for it.
    pub(crate) fn out(&self) -> u64 {
        self.out
    }

    /// Returns the upkeep that the lease needs now; called [at intervals](look_every). A lease is renewed in the last
    /// third of its life, and goes back if it is no longer used.
    pub(crate) fn look_after(&self, now: ClockReading, lease_ns: Nanos) -> Upkeep {
        let is_used = now.own.saturating_sub(self.used_at) < unused_ns(lease_ns);
        match self.out {
            _ if self.is_asking => Upkeep::Keep,
            0 if is_used => Upkeep::Keep,
            0 => Upkeep::Forget,
            _ if !is_used => Upkeep::GiveBack,
            _ if now.own.saturating_sub(self.asked_at) < renewed_at_ns(lease_ns) => Upkeep::Keep,
            _ => Upkeep::Renew,
        }
    }

    pub(crate) fn spend(&mut self, meter: &Meter, cost: u64, now: ClockReading) -> SpendResult {
        let decided = |verdict, word| Answer::Decided { verdict, word, now: now.store };
        self.used_at = now.own;
        if self.left(now) >= cost {
            self.left -= cost;
            self.spent = self.spent.saturating_add(cost);
            self.word = meter.overcharge(self.word, now.store, cost);
            let is_low = self.left < self.mark && !self.is_asking && now.own >= self.closed_until;
            return SpendResult::Answer(decided(Verdict::Admit(self.word), self.word), is_low);
        }
        let verdict = meter.step(self.word, now.store, cost);
        let is_fresh = now.own.saturating_sub(self.heard_at) < STALE_NS;
        let pause_ns = self.closed_until.saturating_sub(now.own);
        let (wait_ns, is_time) = match verdict {
            Verdict::Never => return SpendResult::Answer(decided(verdict, self.word), false),
            Verdict::Later { wait_ns } if is_fresh => (wait_ns.max(pause_ns), false),
            _ if pause_ns > 0 => (pause_ns, false),
            _ if now.own < self.crowd_until && !self.is_silent(now) => (SOON_NS, !self.is_asking),
            // The lease ran out before the answer arrived, and the limit had too few tokens: a later check takes what
            // the answer brings.
            _ if self.is_asked_of_little(now) => (SOON_NS, false),
            _ => return SpendResult::Ask,
        };
        self.denied += 1;
        if self.denied >= CROWD {
            (self.denied, self.crowd_until) = (0, now.own + PAUSE_MAX_NS);
        }
        SpendResult::Answer(decided(Verdict::Later { wait_ns }, self.word), is_time)
    }

    /// Returns whether an answer is overdue.
    fn is_silent(&self, now: ClockReading) -> bool {
        self.is_asking && now.own.saturating_sub(self.asked_at) >= ANSWER_NS
    }

    /// Returns whether an answer is about to arrive from a store that had fewer tokens than were wanted.
    fn is_asked_of_little(&self, now: ClockReading) -> bool {
        self.is_asking
            && !self.is_silent(now)
            && self.closed_until > 0
            && now.own < self.closed_until.saturating_add(STALE_NS)
    }

    /// Returns what a charge would lead to, as far as it is known here.
    pub(crate) fn look(&self, meter: &Meter, cost: u64, now: ClockReading) -> Option<Answer> {
        match Self::clone(self).spend(meter, cost.max(1), now) {
            SpendResult::Answer(Answer::Decided { verdict: Verdict::Admit(_), .. }, _) => {
                Some(Answer::WouldAdmit { word: self.word, now: now.store })
            }
            SpendResult::Answer(answer, _) => Some(answer),
            SpendResult::Ask => None,
        }
    }

    /// Puts back a charge of a denied request, as far as it was charged to this lease. Returns the other tokens, which
    /// the store must take back.
    pub(crate) fn put_back(&mut self, meter: &Meter, receipt: &Receipt, now: ClockReading) -> u64 {
        let age_ns = now.store.saturating_sub(receipt.charged_at);
        let is_its = now.own < self.over_at
            && age_ns < now.own.saturating_sub(self.since)
            && meter.ends(receipt.word) == self.ends;
        let here = if is_its { receipt.cost.min(self.out.saturating_sub(self.left)) } else { 0 };
        self.left += here;
        if let Some(word) = meter.give_back(self.word, now.store, receipt) {
            self.word = word;
        }
        receipt.cost - here
    }

    /// Plans the request for the tokens that a check waits for, and for those that are likely to be needed. `keep`
    /// means that the node goes on with what is left.
    pub(crate) fn ask(&mut self, meter: &Meter, need: u64, keep: bool, now: ClockReading) -> LeaseRequest {
        let since = Duration::from_nanos(now.own.saturating_sub(self.asked_at)).as_secs_f64().max(1e-6);
        // The recent rate if it is higher, otherwise the mean of both.
        let rate = self.spent as f64 / since;
        self.rate = if rate > self.rate { rate } else { f64::midpoint(self.rate, rate) };
        let left = self.left(now);
        let most = (meter.capacity() / 16).max(1);
        let least = meter.capacity() as f64 / 64.0 * self.horizon.div_duration_f64(HORIZON_FIRST).min(1.0);
        #[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "a part of the capacity")]
        let batch = self.within(self.horizon).max(least as u64).clamp(1, most);
        let (kept, want) = if keep { (left, batch.max(need).saturating_sub(left)) } else { (0, 0) };
        // Tokens of a lease that ran out were not spent.
        let ask =
            LeaseRequest { epoch: self.epoch, ends: self.ends, out: self.out, left: self.left, keep: kept, want, need };
        // Until the answer arrives, the store may count the old lease or the new one, so nothing is reported as out.
        self.left = kept;
        self.out = 0;
        self.is_asking = true;
        (self.asked_at, self.spent) = (now.own, 0);
        ask
    }

    /// Takes in the answer, which the store gave at `heard_at` of its clock.
    pub(crate) fn granted(
        &mut self,
        meter: &Meter,
        ask: &LeaseRequest,
        grant: &Grant,
        (heard_at, now): (Nanos, ClockReading),
        lease_ns: Nanos,
    ) {
        let Grant { epoch, ends, kept, given, word, .. } = *grant;
        self.is_asking = false;
        let spent = kept.saturating_sub(self.left);
        (self.epoch, self.ends, self.out) = (epoch, ends, kept + given);
        // Tokens that were spent meanwhile are of the old lease, if the store no longer counts it.
        self.since = if grant.is_counted { self.asked_at } else { now.own };
        // Without new tokens, the rest of the old lease is good until it is over.
        if self.out > 0 {
            self.left = kept - spent + given;
            self.over_at = self.asked_at.saturating_add(lease_ns.min(ends.saturating_sub(heard_at)));
        }
        self.word = if spent > 0 { meter.overcharge(word, heard_at, spent) } else { word };
        self.heard_at = now.own;
        let batch = self.out;
        self.mark = self.within(AHEAD).clamp(batch / 8, batch.div_ceil(2));
        if grant.is_charged || grant.is_all_out {
            // The limit has enough, but no more of it may be lent: until more may, each check asks the store.
            (self.closed_until, self.denied, self.crowd_until) = (0, 0, 0);
            self.horizon = (self.horizon / 2).max(HORIZON_MIN);
        } else if kept + given < ask.wanted() {
            // Other nodes want the tokens too: smaller batches, after a pause.
            self.horizon = (self.horizon / 2).max(HORIZON_MIN);
            self.closed_until = now.own + PAUSE_MAX_NS.min(meter.period_ns() / 16);
        } else {
            self.closed_until = 0;
            self.horizon = (self.horizon * 5 / 4).min(HORIZON_MAX);
        }
    }

    /// Returns the tokens that are likely to be used in this time.
    #[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "it is not negative, and saturates")]
    fn within(&self, time: Duration) -> u64 {
        (self.rate * time.as_secs_f64()).ceil() as u64
    }

    /// Records that no answer arrived. What is left is good until it is over; the store will count what it lent as
    /// spent.
    pub(crate) fn failed(&mut self) {
        (self.is_asking, self.closed_until, self.denied, self.crowd_until) = (false, 0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::config::LEASE_NS;
    use crate::store::script::{
        decode::KeyReply,
        grant::granted,
        plan::{Intent, KeyRequest},
        record::{Leases, Record, VersionedMeter},
        script_model,
    };

    const START: Nanos = 1_790_035_200 * SECOND_NS;

    #[derive(Clone, Debug)]
    enum Event {
        /// A node is asked for this many tokens.
        Check(usize, u64),
        /// The store handles one of the requests under way, in any order.
        Serve {
            which: usize,
            reply: Reply,
        },
        /// A node receives a late reply.
        Hear(usize),
        /// A node renews its lease, or gives it back.
        Renew(usize, bool),
        /// A node takes back one of its charges.
        PutBack(usize, usize),
        /// A node gets the newest numbers.
        Publish(usize),
        /// A node dies, and another one takes its place.
        Crash(usize),
        Pass(u64),
        /// The time moves to so many milliseconds before the end of the window.
        WindowEnds(u64),
        /// A node uses all that is left, and each reply arrives at once.
        UseUp(usize),
    }

    /// The fate of a reply of the store.
    #[derive(Clone, Copy, Debug)]
    enum Reply {
        Heard,
        Late,
        Lost,
    }

    /// Draws the index of a request, mostly that of the oldest.
    fn serve_order() -> impl Strategy<Value = usize> {
        prop_oneof![3 => Just(0), 2 => 0_usize..4]
    }

    fn reply() -> impl Strategy<Value = Reply> {
        prop_oneof![7 => Just(Reply::Heard), 2 => Just(Reply::Late), 1 => Just(Reply::Lost)]
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let event = prop_oneof![
            16 => (0_usize..3, 1_u64..6).prop_map(|(node, cost)| Event::Check(node, cost)),
            12 => (serve_order(), reply()).prop_map(|(which, reply)| Event::Serve { which, reply }),
            3 => serve_order().prop_map(Event::Hear),
            2 => (0_usize..3, any::<bool>()).prop_map(|(node, keeps)| Event::Renew(node, keeps)),
            4 => (0_usize..3, 0_usize..10).prop_map(|(node, which)| Event::PutBack(node, which)),
            1 => (0_usize..3).prop_map(Event::Publish),
            1 => (0_usize..3).prop_map(Event::Crash),
            6 => prop_oneof![4 => 0..30_u64, 2 => 0..2_000_u64, 1 => 0..40_000_u64].prop_map(Event::Pass),
            3 => prop_oneof![Just(0), 1..30_u64].prop_map(Event::WindowEnds),
            2 => (0_usize..3).prop_map(Event::UseUp),
        ];
        prop::collection::vec(event, 0..400)
    }

    const SERVE: Event = Event::Serve { which: 0, reply: Reply::Heard };

    struct Node {
        lease: Lease,
        own: VersionedMeter,
        /// The record of the store that the node knows.
        known: String,
        /// The offset of its own clock.
        offset: Nanos,
        /// The generation of the node in this place.
        born: usize,
        /// The charges, each with its numbers and its index in `admitted`.
        receipts: Vec<(Receipt, VersionedMeter, usize)>,
    }

    /// A request of a node: for a lease, or to give back a charge of a denied request.
    struct Sent {
        node: usize,
        born: usize,
        own: VersionedMeter,
        what: Intent,
    }

    /// The store's reply to a request for a lease.
    struct Replied {
        node: usize,
        born: usize,
        own: VersionedMeter,
        ask: LeaseRequest,
        told: KeyReply,
        is_lost: bool,
        served_at: Nanos,
    }

    /// The store of one key, and three nodes with clocks of their own.
    struct World {
        newest: Meter,
        now: Nanos,
        value: String,
        nodes: [Node; 3],
        under_way: Vec<Sent>,
        replies: Vec<Replied>,
        /// The time and the tokens of each admission; no tokens where the charge was taken back.
        admitted: Vec<(Nanos, u64)>,
    }

    impl World {
        fn new(numbers: [Meter; 2]) -> Self {
            let own = VersionedMeter { meter: numbers[0], version: 0 };
            let nodes = [0, 77, 30 * SECOND_NS].map(|offset| Node {
                lease: Lease::new(),
                own,
                known: String::new(),
                offset,
                born: 0,
                receipts: Vec::new(),
            });
            let (value, under_way, replies, admitted) = (String::new(), Vec::new(), Vec::new(), Vec::new());
            Self { newest: numbers[1], now: START, value, nodes, under_way, replies, admitted }
        }

        fn moment(&self, node: usize) -> ClockReading {
            // The store's time as a node knows it is a little late, and the node's own clock begins anywhere.
            ClockReading { store: self.now - 300_000 * node as u64, own: self.now - self.nodes[node].offset }
        }

        fn ask(&mut self, node: usize, need: u64, keep: bool) {
            let now = self.moment(node);
            let Node { lease, own, born, .. } = &mut self.nodes[node];
            if !lease.is_asking {
                let what = Intent::Lease(lease.ask(&own.meter, need, keep, now));
                self.under_way.push(Sent { node, born: *born, own: *own, what });
            }
        }

        fn admit(&mut self, node: usize, cost: u64, answer: Answer) {
            let Answer::Decided { verdict: Verdict::Admit(word), now, .. } = answer else { return };
            let receipt = Receipt { cost, charged_at: now, word, moved_ns: u64::MAX };
            let Node { own, receipts, .. } = &mut self.nodes[node];
            receipts.push((receipt, *own, self.admitted.len()));
            self.admitted.push((self.now, cost));
        }

        fn hear(&mut self, which: usize) {
            let Replied { node, born, own, ask, told, is_lost, served_at } = self.replies.remove(which);
            let now = self.moment(node);
            let it = &mut self.nodes[node];
            if it.born != born {
                return;
            }
            match told.grant {
                Some(grant) if !is_lost => {
                    it.lease.granted(&own.meter, &ask, &grant, (served_at, now), LEASE_NS);
                    it.known = told.text;
                }
                _ => it.lease.failed(),
            }
        }

        fn happen(&mut self, event: &Event) {
            match *event {
                Event::Pass(ms) => self.now += ms * 1_000_000,
                Event::Check(node, cost) => {
                    let now = self.moment(node);
                    let Node { lease, own, .. } = &mut self.nodes[node];
                    match lease.spend(&own.meter, cost, now) {
                        SpendResult::Answer(answer, is_time) => {
                            self.admit(node, cost, answer);
                            if is_time {
                                self.ask(node, 0, true);
                            }
                        }
                        SpendResult::Ask => self.ask(node, cost, true),
                    }
                }
                Event::Renew(node, keeps) => self.ask(node, 0, keeps),
                Event::PutBack(node, which) => {
                    let now = self.moment(node);
                    let Node { lease, own, born, receipts, .. } = &mut self.nodes[node];
                    if receipts.is_empty() {
                        return;
                    }
                    let (receipt, under, place) = receipts.swap_remove(which % receipts.len());
                    let is_its = own.meter == under.meter;
                    let left = if is_its { lease.put_back(&own.meter, &receipt, now) } else { receipt.cost };
                    if left > 0 {
                        let what = Intent::GiveBack(Receipt { cost: left, ..receipt });
                        self.under_way.push(Sent { node, born: *born, own: under, what });
                    }
                    self.admitted[place].1 = 0;
                }
                Event::Publish(node) => {
                    let own = VersionedMeter { meter: self.newest, version: 1 };
                    if self.nodes[node].own.meter != own.meter {
                        if self.nodes[node].lease.out() > 0 {
                            self.ask(node, 0, false);
                        }
                        self.nodes[node].lease = Lease::new();
                        self.nodes[node].born += 1;
                    }
                    self.nodes[node].own = own;
                }
                Event::Crash(node) => {
                    let Node { own, offset, born, .. } = self.nodes[node];
                    let (lease, known, receipts) = (Lease::new(), String::new(), Vec::new());
                    self.nodes[node] = Node { lease, own, known, offset: offset / 2, born: born + 1, receipts };
                    self.under_way.retain(|sent| sent.node != node);
                }
                Event::WindowEnds(in_ms) => {
                    let period_ns = self.newest.period_ns();
                    self.now = self.now.max((self.now / period_ns + 1) * period_ns - in_ms * 1_000_000);
                }
                Event::UseUp(node) => {
                    for _ in 0..100 {
                        let count = self.admitted.len();
                        self.happen(&Event::Check(node, 1));
                        if let Some(which) = self.under_way.iter().position(|sent| sent.node == node) {
                            self.happen(&Event::Serve { which, reply: Reply::Heard });
                        }
                        if self.admitted.len() == count && !self.nodes[node].lease.is_asking {
                            break;
                        }
                    }
                }
                Event::Serve { which, reply } if !self.under_way.is_empty() => {
                    let Sent { node, born, own, what } = self.under_way.remove(which % self.under_way.len());
                    let mut part = KeyRequest::again(String::new(), own, what.clone(), Some(&self.nodes[node].known));
                    let now = self.moment(node);
                    // A store's clock has microseconds.
                    let told = script_model::run(&mut part, &mut self.value, now.store, self.now / 1_000 * 1_000);
                    let Intent::Lease(ask) = what else { return };
                    let (is_lost, served_at) = (matches!(reply, Reply::Lost), self.now);
                    // The check that waited was charged then, even if the reply arrives later.
                    if !is_lost && self.nodes[node].born == born && told.grant.is_some_and(|grant| grant.is_charged) {
                        self.admit(node, ask.need, told.answer);
                    }
                    self.replies.push(Replied { node, born, own, ask, told, is_lost, served_at });
                    if !matches!(reply, Reply::Late) {
                        self.hear(self.replies.len() - 1);
                    }
                }
                Event::Hear(which) if !self.replies.is_empty() => self.hear(which % self.replies.len()),
                Event::Serve { .. } | Event::Hear(_) => {}
            }
        }
    }

    #[test]
    fn a_request_that_is_late_for_its_window_keeps_nothing_of_the_next() {
        let meter: Meter = "fixed_window/600/10000000000".parse().expect("a meter");
        let mut world = World::new([meter; 2]);
        world.happen(&Event::WindowEnds(10));
        for _ in 0..20 {
            world.happen(&Event::Check(0, 1));
            world.happen(&SERVE);
        }
        // The node asks for more while some is left, and the store handles that after another node has used up the next
        // window.
        world.happen(&Event::Renew(0, true));
        let first = world.admitted.len();
        world.happen(&Event::WindowEnds(0));
        for _ in 0..12 {
            world.happen(&Event::UseUp(1));
            world.happen(&Event::Pass(101));
        }
        let used: u64 = world.admitted[first..].iter().map(|(_, cost)| cost).sum();
        assert_eq!((used, world.under_way.len(), world.under_way[0].node), (600, 1, 0));
        world.happen(&SERVE);
        world.happen(&Event::Check(0, 1));
        assert_eq!(world.admitted.len(), first + 600);
    }

    /// Returns the most tokens that were admitted above a limit with this burst and one more token in each interval.
    fn above(admitted: &[(Nanos, u64)], burst: u64, every_ns: u64) -> u64 {
        let (from, mut sum) = (admitted[0].0, 0);
        let above = admitted.iter().map(|&(at, cost)| {
            sum += cost;
            sum.saturating_sub(burst + (at - from) / every_ns)
        });
        above.max().unwrap_or(0)
    }

    /// Returns a world with a bucket of which a node has just asked for more, a moment before its lease counts as
    /// spent.
    fn late_for_its_epoch() -> World {
        let mut world = World::new(["token_bucket/600/60000000000/600".parse().expect("a meter"); 2]);
        world.happen(&Event::Pass(59_900));
        world.happen(&Event::Check(0, 1));
        world.happen(&SERVE);
        world.happen(&Event::Check(0, 1));
        world.happen(&Event::Pass(59_900));
        world.happen(&Event::Renew(0, true));
        world
    }

    fn use_up(world: &mut World, node: usize) {
        for _ in 0..25 {
            world.happen(&Event::UseUp(node));
            world.happen(&Event::Pass(101));
        }
    }

    #[test]
    fn a_request_that_is_late_for_its_epoch_keeps_nothing() {
        let mut world = late_for_its_epoch();
        assert!(matches!(world.under_way[0].what, Intent::Lease(LeaseRequest { keep: 8, .. })));
        // The lease is charged, and its tokens come back with time.
        world.happen(&Event::Pass(300));
        world.happen(&Event::UseUp(1));
        world.happen(&Event::Pass(40_000));
        let first = world.admitted.len();
        use_up(&mut world, 1);
        world.happen(&SERVE);
        for _ in 0..8 {
            world.happen(&Event::Check(0, 1));
        }
        assert!(world.admitted.len() >= first + 600);
        assert_eq!(above(&world.admitted[first..], 600, 100_000_000), 0);
    }

    #[test]
    fn tokens_of_an_expired_lease_are_not_put_back_into_the_next() {
        let mut world = late_for_its_epoch();
        world.happen(&Event::Pass(50));
        for _ in 0..7 {
            world.happen(&Event::Check(0, 1));
        }
        world.happen(&Event::Pass(250));
        world.happen(&SERVE);
        assert_eq!(world.nodes[0].lease.out, 9);
        world.happen(&Event::Pass(30_000));
        let first = world.admitted.len();
        for _ in 0..7 {
            world.happen(&Event::Check(0, 1));
        }
        assert_eq!(world.admitted.len(), first + 7);
        let rest = world.nodes[0].lease.left;
        for receipt in 1..=7 {
            world.happen(&Event::PutBack(0, receipt));
        }
        assert_eq!(world.nodes[0].lease.left, rest, "the store takes them back");
        use_up(&mut world, 0);
        use_up(&mut world, 1);
        assert_eq!(above(&world.admitted[first..], 600, 100_000_000), 0);
    }

    #[test]
    fn tokens_left_after_a_lost_answer_are_good_until_the_lease_ends() {
        let meter: Meter = "fixed_window/600/10000000000".parse().expect("a meter");
        let mut world = World::new([meter; 2]);
        for _ in 0..20 {
            world.happen(&Event::Check(0, 1));
            world.happen(&SERVE);
        }
        world.happen(&Event::Renew(0, true));
        world.happen(&Event::Serve { which: 0, reply: Reply::Lost });
        let left = world.nodes[0].lease.left;
        assert!(left > 0);
        use_up(&mut world, 1);
        // The limit has no tokens for the request.
        world.happen(&Event::Renew(0, true));
        world.happen(&SERVE);
        assert_eq!((world.nodes[0].lease.left, world.nodes[0].lease.out), (left, 0));
        let first = world.admitted.len();
        world.happen(&Event::Check(0, 1));
        assert_eq!(world.admitted.len(), first + 1);
        world.happen(&Event::WindowEnds(0));
        let Node { lease, own, .. } = &world.nodes[0];
        assert_eq!(lease.look(&own.meter, 1, world.moment(0)), None, "it is over");
    }

    #[test]
    fn tokens_of_a_dead_node_count_as_spent() {
        let meter: Meter = "token_bucket/1600/86400000000000/1600".parse().expect("a meter");
        let held = Record { under: VersionedMeter { meter, version: 1 }, word: 0, leases: Leases::default() };
        let ask = LeaseRequest { epoch: 0, ends: 0, out: 0, left: 0, keep: 0, want: 50, need: 1 };
        let (held, grant) = granted(held, START, &ask, LEASE_NS);
        assert_eq!((grant.given, meter.remaining(held.full(START), START)), (50, 1_550));
        // While the node may live, its tokens are taken off the capacity, but not charged.
        assert_eq!(meter.remaining(held.at(START + LEASE_NS, LEASE_NS).word, START), 1_600);
        let later = START + 2 * LEASE_NS;
        let held = held.at(later, LEASE_NS);
        assert_eq!((held.leases.out(), meter.remaining(held.word, later)), (0, 1_550));
    }

    #[test]
    fn a_lease_in_use_is_renewed_before_it_is_over_and_an_idle_one_goes_back() {
        let meter: Meter = "token_bucket/1000/1000000000/1000".parse().expect("a meter");
        let at = |seconds: u64| ClockReading { store: START + seconds * SECOND_NS, own: seconds * SECOND_NS };
        let mut lease = Lease::new();
        let ask = lease.ask(&meter, 0, true, at(0));
        let care = |lease: &Lease, seconds| lease.look_after(at(seconds), LEASE_NS);
        let empty = Record { under: VersionedMeter { meter, version: 1 }, word: START, leases: Leases::default() };
        let (_, grant) = granted(empty, START, &ask, LEASE_NS);
        lease.granted(&meter, &ask, &grant, (START, at(0)), LEASE_NS);
        assert!(grant.given > 1 && lease.out() == grant.given);
        assert_eq!((care(&lease, 10), care(&lease, 29)), (Upkeep::Keep, Upkeep::Keep));
        assert_eq!(care(&lease, 30), Upkeep::GiveBack, "no check used it");
        assert!(matches!(lease.spend(&meter, 1, at(39)), SpendResult::Answer(..)));
        assert_eq!((care(&lease, 39), care(&lease, 40)), (Upkeep::Keep, Upkeep::Renew));
        assert!(lease.left(at(59)) > 0 && lease.left(at(60)) == 0, "it is over");
        lease.out = 0;
        assert_eq!((care(&lease, 68), care(&lease, 69)), (Upkeep::Keep, Upkeep::Forget));
    }

    #[test]
    fn at_a_steady_rate_no_check_waits_and_batches_last() {
        let meter: Meter = "token_bucket/100000/1000000000/100000".parse().expect("a meter");
        let mut world = World::new([meter; 2]);
        let (mut waited, mut batches) = (0, Vec::new());
        // A thousand checks a second for twenty seconds, over a store that answers in two milliseconds.
        for ms in 0..20_000 {
            world.happen(&Event::Pass(1));
            let admitted = world.admitted.len();
            world.happen(&Event::Check(0, 1));
            waited += usize::from(world.admitted.len() == admitted && ms > 1_000);
            if let Some(Sent { what: Intent::Lease(ask), .. }) = world.under_way.first()
                && ms % 2 == 1
            {
                batches.push(ask.keep + ask.want);
                world.happen(&SERVE);
            }
        }
        assert_eq!(waited, 0, "it is renewed ahead");
        // At most a sixteenth of the limit: 6,250, which lasts for six seconds.
        let largest = batches.iter().max().expect("some");
        assert!((4_000..=6_250).contains(largest) && batches.len() < 20, "{batches:?}");
    }

    #[test]
    fn a_crowd_is_denied_for_a_second_at_most_while_the_store_is_silent() {
        let meter: Meter = "token_bucket/10/10000000000/10".parse().expect("a meter");
        let mut world = World::new([meter; 2]);
        for _ in 0..3 {
            for _ in 0..100 {
                world.happen(&Event::Check(0, 1));
                world.happen(&SERVE);
            }
            world.happen(&Event::Pass(50));
        }
        // The store falls silent: its last answer holds for a second while there is a crowd.
        let lease = &mut world.nodes[0].lease;
        let mut asked_at = None;
        for ms in 0..3_000_u64 {
            world.now += 1_000_000;
            let now = ClockReading { store: world.now, own: world.now };
            match lease.spend(&meter, 1, now) {
                SpendResult::Answer(_, true) => drop(lease.ask(&meter, 0, true, now)),
                SpendResult::Answer(..) => {}
                SpendResult::Ask => {
                    asked_at = Some(ms);
                    break;
                }
            }
        }
        assert!(asked_at.is_some_and(|ms| ms <= 1_100), "{asked_at:?}");
    }

    #[test]
    fn tokens_put_back_are_spent_again_once_and_never_more_than_were_lent() {
        let meter: Meter = "token_bucket/1000/1000000000/1000".parse().expect("a meter");
        let at = |ms: u64| ClockReading { store: START + ms * 1_000_000, own: ms * 1_000_000 };
        let grant = |given| Grant {
            epoch: START / LEASE_NS,
            ends: Nanos::MAX,
            is_counted: false,
            kept: 0,
            given,
            word: START,
            is_charged: false,
            is_all_out: false,
        };
        let mut lease = Lease::new();
        let ask = lease.ask(&meter, 0, true, at(0));
        lease.granted(&meter, &ask, &grant(50), (START, at(1)), LEASE_NS);
        let SpendResult::Answer(Answer::Decided { word, now, .. }, _) = lease.spend(&meter, 10, at(2)) else {
            panic!("it has")
        };
        let receipt = Receipt { cost: 10, charged_at: now, word, moved_ns: u64::MAX };
        assert_eq!((lease.put_back(&meter, &receipt, at(3)), lease.left), (0, 50));
        assert_eq!((lease.put_back(&meter, &receipt, at(3)), lease.left), (10, 50), "no more than was lent");
        let SpendResult::Answer(..) = lease.spend(&meter, 20, at(4)) else { panic!("it has") };
        let ask = lease.ask(&meter, 0, true, at(5));
        assert_eq!((ask.out, ask.left), (50, 30));
        lease.granted(&meter, &ask, &Grant { is_counted: true, kept: 30, ..grant(20) }, (START, at(6)), LEASE_NS);
        assert_eq!(
            (lease.put_back(&meter, &receipt, at(7)), lease.left),
            (10, 50),
            "the store was told that it was spent"
        );
    }

    #[test]
    fn nodes_use_the_limit_while_dead_nodes_hold_all_that_may_be_lent() {
        let meter: Meter = "token_bucket/1000/1000000000/1000".parse().expect("a meter");
        let mut leases = Leases::default();
        leases.lend(START, 250, LEASE_NS);
        let dead = Record { under: VersionedMeter { meter, version: 1 }, word: START, leases };
        let mut world = World::new([meter; 2]);
        world.value = dead.write();
        // Each of three nodes is asked for half of what the limit has, in turn.
        for ms in 0..4_000 {
            world.happen(&Event::Pass(1));
            for node in (0..3).filter(|node| (ms + node) % 2 == 0) {
                world.happen(&Event::Check(node, 1));
            }
            for _ in 0..3 {
                world.happen(&SERVE);
            }
        }
        let admitted = |from: Nanos| world.admitted.iter().filter(|(at, _)| *at >= from).count();
        // The tokens of the beginning are used by then.
        let last = admitted(START + 3 * SECOND_NS);
        assert!((950..=1_001).contains(&last), "{last}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]
        #[test]
        fn nodes_never_spend_more_than_the_limit(
            events in events(),
            seconds in 1_u64..100,
            numbers in prop::array::uniform2((1_u64..100, 1_u64..100)),
            is_window in any::<bool>(),
        ) {
            let period_ns = seconds * SECOND_NS;
            let named = numbers.map(|(limit, burst)| {
                if is_window { format!("fixed_window/{limit}/{period_ns}") } else { format!("token_bucket/{limit}/{period_ns}/{burst}") }
            });
            let mut world = World::new(named.each_ref().map(|numbers| numbers.parse().expect("a meter")));
            for event in &events {
                world.happen(event);
            }
            // The larger of both: numbers that fall and rise again forget what was above them, so they change once.
            let [limit, burst] = [numbers[0].0.max(numbers[1].0), numbers[0].1.max(numbers[1].1)];
            for (first, &(from, _)) in world.admitted.iter().enumerate() {
                let mut sum = 0;
                for &(until, cost) in &world.admitted[first..] {
                    let most = if is_window {
                        if from / period_ns != until / period_ns {
                            break;
                        }
                        limit
                    } else {
                        // The bound of one bucket: the burst, and what came back.
                        let came_back = u128::from(until - from) * u128::from(limit) / u128::from(period_ns);
                        burst + u64::try_from(came_back).expect("few")
                    };
                    sum += cost;
                    prop_assert!(sum <= most, "{sum} of {most} from {from} to {until}: {named:?}");
                }
            }
        }
    }
}
