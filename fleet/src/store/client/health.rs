//! Monitors the health of a store: probes it with a write, so that a store that only reads is noticed, reconnects while
//! the circuit breaker is open, and checks once a minute whether the store evicts keys or has lost some.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use redis::{ErrorKind, RedisError, RedisResult};
use tidegate_net::breaker::CallPermit;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::store::{
    client::{
        batcher::Batcher,
        fault_log::{FaultChange, HOLD},
        queue::BACKGROUND,
    },
    fault::{FaultReport, StoreFault},
    script::encode,
};

/// The time limit for a probe: long enough to open a connection, and to try that once more.
const TRIAL_IN: Duration = Duration::from_millis(1_500);

/// The interval at which the monitor reconnects to the store of an open circuit breaker.
const RECONNECT_EVERY: Duration = Duration::from_secs(1);

/// The time for which lost keys are reported.
const LOSS_SHOWN: Duration = Duration::from_hours(1);

/// The life of an epoch key after its last write, seconds.
const EPOCH_LIFE_S: u64 = 30 * 86_400;

/// The most runs of servers of which counts are kept.
const RUNS_MAX: usize = 10_000;

/// The number of tries of a probe. Another node may begin an epoch between two of them.
const TRIES: usize = 3;

impl Batcher {
    /// Monitors the store until it is dropped: tries it while the circuit breaker is open, looks for lost keys, and
    /// logs faults that begin and end. `is_greeted` means that it was just probed.
    pub(crate) async fn watch(store: Weak<Self>, mut is_greeted: bool) {
        let (mut looked_at, mut evictions) = (None::<Instant>, Evictions::default());
        let mut connected_at = Instant::now();
        loop {
            let Some(store) = store.upgrade() else { return };
            store.log_changes();
            if store.is_open() && connected_at.elapsed() >= RECONNECT_EVERY {
                connected_at = Instant::now();
                store.connection.reconnect();
                store.try_new_connection();
            }
            // A store that refuses something is tried again before the fault stops counting as present.
            let every = store.settings.watch_interval;
            let every = if store.faults.is_refusing() { every.min(HOLD / 2) } else { every };
            let is_due = looked_at.is_none_or(|at| at.elapsed() >= every);
            if (is_due || store.is_open())
                && let Some(permit) = store.trial()
            {
                looked_at = Some(Instant::now());
                // A probe has long enough to connect, since no check waits for it.
                let patience = TRIAL_IN.max(store.settings.timeout);
                if std::mem::take(&mut is_greeted) || store.record_probe(permit, store.greet(patience)).await {
                    store.look_for_evictions(&mut evictions).await;
                }
            }
            drop(store);
            sleep(BACKGROUND).await;
        }
    }

    /// Waits for a probe, and records it for the circuit breaker. Returns whether the store took it.
    pub(crate) async fn record_probe(
        &self,
        permit: CallPermit,
        probe: impl Future<Output = Result<(), StoreFault>>,
    ) -> bool {
        let began = Instant::now();
        let is_there = probe.await.is_ok();
        self.record(permit, began.elapsed(), self.settings.failures_max, is_there);
        is_there
    }

    fn log_changes(&self) {
        for change in self.faults.changes(self.is_open()) {
            match change {
                FaultChange::Began(FaultReport { code, message }) => tracing::warn!(%code, "the store: {message}"),
                FaultChange::Ended(code) => tracing::info!("the store: {code} is over"),
            }
        }
    }

    /// Probes the store with a write; in a cluster one of the masters must take it. After that the connection is open,
    /// and the script is loaded there.
    pub(crate) async fn greet(self: &Arc<Self>, patience: Duration) -> Result<(), StoreFault> {
        let mut probes = JoinSet::new();
        for place in self.epochs.places() {
            let store = Arc::clone(self);
            probes.spawn_on(async move { store.probe_at(place, patience).await }, &self.runtime);
        }
        let (mut is_there, mut failed) = (false, Vec::new());
        while let Some(probed) = probes.join_next().await {
            match probed {
                Ok(Ok(())) => is_there = true,
                Ok(Err(fault)) => failed.push(fault),
                Err(_) => {}
            }
        }
        if !is_there {
            return Err(failed.pop().unwrap_or(StoreFault::Timeout));
        }
        if failed.is_empty() {
            self.faults.hide_parts();
        }
        // The other masters answer, so the circuit breaker stays closed.
        for fault in failed {
            self.faults.show(fault);
        }
        Ok(())
    }

    /// Probes the store with a write to one epoch key; in a cluster its master must take it.
    pub(crate) async fn probe_at(&self, place: usize, patience: Duration) -> Result<(), StoreFault> {
        self.write_epoch(place, patience).await.map_err(|error| self.faults.meet(&error))
    }

    /// Writes an epoch as it is known, or begins one.
    async fn write_epoch(&self, place: usize, patience: Duration) -> RedisResult<()> {
        let (key, until) = ([self.epochs.key(place).to_owned()], Instant::now() + patience);
        for _ in 0..TRIES {
            let patience = until.saturating_duration_since(Instant::now());
            let before = self.epochs.known(place);
            let after = if before.is_empty() { random()? } else { before.clone() };
            let reply = self.connection.run(&key, &[encode::swap(&before, &after, EPOCH_LIFE_S)], patience).await?;
            self.record_time(reply.first());
            let [_, done, found] = &reply[..] else {
                return Err(RedisError::from((ErrorKind::UnexpectedReturnType, "the script answers otherwise")));
            };
            if self.epochs.learn(place, found) {
                self.lost("its epoch is another: it was flushed, or restarted without its data".to_owned());
            }
            if done == "charged" {
                break;
            }
        }
        Ok(())
    }

