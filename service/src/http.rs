//! Checks over HTTP: `POST /v1/check` and `/v1/check/batch`, reservations under `/v1/reserve`, `/v1/settle` and `/v1/refund`,
//! `/v1/authorize` for proxies; and `/healthz`, `/readyz` and `/metrics` for whoever runs the server.

use std::{io, net::TcpListener, rc::Rc, sync::Arc, time::Duration};

mod authorize;
mod browsers;
mod door;

pub use actix_web::http::header::HeaderName;
use actix_web::{
    HttpServer,
    dev::{Server, fn_service},
};
use rustls::ServerConfig;
use tidegate::clock::{Clock, SystemClock};

use self::door::Door;
pub(crate) use self::door::KIND;
pub use self::{authorize::Authorize, browsers::Browsers};
use crate::{
    doors::{CONNECTIONS_MAX, Shared},
    latency::DoorLatencies,
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
    ) -> io::Result<Server> {
        let Self { listener, authorize } = self;
        let (shared, latencies) = (Arc::clone(shared), latencies.clone());
        let (periods, address) = (shared.periods, listener.local_addr()?);
        let server = HttpServer::new(move || {
            let door = Rc::new(Door {
                shared: Arc::clone(&shared),
                authorize: authorize.clone(),
                listener: address,
                latencies: latencies.worker(),
                clock: SystemClock::new(),
            });
            fn_service(move |request| Rc::clone(&door).handle(request))
        });
        let server = server
            .workers(workers)
            .max_connections(CONNECTIONS_MAX.div_ceil(workers))
            .disable_signals()
            .shutdown_timeout(drain.as_secs())
            .tcp_nodelay(true)
            .keep_alive(periods.idle)
            .client_request_timeout(periods.request_head)
            .client_disconnect_timeout(periods.linger);
        let server = match tls {
            None => server.listen(listener)?,
            Some(config) => server.listen_rustls_0_23(listener, config)?,
        };
        Ok(server.run())
    }
}
