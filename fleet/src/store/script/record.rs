//! The record of one key in the store: a bucket state with the numbers under which it was written, the tokens that are
//! lent in leases, and the newest version of the policy by which it was charged.
//!
//! Its text is `NUMBERS;HEAD|[EPOCH,OUT,BEFORE]|TAIL|TAIL|VERSION`, such as
//! `token_bucket/100/60000000000/20;0||1790000000|5|12`.

use tidegate::{
    algorithm::Meter,
    time::{Nanos, SECOND_NS},
};

#[cfg(test)]
use crate::store::simulation::Mutation;

/// The numbers of a limit under which a bucket state is written, with their version.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct VersionedMeter {
    pub(crate) meter: Meter,
    /// The version of the policy that has these numbers.
    pub(crate) version: u64,
}

/// Tokens of one key that nodes hold, by the epoch of the store's clock in which they were lent. They are not charged
/// to the bucket yet, but taken off its capacity. They are charged when a node reports them as spent, or at the end of
/// the next epoch if no node did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Leases {
    pub(crate) epoch: u64,
    /// The tokens that were lent in this epoch.
    now: u64,
    /// The tokens that were lent in the epoch before.
    before: u64,
}

impl Leases {
    /// Returns whether both have the same text.
    pub(crate) fn lie_as(&self, other: &Self) -> bool {
        self == other || self.out() == 0 && other.out() == 0
    }

    /// Returns all tokens that are lent.
    pub(crate) fn out(&self) -> u64 {
        self.now.saturating_add(self.before)
    }

    /// Returns the leases at this time, and how many tokens expired.
    fn at(self, at: Nanos, lease_ns: Nanos) -> (Self, u64) {
        let epoch = at / lease_ns;
        match epoch.saturating_sub(self.epoch) {
            0 => (self, 0),
            1 => (Self { epoch, now: 0, before: self.now }, self.before),
            _ => (Self { epoch, now: 0, before: 0 }, self.out()),
        }
    }

    /// Takes back tokens that were lent in an epoch. Returns whether they were still counted.
    pub(crate) fn take_back(&mut self, epoch: u64, tokens: u64) -> bool {
        let lent = match self.epoch.checked_sub(epoch) {
            Some(0) => &mut self.now,
            Some(1) => &mut self.before,
            _ => return false,
        };
        let rest = lent.checked_sub(tokens);
        *lent = rest.unwrap_or(*lent);
        rest.is_some()
    }

    /// Returns the leases with more tokens of an epoch and of the one before, as the script computes them. `None`:
    /// these are leases of another epoch, or have fewer tokens than are taken back.
    pub(crate) fn with(self, epoch: u64, more: [i64; 2]) -> Option<Self> {
        let Self { now, before, .. } = match self {
            it if it.out() == 0 => Self::default(),
            it if it.epoch == epoch => it,
            _ => return None,
        };
        Some(Self { epoch, now: now.checked_add_signed(more[0])?, before: before.checked_add_signed(more[1])? })
    }

    /// Lends tokens. The leases must be [up to date](Self::at) at this time.
    pub(crate) fn lend(&mut self, now: Nanos, tokens: u64, lease_ns: Nanos) {
        self.epoch = now / lease_ns;
        self.now = self.now.saturating_add(tokens);
    }

    /// Returns the text of the leases in the store.
    pub(crate) fn write(&self) -> String {
        let Self { epoch, now, before } = self;
        if self.out() == 0 { String::new() } else { format!("{epoch},{now},{before}") }
    }

    fn read(text: &str) -> Option<Self> {
        let mut numbers = text.split(',').map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self { epoch: next()?, now: next()?, before: next()? })
    }

    /// Returns the time until which these counts are right.
    pub(crate) fn until(&self, lease_ns: Nanos) -> Nanos {
        if self.out() == 0 { Nanos::MAX } else { (self.epoch + 1).saturating_mul(lease_ns) }
    }
}

/// The record of one key: the tokens that are used and lent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Record {
    pub(crate) under: VersionedMeter,
    pub(crate) word: u64,
    pub(crate) leases: Leases,
}

impl Record {
    /// Returns the record at this time: leases that expired, and those of a window that is over, count as spent.
    pub(crate) fn at(self, at: Nanos, lease_ns: Nanos) -> Self {
        let Self { under, word, leases } = self;
        let end = under.meter.window_end(word);
        if leases.out() > 0 && end <= at {
            let leases_at = Leases { epoch: at / lease_ns, now: 0, before: 0 };
            return Self { word: under.meter.overcharge(word, end - 1, leases.out()), leases: leases_at, under };
        }
        let (leases, spent) = leases.at(at, lease_ns);
        #[cfg(test)]
        let spent = if Mutation::ExpiredLeasesVanish.is_on() { 0 } else { spent };
        let word = if spent > 0 { under.meter.overcharge(word, at, spent) } else { word };
        Self { under, word, leases }
    }

