//! The capacity of a domain: counts the kinds of identity that its rules name, and the limits that can apply to one request.

use std::collections::BTreeSet;

use crate::policy::compiled::{KINDS_MAX, PLAN_MAX};

/// The used capacity of a domain. Rules that count different kinds apply beside each other, and only so many limits can apply to one
/// request.
#[derive(Debug, Default)]
pub(super) struct Capacity {
    kinds: BTreeSet<String>,
    sets: BTreeSet<BTreeSet<String>>,
    limits: usize,
}

impl Capacity {
    /// Reserves capacity for a limit of a rule that names these kinds and counts some of them. The error says what is exhausted. A
    /// set of kinds that was counted before has its capacity already.
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

    /// Reserves capacity for more limits of the set that was added last, up to `limits`. Returns how many limits it can have.
    pub(super) fn widen(&mut self, limits: usize) -> usize {
        let more = limits.saturating_sub(1).min(PLAN_MAX - self.limits);
        self.limits += more;
        more + 1
    }
}
