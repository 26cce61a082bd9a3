//! The rows of the comparison: what is done, by whom, and what must be reached.

use crate::{
    batches::InBatches,
    coarse_clocks::CoarseClocks,
    comparison::{Contender, Keys, Row, Side},
    engine,
    floor::Floor,
    full_check::{CLIENTS, FullCheck},
    peers::{ByHandle, Limit, direct, keyed, keyed_limiter, texts, tidegate},
    random::{Numbers, Zipf, drawn},
    record::Goal,
    windows::{self, Window},
};

/// Is shown the rows one after the other; what they need is made before and freed after.
pub type Visit<'v> = &'v mut dyn FnMut(&Row<'_>);

/// Rows that share what they need.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The names of the rows, in order.
    pub works: &'static [&'static str],
    /// Whether it needs so much memory and time that a short run leaves it out.
    pub is_large: bool,
    /// Makes the rows.
    pub visit: fn(Visit<'_>),
}

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
const UNIFORM_BATCHES: &str = "1 M keys, uniform, batches of 64";
const DIRECT_COARSE: &str = "one bucket without a table, coarse clock";
const HOT_COARSE: &str = "one hot key, coarse clock";
const UNIFORM_COARSE: &str = "1 M keys, uniform, coarse clock";
const UNIFORM_LIMITER_COARSE: &str = "1 M keys, uniform, KeyedLimiter, coarse clock";
const FIXED_DENIED: &str = "fixed_window, denial flood, one hot key";
const FIXED_FEW: &str = "fixed_window, 1,000 keys";
const FIXED_UNIFORM: &str = "fixed_window, 1 M keys, uniform";
const SLIDING_DENIED: &str = "sliding_window_counter, denial flood, one hot key";
const SLIDING_FEW: &str = "sliding_window_counter, 1,000 keys";
const SLIDING_UNIFORM: &str = "sliding_window_counter, 1 M keys, uniform";
const BATCH: &str = "batch of 64, 16 M keys";
const FULL: &str = "full check";
const FULL_BATCHES: &str = "full check, batches of 64";

/// All of them.
pub const GROUPS: &[Group] = &[
    Group { works: &[DIRECT], is_large: false, visit: one_bucket },
    Group { works: &[HOT], is_large: false, visit: hot_key },
    Group { works: &[DENIED_HOT, DENIED_PRIVATE], is_large: false, visit: denied },
    Group { works: &[ALLOWED_HOT, ALLOWED_PRIVATE], is_large: false, visit: allowed },
    Group {
        works: &[UNIFORM, UNIFORM_LIMITER, ZIPF, ZIPF_LIMITER, UNIFORM_BATCHES],
        is_large: false,
        visit: million_keys,
    },
    Group { works: &[DIRECT_COARSE, HOT_COARSE], is_large: false, visit: coarse_clock },
    Group { works: &[UNIFORM_COARSE, UNIFORM_LIMITER_COARSE], is_large: false, visit: coarse_clock_million_keys },
    Group { works: &[FIXED_DENIED, FIXED_FEW], is_large: false, visit: fixed_window },
    Group { works: &[FIXED_UNIFORM], is_large: false, visit: fixed_window_million_keys },
    Group { works: &[SLIDING_DENIED, SLIDING_FEW], is_large: false, visit: sliding_window_counter },
    Group { works: &[SLIDING_UNIFORM], is_large: false, visit: sliding_window_counter_million_keys },
    Group { works: &[BATCH], is_large: true, visit: batch },
    Group { works: &[FULL, FULL_BATCHES], is_large: false, visit: full_check },
];

/// The rows that publish while they check, after those of [`GROUPS`].
pub const PUBLISHING: [&str; 3] =
    ["publishing, full check", "publishing, by handle", "publishing other numbers, full check"];

/// The rows of memory, with their keys, after those of [`PUBLISHING`].
pub const MEMORY: [(&str, u64); 2] = [("memory, 1 M live keys", 1_000_000), ("memory, 100 M live keys", 100_000_000)];

/// Returns the names of all rows, in the order in which they are shown.
pub fn works() -> impl Iterator<Item = &'static str> {
    let groups = GROUPS.iter().flat_map(|group| group.works.iter().copied());
    groups.chain(PUBLISHING).chain(MEMORY.map(|(work, _)| work))
}

/// The keys of the rows with many keys.
const MILLION: u32 = 1_000_000;

fn one_bucket(visit: Visit<'_>) {
    let all = direct(Limit::WIDE);
    let [ours, peers @ ..] = &all;
    let peers = sides(peers, Keys::Hot, &[]);
    visit(&Row::new(DIRECT, 1, 1, ours.side(Keys::Hot, None), peers).best_peer(1.0));
}

