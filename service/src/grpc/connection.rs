//! What a lane of the gRPC door does with a connection, and with each call on it: who may ask, which service answers, what is
//! counted.

use std::{
    cell::Cell,
    convert::Infallible,
    future::{Future, poll_fn},
    iter::once_with,
    net::SocketAddr,
    panic::AssertUnwindSafe,
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::Poll,
};

use actix_web::web::Bytes;
use futures_util::{FutureExt, future::LocalBoxFuture};
use http::{
    HeaderMap, Request, Response,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Either, Full};
use hyper::{body::Incoming, rt::Executor, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use prost::Message;
use tidegate::{
    clock::{Clock, SystemClock},
    time::Nanos,
};
use tidegate_listener::{ConnectionPermit, PeerNetwork, PeerTurns};
use tidegate_middleware::extract;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    task::spawn_local,
    time::timeout,
};
use tonic::{Code, Status, codegen::Service};
use tonic_health::pb::health_server::HealthServer;

use super::{
    admin_client::Admin,
    check_message,
    check_stream::Exchange,
    config::Config,
    health::{Own, Standard},
    limiter::Limiter,
    proto::{
        DESCRIPTORS,
        tidegate::v1::{
            rate_limiter_config_server::RateLimiterConfigServer, rate_limiter_health_server::RateLimiterHealthServer,
        },
    },
    refuse,
    request_body::{Body, HEAD_BYTES},
    response_body::{self, Answer, Told, UnreadSince, code},
    status::CODE,
};
use crate::{
    envoy::Envoy,
    http::error::{BODY_BYTES_MAX, CHECKS_MAX, Error, HEAD_BYTES_MAX, REFLECTION_STREAMS_MAX},
    listeners::Shared,
    shared::{
        body_budget::{BodyPermit, BudgetRefusal, CONNECTION_BYTES, ConnectionShare, PermitPhase, Revocation},
        caller_shares::Caller,
        latency::{DoorKind, DoorLatencies, Latencies},
        request_id_cache::Call,
        tokens::{METRICS_TOKENS, Right},
        traces::RequestSpan,
        worker_threads::{self, Leave},
    },
};

const LIMITER: &str = "tidegate.v1.RateLimiter";
const CONFIG: &str = "tidegate.v1.RateLimiterConfig";
const OWN_HEALTH: &str = "tidegate.v1.RateLimiterHealth";
const ENVOY: &str = "envoy.service.ratelimit.v3.RateLimitService";
const HEALTH: &str = "grpc.health.v1.Health";
const REFLECTION: &str = "grpc.reflection.v1.ServerReflection";
/// The same service under the name of its earlier version, which many tools ask for alone.
const REFLECTION_ALPHA: &str = "grpc.reflection.v1alpha.ServerReflection";
/// The batch of checks.
const BATCH: &str = "CheckRateLimitBatch";
/// Other calls of one message whose answers may be long.
const LONG: [&str; 2] = ["GetMetrics", "ListRateLimits"];
/// All of them, by whose names the standard health service is asked.
pub(super) const SERVICES: [&str; 7] = [LIMITER, CONFIG, OWN_HEALTH, ENVOY, HEALTH, REFLECTION, REFLECTION_ALPHA];

/// What a call takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    /// One of the server's tokens with this right, where it asks for one.
    Right(Right),
    /// One of the server's tokens, where it asks for one.
    Token,
    /// A token for the metrics, where the server asks for one.
    Metrics,
    /// A token of the admin server, which judges it.
    Admin,
    /// One of the server's tokens with the right to reset, or a token of the admin server.
    Reset,
    Nothing,
}

struct Method {
    service: &'static str,
    name: &'static str,
    access: Access,
    shape: Shape,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// One message, and its answer.
    Unary,
    /// One message, and answers as they come.
    Watch,
    /// Messages as they come, and answers.
    Stream,
}

impl Method {
    /// Returns whether a call may take much memory while hyper does not poll it: while its answer is not read.
    fn may_be_unpolled(&self) -> bool {
        self.shape != Shape::Unary || self.name == BATCH || LONG.contains(&self.name)
    }

    /// Returns whether it is a stream whose answers are written by tonic, and may be long.
    fn is_reflection(&self) -> bool {
        self.shape == Shape::Stream && self.service != LIMITER
    }
}

