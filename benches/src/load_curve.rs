//! Cost of a fuller table: keys without a slot, memory and time of a check at each load, as the table and the drawing of
//! docs/sizing.md.

use std::{fmt::Write, fs, io, path::PathBuf, time::Duration};

use crate::{
    LIMIT_ID,
    comparison::ComparisonRow,
    contender::{Contender, KeyChoice},
    engine, key_of,
    markdown::with_section,
    memory::resident_bytes,
    peers::HandleChecks,
    random::{Uniform, draw_many},
    spread::Spread,
};

/// The measured loads in per cent of the slots, with their names.
pub const LOADS: [(u32, &str); 11] = [
    (50, "50 %"),
    (55, "55 %"),
    (60, "60 %"),
    (65, "65 %"),
    (70, "70 %"),
    (75, "75 %"),
    (80, "80 %"),
    (85, "85 %"),
    (90, "90 %"),
    (95, "95 %"),
    (100, "100 %"),
];

/// The load in per cent when `max_keys` keys are live.
const MAX_KEYS_LOAD: f64 = 200.0 / 3.0;

/// The first charge of a key. One token a second refills, so the key stays live while it is measured.
const CHARGED: u64 = 100_000;

/// The burst, large enough that known keys are allowed while they are measured.
const BURST: u64 = 1_000_000;

/// The name of the section that has the table.
const SECTION: &str = "load";

/// The figures of one load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LoadPoint {
    /// The keys that were checked, in per cent of the slots.
    pub load: u32,
    /// The number of keys that were checked.
    pub keys: u64,
    /// The keys that found no slot, in per cent: they got an overflow bucket, or were denied.
    pub without_slot: f64,
    /// The growth of the memory of the process, in bytes per key.
    pub bytes_per_key: f64,
    /// The time of a check of a known key, in nanoseconds.
    pub ns: Spread,
}

/// Fills a table for `max_keys` keys to each load, and measures all tables in turns for about `time`.
///
/// # Panics
///
/// If `max_keys` is 0.
pub fn measure(max_keys: usize, time: Duration, rounds: usize, on_round: impl FnMut(usize)) -> Vec<LoadPoint> {
    let tables = LOADS.map(|(load, name)| FilledTable::new(max_keys, load, name));
    let draws = tables.each_ref().map(FilledTable::draws);
    let [first, others @ ..] = &tables;
    let ours = first.contender.side(KeyChoice::Drawn(&draws[0]), None);
    let others =
        others.iter().zip(&draws[1..]).map(|(table, draws)| table.contender.side(KeyChoice::Drawn(draws), None));
    let row = ComparisonRow::new("load", 1, max_keys as u64, ours, others.collect());
    let outcome = row.measure(time, rounds, on_round);
    tables.iter().zip(outcome.sides).map(|(table, side)| LoadPoint { ns: side.ns, ..table.point }).collect()
}

/// A table that is filled to one load.
struct FilledTable {
    contender: Contender<'static>,
    point: LoadPoint,
    /// The keys that were allowed: those in a slot or an overflow bucket.
    known: Vec<u32>,
}

impl FilledTable {
    fn new(max_keys: usize, load: u32, name: &'static str) -> Self {
        let engine = engine(max_keys, 1, BURST);
        let keys = engine.slots() as u64 * u64::from(load) / 100;
        // Touches the memory of the list before the measurement, which would count it otherwise.
        let mut known = vec![u32::MAX; keys as usize];
        known.clear();
        let mut handle = engine.handle(LIMIT_ID, "k").expect("is there");
        let before = resident_bytes();
        known.extend(
            (0..keys as u32)
                .filter(|&number| handle.check_n(key_of(number.into()), CHARGED).expect("valid").is_allowed()),
        );
        let grown = resident_bytes().zip(before).map_or(f64::NAN, |(after, before)| after as f64 - before as f64);
        let without_slot = engine.overflow_charges() as f64 / keys as f64 * 100.0;
        let point =
            LoadPoint { load, keys, without_slot, bytes_per_key: grown / keys as f64, ns: Spread::of([f64::NAN]) };
        drop(handle);
        Self { contender: Contender::new(name, HandleChecks(engine)), point, known }
    }

    /// Draws known keys at random.
    fn draws(&self) -> Vec<u32> {
        let mut even = Uniform::new(7, self.known.len() as u64);
        draw_many(1 << 20, || self.known[even.draw() as usize].into())
    }
}

