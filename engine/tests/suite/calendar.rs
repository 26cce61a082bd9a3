//! Calendar periods: the days, weeks and months of a time zone, through an engine.

use std::time::{Duration, UNIX_EPOCH};

use jiff::{
    Timestamp, ToSpan, Zoned,
    civil::{Date, Weekday},
    tz::{TimeZone, TimeZoneDatabase},
};
use proptest::prelude::*;
use tidegate::{Decision, Engine, Identity, Request, Retry, Snapshot, clock::ManualClock, formats::Format};

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3_600 * SECOND;
const UNITS: [&str; 3] = ["day", "week", "month"];

fn zone(name: &str) -> TimeZone {
    TimeZoneDatabase::bundled().get(name).expect("a zone")
}

/// Nanoseconds of an instant, in RFC 3339.
fn at(instant: &str) -> u64 {
    nanos(instant.parse().expect("an instant"))
}

fn nanos(instant: Timestamp) -> u64 {
    instant.as_nanosecond().try_into().expect("after 1970")
}

fn local(now: u64, zone: &TimeZone) -> Zoned {
    Timestamp::from_nanosecond(now.into()).expect("an instant").to_zoned(zone.clone())
}

/// A limit of each unit, each for a kind of that name.
fn policy(zone: &str, limit: u64) -> String {
    let tiers = UNITS.map(|unit| {
        format!(
            "[[domains.default.tiers]]\nid = \"{unit}\"\n\
             limits = [{{ id = \"l\", algorithm = \"fixed_window\", limit = {limit}, period = \"{unit}\" }}]\n"
        )
    });
    let defaults = UNITS.map(|unit| format!("{unit} = \"{unit}\"")).join(", ");
    format!("[domains.default]\ntimezone = \"{zone}\"\ndefaults = {{ {defaults} }}\n{}", tiers.concat())
}

struct Bench {
    clock: ManualClock,
    engine: Engine<ManualClock>,
}

impl Bench {
    fn new(policy: &str, now: u64) -> Self {
        let clock = ManualClock::at(UNIX_EPOCH + Duration::from_nanos(now));
        let bench = Self { engine: Engine::for_simulation(100, clock.clone(), 7), clock };
        bench.publish(policy);
        bench
    }

    fn publish(&self, policy: &str) {
        self.engine.publish(Snapshot::parse(policy, Format::Toml).expect("a good policy")).expect("few limits");
    }

    fn check(&self, kind: &str, cost: u64) -> Decision<'_> {
        let who = [Identity::new(kind, "ada").expect("valid")];
        self.engine.check(&Request::new(&who).and_then(|request| request.cost(cost)).expect("valid"))
    }
}

/// Returns the wait of a denied request, in nanoseconds.
fn wait_ns(decision: &Decision<'_>) -> Option<u64> {
    match decision.retry() {
        Retry::After(wait) => u64::try_from(wait.as_nanos()).ok(),
        Retry::Now | Retry::Never => None,
    }
}

/// Returns the instants in `from..until` at which windows begin, as a client finds them: it uses the quota up, then waits for
/// as long as the denial says.
fn boundaries(zone: &str, unit: &str, from: &str, until: &str) -> Vec<Timestamp> {
    let (mut now, until) = (at(from), at(until));
    let bench = Bench::new(&policy(zone, 1), now);
    let mut found = Vec::new();
    loop {
        assert!(bench.check(unit, 1).is_allowed(), "waiting exactly as long as told is enough");
        let wait = wait_ns(&bench.check(unit, 1)).expect("one was the limit");
        bench.clock.advance(Duration::from_nanos(wait - 1));
        assert!(!bench.check(unit, 1).is_allowed(), "nothing shorter is");
        bench.clock.advance(Duration::from_nanos(1));
        now += wait;
        if now >= until {
            return found;
        }
        found.push(Timestamp::from_nanosecond(now.into()).expect("an instant"));
    }
}

/// Returns the days that are wholly in `from..until`: the local time at which each begins, and its length.
fn days(name: &str, from: &str, until: &str) -> Vec<String> {
    let (zone, found) = (zone(name), boundaries(name, "day", from, until));
    let day = |pair: &[Timestamp]| {
        let begin = pair[0].to_zoned(zone.clone()).datetime();
        let hours = (pair[1] - pair[0]).total(jiff::Unit::Hour).expect("short");
        format!("{} {hours} h", begin.strftime("%F %R"))
    };
    found.windows(2).map(day).collect()
}