const fn unary(service: &'static str, access: Access, name: &'static str) -> Method {
    Method { service, name, access, shape: Shape::Unary }
}

/// The names differ, and are routes in metrics.
const METHODS: [Method; 17] = [
    unary(LIMITER, Access::Right(Right::Check), "CheckRateLimit"),
    unary(LIMITER, Access::Right(Right::Check), BATCH),
    Method {
        service: LIMITER,
        name: "CheckRateLimitStream",
        access: Access::Right(Right::Check),
        shape: Shape::Stream,
    },
    unary(LIMITER, Access::Right(Right::Reserve), "Reserve"),
    unary(LIMITER, Access::Right(Right::Reserve), "Settle"),
    unary(LIMITER, Access::Right(Right::Reserve), "Refund"),
    unary(CONFIG, Access::Admin, "CreateRateLimit"),
    unary(CONFIG, Access::Admin, "UpdateRateLimit"),
    unary(CONFIG, Access::Admin, "DeleteRateLimit"),
    unary(CONFIG, Access::Admin, "ListRateLimits"),
    unary(OWN_HEALTH, Access::Nothing, "GetHealthStatus"),
    unary(OWN_HEALTH, Access::Metrics, "GetMetrics"),
    unary(OWN_HEALTH, Access::Reset, "ResetRateLimit"),
    unary(ENVOY, Access::Right(Right::Check), "ShouldRateLimit"),
    unary(HEALTH, Access::Nothing, "Check"),
    Method { service: HEALTH, name: "Watch", access: Access::Nothing, shape: Shape::Watch },
    REFLECTION_INFO,
];
const REFLECTION_INFO: Method =
    Method { service: REFLECTION, name: "ServerReflectionInfo", access: Access::Token, shape: Shape::Stream };
/// In metrics, its route is that of the later version.
const REFLECTION_ALPHA_INFO: Method = Method { service: REFLECTION_ALPHA, ..REFLECTION_INFO };
/// Every other path, in metrics.
const OTHER: &str = "other";
const ROUTES: [&str; METHODS.len() + 1] = {
    let mut routes = [OTHER; METHODS.len() + 1];
    let mut place = 0;
    while place < METHODS.len() {
        routes[place] = METHODS[place].name;
        place += 1;
    }
    routes
};

