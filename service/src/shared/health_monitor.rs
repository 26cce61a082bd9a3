//! Looks at what the doors count, and says how well it is.

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
    time::Nanos,
};
use tidegate_net::tls::Trouble;
use tokio::{task::spawn_blocking, time::sleep};

use crate::{
    resp::Throttled,
    shared::{
        decider::Decider,
        health_rules::{Fault, Health, Look},
        latency::DoorLatencies,
    },
};

/// Where policies come from.
pub trait Source: fmt::Debug + Send + Sync {
    /// Is it heard?
    fn is_heard(&self) -> bool;
}

/// Watches the doors.
#[derive(Debug)]
pub(crate) struct Watch<C> {
    decider: Arc<Decider<C>>,
    latencies: Vec<DoorLatencies>,
    throttled: Option<Throttled<C>>,
    source: Option<Arc<dyn Source>>,
    pub(crate) certificate: Trouble,
    failures: AtomicU64,
    health: Health,
    clock: SystemClock,
    seen: Mutex<Seen>,
}

/// By the watch's clock.
#[derive(Debug)]
struct Seen {
    version: u64,
    /// When this version came.
    since: Nanos,
    /// When the source was heard last.
    heard: Nanos,
}

impl<C: Clock> Watch<C> {
    pub(crate) fn new(
        decider: Arc<Decider<C>>,
        latencies: Vec<DoorLatencies>,
        throttled: Option<Throttled<C>>,
        source: Option<Arc<dyn Source>>,
    ) -> Self {
        let clock = SystemClock::new();
        let now = clock.now();
        Self {
            decider,
            latencies,
            throttled,
            source,
            certificate: Trouble::default(),
            failures: AtomicU64::new(0),
            health: Health::default(),
            clock,
            seen: Mutex::new(Seen { version: 0, since: now, heard: now }),
        }
    }

    /// An answer says that something failed here.
    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a sample of the counts again and again, this long after the last one, and has the engine follow wall time.
    pub(crate) async fn follow(self: Arc<Self>, period: Duration) -> Infallible {
        let mut logged = None;
        loop {
            sleep(period).await;
            drop(self.seen());
            self.health.look(self.look());
            self.follow_wall_time(&mut logged).await;
        }
    }

    /// `logged` is the step of wall time that was logged last.
    async fn follow_wall_time(&self, logged: &mut Option<WallStep>) {
        let decider = Arc::clone(&self.decider);
        // Where windows change in a large table, this takes a while. What panics there is in the log.
        let _ = spawn_blocking(move || decider.engine().follow_wall_time()).await;
        let last = self.decider.engine().clock().wall_steps().last;
        if let Some(WallStep { ns, is_back, .. }) = last.filter(|_| last != *logged) {
            *logged = last;
            tracing::warn!(by_ms = ns / 1_000_000, is_back, "the system's clock was set");
        }
    }

    /// What is wrong now.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let silence = self.source.is_some().then(|| self.since(self.seen().heard));
        let mut faults = self.health.faults(&self.look(), silence, self.certificate.now().is_none());
        faults.extend(self.decider.store().and_then(|store| Fault::of_store(store.stats())));
        let (open, _) = self.decider.reservations().counts();
        faults.extend(Fault::of_reservations(open));
        let engine = self.decider.engine();
        faults.extend(Fault::of_limits(engine.known_limits()));
        let (clock, steps) = (engine.clock(), engine.clock().wall_steps());
        // The time is asked for only where there was a step.
        faults.extend(steps.last.and_then(|_| Fault::of_clock(&steps, clock.now())));
        faults
    }

    /// How long the policy is in force; `None`: there is none.
    pub(crate) fn policy_age(&self) -> Option<Duration> {
        let seen = self.seen();
        (seen.version > 0).then(|| self.since(seen.since))
    }

    fn since(&self, then: Nanos) -> Duration {
        Duration::from_nanos(self.clock.now().saturating_sub(then))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        let now = self.clock.now();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.decider.engine().version();
        if seen.version != version {
            (seen.version, seen.since) = (version, now);
        }
        if self.source.as_ref().is_some_and(|source| source.is_heard()) {
            seen.heard = now;
        }
        seen
    }

    fn look(&self) -> Look {
        let engine = self.decider.engine();
        let doors = self.latencies.iter().map(DoorLatencies::deciding);
        let (answers, ns) = doors.fold((0, 0), |(answers, ns), (more, longer)| (answers + more, ns + longer));
        let totals = engine.totals();
        let throttled = self.throttled.as_ref().map(Throttled::counts).unwrap_or_default();
        Look {
            answers,
            ns,
            errors: self.failures.load(Ordering::Relaxed) + self.decider.degraded().failures(),
            checks: totals.allowed + totals.denied + throttled.decided,
            overflow: engine.overflow_charges() + throttled.overflow,
            without_room: engine.denied_without_room() + throttled.without_room,
        }
    }
}