/// The slow model: the first instant of the day, week or month of the calendar's date in the zone.
fn begin(date: Date, zone: &TimeZone) -> Zoned {
    let begin = date.to_zoned(zone.clone()).and_then(|midnight| midnight.start_of_day()).expect("in range");
    let before = &begin - 1.nanosecond();
    assert!(begin.date() >= date && before.date() < date, "{begin} does not begin {date}");
    begin
}

/// The window of the model that `now` lies in.
fn window(now: u64, unit: &str, zone: &TimeZone) -> (u64, u64) {
    let (now, next) = (local(now, zone), |date: Date| match unit {
        "day" => date + 1.day(),
        "week" => date + 7.days(),
        _ => date + 1.month(),
    });
    let mut first = match unit {
        "day" => now.date(),
        "week" => now.date() - i64::from(now.weekday().since(Weekday::Monday)).days(),
        _ => now.date().first_of_month(),
    };
    // A day that the zone skips is not a window; and a clock that is set back over midnight does not return to the day before.
    while begin(next(first), zone) <= now {
        first = next(first);
    }
    let start = begin(first, zone).timestamp().max(Timestamp::UNIX_EPOCH);
    (nanos(start), nanos(begin(next(first), zone).timestamp()))
}

fn any_zone() -> impl Strategy<Value = String> {
    let names: Vec<String> = TimeZoneDatabase::bundled().available().map(|name| name.as_str().to_owned()).collect();
    let all = prop::sample::select(names).prop_filter("no zone at all", |name| name != "Etc/Unknown");
    let strange: &[&str] =
        &["Africa/Cairo", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia", "Pacific/Kwajalein"];
    prop_oneof![3 => all, 1 => prop::sample::select(strange).prop_map(str::to_owned)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A limit of 1 admits the first request in each window of the model and no other, and the denial says how long that window
    /// lasts. Requests come at random instants, and at the edges of their windows.
    #[test]
    fn windows_are_those_of_the_slow_model(
        name in any_zone(),
        instants in prop::collection::vec(0..at("2100-01-01T00:00:00Z"), 1..30),
    ) {
        let zone = zone(&name);
        for unit in UNITS {
            let windows = instants.iter().map(|now| (*now, window(*now, unit, &zone)));
            let mut instants: Vec<u64> = windows
                .flat_map(|(now, (start, end))| [start.saturating_sub(1), start, now, end - 1, end])
                .collect();
            instants.sort_unstable();
            let bench = Bench::new(&policy(&name, 1), 0);
            let mut used = None;
            for now in instants {
                bench.clock.set(UNIX_EPOCH + Duration::from_nanos(now));
                let (start, end) = window(now, unit, &zone);
                let decision = bench.check(unit, 1);
                prop_assert_eq!(decision.is_allowed(), used != Some(start), "{} in {} at {}", unit, name, now);
                prop_assert_eq!(decision.reset_after(), Some(Duration::from_nanos(end - now)));
                let again = bench.check(unit, 1).retry();
                prop_assert_eq!(again, Retry::After(Duration::from_nanos(end - now)), "{} in {} at {}", unit, name, now);
                used = Some(start);
            }
        }
    }
}

#[test]
fn a_day_in_which_clocks_change_has_23_or_25_hours() {
    assert_eq!(
        days("Europe/Berlin", "2026-03-28T12:00:00+01:00", "2026-03-31T12:00:00+02:00"),
        ["2026-03-29 00:00 23 h", "2026-03-30 00:00 24 h"]
    );
    assert_eq!(
        days("Europe/Berlin", "2026-10-24T12:00:00+02:00", "2026-10-27T12:00:00+01:00"),
        ["2026-10-25 00:00 25 h", "2026-10-26 00:00 24 h"]
    );
}

#[test]
fn a_day_without_midnight_begins_when_clocks_show_it_first() {
    assert_eq!(
        days("America/Sao_Paulo", "2018-11-02T12:00:00-03:00", "2018-11-06T12:00:00-02:00"),
        ["2018-11-03 00:00 24 h", "2018-11-04 01:00 23 h", "2018-11-05 00:00 24 h"]
    );
    assert_eq!(
        days("Africa/Cairo", "2023-04-26T12:00:00+02:00", "2023-04-30T12:00:00+03:00"),
        ["2023-04-27 00:00 24 h", "2023-04-28 01:00 23 h", "2023-04-29 00:00 24 h"]
    );
    assert_eq!(
        days("Asia/Beirut", "2025-03-28T12:00:00+02:00", "2025-04-01T12:00:00+03:00"),
        ["2025-03-29 00:00 24 h", "2025-03-30 01:00 23 h", "2025-03-31 00:00 24 h"]
    );
}

/// Havana sets its clocks back from 1:00 to 0:00.
#[test]
fn a_day_with_two_midnights_begins_at_the_first() {
    assert_eq!(
        days("America/Havana", "2025-10-31T12:00:00-04:00", "2025-11-04T12:00:00-05:00"),
        ["2025-11-01 00:00 24 h", "2025-11-02 00:00 25 h", "2025-11-03 00:00 24 h"]
    );
}

/// St John's set its clocks back at one minute past midnight, to 23:01 of the day before.
#[test]
fn a_day_that_has_begun_does_not_end_because_clocks_are_set_back() {
    assert_eq!(
        days("America/St_Johns", "2010-11-05T12:00:00-02:30", "2010-11-09T12:00:00-03:30"),
        ["2010-11-06 00:00 24 h", "2010-11-07 00:00 25 h", "2010-11-08 00:00 24 h"]
    );
}

#[test]
fn a_day_that_a_zone_skipped_is_no_window() {
    assert_eq!(
        days("Pacific/Apia", "2011-12-27T12:00:00-10:00", "2012-01-01T12:00:00+14:00"),
        ["2011-12-28 00:00 24 h", "2011-12-29 00:00 24 h", "2011-12-31 00:00 24 h"]
    );
    // The last day of its year: the month begins where it would have.
    let months = boundaries("Pacific/Kiritimati", "month", "1994-11-15T00:00:00Z", "1995-02-15T00:00:00Z");
    let begins = months.iter().map(|begin| local(nanos(*begin), &zone("Pacific/Kiritimati")).date().to_string());
    assert_eq!(begins.collect::<Vec<_>>(), ["1994-12-01", "1995-01-01", "1995-02-01"]);
}

#[test]
fn zones_of_half_an_hour() {
    assert_eq!(
        days("Asia/Kolkata", "2026-06-01T00:00:00Z", "2026-06-04T00:00:00Z"),
        ["2026-06-02 00:00 24 h", "2026-06-03 00:00 24 h"]
    );
    let day = boundaries("Asia/Kolkata", "day", "2026-06-01T00:00:00Z", "2026-06-02T00:00:00Z");
    assert_eq!(day, ["2026-06-01T18:30:00Z".parse().expect("an instant")]);
    assert_eq!(
        days("Australia/Lord_Howe", "2026-04-03T12:00:00+11:00", "2026-04-07T12:00:00+10:30"),
        ["2026-04-04 00:00 24 h", "2026-04-05 00:00 24.5 h", "2026-04-06 00:00 24 h"]
    );
    assert_eq!(
        days("Australia/Lord_Howe", "2026-10-02T12:00:00+10:30", "2026-10-06T12:00:00+11:00"),
        ["2026-10-03 00:00 24 h", "2026-10-04 00:00 23.5 h", "2026-10-05 00:00 24 h"]
    );
}

#[test]
fn weeks_begin_on_monday_and_months_on_the_first() {
    let begins = |unit, from, until| -> Vec<String> {
        boundaries("UTC", unit, from, until).iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        begins("week", "2026-12-25T12:00:00Z", "2027-01-12T00:00:00Z"),
        ["2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z", "2027-01-11T00:00:00Z"]
    );
    assert_eq!(
        begins("month", "2028-01-31T12:00:00Z", "2028-04-30T00:00:00Z"),
        ["2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z", "2028-04-01T00:00:00Z"]
    );
}

/// 1970 began on a Thursday; the first windows had begun before.
#[test]
fn the_calendar_reaches_from_1970_to_2106_and_its_last_windows_stay() {
    let bench = Bench::new(&policy("America/New_York", 1), 0);
    for (unit, hours) in [("day", 5), ("week", 4 * 24 + 5), ("month", 5)] {
        assert_eq!(bench.check(unit, 1).reset_after(), Some(Duration::from_hours(hours)), "{unit}");
    }
    let days = days("Europe/Berlin", "2105-12-30T12:00:00+01:00", "2106-01-02T12:00:00+01:00");
    assert_eq!(days, ["2105-12-31 00:00 24 h", "2106-01-01 00:00 24 h"]);
    bench.clock.set(UNIX_EPOCH + Duration::from_nanos(at("2106-02-08T00:00:00Z")));
    for unit in UNITS {
        assert!(bench.check(unit, 1).is_allowed());
    }
    for now in [at("2107-01-01T00:00:00Z"), u64::MAX] {
        bench.clock.set(UNIX_EPOCH + Duration::from_nanos(now));
        for unit in UNITS {
            assert!(!bench.check(unit, 1).is_allowed(), "{unit} at {now}");
        }
    }
}

#[test]
fn a_day_admits_its_limit_until_local_midnight() {
    let bench = Bench::new(&policy("America/New_York", 3), at("2026-07-04T18:00:00-04:00"));
    assert_eq!(bench.check("day", 2).reset_after(), Some(Duration::from_hours(6)));
    assert_eq!(bench.check("day", 1).remaining(), Some(0));
    let denied = bench.check("day", 1);
    assert_eq!(denied.limit_id(), Some("default/tier:day/l"));
    assert_eq!(denied.retry(), Retry::After(Duration::from_hours(6)));
    assert_eq!(denied.reset_after(), Some(Duration::from_hours(6)));
    assert_eq!(denied.reset_at(), Some(UNIX_EPOCH + Duration::from_nanos(at("2026-07-05T00:00:00-04:00"))));
    assert_eq!(bench.check("day", 4).retry(), Retry::Never);
    // Midnight of UTC is not a boundary in this zone.
    bench.clock.advance(Duration::from_nanos(6 * HOUR - 1));
    assert_eq!(bench.check("day", 1).retry(), Retry::After(Duration::from_nanos(1)));
    bench.clock.advance(Duration::from_nanos(1));
    let decision = bench.check("day", 1);
    assert_eq!((decision.retry(), decision.remaining()), (Retry::Now, Some(2)));
    assert_eq!(decision.reset_after(), Some(Duration::from_hours(24)));
}

#[test]
fn a_publish_that_changes_the_limit_keeps_what_was_used() {
    let bench = Bench::new(&policy("Europe/Berlin", 100), at("2026-03-29T00:30:00+01:00"));
    assert!(bench.check("day", 100).is_allowed());
    bench.publish(&policy("Europe/Berlin", 1_000));
    bench.clock.advance(Duration::from_nanos(HOUR));
    let decision = bench.check("day", 1);
    assert_eq!((decision.limit(), decision.remaining()), (Some(1_000), Some(899)), "a raise takes effect at once");
    bench.publish(&policy("Europe/Berlin", 50));
    let denied = bench.check("day", 1);
    assert_eq!(denied.remaining(), Some(0));
    assert_eq!(denied.retry(), Retry::After(Duration::from_nanos(43 * HOUR / 2)), "until midnight of this short day");
    bench.clock.advance(Duration::from_nanos(43 * HOUR / 2));
    assert!(bench.check("day", 50).is_allowed());
}

#[test]
fn a_change_of_windows_keeps_what_was_used_in_the_window_of_the_publish() {
    let noon = "2026-07-04T12:00:00Z";
    let bench = Bench::new(&policy("Europe/Berlin", 100), at(noon));
    assert!(bench.check("day", 60).is_allowed());
    bench.publish(&policy("Asia/Tokyo", 100));
    let moved = bench.check("day", 10);
    assert_eq!((moved.remaining(), moved.reset_after()), (Some(30), Some(Duration::from_hours(3))));
    // A period that is not of the calendar begins at the epoch.
    bench.publish(&policy("Asia/Tokyo", 100).replace("\"day\" }]", "\"1d\" }]"));
    let moved = bench.check("day", 10);
    assert_eq!((moved.remaining(), moved.reset_after()), (Some(20), Some(Duration::from_hours(12))));
    bench.publish(&policy("Asia/Tokyo", 100).replace("period = \"day\"", "period = \"month\""));
    let moved = bench.check("day", 20);
    assert_eq!((moved.remaining(), moved.reset_after()), (Some(0), Some(Duration::from_hours(27 * 24 + 3))));
    // Charges that the old window would have forgotten by now no longer count.
    bench.publish(&policy("Europe/Berlin", 100));
    bench.clock.set(UNIX_EPOCH + Duration::from_nanos(at("2026-07-05T00:00:00+02:00")));
    bench.publish(&policy("UTC", 100));
    assert_eq!(bench.check("day", 1).remaining(), Some(99));
}

#[test]
fn each_domain_has_its_own_zone() {
    let text = policy("Asia/Tokyo", 1) + &policy("America/Los_Angeles", 1).replace("domains.default", "domains.west");
    let bench = Bench::new(&text, at("2026-01-15T12:00:00Z"));
    let who = [Identity::new("day", "ada").expect("valid")];
    let request = Request::new(&who).expect("valid");
    assert_eq!(bench.engine.check(&request).reset_after(), Some(Duration::from_hours(3)));
    let west = request.domain("west");
    assert_eq!(bench.engine.check(&west).reset_after(), Some(Duration::from_hours(20)));
}

/// Field and message of the one problem.
fn problem(text: &str) -> (String, String) {
    let problems = Snapshot::parse(text, Format::Toml).expect_err("refused");
    let mut problems = problems.iter().map(|problem| (problem.path.clone(), problem.message.clone()));
    let first = problems.next().expect("at least one");
    assert_eq!(problems.next(), None);
    first
}

#[test]
fn a_zone_that_does_not_exist_is_refused_with_what_to_write() {
    for name in ["Europe/Berlim", "CEST", "+02:00", "", "Local"] {
        let (path, message) = problem(&policy(name, 1));
        assert_eq!(path, "domains.default.timezone");
        assert!(message.contains(name) && message.contains("such as Europe/Berlin"), "{message}");
    }
    // A zone that no limit uses is refused too.
    let unused = "[domains.default]\ntimezone = \"Mars/Olympus\"";
    assert_eq!(problem(unused).0, "domains.default.timezone");
    assert!(Snapshot::parse("[domains.default]\ntimezone = \"Europe/Berlin\"", Format::Toml).is_ok());
}

#[test]
fn a_calendar_period_of_another_algorithm_is_refused_with_what_to_write() {
    for algorithm in ["token_bucket", "leaky_bucket", "sliding_window_counter"] {
        for (place, (unit, instead)) in [("day", "1d"), ("week", "7d"), ("month", "30d")].into_iter().enumerate() {
            let (before, after) = (
                format!("\"fixed_window\", limit = 5, period = \"{unit}\""),
                format!("\"{algorithm}\", limit = 5, period = \"{unit}\""),
            );
            let (path, message) = problem(&policy("UTC", 5).replace(&before, &after));
            assert_eq!(path, format!("domains.default.tiers[{place}].limits[0].period"));
            assert!(message.contains(unit) && message.ends_with(&format!("write {instead}")), "{message}");
        }
    }
    // Units are written as they stand, and alone.
    for period in ["Day", "1day", "2 weeks", "months", "year"] {
        let (path, message) = problem(&policy("UTC", 5).replace("period = \"day\"", &format!("period = \"{period}\"")));
        assert_eq!(path, "domains.default.tiers[0].limits[0].period");
        assert!(message.contains("not a period"), "{message}");
    }
}

#[test]
fn the_other_bounds_of_windows_hold_for_calendars_too() {
    assert_eq!(
        problem(&policy("UTC", 1).replacen("limit = 1,", "limit = 16777217,", 1)).0,
        "domains.default.tiers[0].limits[0].limit"
    );
    assert_eq!(
        problem(&policy("UTC", 1).replacen("limit = 1,", "limit = 1, burst = 2,", 1)).0,
        "domains.default.tiers[0].limits[0].burst"
    );
    let nothing = Bench::new(&policy("UTC", 0), at("2026-01-15T12:00:00Z"));
    assert_eq!(nothing.check("day", 1).retry(), Retry::Never);
}
