//! The HTTP API: `POST /v1/check` and `/v1/check/batch`, reservations under `/v1/reserve`, `/v1/settle` and `/v1/refund`,
//! `/v1/authorize` for proxies; and `/healthz`, `/readyz` and `/metrics` for operators.

mod authorize;
mod authorize_settings;
mod body_reader;
mod browsers;
mod held_bodies;
mod known_headers;
mod listener;
mod request_body;
pub(crate) mod response_body;
mod responses;
mod routes;
mod worker;

pub use actix_web::http::header::HeaderName;

pub(crate) use self::routes::KIND;
pub use self::{authorize_settings::Authorize, browsers::BrowserAccess, listener::Http};
