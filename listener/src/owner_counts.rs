//! Counts by owner: the share of each owner in a bounded pool.

use std::{borrow::Borrow, collections::HashMap, hash::Hash};

/// A count for each owner. An owner whose count is 0 takes no memory, so the memory is bounded by the sum of the counts, regardless
/// of earlier owners.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnerCounts<K: Eq + Hash> {
    by_owner: HashMap<K, usize>,
    sum: usize,
}

impl<K: Eq + Hash> OwnerCounts<K> {
    /// Returns the count of this owner.
    pub fn of<Q: Eq + Hash + ?Sized>(&self, owner: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.by_owner.get(owner).copied().unwrap_or_default()
    }

    /// Adds to the count of this owner.
    pub fn add(&mut self, owner: K, count: usize) {
        if count > 0 {
            *self.by_owner.entry(owner).or_default() += count;
            self.sum += count;
        }
    }

    /// Subtracts from the count of this owner an amount that was added before.
    pub fn subtract<Q: Eq + Hash + ?Sized>(&mut self, owner: &Q, count: usize)
    where
        K: Borrow<Q>,
    {
        debug_assert!(self.of(owner) >= count, "more is subtracted than was added");
        let Some(of_owner) = self.by_owner.get_mut(owner) else { return };
        let count = count.min(*of_owner);
        *of_owner -= count;
        self.sum -= count;
        if *of_owner == 0 {
            self.by_owner.remove(owner);
        }
    }

    /// Returns the sum of all counts.
    #[must_use]
    pub fn sum(&self) -> usize {
        self.sum
    }

    /// Returns the number of owners that have a count.
    #[must_use]
    pub fn owners(&self) -> usize {
        self.by_owner.len()
    }

    /// Returns the owners that have a count, in no order, each with its count.
    pub fn iter(&self) -> impl Iterator<Item = (&K, usize)> {
        self.by_owner.iter().map(|(owner, count)| (owner, *count))
    }
}

impl<K: Eq + Hash> Default for OwnerCounts<K> {
    fn default() -> Self {
        Self { by_owner: HashMap::new(), sum: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_without_a_count_takes_no_memory() {
        let mut counts = OwnerCounts::<String>::default();
        counts.add("ana".to_owned(), 0);
        assert_eq!((counts.of("ana"), counts.owners(), counts.iter().next()), (0, 0, None));
        counts.add("ana".to_owned(), 2);
        counts.add("ben".to_owned(), 3);
        counts.add("ana".to_owned(), 5);
        assert_eq!((counts.of("ana"), counts.of("ben"), counts.sum(), counts.owners()), (7, 3, 10, 2));
        let mut owners: Vec<(&str, usize)> = counts.iter().map(|(owner, count)| (owner.as_str(), count)).collect();
        owners.sort_unstable();
        assert_eq!(owners, [("ana", 7), ("ben", 3)]);
        counts.subtract("ana", 6);
        counts.subtract("eva", 0);
        assert_eq!((counts.of("ana"), counts.owners()), (1, 2));
        counts.subtract("ana", 1);
        counts.subtract("ben", 3);
        assert_eq!(counts, OwnerCounts::default());
    }
}
