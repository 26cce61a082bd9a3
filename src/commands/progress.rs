//! The progress of a replay, on standard error and only on a terminal: a bar where the length of the logs is known,
//! lines and their rate where it is not.

use std::{
    io::{IsTerminal, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

pub(crate) struct Progress {
    bar: ProgressBar,
    lines: Arc<AtomicU64>,
}

impl Progress {
    /// For logs of so many bytes, as they lie on the disk; `None` when that is not known.
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
        // Only a number to look at: no other memory is read on the strength of it.
        let rate = move |state: &ProgressState| {
            counted.load(Ordering::Relaxed) * 1_000 / (state.elapsed().as_millis() as u64).max(1)
        };
        // A template that indicatif refuses leaves its own style; the numbers stay right.
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

    /// `log`, with its bytes counted as they are read.
    pub(crate) fn watch<R: Read>(&self, log: R) -> impl Read + use<R> {
        self.bar.wrap_read(log)
    }

    pub(crate) fn lines(&self, lines: u64) {
        self.lines.store(lines, Ordering::Relaxed);
        self.bar.tick();
    }

    /// Leaves nothing on the screen.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
