//! What an import of clients makes of each line of its file.

use schemars::JsonSchema;
use serde::Serialize;
use tidegate_api::FieldError;

/// What an import makes of each line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ImportReport")]
pub(crate) struct Report {
    pub(crate) new: usize,
    pub(crate) changed: usize,
    pub(crate) unchanged: usize,
    pub(crate) wrong: usize,
    /// Clients that the file does not have, where they are to go.
    pub(crate) removed: usize,
    pub(crate) lines: Vec<LineReport>,
}

/// What an import makes of a line.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct LineReport {
    /// From 1, that of the columns' names.
    pub(crate) line: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    pub(crate) outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) column: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "LineOutcome")]
pub(crate) enum Outcome {
    New,
    Changed,
    Unchanged,
    Wrong,
}

impl Report {
    /// Lines that are wrong, as fields: `/LINE/COLUMN`; so many at most.
    pub(crate) fn wrong_lines(&self, count_max: usize) -> Vec<FieldError> {
        let wrong = self.lines.iter().filter(|line| line.outcome == Outcome::Wrong);
        wrong
            .take(count_max)
            .map(|line| {
                let pointer =
                    format!("/{}{}", line.line, line.column.map(|column| format!("/{column}")).unwrap_or_default());
                FieldError::invalid(
                    pointer,
                    format!("line {}: {}", line.line, line.message.as_deref().unwrap_or_default()),
                )
            })
            .collect()
    }

    /// Has the file changed anything?
    pub(crate) fn changes(&self) -> usize {
        self.new + self.changed + self.removed
    }
}
