//! Tests of the listeners over real sockets: HTTP, gRPC and the Redis protocol, and limits of a store over all of them.

mod budget;
mod callers;
mod conformance;
mod connections;
mod grpc;
mod http;
mod layers;
mod process;
mod resp;
mod spellings;
mod store;
mod tokens;
mod turns;
mod unread;
mod waiting;