fn hot_key(visit: Visit<'_>) {
    let (ours, texts) = (tidegate(1_000, Limit::WIDE), texts(1));
    let (floor, keyed_limiter) = (Contender::new("floor", Floor::default()), keyed_limiter(1_000, Limit::WIDE));
    let peers = keyed(Limit::WIDE, &texts);
    let mut others = vec![floor.side(Keys::Hot, Some(Goal::Ratio(0.8))), keyed_limiter.side(Keys::Hot, None)];
    others.extend(sides(&peers, Keys::Hot, &[("governor, String", 2.0)]));
    visit(&Row::new(HOT, 1, 1, ours.side(Keys::Hot, None), others).best_peer(1.5));
}

fn denied(visit: Visit<'_>) {
    two_threads(Limit::TIGHT, |ours, peers| {
        let hot = two_threads_hot(DENIED_HOT, (ours, 0.9), (peers, 7.0));
        visit(&hot);
        let peers = sides(peers, Keys::Private, &[]);
        visit(&Row::new(DENIED_PRIVATE, 2, 2, ours.side(Keys::Private, None), peers));
    });
}

fn allowed(visit: Visit<'_>) {
    two_threads(Limit::WIDE, |ours, peers| {
        let hot = two_threads_hot(ALLOWED_HOT, (ours, 0.8), (peers, 6.0));
        visit(&hot.at_most_ns(16.0));
        let peers = sides(peers, Keys::Private, &[]);
        visit(&Row::new(ALLOWED_PRIVATE, 2, 2, ours.side(Keys::Private, None), peers).best_peer(1.5));
    });
}

/// Makes ours and the peers for two threads.
fn two_threads(limit: Limit, run: impl FnOnce(&Contender<'_>, &[Contender<'_>])) {
    let texts = texts(3);
    run(&tidegate(1_000, limit), &keyed(limit, &texts));
}

/// Two threads on one key: as fast as on two by a factor of `share`, and `ratio` times as fast as governor and the best peer.
fn two_threads_hot<'a>(
    work: &'static str,
    (ours, share): (&'a Contender<'_>, f64),
    (peers, ratio): (&'a [Contender<'_>], f64),
) -> Row<'a> {
    let mut others = vec![ours.side_as("two private keys", Keys::Private, Some(Goal::Ratio(share)))];
    others.extend(sides(peers, Keys::Hot, &[("governor, u64", ratio)]));
    Row::new(work, 2, 1, ours.side(Keys::Hot, None), others).best_peer(ratio)
}

fn million_keys(visit: Visit<'_>) {
    let texts = texts(MILLION.into());
    let handle = ByHandle(engine(MILLION as usize, Limit::WIDE.per_second.into(), Limit::WIDE.burst.into()));
    let batches = Contender::new("tidegate, batches", InBatches(&handle.0)).filled(MILLION.into());
    let (handle, one) = (Contender::new("tidegate", &handle), Contender::new("one at a time", &handle));
    let limiter = keyed_limiter(MILLION as usize, Limit::WIDE).filled(MILLION.into());
    let peers = keyed(Limit::WIDE, &texts).map(|peer| peer.filled(MILLION.into()));
    let mut row = |work, ours: &Contender<'_>, numbers: &[u32], best: f64| {
        let keys = Keys::Drawn(numbers);
        let others = sides(&peers, keys, &[("governor, u64", 1.7), ("governor, String", 2.2)]);
        visit(&Row::new(work, 1, MILLION.into(), ours.side(keys, None), others).best_peer(best));
    };
    let (even, mut zipf) = (even(MILLION), Zipf::new(7, MILLION));
    let zipf = drawn(1 << 21, || zipf.draw());
    row(UNIFORM, &handle, &even, 1.0);
    row(UNIFORM_LIMITER, &limiter, &even, 1.25);
    row(ZIPF, &handle, &zipf, 1.3);
    row(ZIPF_LIMITER, &limiter, &zipf, 1.3);
    let keys = Keys::Drawn(&even);
    let mut others = vec![one.side(keys, None)];
    others.extend(sides(&peers, keys, &[]));
    let row = Row::new(UNIFORM_BATCHES, 2, MILLION.into(), batches.side(keys, None), others);
    visit(&row.at_least_millions(10.0));
}

fn coarse_clock(visit: Visit<'_>) {
    const WIDE: Limit = CoarseClocks::WIDE;
    let clocks = CoarseClocks::start();
    let all = clocks.direct(WIDE);
    let [ours, peers @ ..] = &all;
    visit(&Row::new(DIRECT_COARSE, 1, 1, ours.side(Keys::Hot, None), sides(peers, Keys::Hot, &[])));

    let texts = texts(1);
    let (ours, keyed_limiter) = (clocks.tidegate(1_000, WIDE), clocks.keyed_limiter(1_000, WIDE));
    let peers = clocks.keyed(WIDE, &texts);
    let mut others = vec![keyed_limiter.side(Keys::Hot, None)];
    others.extend(sides(&peers, Keys::Hot, &[]));
    visit(&Row::new(HOT_COARSE, 1, 1, ours.side(Keys::Hot, None), others));
}

