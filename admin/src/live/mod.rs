//! What event streams and the dashboard are told as it happens: events of the policy and the audit log, and alerts.

pub(crate) mod alerts;
pub(crate) mod event_publisher;
