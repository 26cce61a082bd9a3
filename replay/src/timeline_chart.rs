//! Bar chart of the timeline for a terminal.

use tidegate::time::SECOND_NS;

use crate::{
    report::{ReplayReport, TimelineRow},
    text_report::{TextRole, TextStyle, grouped},
    text_table::length,
    timestamp::Utc,
};

/// Most bars of a chart.
const BARS_MAX: usize = 30;

/// Usual units of time, in seconds. Beyond the last one, its multiples are used.
const STEPS: [u64; 24] = [
    1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1_200, 1_800, 3_600, 7_200, 10_800, 14_400, 21_600, 28_800,
    43_200, 86_400, 172_800, 604_800,
];

/// Widest chart, on any screen.
const WIDTH_MAX: usize = 120;

const BAR_MIN: usize = 10;

const ALLOWED: &str = "█";
const DENIED: &str = "▒";

/// Returns heading, legend and bars.
pub(crate) fn lines(report: &ReplayReport, look: &TextStyle) -> Vec<String> {
    let step = step(report);
    let bars = merged(&report.timeline, step);
    let (Some(first), Some(last)) = (bars.first(), bars.last()) else { return Vec::new() };
    let form = match (same_day(first.at, last.at), step < 60) {
        (true, true) => "%H:%M:%S",
        (true, false) => "%H:%M",
        (false, _) if step >= 86_400 => "%Y-%m-%d",
        (false, true) => "%Y-%m-%d %H:%M:%S",
        (false, false) => "%Y-%m-%d %H:%M",
    };
    let label = |row: &TimelineRow| row.at.timestamp().strftime(form).to_string();
    let widest = |count: fn(&TimelineRow) -> u64, head: &str| {
        bars.iter().map(|row| length(&grouped(count(row)))).max().unwrap_or(0).max(head.len())
    };
    let (allowed_width, denied_width) = (widest(|row| row.allowed, "allowed"), widest(|row| row.denied, "denied"));
    let label_width = length(&label(first));
    let bar_width =
        look.width.min(WIDTH_MAX).saturating_sub(label_width + allowed_width + denied_width + 6).max(BAR_MIN);
    let most = bars.iter().map(|row| row.allowed + row.denied).max().unwrap_or(0).max(1);

    let title = format!("Timeline, a bar is {}", duration(step));
    let legend =
        format!("{} allowed  {} denied", look.paint(TextRole::Allowed, ALLOWED), look.paint(TextRole::Denied, DENIED));
    let head =
        format!("{:label_width$}  {:bar_width$}  {:>allowed_width$}  {:>denied_width$}", "", "", "allowed", "denied");
    let mut lines = vec![format!("{}   {legend}", look.paint(TextRole::Heading, &title)), head];
    lines.extend(bars.iter().map(|row| {
        let (allowed, denied) = cells(row, most, bar_width);
        format!(
            "{}  {}{}{:blank$}  {:>allowed_width$}  {:>denied_width$}",
            label(row),
            look.paint(TextRole::Allowed, &ALLOWED.repeat(allowed)),
            look.paint(TextRole::Denied, &DENIED.repeat(denied)),
            "",
            grouped(row.allowed),
            grouped(row.denied),
            blank = bar_width - allowed - denied,
        )
    }));
    lines
}

/// Returns the seconds of a bar: the shortest usual unit of whole buckets that gives at most [`BARS_MAX`] bars.
fn step(report: &ReplayReport) -> u64 {
    let second = |row: Option<&TimelineRow>| row.map_or(0, |row| row.at.0 / SECOND_NS);
    let (first, last) = (second(report.timeline.first()), second(report.timeline.last()));
    let is_few = |step: &u64| last / step - first / step < BARS_MAX as u64;
    let longest = STEPS[STEPS.len() - 1];
    let whole = STEPS.into_iter().filter(|step| step.is_multiple_of(report.bucket_seconds));
    // 30 bars of 2,000 weeks cover the whole calendar.
    whole.chain((2..=2_000).map(|weeks| weeks * longest)).find(is_few).unwrap_or(longest)
}

