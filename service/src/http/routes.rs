//! The routes of the HTTP API, and the listener's description in metrics.

use crate::shared::latency::ListenerKind;

pub(super) const CHECK: &str = "/v1/check";
pub(super) const BATCH: &str = "/v1/check/batch";
pub(super) const RESERVE: &str = "/v1/reserve";
pub(super) const SETTLE: &str = "/v1/settle";
pub(super) const REFUND: &str = "/v1/refund";
pub(super) const AUTHORIZE: &str = "/v1/authorize";
pub(super) const HEALTHZ: &str = "/healthz";
pub(super) const READYZ: &str = "/readyz";
pub(super) const METRICS: &str = "/metrics";
/// The route of every other path, in metrics.
pub(super) const OTHER: &str = "other";
const ROUTES: [&str; 10] = [CHECK, BATCH, RESERVE, SETTLE, REFUND, AUTHORIZE, HEALTHZ, READYZ, METRICS, OTHER];
pub(crate) const KIND: ListenerKind = ListenerKind {
    name: "http",
    routes: &ROUTES,
    deciding: &[CHECK, RESERVE, AUTHORIZE],
    statuses: &[
        (200, "200"),
        (204, "204"),
        (400, "400"),
        (401, "401"),
        (403, "403"),
        (404, "404"),
        (405, "405"),
        (408, "408"),
        (409, "409"),
        (413, "413"),
        (415, "415"),
        (429, "429"),
        (431, "431"),
        (500, "500"),
        (503, "503"),
    ],
};

/// Returns the route of a path: the path itself, or [`OTHER`].
pub(super) fn route(path: &str) -> &'static str {
    ROUTES.into_iter().find(|route| *route == path).unwrap_or(OTHER)
}
