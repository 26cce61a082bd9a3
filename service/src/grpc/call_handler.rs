//! Handles the calls of a worker thread: reads their messages, calls the service that each names, and counts them.

use std::{convert::Infallible, sync::Arc};

use actix_web::web::Bytes;
use futures_util::{FutureExt, future::LocalBoxFuture};
use http::{HeaderMap, Request, Response, header::AUTHORIZATION};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use prost::Message;
use tidegate::{
    clock::{Clock, SystemClock},
    time::Nanos,
};
use tonic::{Code, Status, codegen::Service};
use tonic_health::pb::health_server::HealthServer;

use super::{
    admin_client::AdminApiClient,
    check_request::REQUESTS,
    check_response::{put_reserved, put_response},
    check_stream::CheckStream,
    config::ConfigService,
    health::{HealthService, RateLimiterHealthService},
    limiter::LimiterService,
    methods::{BATCH, CONFIG, ENVOY, HEALTH, KIND, LIMITER, LONG, Method, MethodAccess, OWN_HEALTH, REFLECTION, Shape},
    request_body::{HEAD_BYTES, RequestBody},
    response_body::{self, GrpcResponse, ResponseBody},
    status::{reject, reject_message},
};
use crate::{
    envoy,
    protobuf::{
        generated::{
            DESCRIPTORS,
            tidegate::v1::{
                rate_limiter_config_server::RateLimiterConfigServer,
                rate_limiter_health_server::RateLimiterHealthServer,
            },
        },
        reader,
    },
    shared::{
        body_budget::{BODY_BYTES_MAX, BodyPermit, BudgetRefusal, CONNECTION_BYTES, PermitPhase},
        caller_shares::Caller,
        error::CHECKS_MAX,
        latency::{ListenerLatencies, WorkerLatencies},
        request_id_cache::CallKind,
        service_state::ServiceState,
        traces::RequestSpan,
    },
};

/// Bytes that most responses in a batch fit into.
const BATCH_RESPONSE_BYTES: usize = 200;
/// Bytes that most responses to Envoy fit into.
const ENVOY_RESPONSE_BYTES: usize = 256;
/// The largest message of the reflection service, which keeps a buffer for it as long as its stream is open.
const REFLECTION_REQUEST_BYTES_MAX: usize = 4 << 10;

/// A request to a service that tonic generated.
type TonicRequest<C> = Request<Either<Full<Bytes>, RequestBody<C>>>;
type TonicResponse = Response<tonic::body::Body>;
type Reflection<C> = Box<dyn Fn(TonicRequest<C>) -> LocalBoxFuture<'static, TonicResponse>>;

/// The services that the calls of a worker thread share.
pub(super) struct CallHandler<C> {
    pub(super) shared: Arc<ServiceState<C>>,
    latencies: Arc<WorkerLatencies>,
    pub(super) clock: SystemClock,
    limiter: Arc<LimiterService<C>>,
    config: RateLimiterConfigServer<ConfigService>,
    rate_limiter_health: RateLimiterHealthServer<RateLimiterHealthService<C>>,
    health: HealthServer<HealthService<C>>,
    /// The reflection service; `None` where the descriptors could not be read.
    reflection: Option<Reflection<C>>,
    reflection_alpha: Option<Reflection<C>>,
}