    fn lost(&self, detail: String) {
        self.faults.note(StoreFault::KeysLost, LOSS_SHOWN, || detail);
    }

    /// Checks whether the store evicts keys.
    async fn look_for_evictions(&self, evictions: &mut Evictions) {
        let patience = self.settings.operator_timeout.max(self.settings.timeout);
        let infos = match self.connection.info(patience).await {
            Ok(infos) => infos,
            Err(error) => {
                if matches!(StoreFault::of(&error), StoreFault::NoPermission | StoreFault::UnknownCommand) {
                    self.faults.note(StoreFault::Unwatched, 2 * self.settings.watch_interval, || error.to_string());
                }
                return;
            }
        };
        let servers: Vec<_> = infos.iter().map(|info| EvictionInfo::read(info)).collect();
        let is_unknown = servers.iter().any(|server| server.policy.is_none());
        self.set(StoreFault::Unwatched, is_unknown.then(|| "INFO does not name maxmemory_policy".to_owned()));
        let policy = servers.iter().filter_map(|server| server.policy).find(|policy| *policy != "noeviction");
        self.set(StoreFault::Evicts, policy.map(|policy| format!("maxmemory-policy is {policy}")));
        let count = evictions.since(&servers);
        if count > 0 {
            self.lost(format!("it evicted {count} keys since it was seen last"));
        }
    }

    fn set(&self, fault: StoreFault, detail: Option<String>) {
        match detail {
            Some(detail) => self.faults.note(fault, 2 * self.settings.watch_interval, || detail),
            None => self.faults.end(fault),
        }
    }
}

/// The counts of evicted keys, by the run of each server.
#[derive(Default)]
struct Evictions {
    runs: HashMap<String, u64>,
    looked_at: Option<Instant>,
}

impl Evictions {
    /// Returns how many keys were evicted since the last call; 0 in the first call.
    fn since(&mut self, servers: &[EvictionInfo<'_>]) -> u64 {
        let since = self.looked_at.replace(Instant::now()).map(|at| at.elapsed().as_secs());
        if self.runs.len() > RUNS_MAX {
            self.runs.clear();
        }
        let mut count = 0;
        for server in servers {
            count += match self.runs.insert(server.run.to_owned(), server.evicted) {
                Some(before) => server.evicted.saturating_sub(before),
                // An unknown run began since the last call, or is that of a server that was not asked before.
                None if since.is_some_and(|since| server.uptime_s <= since) => server.evicted,
                None => 0,
            };
        }
        count
    }
}

/// The fields of `INFO` about evictions.
#[derive(PartialEq, Eq, Debug)]
struct EvictionInfo<'i> {
    run: &'i str,
    uptime_s: u64,
    policy: Option<&'i str>,
    evicted: u64,
}

impl<'i> EvictionInfo<'i> {
    fn read(info: &'i str) -> Self {
        let field = |name: &str| {
            let mut lines = info.lines().filter_map(|line| line.split_once(':'));
            lines.find_map(|(its, value)| (its == name).then_some(value))
        };
        let number = |name| field(name).and_then(|count| count.parse().ok());
        Self {
            run: field("run_id").unwrap_or_default(),
            uptime_s: number("uptime_in_seconds").unwrap_or(u64::MAX),
            policy: field("maxmemory_policy"),
            evicted: number("evicted_keys").unwrap_or(0),
        }
    }
}

fn random() -> RedisResult<String> {
    let number = getrandom::u64().map_err(|_| RedisError::from((ErrorKind::Client, "no random number")))?;
    Ok(format!("{number:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_eviction_fields_of_info_are_parsed() {
        let info = "run_id:4a\r\nuptime_in_seconds:7\r\nmaxmemory_policy:allkeys-lru\r\nevicted_keys:12\r\n";
        let read = EvictionInfo { run: "4a", uptime_s: 7, policy: Some("allkeys-lru"), evicted: 12 };
        assert_eq!(EvictionInfo::read(info), read);
        assert_eq!(EvictionInfo::read("ERR"), EvictionInfo { run: "", uptime_s: u64::MAX, policy: None, evicted: 0 });
    }

    #[tokio::test(start_paused = true)]
    async fn evictions_between_two_looks_are_counted() {
        let server = |run, uptime_s, evicted| EvictionInfo { run, uptime_s, policy: None, evicted };
        let mut evictions = Evictions::default();
        assert_eq!(evictions.since(&[server("a", 1_000, 500)]), 0, "before the first look");
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(evictions.since(&[server("a", 1_060, 503)]), 3);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(evictions.since(&[server("b", 90_000, 700)]), 0, "a replica that is master now");
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(evictions.since(&[server("a", 1_180, 503), server("c", 30, 4)]), 4, "one is back, and one is new");
    }
}