fn merged(rows: &[TimelineRow], step: u64) -> Vec<TimelineRow> {
    let step_ns = step * SECOND_NS;
    let mut bars: Vec<TimelineRow> = Vec::new();
    for row in rows {
        let at = Utc(row.at.0 - row.at.0 % step_ns);
        match bars.last_mut() {
            Some(bar) if bar.at == at => {
                bar.allowed += row.allowed;
                bar.denied += row.denied;
            }
            _ => bars.push(TimelineRow { at, ..row.clone() }),
        }
    }
    bars
}

/// Returns the cells of a bar for allowed and denied requests. A count above zero has at least one cell.
fn cells(row: &TimelineRow, most: u64, width: usize) -> (usize, usize) {
    let cells = |count: u64| {
        let rounded = (u128::from(count) * width as u128 * 2 / u128::from(most)).div_ceil(2) as usize;
        rounded.max(usize::from(count > 0))
    };
    let denied = cells(row.denied);
    let total = cells(row.allowed + row.denied).max(denied + usize::from(row.allowed > 0));
    let total = total.min(width);
    let denied = denied.min(total - usize::from(row.allowed > 0));
    (total - denied, denied)
}

fn same_day(a: Utc, b: Utc) -> bool {
    a.timestamp().strftime("%F").to_string() == b.timestamp().strftime("%F").to_string()
}

/// Formats a duration: `1 second`, `20 minutes`, `2 hours`, `7 days`.
fn duration(seconds: u64) -> String {
    let units = [(86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")];
    let (length, name) = units.into_iter().find(|(length, _)| seconds.is_multiple_of(*length)).unwrap_or((1, "second"));
    let count = seconds / length;
    format!("{} {name}{}", grouped(count), if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(bucket_seconds: u64, counts: &[(u64, u64)]) -> ReplayReport {
        let row = |(place, (allowed, denied)): (usize, &(u64, u64))| TimelineRow {
            at: Utc((16_000 * 86_400 + place as u64 * bucket_seconds) * SECOND_NS),
            allowed: *allowed,
            denied: *denied,
        };
        ReplayReport {
            lines: 0,
            requests: 0,
            unreadable: 0,
            without_client: 0,
            without_path: 0,
            unreadable_kinds: Vec::new(),
            failed_logs: Vec::new(),
            logs: Vec::new(),
            late: 0,
            allowed: 0,
            denied: 0,
            from: None,
            to: None,
            limits: Vec::new(),
            clients: Vec::new(),
            bucket_seconds,
            timeline: counts.iter().enumerate().map(row).collect(),
            overflow_charges: 0,
        }
    }

    #[test]
    fn bars_are_few_and_fit_the_width() {
        for (bucket, rows) in [(1, 1), (1, 30), (1, 31), (10, 1_000), (600, 999), (3_600, 1_000), (86_400, 150_000)] {
            let report = report(bucket, &vec![(1_000, 1); rows]);
            for width in [80, 120, 200] {
                let lines = lines(&report, &TextStyle { width, color: false });
                assert!(lines.len() <= 2 + BARS_MAX, "{rows} rows of {bucket} s");
                assert!(lines.iter().all(|line| length(line) <= width), "{}", lines.join("\n"));
            }
        }
        assert!(lines(&report(1, &[]), &TextStyle { width: 80, color: false }).is_empty());
    }

    #[test]
    fn nothing_that_happened_is_invisible() {
        for (allowed, denied) in [(0, 0), (1, 0), (0, 1), (1, 1), (1, 1_000_000), (1_000_000, 1), (7, 7)] {
            let row = TimelineRow { at: Utc(0), allowed, denied };
            let (a, d) = cells(&row, (allowed + denied).max(1), 10);
            assert!(a + d <= 10 && (a > 0) == (allowed > 0) && (d > 0) == (denied > 0), "{allowed} {denied}: {a} {d}");
        }
        let drawn = lines(&report(1, &[(10, 0), (5, 5), (0, 0), (0, 1)]), &TextStyle { width: 44, color: false });
        assert_eq!(drawn[0], "Timeline, a bar is 1 second   █ allowed  ▒ denied");
        assert_eq!(drawn[2], "00:00:00  █████████████████       10       0");
        assert_eq!(drawn[3], "00:00:01  ████████▒▒▒▒▒▒▒▒▒        5       5");
        assert_eq!(duration(7_200), "2 hours");
    }
}
