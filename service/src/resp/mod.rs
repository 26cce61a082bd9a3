//! The Redis protocol (RESP), versions 2 and 3: `CL.THROTTLE` as redis-cell answers it, `THROTTLE` as throttlecrab
//! does, `TIDEGATE.CHECK` by the policy, and the commands that clients and people at a terminal need besides.

mod check_command;
mod command_table;
mod connection;
mod error;
mod frame_reader;
mod listener;
mod reply_writer;
mod session;
mod throttle;
mod worker;

pub(crate) use self::command_table::KIND;
pub use self::listener::Resp;
pub use crate::shared::operators::{OperatorQuery, Operators};
