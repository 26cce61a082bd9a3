//! Draws the decisions of each algorithm on the same arrivals, made by the engine, into `docs/images/`.
//!
//! `cargo run -p tidegate --example draw` writes the drawings. The test below fails when they differ from what the engine
//! does now.

use std::{
    error::Error,
    fmt::{self, Write},
    fs,
    path::Path,
    time::Duration,
};

use tidegate::{Decision, Engine, Identity, Request, Snapshot, clock::ManualClock, formats::Format, time::Timestamp};

const LIMIT: u64 = 5;
const PERIOD: f64 = 10.0;
/// The length of a drawing.
const SHOWN_MS: u64 = 46_000;
const SHOWN: f64 = SHOWN_MS as f64 / 1_000.0;
/// The beginning of a window in 2026.
const START: Timestamp = Timestamp::from_nanos(1_790_000_000_000_000_000);

/// An algorithm, and the label of its line.
struct Subject {
    algorithm: &'static str,
    line: [&'static str; 2],
    has_windows: bool,
}

const SUBJECTS: &[Subject] = &[
    Subject { algorithm: "token_bucket", line: ["tokens", "left"], has_windows: false },
    Subject { algorithm: "leaky_bucket", line: ["in the", "queue"], has_windows: false },
    Subject { algorithm: "fixed_window", line: ["left in the", "window"], has_windows: true },
    Subject { algorithm: "sliding_window_counter", line: ["left", "now"], has_windows: true },
    Subject { algorithm: "sliding_window_log", line: ["left", "now"], has_windows: false },
];

/// The arrivals and their decisions; times are in seconds.
#[derive(Default)]
struct Recording {
    arrived: Vec<f64>,
    denied: Vec<f64>,
    /// Pairs of the time of an arrival and the time from which the request may go on.
    admitted: Vec<(f64, f64)>,
    line: Vec<(f64, f64)>,
}

/// Returns a steady stream, a burst across the end of a window, silence and a burst, in milliseconds.
fn arrivals() -> impl Iterator<Item = u64> {
    let steady = (0..4).map(|n| 1_250 + n * 2_500);
    let across = (0..10).map(|n| 17_750 + n * 500);
    let burst = (0..8).map(|n| 34_000 + n * 400);
    steady.chain(across).chain(burst)
}

/// Records the decisions of a real engine, on a clock that is set by hand.
fn record(subject: &Subject) -> Result<Recording, Box<dyn Error>> {
    let Subject { algorithm, .. } = subject;
    let clock = ManualClock::at(START);
    let engine = Engine::for_simulation(10, clock.clone(), 1);
    engine.publish(Snapshot::parse(
        &format!(
            r#"
            [domains.default]
            defaults = {{ user = "drawn" }}
            [[domains.default.tiers]]
            id = "drawn"
            limits = [{{ id = "l", algorithm = "{algorithm}", limit = {LIMIT}, period = "{PERIOD}s" }}]
            "#
        ),
        Format::Toml,
    )?)?;
    let who = [Identity::new("user", "ada")?];
    let request = Request::new(&who)?;
    let mut recording = Recording::default();
    let mut coming = arrivals().peekable();
    for ms in (0..=SHOWN_MS).step_by(50) {
        clock.set(START + Duration::from_millis(ms));
        let now = ms as f64 / 1_000.0;
        recording.level(now, subject, &engine.peek(&request.without_cost()));
        while coming.next_if_eq(&ms).is_some() {
            recording.arrived.push(now);
            let decision = engine.check(&request);
            if decision.is_allowed() {
                recording.admitted.push((now, now + decision.delay().as_secs_f64()));
            } else {
                recording.denied.push(now);
            }
            recording.level(now, subject, &decision);
        }
    }
    Ok(recording)
}

impl Recording {
    fn level(&mut self, now: f64, subject: &Subject, decision: &Decision<'_>) {
        let [reset, period] =
            [decision.reset_after(), decision.period()].map(|time| time.unwrap_or_default().as_secs_f64());
        let level = match subject.algorithm {
            // These levels move continuously, not token by token.
            "token_bucket" => LIMIT as f64 * (1.0 - reset / period),
            "leaky_bucket" => LIMIT as f64 * reset / period,
            _ => {
                let before = self.line.last().map_or(LIMIT as f64, |(_, level)| *level);
                self.line.push((now, before));
                decision.remaining().unwrap_or_default() as f64
            }
        };
        self.line.push((now, level));
    }

    /// Returns the interval of one period in which most requests go on: its beginning, and their number.
    fn busiest(&self) -> (f64, usize) {
        let within = |from: f64| self.admitted.iter().filter(|(_, at)| (from..from + PERIOD).contains(at)).count();
        let each = self.admitted.iter().map(|&(_, at)| (at, within(at)));
        each.fold((0.0, 0), |most, next| if next.1 > most.1 { next } else { most })
    }

