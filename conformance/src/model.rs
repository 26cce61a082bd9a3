//! The slow, exact model of one key: every charge is kept, and each question is answered from all of them by the rule as
//! ENGINE's table of algorithms states it, in whole numbers of 128 bits.
//!
//! It answers twice. [`Side::Least`] is the rule itself, without any rounding: nobody may admit more. [`Side::Most`] adds
//! what the algorithm's documentation says that it may round against the client: nobody may admit less. An
//! implementation that gives back less than it was asked to, or carries a little more than was used, stays between the
//! two; so does one that rounds less.

use std::ops::Range;

use tidegate::{policy::Algorithm, time::Nanos};

use crate::subject::Numbers;

/// Quota is counted in parts of a token, because what is carried from other numbers may be a fraction.
const GRAINS: u128 = 1 << 12;

/// In one word, a log counts time in units of 2^13 ns, and may take one more.
const LOG_SLACK_NS: u64 = 1 << 14;

/// Who is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// The rule: what must be counted as used.
    Least,
    /// The rule with its stated rounding: what may be counted as used.
    Most,
}

/// One admission, or what was carried from other numbers.
#[derive(Clone, Debug)]
struct Charge {
    /// Its number; `None` for what was carried.
    id: Option<usize>,
    /// The clock value at which it was decided; of a window, not before the window that it counts in.
    at: Nanos,
    /// The window that it counts in.
    window: Range<Nanos>,
    /// In grains: what must be counted of it.
    least: u128,
    /// In grains: what may be counted of it.
    most: u128,
    /// Was it admitted by a decision under these numbers? What was charged without asking may exceed the limit.
    decided: bool,
}

impl Charge {
    fn grains(&self, side: Side) -> u128 {
        match side {
            Side::Least => self.least,
            Side::Most => self.most,
        }
    }
}

/// Quota in use, as a fraction: `amount / token` tokens.
#[derive(Clone, Copy, Debug)]
struct Used {
    amount: u128,
    token: u128,
}

/// One key under one limit.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    numbers: Numbers,
    charges: Vec<Charge>,
}

/// The bound: may admissions of `sum` tokens lie between these two instants, both of them included?
pub(crate) fn fits(numbers: &Numbers, from: Nanos, to: Nanos, sum: u128) -> bool {
    let (limit, period, length) = (u128::from(numbers.limit), u128::from(numbers.period_ns), u128::from(to - from));
    let in_windows = || {
        let (mut most, mut window) = (limit, numbers.window(from));
        while window.end <= to && most < sum {
            (most, window) = (most + limit, numbers.window(window.end));
        }
        sum <= most
    };
    match numbers.algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            sum.saturating_sub(u128::from(numbers.capacity())) * period <= limit * length
        }
        Algorithm::FixedWindow => in_windows(),
        Algorithm::SlidingWindowCounter => in_windows() && (length >= period || sum < 2 * limit),
        Algorithm::SlidingWindowLog => sum <= (length / period + 1) * limit,
    }
}

/// The earliest instant from `from` on at which `is_so`, which then stays so; `None` before the end of time.
fn earliest(from: Nanos, is_so: impl Fn(Nanos) -> bool) -> Option<Nanos> {
    let (mut low, mut high) = (from, from);
    while !is_so(high) {
        if high == Nanos::MAX {
            return None;
        }
        (low, high) = (high, high.saturating_add((high - from).max(1)));
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if is_so(middle) { high = middle } else { low = middle + 1 }
    }
    Some(high)
}

impl Model {
    pub(crate) fn new(numbers: Numbers) -> Self {
        Self { numbers, charges: Vec::new() }
    }

    pub(crate) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// The largest cost for which there is room at `at`.
    pub(crate) fn room(&self, at: Nanos, side: Side) -> u64 {
        if self.numbers.capacity() == 0 {
            return 0;
        }
        let used = self.used(at, side);
        let capacity = u128::from(self.numbers.capacity()) * used.token;
        (capacity.saturating_sub(used.amount) / used.token) as u64
    }

    /// From when on there is room for `cost`, at most the capacity, if nobody else comes.
    pub(crate) fn room_from(&self, at: Nanos, cost: u64, side: Side) -> Option<Nanos> {
        earliest(at, |at| self.room(at, side) >= cost)
    }

