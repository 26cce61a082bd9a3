//! What was counted in a stretch of time: a second, a minute, an hour. Spans are added up exactly, and packed into a few
//! bytes for the store.

use std::{cmp::Reverse, collections::BTreeMap};

use super::latency::Latency;

/// Limits whose parts a span keeps; those with the most requests stay.
pub(crate) const PARTS_MAX: usize = 1_000;

/// The way in which [`Span::pack`] writes.
const FORMAT: u8 = 1;

/// What a limit's part was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Part {
    /// Requests that were allowed and charged to it.
    pub(crate) allowed: u64,
    /// Requests that it was the first to refuse.
    pub(crate) denied: u64,
    /// Requests that it would have refused, were it no shadow.
    pub(crate) shadow_denied: u64,
}

/// All decisions together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Whole {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// Of those allowed, the ones that met no limit.
    pub(crate) no_limit: u64,
    /// Of those, the ones that named a domain which the policy does not have.
    pub(crate) unknown_domain: u64,
    /// Decided without the store that the limit is shared over: estimated from the sample.
    pub(crate) degraded: u64,
    /// How long decisions of the sample took.
    pub(crate) latency: Latency,
}

/// A stretch of time; limits are told apart by `K`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Span<K> {
    pub(crate) whole: Whole,
    /// Limits that had a part.
    pub(crate) parts: BTreeMap<K, Part>,
    /// Parts that did not fit: limits that are in the whole alone.
    pub(crate) left_out: u64,
}

impl<K> Default for Span<K> {
    fn default() -> Self {
        Self { whole: Whole::default(), parts: BTreeMap::new(), left_out: 0 }
    }
}

impl Part {
    pub(crate) fn add(&mut self, other: Self) {
        add(&mut self.allowed, other.allowed);
        add(&mut self.denied, other.denied);
        add(&mut self.shadow_denied, other.shadow_denied);
    }

    pub(crate) fn is_nothing(self) -> bool {
        self == Self::default()
    }

    /// Requests that it saw.
    pub(crate) fn requests(self) -> u64 {
        self.allowed.saturating_add(self.denied).saturating_add(self.shadow_denied)
    }
}

impl Whole {
    pub(crate) fn add(&mut self, other: &Self) {
        add(&mut self.allowed, other.allowed);
        add(&mut self.denied, other.denied);
        add(&mut self.no_limit, other.no_limit);
        add(&mut self.unknown_domain, other.unknown_domain);
        add(&mut self.degraded, other.degraded);
        self.latency.add(&other.latency);
    }
}

impl<K: Ord> Span<K> {
    pub(crate) fn add(&mut self, other: Self) {
        self.whole.add(&other.whole);
        self.left_out = self.left_out.max(other.left_out);
        for (limit, part) in other.parts {
            self.parts.entry(limit).or_default().add(part);
        }
        self.cut();
    }

    /// Lets the parts go that do not fit, those with the fewest requests.
    pub(crate) fn cut(&mut self) {
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

    /// The same, with limits told apart in another way.
    pub(crate) fn by<L: Ord>(self, mut name: impl FnMut(K) -> Option<L>) -> Span<L> {
        let parts = self.parts.into_iter().filter_map(|(limit, part)| Some((name(limit)?, part)));
        Span { whole: self.whole, parts: parts.collect(), left_out: self.left_out }
    }
}

impl Span<u64> {
    /// Numbers of seven bits a byte: the whole, the latencies that occurred, then each limit by its distance from the one
    /// before.
    pub(crate) fn pack(&self) -> Vec<u8> {
        let Whole { allowed, denied, no_limit, unknown_domain, degraded, latency } = &self.whole;
        let mut packed = vec![FORMAT];
        for number in [*allowed, *denied, *no_limit, *unknown_domain, *degraded, self.left_out] {
            push(&mut packed, number);
        }
        let buckets: Vec<_> = latency.buckets().collect();
        push(&mut packed, buckets.len() as u64);
        for (bucket, count) in buckets {
            push(&mut packed, bucket as u64);
            push(&mut packed, count);
        }
        let mut before = 0;
        for (&limit, part) in &self.parts {
            for number in [limit - before, part.allowed, part.denied, part.shadow_denied] {
                push(&mut packed, number);
            }
            before = limit;
        }
        packed
    }

    /// `None`: no build of Tidegate that this one knows wrote this.
    pub(crate) fn unpack(packed: &[u8]) -> Option<Self> {
        let rest = &mut packed.strip_prefix(&[FORMAT])?;
        let mut span = Self::default();
        let Whole { allowed, denied, no_limit, unknown_domain, degraded, latency } = &mut span.whole;
        for number in [allowed, denied, no_limit, unknown_domain, degraded, &mut span.left_out] {
            *number = pull(rest)?;
        }
        for _ in 0..pull(rest)? {
            latency.put(usize::try_from(pull(rest)?).ok()?, pull(rest)?)?;
        }
        let mut limit = 0u64;
        while !rest.is_empty() {
            limit = limit.checked_add(pull(rest)?)?;
            let part = Part { allowed: pull(rest)?, denied: pull(rest)?, shadow_denied: pull(rest)? };
            span.parts.insert(limit, part);
        }
        Some(span)
    }
}

/// What comes from the store may be any number.
fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
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
        let part = |(limit, allowed, denied, shadow_denied)| (limit, Part { allowed, denied, shadow_denied });
        let mut span = Span { parts: parts.into_iter().map(part).collect(), ..Span::default() };
        span.whole.allowed = span.parts.values().fold(0, |sum, part| sum.saturating_add(part.allowed));
        span
    }

    #[test]
    fn what_was_packed_is_read_again() {
        let mut spans = vec![Span::default(), span([(1, 5, 0, 0)]), span([(3, 127, 128, 0), (1_000_000, 1, 2, 3)])];
        spans.push(span([(0, u64::MAX, u64::MAX / 2, 1), (u64::MAX, 1, 0, 0)]));
        spans[2].whole = Whole { denied: 7, no_limit: 300, unknown_domain: 2, degraded: 16, ..spans[2].whole.clone() };
        spans[2].left_out = 4;
        for ns in [1, 90, 130, 5_000, u64::MAX] {
            spans[2].whole.latency.count(ns);
        }
        for span in spans {
            let packed = span.pack();
            assert_eq!(Span::unpack(&packed), Some(span), "{packed:?}");
            // No part of it is taken for a whole, but where a limit ends.
            assert!(packed.len() < 10 || Span::unpack(&packed[..packed.len() - 1]).is_none());
        }
        for wrong in [
            &[][..],
            &[2],
            &[1, 0x80],
            &[1, 0, 0, 0, 0, 0, 0, 1, 200, 1],
            &[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
        ] {
            assert_eq!(Span::unpack(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_busiest_limits_stay() {
        let many = PARTS_MAX as u64 + 3;
        let mut sum = span((0..many).map(|limit| (limit, limit / 2 + 1, 0, 0)));
        sum.cut();
        assert_eq!((sum.parts.len(), sum.left_out), (PARTS_MAX, 3));
        // 0 and 1 have the fewest, of 2 and 3 the first came first.
        assert_eq!(sum.parts.keys().take(2).collect::<Vec<_>>(), [&2, &4]);
        assert_eq!(sum.whole.allowed, (0..many).map(|limit| limit / 2 + 1).sum::<u64>(), "all are in the whole");
        sum.add(span([(7, 1, 1, 1)]));
        assert_eq!(sum.parts[&7], Part { allowed: 5, denied: 1, shadow_denied: 1 });
    }
}
