//! Slow, exact model of one key. It keeps every charge, and computes each value from all of them by the rule of the
//! algorithm, in 128-bit integers.
//!
//! It computes two bounds of what is used. [`UsageBound::Lower`] is the exact rule: no implementation may admit more.
//! [`UsageBound::Upper`] adds the rounding against the client that the algorithm's documentation states: no implementation
//! may admit less. An implementation that refunds less than was requested, carries a little more than was used, or rounds
//! less, stays between the two.

use std::ops::Range;

use tidegate::{policy::Algorithm, time::Nanos};

use crate::subject::LimitNumbers;

/// Grains of a token. Usage is counted in grains because usage that is carried over from other numbers may be a fraction.
const GRAINS: u128 = 1 << 12;

/// Rounding of a log in one 64-bit state: it counts time in units of 2^13 ns, and may add one unit.
const LOG_SLACK_NS: u64 = 1 << 14;

/// A bound of what is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UsageBound {
    /// The least that must be counted as used: the exact rule.
    Lower,
    /// The most that may be counted as used: the rule with its stated rounding.
    Upper,
}

impl UsageBound {
    pub(crate) const BOTH: [Self; 2] = [Self::Lower, Self::Upper];
}

/// An admission, or usage that was carried over from other numbers.
#[derive(Clone, Debug)]
struct Charge {
    /// Number of the admission; `None` for usage that was carried over.
    id: Option<usize>,
    /// Clock value of the decision; with window algorithms, at least the start of its window.
    at: Nanos,
    /// The window in which it counts.
    window: Range<Nanos>,
    /// Grains that must be counted.
    least: u128,
    /// Grains that may be counted.
    most: u128,
    /// Whether a check under these numbers admitted it. Other charges may exceed the limit.
    decided: bool,
}

impl Charge {
    fn grains(&self, bound: UsageBound) -> u128 {
        match bound {
            UsageBound::Lower => self.least,
            UsageBound::Upper => self.most,
        }
    }
}

/// Tokens in use, as a fraction: `amount / token`.
#[derive(Clone, Copy, Debug)]
struct Usage {
    amount: u128,
    token: u128,
}

/// One key under one limit.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    numbers: LimitNumbers,
    charges: Vec<Charge>,
}

/// Returns whether `sum` tokens may be admitted between these two instants, both included: the algorithm's bound.
#[expect(clippy::panic, reason = "a judge without a model must not judge")]
pub(crate) fn fits(numbers: &LimitNumbers, from: Nanos, to: Nanos, sum: u128) -> bool {
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
        other => panic!("no model of {other:?}"),
    }
}

