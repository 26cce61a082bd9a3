//! Reorder window: sorts lines by time. Servers log a request when it ends, so lines are not in order of time. A line waits in
//! the window until no earlier one is expected. Lines leave in order of time, and in order of input if they have the same
//! time.
//!
//! Lines in order, which most are, wait in a queue. Earlier ones wait in a tree, so that any order of input costs logarithmic
//! time at worst. Both are sorted by time, then by sequence; the smaller of their fronts leaves next.

use std::collections::{BTreeMap, VecDeque};

use tidegate::time::Nanos;

/// Most lines in the window; beyond it the oldest line leaves.
pub const WINDOW_LINES_MAX: usize = 1_000_000;

/// Most bytes of methods and paths in the window; beyond it the oldest line leaves.
pub const WINDOW_BYTES_MAX: usize = 256 << 20;

/// An item that a window can hold.
pub(crate) trait BufferedItem {
    /// Returns the bytes of its texts.
    fn bytes(&self) -> usize;
}

/// Order of a line: its time, then its sequence number.
type Turn = (Nanos, u64);

/// A buffer that restores the order of time.
#[derive(Debug)]
pub(crate) struct ReorderWindow<V> {
    span_ns: u64,
    lines_max: usize,
    bytes_max: usize,
    in_order: VecDeque<(Turn, V)>,
    behind: BTreeMap<Turn, V>,
    waiting_bytes: usize,
    /// The newest time that was put in.
    newest: Nanos,
    /// The time of the line that left last.
    decided: Nanos,
    /// Lines put in so far.
    sequence: u64,
    pub(crate) late: u64,
}

impl<V: BufferedItem> ReorderWindow<V> {
    pub(crate) fn new(span_ns: u64, lines_max: usize, bytes_max: usize) -> Self {
        Self {
            span_ns,
            lines_max,
            bytes_max,
            in_order: VecDeque::new(),
            behind: BTreeMap::new(),
            waiting_bytes: 0,
            newest: 0,
            decided: 0,
            sequence: 0,
            late: 0,
        }
    }

    /// Puts a line in. A line that is later than the window takes the newest time.
    pub(crate) fn put(&mut self, time: Nanos, visit: V) {
        let is_late = time < self.newest.saturating_sub(self.span_ns) || time < self.decided;
        let time = if is_late { self.newest } else { time };
        self.late += u64::from(is_late);
        self.waiting_bytes += visit.bytes();
        let turn = (time, self.sequence);
        // The end of the queue is the newest line, if it is still in the window.
        if time >= self.newest {
            self.newest = time;
            self.in_order.push_back((turn, visit));
        } else {
            self.behind.insert(turn, visit);
        }
        self.sequence += 1;
    }

    /// Removes the next line if it is due.
    #[inline]
    pub(crate) fn take_due(&mut self) -> Option<(Nanos, V)> {
        let is_full = self.waiting() > self.lines_max || self.waiting_bytes > self.bytes_max;
        let oldest = self.in_order.front().map(|(turn, _)| turn).into_iter().chain(self.behind.keys().next()).min()?.0;
        if is_full || oldest < self.newest.saturating_sub(self.span_ns) { self.take() } else { None }
    }

    /// Removes the next line.
    pub(crate) fn take(&mut self) -> Option<(Nanos, V)> {
        let is_behind = match (self.in_order.front(), self.behind.keys().next()) {
            (Some((in_order, _)), Some(behind)) => behind < in_order,
            (in_order, _) => in_order.is_none(),
        };
        let ((time, _), visit) = if is_behind { self.behind.pop_first()? } else { self.in_order.pop_front()? };
        self.waiting_bytes -= visit.bytes();
        self.decided = time;
        Some((time, visit))
    }

    fn waiting(&self) -> usize {
        self.in_order.len() + self.behind.len()
    }

    pub(crate) fn lines(&self) -> u64 {
        self.sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl BufferedItem for usize {
        fn bytes(&self) -> usize {
            8
        }
    }

    /// Puts in lines with these times; returns the index and the time of each in the order of leaving, and how many were
    /// late.
    fn run(mut window: ReorderWindow<usize>, times: &[Nanos]) -> (Vec<(usize, Nanos)>, u64) {
        let mut out = Vec::new();
        for (place, time) in times.iter().enumerate() {
            window.put(*time, place);
            while let Some((time, place)) = window.take_due() {
                out.push((place, time));
            }
            assert!(window.waiting() <= window.lines_max);
        }
        while let Some((time, place)) = window.take() {
            out.push((place, time));
        }
        assert_eq!(window.waiting_bytes, 0);
        (out, window.late)
    }

    #[test]
    fn lines_leave_in_order_of_time_and_ties_in_order_of_input() {
        let (out, late) = run(ReorderWindow::new(100, 1_000, 8_000), &[50, 40, 50, 40, 60]);
        assert_eq!(out, [(1, 40), (3, 40), (0, 50), (2, 50), (4, 60)]);
        assert_eq!(late, 0);
    }

    #[test]
    fn a_line_beyond_the_window_is_late_and_takes_the_newest_time() {
        // 400 is just inside, 399 just outside.
        let (out, late) = run(ReorderWindow::new(100, 1_000, 8_000), &[300, 500, 400, 399, 450]);
        assert_eq!(out, [(0, 300), (2, 400), (4, 450), (1, 500), (3, 500)]);
        assert_eq!(late, 1);
    }

    #[test]
    fn a_full_window_decides_its_oldest_line() {
        let times: Vec<Nanos> = (0..1_000).map(|line| 10_000 + line).chain([10_500, 10_950]).collect();
        let (out, late) = run(ReorderWindow::new(u64::MAX, 100, 8_000), &times);
        assert_eq!(out.len(), times.len());
        assert!(out.is_sorted_by_key(|(_, time)| *time));
        // 900 lines had left before 10,500 was put in, so it was late; 10,950 was not.
        assert_eq!(late, 1);
        assert!(out.contains(&(1_000, 10_999)) && out.contains(&(1_001, 10_950)));
    }
}
