//! Real requests, kept for a while in memory so that policies can be tried on them.
//!
//! Identities are sampled, not requests: one in so many, by a hash with a secret of the data folder, each kind for itself; a
//! request is kept if one of its identities is in the sample, with all of them. So a limit that counts `ip` sees all
//! requests of a sampled address, one that counts `user` all of a sampled user, and one that counts both together all of a
//! pair of which one is sampled. What counts everyone together sees a part, and is not to be judged by it.
//!
//! A check writes its request into a queue of fixed records: it takes no lock and allocates nothing, and where the queue is
//! full the request is lost, and counted. A task takes them from there.
//! Values are kept as they came, in memory alone: a policy has clients and blocks of addresses that only whole values find.
//! What is told of them goes through [`Privacy`](crate::domain::privacy::Privacy).

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
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tidegate::{
    Observed, Observer,
    time::{Nanos, SECOND_NS},
};
use tidegate_replay::{
    Utc,
    traffic::{RecordedRequest, encode_request, recorded_at},
};
use tokio::time;

use crate::base::secrets::SECRET_BYTES;

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

/// How finely losses are counted over time.
const LOSSES_NS: u64 = 60 * SECOND_NS;

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
    queue: ArrayQueue<RecordedRequest>,
    /// Since they were taken in last.
    lost: CachePadded<AtomicCell<u64>>,
    too_long: AtomicCell<u64>,
    kept: Mutex<Records>,
    /// The clock by which records are dated.
    now: Box<dyn Fn() -> Nanos + Send + Sync>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("one_in", &self.sampler.one_in).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Records {
    all: VecDeque<Arc<[u8]>>,
    bytes: usize,
    /// Minutes since the epoch in which requests were not recorded: how many were lost, and were too long.
    losses: VecDeque<(Nanos, u64, u64)>,
}

/// What is recorded just now.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Recorded {
    /// One identity of each kind in so many is in the sample.
    pub(crate) one_in: NonZeroU32,
    /// Requests that are kept.
    pub(crate) requests: usize,
    /// Time of the first of them.
    pub(crate) from: Option<Utc>,
    /// Time of the last.
    to: Option<Utc>,
    /// Memory that they take.
    bytes: usize,
    /// Most memory that they take.
    bytes_max: usize,
    /// How long they are kept.
    kept_max_ms: u64,
    /// False: of the time in which requests are kept, some of the sample are missing, for one of the reasons below.
    pub(crate) complete: bool,
    /// Requests of the sample that came faster than they could be taken, in that time.
    lost: u64,
    /// Requests of the sample that are longer than a record, in that time.
    too_long: u64,
}

impl Observer for Recorder {
    fn observe(&self, observed: &Observed<'_>) {
        let Some(parts) = observed.request() else { return };
        // A policy says nothing of it.
        if observed.is_rated() {
            return;
        }
        if !parts.identities.iter().any(|identity| self.sampler.has(identity.kind(), identity.value())) {
            return;
        }
        let Some(record) = encode_request(observed.at().as_nanos(), &parts) else {
            self.too_long.fetch_add(1);
            return;
        };
        if self.queue.push(record).is_err() {
            self.lost.fetch_add(1);
        }
    }
}

