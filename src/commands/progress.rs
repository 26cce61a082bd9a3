//! The progress of a replay, on standard error and only on a terminal: a bar if the size of the logs is known,
//! otherwise the count of lines and their rate.

use std::{
    io::{IsTerminal, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

pub(crate) struct ReplayProgress {
    bar: ProgressBar,
    lines: Arc<AtomicU64>,
}

impl ReplayProgress {
    /// Shows the progress of logs with this many bytes on the disk; `None` if that is not known.
    pub(crate) fn new(bytes: Option<u64>) -> Self {
        let lines = Arc::new(AtomicU64::new(0));
        if !std::io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden(), lines };
        }
        let template = match bytes {
            Some(_) => "{bar:30} {percent:>3} %  {lines} lines  {rate}/s  {eta} left",
            None => "{spinner} {lines} lines  {rate}/s",
        };
        let (total, counted) = (Arc::clone(&lines), Arc::clone(&lines));
        // No other memory depends on this number, so `Relaxed` is enough.
        let rate = move |state: &ProgressState| {
            counted.load(Ordering::Relaxed) * 1_000 / (state.elapsed().as_millis() as u64).max(1)
        };
        // The default style is used for a template that indicatif refuses; the numbers stay right.
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let style = style
            .progress_chars("█▌░")
            .with_key("lines", move |_: &ProgressState, text: &mut dyn std::fmt::Write| {
                let _ = write!(text, "{}", HumanCount(total.load(Ordering::Relaxed)));
            })
            .with_key("rate", move |state: &ProgressState, text: &mut dyn std::fmt::Write| {
                let _ = write!(text, "{}", HumanCount(rate(state)));
            });
        let bar = bytes.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        bar.set_style(style);
        Self { bar, lines }
    }

    /// Wraps a log, and counts its bytes as they are read.
    pub(crate) fn count_bytes<R: Read>(&self, log: R) -> impl Read + use<R> {
        self.bar.wrap_read(log)
    }

    pub(crate) fn set_lines(&self, lines: u64) {
        self.lines.store(lines, Ordering::Relaxed);
        self.bar.tick();
    }

    /// Removes the progress from the screen.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
