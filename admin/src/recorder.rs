//! Real requests, kept for a while in memory so that policies can be tried on them.
//!
//! Identities are sampled, not requests: one in so many, by a hash with a secret of the data folder, each kind for itself; a
//! request is kept if one of its identities is in the sample, with all of them. So a limit that counts `ip` sees all
//! requests of a sampled address, one that counts `user` all of a sampled user, and one that counts both together all of a
//! pair of which one is sampled. What counts everyone together sees a part, and is not to be judged by it.
//!
//! A check writes its request into a queue of fixed records without waiting or allocating; a task takes them from there.
//! Values are kept as they came, in memory alone: a policy has clients and blocks of addresses that only whole values find.
//! What is told of them goes through [`Privacy`](crate::privacy::Privacy).

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt,
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crossbeam_queue::ArrayQueue;
use crossbeam_utils::{CachePadded, atomic::AtomicCell};
use jiff::Timestamp;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tidegate::{Observed, Observer, time::SECOND_NS};
use tidegate_replay::{
    Utc,
    traffic::{Record, record, recorded_at},
};
use tokio::time;

use crate::folder::SECRET_BYTES;

/// How long requests are kept.
pub(crate) const KEPT: Duration = Duration::from_mins(15);
/// The most memory that they take.
pub(crate) const BYTES_MAX: usize = 64 << 20;
/// Requests between two takings, in 4 MB: more are lost, and counted.
const QUEUE: usize = 8_192;
/// Between two takings.
const TICK: Duration = Duration::from_millis(50);
/// What a kept record takes beside its bytes.
const BESIDE_BYTES: usize = 48;

/// Says which identities are sampled.
#[derive(Clone, Copy)]
pub(crate) struct Sampler {
    one_in: NonZeroU32,
    secrets: RapidSecrets,
}

impl Sampler {
    fn new(one_in: NonZeroU32, secret: &[u8; SECRET_BYTES]) -> Self {
        let hash = Sha256::new().chain_update(secret).chain_update("the sample").finalize();
        let seed = hash.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Self { one_in, secrets: RapidSecrets::seed(seed) }
    }

    /// Is this identity one of those whose requests are all kept?
    #[inline]
    pub(crate) fn has(&self, kind: &str, value: &str) -> bool {
        let kind = rapidhash_v3_seeded(kind.as_bytes(), &self.secrets);
        let hash = rapidhash_v3_seeded(value.as_bytes(), &self.secrets) ^ kind.rotate_left(32);
        (u128::from(hash) * u128::from(self.one_in.get())) >> 64 == 0
    }
}

/// Records requests: an observer of the engine.
pub(crate) struct Recorder {
    sampler: Sampler,
    queue: ArrayQueue<Record>,
    lost: CachePadded<AtomicCell<u64>>,
    too_long: AtomicCell<u64>,
    kept: Mutex<Kept>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("one_in", &self.sampler.one_in).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Kept {
    records: VecDeque<Arc<[u8]>>,
    bytes: usize,
}

/// What is recorded just now.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Recorded {
    /// One identity of each kind in so many is in the sample.
    pub(crate) one_in: NonZeroU32,
    /// Requests that are kept.
    pub(crate) requests: usize,
    /// Time of the first of them.
    from: Option<Utc>,
    /// Time of the last.
    to: Option<Utc>,
    /// Memory that they take.
    bytes: usize,
    /// Most memory that they take.
    bytes_max: usize,
    /// How long they are kept.
    kept_max_ms: u64,
    /// Requests of the sample that came faster than they could be taken.
    lost: u64,
    /// Requests of the sample that are longer than a record.
    too_long: u64,
}

impl Observer for Recorder {
    fn observe(&self, observed: &Observed<'_>) {
        let Some(parts) = observed.request() else { return };
        if !parts.identities.iter().any(|identity| self.sampler.has(identity.kind(), identity.value())) {
            return;
        }
        let Some(record) = record(observed.at(), &parts) else {
            self.too_long.fetch_add(1);
            return;
        };
        if self.queue.push(record).is_err() {
            self.lost.fetch_add(1);
        }
    }
}

impl Recorder {
    pub(crate) fn new(one_in: NonZeroU32, secret: &[u8; SECRET_BYTES]) -> Self {
        Self {
            sampler: Sampler::new(one_in, secret),
            queue: ArrayQueue::new(QUEUE),
            lost: CachePadded::default(),
            too_long: AtomicCell::default(),
            kept: Mutex::default(),
        }
    }

    pub(crate) fn sampler(&self) -> Sampler {
        self.sampler
    }

    /// Does it keep everybody's requests?
    pub(crate) fn is_whole(&self) -> bool {
        self.sampler.one_in == NonZeroU32::MIN
    }

