//! Checks over HTTP: `POST /v1/check` and `/v1/check/batch`, reservations under `/v1/reserve`, `/v1/settle` and `/v1/refund`,
//! `/v1/authorize` for proxies; and `/healthz`, `/readyz` and `/metrics` for whoever runs the server.

use std::{
    io,
    net::TcpListener,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

mod authorize;

pub use actix_web::http::header::HeaderName;
use actix_web::{
    App, HttpRequest, HttpResponse, HttpServer,
    dev::{Service as _, ServiceRequest},
    error::InternalError,
    http::{
        ConnectionType, StatusCode,
        header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE},
    },
    web::{self, Data, Payload, ServiceConfig},
};
use futures_util::{
    FutureExt,
    future::{Either, ready},
};
use tidegate::{
    DEFAULT_DOMAIN, Degraded,
    clock::{Clock, SystemClock},
    policy::DoorSettings,
};
use tidegate_middleware::headers;
use tidegate_tls::Tls;
use tokio::task::JoinSet;

pub use self::authorize::Authorize;
use crate::{
    answer::{BatchBody, DecisionBody, Item},
    body,
    decider::{Answer, Decider},
    error::{Error, ErrorBody, HEAD_BYTES_MAX, Told},
    latency::{DoorLatencies, Latencies},
    metrics::{self, Metrics},
    reservations::ReservationId,
    retries::Call,
    room::Room,
    running::Running,
    tokens::Tokens,
    watch::{Source, Watch},
    wire,
};

/// Connections of all workers together.
pub const CONNECTIONS_MAX: usize = 10_000;
/// Time for the head of a connection's first request.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection may rest between requests.
const KEEP_ALIVE: Duration = Duration::from_mins(1);
/// How long the rest of a refused body is read and thrown away, so that its sender comes to read the answer.
const LINGER: Duration = Duration::from_secs(5);
/// How long a stop may take at most, with its delay. Whatever ends after the door has five seconds more.
const DRAIN: Duration = Duration::from_secs(25);
/// The longest delay of a stop: what is left is for the requests under way.
pub const DRAIN_DELAY_MAX: Duration = Duration::from_secs(20);

const CHECK: &str = "/v1/check";
const BATCH: &str = "/v1/check/batch";
const RESERVE: &str = "/v1/reserve";
const SETTLE: &str = "/v1/settle";
const REFUND: &str = "/v1/refund";
const AUTHORIZE: &str = "/v1/authorize";
const HEALTHZ: &str = "/healthz";
const READYZ: &str = "/readyz";
const METRICS: &str = "/metrics";
/// Every other path, in metrics.
const OTHER: &str = "other";
const ROUTES: [&str; 10] = [CHECK, BATCH, RESERVE, SETTLE, REFUND, AUTHORIZE, HEALTHZ, READYZ, METRICS, OTHER];
/// Those of one decision, whose answers tell how well the server is.
const DECIDING: [&str; 3] = [CHECK, RESERVE, AUTHORIZE];
/// What takes no token where the server asks for one: these paths as they stand here, and nothing else, however it is written.
const OPEN: [&str; 3] = [HEALTHZ, READYZ, METRICS];
/// For callers whose `Authorization` is somebody else's.
const TOKEN: HeaderName = HeaderName::from_static("x-tidegate-token");

/// The HTTP door of a decider.
#[derive(Debug)]
pub struct Http<C> {
    /// Where connections come in.
    pub listener: TcpListener,
    /// What decides.
    pub decider: Arc<Decider<C>>,
    /// How the requests are read that proxies ask about.
    pub authorize: Authorize,
    /// How many threads serve; one at least.
    pub workers: usize,
    /// How it listens, and to whom.
    pub settings: Settings,
}

/// How a door listens, and to whom.
#[derive(Debug, Default)]
pub struct Settings {
    /// The certificate of the listener; without one it speaks no TLS.
    pub tls: Option<Tls>,
    /// Tokens, one of which callers have to bring; without them everybody may ask.
    pub tokens: Option<Tokens>,
    /// How long it goes on when it is to stop, saying that it is not ready; at most [`DRAIN_DELAY_MAX`].
    pub drain_delay: Duration,
    /// Where policies come from, if that is another process.
    pub source: Option<Arc<dyn Source>>,
}

