//! Decides whether the admissions of one key keep the promised bound. Pure: it uses nothing but the record.
//!
//! Each admission has an interval of store time in which it happened. A stretch of time certainly holds an admission
//! whose whole interval lies in it, and possibly holds none of the others. So a stretch is judged by the sum of those
//! that it certainly holds: it breaks the bound only if it does so for every choice of instants within the intervals
//! (no false alarm), and of one stretch by itself nothing more can be known (every true alarm).
//!
//! The bounds, and the sentences that promise them:
//!
//! | limit | at most, in a stretch from `a` to `b` | promised by |
//! |---|---|---|
//! | `strict` and `leased`, `token_bucket` and `leaky_bucket` | the burst in force at `b`, and what came back between `a` and `b` at the rates in force | docs/guarantees.md: "b + n t/p in any stretch of time t"; docs/sharing.md: "exactly the limit of the algorithm, over all nodes", "never above the limit" |
//! | `strict` and `leased`, `fixed_window` | n in a window | "n counted in a window" |
//! | `strict`, `sliding_window_counter` | n in an aligned window, 2 n - 1 in a stretch that is shorter than p | "n in an aligned window; fewer than 2 n in any stretch of p" |
//! | `strict`, `sliding_window_log` | n in a stretch that is shorter than p | "n in every stretch of p, wherever it begins" |
//! | `synced` | the same, of the admissions that are *covered* at a later admission of the same node in the stretch | "above the limit by at most what all nodes admit in one interval of exchange (100 ms), and until the store has answered" |
//!
//! **Synced.** An admission is covered once the node has the store's answer to the exchange that reported it. Take the
//! last admission of each node in a stretch, and of these the one whose node had the latest answer of the store. That
//! node knew everything that any of these nodes had covered by then, and was admitted all the same. So what is covered
//! at the last admission of its node in the stretch keeps the bound of the algorithm, and what is above the bound is
//! not covered: at most what each node admitted since it sent the last exchange that was answered. An admission
//! therefore counts from its own beginning until the end of the first later admission at which it was covered, and one
//! that never was covered does not count. A node's idea of the store's time may be late, and decides in which window it
//! admits; an interval begins by that idea.
//!
//! **Losses.** "A store that comes back empty admits one more burst of each key, at most": each loss in a stretch allows one more
//! burst. Leases that the lost store gave are spent for one life of a lease after it, and the new store may take what their nodes
//! give back for what others have, until the end of the epoch after: a stretch that begins within two lives after a loss may hold
//! another quarter of the limit ("At most a quarter of a limit is out").
//!
//! **Changes of the numbers.** Nodes get them at different times, and a request may be under way: numbers are in force
//! from the first publish on any node until the last node has others and nothing that was requested under them is under
//! way. Where several are in force the largest count. "Used tokens stay used, up to the new capacity" (`Carry::Keep`):
//! a change to a smaller limit forgets what is above it, so a stretch that holds one may have the difference to the
//! largest capacity more. A view may owe more than its limit has, which is forgotten likewise; so of a `synced` limit
//! only stretches without a change are judged.

use std::{collections::HashMap, fmt};

use tidegate::{
    policy::{Algorithm, Sharing},
    time::Nanos,
};

/// The numbers of a limit, which a policy can change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LimitNumbers {
    pub(crate) limit: u64,
    /// The burst of a bucket; for a window, its limit.
    pub(crate) burst: u64,
}

/// Numbers of a limit, and the time in which a node may have used them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InForce {
    pub(crate) numbers: LimitNumbers,
    /// The time at which their first publish began, and the time by which the last node had them.
    pub(crate) from: Nanos,
    pub(crate) everywhere_from: Nanos,
    /// The time by which the last node had other numbers.
    pub(crate) until: Nanos,
}

/// A loss of everything in the store, at an instant between these two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StoreLoss {
    pub(crate) from: Nanos,
    pub(crate) until: Nanos,
}

/// Tokens that were admitted between these two instants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordedAdmission {
    /// The node; one that takes the place of a dead node has another number.
    pub(crate) node: usize,
    pub(crate) cost: u64,
    pub(crate) earliest: Nanos,
    pub(crate) latest: Nanos,
    /// The number of tokens, the last that the node admitted before this, that no answer of the store covered yet. Only
    /// synced limits have it.
    pub(crate) uncovered: u64,
}