/// Returns the earliest instant from `from` on at which the monotonic predicate `is_so` holds; `None` if it never does.
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
    pub(crate) fn new(numbers: LimitNumbers) -> Self {
        Self { numbers, charges: Vec::new() }
    }

    pub(crate) fn numbers(&self) -> &LimitNumbers {
        &self.numbers
    }

    /// Returns the largest cost that fits at `at`.
    pub(crate) fn room(&self, at: Nanos, bound: UsageBound) -> u64 {
        if self.numbers.capacity() == 0 {
            return 0;
        }
        let used = self.used(at, bound);
        let capacity = u128::from(self.numbers.capacity()) * used.token;
        (capacity.saturating_sub(used.amount) / used.token) as u64
    }

    /// Returns the instant from which `cost` (at most the capacity) fits, unless another call is admitted first.
    pub(crate) fn room_from(&self, at: Nanos, cost: u64, bound: UsageBound) -> Option<Nanos> {
        earliest(at, |at| self.room(at, bound) >= cost)
    }

    /// Records an admission of `cost` that was decided at `at`.
    pub(crate) fn admit(&mut self, id: usize, at: Nanos, cost: u64) {
        let grains = u128::from(cost) * GRAINS;
        self.push(Some(id), at, grains, grains, true);
    }

    /// Records a charge of `cost` without a check. Algorithms that count whole tokens need not count it above the limit; a bucket
    /// counts it up to its largest debt.
    pub(crate) fn force(&mut self, id: usize, at: Nanos, cost: u64) {
        let grains = u128::from(cost) * GRAINS;
        let (least, most) = if self.counts_whole() {
            (u128::from(self.room(at, UsageBound::Lower)) * GRAINS, grains)
        } else {
            // The bounds swap: the more is counted as used, the less is charged.
            (self.debt_room(at, UsageBound::Upper), self.debt_room(at, UsageBound::Lower))
        };
        self.push(Some(id), at, grains.min(least), grains.min(most), false);
    }

    /// Returns the grains that a bucket can be charged until its debt is the largest one: the least such amount for the upper
    /// bound of what is used, the most for the lower bound.
    fn debt_room(&self, at: Nanos, bound: UsageBound) -> u128 {
        let LimitNumbers { limit, period_ns, .. } = self.numbers;
        let most = u128::from(self.numbers.capacity()) + u128::from(self.numbers.debt_max());
        // Whole tokens are charged, and an implementation that counts nanoseconds may lose three of them.
        let lost = match bound {
            UsageBound::Lower => 0,
            UsageBound::Upper => 1 + (3 * u128::from(limit)).div_ceil(u128::from(period_ns)),
        };
        let used = self.used(at, bound);
        let room = (most.saturating_sub(lost) * used.token).saturating_sub(used.amount);
        room.div_ceil(used.token / GRAINS)
    }

    fn push(&mut self, id: Option<usize>, at: Nanos, least: u128, most: u128, decided: bool) {
        let window = self.window(at);
        let at = if self.counts_windows() { at.max(window.start) } else { at };
        self.charges.push(Charge { id, at, window, least, most, decided });
    }

    /// Allows for a refund of a charge down to `kept` tokens. A charge that is no longer counted has nothing to refund.
    pub(crate) fn give_back(&mut self, id: usize, kept: u64) {
        for charge in self.charges.iter_mut().filter(|charge| charge.id == Some(id)) {
            charge.least = charge.least.min(u128::from(kept) * GRAINS);
        }
    }

    /// Changes the numbers at `at`: what was used stays used, up to the new capacity. Counts of the same windows stay in
    /// them; everything else becomes one charge at `at`.
    pub(crate) fn publish(&mut self, at: Nanos, numbers: LimitNumbers) {
        let old = std::mem::replace(self, Self::new(numbers));
        if old.charges.is_empty() {
            return;
        }
        let full = u128::from(numbers.capacity()) * GRAINS;
        let is_same = old.numbers.algorithm == numbers.algorithm
            && (old.numbers.period_ns, old.numbers.calendar) == (numbers.period_ns, numbers.calendar);
        if is_same && old.counts_windows() {
            // Counts under the old numbers keep their rounding.
            let slack = old.counter_slack();
            self.charges = old.charges;
            for charge in &mut self.charges {
                (charge.id, charge.decided, charge.most) = (None, false, charge.most + slack);
            }
            self.cap(full, |charge| charge.window.start);
        } else if is_same && numbers.algorithm == Algorithm::SlidingWindowLog {
            // An implementation may expire each charge at its own time, or all of them as if they were admitted now.
            let used = old.used(at, UsageBound::Upper).amount.min(full);
            self.charges = old.charges;
            for charge in &mut self.charges {
                (charge.id, charge.decided, charge.most) = (None, false, 0);
            }
            self.charges.retain(|charge| at - charge.at < numbers.period_ns);
            self.cap(full, |_| 0);
            self.push(None, at, 0, used, false);
        } else {
            let (least, most) = (old.used(at, UsageBound::Lower), old.used(at, UsageBound::Upper));
            let least = least.amount / (least.token / GRAINS);
            let most = most.amount.div_ceil(most.token / GRAINS);
            // Windows count whole tokens; buckets round by less than one.
            let is_whole = self.counts_whole() || old.counts_whole();
            let most = if is_whole { most.next_multiple_of(GRAINS) } else { most + 1 };
            // A debt that lasts beyond the last instant counts as the whole capacity.
            let is_endless = old.room_from(at, old.numbers.capacity(), UsageBound::Upper).is_none();
            let most = if is_endless { full } else { most.min(full) };
            self.push(None, at, least.min(full), most, false);
        }
    }

    /// Counts at most `full` of each group, the oldest charges first, because they expire first.
    fn cap(&mut self, full: u128, group: impl Fn(&Charge) -> Nanos) {
        self.charges.sort_by_key(|charge| charge.at);
        for place in 0..self.charges.len() {
            let (before, rest) = self.charges.split_at_mut(place);
            let charge = &mut rest[0];
            let counted: u128 = before.iter().filter(|other| group(other) == group(charge)).map(|c| c.least).sum();
            charge.least = charge.least.min(full.saturating_sub(counted));
        }
    }

    /// Checks that admissions minus refunds keep the bound in every interval that contains the newest one.
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

    /// Returns the window that counts at `at`: the clock's window, or the newest charged window if that is newer.
    fn window(&self, at: Nanos) -> Range<Nanos> {
        let own = self.numbers.window(at);
        let newest = self.charges.iter().map(|charge| &charge.window).max_by_key(|window| window.start);
        newest.filter(|newest| newest.start > own.start).cloned().unwrap_or(own)
    }

    #[expect(clippy::panic, reason = "a judge without a model must not judge")]
    fn used(&self, at: Nanos, bound: UsageBound) -> Usage {
        match (self.numbers.algorithm, bound) {
            (Algorithm::TokenBucket | Algorithm::LeakyBucket, UsageBound::Lower) => self.in_bucket(at),
            (Algorithm::TokenBucket | Algorithm::LeakyBucket, UsageBound::Upper) => self.in_rounded_bucket(at),
            (Algorithm::FixedWindow, _) => Usage { amount: self.in_window(&self.window(at), bound), token: GRAINS },
            (Algorithm::SlidingWindowCounter, _) => self.in_two_windows(at, bound),
            (Algorithm::SlidingWindowLog, UsageBound::Lower) => self.in_every_period(at),
            (Algorithm::SlidingWindowLog, UsageBound::Upper) => self.in_last_period(at),
            (other, _) => panic!("no model of {other:?}"),
        }
    }

    /// Returns the use of a bucket (at most b + n t/p in any interval of length t): the largest excess over n t/p of all
    /// intervals that contain `at`.
    fn in_bucket(&self, at: Nanos) -> Usage {
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
        Usage { amount: worst, token: GRAINS * period }
    }

    /// Returns the use of a bucket as a debt that time repays, with rounding. If the time of a token is at least a microsecond or
    /// a whole number of nanoseconds, it is rounded up to whole nanoseconds; otherwise every call may lose one nanosecond, and so
    /// may the whole burst. A clock value that is older than a charge sees the debt of that charge's time.
    fn in_rounded_bucket(&self, at: Nanos) -> Usage {
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
            return Usage { amount: 0, token: GRAINS };
        }
        debt =
            debt.saturating_add(repaid(last.saturating_sub(at))).saturating_add(if by_token { 0 } else { repaid(2) });
        if by_token && at < last {
            // The same time is more tokens of their exact length.
            return Usage { amount: debt.saturating_mul(limit.into()), token: GRAINS * u128::from(period) };
        }
        Usage { amount: debt, token: GRAINS * u128::from(period_ns) }
    }

    /// Returns the use of a window in grains.
    fn in_window(&self, window: &Range<Nanos>, bound: UsageBound) -> u128 {
        self.charges.iter().filter(|charge| charge.window == *window).map(|charge| charge.grains(bound)).sum()
    }

    /// Returns the use of the current window, plus the part of the previous one that a window ending now still covers.
    fn in_two_windows(&self, at: Nanos, bound: UsageBound) -> Usage {
        let window = self.window(at);
        let length = u128::from(window.end - window.start);
        let left = u128::from(window.end - at.max(window.start));
        let before = window.start.checked_sub(1).map(|last| self.in_window(&self.numbers.window(last), bound));
        let full = u128::from(self.numbers.limit) * GRAINS;
        let before = match (before.unwrap_or(0), bound) {
            // It holds more than the limit only after charges without a check.
            (before, UsageBound::Lower) => before.min(full),
            (0, UsageBound::Upper) => 0,
            (before, UsageBound::Upper) => before + self.counter_slack(),
        };
        Usage { amount: self.in_window(&window, bound) * length + before * left, token: GRAINS * length }
    }

    /// Returns by how many nanoseconds a reported reset may be too late or, if usage was carried over, too early.
    pub(crate) fn reset_slack_ns(&self) -> u64 {
        if self.numbers.algorithm == Algorithm::SlidingWindowLog { LOG_SLACK_NS } else { 0 }
    }

    /// Returns by how many grains the count of the previous window may be rounded up: by 0.4 % of limits from 2^14 on.
    pub(crate) fn counter_slack(&self) -> u128 {
        let is_rounded = self.numbers.algorithm == Algorithm::SlidingWindowCounter && self.numbers.limit >= 1 << 14;
        if is_rounded { u128::from(self.numbers.limit) * GRAINS / 250 } else { 0 }
    }

    /// Returns the use of a log (at most n in every interval of length p): that of the fullest interval that contains `at`. One
    /// end is open: an admission at `at` expires at `at + p`.
    fn in_every_period(&self, at: Nanos) -> Usage {
        let starts = self.charges.iter().map(|charge| charge.at).filter(|start| *start <= at);
        let within = |start: Nanos| {
            let held = self.charges.iter().filter(|c| c.at >= start && c.at - start < self.numbers.period_ns);
            held.map(|charge| charge.least).sum::<u128>()
        };
        let fullest = starts.filter(|start| at - start < self.numbers.period_ns).chain([at]).map(within).max();
        Usage { amount: fullest.unwrap_or(0), token: GRAINS }
    }

    /// Returns the use of a log in which each admission counts until all earlier ones have expired, and carried usage a little
    /// longer.
    fn in_last_period(&self, at: Nanos) -> Usage {
        let (mut latest, mut amount) = (0, 0);
        for charge in &self.charges {
            latest = latest.max(charge.at + if charge.id.is_none() { LOG_SLACK_NS } else { 0 });
            let is_forgotten = latest.checked_add(self.numbers.period_ns).is_some_and(|end| end <= at);
            amount += if is_forgotten { 0 } else { charge.most };
        }
        Usage { amount, token: GRAINS }
    }
}
