//! Tidegate's control plane: users and their rights, the published policy, and the dashboard that shows them.
//!
//! [`Admin`] is opened from [`Settings`] and served. A file uses only files that stand before it in the list of its folder, from
//! the ground up; a test checks it. What the folders hold stands at the head of their `mod.rs`.
//!
//! * `src`: `base`, `domain`, `capacity`, `store`, `metrics`, `fleet`, `publish`, `auth`, `simulate`, `live`, `http`, `app`.
//! * `base`: `addresses`, `event_log`, `periods`, `secrets`, `sha256`, `startup_error`, `caller`, `user_turns`.
//! * `domain`: `import_report`, `json`, `metric_types`, `objects`, `privacy`, `roles`, `text`, `version`, `diff`, `edited_policy`, `editor`, `error`, `overrides`, `published`, `change_impact`, `change_list`, `rollout`, `client_import`, `revert`.
//! * `domain/client_import`: `csv`.
//! * `capacity`: `body_budget`, `read_turns`, `shared_work`, `spool`, `work_queue`.
//! * `store`: `address`, `data_directory`, `database_metrics`, `sqlite_code`, `error`, `database`, `audit`, `backup`, `metrics`, `nodes`, `secrets`, `drafts`, `rollouts`, `second_factors`, `tokens`, `versions`, `users`, `sessions`.
//! * `store/database`: `sqlite`, `postgres`.
//! * `metrics`: `clock`, `decided_around`, `endpoints`, `sample`, `series`, `sums`, `telemetry`, `ring`, `top`, `remotes`, `collector`.
//! * `metrics/collector`: `history`, `persistence`.
//! * `fleet`: `clock_skew`, `node_history`, `snapshot_push`, `registry`, `live_tail`.
//! * `fleet/registry`: `connecting`, `node_queries`, `rows`, `announcements`.
//! * `publish`: `stored_policy`, `policy_file`, `publisher`.
//! * `publish/publisher`: `replication`, `rollback`, `rollout_stages`.
//! * `auth`: `audit_queue`, `known_browsers`, `last_seen`, `login_limiter`, `oidc_cookie`, `passwords`, `principal`, `setup`, `totp`, `denied_audit`, `secret_lookups`, `user_rules`, `oidc`, `settings`, `command_line_users`.
//! * `simulate`: `description`, `recorder`, `time`, `about_traffic`, `uploads`, `question`, `run`, `execution`, `preview`, `run_files`, `runs`.
//! * `live`: `alerts`, `event_publisher`.
//! * `live/alerts`: `tokens`.
//! * `http`: `api_document`, `connections`, `cookies`, `held_body`, `problem`, `readiness`, `request_id`, `state`, `client_address`, `guard`, `extract`, `node_stream`, `openapi`, `routes`, `server`.
//! * `http/extract`: `blocking`, `body`, `paging`, `query`.
//! * `http/openapi`: `page`, `parts`, `schemas`, `document`.
//! * `http/routes`: `alerts`, `audit`, `dashboard`, `documentation`, `drafts`, `event_stream`, `explain`, `health`, `keys`, `lint`, `meta`, `metrics`, `nodes`, `policy`, `session`, `simulations`, `tokens`, `uploads`, `files`, `objects`, `oidc`, `rollout`, `second_factor`, `versions`, `bucket_states`, `users`, `account`, `clients`.

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
    app::{Admin, Settings},
    auth::{
        command_line_users::{People, PeopleError},
        oidc::Oidc,
        settings::Access,
    },
    base::{periods::Periods, startup_error::StartError},
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