/// Returns the points as a table of Markdown.
#[must_use]
pub fn table(points: &[LoadPoint]) -> String {
    let head =
        "| load | keys | without a slot | bytes a key | ns a check: median [least, most] |\n|---|---|---|---|---|\n";
    points.iter().fold(head.to_owned(), |mut table, point| {
        let LoadPoint { load, keys, without_slot, bytes_per_key, ns } = point;
        let Spread { least, median, most } = ns;
        let _ = writeln!(
            table,
            "| {load} % | {keys} | {without_slot:.4} % | {bytes_per_key:.1} | {median:.1} [{least:.1}, {most:.1}] |"
        );
        table
    })
}

/// Parses the text that [`table`] returns.
#[must_use]
pub fn parse(table: &str) -> Option<Vec<LoadPoint>> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, load, keys, without_slot, bytes_per_key, ns, _] = cells[..] else { return None };
        let (median, range) = ns.strip_suffix(']')?.split_once(" [")?;
        let (least, most) = range.split_once(", ")?;
        let number = |text: &str| text.trim_end_matches(" %").parse::<f64>().ok();
        Some(LoadPoint {
            load: load.trim_end_matches(" %").parse().ok()?,
            keys: keys.parse().ok()?,
            without_slot: number(without_slot)?,
            bytes_per_key: number(bytes_per_key)?,
            ns: Spread { least: number(least)?, median: number(median)?, most: number(most)? },
        })
    };
    table.lines().skip(2).map(row).collect()
}

/// Updates the table of docs/sizing.md and its drawing.
pub fn write(points: &[LoadPoint]) -> io::Result<()> {
    let (document, picture) = files();
    let table = table(points);
    let text = with_section(&fs::read_to_string(&document)?, SECTION, &table);
    fs::write(document, text.ok_or_else(|| io::Error::other("sizing.md has no table of loads"))?)?;
    // Draws the figures as the document rounds them, so that a test can draw the same from the document.
    let shown = parse(&table).ok_or_else(|| io::Error::other("a figure is missing"))?;
    fs::write(picture, drawing(&shown))
}

fn files() -> (PathBuf, PathBuf) {
    let docs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs");
    (docs.join("sizing.md"), docs.join("images/table_load.svg"))
}

/// The left and right ends of both panels.
const SIDES: (f64, f64) = (70.0, 620.0);

/// A panel of the drawing, with its position and scale.
struct Panel {
    top: f64,
    bottom: f64,
    /// The value at the top; 0 is at the bottom.
    most: f64,
    step: f64,
}

impl Panel {
    fn y(&self, value: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * value / self.most
    }

    /// Returns the panel with its title, its grid and its curve.
    fn draw(&self, title: &str, unit: &str, points: &[(u32, f64)]) -> String {
        let (left, right) = SIDES;
        let mut svg = format!("<text class=\"title\" x=\"{left}\" y=\"{:.1}\">{title}</text>\n", self.top - 14.0);
        let mut value = 0.0;
        while value <= self.most + self.step / 1e3 {
            let y = self.y(value);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{left} {y:.1}H{right}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}{unit}</text>",
                left - 8.0,
                y + 4.0
            );
            value += self.step;
        }
        for (load, name) in LOADS.into_iter().step_by(2) {
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
                x(load.into()),
                self.bottom + 18.0
            );
        }
        let mark = x(MAX_KEYS_LOAD);
        let _ = writeln!(svg, "<path class=\"mark\" d=\"M{mark:.1} {:.1}V{:.1}\"/>", self.top, self.bottom);
        let _ = writeln!(svg, "<path class=\"curve\" d=\"{}\"/>", self.path(points.iter().copied()));
        for &(load, value) in points {
            let _ = writeln!(svg, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>", x(load.into()), self.y(value));
        }
        svg
    }

    fn path(&self, points: impl Iterator<Item = (u32, f64)>) -> String {
        let places = points.map(|(load, value)| format!("{:.1} {:.1}", x(load.into()), self.y(value)));
        format!("M{}", places.collect::<Vec<_>>().join("L"))
    }
}

/// Returns the horizontal position of a load.
fn x(load: f64) -> f64 {
    let ((left, right), (least, most)) = (SIDES, (f64::from(LOADS[0].0), 100.0));
    left + (right - left) * (load - least) / (most - least)
}