    /// Returns the bucket state as if all lent tokens had been charged.
    pub(crate) fn full(&self, now: Nanos) -> u64 {
        self.with(self.leases.out(), now)
    }

    /// Returns the bucket state as if this many more tokens had been charged.
    pub(crate) fn with(&self, tokens: u64, now: Nanos) -> u64 {
        if tokens == 0 { self.word } else { self.under.meter.overcharge(self.word, now, tokens) }
    }

    /// Returns the text of the record in the store.
    pub(crate) fn write(&self) -> String {
        let meter = &self.under.meter;
        let tail = meter.tail_of(self.word);
        let (first, second) = parts(is_instant(meter), tail);
        format!("{}|{}|{first}|{second}|{}", head(meter, self.word - tail), self.leases.write(), self.under.version)
    }
}

/// A value in the store, parsed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct StoredRecord {
    /// The text in the store; empty: there is none.
    pub(crate) text: String,
    /// The record; `None`: there is none, or none that this build understands.
    pub(crate) held: Option<Record>,
}

impl StoredRecord {
    /// Parses a text that was written under these numbers, or under those that it states.
    pub(crate) fn read(text: String, own: &Meter) -> Self {
        let held = read(&text, own);
        Self { text, held }
    }
}

fn read(text: &str, own: &Meter) -> Option<Record> {
    let (text, version) = text.rsplit_once('|')?;
    let (text, second) = text.rsplit_once('|')?;
    let (text, first) = text.rsplit_once('|')?;
    let (head, leases) = text.rsplit_once('|')?;
    let (numbers, word_head) = head.split_once(';')?;
    // The text of calendar windows cannot be parsed, only compared.
    let meter = if numbers == own.to_string() { *own } else { numbers.parse().ok()? };
    let (first, second): (u64, u64) = (first.parse().ok()?, second.parse().ok()?);
    let tail = if is_instant(&meter) { first.checked_mul(SECOND_NS)?.checked_add(second)? } else { first };
    let word = u64::from_str_radix(word_head, 16).ok()?.checked_add(tail)?;
    let leases = if leases.is_empty() { Leases::default() } else { Leases::read(leases)? };
    Some(Record { under: VersionedMeter { meter, version: version.parse().ok()? }, word, leases })
}

/// Returns the part of a record's text before the leases.
pub(crate) fn head(meter: &Meter, word_head: u64) -> String {
    format!("{meter};{word_head:x}")
}

/// Returns a tail as two numbers that a double of the script can hold: seconds and nanoseconds of an instant, or a
/// count and 0.
pub(crate) fn parts(is_instant: bool, tail: Nanos) -> (u64, u64) {
    if is_instant { (tail / SECOND_NS, tail % SECOND_NS) } else { (tail, 0) }
}

pub(crate) fn is_instant(meter: &Meter) -> bool {
    matches!(meter, Meter::TokenBucket(_) | Meter::LeakyBucket(_))
}

#[cfg(test)]
mod tests {
    use tidegate::internals::Verdict;

    use super::*;

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let now = 1_790_000_000 * SECOND_NS + 123_456_789;
        for numbers in [
            "token_bucket/7/1000000000/9",
            "leaky_bucket/1/60000000000/5",
            "fixed_window/10/60000000000",
            "sliding_window_counter/100/1000000000",
            "sliding_window_log/5/1000000",
        ] {
            let meter: Meter = numbers.parse().expect("a meter");
            let Verdict::Admit(word) = meter.step(0, now, 2) else { panic!("{numbers}") };
            let under = VersionedMeter { meter, version: 12 };
            let other = "token_bucket/1/1000000000/1".parse().expect("a meter");
            for leases in [Leases::default(), Leases { epoch: 59_600_000, now: 3, before: 4 }] {
                let held = Record { under, word, leases };
                let found = StoredRecord::read(held.write(), &other);
                assert_eq!(found.held, Some(held), "{}", found.text);
            }
        }
    }

    #[test]
    fn a_text_that_is_not_understood_is_no_record() {
        let own = "token_bucket/1/1000000000/1".parse().expect("a meter");
        for text in ["", "1", "1||2|3|4", "cuckoo/1;0||1|0|4", "token_bucket/1/1000000000/1;zz||1|0|4"] {
            assert_eq!(StoredRecord::read(text.to_owned(), &own).held, None, "{text}");
        }
    }
}
