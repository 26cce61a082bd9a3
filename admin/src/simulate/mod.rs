//! What-if: what a policy would do to some traffic, beside another one, before anybody publishes it. Nothing here touches the
//! engine that decides.

pub(crate) mod about_traffic;
pub(crate) mod description;
pub(crate) mod execution;
pub(crate) mod preview;
pub(crate) mod question;
pub(crate) mod recorder;
pub(crate) mod run;
pub(crate) mod run_files;
pub(crate) mod runs;
pub(crate) mod time;
pub(crate) mod uploads;
