//! Time zones: finds a zone by its IANA name, and computes the calendars of its days, weeks and months.
//!
//! Zones come from the database that is compiled into jiff, never from the machine: the engine reads no file, and all nodes of
//! one build have the same boundaries.

use std::{collections::BTreeMap, iter::successors, sync::Mutex};

use jiff::{
    Timestamp,
    civil::{Date, Time, Weekday},
    tz::{TimeZone, TimeZoneDatabase},
};

use crate::{algorithm::Calendar, base::lock::lock};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Unit {
    Day,
    /// A week of ISO 8601, which begins on Monday.
    Week,
    Month,
}

impl Unit {
    /// Returns the unit that a `period` of the policy document names.
    pub(crate) fn named(period: &str) -> Option<Self> {
        match period {
            "day" => Some(Self::Day),
            "week" => Some(Self::Week),
            "month" => Some(Self::Month),
            _ => None,
        }
    }

    /// Returns the first day of the next unit.
    fn after(self, day: Date) -> Option<Date> {
        match self {
            Self::Day => day.tomorrow().ok(),
            Self::Week => day.nth_weekday(1, Weekday::Monday).ok(),
            Self::Month => day.last_of_month().tomorrow().ok(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Zone(TimeZone);

impl Zone {
    pub(crate) const UTC: Self = Self(TimeZone::UTC);

    /// Returns the zone of an IANA name. The error says what is wrong and what would be right.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        let zone = TimeZoneDatabase::bundled().get(name).ok().filter(|zone| !zone.is_unknown());
        zone.map(Self).ok_or_else(|| {
            format!("no time zone is called `{name}`; write an IANA name, such as Europe/Berlin, or UTC")
        })
    }

    /// Returns the calendar of the zone's days, weeks or months.
    pub(crate) fn calendar(&self, unit: Unit) -> Calendar {
        /// The calendars that were used. They stay in memory for the life of the process: the database has some three hundred
        /// different zones, of at most 240 kB each.
        static MADE: Mutex<BTreeMap<(Unit, String), Calendar>> = Mutex::new(BTreeMap::new());
        let key = (unit, self.0.iana_name().unwrap_or_default().to_owned());
        let mut made = lock(&MADE);
        if let Some(calendar) = made.get(&key) {
            return *calendar;
        }
        let boundaries = self.boundaries(unit);
        let same = made.values().find(|calendar| *calendar.boundaries() == *boundaries).copied();
        let calendar = same.unwrap_or_else(|| Calendar::new(Box::leak(boundaries)));
        made.insert(key, calendar);
        calendar
    }

    /// Returns the instants at which units begin, in seconds since the Unix epoch, from 1970 to February 2106, where `u32` ends.
    fn boundaries(&self, unit: Unit) -> Box<[u32]> {
        let epoch = self.0.to_datetime(Timestamp::UNIX_EPOCH).date();
        // A midnight that the zone skips is the instant of the skip; of one that occurs twice the first counts.
        let begin = |day: Date| self.0.to_timestamp(day.to_datetime(Time::midnight())).ok();
        let days = successors(Some(epoch), |day| unit.after(*day)).skip(1);
        let mut boundaries: Vec<u32> =
            days.map_while(|day| begin(day).and_then(|begin| begin.as_second().try_into().ok())).collect();
        // A day that the zone skips entirely begins with the day after it.
        boundaries.dedup();
        boundaries.into_boxed_slice()
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    fn zone(name: &str) -> Zone {
        Zone::named(name).expect("a zone")
    }

    /// A limit whose zone is renamed, or moves to one with the same days, keeps its windows.
    #[test]
    fn zones_with_the_same_boundaries_share_a_calendar() {
        assert_eq!(Zone::UTC.calendar(Unit::Day), zone("Etc/UTC").calendar(Unit::Day));
        assert_eq!(zone("Europe/Berlin").calendar(Unit::Week), zone("europe/berlin").calendar(Unit::Week));
        assert_eq!(zone("Asia/Kolkata").calendar(Unit::Month), zone("Asia/Calcutta").calendar(Unit::Month));
        assert_ne!(zone("Europe/Berlin").calendar(Unit::Day), zone("Europe/London").calendar(Unit::Day));
        assert_ne!(Zone::UTC.calendar(Unit::Day), Zone::UTC.calendar(Unit::Week));
    }

    #[test]
    fn an_unknown_name_is_refused() {
        for name in ["", "Europe/Berlim", "Berlin", "CEST", "+02:00", "Etc/Unknown", "local", "../etc/localtime"] {
            let Err(why) = Zone::named(name) else { panic!("`{name}` is a zone") };
            assert!(why.contains("Europe/Berlin"), "{why}");
        }
    }
}
