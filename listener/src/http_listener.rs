//! HTTP/1.1 listener with capped connections, deadlines for requests, and fair turns of peers.

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
    request_tracker::{RequestGuard, RequestTracker},
    timed_stream::{ByteStream, TimedStream},
    turns::Turns,
    write_deadline::WriteDeadline,
};

/// The number of connections beyond the cap that the threads of a listener accept at once in order to reject them. More wait.
const REFUSALS_MAX: usize = 1_000;
/// The response to a rejected connection, unless the listener has TLS.
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
    content-type: text/plain; charset=utf-8\r\ncontent-length: 21\r\n\r\ntoo many connections\n";

/// The number of bytes of a response body that are handed out at a time.
const PIECE_BYTES: usize = 16 << 10;

/// The deadlines of a listener's peers. `request_head` and `linger` are a second at least, since actix-http measures them by a
/// clock that is half a second slow.
#[derive(Clone, Copy, Debug)]
pub struct HttpPeriods {
    /// The longest time for which a connection may be idle, without a request and without reading an answer.
    pub idle: Duration,
    /// The longest duration of a TLS handshake.
    pub handshake: Duration,
    /// The longest duration of the head of a request: of the first one from the start of the connection, of later ones from their
    /// first byte.
    pub request_head: Duration,
    /// The longest time for which a peer may leave a pending write unread.
    pub unread: Duration,
    /// The time that a closing connection has for the rest of a request.
    pub linger: Duration,
}

/// A listening socket with the settings of its server.
#[derive(Debug)]
pub struct HttpListener {
    /// The listening socket.
    pub socket: net::TcpListener,
    /// The TLS settings; `None` for a listener without TLS.
    pub tls: Option<ServerConfig>,
    /// The limiter of the connections.
    pub connections: Arc<ConnectionLimiter>,
    /// The number of worker threads; one at least.
    pub workers: usize,
    /// The deadlines of peers.
    pub periods: HttpPeriods,
    /// The time that open requests have when the server stops, in whole seconds.
    pub drain: Duration,
}

impl HttpListener {
    /// Starts a server whose threads each have a service that `factory` makes. `on_connect` is called for each connection with the
    /// data that its requests can read. The connections of a peer share [its turns](crate::PeerTurns).
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
            // The limit of each thread, which rejects the connections beyond a cap.
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
            // No service uses the address or the name of its server.
            let service = map_config::<I, S, Request, _, ()>(factory(), |()| AppConfig::default());
            let timed = apply_fn_factory(service, |request: Request, service: &S::Service| {
                call_tracked::<_, B>(request, service)
            });
            let http = HttpService::<TimedStream, _, TimedBody>::build()
                // The stream measures how long a connection is idle.
                .keep_alive(KeepAlive::Os)
                .client_request_timeout(periods.request_head)
                .client_disconnect_timeout(periods.linger)
                .graceful_shutdown_signal(move || {
                    let stopping = stopping.clone();
                    async move { stopping.notified().await }
                })
                .on_connect_ext(move |stream: &TimedStream, data: &mut Extensions| {
                    data.insert(Rc::clone(&stream.requests));
                    on_connect(data);
                })
                .finish::<_, TimedBody>(timed);
            // A connection is counted or rejected before it waits for a turn.
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

/// Calls a service with a request, which the tracker of its connection follows until the response body is dropped.
fn call_tracked<S, B>(
    mut request: Request,
    service: &S,
) -> impl Future<Output = Result<Response<TimedBody>, S::Error>> + use<S, B>
where
    S: Service<Request>,
    S::Response: Into<Response<B>>,
    B: MessageBody + 'static,
{
    let guard = request.conn_data::<Rc<RequestTracker>>().map(RequestTracker::begin);
    if let Some(guard) = &guard {
        guard.follow_body(&mut request);
    }
    service.call(request).map_ok(|response| {
        let response: Response<B> = response.into();
        response.map_body(|_, body| TimedBody { body: body.boxed(), rest: Bytes::new(), _guard: guard })
    })
}

/// A connection that is counted, with its peer.
type Admitted = (TcpStream, SocketAddr, ConnectionPermit);

/// Counts a connection. Fails if the connection was rejected, or has ended.
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

/// Makes the TLS handshake of a connection if the listener has TLS, and returns its stream.
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

/// The body of a response; its request counts as being answered until the body is dropped. It is handed out in pieces, because
/// actix-http copies each piece, and takes more as long as the copies have less than 32 KiB.
struct TimedBody {
    body: BoxBody,
    /// The rest of the last part of the body.
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
            pieces.push(piece.expect("a piece").len());
        }
        assert_eq!(pieces, [PIECE_BYTES, PIECE_BYTES - 1]);
    }
}
