//! Calendar windows, computed from civil dates and cached.

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

/// Fixed windows of a calendar unit, whose lengths differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CalendarWindows {
    /// The length of each window.
    pub unit: CalendarUnit,
    /// The IANA name of the time zone in which windows begin and end.
    pub zone: &'static str,
}

/// A unit of the calendar.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CalendarUnit {
    /// A day, from midnight to midnight.
    Day,
    /// A week, which begins on Monday.
    Week,
    /// A month, which begins on its first day.
    Month,
}

/// End of all calendars, in 2106: the last window never ends.
const LAST: Nanos = u32::MAX as u64 * SECOND_NS;

impl CalendarWindows {
    /// Returns the period as policies write it.
    #[must_use]
    pub fn period(&self) -> &'static str {
        match self.unit {
            CalendarUnit::Day => "day",
            CalendarUnit::Week => "week",
            CalendarUnit::Month => "month",
        }
    }

    /// Returns the approximate length of a window.
    pub(crate) fn period_ns(self) -> u64 {
        let days = match self.unit {
            CalendarUnit::Day => 1,
            CalendarUnit::Week => 7,
            CalendarUnit::Month => 30,
        };
        days * 86_400 * SECOND_NS
    }

    pub(crate) fn window(self, at: Nanos) -> Range<Nanos> {
        thread_local! {
            static KNOWN: RefCell<HashMap<CalendarWindows, BTreeMap<Nanos, Nanos>>> = RefCell::default();
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
            CalendarUnit::Day => date + 1.day(),
            CalendarUnit::Week => date + 7.days(),
            CalendarUnit::Month => date + 1.month(),
        };
        let mut first = match self.unit {
            CalendarUnit::Day => now.date(),
            CalendarUnit::Week => now.date() - i64::from(now.weekday().since(Weekday::Monday)).days(),
            CalendarUnit::Month => now.date().first_of_month(),
        };
        // A day that the zone skips does not count, and a clock that is set back over midnight does not begin the old day again.
        while begin(next(first), &zone) <= now {
            first = next(first);
        }
        let [start, end] = [first, next(first)].map(|date| {
            let since_epoch = begin(date, &zone).timestamp().as_nanosecond();
            // The first window may begin before the Unix epoch.
            u64::try_from(since_epoch.max(0)).expect("in range")
        });
        start..if end > LAST { Nanos::MAX } else { end }
    }
}

fn begin(date: Date, zone: &TimeZone) -> Zoned {
    date.to_zoned(zone.clone()).and_then(|midnight| midnight.start_of_day()).expect("in range")
}