/// The record of one key, which is all that the judge uses. The admissions of a node to a synced limit are in their
/// order and do not overlap.
#[derive(Clone, Debug)]
pub(crate) struct KeyHistory {
    pub(crate) sharing: Sharing,
    pub(crate) algorithm: Algorithm,
    pub(crate) period_ns: Nanos,
    /// The life of a lease.
    pub(crate) lease_ns: Nanos,
    /// The longest time for which a request under other numbers may be under way.
    pub(crate) under_way_ns: Nanos,
    /// The numbers, in their order.
    pub(crate) in_force: Vec<InForce>,
    /// The losses, in their order.
    pub(crate) losses: Vec<StoreLoss>,
    pub(crate) admissions: Vec<RecordedAdmission>,
}

/// A stretch of time that breaks its bound.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Violation {
    pub(crate) from: Nanos,
    pub(crate) until: Nanos,
    /// The tokens that the stretch certainly holds, and the most that it may hold.
    pub(crate) admitted: u64,
    pub(crate) bound: u64,
    pub(crate) rule: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, until, admitted, bound, rule } = self;
        let ms = (until - from) as f64 / 1e6;
        write!(f, "{admitted} admitted in {ms:.3} ms, from {from} to {until}; at most {bound}: {rule}")
    }
}

/// The distance of a history from its bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Headroom {
    /// The fewest tokens that were left below the bound of a stretch, and that bound.
    pub(crate) least_left: u64,
    pub(crate) of_bound: u64,
}

/// Judges whether the history keeps its bound.
pub(crate) fn judge(history: &KeyHistory) -> Result<Headroom, Violation> {
    match history.sharing {
        Sharing::Synced => judge_covered(history),
        _ => judge_algorithm(history),
    }
}

/// Returns the tokens of a synced limit that count, and the time for which half of them were not covered, at most.
pub(crate) fn coverage(history: &KeyHistory) -> (u64, Nanos) {
    let counted = covered(&history.admissions, &history.losses);
    let mut lasted: Vec<_> = counted.iter().map(|it| it.latest - it.earliest).collect();
    lasted.sort_unstable();
    (counted.iter().map(|it| it.cost).sum(), lasted.get(lasted.len() / 2).copied().unwrap_or(Nanos::MAX))
}

/// Judges the covered admissions between two changes of the numbers.
fn judge_covered(history: &KeyHistory) -> Result<Headroom, Violation> {
    let counted = covered(&history.admissions, &history.losses);
    let mut judged = Headroom::NOTHING;
    for (place, now) in history.in_force.iter().enumerate() {
        let from = now.everywhere_from.saturating_add(if place == 0 { 0 } else { history.under_way_ns });
        let until = history.in_force.get(place + 1).map_or(Nanos::MAX, |next| next.from);
        let within = |it: &&RecordedAdmission| it.earliest >= from && it.latest <= until;
        let alone = InForce { from: 0, everywhere_from: 0, until: Nanos::MAX, ..*now };
        let admissions = counted.iter().filter(within).copied().collect();
        let part = KeyHistory { in_force: vec![alone], admissions, ..history.clone() };
        judged = judged.nearer(judge_algorithm(&part)?);
    }
    Ok(judged)
}

/// Returns the admissions that count, each until the end of the first later admission of its node at which it was
/// covered. A store that came back empty knows nothing of the exchanges before, so both must be before a loss, or both
/// after it.
fn covered(admissions: &[RecordedAdmission], losses: &[StoreLoss]) -> Vec<RecordedAdmission> {
    let mut by_node: HashMap<usize, Vec<&RecordedAdmission>> = HashMap::new();
    for it in admissions {
        by_node.entry(it.node).or_default().push(it);
    }
    let mut counted = Vec::new();
    for of_node in by_node.values() {
        // Everything that the node admitted before, and the first of it that is not covered yet.
        let (mut admitted, mut next, mut covered) = (0, 0, 0);
        for it in of_node {
            let covered_now = admitted - it.uncovered.min(admitted);
            while let Some(first) = of_node.get(next).filter(|first| covered + first.cost <= covered_now) {
                covered += first.cost;
                next += 1;
                let loss = losses.iter().find(|loss| loss.until >= first.earliest);
                if loss.is_none_or(|loss| it.latest < loss.from) {
                    counted.push(RecordedAdmission { latest: it.latest, ..**first });
                }
            }
            admitted += it.cost;
        }
    }
    counted
}

