//! HTTP/1.1 on a listener whose connections are capped, and whose requests' heads come in time.

use std::{
    fmt, io,
    net::{self, SocketAddr},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use actix_http::{
    Extensions, HttpService, KeepAlive, Protocol, Request, Response,
    body::{BodySize, BoxBody, MessageBody},
    error::DispatchError,
};
use actix_service::{
    IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt as _, apply_fn_factory, fn_service, map_config,
};
use actix_web::{
    dev::{AppConfig, Server},
    web::Bytes,
};
use futures_util::{
    TryFutureExt as _,
    future::{Either, ready},
};
use rustls::ServerConfig;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsAcceptor;

use crate::{
    connections::{ConnectionLimiter, ConnectionPermit, refuse},
    timed_stream::{ByteStream, RequestGuard, RequestTracker, TimedStream},
    turns::Turns,
    write_deadline::WriteDeadline,
};

/// Connections beyond the cap of a listener that its threads have at once, so as to refuse them. More wait.
const REFUSALS_MAX: usize = 1_000;
/// What a peer is told whose connection is refused, unless it speaks TLS.
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
    content-type: text/plain; charset=utf-8\r\ncontent-length: 21\r\n\r\ntoo many connections\n";

/// Bytes of an answer that are handed out at a time.
const PIECE_BYTES: usize = 16 << 10;

/// How long a listener waits for its peers. `request_head` and `linger` are a second at least, since actix-http measures them
/// by a clock that is half a second slow.
#[derive(Clone, Copy, Debug)]
pub struct HttpPeriods {
    /// How long a connection may rest, without a request and without reading an answer, before it is closed.
    pub idle: Duration,
    /// How long a TLS handshake may take.
    pub handshake: Duration,
    /// How long the head of a request may take: of the first one from the beginning of the connection, of later ones from
    /// their first byte.
    pub request_head: Duration,
    /// How long a peer may read nothing of what waits for it.
    pub unread: Duration,
    /// How long a connection that is being closed has for the rest of a request.
    pub linger: Duration,
}

/// A listener, and how it is served.
#[derive(Debug)]
pub struct HttpListener {
    /// Where connections come in.
    pub socket: net::TcpListener,
    /// The certificate; without one it speaks no TLS.
    pub tls: Option<ServerConfig>,
    /// Counts the connections.
    pub connections: Arc<ConnectionLimiter>,
    /// How many threads answer; one at least.
    pub workers: usize,
    /// How long it waits for its peers.
    pub periods: HttpPeriods,
    /// How long requests under way may take when it stops: whole seconds.
    pub drain: Duration,
}

impl HttpListener {
    /// Serves what `factory` makes for each thread. `on_connect` is called for each connection with what its requests can read
    /// as the data of their connection. The connections of a peer share [its turns](crate::PeerTurns).
    pub fn serve<F, I, S, B, C>(self, factory: F, on_connect: C) -> io::Result<Server>
    where
        F: Fn() -> I + Clone + Send + 'static,
        I: IntoServiceFactory<S, Request>,
        S: ServiceFactory<Request, Config = AppConfig> + 'static,
        S::Error: Into<Response<BoxBody>> + 'static,
        S::InitError: fmt::Debug,
        S::Response: Into<Response<B>> + 'static,
        S::Service: 'static,
        <S::Service as Service<Request>>::Future: 'static,
        B: MessageBody + 'static,
        C: Fn(&mut Extensions) + Clone + Send + 'static,
    {
        let Self { socket, tls, connections, workers, periods, drain } = self;
        let tls = tls.map(|mut config| {
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            TlsAcceptor::from(Arc::new(config))
        });
        let server = Server::build()
            .workers(workers)
            // Of each thread, which refuses those that it gets beyond a cap.
            .max_concurrent_connections((connections.caps().listener + REFUSALS_MAX).div_ceil(workers))
            .disable_signals()
            .shutdown_timeout(drain.as_secs());
        let stopping = server.graceful_shutdown_signal();
        let server = server.listen("http", socket, move || {
            let (connections, tls) = (Arc::clone(&connections), tls.clone());
            let (stopping, on_connect) = (stopping.clone(), on_connect.clone());
            let turns = Turns::new();
            let refusal = if tls.is_none() { REFUSAL } else { &[] };
            let accepting = fn_service(move |admitted: Admitted| accept(admitted, tls.clone(), periods));
            // No service asks for the address or the name of its server.
            let service = map_config::<I, S, Request, _, ()>(factory(), |()| AppConfig::default());
            let timed = apply_fn_factory(service, |mut request: Request, service: &S::Service| {
                let guard = request.conn_data::<Rc<RequestTracker>>().map(RequestTracker::begin);
                if let Some(guard) = &guard {
                    guard.follow_body(&mut request);
                }
                service.call(request).map_ok(|answer| {
                    let answer: Response<B> = answer.into();
                    answer.map_body(|_, body| TimedBody { body: body.boxed(), rest: Bytes::new(), _guard: guard })
                })
            });
            let http = HttpService::<TimedStream, _, TimedBody>::build()
                // The stream measures how long a connection may rest.
                .keep_alive(KeepAlive::Os)
                .client_request_timeout(periods.request_head)
                .client_disconnect_timeout(periods.linger)
                .graceful_shutdown_signal(move || {
                    let stopping = stopping.clone();
                    async move { stopping.notified().await }
                })
                .on_connect_ext(move |stream: &TimedStream, data: &mut Extensions| {
                    data.insert(Rc::clone(stream.requests()));
                    on_connect(data);
                })
                .finish::<_, TimedBody>(timed);
            // A connection is counted, or refused, before it waits for a turn.
            apply_fn_factory(accepting.and_then(http), move |socket: TcpStream, service: &_| {
                match admit(socket, &connections, refusal) {
                    Ok(admitted) => {
                        let turns = turns.peer_turns(admitted.1.ip().into());
                        Either::Left(turns.run(Service::call(service, admitted)))
                    }
                    Err(error) => Either::Right(ready(Err(error))),
                }
            })
        })?;
        Ok(server.run())
    }
}

/// A connection that is counted, and its peer.
type Admitted = (TcpStream, SocketAddr, ConnectionPermit);

/// Counts a connection. An error: it was refused, or is gone.
fn admit(socket: TcpStream, connections: &Arc<ConnectionLimiter>, refusal: &[u8]) -> Result<Admitted, DispatchError> {
    let peer = socket.peer_addr()?;
    match connections.admit(peer.ip()) {
        Ok(permit) => Ok((socket, peer, permit)),
        Err(refused) => {
            refuse(socket.into_std()?, refusal);
            Err(io::Error::other(refused.name()).into())
        }
    }
}

/// Begins the TLS of a connection, if there is any.
async fn accept(
    (socket, peer, permit): Admitted,
    tls: Option<TlsAcceptor>,
    periods: HttpPeriods,
) -> Result<(TimedStream, Protocol, Option<SocketAddr>), DispatchError> {
    socket.set_nodelay(true)?;
    let socket = WriteDeadline::new(socket, periods.unread);
    let stream: Box<dyn ByteStream> = match tls {
        None => Box::new(socket),
        Some(tls) => Box::new(timeout(periods.handshake, tls.accept(socket)).await.map_err(io::Error::from)??),
    };
    Ok((TimedStream::new(stream, permit, periods), Protocol::Http1, Some(peer)))
}

/// The body of an answer, to a request that is being answered until it is dropped. It is handed out in pieces: actix-http copies
/// what it is handed, and asks for more as long as the copies have less than 32 KiB.
struct TimedBody {
    body: BoxBody,
    /// What is left of the part that the body gave last.
    rest: Bytes,
    _guard: Option<RequestGuard>,
}

impl MessageBody for TimedBody {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_next(context)) {
                Some(Ok(part)) => self.rest = part,
                end => return Poll::Ready(end),
            }
        }
        let bytes = self.rest.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(self.rest.split_to(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn a_body_is_handed_out_in_pieces() {
        let body = BoxBody::new(vec![7_u8; 2 * PIECE_BYTES - 1]);
        let mut body = TimedBody { body, rest: Bytes::new(), _guard: None };
        assert_eq!(body.size(), BodySize::Sized(2 * PIECE_BYTES as u64 - 1));
        let mut pieces = Vec::new();
        while let Some(piece) = poll_fn(|context| Pin::new(&mut body).poll_next(context)).await {
            pieces.push(piece.expect("it does not fail").len());
        }
        assert_eq!(pieces, [PIECE_BYTES, PIECE_BYTES - 1]);
    }
}