    /// An admission of `cost` that was decided at `at`.
    pub(crate) fn admit(&mut self, id: usize, at: Nanos, cost: u64) {
        let grains = u128::from(cost) * GRAINS;
        self.push(Some(id), at, grains, grains, true);
    }

    /// A charge of `cost` that nobody was asked about. Where whole tokens are counted it need not be remembered above the
    /// limit; a bucket remembers it up to its largest debt.
    pub(crate) fn force(&mut self, id: usize, at: Nanos, cost: u64) {
        let grains = u128::from(cost) * GRAINS;
        let (least, most) = if self.counts_whole() {
            (u128::from(self.room(at, Side::Least)) * GRAINS, grains)
        } else {
            // The more is counted as used, the less is charged.
            (self.debt_room(at, Side::Most), self.debt_room(at, Side::Least))
        };
        self.push(Some(id), at, grains.min(least), grains.min(most), false);
    }

    /// What a bucket is charged, in grains, until it owes as much as it may: surely so much where its use is rounded up, at most
    /// so much where it is not.
    fn debt_room(&self, at: Nanos, side: Side) -> u128 {
        let Numbers { limit, period_ns, .. } = self.numbers;
        let most = u128::from(self.numbers.capacity()) + u128::from(self.numbers.debt_max());
        // Whole tokens are charged, and an implementation that counts nanoseconds may lose three of them.
        let lost = match side {
            Side::Least => 0,
            Side::Most => 1 + (3 * u128::from(limit)).div_ceil(u128::from(period_ns)),
        };
        let used = self.used(at, side);
        let room = (most.saturating_sub(lost) * used.token).saturating_sub(used.amount);
        room.div_ceil(used.token / GRAINS)
    }

    fn push(&mut self, id: Option<usize>, at: Nanos, least: u128, most: u128, decided: bool) {
        let window = self.window(at);
        let at = if self.counts_windows() { at.max(window.start) } else { at };
        self.charges.push(Charge { id, at, window, least, most, decided });
    }

    /// All of a charge but `kept` may have been given back. One that was forgotten has nothing to give.
    pub(crate) fn give_back(&mut self, id: usize, kept: u64) {
        for charge in self.charges.iter_mut().filter(|charge| charge.id == Some(id)) {
            charge.least = charge.least.min(u128::from(kept) * GRAINS);
        }
    }

    /// Other numbers from `at` on: what was used stays used, up to the new capacity. Counts of the same windows stay in
    /// them; everything else becomes one charge at `at`.
    pub(crate) fn publish(&mut self, at: Nanos, numbers: Numbers) {
        let old = std::mem::replace(self, Self::new(numbers));
        if old.charges.is_empty() {
            return;
        }
        let full = u128::from(numbers.capacity()) * GRAINS;
        let is_same = old.numbers.algorithm == numbers.algorithm
            && (old.numbers.period_ns, old.numbers.calendar) == (numbers.period_ns, numbers.calendar);
        if is_same && old.counts_windows() {
            // The rounding of the old numbers stays in what they counted.
            let slack = old.counter_slack();
            self.charges = old.charges;
            for charge in &mut self.charges {
                (charge.id, charge.decided, charge.most) = (None, false, charge.most + slack);
            }
            self.cap(full, |charge| charge.window.start);
        } else if is_same && numbers.algorithm == Algorithm::SlidingWindowLog {
            // Each may be forgotten at its own time, or all of them as if they were admitted now.
            let used = old.used(at, Side::Most).amount.min(full);
            self.charges = old.charges;
            for charge in &mut self.charges {
                (charge.id, charge.decided, charge.most) = (None, false, 0);
            }
            self.charges.retain(|charge| at - charge.at < numbers.period_ns);
            self.cap(full, |_| 0);
            self.push(None, at, 0, used, false);
        } else {
            let (least, most) = (old.used(at, Side::Least), old.used(at, Side::Most));
            let least = least.amount / (least.token / GRAINS);
            let most = most.amount.div_ceil(most.token / GRAINS);
            // Windows count whole tokens; buckets round somewhere below one.
            let is_whole = self.counts_whole() || old.counts_whole();
            let most = if is_whole { most.next_multiple_of(GRAINS) } else { most + 1 };
            // A debt that lasts beyond the end of time is not told apart: all of it is used.
            let is_endless = old.room_from(at, old.numbers.capacity(), Side::Most).is_none();
            let most = if is_endless { full } else { most.min(full) };
            self.push(None, at, least.min(full), most, false);
        }
    }