/// Returns the step of a scale up to `most`: the least of 1, 2 and 5 times a power of ten that is at least a fifth of `most`.
fn step(most: f64) -> f64 {
    let power = 10_f64.powf((most / 5.0).max(1e-4).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| step * 5.0 >= most).unwrap_or(power)
}

/// Returns the points as a drawing, SVG that is readable on a light and a dark background.
#[must_use]
pub fn drawing(points: &[LoadPoint]) -> String {
    let most = |value: fn(&LoadPoint) -> f64| points.iter().map(value).fold(0.0, f64::max);
    let panel = |top: f64, most: f64| {
        let step = step(most);
        Panel { top, bottom: top + 160.0, most: step * (most / step).ceil().max(1.0), step }
    };
    let (shares, times) = (panel(46.0, most(|point| point.without_slot)), panel(286.0, most(|point| point.ns.most)));
    let mut svg = HEAD.to_owned();
    let mark = x(MAX_KEYS_LOAD);
    let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{:.1}\">max_keys</text>", mark + 6.0, shares.top + 12.0);
    let of = |value: fn(&LoadPoint) -> f64| points.iter().map(|point| (point.load, value(point))).collect::<Vec<_>>();
    svg += &shares.draw("Keys without a slot", " %", &of(|point| point.without_slot));
    let band = of(|point| point.ns.least).into_iter().chain(of(|point| point.ns.most).into_iter().rev());
    let _ = writeln!(svg, "<path class=\"band\" d=\"{}Z\"/>", times.path(band));
    svg += &times.draw("Time of a check of a known key: median, least to most", " ns", &of(|point| point.ns.median));
    svg + "<text x=\"345\" y=\"492\" text-anchor=\"middle\">keys, of the slots of the table</text>\n</svg>\n"
}

const HEAD: &str = r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 660 506" role="img">
<title>Load of the table: keys without a slot, and time of a check</title>
<style>
rect { fill: #ffffff }
text { font: 12px sans-serif; fill: #57606a }
.title { font-size: 14px; font-weight: bold; fill: #1f2328 }
.grid { stroke: #d0d7de; fill: none }
.mark { stroke: #9a6700; stroke-dasharray: 4 4; fill: none }
.curve { stroke: #0969da; stroke-width: 2; fill: none }
.band { fill: #0969da; opacity: 0.18 }
circle { fill: #0969da }
@media (prefers-color-scheme: dark) {
rect { fill: #0d1117 }
text { fill: #9198a1 }
.title { fill: #f0f6fc }
.grid { stroke: #30363d }
.mark { stroke: #d29922 }
.curve { stroke: #4493f8 }
.band, circle { fill: #4493f8 }
}
</style>
<rect width="660" height="506"/>
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::markdown::section;

    #[test]
    fn the_drawing_of_the_document_shows_its_table() {
        let (document, picture) = files();
        let document = fs::read_to_string(document).expect("the document");
        let points = parse(section(&document, SECTION).expect("a table")).expect("figures");
        assert_eq!(points.len(), LOADS.len());
        let picture = fs::read_to_string(picture).expect("the drawing");
        assert!(picture == drawing(&points), "run `memory --curve --write`, which draws it anew");
    }

    #[test]
    fn a_fuller_table_has_more_keys_without_a_slot() {
        let points = measure(3_000, Duration::from_millis(100), 2, |_| ());
        assert!(points.iter().map(|point| point.load).eq(LOADS.map(|(load, _)| load)));
        let [first, .., last] = &points[..] else { panic!("{points:?}") };
        assert!(first.without_slot < 0.1 && last.without_slot > 0.1, "{points:?}");
        assert!(points.iter().all(|point| point.ns.least > 0.0 && point.without_slot < 10.0), "{points:?}");
    }

    #[test]
    fn a_table_is_parsed_as_it_was_written() {
        let ns = Spread { least: 1.5, median: 2.5, most: 30.5 };
        let point = LoadPoint { load: 50, keys: 750_000, without_slot: 0.0125, bytes_per_key: 32.1, ns };
        let points = [point, LoadPoint { load: 55, ..point }];
        assert_eq!(parse(&table(&points)).as_deref(), Some(&points[..]));
        assert_eq!(parse("| load |\n|---|\n| nothing |\n"), None);
    }

    #[test]
    fn a_scale_has_round_steps() {
        let steps = [0.9, 1.0, 1.1, 42.0, 101.0].map(|most| format!("{:.2}", step(most)));
        assert_eq!(steps, ["0.20", "0.20", "0.50", "10.00", "50.00"]);
    }
}