#[expect(clippy::panic, reason = "it fails the test that calls it")]
fn judge_algorithm(history: &KeyHistory) -> Result<Headroom, Violation> {
    let limit = |numbers: &LimitNumbers| numbers.limit;
    match history.algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let rule = "a burst, and what came back";
            stretches(
                history,
                &StretchRule {
                    name: rule,
                    capacity: |numbers: &LimitNumbers| numbers.burst,
                    comes_back: true,
                    below: None,
                },
            )
        }
        Algorithm::FixedWindow => windows(history),
        Algorithm::SlidingWindowCounter => {
            let rule = "fewer than twice the limit in a period";
            let capacity = |numbers: &LimitNumbers| 2 * numbers.limit - 1;
            let below = Some(history.period_ns);
            Ok(windows(history)?
                .nearer(stretches(history, &StretchRule { name: rule, capacity, comes_back: false, below })?))
        }
        Algorithm::SlidingWindowLog => {
            let (rule, below) = ("the limit in a period", Some(history.period_ns));
            stretches(history, &StretchRule { name: rule, capacity: limit, comes_back: false, below })
        }
        other => panic!("no bound of {other:?}"),
    }
}

impl Headroom {
    const NOTHING: Self = Self { least_left: u64::MAX, of_bound: 0 };

    fn nearer(self, other: Self) -> Self {
        if other.least_left < self.least_left { other } else { self }
    }
}

impl KeyHistory {
    /// Returns the time until which these numbers may be in force.
    fn until(&self, it: &InForce) -> Nanos {
        it.until.saturating_add(self.under_way_ns)
    }

    /// Returns the largest of the numbers in force in a stretch.
    fn largest(&self, number: impl Fn(&LimitNumbers) -> u64, from: Nanos, until: Nanos) -> u64 {
        let in_force = self.in_force.iter().filter(|it| it.from <= until && self.until(it) >= from);
        in_force.map(|it| number(&it.numbers)).max().unwrap_or(0)
    }

    /// Returns the changes of the numbers: the interval of each, and how many used tokens it may forget.
    fn changes(&self, capacity: impl Fn(&LimitNumbers) -> u64) -> Vec<(Nanos, Nanos, u64)> {
        let change = |pair: &[InForce]| {
            let (from, until) = (pair[1].from, self.until(&pair[0]));
            // Leases of a larger limit may be charged to a smaller one when they are spent.
            let since = if self.sharing == Sharing::Leased { 0 } else { from };
            (from, until, self.largest(&capacity, since, until) - capacity(&pair[1].numbers))
        };
        let mut changes: Vec<_> = self.in_force.windows(2).map(change).collect();
        // A store that lost everything may get the old numbers once more, and then the new ones.
        for loss in &self.losses {
            let again = changes.iter().find(|(from, until, _)| *from <= loss.until && loss.from <= *until).copied();
            changes.extend(again);
        }
        changes
    }

    /// Returns the losses: the interval of each, and the burst that it allows.
    fn lost_bursts(&self, capacity: impl Fn(&LimitNumbers) -> u64) -> Vec<(Nanos, Nanos, u64)> {
        let burst = |loss: &StoreLoss| (loss.from, loss.until, self.largest(&capacity, loss.from, loss.until));
        self.losses.iter().map(burst).collect()
    }

    /// Returns the tokens that leases of lost stores may add to a stretch that begins after one instant and before
    /// another.
    fn lost_leases(&self, capacity: impl Fn(&LimitNumbers) -> u64) -> Vec<(Nanos, Nanos, u64)> {
        let mut all: Vec<(Nanos, Nanos, u64)> = Vec::new();
        for loss in self.losses.iter().filter(|_| self.sharing == Sharing::Leased) {
            let quarter = self.largest(&capacity, loss.from.saturating_sub(2 * self.lease_ns), loss.until) / 4;
            // A loss so soon after another may find a quarter more lent.
            let before = all.last().filter(|(_, ends, _)| loss.from <= *ends).map_or(0, |before| before.2);
            all.push((loss.from, loss.until.saturating_add(2 * self.lease_ns), before + quarter));
        }
        all
    }
}

/// Returns the most tokens that leases of lost stores may add to a stretch that begins then.
fn of_lost_leases(lost: &[(Nanos, Nanos, u64)], from: Nanos) -> u64 {
    lost.iter().filter(|it| it.0 < from && from <= it.1).map(|it| it.2).max().unwrap_or(0)
}

/// Returns the sum of the tokens of those entries that a stretch may hold.
fn held_in(all: &[(Nanos, Nanos, u64)], from: Nanos, until: Nanos) -> u64 {
    all.iter().filter(|it| it.0 <= until && it.1 >= from).map(|it| it.2).sum()
}

