//! The parts of a server or a node: their settings, and the code that starts them.

pub(crate) mod authorize;
pub(crate) mod control_plane;
pub(crate) mod dashboard_settings;
pub(crate) mod listener_settings;
pub(crate) mod listeners;
mod oidc;
pub(crate) mod process;
pub(crate) mod store;
pub(crate) mod traces;
