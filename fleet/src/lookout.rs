//! Decisions as they are made, for whoever asks to see them: of one identity, or the next ones. The engine is watched while
//! somebody asks.

use std::{
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tidegate::{Engine, Observed, Observer, ObserverId};
use tokio::time::sleep;

use crate::{
    fit::{ROOM, keep_what_fits},
    wire::{DECISIONS_MAX, Decisions, SeenDecision, SeenIdentity, Who},
};

/// Questions that are answered at once.
const WATCHES_MAX: usize = 8;
/// A path is cut after so many characters.
const PATH_CHARACTERS: usize = 512;
const NS_PER_MS: u64 = 1_000_000;

/// Who looks at an engine's decisions.
#[derive(Debug, Default)]
pub(crate) struct Lookout {
    /// Held for the length of a push, by checks too; one that finds it taken is overlooked.
    watches: Arc<Mutex<Vec<Watch>>>,
    /// While somebody asks.
    posted: Mutex<Option<ObserverId>>,
}

#[derive(Debug)]
struct Watch {
    number: u64,
    /// Anybody, if nobody.
    who: Option<Who>,
    count: usize,
    found: Decisions,
}

/// What the engine shows decisions to.
#[derive(Debug)]
struct Eyes(Arc<Mutex<Vec<Watch>>>);

impl Lookout {
    /// The decisions about `who`, or about anybody, that are made within this time: `count` of them at most.
    pub(crate) async fn see(
        &self,
        engine: &Engine,
        who: Option<Who>,
        count: usize,
        within: Duration,
    ) -> Result<Decisions, &'static str> {
        let number = {
            let mut watches = lock(&self.watches);
            if watches.len() == WATCHES_MAX {
                return Err("too many questions at once");
            }
            let number = watches.last().map_or(0, |watch| watch.number + 1);
            let count = count.min(DECISIONS_MAX);
            watches.push(Watch { number, who, count, found: Decisions::default() });
            number
        };
        // Whoever stops to wait leaves nothing behind.
        let _leave = Leave { lookout: self, engine, number };
        self.post(engine);
        sleep(within).await;
        let mut watches = lock(&self.watches);
        let watch = watches.iter_mut().find(|watch| watch.number == number);
        let mut found = watch.map(|watch| std::mem::take(&mut watch.found)).unwrap_or_default();
        drop(watches);
        keep_what_fits(&mut found.decisions, &mut { ROOM });
        Ok(found)
    }
}

impl Lookout {
    /// Has the engine watched if somebody asks, and only then.
    fn post(&self, engine: &Engine) {
        let mut posted = lock(&self.posted);
        let is_asked = !lock(&self.watches).is_empty();
        match *posted {
            None if is_asked => *posted = Some(engine.observe(NonZeroU32::MIN, Eyes(Arc::clone(&self.watches)))),
            Some(id) if !is_asked => {
                engine.stop_observing(id);
                *posted = None;
            }
            _ => {}
        }
    }
}

struct Leave<'l> {
    lookout: &'l Lookout,
    engine: &'l Engine,
    number: u64,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        lock(&self.lookout.watches).retain(|watch| watch.number != self.number);
        self.lookout.post(self.engine);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here panics.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Observer for Eyes {
    fn observe(&self, observed: &Observed<'_>) {
        let Ok(mut watches) = self.0.try_lock() else { return };
        for watch in watches.iter_mut() {
            let is_about = |who: &Who| {
                observed.identities().any(|(kind, value)| kind == who.kind && value == who.value.as_bytes())
            };
            if watch.who.as_ref().is_some_and(|who| !is_about(who)) {
                continue;
            }
            watch.found.seen += 1;
            if watch.found.decisions.len() < watch.count {
                watch.found.decisions.push(seen(observed));
            }
        }
    }
}

fn seen(observed: &Observed<'_>) -> SeenDecision {
    let decision = observed.decision();
    let endpoint = observed.request().and_then(|request| request.endpoint);
    let who = |(kind, value): (&str, &[u8])| SeenIdentity {
        kind: kind.to_owned(),
        value: String::from_utf8_lossy(value).into_owned(),
    };
    SeenDecision {
        at_ms: observed.at() / NS_PER_MS,
        allowed: decision.is_allowed(),
        limit_id: decision.limit_id().map(str::to_owned),
        remaining: decision.remaining(),
        identities: observed.identities().map(who).collect(),
        endpoint: endpoint.map(|path| path.chars().take(PATH_CHARACTERS).collect()),
    }
}
