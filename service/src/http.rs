//! Checks over HTTP: `POST /v1/check` and `/v1/check/batch`; and `/healthz`, `/readyz` and `/metrics` for whoever runs
//! the server.

use std::{io, net::TcpListener, sync::Arc, time::Duration};

pub use actix_web::dev::Server;
use actix_web::{
    App, HttpRequest, HttpResponse, HttpServer,
    http::{
        StatusCode,
        header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue},
    },
    web::{self, Data, Payload, ServiceConfig},
};
use tidegate::{Engine, clock::Clock};
use tidegate_middleware::headers;

use crate::{
    body,
    error::{Error, ErrorBody, Told},
    metrics::{self, Metrics},
    wire::{self, BatchBody, DecisionBody, Item},
};

/// Connections of each worker.
pub const CONNECTIONS_MAX: usize = 25_600;
/// Time for the head of a connection's first request.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// How long a connection may rest between requests: longer than the minute that balancers keep theirs.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// How long the rest of a refused body is read and thrown away, so that its sender comes to read the answer.
const LINGER: Duration = Duration::from_secs(5);
/// How long a graceful stop waits for requests under way.
const SHUTDOWN_SECONDS: u64 = 10;

const CHECK: &str = "/v1/check";
const BATCH: &str = "/v1/check/batch";
const HEALTHZ: &str = "/healthz";
const READYZ: &str = "/readyz";
const METRICS: &str = "/metrics";
/// Every other path, in metrics.
const OTHER: &str = "other";

/// The HTTP door of an engine.
#[derive(Debug)]
pub struct Http<C> {
    /// Where connections come in.
    pub listener: TcpListener,
    /// What decides.
    pub engine: Arc<Engine<C>>,
    /// How many threads serve; one at least.
    pub workers: usize,
}

impl<C: Clock> Http<C> {
    /// The server, which runs while it is awaited, on a runtime of tokio. It leaves signals to the process: stop it through
    /// its handle.
    pub fn serve(self) -> io::Result<Server> {
        let Self { listener, engine, workers } = self;
        let metrics = Arc::new(Metrics::new(Arc::clone(&engine)));
        let server = HttpServer::new(move || {
            // One for each worker, so that they do not count references to the same one.
            let door = Data::new(Door { engine: Arc::clone(&engine), metrics: Arc::clone(&metrics) });
            App::new().app_data(door).configure(routes::<C>)
        });
        let server = server
            .workers(workers.max(1))
            .max_connections(CONNECTIONS_MAX)
            .disable_signals()
            .shutdown_timeout(SHUTDOWN_SECONDS)
            .tcp_nodelay(true)
            .keep_alive(KEEP_ALIVE)
            .client_request_timeout(HEAD_PATIENCE)
            .client_disconnect_timeout(LINGER);
        Ok(server.listen(listener)?.run())
    }
}

fn routes<C: Clock>(config: &mut ServiceConfig) {
    let wrong_method = || web::to(wrong_method::<C>);
    for (path, route) in [(CHECK, web::post().to(check::<C>)), (BATCH, web::post().to(batch::<C>))] {
        config.service(web::resource(path).route(route).default_service(wrong_method()));
    }
    for (path, get, head) in [
        (HEALTHZ, web::get().to(healthz::<C>), web::head().to(healthz::<C>)),
        (READYZ, web::get().to(readyz::<C>), web::head().to(readyz::<C>)),
        (METRICS, web::get().to(metrics_text::<C>), web::head().to(metrics_text::<C>)),
    ] {
        config.service(web::resource(path).route(get).route(head).default_service(wrong_method()));
    }
    config.default_service(web::to(wrong_path::<C>));
}

/// What the handlers share.
struct Door<C> {
    engine: Arc<Engine<C>>,
    metrics: Arc<Metrics>,
}

async fn check<C: Clock>(door: Data<Door<C>>, request: HttpRequest, payload: Payload) -> HttpResponse {
    let answer = body::read(&request, payload).await.and_then(|body| {
        let (decision, settings) = wire::decide(&door.engine, &body)?;
        let status = if decision.is_allowed() { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
        let mut answer = HttpResponse::build(status).json(DecisionBody::from(&decision));
        for (name, value) in headers::of(&decision, settings) {
            // Printable ASCII is a value always.
            if let Ok(value) = HeaderValue::try_from(value) {
                answer.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        Ok(answer)
    });
    door.answer(CHECK, answer)
}

async fn batch<C: Clock>(door: Data<Door<C>>, request: HttpRequest, payload: Payload) -> HttpResponse {
    let answer = body::read(&request, payload).await.and_then(|body| {
        let checks = wire::batch(&body)?;
        let decide = |(place, check)| match wire::decide(&door.engine, check) {
            Ok((decision, _)) => Item::Decision(DecisionBody::from(&decision)),
            Err(error) => {
                let told = door.refuse(BATCH, error).within(&format!("checks/{place}"));
                Item::Error(ErrorBody { error: told })
            }
        };
        Ok(HttpResponse::Ok().json(BatchBody { decisions: checks.into_iter().enumerate().map(decide).collect() }))
    });
    door.answer(BATCH, answer)
}

/// Alive.
async fn healthz<C: Clock>(door: Data<Door<C>>) -> HttpResponse {
    door.answer(HEALTHZ, Ok(text(StatusCode::OK, "ok\n")))
}

/// Has a policy to decide by.
async fn readyz<C: Clock>(door: Data<Door<C>>) -> HttpResponse {
    let answer = match door.engine.version() {
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
    let (route, allowed) = match request.path() {
        CHECK => (CHECK, "POST"),
        BATCH => (BATCH, "POST"),
        HEALTHZ => (HEALTHZ, "GET, HEAD"),
        READYZ => (READYZ, "GET, HEAD"),
        METRICS => (METRICS, "GET, HEAD"),
        _ => return wrong_path(door, request).await,
    };
    let mut answer = door.answer(route, Err(Error::Method { given: request.method().to_string(), allowed }));
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

async fn wrong_path<C: Clock>(door: Data<Door<C>>, request: HttpRequest) -> HttpResponse {
    door.answer(OTHER, Err(Error::Path(request.path().to_owned())))
}

impl<C> Door<C> {
    /// What goes out, counted.
    fn answer(&self, route: &'static str, outcome: Result<HttpResponse, Error>) -> HttpResponse {
        let answer = outcome.unwrap_or_else(|error| {
            // What is left of the body would be taken for the next request.
            let broken = matches!(error, Error::TooLarge | Error::TooSlow | Error::BrokenOff);
            let told = self.refuse(route, error);
            let mut answer = HttpResponse::build(told.status);
            if broken {
                answer.force_close();
            }
            answer.json(ErrorBody { error: told })
        });
        self.metrics.answered(route, answer.status());
        answer
    }

    fn refuse(&self, route: &'static str, error: Error) -> Told {
        let told = error.told();
        tracing::debug!(route, code = told.code, field = told.field, "refused");
        self.metrics.refused(told.code);
        told
    }
}

fn text(status: StatusCode, text: &'static str) -> HttpResponse {
    HttpResponse::build(status).insert_header((CONTENT_TYPE, "text/plain; charset=utf-8")).body(text)
}