/// This door, in metrics.
pub(crate) const KIND: DoorKind = DoorKind {
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

/// Calls that are open at once on a connection.
const CALLS_MAX: u32 = 128;
/// What may come of one call, and on one connection, before it is read.
const CALL_WINDOW_BYTES: u32 = 128 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 256 << 10;

/// For callers whose `authorization` is somebody else's.
const TOKEN: &str = "x-tidegate-token";

/// Bytes of one stream that are written before they are sent.
const SEND_BYTES: usize = 16 << 10;
/// Bytes that most answers in a batch fit into.
const ANSWER_BYTES: usize = 200;

/// The largest message of the reflection service, which keeps room for it as long as its stream is open.
const QUESTION_BYTES_MAX: usize = 4 << 10;

/// As much of a path as is quoted.
const PATH_CHARACTERS_MAX: usize = 200;

type Asked<C> = Request<Either<Full<Bytes>, Body<C>>>;
type Made = Response<tonic::body::Body>;
type Reflection<C> = Box<dyn Fn(Asked<C>) -> LocalBoxFuture<'static, Made>>;

/// What the calls of a lane share.
pub(crate) struct Door<C> {
    shared: Arc<Shared<C>>,
    latencies: Arc<Latencies>,
    clock: SystemClock,
    limiter: Arc<Limiter<C>>,
    config: RateLimiterConfigServer<Config>,
    own_health: RateLimiterHealthServer<Own<C>>,
    envoy: Envoy<C>,
    health: HealthServer<Standard<C>>,
    /// `None`: the descriptors could not be read.
    reflection: Option<Reflection<C>>,
    reflection_alpha: Option<Reflection<C>>,
}

impl<C: Clock> Door<C> {
    pub(super) fn new(shared: Arc<Shared<C>>, latencies: &DoorLatencies, admin: Arc<Admin>) -> Self {
        let described = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET)
        };
        Self {
            latencies: latencies.worker(),
            clock: SystemClock::new(),
            limiter: Arc::new(Limiter(Arc::clone(&shared))),
            config: RateLimiterConfigServer::new(Config(Arc::clone(&admin))),
            own_health: RateLimiterHealthServer::new(Own { shared: Arc::clone(&shared), admin }),
            envoy: Envoy(Arc::clone(&shared)),
            health: HealthServer::new(Standard(Arc::clone(&shared))),
            reflection: described().build_v1().ok().map(reflecting),
            reflection_alpha: described().build_v1alpha().ok().map(reflecting),
            shared,
        }
    }

    /// Answers a call, whatever happens on the way.
    async fn handle(
        &self,
        asked: Request<Incoming>,
        method: Option<&'static Method>,
        permit: BodyPermit,
        calls: &Rc<Calls<C>>,
        unread: Option<UnreadSince>,
    ) -> Told {
        calls.moved.set(true);
        let route = method.map_or(OTHER, |method| method.name);
        let mut at = self.clock.now();
        let mut span = None;
        let told = match admit(&self.shared, method, &asked, calls.share.peer()) {
            Ok((method, _)) if method.is_reflection() && calls.share.streams() >= REFLECTION_STREAMS_MAX => {
                Err(refuse(&self.shared, &Error::TooManyStreams, None))
            }
            Ok((method, caller)) => {
                span = self.span(method, asked.headers());
                // What a call leaves behind is its own, and the parts of the door are safe: see `decider::caught`.
                let told = self.routed(method, caller, (asked, permit), span.clone(), &mut at);
                let told = AssertUnwindSafe(told).catch_unwind().await;
                told.unwrap_or_else(|_| Err(refuse(&self.shared, &Error::Internal, None)))
            }
            Err(refusal) => Err(refusal),
        };
        let told = told.unwrap_or_else(|refusal| refusal.into_http().map(Answer::Made));
        let code = code(told.headers());
        let is_counted = code.is_some() && told.headers().contains_key(CODE);
        let took = self.clock.now().saturating_sub(at);
        if code.is_some() || method.is_none_or(|method| method.shape == Shape::Unary) {
            self.ended(route, (code.unwrap_or(Code::Ok), is_counted), took, span);
            return told;
        }
        calls.share.open_stream();
        let (mut leaving, calls) = (calls.leaving.clone(), Rc::clone(calls));
        // An error: the connection is gone.
        let leaving = async move { drop(leaving.wait_for(|is_leaving| *is_leaving).await) };
        let unread = unread.unwrap_or_default();
        told.map(|made| {
            response_body::stream(made, leaving, self.shared.periods.stream_end, unread, move |code, is_counted| {
                calls.share.close_stream();
                calls.moved.set(true);
                calls.door.ended(route, (code, is_counted), took, span);
            })
        })
    }

    /// Counts a call that ended.
    fn ended(&self, route: &'static str, (code, is_counted): (Code, bool), took: u64, span: Option<RequestSpan>) {
        self.latencies.answered(route, code as u16, took);
        let is_ours = matches!(code, Code::Internal | Code::Unknown);
        if let Some(span) = span {
            span.end_call(code as u16, is_ours);
        }
        if is_ours {
            self.shared.watch.failed();
        }
        if code == Code::InvalidArgument && !is_counted {
            self.shared.metrics.refused(KIND.name, "bad_message");
        }
    }

    /// Begins the span of a call, if it is sampled. Probes and scrapes have none.
    fn span(&self, method: &Method, headers: &HeaderMap) -> Option<RequestSpan> {
        let is_traced = matches!(method.access, Access::Right(_) | Access::Admin | Access::Reset);
        let traces = self.shared.traces.as_ref().filter(|_| is_traced)?;
        traces.begin_call((method.service, method.name), &|name| headers.get(name)?.to_str().ok())
    }

    /// `at`: when all was there that it takes to answer.
    async fn routed(
        &self,
        method: &Method,
        caller: Caller,
        (asked, permit): (Request<Incoming>, BodyPermit),
        span: Option<RequestSpan>,
        at: &mut Nanos,
    ) -> Result<Told, Status> {
        if method.service == ENVOY || method.service == LIMITER {
            return self.decided(method, caller, (asked.into_body(), permit), span, at).await;
        }
        let (mut head, body) = asked.into_parts();
        // The admin server is asked with it. What else is there may take much memory while the caller is waited for.
        let is_for_admin = matches!(method.access, Access::Admin | Access::Reset);
        let authorization = head.headers.remove(AUTHORIZATION).filter(|_| is_for_admin);
        head.headers = authorization.into_iter().map(|value| (AUTHORIZATION, value)).collect();
        // Calls of the admin server are counted by it.
        head.extensions.insert(caller.peer);
        if let Some(span) = span {
            head.extensions.insert(span);
        }
        if method.is_reflection() {
            let body = Body::of_stream(body, QUESTION_BYTES_MAX, &self.shared, permit);
            return Ok(self.made(method, Request::from_parts(head, Either::Right(body))).await);
        }
        let read = Body::whole(body, &self.shared, permit).await;
        *at = self.clock.now();
        let refuse = |error| refuse(&self.shared, &error, None);
        let (read, permit) = read.map_err(refuse)?;
        let message = &read[HEAD_BYTES.min(read.len())..];
        // A caller without a token may have one of the admin server.
        if method.access == Access::Reset && caller.token.is_some() {
            drop(permit);
            return whole(&self.limiter.reset(self::read(message)?, &caller.rights).await?);
        }
        if LONG.contains(&method.name) {
            return self.long(method, Request::from_parts(head, Either::Left(Full::new(read))), permit).await;
        }
        // From here on the caller is not waited for.
        drop(permit);
        Ok(self.made(method, Request::from_parts(head, Either::Left(Full::new(read)))).await)
    }

    /// The answer to a call that is decided or settled here, of which nothing but its body is needed.
    async fn decided(
        &self,
        method: &Method,
        caller: Caller,
        (body, permit): (Incoming, BodyPermit),
        span: Option<RequestSpan>,
        at: &mut Nanos,
    ) -> Result<Told, Status> {
        let limiter = &*self.limiter;
        if method.shape == Shape::Stream {
            let body = Body::of_stream(body, BODY_BYTES_MAX, &self.shared, permit);
            return Ok(response_body::exchange(Exchange::new(Arc::clone(&self.limiter), caller, body)));
        }
        let read = Body::whole(body, &self.shared, permit).await;
        *at = self.clock.now();
        let (read, permit) = read.map_err(|error| refuse(&self.shared, &error, None))?;
        let message = &read[HEAD_BYTES.min(read.len())..];
        if method.name == BATCH {
            return self.batch(message, &caller, permit).await;
        }
        // From here on the caller is not waited for.
        drop(permit);
        let span = span.as_ref();
        match method.name {
            "CheckRateLimit" => {
                let answer = limiter.decide(message, Call::Check, &caller, span).await?;
                response_body::whole(0, |to| check_message::response(&answer, to))
            }
            "Reserve" => {
                let answer = limiter.decide(message, Call::Reserve, &caller, span).await?;
                response_body::whole(0, |to| check_message::reserved(&answer, to))
            }
            "Settle" => whole(&limiter.settle(&self::read(message)?)?),
            "Refund" => whole(&limiter.refund(self::read(message)?)?),
            "ShouldRateLimit" => self.envoy.decide(message, &caller, span).await,
            name => Err(Status::unimplemented(format!("{name} is not served"))),
        }
    }

    /// The answer to a batch, which holds part of the body budget until it is sent.
    async fn batch(&self, message: &[u8], caller: &Caller, mut permit: BodyPermit) -> Result<Told, Status> {
        let bytes = ANSWER_BYTES * check_message::count(message, check_message::REQUESTS).min(CHECKS_MAX);
        let begun = permit.begin_work(message.len(), bytes).await;
        begun.map_err(|refusal| refuse(&self.shared, &refusal.into(), None))?;
        let mut told = response_body::begun(bytes);
        self.limiter.batch(message, caller, &mut told).await?;
        response_body::sent(told, Some(permit))
    }

    /// The answer of a service as tonic makes them to one message, which holds part of the body budget until it is sent.
    async fn long(&self, method: &Method, asked: Asked<C>, mut permit: BodyPermit) -> Result<Told, Status> {
        let refuse = |refusal: BudgetRefusal| refuse(&self.shared, &refusal.into(), None);
        // What came is no body any more that its caller is waited for.
        permit.hold(0).map_err(refuse)?;
        let (head, body) = self.made(method, asked).await.into_parts();
        let bytes = body.collect().await?.to_bytes();
        // A refusal is all in the head.
        let answer = if bytes.is_empty() {
            Answer::Over
        } else {
            // It may be longer than the share of a connection.
            permit.hold(bytes.len().min(CONNECTION_BYTES)).map_err(refuse)?;
            permit.enter(PermitPhase::Answer);
            Answer::Message { bytes, _permit: Some(permit) }
        };
        Ok(Response::from_parts(head, answer))
    }

    /// By the services as tonic makes them.
    async fn made(&self, method: &Method, asked: Asked<C>) -> Told {
        let Ok(told) = match method.service {
            CONFIG => self.config.clone().call(asked).await,
            OWN_HEALTH => self.own_health.clone().call(asked).await,
            HEALTH => self.health.clone().call(asked).await,
            service => {
                let reflection = if service == REFLECTION { &self.reflection } else { &self.reflection_alpha };
                match reflection {
                    Some(reflection) => Ok(reflection(asked).await),
                    None => Ok(Status::internal("what is served could not be described").into_http()),
                }
            }
        };
        told.map(Answer::Made)
    }
}