fn coarse_clock_million_keys(visit: Visit<'_>) {
    const WIDE: Limit = CoarseClocks::WIDE;
    let (clocks, texts, even) = (CoarseClocks::start(), texts(MILLION.into()), even(MILLION));
    let ours = [clocks.tidegate(MILLION as usize, WIDE), clocks.keyed_limiter(MILLION as usize, WIDE)];
    let ours = ours.map(|ours| ours.filled(MILLION.into()));
    let peers = clocks.keyed(WIDE, &texts).map(|peer| peer.filled(MILLION.into()));
    let keys = Keys::Drawn(&even);
    for (work, ours) in [UNIFORM_COARSE, UNIFORM_LIMITER_COARSE].into_iter().zip(&ours) {
        visit(&Row::new(work, 1, MILLION.into(), ours.side(keys, None), sides(&peers, keys, &[])));
    }
}

fn fixed_window(visit: Visit<'_>) {
    windows_of_few_keys(visit, Window::Fixed, [FIXED_DENIED, FIXED_FEW]);
}

fn fixed_window_million_keys(visit: Visit<'_>) {
    window_row(visit, Window::Fixed, BOTH_WIDE, FIXED_UNIFORM, Keys::Drawn(&even(MILLION)), MILLION);
}

fn sliding_window_counter(visit: Visit<'_>) {
    windows_of_few_keys(visit, Window::SlidingCounter, [SLIDING_DENIED, SLIDING_FEW]);
}

fn sliding_window_counter_million_keys(visit: Visit<'_>) {
    window_row(visit, Window::SlidingCounter, BOTH_WIDE, SLIDING_UNIFORM, Keys::Drawn(&even(MILLION)), MILLION);
}

/// The numbers of a window, and of our token bucket beside it.
const BOTH_TIGHT: (u32, Limit) = (windows::TIGHT, Limit::TIGHT);
const BOTH_WIDE: (u32, Limit) = (windows::WIDE, Limit::WIDE);

/// A hot key, and keys that the caches hold.
fn windows_of_few_keys(visit: Visit<'_>, window: Window, [denied, few]: [&'static str; 2]) {
    window_row(visit, window, BOTH_TIGHT, denied, Keys::Hot, 1);
    window_row(visit, window, BOTH_WIDE, few, Keys::Drawn(&even(1_000)), 1_000);
}

/// A row of a window, beside our token bucket and the peer that has such windows.
///
/// One hot key is denied: what one processor asks for over one key is above every limit of these algorithms.
fn window_row(
    visit: Visit<'_>,
    window: Window,
    (limit, bucket): (u32, Limit),
    work: &'static str,
    keys: Keys<'_>,
    count: u32,
) {
    let room = count.max(1_000) as usize;
    let all = [
        window.tidegate(room, limit),
        tidegate(room, bucket),
        window.keyed_limiter(room, limit),
        window.rate_net(limit),
    ];
    let [ours, bucket, limiter, rate_net] = all.map(|contender| contender.filled(count.into()));
    let bucket = bucket.side_as("tidegate, token_bucket", keys, None);
    let others = vec![bucket, limiter.side(keys, None), rate_net.peer_side(keys, None)];
    visit(&Row::new(work, 1, count.into(), ours.side(keys, None), others));
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
    let others = vec![one.side(keys, Some(Goal::Ratio(3.0)))];
    visit(&Row::new(BATCH, 1, KEYS.into(), ours.side(keys, None), others).at_most_ns(20.0));
}

fn full_check(visit: Visit<'_>) {
    let full = FullCheck::new();
    let numbers = even(CLIENTS as u32);
    let (ours, by_handles) = (Contender::new("tidegate", &full), Contender::new("three by handle", full.by_handles()));
    let batches = Contender::new("tidegate, batches", full.in_batches());
    let (keys, count) = (Keys::Drawn(&numbers), 3 * CLIENTS as u64);
    let others = vec![by_handles.side(keys, Some(Goal::Ratio(0.5)))];
    visit(&Row::new(FULL, 2, count, ours.side(keys, None), others).at_most_ns(350.0));
    let others = vec![ours.side_as("one at a time", keys, None)];
    visit(&Row::new(FULL_BATCHES, 2, count, batches.side(keys, None), others));
}

/// Numbers below `bound`, each as likely as any other.
fn even(bound: u32) -> Vec<u32> {
    let mut even = Numbers::new(7, bound.into());
    drawn(1 << 21, || even.draw())
}

/// All peers on these keys; ours must reach so many times those that are named.
fn sides<'s>(peers: &'s [Contender<'_>], keys: Keys<'s>, goals: &[(&str, f64)]) -> Vec<Side<'s>> {
    let side = |peer: &'s Contender<'_>| {
        let goal = goals.iter().find(|(name, _)| *name == peer.name);
        peer.peer_side(keys, goal.map(|(_, ratio)| Goal::Ratio(*ratio)))
    };
    peers.iter().map(side).collect()
}
