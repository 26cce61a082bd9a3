//! Text table with aligned columns in a given width.

use std::fmt::Write;

/// Spaces between columns.
const GAP: usize = 2;

/// Least width to which the first column is truncated.
const FIRST_MIN: usize = 16;

/// A table whose first column is aligned to the left and truncated to fit the width; the others are aligned to the right.
#[derive(Debug)]
pub(crate) struct TextTable<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> TextTable<COLUMNS> {
    pub(crate) fn new(head: [&str; COLUMNS]) -> Self {
        Self { rows: vec![head.map(str::to_owned)] }
    }

    pub(crate) fn row(&mut self, cells: [String; COLUMNS]) {
        self.rows.push(cells);
    }

    /// Returns the lines, the header first.
    pub(crate) fn lines(&self, width: usize) -> Vec<String> {
        let mut widths = [0; COLUMNS];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(length(cell));
            }
        }
        let others: usize = widths[1..].iter().map(|width| width + GAP).sum();
        widths[0] = widths[0].min(width.saturating_sub(others).max(FIRST_MIN));
        let line = |row: &[String; COLUMNS]| {
            let first = cut(&row[0], widths[0]);
            let mut line = format!("{first:<0$}", widths[0]);
            for (cell, width) in row.iter().zip(widths).skip(1) {
                // Writing to a string does not fail.
                let _ = write!(line, "{:GAP$}{cell:>width$}", "");
            }
            line.trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }
}

/// Returns the number of characters.
pub(crate) fn length(text: &str) -> usize {
    text.chars().count()
}

/// Truncates a text to `width` characters; a `…` replaces its middle.
fn cut(text: &str, width: usize) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= width || width == 0 {
        return text.to_owned();
    }
    let tail = (width - 1) / 2;
    let head = width - 1 - tail;
    chars[..head].iter().chain(&['…']).chain(&chars[chars.len() - tail..]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_the_first_gives_way() {
        let mut table = TextTable::new(["name", "n"]);
        table.row(["short".to_owned(), "1".to_owned()]);
        table.row(["default/rule:something-long/minute".to_owned(), "12,345".to_owned()]);
        assert_eq!(
            table.lines(80),
            [
                "name                                     n",
                "short                                    1",
                "default/rule:something-long/minute  12,345"
            ]
        );
        let narrow = table.lines(30);
        assert_eq!(narrow[2], "default/rul…ong/minute  12,345");
        assert!(narrow.iter().all(|line| length(line) == 30));
    }
}