impl<C: Clock> CallHandler<C> {
    pub(super) fn new(shared: Arc<ServiceState<C>>, latencies: &ListenerLatencies, admin: Arc<AdminApiClient>) -> Self {
        let builder = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET)
        };
        Self {
            latencies: latencies.worker(),
            clock: SystemClock::new(),
            limiter: Arc::new(LimiterService(Arc::clone(&shared))),
            config: RateLimiterConfigServer::new(ConfigService(Arc::clone(&admin))),
            rate_limiter_health: RateLimiterHealthServer::new(RateLimiterHealthService {
                shared: Arc::clone(&shared),
                admin,
            }),
            health: HealthServer::new(HealthService(Arc::clone(&shared))),
            reflection: builder().build_v1().ok().map(reflection),
            reflection_alpha: builder().build_v1alpha().ok().map(reflection),
            shared,
        }
    }

    /// Counts a call that ended.
    pub(super) fn count_end(
        &self,
        route: &'static str,
        (code, is_counted): (Code, bool),
        took: u64,
        span: Option<RequestSpan>,
    ) {
        self.latencies.count(route, code as u16, took);
        let is_server_error = matches!(code, Code::Internal | Code::Unknown);
        if let Some(span) = span {
            span.end_call(code as u16, is_server_error);
        }
        if is_server_error {
            self.shared.health_monitor.count_failure();
        }
        if code == Code::InvalidArgument && !is_counted {
            self.shared.metrics.count_rejection(KIND.name, "bad_message");
        }
    }

    /// Begins the span of a call, if it is sampled. Probes and scrapes have none.
    pub(super) fn begin_span(&self, method: &Method, headers: &HeaderMap) -> Option<RequestSpan> {
        let is_traced = matches!(method.access, MethodAccess::Right(_) | MethodAccess::Admin | MethodAccess::Reset);
        let traces = self.shared.traces.as_ref().filter(|_| is_traced)?;
        traces.begin_call((method.service, method.name), &|name| headers.get(name)?.to_str().ok())
    }

    /// Calls the service of a method. Sets `read_at` to the time at which the request had all come.
    pub(super) async fn call(
        &self,
        method: &Method,
        caller: Caller,
        (request, permit): (Request<Incoming>, BodyPermit),
        span: Option<RequestSpan>,
        read_at: &mut Nanos,
    ) -> Result<GrpcResponse, Status> {
        if method.service == ENVOY || method.service == LIMITER {
            return self.decide(method, caller, (request.into_body(), permit), span, read_at).await;
        }
        let (mut head, body) = request.into_parts();
        // Calls of the admin server need this header. The other headers may take much memory while the caller is waited for.
        let is_for_admin = matches!(method.access, MethodAccess::Admin | MethodAccess::Reset);
        let authorization = head.headers.remove(AUTHORIZATION).filter(|_| is_for_admin);
        head.headers = authorization.into_iter().map(|value| (AUTHORIZATION, value)).collect();
        // The limit of calls of the admin server is by peer.
        head.extensions.insert(caller.peer);
        if let Some(span) = span {
            head.extensions.insert(span);
        }
        if method.is_reflection() {
            let body = RequestBody::stream(body, REFLECTION_REQUEST_BYTES_MAX, &self.shared, permit);
            return Ok(self.call_tonic(method, Request::from_parts(head, Either::Right(body))).await);
        }
        let read = RequestBody::read_message(body, &self.shared, permit).await;
        *read_at = self.clock.now().as_nanos();
        let (read, permit) = read.map_err(|error| reject(&self.shared, &error, None))?;
        let message = &read[HEAD_BYTES.min(read.len())..];
        // The token of a caller without one of the server may be valid at the admin server.
        if method.access == MethodAccess::Reset && caller.token.is_some() {
            drop(permit);
            return Ok(encoded(&self.limiter.reset(decode(message)?, &caller.rights).await?));
        }
        if LONG.contains(&method.name) {
            return self.call_long(method, Request::from_parts(head, Either::Left(Full::new(read))), permit).await;
        }
        // The request has come, so the caller is not waited for.
        drop(permit);
        Ok(self.call_tonic(method, Request::from_parts(head, Either::Left(Full::new(read)))).await)
    }

    /// Answers a call of the services that decide checks, which need nothing of the request but its body.
    async fn decide(
        &self,
        method: &Method,
        caller: Caller,
        (body, permit): (Incoming, BodyPermit),
        span: Option<RequestSpan>,
        read_at: &mut Nanos,
    ) -> Result<GrpcResponse, Status> {
        let limiter = &*self.limiter;
        if method.shape == Shape::Stream {
            let body = RequestBody::stream(body, BODY_BYTES_MAX, &self.shared, permit);
            return Ok(response_body::stream_response(CheckStream::new(Arc::clone(&self.limiter), caller, body)));
        }
        let read = RequestBody::read_message(body, &self.shared, permit).await;
        *read_at = self.clock.now().as_nanos();
        let (read, permit) = read.map_err(|error| reject(&self.shared, &error, None))?;
        let message = &read[HEAD_BYTES.min(read.len())..];
        if method.name == BATCH {
            return self.batch(message, &caller, permit).await;
        }
        // The request has come, so the caller is not waited for.
        drop(permit);
        let span = span.as_ref();
        match method.name {
            "CheckRateLimit" => {
                let outcome = limiter.decide(message, CallKind::Check, &caller, span).await?;
                Ok(response_body::message_response(0, |to| put_response(&outcome, to)))
            }
            "Reserve" => {
                let outcome = limiter.decide(message, CallKind::Reserve, &caller, span).await?;
                Ok(response_body::message_response(0, |to| put_reserved(&outcome, to)))
            }
            "Settle" => Ok(encoded(&limiter.settle(&decode(message)?)?)),
            "Refund" => Ok(encoded(&limiter.refund(decode(message)?)?)),
            "ShouldRateLimit" => self.should_rate_limit(message, &caller, span).await,
            name => Err(Status::unimplemented(format!("{name} is not served"))),
        }
    }

    /// Decides an Envoy request, and records the decision in the span of its call.
    async fn should_rate_limit(
        &self,
        message: &[u8],
        caller: &Caller,
        span: Option<&RequestSpan>,
    ) -> Result<GrpcResponse, Status> {
        let mut response = response_body::begin_response(ENVOY_RESPONSE_BYTES);
        let outcome = envoy::decide::decide(&self.shared.decider, message, caller, &mut response).await;
        let outcome = outcome.map_err(|error| reject_message(&self.shared, error, None))?;
        if let Some(span) = span {
            span.record(&outcome);
        }
        Ok(response_body::finish_response(response, None))
    }

    /// Decides a batch. Its response holds part of the body budget until it is sent.
    async fn batch(&self, message: &[u8], caller: &Caller, mut permit: BodyPermit) -> Result<GrpcResponse, Status> {
        let bytes = BATCH_RESPONSE_BYTES * reader::count(message, REQUESTS).min(CHECKS_MAX);
        let begun = permit.begin_work(message.len(), bytes).await;
        begun.map_err(|refusal| reject(&self.shared, &refusal.into(), None))?;
        let mut response = response_body::begin_response(bytes);
        self.limiter.batch(message, caller, &mut response).await?;
        Ok(response_body::finish_response(response, Some(permit)))
    }

    /// Calls a method of a generated service whose response may be long. The response holds part of the body budget
    /// until it is sent.
    async fn call_long(
        &self,
        method: &Method,
        request: TonicRequest<C>,
        mut permit: BodyPermit,
    ) -> Result<GrpcResponse, Status> {
        let reject = |refusal: BudgetRefusal| reject(&self.shared, &refusal.into(), None);
        // The request has come, so its body needs no part of the budget any more.
        permit.hold(0).map_err(reject)?;
        let (head, body) = self.call_tonic(method, request).await.into_parts();
        let bytes = body.collect().await?.to_bytes();
        // The whole status of an error is in the head.
        let response = if bytes.is_empty() {
            ResponseBody::Ended
        } else {
            // The response may be longer than the share of a connection.
            permit.hold(bytes.len().min(CONNECTION_BYTES)).map_err(reject)?;
            permit.enter(PermitPhase::Response);
            ResponseBody::Message { bytes, _permit: Some(permit) }
        };
        Ok(Response::from_parts(head, response))
    }

    async fn call_tonic(&self, method: &Method, request: TonicRequest<C>) -> GrpcResponse {
        let Ok(response) = match method.service {
            CONFIG => self.config.clone().call(request).await,
            OWN_HEALTH => self.rate_limiter_health.clone().call(request).await,
            HEALTH => self.health.clone().call(request).await,
            service => {
                let reflection = if service == REFLECTION { &self.reflection } else { &self.reflection_alpha };
                match reflection {
                    Some(reflection) => Ok(reflection(request).await),
                    None => Ok(Status::internal("what is served could not be described").into_http()),
                }
            }
        };
        response.map(ResponseBody::Tonic)
    }
}

/// Wraps a reflection service, of either version, as a function.
fn reflection<C, S>(server: S) -> Reflection<C>
where
    C: Clock,
    S: Service<TonicRequest<C>, Response = TonicResponse, Error = Infallible> + Clone + 'static,
{
    Box::new(move |request| {
        let mut server = server.clone();
        async move {
            let Ok(response) = server.call(request).await;
            response
        }
        .boxed_local()
    })
}

fn decode<M: Message + Default>(message: &[u8]) -> Result<M, Status> {
    M::decode(message).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// Returns the response with a message of prost.
fn encoded(message: &impl Message) -> GrpcResponse {
    response_body::message_response(message.encoded_len(), |to| message.encode_raw(to))
}
