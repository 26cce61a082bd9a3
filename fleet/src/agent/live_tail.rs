//! The live tail: the decisions about one identity, or the next decisions about any, as they are made. The engine is
//! observed while a query waits, and for some seconds after each query of a watch that continues, so that no decision
//! between two queries is missed.

use std::{
    collections::{BTreeSet, VecDeque},
    num::NonZeroU32,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tidegate::{Engine, Identity, Observed, Observer, ObserverId, clock::Clock};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    lock::lock,
    wire::{
        DECISIONS_MAX, Decisions, QueryIdentity, SeenDecision, SeenIdentity, WatchCursor,
        truncate::{ROOM, keep_what_fits},
    },
};

const WATCHES_MAX: usize = 8;
/// A watch that continues ends when it was not queried for so long.
const UNUSED_FOR_MAX: Duration = Duration::from_secs(10);
/// The time after which a waiting query looks for new decisions again.
const POLL_EVERY: Duration = Duration::from_millis(250);
const PATH_CHARACTERS: usize = 512;
const METHOD_CHARACTERS: usize = 32;
const NS_PER_MS: u64 = 1_000_000;

/// The subscriptions to an engine's decisions.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveTail(Arc<Mutex<Vec<Arc<Subscription>>>>);

#[derive(Debug)]
struct Subscription {
    /// The name of a watch that continues; `None`: the subscription is for one query.
    name: Option<String>,
    /// The identity to watch; `None`: any.
    who: Option<QueryIdentity>,
    /// The values by which the identity may be counted; each domain's policy decides which one counts there.
    values: BTreeSet<String>,
    /// The most decisions that are kept: of one query the first ones, of a watch that continues the last ones.
    room: usize,
    /// The time of the subscription by the engine's clock, Unix milliseconds.
    since_ms: u64,
    /// The decisions. Checks lock this for the length of a push; a check that finds it locked only counts.
    buffer: Mutex<DecisionBuffer>,
    /// Decisions that found the buffer locked and are not in it yet.
    overlooked: AtomicU64,
    used_at: Mutex<Instant>,
}

#[derive(Debug, Default)]
struct DecisionBuffer {
    /// The decisions with their numbers, oldest first.
    decisions: VecDeque<(u64, Arc<SeenDecision>)>,
    /// The number of the newest decision.
    seen: u64,
}

impl LiveTail {
    /// Returns the first `count` decisions about `who`, or about any identity, that are made within this time.
    pub(crate) async fn watch_once(
        &self,
        engine: &Arc<Engine>,
        who: Option<QueryIdentity>,
        count: usize,
        within: Duration,
    ) -> Result<Decisions, &'static str> {
        // Dropping the future ends the subscription.
        let guard = self.subscribe(engine, None, who, count.min(DECISIONS_MAX))?;
        sleep(within).await;
        Ok(guard.watch.decisions(0))
    }

    /// Returns the decisions about `who` after those of the last reply, as soon as there is one, or after this time. A
    /// watch that had ended begins anew, which `since_ms` shows.
    pub(crate) async fn continue_watch(
        &self,
        engine: &Arc<Engine>,
        who: QueryIdentity,
        WatchCursor { watch: name, after }: WatchCursor,
        within: Duration,
    ) -> Result<Decisions, &'static str> {
        let is_it = |watch: &&Arc<Subscription>| watch.name.as_ref() == Some(&name) && watch.who.as_ref() == Some(&who);
        let known = lock(&self.0).iter().find(is_it).cloned();
        let (watch, after) = if let Some(watch) = known {
            (watch, after)
        } else {
            let guard = self.subscribe(engine, Some(name), Some(who), DECISIONS_MAX)?;
            let watch = Arc::clone(&guard.watch);
            tokio::spawn(guard.until_unused());
            (watch, 0)
        };
        let until = Instant::now() + within;
        watch.note_use();
        while watch.seen() <= after && Instant::now() < until {
            sleep_until(until.min(Instant::now() + POLL_EVERY)).await;
        }
        watch.note_use();
        Ok(watch.decisions(after))
    }

    fn subscribe(
        &self,
        engine: &Arc<Engine>,
        name: Option<String>,
        who: Option<QueryIdentity>,
        room: usize,
    ) -> Result<SubscriptionGuard, &'static str> {
        let mut watches = lock(&self.0);
        if watches.len() == WATCHES_MAX {
            return Err("too many questions at once");
        }
        let watch = Arc::new(Subscription {
            name,
            values: who.as_ref().map(|who| counted_values(engine, who)).unwrap_or_default(),
            who,
            room,
            since_ms: engine.clock().wall().as_nanos() / NS_PER_MS,
            buffer: Mutex::default(),
            overlooked: AtomicU64::new(0),
            used_at: Mutex::new(Instant::now()),
        });
        watches.push(Arc::clone(&watch));
        let observer = engine.observe(NonZeroU32::MIN, Arc::clone(&watch));
        Ok(SubscriptionGuard { live_tail: self.clone(), engine: Arc::clone(engine), watch, observer })
    }
}