    /// Describes the drawing in words, for people who do not see it.
    fn description(&self) -> String {
        let part = |from: f64, to: f64| {
            let came = self.arrived.iter().filter(|at| (from..to).contains(*at)).count();
            let admitted = self.admitted.iter().filter(|(at, _)| (from..to).contains(at)).count();
            format!("{admitted} of {came}")
        };
        format!(
            "Admitted: {} of a steady stream until second 10, {} of a burst around second 20, and after a silence {} of a \
             burst at second 34. At most {} go on within {PERIOD} seconds.",
            part(0.0, 10.0),
            part(10.0, 30.0),
            part(30.0, SHOWN),
            self.busiest().1,
        )
    }

    /// Returns the line without the points that are on a straight line between their neighbours.
    fn corners(&self) -> Vec<(f64, f64)> {
        let mut corners = Vec::new();
        for (place, &(x, y)) in self.line.iter().enumerate() {
            if let (Some(&(x0, y0)), Some(&(x1, y1))) = (corners.last(), self.line.get(place + 1)) {
                let off: f64 = (y - y0) * (x1 - x0) - (y1 - y0) * (x - x0);
                if off.abs() < 1e-6 {
                    continue;
                }
            }
            corners.push((x, y));
        }
        corners
    }
}

/// The style: a background of its own, so that a drawing is readable on any page; colours that colour-blind people can
/// tell apart, and shapes beside them.
const STYLE: &str = "
svg{--paper:#fff;--ink:#1f2328;--soft:#59636e;--rule:#d1d9e0;--band:#f3f5f8;--yes:#0969a8;--no:#b5480d;--wash:#dcebf7}
@media(prefers-color-scheme:dark){svg{--paper:#0d1117;--ink:#e6edf3;--soft:#9198a1;--rule:#3d444d;--band:#161b22;--yes:#6cb6ff;--no:#f0995c;--wash:#16304d}}
text{font:13px system-ui,sans-serif;fill:var(--ink)}
.soft{fill:var(--soft)}.name{font-weight:600;font-size:15px}.end{text-anchor:end}.mid{text-anchor:middle}
.came{stroke:var(--ink);stroke-width:1.5}.no{stroke:var(--no);stroke-width:2;fill:none}.yes{fill:var(--yes)}
.way{stroke:var(--yes);opacity:.55}.rule{stroke:var(--rule)}.edge{stroke:var(--soft);stroke-dasharray:2 4}.band{fill:var(--band)}
.line{stroke:var(--yes);stroke-width:2;fill:none;stroke-linejoin:round}.wash{fill:var(--wash)}
.card{fill:var(--paper);stroke:var(--rule)}
";

/// Returns the place of a time, in pixels from the left. The labels are before it.
fn x(seconds: f64) -> f64 {
    92.0 + seconds * 16.8
}

/// Heights, in pixels from the top.
const ARRIVALS: f64 = 60.0;
const DENIED: f64 = 86.0;
const ADMITTED: f64 = 112.0;

/// Returns the height at which requests go on: that of the admitted ones, unless they wait.
fn goes_on(recording: &Recording) -> f64 {
    if recording.admitted.iter().any(|(at, then)| then > at) { 158.0 } else { ADMITTED }
}

fn draw(subject: &Subject, recording: &Recording) -> Result<String, fmt::Error> {
    let Subject { algorithm, .. } = subject;
    let (top, bottom) = (goes_on(recording) + 30.0, goes_on(recording) + 110.0);
    let height = bottom + 38.0;
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 {height}" role="img" aria-labelledby="title desc">
<title id="title">{algorithm}, {LIMIT} per {PERIOD} s</title>
<desc id="desc">{}</desc>
<style>{STYLE}</style>
<rect x=".5" y=".5" width="879" height="{}" rx="8" class="card"/>
<text x="16" y="27" class="name">{algorithm}</text>
<text x="{:.1}" y="27" class="soft end">{LIMIT} per {PERIOD} s: {} of {} admitted</text>
"#,
        recording.description(),
        height - 1.0,
        x(SHOWN),
        recording.admitted.len(),
        recording.arrived.len(),
    );
    draw_time(&mut svg, subject.has_windows, bottom)?;
    draw_lanes(&mut svg, recording)?;
    draw_line(&mut svg, subject.line, &recording.corners(), [top, bottom])?;
    svg += "</svg>\n";
    Ok(svg)
}

/// Draws the seconds, and the windows.
fn draw_time(svg: &mut String, has_windows: bool, bottom: f64) -> fmt::Result {
    let windows = (0..).map(|period| f64::from(period) * PERIOD).take_while(|from| *from < SHOWN);
    for (period, from) in windows.enumerate() {
        if has_windows && period % 2 == 1 {
            let (left, width, height) = (x(from), x(from + PERIOD) - x(from), bottom - 42.0);
            writeln!(svg, r#"<rect x="{left:.1}" y="42" width="{width:.1}" height="{height:.1}" class="band"/>"#)?;
        }
        if has_windows && period > 0 {
            writeln!(svg, r#"<path d="M{:.1} 42V{bottom:.1}" class="edge"/>"#, x(from))?;
        }
        let unit = if period == 0 { " s" } else { "" };
        writeln!(svg, r#"<text x="{:.1}" y="{:.1}" class="soft mid">{from}{unit}</text>"#, x(from), bottom + 20.0)?;
    }
    Ok(())
}

/// Draws the arrivals and their decisions.
fn draw_lanes(svg: &mut String, recording: &Recording) -> fmt::Result {
    let goes_on = goes_on(recording);
    let mut label = |name, lane: f64| writeln!(svg, r#"<text x="16" y="{:.1}">{name}</text>"#, lane + 4.5);
    label("arrivals", ARRIVALS)?;
    label("denied", DENIED)?;
    label("admitted", ADMITTED)?;
    if goes_on > ADMITTED {
        label("goes on", goes_on)?;
    }
    let (from, most) = recording.busiest();
    let (left, right, width) = (x(from) - 8.0, x(from) - 14.0, x(from + PERIOD) - x(from));
    writeln!(
        svg,
        r#"<rect x="{left:.1}" y="{:.1}" width="{width:.1}" height="20" rx="10" class="wash"/>
<text x="{right:.1}" y="{:.1}" class="soft end">{most} within {PERIOD} s</text>"#,
        goes_on - 10.0,
        goes_on + 4.5
    )?;
    for &at in &recording.arrived {
        writeln!(svg, r#"<path d="M{:.1} {:.1}v14" class="came"/>"#, x(at), ARRIVALS - 7.0)?;
    }
    for &at in &recording.denied {
        writeln!(svg, r#"<path d="M{:.1} {:.1}l6 6m0-6l-6 6" class="no"/>"#, x(at) - 3.0, DENIED - 3.0)?;
    }
    for &(at, then) in &recording.admitted {
        writeln!(svg, r#"<circle cx="{:.1}" cy="{ADMITTED:.1}" r="3.3" class="yes"/>"#, x(at))?;
        if goes_on > ADMITTED {
            let (left, top) = (x(then), goes_on - 5.0);
            writeln!(svg, r#"<path d="M{:.1} {ADMITTED:.1}L{left:.1} {top:.1}" class="way"/>"#, x(at))?;
            writeln!(svg, r#"<path d="M{:.1} {top:.1}v10l8-5z" class="yes"/>"#, left - 3.0)?;
        }
    }
    Ok(())
}

/// Draws the tokens that are left, or the length of the queue.
fn draw_line(svg: &mut String, name: [&str; 2], corners: &[(f64, f64)], [top, bottom]: [f64; 2]) -> fmt::Result {
    let (left, right, middle) = (x(0.0), x(SHOWN), f64::midpoint(top, bottom));
    let y = |level: f64| bottom - level / LIMIT as f64 * (bottom - top);
    for (words, at) in name.iter().zip([middle - 3.0, middle + 13.0]) {
        writeln!(svg, r#"<text x="16" y="{at:.1}">{words}</text>"#)?;
    }
    let mut path = String::from("M");
    for &(at, level) in corners {
        write!(path, "{:.1} {:.1} ", x(at), y(level))?;
    }
    writeln!(svg, r#"<path d="{path}V{bottom:.1}H{left:.1}z" class="wash"/>"#)?;
    for level in [0, LIMIT] {
        let at = y(level as f64);
        writeln!(svg, r#"<path d="M{left:.1} {at:.1}H{right:.1}" class="rule"/>"#)?;
        writeln!(svg, r#"<text x="{:.1}" y="{:.1}" class="soft end">{level}</text>"#, left - 6.0, at + 4.5)?;
    }
    writeln!(svg, r#"<path d="{path}" class="line"/>"#)
}

/// Returns every drawing, and the name of its file.
fn drawings() -> Result<Vec<(String, String)>, Box<dyn Error>> {
    SUBJECTS.iter().map(|it| Ok((format!("{}.svg", it.algorithm), draw(it, &record(it)?)?))).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/images");
    for (name, svg) in drawings()? {
        fs::write(folder.join(name), svg)?;
    }
    Ok(())
}

#[test]
fn the_committed_drawings_show_what_the_engine_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/images");
    for (name, svg) in drawings().expect("drawn") {
        let committed = fs::read_to_string(folder.join(&name)).unwrap_or_default();
        assert!(committed == svg, "{name} is not what the engine does: cargo run -p tidegate --example draw");
    }
}
