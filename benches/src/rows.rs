//! The rows of the comparison: what is done, by whom, and what must be reached.

use crate::{
    batches::InBatches,
    contest::{Contender, Keys, Row, Side},
    engine,
    figures::Goal,
    floor::Floor,
    full_check::{CLIENTS, FullCheck},
    numbers::{Numbers, Zipf, drawn},
    peers::{ByHandle, Limit, direct, keyed, keyed_limiter, texts, tidegate},
};

/// Is shown the rows one after the other; what they need is made before and freed after.
pub type Visit<'v> = &'v mut dyn FnMut(&Row<'_>);

/// Rows that share what they need.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// What the rows do, in order.
    pub works: &'static [&'static str],
    /// Whether it needs so much memory and time that a short run leaves it out.
    pub is_large: bool,
    /// Makes the rows.
    pub visit: fn(Visit<'_>),
}

/// The peer that is the fastest in most rows: governor with a fast hash.
const FAST: &str = "governor, u64, rapidhash";

const DIRECT: &str = "one bucket without a table";
const HOT: &str = "one hot key";
const DENIED_HOT: &str = "denial flood, one hot key";
const DENIED_PRIVATE: &str = "denial flood, private keys";
const ALLOWED_HOT: &str = "one hot key, allowed";
const ALLOWED_PRIVATE: &str = "private keys, allowed";
const UNIFORM: &str = "1 M keys, uniform";
const ZIPF: &str = "1 M keys, Zipf(1.0)";
const UNIFORM_LIMITER: &str = "1 M keys, uniform, KeyedLimiter";
const ZIPF_LIMITER: &str = "1 M keys, Zipf(1.0), KeyedLimiter";
const BATCH: &str = "batch of 64, 16 M keys";
const FULL: &str = "full check";

/// All of them.
pub const GROUPS: &[Group] = &[
    Group { works: &[DIRECT], is_large: false, visit: one_bucket },
    Group { works: &[HOT], is_large: false, visit: hot_key },
    Group { works: &[DENIED_HOT, DENIED_PRIVATE], is_large: false, visit: denied },
    Group { works: &[ALLOWED_HOT, ALLOWED_PRIVATE], is_large: false, visit: allowed },
    Group { works: &[UNIFORM, UNIFORM_LIMITER, ZIPF, ZIPF_LIMITER], is_large: false, visit: million_keys },
    Group { works: &[BATCH], is_large: true, visit: batch },
    Group { works: &[FULL], is_large: false, visit: full_check },
];

fn one_bucket(visit: Visit<'_>) {
    let all = direct(Limit::WIDE);
    let [ours, peers @ ..] = &all;
    let peers = sides(peers, Keys::Hot, &[("governor", 1.0)]);
    visit(&Row { work: DIRECT, threads: 1, keys: 1, ours: ours.side(Keys::Hot, None), peers });
}

fn hot_key(visit: Visit<'_>) {
    let (ours, texts) = (tidegate(1_000, Limit::WIDE), texts(1));
    let (floor, keyed_limiter) = (Contender::new("floor", Floor::default()), keyed_limiter(1_000, Limit::WIDE));
    let peers = keyed(Limit::WIDE, &texts);
    let own = [floor.side(Keys::Hot, Some(Goal::Ratio(0.8))), keyed_limiter.side(Keys::Hot, None)];
    let others = sides(&peers, Keys::Hot, &[("governor, String", 2.0), (FAST, 1.5)]);
    visit(&Row {
        work: HOT,
        threads: 1,
        keys: 1,
        ours: ours.side(Keys::Hot, None),
        peers: own.into_iter().chain(others).collect(),
    });
}

fn denied(visit: Visit<'_>) {
    two_threads(visit, Limit::TIGHT, [DENIED_HOT, DENIED_PRIVATE], 0.9, 7.0, &[]);
}

fn allowed(visit: Visit<'_>) {
    two_threads(visit, Limit::WIDE, [ALLOWED_HOT, ALLOWED_PRIVATE], 0.8, 6.0, &[(FAST, 1.5)]);
}

