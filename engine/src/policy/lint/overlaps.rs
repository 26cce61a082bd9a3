//! Overlaps of patterns: finds the patterns that match every path of another one, without comparing each pair.

use std::collections::BTreeMap;

use crate::policy::pattern::{Pattern, Segment};

/// A tree of patterns by their segments, which holds their indices in a list.
#[derive(Default)]
struct OverlapTree<'p> {
    literals: BTreeMap<&'p str, OverlapTree<'p>>,
    parameter: Option<Box<OverlapTree<'p>>>,
    /// The patterns that end in `*` here.
    rest: Vec<usize>,
    /// The patterns that end here.
    here: Vec<usize>,
}

impl<'p> OverlapTree<'p> {
    fn insert(&mut self, parts: &'p [Segment], place: usize) {
        match parts {
            [] => self.here.push(place),
            [Segment::Rest, ..] => self.rest.push(place),
            [Segment::Parameter, below @ ..] => self.parameter.get_or_insert_default().insert(below, place),
            [Segment::Literal(literal), below @ ..] => self.literals.entry(literal).or_default().insert(below, place),
        }
    }

    /// Calls `see` with the patterns that match every path of the one with these segments. `left` bounds the calls and the visited
    /// trees.
    fn covering(&self, parts: &[Segment], left: &mut usize, see: &mut impl FnMut(usize)) {
        let Some(less) = left.checked_sub(1) else { return };
        *left = less;
        let mut show = |places: &[usize]| {
            let fit = places.len().min(*left);
            *left -= fit;
            places[..fit].iter().for_each(|place| see(*place));
        };
        let Some((part, below)) = parts.split_first() else { return show(&self.here) };
        show(&self.rest);
        let (by_literal, can_be_parameter) = match part {
            Segment::Rest => (None, false),
            Segment::Parameter => (None, true),
            // A parameter matches no empty segment.
            Segment::Literal(literal) => (self.literals.get(&**literal), !literal.is_empty()),
        };
        let by_parameter = self.parameter.as_deref().filter(|_| can_be_parameter);
        for tree in by_literal.into_iter().chain(by_parameter) {
            tree.covering(below, left, see);
        }
    }
}

/// Returns for each pattern the indices of the patterns of which it matches every path, itself among them, in ascending order.
/// There are at most `left` in all, which is reduced by each.
pub(super) fn overlaps<'p>(patterns: impl Iterator<Item = &'p Pattern> + Clone, left: &mut usize) -> Vec<Vec<usize>> {
    let (mut tree, mut any) = (OverlapTree::default(), Vec::new());
    for (place, pattern) in patterns.clone().enumerate() {
        match pattern {
            Pattern::Any => any.push(place),
            Pattern::Path(parts) => tree.insert(parts, place),
        }
    }
    let mut covered = vec![Vec::new(); patterns.clone().count()];
    for (place, pattern) in patterns.enumerate() {
        let mut see = |wide: usize| covered[wide].push(place);
        if let Pattern::Path(parts) = pattern {
            tree.covering(parts, left, &mut see);
        }
        let fit = any.len().min(*left);
        *left -= fit;
        any[..fit].iter().for_each(|wide| see(*wide));
    }
    covered
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns whether every path of `narrow` matches `wide`, segment by segment.
    fn covers(wide: &Pattern, narrow: &Pattern) -> bool {
        let (wide, narrow) = match (wide, narrow) {
            (Pattern::Any, _) => return true,
            (_, Pattern::Any) => return false,
            (Pattern::Path(wide), Pattern::Path(narrow)) => (wide, narrow),
        };
        let mut narrow = narrow.iter();
        for part in wide {
            match (part, narrow.next()) {
                (Segment::Rest, Some(_)) => return true,
                (Segment::Parameter, Some(Segment::Literal(literal))) if !literal.is_empty() => {}
                (part, Some(other)) if part == other && *part != Segment::Rest => {}
                _ => return false,
            }
        }
        narrow.next().is_none()
    }

    proptest! {
        #[test]
        fn overlaps_equal_a_comparison_of_all_pairs(texts in prop::collection::vec(r"\*|(/(a|b|\{x\}|)){1,4}(/\*)?", 0..30)) {
            let patterns: Vec<Pattern> = texts.iter().filter_map(|text| Pattern::parse(text).ok()).collect();
            let found = overlaps(patterns.iter(), &mut usize::MAX.clone());
            for (wide, found) in patterns.iter().zip(found) {
                let places = patterns.iter().enumerate().filter(|(_, narrow)| covers(wide, narrow));
                prop_assert_eq!(found, places.map(|(place, _)| place).collect::<Vec<_>>(), "{:?}", wide);
                // The closest is the least, so no pattern is closer than one that it covers.
                prop_assert!(patterns.iter().all(|narrow| !covers(wide, narrow) || narrow <= wide));
            }
        }
    }

    #[test]
    fn the_number_of_overlaps_is_bounded() {
        let patterns: Vec<Pattern> =
            ["*", "/*", "/a", "/a", "/{x}"].into_iter().map(|text| Pattern::parse(text).expect("a pattern")).collect();
        for most in 0..30 {
            let mut left = most;
            let found: usize = overlaps(patterns.iter(), &mut left).iter().map(Vec::len).sum();
            assert!(found <= most, "{found} of {most}");
        }
    }
}
