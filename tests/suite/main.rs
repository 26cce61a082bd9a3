//! Tests of the binary `tidegate` as users run it: commands, servers, nodes, and the proxies and stores beside them.

mod ask;
mod caddy;
mod envoy;
mod fleet;
mod grpc;
mod layers;
mod nginx;
mod policies;
mod policy;
mod policy_test;
mod replay;
mod resp;
mod serve;
mod shared_keys;
mod sharing;
mod storage;
mod store_faults;
mod stores;
mod support;
mod tls;
mod traces;
mod users;
