//! All entry points of a check, and a pass through each of them.

use std::{hint::black_box, time::Duration};

use tidegate::{
    Decision, Engine, Handle, Identity, KeyedLimiter, Limiter, Request, Snapshot,
    algorithm::{FixedWindow, Meter, SlidingWindowCounter, SlidingWindowLog, TokenBucket},
    clock::Clock,
    formats::Format,
};

pub(crate) const SECOND: u64 = 1_000_000_000;

const ALGORITHMS: [&str; 5] =
    ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log"];

/// One limit of each algorithm for users, by its name; three limits at once for an address and a key; one that nodes share;
/// one that is large enough for leases.
fn snapshot() -> Snapshot {
    let limit = |id: &str, algorithm: &str| {
        format!("{{ id = \"{id}\", algorithm = \"{algorithm}\", limit = 50, period = \"10s\" }},")
    };
    let of_user: Vec<String> = ALGORITHMS.iter().map(|algorithm| limit(algorithm, algorithm)).collect();
    let text = format!(
        "[domains.default]\n\
         defaults = {{ user = \"user\", ip = \"one\", key = \"two\", node = \"shared\", all = \"large\" }}\n\
         [[domains.default.tiers]]\nid = \"large\"\nlimits = [{{ id = \"l\", algorithm = \"token_bucket\", \
         limit = 20000, period = \"1s\" }}]\n\
         [[domains.default.tiers]]\nid = \"user\"\nlimits = [{}]\n\
         [[domains.default.tiers]]\nid = \"one\"\nlimits = [{}]\n\
         [[domains.default.tiers]]\nid = \"two\"\nlimits = [{}{}]\n\
         [[domains.default.tiers]]\nid = \"shared\"\nlimits = [{{ id = \"l\", algorithm = \"token_bucket\", \
         limit = 50, period = \"10s\", sharing = \"strict\" }}]\n\
         [[domains.default.rules]]\nid = \"both\"\nendpoint = \"/both/{{x}}\"\nper = [\"ip\", \"key\"]\nlimits = [{}]\n",
        of_user.concat(),
        limit("a", "token_bucket"),
        limit("a", "token_bucket"),
        limit("b", "fixed_window"),
        limit("a", "leaky_bucket"),
    );
    Snapshot::parse(&text, Format::Toml).expect("a good policy")
}

fn handles<C: Clock>(engine: &Engine<C>) -> [Handle<'_, C>; 5] {
    ALGORITHMS.map(|name| engine.handle(&format!("default/tier:user/{name}"), "user").expect("the policy has it"))
}

/// Makes a handle on a limit whose keys are striped when threads race.
pub(crate) fn leasing<C: Clock>(engine: &Engine<C>) -> Handle<'_, C> {
    engine.handle("default/tier:large/l", "all").expect("the policy has it")
}

/// Limiters of each algorithm.
fn meters() -> [Meter; 5] {
    [
        Meter::TokenBucket(TokenBucket::new(50, Duration::from_secs(10), 50).expect("fits")),
        Meter::LeakyBucket(TokenBucket::new(50, Duration::from_secs(10), 50).expect("fits")),
        Meter::FixedWindow(FixedWindow::new(50, Duration::from_secs(10)).expect("fits")),
        Meter::SlidingWindowCounter(SlidingWindowCounter::new(50, Duration::from_secs(10)).expect("fits")),
        Meter::SlidingWindowLog(SlidingWindowLog::new(50, Duration::from_secs(10)).expect("fits")),
    ]
}

/// Takes decisions, and keeps how many there were of each.
#[derive(Default)]
pub(crate) struct Sums {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
}

impl<'e> Extend<Decision<'e>> for Sums {
    fn extend<T: IntoIterator<Item = Decision<'e>>>(&mut self, decisions: T) {
        for decision in decisions {
            self.add(black_box(decision).is_allowed());
        }
    }
}

impl Sums {
    fn add(&mut self, is_allowed: bool) {
        *(if is_allowed { &mut self.allowed } else { &mut self.denied }) += 1;
    }
}

/// Everything that checks, made before anything is counted.
pub(crate) struct EntryPoints<'e, C> {
    engine: &'e Engine<C>,
    handles: [Handle<'e, C>; 5],
    keyed: Vec<KeyedLimiter<C>>,
    single: Vec<Limiter<C>>,
}

impl<'e, C: Clock + Clone> EntryPoints<'e, C> {
    pub(crate) fn new(engine: &'e Engine<C>) -> Self {
        let clock = engine.clock();
        let keyed = meters().map(|meter| KeyedLimiter::with_clock(meter, 10_000, clock.clone())).into();
        let single = meters()[..4].iter().map(|meter| Limiter::with_clock(*meter, clock.clone())).collect();
        Self { engine, handles: handles(engine), keyed, single }
    }

    /// Passes through every entry point with keys that are new, and come again until they are denied.
    pub(crate) fn pass(&mut self, number: u64, sums: &mut Sums) {
        let key = (number / 60).to_be_bytes().map(|byte| b'a' + byte % 16 + byte / 16);
        let text = std::str::from_utf8(&key).expect("letters");
        let [user, ip, who, node] = ["user", "ip", "key", "node"].map(|kind| Identity::new(kind, text).expect("valid"));
        let (one, several, shared) = ([ip], [ip, who], [node]);
        let one = Request::new(&one).expect("valid");
        let several = Request::new(&several).and_then(|request| request.endpoint("/both/7?x=1")).expect("valid");
        let users = [user];
        let users = Request::new(&users).expect("valid");
        let shared = Request::new(&shared).expect("valid");

        for handle in &mut self.handles {
            sums.add(handle.check(key).is_allowed());
            let _ = black_box(handle.peek(key));
            handle.check_batch(&[key, [b'x'; 8], key], sums);
        }
        for request in [&one, &several, &users, &shared] {
            sums.add(self.engine.check(request).is_allowed());
            let _ = black_box(self.engine.check_observing(request, |met| {
                let _ = black_box(met);
            }));
            let _ = black_box(self.engine.peek(request));
        }
        self.engine.check_batch(&[one, several, users, shared, one.without_cost()], sums);
        if number.is_multiple_of(120) {
            black_box(self.engine.reset(&several));
        }
        for limiter in &self.keyed {
            sums.add(limiter.check(key).is_allowed());
            let _ = black_box(limiter.peek(key));
        }
        for limiter in &self.single {
            sums.add(limiter.check().is_allowed());
            let _ = black_box(limiter.peek());
        }
        let _ = black_box(self.engine.totals());
    }
}

pub(crate) fn engine<C: Clock>(max_keys: usize, clock: C) -> Engine<C> {
    let engine = Engine::for_simulation(max_keys, clock, 7);
    engine.publish(snapshot()).expect("few limits");
    engine
}