/// A subscription that ends when this is dropped.
struct SubscriptionGuard {
    live_tail: LiveTail,
    engine: Arc<Engine>,
    watch: Arc<Subscription>,
    observer: ObserverId,
}

impl SubscriptionGuard {
    async fn until_unused(self) {
        loop {
            let until = *lock(&self.watch.used_at) + UNUSED_FOR_MAX;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

impl Drop for SubscriptionGuard {
    fn drop(&mut self) {
        lock(&self.live_tail.0).retain(|watch| !Arc::ptr_eq(watch, &self.watch));
        self.engine.stop_observing(self.observer);
    }
}

impl Subscription {
    fn note_use(&self) {
        *lock(&self.used_at) = Instant::now();
    }

    /// Returns the number of the newest decision.
    fn seen(&self) -> u64 {
        // The count of overlooked decisions orders no other memory.
        lock(&self.buffer).seen + self.overlooked.load(Ordering::Relaxed)
    }

    /// Returns the decisions after the one with this number. In a watch that continues, decisions that do not fit come
    /// with the next reply.
    fn decisions(&self, after: u64) -> Decisions {
        let (new, seen) = {
            let mut found = lock(&self.buffer);
            found.seen += self.overlooked.swap(0, Ordering::Relaxed);
            let new = found.decisions.iter().filter(|(number, _)| *number > after).cloned();
            (new.collect::<Vec<_>>(), found.seen)
        };
        let mut decisions: Vec<SeenDecision> = new.iter().map(|(_, decision)| SeenDecision::clone(decision)).collect();
        keep_what_fits(&mut decisions, &mut { ROOM });
        let last = match new.get(decisions.len()) {
            Some((next, _)) if self.name.is_some() => next - 1,
            _ => seen,
        };
        Decisions { decisions, seen: last.saturating_sub(after), last, since_ms: self.since_ms }
    }
}

/// Returns the values by which an identity may be counted.
fn counted_values(engine: &Engine, QueryIdentity { kind, value }: &QueryIdentity) -> BTreeSet<String> {
    Identity::new(kind, value).map(|identity| engine.counted_values(identity)).unwrap_or_default()
}

impl Observer for Subscription {
    fn observe(&self, observed: &Observed<'_>) {
        let is_counted = |value: &[u8]| self.values.iter().any(|counted| counted.as_bytes() == value);
        let is_about =
            |who: &QueryIdentity| observed.identities().any(|(kind, value)| kind == who.kind && is_counted(value));
        if self.who.as_ref().is_some_and(|who| !is_about(who)) {
            return;
        }
        let Ok(mut found) = self.buffer.try_lock() else {
            self.overlooked.fetch_add(1, Ordering::Relaxed);
            return;
        };
        found.seen += 1 + self.overlooked.swap(0, Ordering::Relaxed);
        if found.decisions.len() >= self.room {
            if self.name.is_none() {
                return;
            }
            found.decisions.pop_front();
        }
        let number = found.seen;
        found.decisions.push_back((number, Arc::new(seen(observed))));
    }
}

fn seen(observed: &Observed<'_>) -> SeenDecision {
    let (decision, request) = (observed.decision(), observed.request());
    let first = |text: &str, characters: usize| text.chars().take(characters).collect();
    SeenDecision {
        at_ms: observed.wall().as_nanos() / NS_PER_MS,
        allowed: decision.is_allowed(),
        limit_id: decision.limit_id().map(str::to_owned),
        remaining: decision.remaining(),
        identities: observed.identities().map(|(kind, value)| SeenIdentity::new(kind, value)).collect(),
        endpoint: request.and_then(|request| request.endpoint).map(|path| first(path, PATH_CHARACTERS)),
        method: request.and_then(|request| request.method).map(|method| first(method, METHOD_CHARACTERS)),
        cost: request.map(|request| request.cost),
    }
}