/// Two threads on one key, and on two; the first must reach so much of the second, and so many times governor.
fn two_threads(
    visit: Visit<'_>,
    limit: Limit,
    [hot, private]: [&'static str; 2],
    share: f64,
    governors: f64,
    private_goals: &[(&str, f64)],
) {
    let (ours, texts) = (tidegate(1_000, limit), texts(2));
    let peers = keyed(limit, &texts);
    let own = ours.side_as("two private keys", Keys::Private, Some(Goal::Ratio(share)));
    let others = sides(&peers, Keys::Hot, &[("governor, u64", governors)]);
    visit(&Row {
        work: hot,
        threads: 2,
        keys: 1,
        ours: ours.side(Keys::Hot, None),
        peers: [own].into_iter().chain(others).collect(),
    });
    let ours = ours.side(Keys::Private, None);
    visit(&Row { work: private, threads: 2, keys: 2, ours, peers: sides(&peers, Keys::Private, private_goals) });
}

fn million_keys(visit: Visit<'_>) {
    const KEYS: u32 = 1_000_000;
    let texts = texts(KEYS.into());
    let handle = tidegate(KEYS as usize, Limit::WIDE).filled(KEYS.into());
    let limiter = keyed_limiter(KEYS as usize, Limit::WIDE).filled(KEYS.into());
    let peers = keyed(Limit::WIDE, &texts).map(|peer| peer.filled(KEYS.into()));
    let mut row = |work, ours: &Contender<'_>, numbers: &[u32], fast: f64| {
        let keys = Keys::Drawn(numbers);
        let goals = [("governor, u64", 1.7), ("governor, String", 2.2), (FAST, fast)];
        let (ours, peers) = (ours.side(keys, None), sides(&peers, keys, &goals));
        visit(&Row { work, threads: 1, keys: KEYS.into(), ours, peers });
    };
    let (mut even, mut zipf) = (Numbers::new(7, KEYS.into()), Zipf::new(7, KEYS));
    let (even, zipf) = (drawn(1 << 21, || even.draw()), drawn(1 << 21, || zipf.draw()));
    row(UNIFORM, &handle, &even, 1.0);
    row(UNIFORM_LIMITER, &limiter, &even, 1.25);
    row(ZIPF, &handle, &zipf, 1.3);
    row(ZIPF_LIMITER, &limiter, &zipf, 1.3);
}

fn batch(visit: Visit<'_>) {
    const KEYS: u32 = 16_000_000;
    let by_handle = ByHandle(engine(KEYS as usize, Limit::WIDE.per_second.into(), Limit::WIDE.burst.into()));
    let ours = Contender::new("tidegate, batches", InBatches(&by_handle.0)).filled(KEYS.into());
    let one = Contender::new("one at a time", &by_handle);
    let mut even = Numbers::new(7, KEYS.into());
    // As many as there are keys, so that none is still at hand from the last time round.
    let numbers = drawn(1 << 24, || even.draw());
    let keys = Keys::Drawn(&numbers);
    let peers = vec![one.side(keys, Some(Goal::Ratio(3.0)))];
    visit(&Row { work: BATCH, threads: 1, keys: KEYS.into(), ours: ours.side(keys, None), peers });
}

fn full_check(visit: Visit<'_>) {
    let full = FullCheck::new();
    let mut even = Numbers::new(7, CLIENTS as u64);
    let numbers = drawn(1 << 21, || even.draw());
    let (ours, by_handles) = (Contender::new("tidegate", &full), Contender::new("three by handle", full.by_handles()));
    let keys = Keys::Drawn(&numbers);
    let peers = vec![by_handles.side(keys, Some(Goal::Ratio(0.5)))];
    visit(&Row { work: FULL, threads: 2, keys: 3 * CLIENTS as u64, ours: ours.side(keys, None), peers });
}

/// All peers on these keys; ours must reach so many times those that are named.
fn sides<'s>(peers: &'s [Contender<'_>], keys: Keys<'s>, goals: &[(&str, f64)]) -> Vec<Side<'s>> {
    let side = |peer: &'s Contender<'_>| {
        let goal = goals.iter().find(|(name, _)| *name == peer.name);
        peer.side(keys, goal.map(|(_, ratio)| Goal::Ratio(*ratio)))
    };
    peers.iter().map(side).collect()
}
