//! Minutes on their way into the store: one short transaction a minute, beside everything else.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::sleep;

use crate::{
    domain::metric_types::{Minute, Numbers},
    metrics::collector::{Figures, Now},
    store::{
        database::Store,
        error::{Trouble, trouble},
    },
};

/// Minutes, of all nodes, that wait while the store cannot be written; then the oldest goes.
const WAITING_MAX: usize = 600;
/// Between two tries.
const PAUSE: Duration = Duration::from_secs(10);
const PAUSE_AT_END: Duration = Duration::from_millis(200);

/// How minutes got into the store.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Counts>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Minutes that were written.
    pub(crate) written: u64,
    /// Tries that failed.
    pub(crate) failed: u64,
    /// Minutes that were given up.
    pub(crate) given_up: u64,
    /// Why the last try failed, if it did.
    pub(crate) trouble: Option<String>,
    /// The server is being stopped.
    is_ending: bool,
}

impl Kept {
    pub(crate) fn counts(&self) -> Counts {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        // Nothing in here panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Figures {
    /// Has minutes written, each with its node.
    pub(super) fn keep_minutes(&self, now: &mut Now, minutes: impl Iterator<Item = (String, Minute)>) {
        let before = now.minutes.len();
        now.minutes.extend(minutes);
        if now.minutes.len() > before {
            self.bound(now);
            self.is_over.notify_one();
        }
    }

    /// Lets go of the oldest minutes, where more wait than have room.
    fn bound(&self, now: &mut Now) {
        let too_many = now.minutes.len().saturating_sub(WAITING_MAX);
        now.minutes.drain(..too_many);
        self.kept.lock().given_up += too_many as u64;
    }

    /// Writes minutes as they end, until [`end`](Self::end); then what there is of the running one.
    pub(crate) async fn keep(&self, store: &Store) {
        let mut numbers = Numbers::new();
        loop {
            self.is_over.notified().await;
            let is_ending = self.kept.lock().is_ending;
            if is_ending {
                let mut now = self.now();
                let name = |limit| self.engine.limit_name(limit);
                let Now { ring, remotes, minutes, .. } = &mut *now;
                minutes.extend(ring.finish(name).map(|minute| (self.node.clone(), minute)));
                remotes.finish(minutes, name);
            }
            loop {
                let Some((node, minute)) = self.now().minutes.pop_front() else { break };
                let outcome = store.add_figures(&node, &minute, &mut numbers).await;
                match outcome {
                    Ok(()) => {
                        {
                            let mut kept = self.kept.lock();
                            kept.written += 1;
                            kept.trouble = None;
                        }
                        self.look_for_others(store).await;
                        // What is not removed now is removed a minute later.
                        if !is_ending && let Err(error) = store.remove_old_figures(minute.at).await {
                            tracing::warn!(%error, "old figures were not removed");
                        }
                        continue;
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a minute of figures was not written");
                        let mut kept = self.kept.lock();
                        kept.failed += 1;
                        kept.trouble = Some(error.to_string());
                        // It may be there: rather than count it twice, let it go.
                        if matches!(trouble(&error), Some(Trouble::Unknown)) {
                            kept.given_up += 1;
                            continue;
                        }
                    }
                }
                {
                    let mut now = self.now();
                    now.minutes.push_front((node, minute));
                    self.bound(&mut now);
                }
                // A stop waits for a few seconds.
                sleep(if is_ending { PAUSE_AT_END } else { PAUSE }).await;
            }
            if is_ending {
                return;
            }
        }
    }

    /// Until something was decided: by another server of the database?
    async fn look_for_others(&self, store: &Store) {
        if self.now().anything_yet {
            return;
        }
        match store.has_figures().await {
            Ok(has_figures) => self.now().anything_yet |= has_figures,
            Err(error) => tracing::warn!(%error, "it is not known whether there are figures"),
        }
    }

    /// Lets [`keep`](Self::keep) come to its end.
    pub(crate) fn end(&self) {
        // What came since the last second.
        self.tick();
        self.kept.lock().is_ending = true;
        self.is_over.notify_one();
    }
}
