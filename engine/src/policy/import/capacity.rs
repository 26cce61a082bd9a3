//! The capacity of a domain: how many kinds of identity its rules can name, and how many limits one request can meet.

use std::collections::BTreeSet;

use crate::policy::compiled::{KINDS_MAX, PLAN_MAX};

/// What is taken of it. Rules that count other kinds hold beside each other, and a request meets so many limits at most.
#[derive(Debug, Default)]
pub(super) struct Room {
    kinds: BTreeSet<String>,
    sets: BTreeSet<BTreeSet<String>>,
    limits: usize,
}

impl Room {
    /// Takes room for a limit of a rule that names these kinds and counts some of them; the error says of what there are
    /// too many. A set of kinds that was counted before has its room already.
    pub(super) fn take<'k>(
        &mut self,
        kinds: impl IntoIterator<Item = &'k String>,
        counted: &BTreeSet<&str>,
    ) -> Result<(), String> {
        let new: Vec<&String> = kinds.into_iter().filter(|kind| !self.kinds.contains(*kind)).collect();
        if self.kinds.len() + new.len() > KINDS_MAX {
            return Err(format!("more than {KINDS_MAX} keys in one domain"));
        }
        let set: BTreeSet<String> = counted.iter().map(|kind| (*kind).to_owned()).collect();
        if !self.sets.contains(&set) {
            if self.limits == PLAN_MAX {
                return Err(format!("more than {PLAN_MAX} limits that one request could meet"));
            }
            self.limits += 1;
            self.sets.insert(set);
        }
        self.kinds.extend(new.into_iter().cloned());
        Ok(())
    }

    /// More room for the set that was taken last, up to so many limits; how many it has.
    pub(super) fn widen(&mut self, limits: usize) -> usize {
        let more = limits.saturating_sub(1).min(PLAN_MAX - self.limits);
        self.limits += more;
        more + 1
    }
}
