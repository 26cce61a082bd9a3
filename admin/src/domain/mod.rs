//! The policy as the control plane edits it, and the data of users and nodes: no input, no output.

pub(crate) mod change_impact;
pub(crate) mod change_list;
pub(crate) mod client_import;
pub(crate) mod diff;
pub(crate) mod edited_policy;
pub(crate) mod editor;
pub(crate) mod error;
pub(crate) mod import_report;
pub(crate) mod json;
pub(crate) mod metric_types;
pub(crate) mod objects;
pub(crate) mod overrides;
pub(crate) mod privacy;
pub(crate) mod published;
pub(crate) mod revert;
pub(crate) mod roles;
pub(crate) mod rollout;
pub(crate) mod text;
pub(crate) mod version;
