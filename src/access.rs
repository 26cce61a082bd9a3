//! Settings of how people sign in at the dashboard.

use std::time::Duration;

use clap::Args;
use tidegate::time::parse_period;
use tidegate_admin::Access;

/// The shortest that a session may live without being used, in nanoseconds: that it was used is written once a minute.
const IDLE_MIN: u64 = 5 * 60 * 1_000_000_000;

#[derive(Debug, Args)]
pub(crate) struct AccessArguments {
    /// How long a session lives without being used; 5m or more.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_SESSION_IDLE", default_value = "12h", value_parser = idle)]
    session_idle: u64,
    /// How long a session lives, however much it is used.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_SESSION_LIFE", default_value = "7d", value_parser = idle)]
    session_life: u64,
}

impl AccessArguments {
    pub(crate) fn settings(&self) -> Access {
        Access {
            session_idle: Duration::from_nanos(self.session_idle),
            session_life: Duration::from_nanos(self.session_life),
        }
    }
}

/// In nanoseconds.
fn idle(text: &str) -> Result<u64, String> {
    let period = parse_period(text)?;
    if period < IDLE_MIN { Err("5m or more".to_owned()) } else { Ok(period) }
}