    /// Takes in what checks recorded, for ever.
    pub(crate) async fn run(&self) -> Infallible {
        let mut ticks = time::interval(TICK);
        ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            drop(self.take_in());
        }
    }

    /// What is recorded just now, and how much that is.
    pub(crate) fn recorded(&self) -> (Vec<Arc<[u8]>>, Recorded) {
        let kept = self.take_in();
        let records = kept.records.iter().cloned().collect();
        (records, self.tell(&kept))
    }

    pub(crate) fn state(&self) -> Recorded {
        self.tell(&self.take_in())
    }

    fn tell(&self, kept: &Kept) -> Recorded {
        // Threads record side by side, so the ends are right to some microseconds.
        let at = |record: Option<&Arc<[u8]>>| record.map(|record| Utc(recorded_at(record)));
        Recorded {
            one_in: self.sampler.one_in,
            requests: kept.records.len(),
            from: at(kept.records.front()),
            to: at(kept.records.back()),
            bytes: kept.bytes,
            bytes_max: BYTES_MAX,
            kept_max_ms: KEPT.as_millis() as u64,
            lost: self.lost.load(),
            too_long: self.too_long.load(),
        }
    }

    fn take_in(&self) -> MutexGuard<'_, Kept> {
        // Nothing in here panics.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // Not more than fitted, or checks that go on recording would hold us here.
        for record in std::iter::from_fn(|| self.queue.pop()).take(QUEUE) {
            kept.bytes += record.len() + BESIDE_BYTES;
            kept.records.push_back(Arc::from(record.as_slice()));
        }
        let now = Timestamp::now().as_nanosecond();
        let oldest = now.saturating_sub(i128::from(KEPT.as_secs() * SECOND_NS));
        while let Some(record) = kept.records.front()
            && (kept.bytes > BYTES_MAX || i128::from(recorded_at(record)) < oldest)
        {
            kept.bytes -= record.len() + BESIDE_BYTES;
            kept.records.pop_front();
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use tidegate::{Engine, Identity, Request};

    use super::*;

    fn recorder(one_in: u32) -> Arc<Recorder> {
        Arc::new(Recorder::new(NonZeroU32::new(one_in).expect("not 0"), &[1; SECRET_BYTES]))
    }

    #[test]
    fn every_request_of_a_sampled_identity_is_kept_and_no_other() {
        let (engine, recorder) = (Engine::with_max_keys(10_000), recorder(10));
        engine.observe(NonZeroU32::MIN, Arc::clone(&recorder));
        let mut expected = 0;
        for number in 0..3_000 {
            let (ip, user) = (format!("192.0.2.{}", number % 200), format!("u{}", number % 300));
            let who = [Identity::new("ip", &ip).expect("valid"), Identity::new("user", &user).expect("valid")];
            let _ = engine.check(&Request::new(&who).expect("valid"));
            let sampler = recorder.sampler();
            expected += usize::from(sampler.has("ip", &ip) || sampler.has("user", &user));
        }
        let (records, state) = recorder.recorded();
        assert_eq!((records.len(), state.requests, state.lost), (expected, expected, 0));
        // About one in ten of either: 19 in 100 of the requests.
        assert!((300..900).contains(&expected), "{expected} of 3,000");
    }

    #[test]
    fn kinds_and_secrets_choose_for_themselves() {
        let sampled = |sampler: Sampler, kind: &str| {
            (0..20_000).filter(|number| sampler.has(kind, &number.to_string())).collect::<Vec<_>>()
        };
        let [one, other] = [[1; SECRET_BYTES], [2; SECRET_BYTES]]
            .map(|secret| Recorder::new(NonZeroU32::new(20).expect("not 0"), &secret).sampler());
        for (kind, sampler) in [("user", one), ("ip", one), ("user", other)] {
            let count = sampled(sampler, kind).len();
            assert!((850..1_150).contains(&count), "{count} of 20,000");
        }
        assert_ne!(sampled(one, "user"), sampled(one, "ip"));
        assert_ne!(sampled(one, "user"), sampled(other, "user"));
    }

    #[test]
    fn what_comes_too_fast_or_is_too_long_is_counted() {
        let (engine, recorder) = (Engine::with_max_keys(10), recorder(1));
        engine.observe(NonZeroU32::MIN, Arc::clone(&recorder));
        let who = [Identity::new("user", "ada").expect("valid")];
        for _ in 0..QUEUE + 100 {
            let _ = engine.check(&Request::new(&who).expect("valid"));
        }
        let path = "/long".repeat(200);
        let _ = engine.check(&Request::new(&who).and_then(|request| request.endpoint(&path)).expect("valid"));
        let state = recorder.state();
        assert_eq!((state.requests, state.lost, state.too_long), (QUEUE, 100, 1));
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes_first() {
        let (engine, recorder) = (Engine::with_max_keys(10), recorder(1));
        engine.observe(NonZeroU32::MIN, Arc::clone(&recorder));
        let path = "/p".repeat(200);
        let per_record = {
            let who = [Identity::new("user", "ada").expect("valid")];
            let _ = engine.check(&Request::new(&who).and_then(|request| request.endpoint(&path)).expect("valid"));
            recorder.state().bytes
        };
        let who = [Identity::new("user", "eve").expect("valid")];
        let request = Request::new(&who).and_then(|request| request.endpoint(&path)).expect("valid");
        for number in 0..BYTES_MAX / per_record + 1_000 {
            let _ = engine.check(&request);
            if number % QUEUE == QUEUE - 1 {
                drop(recorder.take_in());
            }
        }
        let (records, state) = recorder.recorded();
        assert!(state.bytes <= BYTES_MAX && state.bytes > BYTES_MAX - per_record, "{}", state.bytes);
        assert_eq!(state.lost, 0);
        assert!(records.iter().all(|record| record.ends_with(b"eve")), "the oldest is still there");
    }
}
