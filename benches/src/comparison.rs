//! Ours and its peers on the same work in the same run: taken in turns, in another order each time.

use std::{fmt, hint::black_box, time::Duration};

use crate::{
    record::{self, Goal, Record, Spread},
    threads::{CHUNK, Slice, together},
};

/// A limiter, as threads use it.
pub trait Ask: Sync {
    /// What one thread asks with: it is given the number of a key, and answers whether that was allowed.
    fn asker(&self) -> impl FnMut(u64) -> bool;

    /// What one thread asks with for [`CHUNK`] keys: one after the other, unless it can do better.
    fn chunk_asker(&self) -> impl FnMut(&[u32]) {
        let mut ask = self.asker();
        move |numbers| {
            for &number in numbers {
                black_box(ask(number.into()));
            }
        }
    }
}

impl<A: Ask> Ask for &A {
    #[inline]
    fn asker(&self) -> impl FnMut(u64) -> bool {
        (**self).asker()
    }

    #[inline]
    fn chunk_asker(&self) -> impl FnMut(&[u32]) {
        (**self).chunk_asker()
    }
}

/// Which keys the threads ask for.
#[derive(Clone, Copy, Debug)]
pub enum Keys<'k> {
    /// All for the same one.
    Hot,
    /// Each for one of its own, of which none is the hot one: that may have a lease.
    Private,
    /// Each through this sequence, from a place of its own.
    Drawn(&'k [u32]),
}

/// An [`Ask`] whose type is forgotten: the loop between two checks was compiled for it alone all the same.
trait Loops {
    fn slice(&self, threads: usize, keys: Keys<'_>, chunks: u64, skipped: u64) -> Slice;
    fn allows(&self, number: u64) -> bool;
}

impl<A: Ask> Loops for A {
    fn slice(&self, threads: usize, keys: Keys<'_>, chunks: u64, skipped: u64) -> Slice {
        match keys {
            Keys::Hot => together(threads, chunks, |_| same(self, 0)),
            Keys::Private => together(threads, chunks, |thread| same(self, 1 + thread as u64)),
            Keys::Drawn(numbers) => {
                let count = numbers.len() / CHUNK;
                together(threads, chunks, |thread| {
                    let mut ask = self.chunk_asker();
                    let mut place = (skipped as usize + thread * count / threads) % count;
                    move || {
                        ask(&numbers[place * CHUNK..][..CHUNK]);
                        place = if place + 1 == count { 0 } else { place + 1 };
                    }
                })
            }
        }
    }

    fn allows(&self, number: u64) -> bool {
        self.asker()(number)
    }
}

fn same(limiter: &impl Ask, number: u64) -> impl FnMut() {
    let mut ask = limiter.asker();
    move || {
        for _ in 0..CHUNK {
            black_box(ask(black_box(number)));
        }
    }
}

/// A limiter that takes part.
pub struct Contender<'a> {
    /// As tables name it.
    pub name: &'static str,
    limiter: Box<dyn Loops + 'a>,
}

impl fmt::Debug for Contender<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Contender").field(&self.name).finish()
    }
}

impl<'a> Contender<'a> {
    /// Under a name.
    pub fn new(name: &'static str, limiter: impl Ask + 'a) -> Self {
        Self { name, limiter: Box::new(limiter) }
    }

    /// A slice of `chunks` times [`CHUNK`] checks a thread; of a sequence, so many chunks are skipped first.
    #[must_use]
    pub fn run(&self, threads: usize, keys: Keys<'_>, chunks: u64, skipped: u64) -> Slice {
        self.limiter.slice(threads, keys, chunks, skipped)
    }

    /// One check.
    #[must_use]
    pub fn allows(&self, number: u64) -> bool {
        self.limiter.allows(number)
    }

    /// After it was asked for each of the keys 0 to `count` - 1.
    #[must_use]
    pub fn filled(self, count: u64) -> Self {
        for number in 0..count {
            black_box(self.allows(number));
        }
        self
    }

    /// Takes part in a row under its own name.
    #[must_use]
    pub fn side<'s>(&'s self, keys: Keys<'s>, goal: Option<Goal>) -> Side<'s> {
        self.side_as(self.name, keys, goal)
    }

    /// Takes part in a row under another name.
    #[must_use]
    pub fn side_as<'s>(&'s self, name: &'static str, keys: Keys<'s>, goal: Option<Goal>) -> Side<'s> {
        Side { name, keys, goal, is_peer: false, contender: self }
    }

    /// Takes part in a row as a peer: a limiter of another project.
    #[must_use]
    pub fn peer_side<'s>(&'s self, keys: Keys<'s>, goal: Option<Goal>) -> Side<'s> {
        Side { is_peer: true, ..self.side(keys, goal) }
    }
}

/// One of those that are compared.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// As tables name it.
    pub name: &'static str,
    keys: Keys<'a>,
    /// What ours must reach beside it.
    goal: Option<Goal>,
    /// Whether it is a limiter of another project. The fastest of these is the row's best peer.
    is_peer: bool,
    contender: &'a Contender<'a>,
}

