//! The results that `benches/figures` records for each processor, and the table of benches/README.md that shows them.

use std::{
    collections::HashSet,
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use crate::{
    comparison::THROUGHPUT_GOAL,
    markdown::{table_row, with_section},
    record::RowRecord,
    rows::row_names,
};

/// The columns of the table: the title, and the file with the figures.
const COLUMNS: [(&str, &str); 2] = [
    ("AMD EPYC (Zen 4)", "amd-epyc-zen-4.json"),
    ("Intel Xeon (Sapphire Rapids), an older version", "intel-xeon-sapphire-rapids.json"),
];

/// The name of the section that has the table.
const SECTION: &str = "figures";

/// The figures of one processor.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// The name of the processor.
    pub title: &'static str,
    /// The figures of the processor.
    pub records: Vec<RowRecord>,
}

/// Updates the table of benches/README.md from the recorded figures.
pub fn write_table() -> io::Result<()> {
    let file = folder().join("README.md");
    fs::write(&file, with_table(&fs::read_to_string(&file)?)?)
}

/// Replaces the rows of a file of figures that were measured again, and keeps the others. Creates the file if it is missing.
pub fn record(file: &Path, measured: &[RowRecord]) -> io::Result<()> {
    let kept = if file.exists() { read(file)? } else { Vec::new() };
    let lines = merged(kept, measured).iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    fs::write(file, format!("[\n{}\n]\n", lines.join(",\n")))
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn with_table(readme: &str) -> io::Result<String> {
    let columns = COLUMNS.iter().map(|&(title, file)| {
        let records = read(&folder().join("figures").join(file))?;
        Ok(Column { title, records })
    });
    let table = table(&columns.collect::<io::Result<Vec<_>>>()?);
    with_section(readme, SECTION, &table)
        .ok_or_else(|| io::Error::new(ErrorKind::NotFound, "README.md has no such table"))
}

fn read(file: &Path) -> io::Result<Vec<RowRecord>> {
    let text = fs::read_to_string(file)?;
    serde_json::from_str(&text).map_err(|error| io::Error::other(format!("{}: {error}", file.display())))
}

/// Returns the kept rows that were not measured again and the measured ones, in the order of [`row_names`].
fn merged(kept: Vec<RowRecord>, measured: &[RowRecord]) -> Vec<RowRecord> {
    let again: HashSet<&str> = measured.iter().map(|record| &*record.work).collect();
    let kept = kept.into_iter().filter(|record| !again.contains(&*record.work));
    let mut all: Vec<RowRecord> = kept.chain(measured.iter().cloned()).collect();
    all.sort_by_key(|record| row_names().position(|work| work == record.work));
    all
}

/// Returns the table as Markdown: one line for each side or goal that ours is compared with, one column for each processor.
#[must_use]
pub fn table(columns: &[Column]) -> String {
    let head = ["row", "beside", "goal"].into_iter().chain(columns.iter().map(|column| column.title));
    let mut rows =
        vec![table_row(head.map(str::to_owned)), table_row((0..3 + columns.len()).map(|_| "---".to_owned()))];
    for work in row_names() {
        for (place, line) in lines(work, columns).iter().enumerate() {
            let find = |column: &Column| column.records.iter().find(|record| line.is_of(work, record)).cloned();
            let records: Vec<Option<RowRecord>> = columns.iter().map(find).collect();
            let Some(first) = records.iter().flatten().next() else { continue };
            let row = match (place, first.threads) {
                (0, 1) => work.to_owned(),
                (0, threads) => format!("{work} ({threads} threads)"),
                _ => String::new(),
            };
            let cells =
                records.iter().map(|record| record.as_ref().map_or_else(String::new, |record| line.cell(record)));
            rows.push(table_row([row, line.beside().to_owned(), line.goal(first)].into_iter().chain(cells)));
        }
    }
    rows.concat()
}

/// Returns the lines of a row: its best peer, and each other side that has a goal or is not a peer.
fn lines<'c>(work: &str, columns: &'c [Column]) -> Vec<Line<'c>> {
    let mut lines = Vec::new();
    for record in columns.iter().flat_map(|column| &column.records).filter(|record| record.work == work) {
        let is_control = record.peer.starts_with("clock only");
        let named = (record.target.is_some() || !record.is_peer && !is_control).then_some(Line::Beside(&record.peer));
        for line in named.into_iter().chain(record.is_best.then_some(Line::BestPeer)) {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines.sort_by_key(|line| *line != Line::BestPeer);
    lines
}

/// A line of the table: a side or a goal that ours is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line<'c> {
    /// The best peer, which may differ between columns.
    BestPeer,
    /// The side with this name, or the bound with this name.
    Beside(&'c str),
}

impl Line<'_> {
    fn is_of(&self, work: &str, record: &RowRecord) -> bool {
        record.work == work
            && match self {
                Self::BestPeer => record.is_best,
                Self::Beside(peer) => record.peer == *peer,
            }
    }

    /// Returns the unit of a bound, which is a goal that is a figure and not another side.
    fn unit(&self) -> Option<&str> {
        match self {
            Self::BestPeer => None,
            Self::Beside(peer) => peer.strip_prefix("goal: "),
        }
    }

    fn beside(&self) -> &str {
        match self {
            Self::BestPeer => "best peer",
            Self::Beside(peer) => self.unit().unwrap_or(peer),
        }
    }

    fn goal(&self, record: &RowRecord) -> String {
        let target = if *self == Line::BestPeer { &record.best_target } else { &record.target };
        match (self, self.unit()) {
            (Self::Beside(THROUGHPUT_GOAL), _) => format!(">= {:.0}", record.threads as f64 * 1e3 / record.peer_ns),
            (_, Some(_)) => format!("<= {}", record.peer_ns),
            (_, None) => target.clone().unwrap_or_default(),
        }
    }

    fn cell(&self, record: &RowRecord) -> String {
        let met = if *self == Line::BestPeer { record.best_met } else { record.met };
        let name = if *self == Line::BestPeer { format!(" ({})", record.peer) } else { String::new() };
        let (ours, peer, ratio) = (figure(record.ours_ns), figure(record.peer_ns), record.ratio);
        let is_ratio = record.target.as_deref().is_none_or(|target| target.starts_with(">="));
        let figures = match (self, self.unit()) {
            (Self::Beside(THROUGHPUT_GOAL), _) => figure(record.ours_m_per_second.unwrap_or(f64::NAN)),
            (_, Some(_)) => ours,
            (_, None) if is_ratio => format!("{ours}, {peer}{name}: {ratio:.2}"),
            (_, None) => format!("{ours}, {peer}{name}"),
        };
        let verdict = met.map_or("", |is_met| if is_met { ", met" } else { ", **missed**" });
        figures + verdict
    }
}

