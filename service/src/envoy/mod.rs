//! Envoy's rate limit service, `envoy.service.ratelimit.v3`: reads descriptors as requests, decides them together, and writes the
//! response. The listener of the gRPC API serves it.

pub(crate) mod decide;
pub(crate) mod offline;
mod request;
mod response;

#[cfg(test)]
mod tests;