    /// Counts at most `full` of each group, the oldest charges first: those are forgotten soonest.
    fn cap(&mut self, full: u128, group: impl Fn(&Charge) -> Nanos) {
        self.charges.sort_by_key(|charge| charge.at);
        for place in 0..self.charges.len() {
            let (before, rest) = self.charges.split_at_mut(place);
            let charge = &mut rest[0];
            let counted: u128 = before.iter().filter(|other| group(other) == group(charge)).map(|c| c.least).sum();
            charge.least = charge.least.min(full.saturating_sub(counted));
        }
    }

    /// What was admitted by decisions and not given back keeps the bound over every interval that holds the last of them.
    pub(crate) fn check_bound(&self) -> Result<(), String> {
        let decided = || self.charges.iter().filter(|charge| charge.decided);
        let Some(newest) = decided().next_back() else { return Ok(()) };
        for from in decided().map(|charge| charge.at).filter(|from| *from <= newest.at) {
            for to in decided().map(|charge| charge.at).filter(|to| *to >= newest.at) {
                let within = decided().filter(|charge| (from..=to).contains(&charge.at));
                let sum = within.map(|charge| charge.least / GRAINS).sum();
                if !fits(&self.numbers, from, to, sum) {
                    return Err(format!("{sum} were admitted in the {} ns from {from}", to - from));
                }
            }
        }
        Ok(())
    }

    fn counts_windows(&self) -> bool {
        matches!(self.numbers.algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindowCounter)
    }

    fn counts_whole(&self) -> bool {
        self.counts_windows() || self.numbers.algorithm == Algorithm::SlidingWindowLog
    }

    /// The window that counts at `at`: the one of the clock, or the newest that was charged if that is newer.
    fn window(&self, at: Nanos) -> Range<Nanos> {
        let own = self.numbers.window(at);
        let newest = self.charges.iter().map(|charge| &charge.window).max_by_key(|window| window.start);
        newest.filter(|newest| newest.start > own.start).cloned().unwrap_or(own)
    }

    fn used(&self, at: Nanos, side: Side) -> Used {
        match (self.numbers.algorithm, side) {
            (Algorithm::TokenBucket | Algorithm::LeakyBucket, Side::Least) => self.in_bucket(at),
            (Algorithm::TokenBucket | Algorithm::LeakyBucket, Side::Most) => self.in_rounded_bucket(at),
            (Algorithm::FixedWindow, _) => Used { amount: self.in_window(&self.window(at), side), token: GRAINS },
            (Algorithm::SlidingWindowCounter, _) => self.in_two_windows(at, side),
            (Algorithm::SlidingWindowLog, Side::Least) => self.in_every_period(at),
            (Algorithm::SlidingWindowLog, Side::Most) => self.in_last_period(at),
        }
    }

    /// At most b + n t/p in any interval of length t: what the worst of all intervals that hold `at` has above n t/p.
    fn in_bucket(&self, at: Nanos) -> Used {
        let (limit, period) = (u128::from(self.numbers.limit), u128::from(self.numbers.period_ns));
        let excess = |sum: u128, ns: u64| (sum * period).saturating_sub((limit * GRAINS).saturating_mul(ns.into()));
        let mut sorted: Vec<&Charge> = self.charges.iter().collect();
        sorted.sort_by_key(|charge| charge.at);
        let (before, after) = sorted.split_at(sorted.partition_point(|charge| charge.at <= at));
        let (mut worst, mut sum_after) = (0, 0);
        for end in 0..=after.len() {
            let to = end.checked_sub(1).map_or(at, |last| after[last].at);
            sum_after += end.checked_sub(1).map_or(0, |last| after[last].least);
            let mut sum = sum_after;
            worst = worst.max(excess(sum, to - at));
            for charge in before.iter().rev() {
                sum += charge.least;
                worst = worst.max(excess(sum, to - charge.at));
            }
        }
        Used { amount: worst, token: GRAINS * period }
    }