/// Formats a figure: one decimal below 100, commas between thousands above.
fn figure(value: f64) -> String {
    if value < 99.95 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let groups = digits.as_bytes().rchunks(3).rev();
    groups.map(|group| String::from_utf8_lossy(group)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Goal, mark_best};

    #[test]
    fn the_table_of_the_readme_shows_the_recorded_figures() {
        let readme = fs::read_to_string(folder().join("README.md")).expect("the document");
        let renewed = with_table(&readme).expect("the figures");
        assert!(readme == renewed, "run `compare --table`, which writes the table anew");
    }

    #[test]
    fn a_line_shows_both_figures_their_ratio_and_the_verdict() {
        let of = |peer, ns, goal| RowRecord::new(("one hot key, allowed", 2, 1), 16.0, (peer, ns), goal);
        let peer = |name, ns, goal| RowRecord { is_peer: true, ..of(name, ns, goal) };
        let bound = RowRecord { ours_m_per_second: Some(125.0), ..of(THROUGHPUT_GOAL, 200.0, Some(Goal::Above(0.0))) };
        let mut records = vec![
            of("two private keys", 15.0, Some(Goal::Ratio(0.8))),
            peer("governor, u64", 1_600.0, Some(Goal::Ratio(6.0))),
            peer("aerorate, u64", 20.0, None),
            peer("rate-net, u64", 30.0, None),
            of("goal: nanoseconds", 15.5, Some(Goal::Above(0.0))),
            bound,
            of("clock only, publishing", 1.0, None),
        ];
        mark_best(&mut records, Some(1.5));
        let columns = [Column { title: "A", records }, Column { title: "B", records: Vec::new() }];
        let expected = "| row | beside | goal | A | B |\n\
            | --- | --- | --- | --- | --- |\n\
            | one hot key, allowed (2 threads) | best peer | >= 1.5 | 16.0, 20.0 (aerorate, u64): 1.25, **missed** |  |\n\
            |  | two private keys | >= 0.8 | 16.0, 15.0: 0.94, met |  |\n\
            |  | governor, u64 | >= 6 | 16.0, 1,600: 100.00, met |  |\n\
            |  | nanoseconds | <= 15.5 | 16.0, **missed** |  |\n\
            |  | million checks a second | >= 10 | 125, met |  |\n";
        assert_eq!(table(&columns), expected);
    }

    #[test]
    fn a_file_keeps_rows_that_are_not_measured_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("figures.json");
        let of = |work, ours| RowRecord::new((work, 1, 1), ours, ("floor", 10.0), None);
        record(&file, &[of("full check", 1.0), of("one hot key", 2.0)]).expect("written");
        record(&file, &[of("one hot key", 3.0), of("memory, 1 M live keys", 4.0)]).expect("written");
        let read = read(&file).expect("read");
        let figures: Vec<(&str, f64)> = read.iter().map(|record| (&*record.work, record.ours_ns)).collect();
        assert_eq!(figures, [("one hot key", 3.0), ("full check", 1.0), ("memory, 1 M live keys", 4.0)]);
    }

    #[test]
    fn every_recorded_row_is_a_row_of_the_comparison() {
        for (_, file) in COLUMNS {
            for record in read(&folder().join("figures").join(file)).expect("the figures") {
                assert!(row_names().any(|work| work == record.work), "{file}: {}", record.work);
            }
        }
    }
}