/// Calls a reflection service, of either version.
fn reflecting<C, S>(server: S) -> Reflection<C>
where
    C: Clock,
    S: Service<Asked<C>, Response = Made, Error = Infallible> + Clone + 'static,
{
    Box::new(move |asked| {
        let mut server = server.clone();
        async move {
            let Ok(told) = server.call(asked).await;
            told
        }
        .boxed_local()
    })
}

fn read<Q: Message + Default>(message: &[u8]) -> Result<Q, Status> {
    Q::decode(message).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// A message of prost's as the answer of a call.
fn whole(message: &impl Message) -> Result<Told, Status> {
    response_body::whole(message.encoded_len(), |to| message.encode_raw(to))
}

/// What the calls of a connection share.
struct Calls<C> {
    door: Rc<Door<C>>,
    share: Arc<ConnectionShare>,
    turns: Rc<PeerTurns>,
    /// What ends the call that hyper executes next, if that call may be unpolled.
    unpolled: Cell<Option<(Revocation, UnreadSince)>>,
    /// True: the connection is to end.
    leaving: watch::Receiver<bool>,
    /// Has a call begun since the last look?
    moved: Cell<bool>,
}

impl<C> Calls<C> {
    /// Returns whether a call has begun since the last look, or a stream is open.
    fn were_used(&self) -> bool {
        self.moved.take() || self.share.streams() > 0
    }
}

impl<C: Clock> worker_threads::Door for Door<C> {
    async fn serve<S: AsyncRead + AsyncWrite + Unpin + 'static>(
        self: Rc<Self>,
        stream: S,
        peer: SocketAddr,
        _: Rc<ConnectionPermit>,
        turns: Rc<PeerTurns>,
        leave: Leave,
    ) {
        let periods = self.shared.periods;
        let (tell, leaving) = watch::channel(false);
        let calls = Rc::new(Calls {
            share: ConnectionShare::new(&self.shared.body_budget, peer.ip()),
            door: self,
            turns,
            unpolled: Cell::new(None),
            leaving,
            moved: Cell::new(false),
        });
        let service = service_fn(|asked: Request<Incoming>| {
            let calls = Rc::clone(&calls);
            let method = method(asked.uri().path());
            let mut permit = BodyPermit::new(&calls.share);
            let unread = method.filter(|method| method.may_be_unpolled()).map(|_| UnreadSince::default());
            calls.unpolled.set(unread.clone().map(|unread| (permit.revocation(), unread)));
            async move { Ok::<_, Infallible>(calls.door.handle(asked, method, permit, &calls, unread).await) }
        });
        let connection = http2::Builder::new(OnLane(Rc::clone(&calls)))
            .timer(TokioTimer::new())
            .keep_alive_interval(periods.ping)
            .keep_alive_timeout(periods.ping_answer)
            .max_concurrent_streams(CALLS_MAX)
            .max_send_buf_size(SEND_BYTES)
            .initial_stream_window_size(CALL_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .auto_date_header(false)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = &mut connection => ended,
            _ = leave => {
                connection.as_mut().graceful_shutdown();
                tell.send_replace(true);
                connection.await
            }
            () = worker_threads::idle(periods.idle, || calls.were_used()) => {
                connection.as_mut().graceful_shutdown();
                // Answers that nobody reads are dropped.
                timeout(periods.linger, connection).await.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%peer, %error, "a connection broke");
        }
    }
}

