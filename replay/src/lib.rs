//! Replays access logs against a policy, and compares policies over the same traffic.
//!
//! [`Replay`] takes log lines in any order. The engine that decides real traffic decides each request on a virtual clock,
//! in order of time. The result is a [`ReplayReport`]: totals, counts of each limit and client, and a timeline. This crate
//! opens no files: it reads from the readers that it is given. It reads a log of any length in bounded memory, plus a few
//! dozen bytes for each distinct client.
//!
//! ```
//! use tidegate::{Snapshot, formats::Format};
//! use tidegate_replay::{Replay, ReplayOptions};
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
//! let mut replay = Replay::new(policy, &ReplayOptions::default())?;
//! replay.read(log.as_bytes(), "access.log", |_| ())?;
//! let report = replay.finish(20);
//! assert_eq!((report.allowed, report.denied), (1, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A line passes through these modules: `log_source` (merges several logs), `log` (reads lines; `timestamp` reads their
//! times), `reorder_window` (restores the order of time), `replay` and `simulation` (the engine), `clients` and `timeline`
//! (counts), `report`, and `text_report` with `text_table` and `timeline_chart`. [`demo`] generates a log.
//!
//! What-if simulation: [`traffic`] generates requests, reads them from a log, or plays recorded ones; [`compare`] has two
//! policies decide them; [`preview`] does so fast enough for an editor.

mod client_limit;
mod clients;
pub mod compare;
pub mod demo;
mod log;
mod log_source;
pub mod preview;
mod random;
mod read_error;
mod reorder_window;
mod replay;
mod report;
mod simulation;
mod text_report;
mod text_table;
mod timeline;
mod timeline_chart;
mod timestamp;
pub mod traffic;

pub use client_limit::{ClientLimitName, client_limit_name};
pub use log::client::{ClientOptions, private_networks};
pub use log::field_names::FieldMap;
pub use log::format::{LogFormat, LogKey, LogOptions};
pub use log::lines::LINE_BYTES_MAX;
pub use log_source::{LogInput, LogSource, OpenLog};
pub use read_error::{ReadError, UnreadableLine};
pub use reorder_window::{WINDOW_BYTES_MAX, WINDOW_LINES_MAX};
pub use replay::{DEFAULT_WINDOW_NS, Replay, ReplayOptions, UNREADABLE_SHOWN, keys_for};
pub use report::{ClientRow, FormatRow, LimitRow, LogRow, ReplayReport, TimelineRow, UnreadableKind};
pub use text_report::{TextStyle, text_report};
pub use timestamp::{LogZone, Utc};
