//! The parts of a server or a node: their settings, and the code that starts and stops them.

pub(crate) mod authorize;
pub(crate) mod control_plane;
mod dashboard_settings;
mod listener_settings;
pub(crate) mod listeners;
mod oidc;
pub(crate) mod process;
mod store;
pub(crate) mod traces;