    /// The same as a debt that time repays. Where a token takes at least a microsecond, or a whole number of nanoseconds,
    /// it takes whole nanoseconds; elsewhere every call may lose one, and so may the whole burst. A clock value that is
    /// older than a charge finds what was owed then.
    fn in_rounded_bucket(&self, at: Nanos) -> Used {
        let (limit, period) = (self.numbers.limit, self.numbers.period_ns);
        let by_token = period.is_multiple_of(limit) || period / limit >= 1_000;
        let (tokens, period_ns) = if by_token { (1, period.div_ceil(limit)) } else { (limit, period) };
        let repaid = |ns: u64| (u128::from(tokens) * GRAINS).saturating_mul(ns.into());
        let (mut debt, mut last): (u128, Nanos) = (0, 0);
        for charge in &self.charges {
            debt = debt.saturating_sub(repaid(charge.at.saturating_sub(last)));
            last = last.max(charge.at);
            let is_rounded = !by_token || charge.id.is_none();
            debt += charge.most * u128::from(period_ns) + if is_rounded { repaid(1) } else { 0 };
        }
        debt = debt.saturating_sub(repaid(at.saturating_sub(last)));
        if debt == 0 {
            return Used { amount: 0, token: GRAINS };
        }
        debt =
            debt.saturating_add(repaid(last.saturating_sub(at))).saturating_add(if by_token { 0 } else { repaid(2) });
        if by_token && at < last {
            // That much time, in tokens of their exact length, which are more.
            return Used { amount: debt.saturating_mul(limit.into()), token: GRAINS * u128::from(period) };
        }
        Used { amount: debt, token: GRAINS * u128::from(period_ns) }
    }

    /// In grains.
    fn in_window(&self, window: &Range<Nanos>, side: Side) -> u128 {
        self.charges.iter().filter(|charge| charge.window == *window).map(|charge| charge.grains(side)).sum()
    }

    /// The window that counts, and of the one before the part that a window ending now still covers.
    fn in_two_windows(&self, at: Nanos, side: Side) -> Used {
        let window = self.window(at);
        let length = u128::from(window.end - window.start);
        let left = u128::from(window.end - at.max(window.start));
        let before = window.start.checked_sub(1).map(|last| self.in_window(&self.numbers.window(last), side));
        let full = u128::from(self.numbers.limit) * GRAINS;
        let before = match (before.unwrap_or(0), side) {
            // More than the limit is in it only when it was charged without asking.
            (before, Side::Least) => before.min(full),
            (0, Side::Most) => 0,
            (before, Side::Most) => before + self.counter_slack(),
        };
        Used { amount: self.in_window(&window, side) * length + before * left, token: GRAINS * length }
    }

    /// By so many nanoseconds a reset may be told too late; or too early, where something was carried.
    pub(crate) fn reset_slack_ns(&self) -> u64 {
        if self.numbers.algorithm == Algorithm::SlidingWindowLog { LOG_SLACK_NS } else { 0 }
    }

    /// The count of the window before may be rounded up: by 0.4 % of limits from 2^14 on, in grains.
    pub(crate) fn counter_slack(&self) -> u128 {
        let is_rounded = self.numbers.algorithm == Algorithm::SlidingWindowCounter && self.numbers.limit >= 1 << 14;
        if is_rounded { u128::from(self.numbers.limit) * GRAINS / 250 } else { 0 }
    }

    /// At most n in every interval of length p: the fullest that holds `at`. One end is open, so that what was admitted at
    /// `at` is forgotten at `at + p`.
    fn in_every_period(&self, at: Nanos) -> Used {
        let starts = self.charges.iter().map(|charge| charge.at).filter(|start| *start <= at);
        let within = |start: Nanos| {
            let held = self.charges.iter().filter(|c| c.at >= start && c.at - start < self.numbers.period_ns);
            held.map(|charge| charge.least).sum::<u128>()
        };
        let fullest = starts.filter(|start| at - start < self.numbers.period_ns).chain([at]).map(within).max();
        Used { amount: fullest.unwrap_or(0), token: GRAINS }
    }

    /// The same, where each admission is remembered until all before it are forgotten, and what was carried a little longer.
    fn in_last_period(&self, at: Nanos) -> Used {
        let (mut latest, mut amount) = (0, 0);
        for charge in &self.charges {
            latest = latest.max(charge.at + if charge.id.is_none() { LOG_SLACK_NS } else { 0 });
            let is_forgotten = latest.checked_add(self.numbers.period_ns).is_some_and(|end| end <= at);
            amount += if is_forgotten { 0 } else { charge.most };
        }
        Used { amount, token: GRAINS }
    }
}
