//! Where a key may be in a table: its two lines, which its hash chooses among all.

/// How many lines a table has that is to have so many: at least 2.
pub(crate) fn count_for(lines: usize) -> usize {
    lines.max(2)
}

/// The two lines of a key with this hash, always different ones, among as many as [`count_for`] answers: both are below that.
#[inline(always)]
pub(crate) fn places(hash: u64, lines: usize) -> [usize; 2] {
    let first = below(hash, lines);
    // Another multiple of the hash, by the golden ratio, picks the second among the others.
    let step = 1 + below(hash.wrapping_mul(0x9E37_79B9_7F4A_7C15), lines - 1);
    [first, if first + step < lines { first + step } else { first + step - lines }]
}

/// A number below `bound`, by the high bits of a hash.
#[inline(always)]
fn below(hash: u64, bound: usize) -> usize {
    ((u128::from(hash) * u128::from(bound as u64)) >> 64) as usize
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
