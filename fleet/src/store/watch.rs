//! Watches the store: a probe writes, so that a store that only reads is noticed; once a minute it is seen whether the store
//! evicts keys, or has lost some.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use redis::{ErrorKind, RedisError, RedisResult};
use tidegate_middleware::breaker::Permit;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    ask,
    asking::{BACKGROUND, Store},
    fault::{FaultChange, FaultReport, HOLD, StoreFault},
};

/// How long lost keys are reported.
const LOSS_SHOWN: Duration = Duration::from_hours(1);

/// The life of an epoch key from when it was written last, seconds.
const EPOCH_LIFE_S: u64 = 30 * 86_400;

/// Tries of a probe. Another node may have begun an epoch between two of them.
const TRIES: usize = 3;

impl Store {
    /// Watches the store until it is dropped: tries one that is left alone whether it is back, looks for losses, and logs faults
    /// as they come and go. `is_greeted`: it was just probed.
    pub(super) async fn watch(store: Weak<Self>, mut is_greeted: bool) {
        let (mut looked_at, mut evicted) = (None::<Instant>, None);
        loop {
            let Some(store) = store.upgrade() else { return };
            store.log_changes();
            // What the store refuses is tried again while it counts as there.
            let every = store.settings.watch_interval;
            let every = if store.faults.is_refusing() { every.min(HOLD / 2) } else { every };
            let is_due = looked_at.is_none_or(|at| at.elapsed() >= every);
            if (is_due || store.is_open())
                && let Some(permit) = store.permit()
            {
                looked_at = Some(Instant::now());
                if std::mem::take(&mut is_greeted) || store.is_there(permit).await {
                    store.look_for_evictions(&mut evicted).await;
                }
            }
            drop(store);
            sleep(BACKGROUND).await;
        }
    }

    /// Probes the store with this permit.
    async fn is_there(self: &Arc<Self>, permit: Permit) -> bool {
        let began = Instant::now();
        // One that answered so far is not left alone for a short stop of this machine.
        let patience = if permit == Permit::Trial { BACKGROUND } else { self.settings.operator_timeout };
        let is_there = self.greet(patience.max(self.timeout())).await.is_ok();
        self.learn(permit, began.elapsed(), self.settings.failures_max, is_there);
        is_there
    }

    fn log_changes(&self) {
        for change in self.faults.changes(self.is_open()) {
            match change {
                FaultChange::Began(FaultReport { code, message }) => tracing::warn!(%code, "the store: {message}"),
                FaultChange::Ended(code) => tracing::info!(%code, "the store: this is over"),
            }
        }
    }

    /// Probes the store by a write; of a cluster one of its masters must take it. The connection stands then, and the script is
    /// known there.
    pub(super) async fn greet(self: &Arc<Self>, patience: Duration) -> Result<(), StoreFault> {
        let mut probes = JoinSet::new();
        for place in self.epochs.places() {
            let store = Arc::clone(self);
            probes.spawn_on(async move { store.probe_at(place, patience).await }, self.runtime());
        }
        let mut outcome = Err(StoreFault::Timeout);
        while let Some(probed) = probes.join_next().await {
            match probed {
                Ok(Ok(())) => outcome = Ok(()),
                Ok(Err(fault)) if outcome.is_err() => outcome = Err(fault),
                _ => {}
            }
        }
        outcome
    }

    /// As [`greet`](Self::greet); of a cluster one server, another one each time.
    pub(super) async fn greet_one(&self, patience: Duration) -> Result<(), StoreFault> {
        self.probe_at(self.epochs.next_place(), patience).await
    }

    async fn probe_at(&self, place: usize, patience: Duration) -> Result<(), StoreFault> {
        self.write_epoch(place, patience).await.map_err(|error| self.faults.meet(&error))
    }

    /// Writes an epoch as it is known, or begins one.
    async fn write_epoch(&self, place: usize, patience: Duration) -> RedisResult<()> {
        let key = [self.epochs.key(place).to_owned()];
        for _ in 0..TRIES {
            let before = self.epochs.known(place);
            let after = if before.is_empty() { random()? } else { before.clone() };
            let told = self.link.run(&key, &[ask::swap(&before, &after, EPOCH_LIFE_S)], patience).await?;
            self.hear_time(told.first());
            let [_, done, found] = &told[..] else {
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

    /// Sees whether the store evicts keys. `evicted`: how many keys each server had evicted when it was asked last, by the ID of
    /// its run.
    async fn look_for_evictions(&self, evicted: &mut Option<HashMap<String, u64>>) {
        let patience = self.settings.operator_timeout.max(self.timeout());
        let infos = match self.link.info(patience).await {
            Ok(infos) => infos,
            Err(error) => {
                if matches!(StoreFault::of(&error), StoreFault::NoPermission | StoreFault::UnknownCommand) {
                    self.faults.note(StoreFault::Unwatched, 2 * self.settings.watch_interval, || error.to_string());
                }
                return;
            }
        };
        let servers: Vec<_> = infos.iter().map(|info| Evictions::read(info)).collect();
        let is_unknown = servers.iter().any(|server| server.policy.is_none());
        self.set(StoreFault::Unwatched, is_unknown.then(|| "INFO does not name maxmemory_policy".to_owned()));
        let policy = servers.iter().filter_map(|server| server.policy).find(|policy| *policy != "noeviction");
        self.set(StoreFault::Evicts, policy.map(|policy| format!("maxmemory-policy is {policy}")));
        let since: u64 = evicted.as_ref().map_or(0, |before| {
            servers.iter().map(|it| it.evicted.saturating_sub(before.get(it.run).copied().unwrap_or(0))).sum()
        });
        if since > 0 {
            self.lost(format!("it evicted {since} keys since it was seen last"));
        }
        *evicted = Some(servers.iter().map(|server| (server.run.to_owned(), server.evicted)).collect());
    }

    fn set(&self, fault: StoreFault, detail: Option<String>) {
        match detail {
            Some(detail) => self.faults.note(fault, 2 * self.settings.watch_interval, || detail),
            None => self.faults.end(fault),
        }
    }
}

/// What a server says of evictions.
#[derive(PartialEq, Eq, Debug)]
struct Evictions<'i> {
    run: &'i str,
    policy: Option<&'i str>,
    evicted: u64,
}

impl<'i> Evictions<'i> {
    /// Reads what `INFO` answered.
    fn read(info: &'i str) -> Self {
        let field = |name: &str| {
            let mut lines = info.lines().filter_map(|line| line.split_once(':'));
            lines.find_map(|(its, value)| (its == name).then_some(value))
        };
        let evicted = field("evicted_keys").and_then(|count| count.parse().ok()).unwrap_or(0);
        Self { run: field("run_id").unwrap_or_default(), policy: field("maxmemory_policy"), evicted }
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
    fn what_a_server_says_of_evictions_is_read() {
        let info =
            "# Server\r\nrun_id:4a\r\n# Memory\r\nmaxmemory_policy:allkeys-lru\r\n# Stats\r\nevicted_keys:12\r\n";
        assert_eq!(Evictions::read(info), Evictions { run: "4a", policy: Some("allkeys-lru"), evicted: 12 });
        assert_eq!(Evictions::read("ERR"), Evictions { run: "", policy: None, evicted: 0 });
    }
}
