//! The listeners, over real sockets: the HTTP API, the gRPC API and the Redis protocol; and limits that a store shares, asked for
//! at all of them.

mod budget;
mod callers;
mod conformance;
mod connections;
mod grpc;
mod http;
mod process;
mod resp;
mod spellings;
mod store;
mod tokens;
mod turns;
mod unread;
mod waiting;