/// Judges each aligned window, and the parts of it between losses, by what it certainly holds.
fn windows(history: &KeyHistory) -> Result<Headroom, Violation> {
    let period_ns = history.period_ns;
    let mut of_windows: HashMap<Nanos, Vec<&RecordedAdmission>> = HashMap::new();
    for it in history.admissions.iter().filter(|it| it.earliest / period_ns == it.latest / period_ns) {
        of_windows.entry(it.earliest / period_ns).or_default().push(it);
    }
    let limit = |numbers: &LimitNumbers| numbers.limit;
    let (changes, lost_bursts, lost_leases) =
        (history.changes(limit), history.lost_bursts(limit), history.lost_leases(limit));
    let mut judged = Headroom::NOTHING;
    for (window, admissions) in of_windows {
        let (begins, ends) = (window * period_ns, (window + 1) * period_ns - 1);
        let losses: Vec<_> = history.losses.iter().filter(|loss| loss.from <= ends && loss.until >= begins).collect();
        let after = losses.iter().map(|loss| loss.until + 1).filter(|at| *at <= ends);
        let before: Vec<_> = losses.iter().map(|loss| loss.from.saturating_sub(1)).chain([ends]).collect();
        let parts = after.chain([begins]).flat_map(|from| before.iter().map(move |&until| (from, until)));
        for (from, until) in parts.filter(|(from, until)| from <= until) {
            let held = admissions.iter().filter(|it| it.earliest >= from && it.latest <= until);
            let admitted: u64 = held.map(|it| it.cost).sum();
            let limit = history.largest(limit, from, until);
            let (lost, forgotten) = (held_in(&lost_bursts, from, until), held_in(&changes, from, until));
            let of_lost = if from > begins { of_lost_leases(&lost_leases, from) } else { 0 };
            let bound = limit + lost + forgotten + of_lost;
            if admitted > bound {
                return Err(Violation { from, until, admitted, bound, rule: "the limit in a window" });
            }
            judged = judged.nearer(Headroom { least_left: bound - admitted, of_bound: bound });
        }
    }
    Ok(judged)
}

/// The bound of a stretch.
struct StretchRule<F> {
    name: &'static str,
    capacity: F,
    /// Whether the limit comes back in each period.
    comes_back: bool,
    /// The length from which on stretches are not judged.
    below: Option<Nanos>,
}

/// Judges each stretch that begins where an admission begins and ends where one ends, in n log n. Tokens are counted in
/// parts, of which a token has as many as a period has nanoseconds, so that what comes back is a whole number.
///
/// The excess of a stretch from `a` to `b` above its bound is a sum of parts that depend on `a` alone, parts that
/// depend on `b` alone, and the admissions in it. So stretches that begin at `a` are judged together, from the last `a`
/// to the first: a tree over all `b` has the sum for each, and an admission is added to all stretches that end after
/// it.
fn stretches<F: Fn(&LimitNumbers) -> u64 + Copy>(
    history: &KeyHistory,
    rule: &StretchRule<F>,
) -> Result<Headroom, Violation> {
    let token = i128::from(history.period_ns);
    let tokens = |tokens: u64| i128::from(tokens) * token;
    let mut allowances = history.changes(rule.capacity);
    allowances.extend(history.lost_bursts(rule.capacity));
    let lost_leases = history.lost_leases(rule.capacity);
    let supply = Supply::of(history, rule.comes_back);
    // A stretch holds a loss or a change unless that begins after `b` or ends before `a`.
    let allowed = |is_in: &dyn Fn(Nanos, Nanos) -> bool| {
        allowances.iter().filter(|(from, until, _)| is_in(*from, *until)).map(|it| tokens(it.2)).sum::<i128>()
    };
    let until_b =
        |b: Nanos| tokens(history.largest(rule.capacity, b, b)) + supply.until(b) + allowed(&|from, _| from <= b);
    let before_a =
        |a: Nanos| supply.until(a) + allowed(&|_, until| until < a) - tokens(of_lost_leases(&lost_leases, a));
    let mut ends: Vec<_> = history.admissions.iter().map(|it| it.latest).collect();
    ends.sort_unstable();
    ends.dedup();
    let mut tree = MaxTree::new(ends.iter().map(|&b| -until_b(b)).collect());
    let mut admissions = history.admissions.clone();
    admissions.sort_unstable_by_key(|it| std::cmp::Reverse(it.earliest));
    let (mut judged, mut place) = (Headroom::NOTHING, 0);
    while let Some(&RecordedAdmission { earliest: a, .. }) = admissions.get(place) {
        while let Some(it) = admissions.get(place).filter(|it| it.earliest == a) {
            tree.add(ends.partition_point(|&b| b < it.latest)..ends.len(), tokens(it.cost));
            place += 1;
        }
        let beyond = rule.below.map_or(ends.len(), |below| ends.partition_point(|&b| b < a.saturating_add(below)));
        let Some((above, at)) = tree.largest(ends.partition_point(|&b| b < a)..beyond) else { continue };
        let (b, above) = (ends[at], above + before_a(a));
        // Rounded down, so that a part of a token is no alarm.
        let bound = (until_b(b) - before_a(a)).div_euclid(token);
        if above > 0 {
            let held = admissions.iter().filter(|it| it.earliest >= a && it.latest <= b);
            let admitted = held.map(|it| it.cost).sum();
            let bound = u64::try_from(bound).unwrap_or(0);
            return Err(Violation { from: a, until: b, admitted, bound, rule: rule.name });
        }
        let least_left = u64::try_from(-above / token).unwrap_or(u64::MAX);
        judged = judged.nearer(Headroom { least_left, of_bound: u64::try_from(bound).unwrap_or(u64::MAX) });
    }
    Ok(judged)
}

