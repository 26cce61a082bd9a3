//! What was counted, by limits and by tiers and rules, before it is cut to what is kept.

use std::collections::HashMap;

use tidegate::LimitIndex;
use tidegate_fleet::{DecisionTotals, IntervalCounts, LimitTotals};

/// What was counted in a stretch of time.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) whole: DecisionTotals,
    pub(crate) limits: HashMap<LimitIndex, LimitTotals>,
    /// Tiers and rules, each by the limit that stands for it.
    pub(crate) owners: HashMap<LimitIndex, LimitTotals>,
}

impl Sums {
    /// What was counted since the time before.
    pub(super) fn of(counted: &IntervalCounts) -> Self {
        Self {
            whole: counted.whole.clone(),
            limits: counted.busy_limits().into_iter().collect(),
            owners: counted.busy_owners().into_iter().collect(),
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.whole.add(&other.whole);
        for (sums, parts) in [(&mut self.limits, &other.limits), (&mut self.owners, &other.owners)] {
            for (&limit, &part) in parts {
                sums.entry(limit).or_default().add(part);
            }
        }
    }

    /// Was nothing decided?
    pub(super) fn is_nothing(&self) -> bool {
        self.whole == DecisionTotals::default()
    }
}
