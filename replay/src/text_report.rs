//! Text of a report: totals, limits, denied clients, and a timeline.

use std::fmt::Write;

use crate::{
    report::{ClientRow, FormatRow, ReplayReport},
    text_table::TextTable,
    timeline_chart,
    timestamp::Utc,
};

/// Share of lines, as 1 in this many, above which unreadable lines give a warning.
const UNREADABLE_SHARE: u64 = 100;

/// Logs of one format that are named.
const LOGS_NAMED: usize = 3;

/// Appearance of the text.
#[derive(Clone, Copy, Debug)]
pub struct TextStyle {
    /// Most characters of a line.
    pub width: usize,
    /// Whether colours are used.
    pub color: bool,
}

/// Role of a text, which gives its colour.
#[derive(Clone, Copy)]
pub(crate) enum TextRole {
    Heading,
    Allowed,
    Denied,
}

impl TextStyle {
    pub(crate) fn paint(&self, paint: TextRole, text: &str) -> String {
        let code = match paint {
            TextRole::Heading => "1",
            TextRole::Allowed => "32",
            TextRole::Denied => "31",
        };
        if self.color && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Formats the report for a terminal or a file.
#[must_use]
pub fn text_report(report: &ReplayReport, look: &TextStyle) -> String {
    let sections = [
        warnings(report, look),
        totals(report, look),
        limits(report, look),
        clients(report, look),
        timeline_chart::lines(report, look),
    ];
    let mut text = String::new();
    for section in sections.iter().filter(|section| !section.is_empty()) {
        if !text.is_empty() {
            text.push('\n');
        }
        for line in section {
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    text
}

/// Returns warnings about what makes the counts wrong or incomplete.
fn warnings(report: &ReplayReport, look: &TextStyle) -> Vec<String> {
    let warning = |error: &String| look.paint(TextRole::Denied, &format!("Warning: {}", shown(error)));
    let mut lines: Vec<String> = report.failed_logs.iter().map(warning).collect();
    if report.late > 0 {
        lines.push(look.paint(
            TextRole::Denied,
            &format!(
                "Warning: lines later than the window: {}. They were decided at the newest time, so denials may be wrong. \
                 A longer --window may hold them.",
                grouped(report.late)
            ),
        ));
    }
    if report.unreadable * UNREADABLE_SHARE > report.lines {
        let share = share(report.unreadable, report.lines);
        let text = format!(
            "Warning: lines that cannot be read: {} ({share}). The figures are of the others.",
            grouped(report.unreadable)
        );
        lines.push(look.paint(TextRole::Denied, &text));
        for kind in &report.unreadable_kinds {
            lines.push(format!("  {} such as {}", grouped(kind.lines), shown(&kind.example)));
        }
    }
    lines
}

/// Returns a line for each format, with the logs that have it.
fn forms(report: &ReplayReport) -> Vec<String> {
    let mut by_form: Vec<(String, Vec<&str>)> = Vec::new();
    for log in &report.logs {
        let name = |form: &FormatRow| {
            if log.forms.len() == 1 { form.form.clone() } else { format!("{} ({})", form.form, grouped(form.lines)) }
        };
        let forms = log.forms.iter().map(name).collect::<Vec<_>>().join("; ");
        match by_form.iter_mut().find(|(known, _)| *known == forms) {
            _ if forms.is_empty() => {}
            Some((_, logs)) => logs.push(&log.log),
            None => by_form.push((forms, vec![&log.log])),
        }
    }
    let line = |(form, logs): (String, Vec<&str>)| {
        let (named, more) = logs.split_at(logs.len().min(LOGS_NAMED));
        let more = if more.is_empty() { String::new() } else { format!(" and {} more", grouped(more.len() as u64)) };
        format!("read as {form}: {}{more}", shown(&named.join(", ")))
    };
    by_form.into_iter().map(line).collect()
}

fn totals(report: &ReplayReport, look: &TextStyle) -> Vec<String> {
    let mut read = format!("{} lines, {} requests", grouped(report.lines), grouped(report.requests));
    for (count, what) in [
        (report.unreadable, "unreadable"),
        (report.without_client, "without a client"),
        (report.without_path, "without a path"),
        (report.late, "late"),
    ] {
        if count > 0 {
            // Writing to a string does not fail.
            let _ = write!(read, ", {} {what}", grouped(count));
        }
    }
    let mut lines = vec![read];
    lines.extend(forms(report));
    if let (Some(from), Some(to)) = (report.from, report.to) {
        lines.push(format!("{} to {} UTC", moment(from), moment(to)));
    }
    lines.push(String::new());
    let mut table = TextTable::new(["Decisions", "", ""]);
    for (name, count) in [("allowed", report.allowed), ("denied", report.denied)] {
        table.row([name.to_owned(), grouped(count), share(count, report.requests)]);
    }
    lines.extend(with_heading(table.lines(look.width), "Decisions", look));
    lines
}

fn limits(report: &ReplayReport, look: &TextStyle) -> Vec<String> {
    if report.limits.is_empty() {
        return vec!["The policy has no limits.".to_owned()];
    }
    let mut table = TextTable::new(["Limits", "checked", "denied", "of checked"]);
    for limit in &report.limits {
        let share = if limit.checked == 0 { "never met".to_owned() } else { share(limit.denied, limit.checked) };
        table.row([shown(&limit.limit_id), grouped(limit.checked), grouped(limit.denied), share]);
    }
    with_heading(table.lines(look.width), "Limits", look)
}

fn clients(report: &ReplayReport, look: &TextStyle) -> Vec<String> {
    let denied: Vec<&ClientRow> = report.clients.iter().filter(|client| client.denied > 0).collect();
    if denied.is_empty() {
        return vec!["Nobody was denied.".to_owned()];
    }
    let mut table = TextTable::new(["Busiest denied clients", "allowed", "denied", "first denied (UTC)"]);
    for client in denied {
        table.row([
            format!("{:<4}  {}", client.kind, shown(&client.value)),
            grouped(client.allowed),
            grouped(client.denied),
            client.first_denied_at.map(moment).unwrap_or_default(),
        ]);
    }
    with_heading(table.lines(look.width), "Busiest denied clients", look)
}

/// Paints the heading, after the columns were aligned.
fn with_heading(mut lines: Vec<String>, heading: &str, look: &TextStyle) -> Vec<String> {
    lines[0] = lines[0].replacen(heading, &look.paint(TextRole::Heading, heading), 1);
    lines
}

/// Formats an instant: `2015-05-17 10:05:03`.
fn moment(at: Utc) -> String {
    at.timestamp().strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Replaces control characters: names come from untrusted logs and must not move the cursor.
fn shown(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Formats a number with separators: `12,345`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a share in percent with one digit. Only nothing is 0, and only everything is 100.
fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return String::new();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    if part > 0 && percent < 0.1 {
        return "<0.1 %".to_owned();
    }
    if part < whole && percent > 99.9 {
        return ">99.9 %".to_owned();
    }
    format!("{percent:.1} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (u64::MAX, "18,446,744,073,709,551,615")] {
            assert_eq!(grouped(number), text);
        }
        for (part, whole, text) in [
            (0, 0, ""),
            (0, 9, "0.0 %"),
            (1, 3, "33.3 %"),
            (9, 9, "100.0 %"),
            (1, 9_999, "<0.1 %"),
            (9_998, 9_999, ">99.9 %"),
        ] {
            assert_eq!(share(part, whole), text);
        }
    }

    #[test]
    fn names_cannot_steer_the_terminal() {
        assert_eq!(shown("a\x1b[2Jb\r\n\u{9b}"), "a\u{fffd}[2Jb\u{fffd}\u{fffd}\u{fffd}");
    }
}
