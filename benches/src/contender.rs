//! A limiter that takes part in a comparison, and the loop in which threads check keys with it.

use std::{fmt, hint::black_box};

use crate::{
    record::Goal,
    threads::{CHUNK, Slice, run_together},
};

/// A limiter under test.
pub trait TestedLimiter: Sync {
    /// Returns the function with which one thread checks the key of a number; it returns whether the check was allowed.
    fn checker(&self) -> impl FnMut(u64) -> bool;

    /// Returns the function with which one thread checks [`CHUNK`] keys: one after the other, unless the limiter has batches.
    fn chunk_checker(&self) -> impl FnMut(&[u32]) {
        let mut check = self.checker();
        move |numbers| {
            for &number in numbers {
                black_box(check(number.into()));
            }
        }
    }
}

impl<A: TestedLimiter> TestedLimiter for &A {
    #[inline]
    fn checker(&self) -> impl FnMut(u64) -> bool {
        (**self).checker()
    }

    #[inline]
    fn chunk_checker(&self) -> impl FnMut(&[u32]) {
        (**self).chunk_checker()
    }
}

/// The keys that the threads check.
#[derive(Clone, Copy, Debug)]
pub enum KeyChoice<'k> {
    /// All threads check the same key.
    Hot,
    /// Each thread checks a key of its own, never the hot one, whose tokens may be striped over threads.
    Private,
    /// Each thread goes through this sequence from a position of its own.
    Drawn(&'k [u32]),
}

/// The type-erased loop of a [`TestedLimiter`]: the loop itself is compiled for that limiter, so its checks can be inlined.
trait CheckLoop {
    fn slice(&self, threads: usize, keys: KeyChoice<'_>, chunks: u64, skipped: u64) -> Slice;
    fn allows(&self, number: u64) -> bool;
}

impl<A: TestedLimiter> CheckLoop for A {
    fn slice(&self, threads: usize, keys: KeyChoice<'_>, chunks: u64, skipped: u64) -> Slice {
        match keys {
            KeyChoice::Hot => run_together(threads, chunks, |_| check_one_key(self, 0)),
            KeyChoice::Private => run_together(threads, chunks, |thread| check_one_key(self, 1 + thread as u64)),
            KeyChoice::Drawn(numbers) => {
                let count = numbers.len() / CHUNK;
                run_together(threads, chunks, |thread| {
                    let mut check = self.chunk_checker();
                    let mut place = (skipped as usize + thread * count / threads) % count;
                    move || {
                        check(&numbers[place * CHUNK..][..CHUNK]);
                        place = if place + 1 == count { 0 } else { place + 1 };
                    }
                })
            }
        }
    }

    fn allows(&self, number: u64) -> bool {
        self.checker()(number)
    }
}

fn check_one_key(limiter: &impl TestedLimiter, number: u64) -> impl FnMut() {
    let mut check = limiter.checker();
    move || {
        for _ in 0..CHUNK {
            black_box(check(black_box(number)));
        }
    }
}

/// A limiter with the name under which it takes part.
pub struct Contender<'a> {
    /// The name in tables.
    pub name: &'static str,
    limiter: Box<dyn CheckLoop + 'a>,
}

impl fmt::Debug for Contender<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Contender").field(&self.name).finish()
    }
}

impl<'a> Contender<'a> {
    /// Returns a contender with this name.
    pub fn new(name: &'static str, limiter: impl TestedLimiter + 'a) -> Self {
        Self { name, limiter: Box::new(limiter) }
    }

    /// Runs a slice of `chunks` times [`CHUNK`] checks a thread. `skipped` chunks of a drawn sequence are skipped first.
    #[must_use]
    pub fn run(&self, threads: usize, keys: KeyChoice<'_>, chunks: u64, skipped: u64) -> Slice {
        self.limiter.slice(threads, keys, chunks, skipped)
    }

    /// Checks one key.
    #[must_use]
    pub fn allows(&self, number: u64) -> bool {
        self.limiter.allows(number)
    }

    /// Checks each of the keys 0 to `count` - 1 once, so that the limiter has a bucket for each.
    #[must_use]
    pub fn filled(self, count: u64) -> Self {
        for number in 0..count {
            black_box(self.allows(number));
        }
        self
    }

    /// Returns a side of a row with the contender's own name.
    #[must_use]
    pub fn side<'s>(&'s self, keys: KeyChoice<'s>, goal: Option<Goal>) -> Side<'s> {
        self.side_as(self.name, keys, goal)
    }

    /// Returns a side of a row with another name.
    #[must_use]
    pub fn side_as<'s>(&'s self, name: &'static str, keys: KeyChoice<'s>, goal: Option<Goal>) -> Side<'s> {
        Side { name, keys, goal, is_peer: false, contender: self }
    }

    /// Returns a side of a row that is a peer: a limiter of another project.
    #[must_use]
    pub fn peer_side<'s>(&'s self, keys: KeyChoice<'s>, goal: Option<Goal>) -> Side<'s> {
        Side { is_peer: true, ..self.side(keys, goal) }
    }
}

/// A contender in a row, with the keys that it checks and its goal.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The name in tables.
    pub name: &'static str,
    keys: KeyChoice<'a>,
    /// The goal that ours must reach beside this side.
    pub(crate) goal: Option<Goal>,
    /// Whether the contender is a limiter of another project. The fastest of these is the row's best peer.
    pub(crate) is_peer: bool,
    contender: &'a Contender<'a>,
}

impl Side<'_> {
    /// Runs a slice, as [`Contender::run`] does.
    #[must_use]
    pub fn run(&self, threads: usize, chunks: u64, skipped: u64) -> Slice {
        self.contender.run(threads, self.keys, chunks, skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_check_the_keys_of_their_side() {
        struct Recorder(std::sync::Mutex<Vec<u64>>);
        impl TestedLimiter for Recorder {
            fn checker(&self) -> impl FnMut(u64) -> bool {
                |number| {
                    self.0.lock().expect("no panic").push(number);
                    true
                }
            }
        }
        let seen = Recorder(std::sync::Mutex::default());
        let contender = Contender::new("seen", &seen);
        let checked = |threads, keys: KeyChoice<'_>, skipped| {
            let _ = contender.run(threads, keys, 2, skipped);
            let mut keys_seen = std::mem::take(&mut *seen.0.lock().expect("no panic"));
            keys_seen.sort_unstable();
            keys_seen.dedup();
            keys_seen
        };
        assert_eq!(checked(2, KeyChoice::Hot, 0), [0]);
        assert_eq!(checked(2, KeyChoice::Private, 0), [1, 2]);
        let numbers: Vec<u32> = (0..1_024).collect();
        assert!(
            checked(1, KeyChoice::Drawn(&numbers), 3).into_iter().eq((0..256).chain(768..1_024)),
            "round and round"
        );
        assert!(Contender::new("filled", &seen).filled(300).allows(300));
        assert!(seen.0.lock().expect("no panic").iter().copied().eq(0..301));
    }
}
