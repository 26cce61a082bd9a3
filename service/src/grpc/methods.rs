//! The services and methods of the gRPC API with the access that each requires, and the listener's description in metrics.

use crate::shared::{latency::ListenerKind, tokens::Right};

pub(super) const LIMITER: &str = "tidegate.v1.RateLimiter";
pub(super) const CONFIG: &str = "tidegate.v1.RateLimiterConfig";
pub(super) const OWN_HEALTH: &str = "tidegate.v1.RateLimiterHealth";
pub(super) const ENVOY: &str = "envoy.service.ratelimit.v3.RateLimitService";
pub(super) const HEALTH: &str = "grpc.health.v1.Health";
pub(super) const REFLECTION: &str = "grpc.reflection.v1.ServerReflection";
/// The reflection service under the name of its earlier version, the only one that many tools call.
pub(super) const REFLECTION_ALPHA: &str = "grpc.reflection.v1alpha.ServerReflection";
/// The method of a batch of checks.
pub(super) const BATCH: &str = "CheckRateLimitBatch";
/// Other unary methods whose responses may be long.
pub(super) const LONG: [&str; 2] = ["GetMetrics", "ListRateLimits"];
/// All services, by whose names the standard health service may be asked.
pub(super) const SERVICES: [&str; 7] = [LIMITER, CONFIG, OWN_HEALTH, ENVOY, HEALTH, REFLECTION, REFLECTION_ALPHA];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MethodAccess {
    /// One of the server's tokens with this right, where the server asks for one.
    Right(Right),
    /// One of the server's tokens, where the server asks for one.
    Token,
    /// A token for the metrics, where the server asks for one.
    Metrics,
    /// A token of the admin server, which checks it.
    Admin,
    /// One of the server's tokens with the right to reset, or a token of the admin server.
    Reset,
    Nothing,
}

pub(super) struct Method {
    pub(super) service: &'static str,
    pub(super) name: &'static str,
    pub(super) access: MethodAccess,
    pub(super) shape: Shape,
}

/// The shape of a method: which side sends a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// One message, and its response.
    Unary,
    /// One message, and a stream of responses.
    Watch,
    /// A stream of messages, and a stream of responses.
    Stream,
}

impl Method {
    /// Returns whether a call may take much memory while its response is not read and hyper does not poll it.
    pub(super) fn may_be_unpolled(&self) -> bool {
        self.shape != Shape::Unary || self.name == BATCH || LONG.contains(&self.name)
    }

    /// Returns whether it is a stream whose responses tonic writes, which may be long.
    pub(super) fn is_reflection(&self) -> bool {
        self.shape == Shape::Stream && self.service != LIMITER
    }
}

const fn unary(service: &'static str, access: MethodAccess, name: &'static str) -> Method {
    Method { service, name, access, shape: Shape::Unary }
}

/// All methods. Their names differ, and are routes in metrics.
const METHODS: [Method; 17] = [
    unary(LIMITER, MethodAccess::Right(Right::Check), "CheckRateLimit"),
    unary(LIMITER, MethodAccess::Right(Right::Check), BATCH),
    Method {
        service: LIMITER,
        name: "CheckRateLimitStream",
        access: MethodAccess::Right(Right::Check),
        shape: Shape::Stream,
    },
    unary(LIMITER, MethodAccess::Right(Right::Reserve), "Reserve"),
    unary(LIMITER, MethodAccess::Right(Right::Reserve), "Settle"),
    unary(LIMITER, MethodAccess::Right(Right::Reserve), "Refund"),
    unary(CONFIG, MethodAccess::Admin, "CreateRateLimit"),
    unary(CONFIG, MethodAccess::Admin, "UpdateRateLimit"),
    unary(CONFIG, MethodAccess::Admin, "DeleteRateLimit"),
    unary(CONFIG, MethodAccess::Admin, "ListRateLimits"),
    unary(OWN_HEALTH, MethodAccess::Nothing, "GetHealthStatus"),
    unary(OWN_HEALTH, MethodAccess::Metrics, "GetMetrics"),
    unary(OWN_HEALTH, MethodAccess::Reset, "ResetRateLimit"),
    unary(ENVOY, MethodAccess::Right(Right::Check), "ShouldRateLimit"),
    unary(HEALTH, MethodAccess::Nothing, "Check"),
    Method { service: HEALTH, name: "Watch", access: MethodAccess::Nothing, shape: Shape::Watch },
    REFLECTION_INFO,
];
const REFLECTION_INFO: Method =
    Method { service: REFLECTION, name: "ServerReflectionInfo", access: MethodAccess::Token, shape: Shape::Stream };
/// The method of the earlier version, whose route in metrics is that of the later version.
const REFLECTION_ALPHA_INFO: Method = Method { service: REFLECTION_ALPHA, ..REFLECTION_INFO };
/// The route of every other path, in metrics.
pub(super) const OTHER: &str = "other";
const ROUTES: [&str; METHODS.len() + 1] = {
    let mut routes = [OTHER; METHODS.len() + 1];
    let mut place = 0;
    while place < METHODS.len() {
        routes[place] = METHODS[place].name;
        place += 1;
    }
    routes
};

pub(crate) const KIND: ListenerKind = ListenerKind {
    name: "grpc",
    routes: &ROUTES,
    deciding: &["CheckRateLimit", "Reserve", "ShouldRateLimit"],
    statuses: &[
        (0, "OK"),
        (1, "CANCELLED"),
        (2, "UNKNOWN"),
        (3, "INVALID_ARGUMENT"),
        (4, "DEADLINE_EXCEEDED"),
        (5, "NOT_FOUND"),
        (6, "ALREADY_EXISTS"),
        (7, "PERMISSION_DENIED"),
        (8, "RESOURCE_EXHAUSTED"),
        (9, "FAILED_PRECONDITION"),
        (10, "ABORTED"),
        (11, "OUT_OF_RANGE"),
        (12, "UNIMPLEMENTED"),
        (13, "INTERNAL"),
        (14, "UNAVAILABLE"),
        (16, "UNAUTHENTICATED"),
    ],
};

/// Returns the method of a path; `None` where there is none.
pub(super) fn method(path: &str) -> Option<&'static Method> {
    let (service, name) = path.strip_prefix('/')?.split_once('/')?;
    let is_called = |method: &&Method| method.name == name && method.service == service;
    METHODS.iter().find(is_called).or_else(|| Some(&REFLECTION_ALPHA_INFO).filter(is_called))
}
