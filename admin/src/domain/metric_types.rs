//! What was counted in a stretch of time: a second, a minute, an hour. Spans are added up exactly, and packed into a few
//! bytes for the store.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

pub(crate) use tidegate_fleet::{DecisionTotals, LimitTotals};

/// Limits whose parts a span keeps, and tiers and rules together; those with the most requests stay.
pub(crate) const PARTS_MAX: usize = 1_000;

/// The way in which [`Span::pack`] writes.
const FORMAT: u8 = 2;

pub(crate) const MINUTE: i64 = 60;
pub(crate) const HOUR: i64 = 3_600;

/// A minute that is over.
#[derive(Clone, Debug)]
pub(crate) struct Minute {
    /// Unix seconds when it began.
    pub(crate) at: i64,
    /// By full names.
    pub(crate) span: Span<String>,
}

/// Numbers under which the store knows limits, and the hour in which it was told last that they are used.
pub(crate) type Numbers = HashMap<String, (u64, i64)>;

/// A stretch of time; limits, tiers and rules are told apart by `K`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Span<K> {
    pub(crate) whole: DecisionTotals,
    pub(crate) limits: Parts<K>,
    /// Tiers and rules.
    pub(crate) owners: Parts<K>,
}

/// Those that had a part in a stretch of time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Parts<K> {
    pub(crate) parts: BTreeMap<K, LimitTotals>,
    /// Those that did not fit: they are in the whole alone.
    pub(crate) left_out: u64,
}

impl<K> Default for Parts<K> {
    fn default() -> Self {
        Self { parts: BTreeMap::new(), left_out: 0 }
    }
}

impl<K> Default for Span<K> {
    fn default() -> Self {
        Self { whole: DecisionTotals::default(), limits: Parts::default(), owners: Parts::default() }
    }
}

impl<K: Ord> Span<K> {
    pub(crate) fn add(&mut self, other: Self) {
        self.whole.add(&other.whole);
        self.limits.add(other.limits);
        self.owners.add(other.owners);
    }

    /// The same, with limits, tiers and rules told apart in another way.
    pub(crate) fn by<L: Ord>(self, mut name: impl FnMut(K) -> Option<L>) -> Span<L> {
        Span { whole: self.whole, limits: self.limits.by(&mut name), owners: self.owners.by(&mut name) }
    }
}

impl<K: Ord> Parts<K> {
    /// Those that fit, of what happened in a stretch of time.
    pub(crate) fn of(parts: impl IntoIterator<Item = (K, LimitTotals)>) -> Self {
        let mut parts = Self { parts: parts.into_iter().collect(), left_out: 0 };
        parts.cut();
        parts
    }

    fn add(&mut self, other: Self) {
        self.left_out = self.left_out.max(other.left_out);
        for (key, part) in other.parts {
            self.parts.entry(key).or_default().add(part);
        }
        self.cut();
    }

    /// Lets the parts go that do not fit, those with the fewest requests.
    fn cut(&mut self) {
        let Some(over) = self.parts.len().checked_sub(PARTS_MAX).filter(|over| *over > 0) else { return };
        let mut requests: Vec<u64> = self.parts.values().map(|part| part.requests()).collect();
        requests.sort_unstable_by_key(|&requests| Reverse(requests));
        let (least, mut ties) = (requests[PARTS_MAX - 1], 0);
        let above = requests.partition_point(|&requests| requests > least);
        self.parts.retain(|_, part| {
            let requests = part.requests();
            ties += usize::from(requests == least);
            requests > least || requests == least && ties <= PARTS_MAX - above
        });
        self.left_out += over as u64;
    }

    fn by<L: Ord>(self, mut name: impl FnMut(K) -> Option<L>) -> Parts<L> {
        let parts = self.parts.into_iter().filter_map(|(key, part)| Some((name(key)?, part)));
        Parts { parts: parts.collect(), left_out: self.left_out }
    }
}

impl Span<u64> {
    /// Numbers of seven bits a byte: the whole, the latencies that occurred, then limits, tiers and rules.
    pub(crate) fn pack(&self) -> Vec<u8> {
        let DecisionTotals { allowed, denied, no_limit, unknown_domain, degraded, latency } = &self.whole;
        let mut packed = vec![FORMAT];
        for number in [*allowed, *denied, *no_limit, *unknown_domain, *degraded] {
            push(&mut packed, number);
        }
        let buckets: Vec<_> = latency.buckets().collect();
        push(&mut packed, buckets.len() as u64);
        for (bucket, count) in buckets {
            push(&mut packed, bucket as u64);
            push(&mut packed, count);
        }
        self.limits.pack(&mut packed);
        self.owners.pack(&mut packed);
        packed
    }

