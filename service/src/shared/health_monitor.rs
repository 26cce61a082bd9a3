//! Monitors the server's health: samples the counts of all listeners and applies the health rules; has the engine
//! follow wall time.

use std::{
    convert::Infallible,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tidegate::{
    clock::{Clock, SystemClock, WallStep},
    time::Timestamp,
};
use tidegate_net::tls::CertificateFault;
use tokio::{task::spawn_blocking, time::sleep};

use super::{
    decider::Decider,
    health_rules::{HealthFault, HealthHistory, HealthSample},
    latency::ListenerLatencies,
    throttle_metrics::ThrottleMetrics,
};

/// A source of policies in another process: the connection to an admin server.
pub trait PolicyFeed: fmt::Debug + Send + Sync {
    /// Returns whether messages of the source arrive.
    fn is_heard(&self) -> bool;
}

#[derive(Debug)]
pub(crate) struct HealthMonitor<C> {
    decider: Arc<Decider<C>>,
    latencies: Vec<ListenerLatencies>,
    throttle: Option<ThrottleMetrics<C>>,
    source: Option<Arc<dyn PolicyFeed>>,
    pub(crate) certificate: CertificateFault,
    failures: AtomicU64,
    history: HealthHistory,
    clock: SystemClock,
    policy: Mutex<PolicyState>,
}

/// The policy version in force, with times of the monitor's clock.
#[derive(Debug)]
struct PolicyState {
    version: u64,
    /// The time at which this version was first seen.
    since: Timestamp,
    /// The time at which messages of the source last arrived.
    heard: Timestamp,
}

impl<C: Clock> HealthMonitor<C> {
    pub(crate) fn new(
        decider: Arc<Decider<C>>,
        latencies: Vec<ListenerLatencies>,
        throttle: Option<ThrottleMetrics<C>>,
        source: Option<Arc<dyn PolicyFeed>>,
    ) -> Self {
        let clock = SystemClock::new();
        let now = clock.now();
        Self {
            decider,
            latencies,
            throttle,
            source,
            certificate: CertificateFault::default(),
            failures: AtomicU64::new(0),
            history: HealthHistory::default(),
            clock,
            policy: Mutex::new(PolicyState { version: 0, since: now, heard: now }),
        }
    }

    /// Counts a response that reports an error of the server.
    pub(crate) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Samples the counts after each period, and has the engine follow wall time. It never ends.
    pub(crate) async fn run(self: Arc<Self>, period: Duration) -> Infallible {
        let mut logged = None;
        loop {
            sleep(period).await;
            drop(self.policy_state());
            self.history.add(self.sample());
            self.follow_wall_time(&mut logged).await;
        }
    }

    /// Has the engine follow wall time, and logs a new step of it. `logged` is the step that was logged last.
    async fn follow_wall_time(&self, logged: &mut Option<WallStep>) {
        let decider = Arc::clone(&self.decider);
        // It takes a while where windows change in a large table. An error is a panic, which was logged.
        let _ = spawn_blocking(move || decider.engine().follow_wall_time()).await;
        let last = self.decider.engine().clock().wall_steps().last;
        if let Some(WallStep { size, is_back, .. }) = last.filter(|_| last != *logged) {
            *logged = last;
            tracing::warn!(by_ms = size.as_millis() as u64, is_back, "the system's clock was set");
        }
    }

    pub(crate) fn faults(&self) -> Vec<HealthFault> {
        let silence = self.source.is_some().then(|| self.elapsed(self.policy_state().heard));
        let mut faults = self.history.faults(&self.sample(), silence, self.certificate.now().is_none());
        faults.extend(self.decider.store().and_then(|store| HealthFault::of_store(store.stats())));
        let (open, _) = self.decider.reservations.counts();
        faults.extend(HealthFault::of_reservations(open));
        let engine = self.decider.engine();
        faults.extend(HealthFault::of_limits(engine.known_limits()));
        let (clock, steps) = (engine.clock(), engine.clock().wall_steps());
        // Reads the clock only where there was a step.
        faults.extend(steps.last.and_then(|_| HealthFault::of_clock(&steps, clock.now())));
        faults
    }

    /// Returns how long the policy has been in force; `None` where there is none.
    pub(crate) fn policy_age(&self) -> Option<Duration> {
        let policy = self.policy_state();
        (policy.version > 0).then(|| self.elapsed(policy.since))
    }

    fn elapsed(&self, then: Timestamp) -> Duration {
        self.clock.now().duration_since(then)
    }

    /// Returns the policy state, updated to now.
    fn policy_state(&self) -> MutexGuard<'_, PolicyState> {
        let now = self.clock.now();
        let mut policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.decider.engine().version();
        if policy.version != version {
            (policy.version, policy.since) = (version, now);
        }
        if self.source.as_ref().is_some_and(|source| source.is_heard()) {
            policy.heard = now;
        }
        policy
    }

    fn sample(&self) -> HealthSample {
        let engine = self.decider.engine();
        let listeners = self.latencies.iter().map(ListenerLatencies::deciding);
        let (responses, ns) = listeners.fold((0, 0), |(sum, ns), (more, longer)| (sum + more, ns + longer));
        let totals = engine.totals();
        let throttle = self.throttle.as_ref().map(ThrottleMetrics::sample).unwrap_or_default();
        HealthSample {
            responses,
            ns,
            errors: self.failures.load(Ordering::Relaxed) + self.decider.degraded.failures(),
            checks: totals.allowed + totals.denied + throttle.checks,
            overflow: engine.overflow_charges() + throttle.overflow,
            without_room: engine.denied_without_room() + throttle.without_room,
        }
    }
}
