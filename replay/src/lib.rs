//! What a policy would have done to the traffic of an access log.
//!
//! Log lines go in, in any order; the engine that decides real traffic decides each request on a virtual clock, in order
//! of time; out comes a [`Report`]: totals, per limit, per client, a timeline. This crate opens nothing: it reads from
//! the readers it is given, and a log of any length in bounded memory (what it keeps per distinct client is small).
//!
//! ```
//! use tidegate::{Snapshot, formats::Format};
//! use tidegate_replay::{Options, Replay};
//!
//! let policy = Snapshot::parse(r#"
//!     [domains.default]
//!     defaults = { ip = "free" }
//!     [[domains.default.tiers]]
//!     id = "free"
//!     limits = [{ id = "minute", algorithm = "token_bucket", limit = 1, period = "1m" }]
//! "#, Format::Toml)?;
//! let log = r#"192.0.2.7 - - [05/Jan/2026:09:00:00 +0000] "GET / HTTP/1.1" 200 5
//! 192.0.2.7 - - [05/Jan/2026:09:00:01 +0000] "GET /again HTTP/1.1" 200 5
//! "#;
//! let mut replay = Replay::new(policy, &Options::default())?;
//! replay.read(log.as_bytes(), "access.log", |_| ())?;
//! let report = replay.finish(20);
//! assert_eq!((report.allowed, report.denied), (1, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The way of a line: `merge` (several logs as one), `log` (times in `stamp`), `window` (back into order of time), `replay` (the engine), `clients` and
//! `timeline` (counts), `report`, `text` with `table` and `chart`. [`demo`] makes a log where there is none.
//!
//! What a change of policy would do: [`traffic`] makes requests up, reads them from a log, or plays recorded ones; [`compare`]
//! has two policies decide them; [`preview`] is the quick one for an editor.

mod client_limit;
mod clients;
pub mod compare;
pub mod demo;
mod log;
mod log_source;
pub mod preview;
mod random;
mod reorder_window;
mod replay;
mod report;
mod text_report;
mod text_table;
mod timeline;
mod timeline_chart;
mod timestamp;
pub mod traffic;

pub use client_limit::{OfClient, of_client};
pub use log::client::{ClientReading, private_networks};
pub use log::fields::FieldMap;
pub use log::format::{LogFormat, LogKey, LogReading};
pub use log::lines::LINE_BYTES_MAX;
pub use log_source::{Log, LogInput, OpenLog};
pub use reorder_window::{WINDOW_BYTES_MAX, WINDOW_LINES_MAX};
pub use replay::{DEFAULT_WINDOW_NS, Options, ReadError, Replay, UNREADABLE_SHOWN, UnreadableLine, keys_for};
pub use report::{ClientRow, FormRow, LimitRow, LogRow, Report, TimelineRow, UnreadableKind};
pub use text_report::{Look, text};
pub use timestamp::{LogZone, Utc};