/// Runs the calls of a connection beside it, on the same thread.
struct OnLane<C>(Rc<Calls<C>>);

impl<C> Clone for OnLane<C> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<C: Clock, F: Future<Output = ()> + 'static> Executor<F> for OnLane<C> {
    /// Runs a call; hyper executes it as soon as the service was called.
    fn execute(&self, call: F) {
        let Some((revocation, unread)) = self.0.unpolled.take() else {
            drop(spawn_local(self.0.turns.run(call)));
            return;
        };
        let calls = Rc::clone(&self.0);
        drop(spawn_local(self.0.turns.run(async move {
            let mut call = pin!(call);
            let unseen = poll_fn(|context| {
                // A call that is polled after the revocation ends by itself, and says why.
                let was_revoked = revocation.poll_unseen(context).is_ready();
                match call.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(None),
                    Poll::Pending if was_revoked => revocation.poll_unseen(context).map(Some),
                    Poll::Pending => Poll::Pending,
                }
            });
            let refusal = tokio::select! {
                biased;
                refusal = unseen => refusal,
                () = unread.lasts(calls.door.shared.periods.unread_replies) => Some(BudgetRefusal::Overdue),
            };
            if let Some(refusal) = refusal {
                // Its caller reads no answer, so the stream is reset.
                drop(refuse(&calls.door.shared, &refusal.into(), None));
            }
        })));
    }
}