impl Recorder {
    /// `now` is the engine's clock, which dates its decisions and need not be the system's.
    pub(crate) fn new(
        one_in: NonZeroU32,
        secret: &[u8; SECRET_BYTES],
        now: impl Fn() -> Nanos + Send + Sync + 'static,
    ) -> Self {
        Self {
            sampler: Sampler::new(one_in, secret),
            queue: ArrayQueue::new(QUEUE),
            lost: CachePadded::default(),
            too_long: AtomicCell::default(),
            kept: Mutex::default(),
            now: Box::new(now),
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
        let records = kept.all.iter().cloned().collect();
        (records, self.tell(&kept))
    }

    pub(crate) fn state(&self) -> Recorded {
        self.tell(&self.take_in())
    }

    fn tell(&self, kept: &Records) -> Recorded {
        // Threads record side by side, so the ends are right to some microseconds.
        let at = |record: Option<&Arc<[u8]>>| record.map(|record| Utc(recorded_at(record)));
        let sum = |count: fn(&(Nanos, u64, u64)) -> u64| kept.losses.iter().map(count).sum();
        let (lost, too_long): (u64, u64) = (sum(|losses| losses.1), sum(|losses| losses.2));
        Recorded {
            one_in: self.sampler.one_in,
            requests: kept.all.len(),
            from: at(kept.all.front()),
            to: at(kept.all.back()),
            bytes: kept.bytes,
            bytes_max: BYTES_MAX,
            kept_max_ms: KEPT.as_millis() as u64,
            complete: lost + too_long == 0,
            lost,
            too_long,
        }
    }

    fn take_in(&self) -> MutexGuard<'_, Records> {
        // Nothing in here panics.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // Not more than fitted, or checks that go on recording would hold us here.
        for record in std::iter::from_fn(|| self.queue.pop()).take(QUEUE) {
            kept.bytes += record.len() + BESIDE_BYTES;
            kept.all.push_back(Arc::from(record.as_slice()));
        }
        let now = (self.now)();
        let oldest = now.saturating_sub(KEPT.as_nanos() as u64);
        while let Some(record) = kept.all.front()
            && (kept.bytes > BYTES_MAX || recorded_at(record) < oldest)
        {
            kept.bytes -= record.len() + BESIDE_BYTES;
            kept.all.pop_front();
        }
        let (minute, lost, too_long) = (now / LOSSES_NS, self.lost.swap(0), self.too_long.swap(0));
        if lost + too_long > 0 {
            match kept.losses.back_mut().filter(|last| last.0 == minute) {
                Some((_, lost_before, too_long_before)) => {
                    *lost_before += lost;
                    *too_long_before += too_long;
                }
                None => kept.losses.push_back((minute, lost, too_long)),
            }
        }
        while kept.losses.front().is_some_and(|(minute, ..)| *minute < oldest / LOSSES_NS) {
            kept.losses.pop_front();
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use tidegate::{
        Engine, Identity, Rate, Request,
        clock::{Clock, ManualClock},
        time::Timestamp,
    };

    use super::*;

    /// An engine whose decisions are recorded, by a clock that no other knows: it is in the year 2001.
    fn recording(one_in: u32, max_keys: usize) -> (Engine<ManualClock>, ManualClock, Arc<Recorder>) {
        let clock = ManualClock::at(Timestamp::from_nanos(1_000_000_000 * SECOND_NS));
        let engine = Engine::for_simulation(max_keys, clock.clone(), 7);
        let (one_in, own) = (NonZeroU32::new(one_in).expect("not 0"), clock.clone());
        let recorder = Arc::new(Recorder::new(one_in, &[1; SECRET_BYTES], move || own.now().as_nanos()));
        engine.observe(NonZeroU32::MIN, Arc::clone(&recorder));
        (engine, clock, recorder)
    }

    fn come(engine: &Engine<ManualClock>, user: &str, path: &str) {
        let who = [Identity::new("user", user).expect("valid")];
        let _ = engine.check(&Request::new(&who).and_then(|request| request.endpoint(path)).expect("valid"));
    }

    #[test]
    fn requests_are_kept_for_a_while_by_the_engines_clock() {
        let (engine, clock, recorder) = recording(1, 10);
        let kept = KEPT.as_nanos() as u64;
        come(&engine, "ada", "/");
        clock.advance(Duration::from_nanos(kept - SECOND_NS));
        come(&engine, "eve", "/");
        assert_eq!(recorder.state().requests, 2);
        clock.advance(Duration::from_secs(2));
        let (records, state) = recorder.recorded();
        assert!(records.len() == 1 && records[0].ends_with(b"eve"), "{records:?}");
        assert_eq!(state.from.map(|at| at.0), Some(clock.now().as_nanos() - 2 * SECOND_NS));
        clock.advance(Duration::from_nanos(kept));
        assert_eq!((recorder.state().requests, recorder.state().bytes), (0, 0));
    }

    #[test]
    fn what_was_lost_is_told_as_long_as_what_was_kept_beside_it() {
        let (engine, clock, recorder) = recording(1, 10);
        let kept = KEPT.as_nanos() as u64;
        come(&engine, "ada", &"/long".repeat(200));
        (0..=QUEUE).for_each(|_| come(&engine, "ada", "/"));
        let told = |recorder: &Recorder| {
            let Recorded { complete, lost, too_long, .. } = recorder.state();
            (complete, lost, too_long)
        };
        assert_eq!(told(&recorder), (false, 1, 1));
        clock.advance(Duration::from_nanos(kept - 60 * SECOND_NS));
        come(&engine, "ada", &"/long".repeat(200));
        assert_eq!(told(&recorder), (false, 1, 2));
        clock.advance(Duration::from_mins(2));
        assert_eq!(told(&recorder), (false, 0, 1));
        clock.advance(Duration::from_nanos(kept));
        assert_eq!(told(&recorder), (true, 0, 0));
    }

    #[test]
    fn a_flood_of_requests_is_lost_and_changes_no_decision() {
        const POLICY: &str = r#"
            [domains.default]
            defaults = { user = "one" }
            [[domains.default.tiers]]
            id = "one"
            limits = [{ id = "l", algorithm = "fixed_window", limit = 5, period = "1h" }]
            "#;
        let (engine, _, recorder) = recording(1, 10);
        let policy = tidegate::Snapshot::parse(POLICY, tidegate::formats::Format::Toml).expect("a policy");
        engine.publish(policy).expect("few limits");
        (0..QUEUE + 7).for_each(|_| come(&engine, "mallory", "/"));
        let who = [Identity::new("user", "ada").expect("valid")];
        let request = Request::new(&who).expect("valid");
        let allowed = (0..10).filter(|_| engine.check(&request).is_allowed()).count();
        assert_eq!(allowed, 5, "another user has their quota");
        assert_eq!(recorder.state().lost, 7 + 10);
        come(&engine, "ada", "/");
        let (records, state) = recorder.recorded();
        assert_eq!((records.len(), state.lost), (QUEUE + 1, 7 + 10), "there is room again");
        assert!(records.last().is_some_and(|record| record.ends_with(b"ada")), "{records:?}");
    }

    #[test]
    fn every_request_of_a_sampled_identity_is_kept_and_no_other() {
        let (engine, _, recorder) = recording(10, 10_000);
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
    fn what_no_policy_decides_is_not_kept() {
        let (engine, _, recorder) = recording(1, 10);
        let who = [Identity::new("user", "ada").expect("valid")];
        let request = Request::exactly(&who).expect("valid");
        engine.check_atomic_batch(&[(request, Some(Rate::per_second(5))), (request, None)], &mut Vec::new());
        assert_eq!(recorder.state().requests, 1);
    }

    #[test]
    fn kinds_and_secrets_choose_for_themselves() {
        let sampled = |sampler: Sampler, kind: &str| {
            (0..20_000).filter(|number| sampler.has(kind, &number.to_string())).collect::<Vec<_>>()
        };
        let [one, other] = [[1; SECRET_BYTES], [2; SECRET_BYTES]]
            .map(|secret| Sampler::new(NonZeroU32::new(20).expect("not 0"), &secret));
        for (kind, sampler) in [("user", one), ("ip", one), ("user", other)] {
            let count = sampled(sampler, kind).len();
            assert!((850..1_150).contains(&count), "{count} of 20,000");
        }
        assert_ne!(sampled(one, "user"), sampled(one, "ip"));
        assert_ne!(sampled(one, "user"), sampled(other, "user"));
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes_first() {
        let (engine, _, recorder) = recording(1, 10);
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

    /// What recording costs a check: run it with `cargo test --release -p tidegate-admin --lib recorder -- --ignored
    /// --nocapture` on a quiet machine.
    #[test]
    #[ignore = "it measures"]
    #[expect(clippy::print_stdout, reason = "it is what it is for")]
    fn measure_what_recording_costs_a_check() {
        const POLICY: &str = r#"
            [domains.default]
            defaults = { ip = "one", user = "one" }
            [[domains.default.tiers]]
            id = "one"
            limits = [{ id = "l", algorithm = "token_bucket", limit = 1000000000, period = "1s", burst = 1000000 }]
            "#;
        let names: Vec<_> =
            (0..10_000).map(|n| (format!("198.51.{}.{}", n / 250, n % 250), format!("user-{n}"))).collect();
        // Nanoseconds of a check, and of taking its record in, which another thread does in a server.
        let measure = |one_in: Option<u32>| {
            let engine = Engine::with_max_keys(1_000_000);
            let policy = tidegate::Snapshot::parse(POLICY, tidegate::formats::Format::Toml).expect("a policy");
            engine.publish(policy).expect("few limits");
            let now = || tidegate::clock::SystemClock::new().now().as_nanos();
            let recorder = one_in.map(|one_in| {
                Arc::new(Recorder::new(NonZeroU32::new(one_in).expect("not 0"), &[1; SECRET_BYTES], now))
            });
            if let Some(recorder) = &recorder {
                engine.observe(NonZeroU32::MIN, Arc::clone(recorder));
            }
            let (start, mut taking, mut checks) = (time::Instant::now(), Duration::ZERO, 0_u32);
            for (ip, user) in (0..100).flat_map(|_| &names) {
                let who = [Identity::new("ip", ip).expect("valid"), Identity::new("user", user).expect("valid")];
                let request = Request::new(&who).and_then(|request| request.endpoint("/api/v1/search")).expect("valid");
                std::hint::black_box(engine.check(&request.method("GET")).is_allowed());
                checks += 1;
                if checks.is_multiple_of(4_000)
                    && let Some(recorder) = &recorder
                {
                    let start = time::Instant::now();
                    drop(recorder.take_in());
                    taking += start.elapsed();
                }
            }
            let each = |time: Duration| time.as_nanos() / u128::from(checks);
            assert_eq!(recorder.map_or(0, |recorder| recorder.state().lost), 0);
            (each(start.elapsed().saturating_sub(taking)), each(taking))
        };
        for one_in in [None, Some(1_000_000), Some(100), Some(10), Some(1)].repeat(3) {
            println!("1/{one_in:?}: {:?} ns", measure(one_in));
        }
    }
}