/// The parts of tokens that come back at the largest rate in force.
struct Supply {
    /// The beginning of each rate, the rate, and the parts that came back before it.
    steps: Vec<(Nanos, i128, i128)>,
}

impl Supply {
    fn of(history: &KeyHistory, comes_back: bool) -> Self {
        let mut times: Vec<_> = history.in_force.iter().map(|it| it.from).collect();
        times.extend(history.in_force.iter().map(|it| history.until(it).saturating_add(1)));
        times.sort_unstable();
        times.dedup();
        let mut steps: Vec<(Nanos, i128, i128)> = Vec::new();
        for from in times {
            let rate = history.largest(|numbers| numbers.limit, from, from);
            let rate = if comes_back { i128::from(rate) } else { 0 };
            let before = steps.last().map_or(0, |&(since, rate, before)| before + rate * i128::from(from - since));
            steps.push((from, rate, before));
        }
        Self { steps }
    }

    fn until(&self, at: Nanos) -> i128 {
        let place = self.steps.partition_point(|step| step.0 <= at);
        let Some(&(since, rate, before)) = place.checked_sub(1).map(|place| &self.steps[place]) else { return 0 };
        before + rate * i128::from(at - since)
    }
}

/// A segment tree that adds to ranges of numbers, and finds the largest number of a range.
struct MaxTree {
    size: usize,
    /// The largest number below each node of the tree, and its index.
    largest: Vec<(i128, usize)>,
    /// The sum that was added to all numbers below each node.
    added: Vec<i128>,
}

impl MaxTree {
    fn new(numbers: Vec<i128>) -> Self {
        let size = numbers.len().next_power_of_two().max(1);
        let mut largest = vec![(i128::MIN / 4, 0); 2 * size];
        for (place, number) in numbers.into_iter().enumerate() {
            largest[size + place] = (number, place);
        }
        for node in (1..size).rev() {
            largest[node] = largest[2 * node].max(largest[2 * node + 1]);
        }
        Self { size, largest, added: vec![0; 2 * size] }
    }

    fn add(&mut self, range: std::ops::Range<usize>, number: i128) {
        self.add_below(1, 0..self.size, &range, number);
    }

    fn add_below(&mut self, node: usize, of: std::ops::Range<usize>, to: &std::ops::Range<usize>, number: i128) {
        if to.end <= of.start || of.end <= to.start {
            return;
        }
        if to.start <= of.start && of.end <= to.end {
            self.largest[node].0 += number;
            self.added[node] += number;
            return;
        }
        let middle = usize::midpoint(of.start, of.end);
        self.add_below(2 * node, of.start..middle, to, number);
        self.add_below(2 * node + 1, middle..of.end, to, number);
        let (largest, place) = self.largest[2 * node].max(self.largest[2 * node + 1]);
        self.largest[node] = (largest + self.added[node], place);
    }

    /// Returns the largest number in a range, and its index; `None`: the range is empty.
    fn largest(&self, range: std::ops::Range<usize>) -> Option<(i128, usize)> {
        self.largest_below(1, 0..self.size, &range)
    }

    fn largest_below(
        &self,
        node: usize,
        of: std::ops::Range<usize>,
        within: &std::ops::Range<usize>,
    ) -> Option<(i128, usize)> {
        if within.end <= of.start || of.end <= within.start {
            return None;
        }
        if within.start <= of.start && of.end <= within.end {
            return Some(self.largest[node]);
        }
        let middle = usize::midpoint(of.start, of.end);
        let left = self.largest_below(2 * node, of.start..middle, within);
        let right = self.largest_below(2 * node + 1, middle..of.end, within);
        let (largest, place) = left.max(right)?;
        Some((largest + self.added[node], place))
    }
}

#[cfg(test)]
mod tests;
