//! The services that report the server's health: the standard health service of gRPC, and `RateLimiterHealth`.

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
};

use futures_util::Stream;
use tidegate::clock::Clock;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tonic::{Request, Response, Status};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus, health_server::Health,
};

use super::{
    admin_client::{AdminApiClient, AdminCall},
    methods::SERVICES,
};
use crate::{
    protobuf::generated::tidegate::v1::{
        GetHealthStatusRequest, GetHealthStatusResponse, GetMetricsRequest, GetMetricsResponse, ResetRateLimitRequest,
        ResetRateLimitResponse, get_health_status_response::Status as Level,
        rate_limiter_health_server::RateLimiterHealth,
    },
    shared::service_state::ServiceState,
};

/// The standard health service of gRPC.
pub(super) struct HealthService<C>(pub(super) Arc<ServiceState<C>>);

impl<C: Clock> HealthService<C> {
    /// Returns the status of a service, or of all where the name is empty; `None` where there is no service of this name.
    fn status(&self, service: &str) -> Option<ServingStatus> {
        let is_known = service.is_empty() || SERVICES.contains(&service);
        let now = if is_ready(&self.0) { ServingStatus::Serving } else { ServingStatus::NotServing };
        is_known.then_some(now)
    }
}

/// Returns whether the server is ready, as `GET /readyz` reports it.
fn is_ready<C: Clock>(shared: &ServiceState<C>) -> bool {
    !shared.is_draining.load(Ordering::Relaxed) && shared.decider.engine().version() > 0
}

#[tonic::async_trait]
impl<C: Clock> Health for HealthService<C> {
    type WatchStream = StatusStream<C>;

    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let status = self.status(&request.get_ref().service);
        let status = status.ok_or_else(|| Status::not_found("no service of this name is here"))?;
        Ok(Response::new(HealthCheckResponse { status: status.into() }))
    }

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<StatusStream<C>>, Status> {
        let mut polls = interval(self.0.timeouts.health_watch);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let service = request.into_inner().service;
        Ok(Response::new(StatusStream { health: HealthService(Arc::clone(&self.0)), service, polls, last: None }))
    }
}

/// The status of a service, and each change of it.
pub(super) struct StatusStream<C> {
    health: HealthService<C>,
    service: String,
    polls: Interval,
    last: Option<ServingStatus>,
}

impl<C: Clock> Stream for StatusStream<C> {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            ready!(self.polls.poll_tick(context));
            let now = self.health.status(&self.service).unwrap_or(ServingStatus::ServiceUnknown);
            if self.last.replace(now) != Some(now) {
                return Poll::Ready(Some(Ok(HealthCheckResponse { status: now.into() })));
            }
        }
    }
}

pub(super) struct RateLimiterHealthService<C> {
    pub(super) shared: Arc<ServiceState<C>>,
    pub(super) admin: Arc<AdminApiClient>,
}

#[tonic::async_trait]
impl<C: Clock> RateLimiterHealth for RateLimiterHealthService<C> {
    async fn get_health_status(
        &self,
        _: Request<GetHealthStatusRequest>,
    ) -> Result<Response<GetHealthStatusResponse>, Status> {
        let faults: Vec<String> = self.shared.health_monitor.faults().iter().map(ToString::to_string).collect();
        let status = match () {
            () if !is_ready(&self.shared) => Level::NotReady,
            () if faults.is_empty() => Level::Ok,
            () => Level::Degraded,
        };
        Ok(Response::new(GetHealthStatusResponse {
            status: status.into(),
            faults,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            policy_version: self.shared.decider.engine().version(),
        }))
    }

    async fn get_metrics(&self, _: Request<GetMetricsRequest>) -> Result<Response<GetMetricsResponse>, Status> {
        let ServiceState { decider, metrics, timeouts, .. } = &*self.shared;
        let engine = decider.engine();
        let totals = engine.totals();
        let page = metrics.page(engine, timeouts.metrics_page).await;
        let page = page.ok_or_else(|| Status::internal("the metrics could not be written"))?;
        Ok(Response::new(GetMetricsResponse {
            allowed: totals.allowed,
            denied: totals.denied,
            active_keys: page.active_keys,
            policy_version: engine.version(),
            text: String::from_utf8_lossy(&page.text).into_owned(),
        }))
    }

    async fn reset_rate_limit(
        &self,
        request: Request<ResetRateLimitRequest>,
    ) -> Result<Response<ResetRateLimitResponse>, Status> {
        AdminCall::begin(&self.admin, &request)?.reset(request.get_ref()).await.map(Response::new)
    }
}
