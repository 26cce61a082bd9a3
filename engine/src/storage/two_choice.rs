//! The candidate lines of a key: the two lines of the table in which it may be, chosen by its hash.

/// How many lines a table has that is to have so many: at least 2.
pub(crate) fn count_for(lines: usize) -> usize {
    lines.max(2)
}

/// The two lines of a key with this hash, always different ones, among as many as [`count_for`] answers: both are below that.
#[inline(always)]
pub(crate) fn places(hash: u64, lines: usize) -> [usize; 2] {
    let (first, rest) = scaled(hash, lines);
    // The rest is as evenly spread as the hash, over the keys of each line too. It picks the second among the other lines.
    let step = 1 + scaled(rest, lines - 1).0;
    [first, if first + step < lines { first + step } else { first + step - lines }]
}

/// Takes a hash as a fraction of 2^64. Returns so much of `bound`, as a number below it and the fraction that is left.
#[inline(always)]
fn scaled(hash: u64, bound: usize) -> (usize, u64) {
    let scaled = u128::from(hash) * u128::from(bound as u64);
    ((scaled >> 64) as usize, scaled as u64)
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Unchecked reads rest on it.
        #[test]
        fn a_key_has_two_lines_of_the_table(lines in prop_oneof![0..200_usize, 0..=usize::MAX >> 8], hash: u64, is_high: bool) {
            let (count, hash) = (count_for(lines), if is_high { u64::MAX - hash % 1_000 } else { hash });
            let [first, second] = places(hash, count);
            prop_assert!(first < count && second < count && first != second);
        }
    }
}
