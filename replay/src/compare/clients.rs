//! Who came, and how it went for each under both policies.

use std::collections::HashMap;

use tidegate::time::Nanos;

use super::{SIDES, series::Strip};

/// The most identities that are kept; of a sample, so many that are in it, and as many who came with them.
pub const CLIENTS_KEPT_MAX: usize = 100_000;
/// The most bytes of their names, of each.
pub const CLIENT_BYTES_MAX: usize = 16 << 20;

/// An identity, and how it went.
#[derive(Debug)]
pub(crate) struct Person {
    /// `KIND:VALUE`.
    pub(crate) name: Box<str>,
    /// False: only some of its requests were there.
    pub(crate) is_listed: bool,
    pub(crate) requests: u64,
    pub(crate) denied: [u64; SIDES],
    pub(crate) first_denied: [Option<Nanos>; SIDES],
    /// Denied by B, allowed by A.
    pub(crate) newly_denied: u64,
    pub(crate) first_newly_denied: Option<Nanos>,
    /// Denied by A, allowed by B.
    pub(crate) newly_allowed: u64,
    runs: [Run; SIDES],
    pub(crate) strip: Strip,
}

/// Denials in a row.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    from: Nanos,
    denials: u64,
}

/// The longest time for which one client was only denied.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Longest {
    pub(crate) who: u32,
    pub(crate) from: Nanos,
    pub(crate) ns: u64,
    pub(crate) denials: u64,
}

/// Everybody, by the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct People {
    pub(crate) all: Vec<Person>,
    places: HashMap<Box<str>, u32>,
    /// How many are not listed and how many are, and the bytes of their names.
    kept: [(usize, usize); 2],
    /// Requests of somebody who is not listed, for want of room.
    pub(crate) left_out: u64,
    pub(crate) longest: [Option<Longest>; SIDES],
    name: String,
}

impl People {
    /// The place of an identity; `None`: there is no room for one more.
    pub(crate) fn meet(&mut self, kind: &str, value: &str, is_listed: bool) -> Option<u32> {
        self.name.clear();
        self.name.extend([kind, ":", value]);
        if let Some(place) = self.places.get(&*self.name) {
            return Some(*place);
        }
        // Those who came with somebody of the sample do not take the room of the sample.
        let (count, bytes) = &mut self.kept[usize::from(is_listed)];
        if *count >= CLIENTS_KEPT_MAX || *bytes + self.name.len() > CLIENT_BYTES_MAX {
            self.left_out += u64::from(is_listed);
            return None;
        }
        let (place, name) = (self.all.len() as u32, Box::<str>::from(&*self.name));
        *count += 1;
        *bytes += name.len();
        self.places.insert(name.clone(), place);
        self.all.push(Person {
            name,
            is_listed,
            requests: 0,
            denied: [0; SIDES],
            first_denied: [None; SIDES],
            newly_denied: 0,
            first_newly_denied: None,
            newly_allowed: 0,
            runs: Default::default(),
            strip: Strip::default(),
        });
        Some(place)
    }

    /// The place of `KIND:VALUE`, if it came.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).map(|place| *place as usize)
    }

    pub(crate) fn count(&mut self, who: u32, now: Nanos, is_denied: [bool; SIDES]) {
        let Some(person) = self.all.get_mut(who as usize) else { return };
        person.requests += 1;
        for (side, is_denied) in is_denied.into_iter().enumerate() {
            let run = &mut person.runs[side];
            if !is_denied {
                *run = Run::default();
                continue;
            }
            person.denied[side] += 1;
            person.first_denied[side].get_or_insert(now);
            if run.denials == 0 {
                run.from = now;
            }
            run.denials += 1;
            let (ns, denials) = (now.saturating_sub(run.from), run.denials);
            if self.longest[side].is_none_or(|longest| (longest.ns, longest.denials) < (ns, denials)) {
                self.longest[side] = Some(Longest { who, from: run.from, ns, denials });
            }
        }
        match is_denied {
            [false, true] => {
                person.newly_denied += 1;
                person.first_newly_denied.get_or_insert(now);
            }
            [true, false] => person.newly_allowed += 1,
            _ => {}
        }
    }

    pub(crate) fn strip(&mut self, who: u32) -> &mut Strip {
        &mut self.all[who as usize].strip
    }

    pub(crate) fn strips(&mut self) -> impl Iterator<Item = &mut Strip> {
        self.all.iter_mut().map(|person| &mut person.strip)
    }
}
