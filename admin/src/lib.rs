//! Tidegate's control plane: who may sign in, what is published, and the dashboard that shows it.
//!
//! [`Admin`] is opened from [`Settings`] and served. From the ground up: `start` (what can go wrong then), `secrets`,
//! `problem`, `body_budget`, `spool` and `body` (how bodies are read, how much of them and of answers is held, and what requests are refused for), `folder` and `store`
//! (what lies on the disk), `objects`, `policy_file`, `published` and `publisher` (the policy and the one way to change it), `figures` (what the engine counts),
//! `roles`, `passwords`, `totp`, `people`, `addresses`, `tries`, `cookies`, `browsers`, `setup`, `seen`, `beside`, `refusals`, `oidc` and `access` (people), `routes` (the REST calls), `server`; `local`
//! (people, for commands).

mod access;
mod addresses;
mod alerts;
mod api;
mod beside;
mod body;
mod body_budget;
mod browsers;
mod caller;
mod changes;
mod clients;
mod connections;
mod cookies;
mod differences;
mod editing;
mod events;
mod figures;
mod fleet;
mod folder;
mod local;
mod loosened;
mod news;
mod objects;
mod oidc;
mod overrides;
mod paging;
mod passwords;
mod people;
mod policy_file;
mod privacy;
mod problem;
mod published;
mod publisher;
mod query;
mod read_turns;
mod readiness;
mod recorder;
mod refusals;
mod request_id;
mod roles;
mod rollout;
mod routes;
mod secret_lookups;
mod secrets;
mod seen;
mod server;
mod setup;
mod shared_work;
mod sign_ins;
mod simulate;
mod spool;
mod start;
mod store;
mod telemetry;
mod totp;
mod tries;
mod undo;
mod user_turns;
mod watches;
mod work_queue;

pub use figures::FiguresClock;
pub use ipnet::IpNet;
pub use local::{People, PeopleError};
pub use oidc::Oidc;
pub use overrides::take_ended;
pub use policy_file::{PolicyFile, PolicyFileOutcome};
pub use privacy::Keys;
pub use roles::{Role, UnknownRole};
pub use server::{Access, Admin, Periods, Settings};
pub use start::StartError;
pub use store::{BackupError, Copied, DatabaseUrl, backup};
pub use tidegate_fleet::{ErrorCounts, wire::Process};
pub use tidegate_listener::ConnectionCaps;
pub use tidegate_net::tls::TlsFiles;
