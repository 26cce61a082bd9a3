//! Two-choice hashing: a key's hash chooses two lines of the table, and the key may be in either.

/// Returns the number of lines of a table that needs `lines`: at least 2.
pub(crate) fn count_for(lines: usize) -> usize {
    lines.max(2)
}

/// Returns the two lines of a key with this hash, by their index. They always differ. `lines` must be a number that
/// [`count_for`] returned; both indices are below it.
#[inline(always)]
pub(crate) fn places(hash: u64, lines: usize) -> [usize; 2] {
    let (first, rest) = scaled(hash, lines);
    // The rest is spread as evenly as the hash, also over the keys of each line. It chooses the second line among the others.
    let step = 1 + scaled(rest, lines - 1).0;
    [first, if first + step < lines { first + step } else { first + step - lines }]
}

/// Reads a hash as a fraction of 2^64 and multiplies it by `bound`. Returns the whole part, which is below `bound`, and
/// the fraction that is left.
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
        /// The unchecked reads of `alloc.rs` are sound because of this.
        #[test]
        fn a_key_has_two_lines_of_the_table(lines in prop_oneof![0..200_usize, 0..=usize::MAX >> 8], hash: u64, is_high: bool) {
            let (count, hash) = (count_for(lines), if is_high { u64::MAX - hash % 1_000 } else { hash });
            let [first, second] = places(hash, count);
            prop_assert!(first < count && second < count && first != second);
        }
    }
}