/// `None`: nothing of this name is here.
fn method(path: &str) -> Option<&'static Method> {
    let (service, name) = path.strip_prefix('/')?.split_once('/')?;
    let is_called = |method: &&Method| method.name == name && method.service == service;
    METHODS.iter().find(is_called).or_else(|| Some(&REFLECTION_ALPHA_INFO).filter(is_called))
}

/// Messages of protobuf, with or without parameters.
fn is_grpc(kind: &[u8]) -> bool {
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    [&b"application/grpc"[..], b"application/grpc+proto"].iter().any(|known| kind.eq_ignore_ascii_case(known))
}

/// Finds the method of a call that is read any further, and its caller: without a token, where the method takes none, or one that
/// the admin server judges.
fn admit<C: Clock>(
    shared: &Shared<C>,
    method: Option<&'static Method>,
    asked: &Request<Incoming>,
    peer: PeerNetwork,
) -> Result<(&'static Method, Caller), Status> {
    let headers = asked.headers();
    if !headers.get(CONTENT_TYPE).is_some_and(|kind| is_grpc(kind.as_bytes())) {
        let given = headers.get(CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()).into_owned());
        let problem = format!("`{}` is not gRPC; ask by a client of gRPC", given.unwrap_or_default());
        return Err(refuse(shared, &Error::Field { field: "content-type".to_owned(), problem }, None));
    }
    let Some(method) = method else {
        shared.metrics.refused(KIND.name, "not_found");
        let path: String = asked.uri().path().chars().take(PATH_CHARACTERS_MAX).collect();
        return Err(Status::unimplemented(format!(
            "nothing is called {path}; the services are {}",
            SERVICES.join(", ")
        )));
    };
    let bearer = || headers.get("authorization").and_then(|value| extract::bearer(value.as_bytes()));
    let own = || headers.get(TOKEN).map(http::HeaderValue::as_bytes);
    let tokens = || once_with(own).chain(once_with(bearer)).flatten();
    let caller = match method.access {
        Access::Nothing | Access::Admin => Ok(Caller::without_token(peer)),
        Access::Metrics if shared.may_scrape(tokens()) => Ok(Caller::without_token(peer)),
        Access::Metrics => Err(Error::Token(METRICS_TOKENS)),
        // Without that right it may still be one for the admin server.
        Access::Reset => {
            let caller = shared.caller_by_token(peer, tokens());
            let caller = caller.filter(|caller| caller.rights.permit(Right::Reset).is_ok());
            Ok(caller.unwrap_or_else(|| Caller::without_token(peer)))
        }
        Access::Token => shared.caller(peer, tokens()),
        Access::Right(right) => shared.caller(peer, tokens()).and_then(|caller| {
            caller.rights.permit(right)?;
            Ok(caller)
        }),
    };
    caller.map(|caller| (method, caller)).map_err(|error| refuse(shared, &error, None))
}
