//! Users and tokens: passwords, sign-in by a provider, sessions, and what the audit log is told of them.

pub(crate) mod audit_queue;
pub(crate) mod command_line_users;
pub(crate) mod denied_audit;
pub(crate) mod known_browsers;
pub(crate) mod last_seen;
pub(crate) mod login_limiter;
pub(crate) mod oidc;
pub(crate) mod oidc_cookie;
pub(crate) mod passwords;
pub(crate) mod principal;
pub(crate) mod secret_lookups;
pub(crate) mod settings;
pub(crate) mod setup;
pub(crate) mod totp;
pub(crate) mod user_rules;