impl Side<'_> {
    /// A slice of it.
    #[must_use]
    pub fn run(&self, threads: usize, chunks: u64, skipped: u64) -> Slice {
        self.contender.run(threads, self.keys, chunks, skipped)
    }
}

/// The name of a bound of [`Row::at_least_millions`], whose figures are nanoseconds per check of a thread like all others.
pub const MILLIONS_BOUND: &str = "goal: million checks a second";

/// One row of the comparison: the same work for each side.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// What is done.
    pub work: &'static str,
    /// By so many threads at once.
    pub threads: usize,
    /// Over so many keys.
    pub keys: u64,
    /// Ours.
    pub ours: Side<'a>,
    /// The others.
    pub others: Vec<Side<'a>>,
    best_goal: Option<f64>,
    bounds: Vec<(&'static str, f64)>,
}

/// What one side needed.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// As tables name it.
    pub name: &'static str,
    /// Nanoseconds per check.
    pub ns: Spread,
    /// Round by round, how often ours fits into it.
    pub ratio: Spread,
}

/// What a row came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Each side's figures; ours first.
    pub found: Vec<Found>,
    /// The JSON's objects: one of each other side in the order of `found`, then one of each bound of the row.
    pub records: Vec<Record>,
    /// Checks of one thread in one slice.
    pub checks: u64,
    /// See [`Slice::overlap`]: the median.
    pub overlap: f64,
    /// See [`Slice::on_processor`]: the median.
    pub on_processor: f64,
}

impl<'a> Row<'a> {
    /// A row without goals, but for those of its sides.
    #[must_use]
    pub fn new(work: &'static str, threads: usize, keys: u64, ours: Side<'a>, others: Vec<Side<'a>>) -> Self {
        Self { work, threads, keys, ours, others, best_goal: None, bounds: Vec::new() }
    }

    /// Adds a goal: the best peer takes at least this many times as long as ours.
    #[must_use]
    pub fn best_peer(self, ratio: f64) -> Self {
        Self { best_goal: Some(ratio), ..self }
    }

    /// Adds a goal: a check of one thread takes at most this many nanoseconds.
    #[must_use]
    pub fn at_most_ns(mut self, ns: f64) -> Self {
        self.bounds.push(("goal: nanoseconds", ns));
        self
    }

    /// Adds a goal: all threads together make at least this many million checks a second.
    #[must_use]
    pub fn at_least_millions(mut self, millions: f64) -> Self {
        self.bounds.push((MILLIONS_BOUND, self.threads as f64 * 1e3 / millions));
        self
    }

    /// Measures for about this long, in `rounds` rounds; `tell` hears of each that begins. Every side does the same checks in a
    /// round, the next ones of the sequence in the next.
    pub fn measure(&self, time: Duration, rounds: usize, mut tell: impl FnMut(usize)) -> Outcome {
        let sides: Vec<&Side<'_>> = [&self.ours].into_iter().chain(&self.others).collect();
        let chunks = self.chunks_in(time / rounds as u32, &sides);
        let mut slices = vec![Vec::with_capacity(rounds); sides.len()];
        for round in 0..rounds {
            tell(round);
            for side in order(round, sides.len()) {
                slices[side].push(sides[side].run(self.threads, chunks, round as u64 * chunks));
            }
        }
        let found: Vec<Found> = sides
            .iter()
            .zip(&slices)
            .map(|(side, theirs)| Found {
                name: side.name,
                ns: Spread::of(theirs.iter().map(|slice| slice.ns)),
                ratio: Spread::of(theirs.iter().zip(&slices[0]).map(|(theirs, ours)| theirs.ns / ours.ns)),
            })
            .collect();
        Outcome {
            records: self.records(&found),
            checks: chunks * CHUNK as u64,
            overlap: Spread::of(slices.iter().flatten().map(|slice| slice.overlap)).median,
            on_processor: Spread::of(slices.iter().flatten().map(|slice| slice.on_processor)).median,
            found,
        }
    }

    fn records(&self, found: &[Found]) -> Vec<Record> {
        let ours = found[0].ns.median;
        let new = |other, goal| {
            let record = Record::new((self.work, self.threads, self.keys), ours, other, goal);
            Record { ours_m_per_second: Some(self.threads as f64 * 1e3 / ours), ..record }
        };
        let others = self.others.iter().zip(&found[1..]);
        let sides = others
            .map(|(side, found)| Record { is_peer: side.is_peer, ..new((side.name, found.ns.median), side.goal) });
        let mut records: Vec<Record> = sides.collect();
        record::mark_best(&mut records, self.best_goal);
        records.extend(self.bounds.iter().map(|&bound| new(bound, Some(Goal::Above(0.0)))));
        records
    }

