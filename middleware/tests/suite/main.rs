//! The guard under real servers of axum, tonic and actix-web, and the client of servers that decide, with real requests.

mod remote;
mod remote_late;
mod remote_tls;
mod server;
mod support;
mod under_actix;
mod under_axum;
mod under_tonic;