    /// `None`: no build of Tidegate that this one knows wrote this.
    pub(crate) fn unpack(packed: &[u8]) -> Option<Self> {
        let rest = &mut packed.strip_prefix(&[FORMAT])?;
        let mut span = Self::default();
        let DecisionTotals { allowed, denied, no_limit, unknown_domain, degraded, latency } = &mut span.whole;
        for number in [allowed, denied, no_limit, unknown_domain, degraded] {
            *number = pull(rest)?;
        }
        for _ in 0..pull(rest)? {
            latency.put(usize::try_from(pull(rest)?).ok()?, pull(rest)?)?;
        }
        span.limits = Parts::unpack(rest)?;
        span.owners = Parts::unpack(rest)?;
        rest.is_empty().then_some(span)
    }
}

impl Parts<u64> {
    /// How many do not fit, how many there are, then each by the distance of its number from the one before.
    fn pack(&self, packed: &mut Vec<u8>) {
        push(packed, self.left_out);
        push(packed, self.parts.len() as u64);
        let mut before = 0;
        for (&key, part) in &self.parts {
            for number in [key - before, part.allowed, part.denied, part.shadow_denied] {
                push(packed, number);
            }
            before = key;
        }
    }

    fn unpack(rest: &mut &[u8]) -> Option<Self> {
        let mut parts = Self { left_out: pull(rest)?, ..Self::default() };
        let mut key = 0u64;
        for _ in 0..pull(rest)? {
            key = key.checked_add(pull(rest)?)?;
            let part = LimitTotals { allowed: pull(rest)?, denied: pull(rest)?, shadow_denied: pull(rest)? };
            parts.parts.insert(key, part);
        }
        Some(parts)
    }
}

fn push(packed: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        packed.push(number as u8 | 0x80);
        number >>= 7;
    }
    packed.push(number as u8);
}

fn pull(packed: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0u64, 0);
    loop {
        let (&byte, rest) = packed.split_first()?;
        *packed = rest;
        let bits = u64::from(byte & 0x7f);
        number |= bits.checked_shl(shift).filter(|shifted| shifted >> shift == bits)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(parts: impl IntoIterator<Item = (u64, u64, u64, u64)>) -> Span<u64> {
        let part = |(limit, allowed, denied, shadow_denied)| (limit, LimitTotals { allowed, denied, shadow_denied });
        let mut span = Span { limits: Parts::of(parts.into_iter().map(part)), ..Span::default() };
        span.whole.allowed = span.limits.parts.values().fold(0, |sum, part| sum.saturating_add(part.allowed));
        span
    }

    #[test]
    fn what_was_packed_is_read_again() {
        let mut spans = vec![Span::default(), span([(1, 5, 0, 0)]), span([(3, 127, 128, 0), (1_000_000, 1, 2, 3)])];
        spans.push(span([(0, u64::MAX, u64::MAX / 2, 1), (u64::MAX, 1, 0, 0)]));
        spans[2].whole =
            DecisionTotals { denied: 7, no_limit: 300, unknown_domain: 2, degraded: 16, ..spans[2].whole.clone() };
        spans[2].limits.left_out = 4;
        spans[2].owners = span([(2, 128, 128, 3), (9, 1, 0, 0)]).limits;
        for ns in [1, 90, 130, 5_000, u64::MAX] {
            spans[2].whole.latency.count(ns);
        }
        for span in spans {
            let packed = span.pack();
            assert_eq!(Span::unpack(&packed), Some(span), "{packed:?}");
            // No part of it is taken for a whole, nor is more.
            assert_eq!(Span::unpack(&packed[..packed.len() - 1]), None);
            assert_eq!(Span::unpack(&[packed, vec![0]].concat()), None);
        }
        for wrong in [
            &[][..],
            &[1],
            &[2, 0x80],
            &[2, 0, 0, 0, 0, 0, 1, 200, 1],
            &[2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
        ] {
            assert_eq!(Span::unpack(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_busiest_limits_stay() {
        let many = PARTS_MAX as u64 + 3;
        let mut sum = span((0..many).map(|limit| (limit, limit / 2 + 1, 0, 0)));
        assert_eq!((sum.limits.parts.len(), sum.limits.left_out), (PARTS_MAX, 3));
        // 0 and 1 have the fewest, of 2 and 3 the first came first.
        assert_eq!(sum.limits.parts.keys().take(2).collect::<Vec<_>>(), [&2, &4]);
        sum.add(span([(7, 1, 1, 1)]));
        assert_eq!(sum.limits.parts[&7], LimitTotals { allowed: 5, denied: 1, shadow_denied: 1 });
    }
}
