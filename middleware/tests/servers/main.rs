//! The guard under real servers of axum, tonic and actix-web, and the client of servers that decide, with real requests.

mod remote;
mod server;
mod support;
mod under_actix;
mod under_axum;
mod under_tonic;
