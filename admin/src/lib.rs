//! Tidegate's control plane: who may sign in, what is published, and the dashboard that shows it.
//!
//! [`Admin`] is opened from [`Settings`] and served. From the ground up: `start` (what can go wrong then), `secrets`,
//! `problem`, `body_budget`, `spool` and `body` (how bodies are read, how much of them and of answers is held, and what requests are refused for), `folder` and `store`
//! (what lies on the disk), `objects`, `policy_file`, `published` and `publisher` (the policy and the one way to change it), `figures` (what the engine counts),
//! `roles`, `passwords`, `totp`, `people`, `addresses`, `tries`, `cookies`, `browsers`, `setup`, `seen`, `beside`, `refusals`, `oidc` and `access` (people), `routes` (the REST calls), `server`; `local`
//! (people, for commands).

mod app;
mod auth;
mod base;
mod capacity;
mod domain;
mod fleet;
mod http;
mod live;
mod metrics;
mod publish;
mod simulate;
mod store;

pub use ipnet::IpNet;
pub use tidegate_fleet::{ErrorCounts, wire::Process};
pub use tidegate_listener::ConnectionCaps;
pub use tidegate_net::tls::TlsFiles;

pub use crate::{
    app::{Access, Admin, Periods, Settings},
    auth::{
        command_line_users::{People, PeopleError},
        oidc::Oidc,
    },
    base::startup_error::StartError,
    domain::{
        overrides::take_ended,
        privacy::Keys,
        roles::{Role, UnknownRole},
    },
    metrics::clock::FiguresClock,
    publish::policy_file::{PolicyFile, PolicyFileOutcome},
    store::{
        address::DatabaseUrl,
        backup::{BackupError, Copied, backup},
    },
};
