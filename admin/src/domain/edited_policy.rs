//! A policy with changes made to it, before it is published.

use tidegate::policy::Policy;

use crate::domain::{import_report::Report, objects::ObjectKey};

/// A policy with the changes made.
pub(crate) struct Edited {
    pub(crate) policy: Policy,
    /// Objects that are new, or other than before.
    pub(crate) touched: Vec<ObjectKey>,
    pub(crate) removed: Vec<ObjectKey>,
    /// Of an import: what became of each line.
    pub(crate) report: Option<Report>,
}