impl<C: Clock> Http<C> {
    /// The server. An error: it cannot listen.
    pub fn serve(self) -> io::Result<Running> {
        let Self { listener, decider, authorize, workers, settings } = self;
        let Settings { tls, tokens, drain_delay, source } = settings;
        let (room, is_leaving) = (Arc::new(Room::default()), Arc::new(AtomicBool::new(false)));
        let latencies = DoorLatencies::new("http", &ROUTES);
        let watch = Arc::new(Watch::new(Arc::clone(&decider), latencies.clone(), &DECIDING, source));
        let metrics = Arc::new(Metrics::new(&decider, &room, &latencies, &watch));
        let config = tls.as_ref().map(Tls::config).transpose()?;
        let mut beside = JoinSet::new();
        beside.spawn(Arc::clone(&watch).follow());
        if let Some(tokens) = &tokens {
            beside.spawn(tokens.clone().follow());
        }
        if let Some(tls) = tls {
            let watch = Arc::clone(&watch);
            beside.spawn(async move { tls.follow(&watch.certificate).await });
        }
        let leaving = Arc::clone(&is_leaving);
        let server = HttpServer::new(move || {
            // One for each worker, so that they do not count references to the same one.
            let door = Data::new(Door {
                decider: Arc::clone(&decider),
                metrics: Arc::clone(&metrics),
                room: Arc::clone(&room),
                authorize: authorize.clone(),
                watch: Arc::clone(&watch),
                latencies: latencies.worker(),
                clock: SystemClock::new(),
                tokens: tokens.clone(),
                is_leaving: Arc::clone(&leaving),
            });
            let outside = Data::clone(&door);
            App::new().app_data(door).configure(routes::<C>).wrap_fn(move |request, routes| {
                let (door, route) = (Data::clone(&outside), route(request.path()).map_or(OTHER, |(route, _)| route));
                let began = door.clock.now();
                let answer = match door.admit(&request) {
                    Err(error) => Either::Left(ready(Ok(Ok(request.into_response(door.answer(route, Err(error))))))),
                    // What a handler leaves behind is its own, and the parts of the door are safe: see `decider::caught`.
                    Ok(()) => Either::Right(AssertUnwindSafe(routes.call(request)).catch_unwind()),
                };
                async move {
                    let answer = answer.await.unwrap_or_else(|_| {
                        let answer = door.answer(route, Err(Error::Internal));
                        Err(InternalError::from_response("a panic", answer).into())
                    });
                    let status = match &answer {
                        Ok(answer) => answer.status(),
                        Err(error) => error.as_response_error().status_code(),
                    };
                    let took = door.clock.now().saturating_sub(began);
                    door.latencies.answered(route, status.as_u16(), took);
                    if status == StatusCode::INTERNAL_SERVER_ERROR {
                        door.watch.failed();
                    }
                    answer
                }
            })
        });
        let workers = workers.max(1);
        let server = server
            .workers(workers)
            .max_connections(CONNECTIONS_MAX.div_ceil(workers))
            .disable_signals()
            .shutdown_timeout(DRAIN.saturating_sub(drain_delay).as_secs())
            .tcp_nodelay(true)
            .keep_alive(KEEP_ALIVE)
            .client_request_timeout(HEAD_PATIENCE)
            .client_disconnect_timeout(LINGER);
        let server = match config {
            None => server.listen(listener)?,
            Some(config) => server.listen_rustls_0_23(listener, config)?,
        };
        Ok(Running { server: server.run(), beside, is_leaving })
    }
}

