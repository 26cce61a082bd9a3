//! Checks over HTTP: `POST /v1/check` and `/v1/check/batch`, reservations under `/v1/reserve`, `/v1/settle` and `/v1/refund`,
//! `/v1/authorize` for proxies; and `/healthz`, `/readyz` and `/metrics` for whoever runs the server.

use std::{io, net::TcpListener, rc::Rc, sync::Arc, time::Duration};

mod authorize;
mod body_reader;
mod browsers;
pub(crate) mod error;
mod request_body;
pub(crate) mod response_body;
mod worker;

use actix_web::dev::{Server, fn_service};
pub use actix_web::http::header::HeaderName;
use rustls::ServerConfig;
use tidegate::clock::{Clock, SystemClock};
use tidegate_listener::{ConnectionLimiter, HttpListener, HttpPeriods};

use self::worker::Door;
pub(crate) use self::worker::KIND;
pub use self::{authorize::Authorize, browsers::Browsers};
use crate::{
    listeners::Shared,
    shared::{latency::DoorLatencies, timeouts::Periods},
};

/// The HTTP door.
#[derive(Debug)]
pub struct Http {
    /// Where connections come in.
    pub listener: TcpListener,
    /// How the requests are read that proxies ask about.
    pub authorize: Authorize,
}

impl Http {
    /// `drain`: how long requests under way may take when it stops.
    pub(crate) fn serve<C: Clock>(
        self,
        shared: &Arc<Shared<C>>,
        latencies: &DoorLatencies,
        workers: usize,
        tls: Option<ServerConfig>,
        drain: Duration,
        connections: Arc<ConnectionLimiter>,
    ) -> io::Result<Server> {
        let Self { listener: socket, authorize } = self;
        let (shared, latencies) = (Arc::clone(shared), latencies.clone());
        let address = socket.local_addr()?;
        let Periods { idle, handshake, request_head, unread_replies: unread, linger, .. } = shared.periods;
        let periods = HttpPeriods { idle, handshake, request_head, unread, linger };
        let factory = move || {
            let door = Rc::new(Door {
                shared: Arc::clone(&shared),
                authorize: authorize.clone(),
                listener: address,
                latencies: latencies.worker(),
                clock: SystemClock::new(),
            });
            fn_service(move |request| Rc::clone(&door).handle(request))
        };
        HttpListener { socket, tls, connections, workers, periods, drain }.serve(factory, |_| {})
    }
}
