//! The HTTP listener: its settings, and its start.

use std::{io, net::TcpListener, rc::Rc, sync::Arc, time::Duration};

use actix_web::dev::{Server, fn_service};
use rustls::ServerConfig;
use tidegate::clock::{Clock, SystemClock};
use tidegate_listener::{HttpListener, HttpPeriods};

use super::{authorize_settings::Authorize, browsers::BrowserAccess, worker::HttpWorker};
use crate::shared::{listener_counts::ListenerCounts, service_state::ServiceState, timeouts::Timeouts};

/// The HTTP listener, before it starts.
#[derive(Debug)]
pub struct Http {
    /// The socket that accepts connections.
    pub listener: TcpListener,
    /// The settings with which the requests are read that proxies ask about.
    pub authorize: Authorize,
}

impl Http {
    /// Starts the listener. When it stops, requests under way have the time `drain`.
    pub(crate) fn serve<C: Clock>(
        self,
        shared: &Arc<ServiceState<C>>,
        ListenerCounts { latencies, connections }: ListenerCounts,
        browsers: BrowserAccess,
        workers: usize,
        tls: Option<ServerConfig>,
        drain: Duration,
    ) -> io::Result<Server> {
        let Self { listener: socket, authorize } = self;
        let shared = Arc::clone(shared);
        let address = socket.local_addr()?;
        let Timeouts { idle, handshake, request_head, unread_replies: unread, linger, .. } = shared.timeouts;
        let periods = HttpPeriods { idle, handshake, request_head, unread, linger };
        let factory = move || {
            let worker = Rc::new(HttpWorker {
                shared: Arc::clone(&shared),
                authorize: authorize.clone(),
                browsers: browsers.clone(),
                address,
                latencies: latencies.worker(),
                clock: SystemClock::new(),
            });
            fn_service(move |request| Rc::clone(&worker).handle(request))
        };
        HttpListener { socket, tls, connections, workers, periods, drain }.serve(factory, |_| {})
    }
}