/// A path that is known, and its methods.
fn route(path: &str) -> Option<(&'static str, &'static str)> {
    const ASKED: [&str; 5] = [CHECK, BATCH, RESERVE, SETTLE, REFUND];
    const READ: [&str; 3] = [HEALTHZ, READYZ, METRICS];
    let among = |routes: &[&'static str]| routes.iter().copied().find(|route| *route == path);
    among(&ASKED)
        .map(|route| (route, "POST"))
        .or_else(|| among(&READ).map(|route| (route, "GET, HEAD")))
        .or_else(|| among(&[AUTHORIZE]).map(|route| (route, "any method")))
}

fn routes<C: Clock>(config: &mut ServiceConfig) {
    let wrong_method = || web::to(wrong_method::<C>);
    for (path, route) in [
        (CHECK, web::post().to(check::<C>)),
        (BATCH, web::post().to(batch::<C>)),
        (RESERVE, web::post().to(reserve::<C>)),
        (SETTLE, web::post().to(settle::<C>)),
        (REFUND, web::post().to(refund::<C>)),
    ] {
        config.service(web::resource(path).route(route).default_service(wrong_method()));
    }
    for (path, get, head) in [
        (HEALTHZ, web::get().to(healthz::<C>), web::head().to(healthz::<C>)),
        (READYZ, web::get().to(readyz::<C>), web::head().to(readyz::<C>)),
        (METRICS, web::get().to(metrics_text::<C>), web::head().to(metrics_text::<C>)),
    ] {
        config.service(web::resource(path).route(get).route(head).default_service(wrong_method()));
    }
    config.route(AUTHORIZE, web::to(authorize::authorize::<C>));
    config.default_service(web::to(wrong_path::<C>));
}

/// What the handlers share.
struct Door<C> {
    decider: Arc<Decider<C>>,
    metrics: Arc<Metrics>,
    room: Arc<Room>,
    authorize: Authorize,
    watch: Arc<Watch<C>>,
    latencies: Arc<Latencies>,
    clock: SystemClock,
    tokens: Option<Tokens>,
    is_leaving: Arc<AtomicBool>,
}

async fn check<C: Clock>(door: Data<Door<C>>, request: HttpRequest, payload: Payload) -> HttpResponse {
    door.decide(CHECK, Call::Check, body::read(&request, payload, &door.room).await)
}

async fn reserve<C: Clock>(door: Data<Door<C>>, request: HttpRequest, payload: Payload) -> HttpResponse {
    door.decide(RESERVE, Call::Reserve, body::read(&request, payload, &door.room).await)
}

async fn batch<C: Clock>(door: Data<Door<C>>, request: HttpRequest, payload: Payload) -> HttpResponse {
    let answer = body::read(&request, payload, &door.room).await.and_then(|body| {
        let checks = wire::batch(&body)?;
        let decide = |(place, check)| match wire::decide(&door.decider, Call::Check, check) {
            Ok((answer, _)) => Item::Decision(DecisionBody::from(&answer)),
            Err(error) => {
                let told = door.refuse(BATCH, &error).within(&format!("checks/{place}"));
                Item::Error(ErrorBody { error: told })
            }
        };
        Ok(HttpResponse::Ok().json(BatchBody { decisions: checks.into_iter().enumerate().map(decide).collect() }))
    });
    door.answer(BATCH, answer)
}

async fn settle<C: Clock>(door: Data<Door<C>>, request: HttpRequest, payload: Payload) -> HttpResponse {
    door.settle(SETTLE, wire::settlement, body::read(&request, payload, &door.room).await)
}

async fn refund<C: Clock>(door: Data<Door<C>>, request: HttpRequest, payload: Payload) -> HttpResponse {
    door.settle(REFUND, wire::refund, body::read(&request, payload, &door.room).await)
}

/// Alive; and what is wrong, if anything is.
async fn healthz<C: Clock>(door: Data<Door<C>>) -> HttpResponse {
    let faults = door.watch.faults();
    let answer = if faults.is_empty() {
        text(StatusCode::OK, "ok\n")
    } else {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        text(StatusCode::OK, format!("degraded: {}\n", faults.join("; ")))
    };
    door.answer(HEALTHZ, Ok(answer))
}

/// Has a policy to decide by.
async fn readyz<C: Clock>(door: Data<Door<C>>) -> HttpResponse {
    let answer = match door.decider.engine().version() {
        _ if door.is_leaving.load(Ordering::Relaxed) => {
            text(StatusCode::SERVICE_UNAVAILABLE, "stopping: send requests elsewhere\n")
        }
        0 => text(StatusCode::SERVICE_UNAVAILABLE, "no policy has been published yet: everything would be allowed\n"),
        _ => text(StatusCode::OK, "ready\n"),
    };
    door.answer(READYZ, Ok(answer))
}

async fn metrics_text<C: Clock>(door: Data<Door<C>>) -> HttpResponse {
    let answer = match door.metrics.text() {
        Ok(text) => HttpResponse::Ok().insert_header((CONTENT_TYPE, metrics::MEDIA_TYPE)).body(text),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written\n"),
    };
    door.answer(METRICS, Ok(answer))
}

async fn wrong_method<C: Clock>(door: Data<Door<C>>, request: HttpRequest) -> HttpResponse {
    let Some((route, allowed)) = route(request.path()) else { return wrong_path(door, request).await };
    let mut answer = door.answer(route, Err(Error::Method { given: request.method().to_string(), allowed }));
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

async fn wrong_path<C: Clock>(door: Data<Door<C>>, request: HttpRequest) -> HttpResponse {
    door.answer(OTHER, Err(Error::Path(request.path().to_owned())))
}

impl<C: Clock> Door<C> {
    /// Is it a request that is read any further?
    fn admit(&self, request: &ServiceRequest) -> Result<(), Error> {
        let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
        let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
        // What proxies ask about is written by end users: they are not to be told of it, and nobody is to pass by it.
        if request.path() != AUTHORIZE && target + headers.sum::<usize>() > HEAD_BYTES_MAX {
            return Err(Error::HeadTooLarge);
        }
        let is_known = |tokens: &Tokens| {
            let bearer = request.headers().get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
            let own = request.headers().get(TOKEN).map(HeaderValue::as_bytes);
            own.into_iter().chain(bearer).any(|token| tokens.has(token))
        };
        match &self.tokens {
            Some(tokens) if !OPEN.contains(&request.path()) && !is_known(tokens) => Err(Error::Token),
            _ => Ok(()),
        }
    }

    /// The answer to a body that is a check.
    fn decide(&self, route: &'static str, call: Call, body: Result<String, Error>) -> HttpResponse {
        let answer = match body {
            // Which domain it names was not read.
            Err(Error::Overload) => {
                let answer = self.decider.undecided(DEFAULT_DOMAIN, Degraded::Overload);
                let mut answer = decision(&answer, self.decider.engine().door_settings(DEFAULT_DOMAIN));
                answer.head_mut().set_connection_type(ConnectionType::Close);
                Ok(answer)
            }
            body => body.and_then(|body| {
                let (answer, settings) = wire::decide(&self.decider, call, &body)?;
                Ok(decision(&answer, settings))
            }),
        };
        self.answer(route, answer)
    }

    /// The answer to a body that settles a reservation.
    fn settle(
        &self,
        route: &'static str,
        read: impl FnOnce(&str) -> Result<(ReservationId, u64), Error>,
        body: Result<String, Error>,
    ) -> HttpResponse {
        let answer = body.and_then(|body| {
            let (reservation, actual) = read(&body)?;
            self.decider.settle(reservation, actual)?;
            Ok(HttpResponse::NoContent().finish())
        });
        self.answer(route, answer)
    }

    /// What goes out.
    fn answer(&self, route: &'static str, outcome: Result<HttpResponse, Error>) -> HttpResponse {
        outcome.unwrap_or_else(|error| {
            // What is left of the body would be taken for the next request.
            let broken = matches!(
                error,
                Error::TooLarge
                    | Error::TooSlow
                    | Error::BrokenOff
                    | Error::Overload
                    | Error::HeadTooLarge
                    | Error::Token
            );
            let told = self.refuse(route, &error);
            let mut answer = HttpResponse::build(told.status);
            if broken {
                answer.force_close();
            }
            if told.status == StatusCode::UNAUTHORIZED {
                answer.insert_header((WWW_AUTHENTICATE, "Bearer"));
            }
            answer.json(ErrorBody { error: told })
        })
    }

    fn refuse(&self, route: &'static str, error: &Error) -> Told {
        let told = error.told();
        tracing::debug!(route, code = told.code, field = told.field, "refused");
        self.metrics.refused(told.code);
        told
    }
}

/// The token of an `Authorization` (RFC 6750).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// A decision: its status, body and headers.
fn decision(answer: &Answer<'_>, settings: DoorSettings) -> HttpResponse {
    let status = if answer.is_allowed { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
    let mut told = HttpResponse::build(status).json(DecisionBody::from(answer));
    set_headers(&mut told, answer, settings);
    told
}

fn set_headers(told: &mut HttpResponse, answer: &Answer<'_>, settings: DoorSettings) {
    let of_closed = || (!answer.is_allowed).then(|| (headers::RETRY_AFTER, Answer::CLOSED_WAIT.as_secs().to_string()));
    let each =
        answer.decision.as_ref().map_or_else(|| of_closed().into_iter().collect(), |it| headers::of(it, settings));
    for (name, value) in each {
        // Printable ASCII is a value always.
        if let Ok(value) = HeaderValue::try_from(value) {
            told.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
}

fn text(status: StatusCode, text: impl Into<String>) -> HttpResponse {
    HttpResponse::build(status).insert_header((CONTENT_TYPE, "text/plain; charset=utf-8")).body(text.into())
}
