//! Serves a connection of the gRPC listener by hyper's HTTP/2: runs its calls, ends those that are not polled, and ends
//! the connection.

use std::{
    cell::Cell,
    convert::Infallible,
    future::{Future, poll_fn},
    net::SocketAddr,
    panic::AssertUnwindSafe,
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::Poll,
};

use futures_util::FutureExt;
use http::Request;
use hyper::{body::Incoming, rt::Executor, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tidegate::clock::Clock;
use tidegate_listener::{ConnectionPermit, PeerTurns};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    task::spawn_local,
    time::timeout,
};
use tonic::Code;

use super::{
    admission::admit,
    call_handler::CallHandler,
    methods::{Method, OTHER, Shape, method},
    response_body::{GrpcResponse, ResponseBody, UnreadSince, code, stream_body},
    status::{CODE, reject},
};
use crate::shared::{
    body_budget::{BodyPermit, BudgetRefusal, ConnectionShare, Revocation},
    error::{Error, HEAD_BYTES_MAX, REFLECTION_STREAMS_MAX},
    worker_threads::{ConnectionHandler, StopSignal, idle},
};

/// The most open calls of a connection.
const CALLS_MAX: u32 = 128;
/// The flow-control window of one call: the bytes that may come before they are read.
const CALL_WINDOW_BYTES: u32 = 128 << 10;
/// The flow-control window of one connection.
const CONNECTION_WINDOW_BYTES: u32 = 256 << 10;

/// Bytes of one stream that hyper buffers before they are sent.
const SEND_BYTES: usize = 16 << 10;
/// The state that the calls of a connection share.
struct Calls<C> {
    handler: Rc<CallHandler<C>>,
    share: Arc<ConnectionShare>,
    turns: Rc<PeerTurns>,
    /// The means to end the call that hyper executes next, if that call may be unpolled.
    unpolled: Cell<Option<(Revocation, UnreadSince)>>,
    /// Becomes true when the connection is to end.
    stopping: watch::Receiver<bool>,
    /// Whether a call has begun or ended since the last poll for idleness.
    was_used: Cell<bool>,
}

impl<C> Calls<C> {
    /// Returns whether a call has begun or ended since the last call of this function, or a stream is open.
    fn were_used(&self) -> bool {
        self.was_used.take() || self.share.streams() > 0
    }
}

impl<C: Clock> ConnectionHandler for CallHandler<C> {
    async fn serve<S: AsyncRead + AsyncWrite + Unpin + 'static>(
        self: Rc<Self>,
        stream: S,
        peer: SocketAddr,
        _: Rc<ConnectionPermit>,
        turns: Rc<PeerTurns>,
        stop: StopSignal,
    ) {
        let timeouts = self.shared.timeouts;
        let (stop_streams, stopping) = watch::channel(false);
        let calls = Rc::new(Calls {
            share: ConnectionShare::new(&self.shared.body_budget, peer.ip()),
            handler: self,
            turns,
            unpolled: Cell::new(None),
            stopping,
            was_used: Cell::new(false),
        });
        let service = service_fn(|request: Request<Incoming>| {
            let calls = Rc::clone(&calls);
            let method = method(request.uri().path());
            let mut permit = BodyPermit::new(&calls.share);
            let unread = method.filter(|method| method.may_be_unpolled()).map(|_| UnreadSince::default());
            calls.unpolled.set(unread.clone().map(|unread| (permit.revocation(), unread)));
            async move { Ok::<_, Infallible>(answer(&calls, request, method, permit, unread).await) }
        });
        let connection = http2::Builder::new(CallExecutor(Rc::clone(&calls)))
            .timer(TokioTimer::new())
            .keep_alive_interval(timeouts.ping)
            .keep_alive_timeout(timeouts.ping_answer)
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
            _ = stop => {
                connection.as_mut().graceful_shutdown();
                stop_streams.send_replace(true);
                connection.await
            }
            () = idle(timeouts.idle, || calls.were_used()) => {
                connection.as_mut().graceful_shutdown();
                // Responses that the peer does not read are dropped.
                timeout(timeouts.linger, connection).await.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%peer, %error, "a connection broke");
        }
    }
}

/// Runs the calls of a connection as tasks of the same thread.
struct CallExecutor<C>(Rc<Calls<C>>);

impl<C> Clone for CallExecutor<C> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<C: Clock, F: Future<Output = ()> + 'static> Executor<F> for CallExecutor<C> {
    /// Runs a call. Hyper executes it right after it has called the service.
    fn execute(&self, call: F) {
        let Some((revocation, unread)) = self.0.unpolled.take() else {
            drop(spawn_local(self.0.turns.run(call)));
            return;
        };
        let calls = Rc::clone(&self.0);
        drop(spawn_local(self.0.turns.run(async move {
            let mut call = pin!(call);
            let unseen = poll_fn(|context| {
                // A call that is polled after the revocation ends by itself with the reason.
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
                () = unread.exceeds(calls.handler.shared.timeouts.unread_replies) => Some(BudgetRefusal::Overdue),
            };
            if let Some(refusal) = refusal {
                // Dropping the call resets its stream, since its caller reads no response.
                drop(reject(&calls.handler.shared, &refusal.into(), None));
            }
        })));
    }
}

/// Answers a call, also where its handler panics.
async fn answer<C: Clock>(
    calls: &Rc<Calls<C>>,
    request: Request<Incoming>,
    method: Option<&'static Method>,
    permit: BodyPermit,
    unread: Option<UnreadSince>,
) -> GrpcResponse {
    calls.was_used.set(true);
    let (handler, route) = (&calls.handler, method.map_or(OTHER, |method| method.name));
    let shared = &handler.shared;
    let mut read_at = handler.clock.now().as_nanos();
    let mut span = None;
    let response = match admit(shared, method, &request, calls.share.peer) {
        Ok((method, _)) if method.is_reflection() && calls.share.streams() >= REFLECTION_STREAMS_MAX => {
            Err(reject(shared, &Error::TooManyStreams, None))
        }
        Ok((method, caller)) => {
            span = handler.begin_span(method, request.headers());
            // A panic leaves nothing half done in what calls share: see `decider::catch_panic`.
            let response = handler.call(method, caller, (request, permit), span.clone(), &mut read_at);
            let response = AssertUnwindSafe(response).catch_unwind().await;
            response.unwrap_or_else(|_| Err(reject(shared, &Error::Internal, None)))
        }
        Err(status) => Err(status),
    };
    let response = response.unwrap_or_else(|status| status.into_http().map(ResponseBody::Tonic));
    let code = code(response.headers());
    let is_counted = code.is_some() && response.headers().contains_key(CODE);
    let took = handler.clock.now().as_nanos().saturating_sub(read_at);
    if code.is_some() || method.is_none_or(|method| method.shape == Shape::Unary) {
        handler.count_end(route, (code.unwrap_or(Code::Ok), is_counted), took, span);
        return response;
    }
    calls.share.open_stream();
    let end_timeout = shared.timeouts.stream_end;
    let (mut stopping, calls) = (calls.stopping.clone(), Rc::clone(calls));
    // An error: the connection has ended.
    let stopping = async move { drop(stopping.wait_for(|is_stopping| *is_stopping).await) };
    response.map(|inner| {
        stream_body(inner, stopping, end_timeout, unread.unwrap_or_default(), move |code, is_counted| {
            calls.share.close_stream();
            calls.was_used.set(true);
            calls.handler.count_end(route, (code, is_counted), took, span);
        })
    })
}
