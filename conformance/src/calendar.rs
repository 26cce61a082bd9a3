//! Windows of the calendar, worked out from dates each time that one is met for the first time.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use jiff::{
    Timestamp, ToSpan, Zoned,
    civil::{Date, Weekday},
    tz::{TimeZone, TimeZoneDatabase},
};
use tidegate::time::{Nanos, SECOND_NS};

/// Fixed windows that are not all of one length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Calendar {
    /// What each window is.
    pub unit: Unit,
    /// The IANA name of the zone by whose clocks it begins and ends.
    pub zone: &'static str,
}

/// A unit of the calendar.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unit {
    /// From midnight to midnight.
    Day,
    /// From Monday.
    Week,
    /// From the first.
    Month,
}

/// No calendar goes on after this instant, in 2106: its last window stays for ever.
const LAST: Nanos = u32::MAX as u64 * SECOND_NS;

impl Calendar {
    /// As policies write the period.
    #[must_use]
    pub fn period(&self) -> &'static str {
        match self.unit {
            Unit::Day => "day",
            Unit::Week => "week",
            Unit::Month => "month",
        }
    }

    /// Nanoseconds, more or less.
    pub(crate) fn period_ns(self) -> u64 {
        let days = match self.unit {
            Unit::Day => 1,
            Unit::Week => 7,
            Unit::Month => 30,
        };
        days * 86_400 * SECOND_NS
    }

    pub(crate) fn window(self, at: Nanos) -> Range<Nanos> {
        thread_local! {
            static KNOWN: RefCell<HashMap<Calendar, BTreeMap<Nanos, Nanos>>> = RefCell::default();
        }
        let at = at.min(LAST);
        KNOWN.with_borrow_mut(|known| {
            let known = known.entry(self).or_default();
            if let Some((start, end)) = known.range(..=at).next_back().filter(|(_, end)| at < **end) {
                return *start..*end;
            }
            let window = self.reckon(at);
            known.insert(window.start, window.end);
            window
        })
    }

    fn reckon(self, at: Nanos) -> Range<Nanos> {
        let zone = TimeZoneDatabase::bundled().get(self.zone).expect("a zone that exists");
        let now = Timestamp::from_nanosecond(at.into()).expect("in range").to_zoned(zone.clone());
        let next = |date: Date| match self.unit {
            Unit::Day => date + 1.day(),
            Unit::Week => date + 7.days(),
            Unit::Month => date + 1.month(),
        };
        let mut first = match self.unit {
            Unit::Day => now.date(),
            Unit::Week => now.date() - i64::from(now.weekday().since(Weekday::Monday)).days(),
            Unit::Month => now.date().first_of_month(),
        };
        // A day that the zone skips is no day; and a clock that is set back over midnight does not bring the old day back.
        while begin(next(first), &zone) <= now {
            first = next(first);
        }
        let [start, end] = [first, next(first)].map(|date| {
            let since_epoch = begin(date, &zone).timestamp().as_nanosecond();
            // The first window may begin before there is time.
            u64::try_from(since_epoch.max(0)).expect("in range")
        });
        start..if end > LAST { Nanos::MAX } else { end }
    }
}

fn begin(date: Date, zone: &TimeZone) -> Zoned {
    date.to_zoned(zone.clone()).and_then(|midnight| midnight.start_of_day()).expect("in range")
}
