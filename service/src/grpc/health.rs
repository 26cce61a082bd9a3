//! How the server is: gRPC's own health service, and `RateLimiterHealth`.

use std::{
    fmt,
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
    admin_client::{Admin, Caller},
    connection::SERVICES,
    proto::tidegate::v1::{
        GetHealthStatusRequest, GetHealthStatusResponse, GetMetricsRequest, GetMetricsResponse, ResetRateLimitRequest,
        ResetRateLimitResponse, get_health_status_response::Status as Level,
        rate_limiter_health_server::RateLimiterHealth,
    },
};
use crate::listeners::Shared;

/// The standard service.
pub(super) struct Standard<C>(pub(super) Arc<Shared<C>>);

impl<C: Clock> Standard<C> {
    /// Of a service by its name, or of all; `None`: it is not known.
    fn status(&self, service: &str) -> Option<ServingStatus> {
        let is_known = service.is_empty() || SERVICES.contains(&service);
        let now = if is_ready(&self.0) { ServingStatus::Serving } else { ServingStatus::NotServing };
        is_known.then_some(now)
    }
}

/// As `GET /readyz`.
fn is_ready<C: Clock>(shared: &Shared<C>) -> bool {
    !shared.is_leaving.load(Ordering::Relaxed) && shared.decider.engine().version() > 0
}

#[tonic::async_trait]
impl<C: Clock> Health for Standard<C> {
    type WatchStream = Statuses<C>;

    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let status = self.status(&request.get_ref().service);
        let status = status.ok_or_else(|| Status::not_found("no service of this name is here"))?;
        Ok(Response::new(HealthCheckResponse { status: status.into() }))
    }

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Statuses<C>>, Status> {
        let mut looks = interval(self.0.periods.health_watch);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let service = request.into_inner().service;
        Ok(Response::new(Statuses { of: Standard(Arc::clone(&self.0)), service, looks, last: None }))
    }
}

/// The state of a service, and whatever it changes to.
pub(super) struct Statuses<C> {
    of: Standard<C>,
    service: String,
    looks: Interval,
    last: Option<ServingStatus>,
}

impl<C> fmt::Debug for Statuses<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Statuses")
    }
}

impl<C: Clock> Stream for Statuses<C> {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            ready!(self.looks.poll_tick(context));
            let now = self.of.status(&self.service).unwrap_or(ServingStatus::ServiceUnknown);
            if self.last.replace(now) != Some(now) {
                return Poll::Ready(Some(Ok(HealthCheckResponse { status: now.into() })));
            }
        }
    }
}

/// Tidegate's own.
pub(super) struct Own<C> {
    pub(super) shared: Arc<Shared<C>>,
    pub(super) admin: Arc<Admin>,
}

#[tonic::async_trait]
impl<C: Clock> RateLimiterHealth for Own<C> {
    async fn get_health_status(
        &self,
        _: Request<GetHealthStatusRequest>,
    ) -> Result<Response<GetHealthStatusResponse>, Status> {
        let faults: Vec<String> = self.shared.watch.faults().iter().map(ToString::to_string).collect();
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
        let Shared { decider, metrics, periods, .. } = &*self.shared;
        let engine = decider.engine();
        let totals = engine.totals();
        let page = metrics.page(engine, periods.metrics_page).await;
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
        Caller::of(&self.admin, &request)?.reset(request.get_ref()).await.map(Response::new)
    }
}