    /// So many chunks a side that one round of all sides takes `time`; warms all of them up.
    #[expect(clippy::cast_sign_loss, reason = "times are not negative")]
    fn chunks_in(&self, time: Duration, sides: &[&Side<'_>]) -> u64 {
        let warm = (time / sides.len() as u32 / 8).min(Duration::from_millis(10));
        let ns: f64 = sides.iter().map(|side| self.warmed_up(side, warm)).sum();
        ((time.as_secs_f64() * 1e9 / ns / CHUNK as f64) as u64).max(8)
    }

    /// What the side needs for a check, after it ran for as long as `time` at one go.
    fn warmed_up(&self, side: &Side<'_>, time: Duration) -> f64 {
        let mut chunks = 8;
        loop {
            let slice = side.run(self.threads, chunks, 0);
            if slice.time_of(chunks * CHUNK as u64) >= time {
                return slice.ns;
            }
            chunks *= 4;
        }
    }
}

/// Who comes when: each round another side begins, and every second round runs backwards, so that nobody always follows the
/// same one.
fn order(round: usize, sides: usize) -> impl Iterator<Item = usize> {
    let backwards = round % 2 == 1;
    (0..sides).map(move |place| (round + if backwards { sides - place } else { place }) % sides)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_each_side_once_and_begins_with_another() {
        let rounds: Vec<Vec<usize>> = (0..6).map(|round| order(round, 3).collect()).collect();
        assert_eq!(rounds, [[0, 1, 2], [1, 0, 2], [2, 0, 1], [0, 2, 1], [1, 2, 0], [2, 1, 0]]);
    }

    /// Takes so many turns of a loop for each check.
    struct Turns(u64);

    impl Ask for Turns {
        fn asker(&self) -> impl FnMut(u64) -> bool {
            |number| (0..self.0).fold(number, |sum, turn| black_box(sum ^ turn)) == 7
        }
    }

    #[test]
    fn a_row_shows_each_side_with_its_goal() {
        let [fast, slow] = [Contender::new("tidegate", Turns(10)), Contender::new("slow", Turns(100))];
        let numbers: Vec<u32> = (0..1_024).collect();
        let drawn = Keys::Drawn(&numbers);
        let others = vec![slow.peer_side(drawn, Some(Goal::Ratio(2.0))), slow.side_as("again", drawn, None)];
        let row = Row::new("turns", 1, 1_024, fast.side(drawn, None), others)
            .best_peer(1e9)
            .at_most_ns(1e9)
            .at_least_millions(1e6);
        let mut rounds = Vec::new();
        let outcome = row.measure(Duration::from_millis(60), 3, |round| rounds.push(round));
        assert_eq!(rounds, [0, 1, 2]);
        let names: Vec<_> = outcome.found.iter().map(|found| found.name).collect();
        assert_eq!(names, ["tidegate", "slow", "again"]);
        let record = &outcome.records[0];
        assert_eq!((&*record.peer, record.met), ("slow", Some(record.ratio >= 2.0)), "{record:?}");
        assert!(outcome.found.iter().all(|found| found.ratio.least > 0.0), "{outcome:?}");
        assert_eq!(record.best_target.as_deref(), Some(">= 1000000000"));
        assert_eq!((record.is_best, record.best_met), (true, Some(false)));
        let again = &outcome.records[1];
        assert_eq!((again.met, again.is_best, again.is_peer), (None, false, false), "no peer, so not the best one");
        let bounds: Vec<_> =
            outcome.records[2..].iter().map(|bound| (&*bound.peer, bound.peer_ns, bound.met)).collect();
        let expected = [("goal: nanoseconds", 1e9, Some(true)), (MILLIONS_BOUND, 1e-3, Some(false))];
        assert_eq!(bounds, expected);
    }

    #[test]
    fn threads_ask_for_the_keys_of_their_row() {
        struct Seen(std::sync::Mutex<Vec<u64>>);
        impl Ask for Seen {
            fn asker(&self) -> impl FnMut(u64) -> bool {
                |number| {
                    self.0.lock().expect("no panic").push(number);
                    true
                }
            }
        }
        let seen = Seen(std::sync::Mutex::default());
        let contender = Contender::new("seen", &seen);
        let asked = |threads, keys: Keys<'_>, skipped| {
            let _ = contender.run(threads, keys, 2, skipped);
            let mut asked = std::mem::take(&mut *seen.0.lock().expect("no panic"));
            asked.sort_unstable();
            asked.dedup();
            asked
        };
        assert_eq!(asked(2, Keys::Hot, 0), [0]);
        assert_eq!(asked(2, Keys::Private, 0), [1, 2]);
        let numbers: Vec<u32> = (0..1_024).collect();
        assert!(asked(1, Keys::Drawn(&numbers), 3).into_iter().eq((0..256).chain(768..1_024)), "round and round");
        assert!(Contender::new("filled", &seen).filled(300).allows(300));
        assert!(seen.0.lock().expect("no panic").iter().copied().eq(0..301));
    }
}
