//! Counts of each client under both policies.

use std::collections::HashMap;

use tidegate::time::Nanos;

use super::{SIDES, series::CountSeries};

/// Most identities in memory; with a sample, this many that are in it, and as many others.
pub const CLIENTS_KEPT_MAX: usize = 100_000;
/// Most bytes of the names of each of these two groups.
pub const CLIENT_BYTES_MAX: usize = 16 << 20;

/// An identity with its counts.
#[derive(Debug)]
pub(crate) struct ComparedClient {
    /// `KIND:VALUE`.
    pub(crate) name: Box<str>,
    /// False if the traffic has only some of its requests.
    pub(crate) is_listed: bool,
    pub(crate) requests: u64,
    pub(crate) denied: [u64; SIDES],
    pub(crate) first_denied: [Option<Nanos>; SIDES],
    /// Denied by B, allowed by A.
    pub(crate) newly_denied: u64,
    pub(crate) first_newly_denied: Option<Nanos>,
    /// Denied by A, allowed by B.
    pub(crate) newly_allowed: u64,
    runs: [DenialRun; SIDES],
    pub(crate) series: CountSeries,
}

/// A run of consecutive denials.
#[derive(Clone, Copy, Debug, Default)]
struct DenialRun {
    from: Nanos,
    denials: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LongestDenialRun {
    pub(crate) client: u32,
    pub(crate) from: Nanos,
    pub(crate) ns: u64,
    pub(crate) denials: u64,
}

/// All identities, in order of their first request.
#[derive(Debug, Default)]
pub(crate) struct ComparedClients {
    pub(crate) all: Vec<ComparedClient>,
    places: HashMap<Box<str>, u32>,
    /// Number of identities and bytes of their names: unlisted ones, listed ones.
    kept: [(usize, usize); 2],
    /// Requests of clients that are not listed because memory is full.
    pub(crate) left_out: u64,
    pub(crate) longest: [Option<LongestDenialRun>; SIDES],
    name: String,
}

impl ComparedClients {
    /// Returns the index of an identity, which is added if it is new; `None` if there is no room.
    pub(crate) fn index(&mut self, kind: &str, value: &str, is_listed: bool) -> Option<u32> {
        self.name.clear();
        self.name.extend([kind, ":", value]);
        if let Some(place) = self.places.get(&*self.name) {
            return Some(*place);
        }
        // Identities outside the sample do not use the room of the sample.
        let (count, bytes) = &mut self.kept[usize::from(is_listed)];
        if *count >= CLIENTS_KEPT_MAX || *bytes + self.name.len() > CLIENT_BYTES_MAX {
            self.left_out += u64::from(is_listed);
            return None;
        }
        let (place, name) = (self.all.len() as u32, Box::<str>::from(&*self.name));
        *count += 1;
        *bytes += name.len();
        self.places.insert(name.clone(), place);
        self.all.push(ComparedClient {
            name,
            is_listed,
            requests: 0,
            denied: [0; SIDES],
            first_denied: [None; SIDES],
            newly_denied: 0,
            first_newly_denied: None,
            newly_allowed: 0,
            runs: Default::default(),
            series: CountSeries::default(),
        });
        Some(place)
    }

    /// Returns the index of `KIND:VALUE`, if the traffic has it.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.places.get(name).map(|place| *place as usize)
    }

    pub(crate) fn count(&mut self, index: u32, now: Nanos, is_denied: [bool; SIDES]) {
        let Some(client) = self.all.get_mut(index as usize) else { return };
        client.requests += 1;
        for (side, is_denied) in is_denied.into_iter().enumerate() {
            let run = &mut client.runs[side];
            if !is_denied {
                *run = DenialRun::default();
                continue;
            }
            client.denied[side] += 1;
            client.first_denied[side].get_or_insert(now);
            if run.denials == 0 {
                run.from = now;
            }
            run.denials += 1;
            let (ns, denials) = (now.saturating_sub(run.from), run.denials);
            if self.longest[side].is_none_or(|longest| (longest.ns, longest.denials) < (ns, denials)) {
                self.longest[side] = Some(LongestDenialRun { client: index, from: run.from, ns, denials });
            }
        }
        match is_denied {
            [false, true] => {
                client.newly_denied += 1;
                client.first_newly_denied.get_or_insert(now);
            }
            [true, false] => client.newly_allowed += 1,
            _ => {}
        }
    }

    /// Returns the listed clients that have requests, with their indices.
    pub(crate) fn listed(&self) -> impl Iterator<Item = (usize, &ComparedClient)> {
        self.all.iter().enumerate().filter(|(_, client)| client.is_listed && client.requests > 0)
    }

    /// Counts the listed clients for which a condition holds.
    pub(crate) fn count_listed(&self, is_counted: impl Fn(&ComparedClient) -> bool) -> u64 {
        self.listed().filter(|(_, client)| is_counted(client)).count() as u64
    }
}
