//! The rows of the comparison, each with its work, its sides and their goals.

use crate::{
    batches::BatchedChecks,
    coarse_clocks::CoarseClocks,
    comparison::ComparisonRow,
    contender::{Contender, KeyChoice, Side},
    engine,
    floor::Floor,
    full_check::{BatchedFullCheck, CLIENTS, FullCheck, ThreeHandles},
    peers::{HandleChecks, TestLimit, direct, keyed, keyed_limiter, string_keys, tidegate},
    random::{Uniform, Zipf, draw_many},
    record::Goal,
    windows::{self, WindowAlgorithm},
};

/// A function that is called with one row after the other. What a row needs is made before the call and freed after it.
pub type Visit<'v> = &'v mut dyn FnMut(&ComparisonRow<'_>);

/// Rows that share limiters or keys.
#[derive(Clone, Copy, Debug)]
pub struct RowGroup {
    /// The names of the rows, in the order in which `visit` makes them.
    pub rows: &'static [&'static str],
    /// Whether the group needs so much memory and time that a quick run leaves it out.
    pub is_large: bool,
    /// Makes the rows, and calls the function with each.
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

/// The groups of all rows that measure the time of a check.
pub const GROUPS: &[RowGroup] = &[
    RowGroup { rows: &[DIRECT], is_large: false, visit: one_bucket },
    RowGroup { rows: &[HOT], is_large: false, visit: hot_key },
    RowGroup { rows: &[DENIED_HOT, DENIED_PRIVATE], is_large: false, visit: denied },
    RowGroup { rows: &[ALLOWED_HOT, ALLOWED_PRIVATE], is_large: false, visit: allowed },
    RowGroup {
        rows: &[UNIFORM, UNIFORM_LIMITER, ZIPF, ZIPF_LIMITER, UNIFORM_BATCHES],
        is_large: false,
        visit: million_keys,
    },
    RowGroup { rows: &[DIRECT_COARSE, HOT_COARSE], is_large: false, visit: coarse_clock },
    RowGroup { rows: &[UNIFORM_COARSE, UNIFORM_LIMITER_COARSE], is_large: false, visit: coarse_clock_million_keys },
    RowGroup { rows: &[FIXED_DENIED, FIXED_FEW], is_large: false, visit: fixed_window },
    RowGroup { rows: &[FIXED_UNIFORM], is_large: false, visit: fixed_window_million_keys },
    RowGroup { rows: &[SLIDING_DENIED, SLIDING_FEW], is_large: false, visit: sliding_window_counter },
    RowGroup { rows: &[SLIDING_UNIFORM], is_large: false, visit: sliding_window_counter_million_keys },
    RowGroup { rows: &[BATCH], is_large: true, visit: batch },
    RowGroup { rows: &[FULL, FULL_BATCHES], is_large: false, visit: full_check },
];

/// The names of the rows that publish while they check; they follow those of [`GROUPS`].
pub const PUBLISHING: [&str; 3] =
    ["publishing, full check", "publishing, by handle", "publishing other numbers, full check"];

/// The names of the rows that measure memory, with their number of keys; they follow those of [`PUBLISHING`].
pub const MEMORY: [(&str, u64); 2] = [("memory, 1 M live keys", 1_000_000), ("memory, 100 M live keys", 100_000_000)];

/// Returns the names of all rows in the order of the report.
pub fn row_names() -> impl Iterator<Item = &'static str> {
    let groups = GROUPS.iter().flat_map(|group| group.rows.iter().copied());
    groups.chain(PUBLISHING).chain(MEMORY.map(|(work, _)| work))
}

/// The number of keys in the rows with a million keys.
const MILLION: u32 = 1_000_000;

fn one_bucket(visit: Visit<'_>) {
    let all = direct(TestLimit::WIDE);
    let [ours, peers @ ..] = &all;
    let peers = sides(peers, KeyChoice::Hot, &[]);
    visit(&ComparisonRow::new(DIRECT, 1, 1, ours.side(KeyChoice::Hot, None), peers).best_peer(1.0));
}

fn hot_key(visit: Visit<'_>) {
    let (ours, texts) = (tidegate(1_000, TestLimit::WIDE), string_keys(1));
    let (floor, keyed_limiter) = (Contender::new("floor", Floor::default()), keyed_limiter(1_000, TestLimit::WIDE));
    let peers = keyed(TestLimit::WIDE, &texts);
    let mut others = vec![floor.side(KeyChoice::Hot, Some(Goal::Ratio(0.8))), keyed_limiter.side(KeyChoice::Hot, None)];
    others.extend(sides(&peers, KeyChoice::Hot, &[("governor, String", 2.0)]));
    visit(&ComparisonRow::new(HOT, 1, 1, ours.side(KeyChoice::Hot, None), others).best_peer(1.5));
}

fn denied(visit: Visit<'_>) {
    two_threads(TestLimit::TIGHT, |ours, peers| {
        let hot = two_threads_hot(DENIED_HOT, (ours, 0.9), (peers, 7.0));
        visit(&hot);
        let peers = sides(peers, KeyChoice::Private, &[]);
        visit(&ComparisonRow::new(DENIED_PRIVATE, 2, 2, ours.side(KeyChoice::Private, None), peers));
    });
}

fn allowed(visit: Visit<'_>) {
    two_threads(TestLimit::WIDE, |ours, peers| {
        let hot = two_threads_hot(ALLOWED_HOT, (ours, 0.8), (peers, 6.0));
        visit(&hot.at_most_ns(16.0));
        let peers = sides(peers, KeyChoice::Private, &[]);
        visit(&ComparisonRow::new(ALLOWED_PRIVATE, 2, 2, ours.side(KeyChoice::Private, None), peers).best_peer(1.5));
    });
}

/// Calls `run` with our limiter and the peers, with keys for two threads.
fn two_threads(limit: TestLimit, run: impl FnOnce(&Contender<'_>, &[Contender<'_>])) {
    let texts = string_keys(3);
    run(&tidegate(1_000, limit), &keyed(limit, &texts));
}

/// Returns a row of two threads on one key. Its goals: at least `share` of the speed on two private keys, and `ratio` times the
/// speed of governor and of the best peer.
fn two_threads_hot<'a>(
    work: &'static str,
    (ours, share): (&'a Contender<'_>, f64),
    (peers, ratio): (&'a [Contender<'_>], f64),
) -> ComparisonRow<'a> {
    let mut others = vec![ours.side_as("two private keys", KeyChoice::Private, Some(Goal::Ratio(share)))];
    others.extend(sides(peers, KeyChoice::Hot, &[("governor, u64", ratio)]));
    ComparisonRow::new(work, 2, 1, ours.side(KeyChoice::Hot, None), others).best_peer(ratio)
}

fn million_keys(visit: Visit<'_>) {
    let texts = string_keys(MILLION.into());
    let handle =
        HandleChecks(engine(MILLION as usize, TestLimit::WIDE.per_second.into(), TestLimit::WIDE.burst.into()));
    let batches = Contender::new("tidegate, batches", BatchedChecks(&handle.0)).filled(MILLION.into());
    let (handle, single) = (Contender::new("tidegate", &handle), Contender::new("one at a time", &handle));
    let limiter = keyed_limiter(MILLION as usize, TestLimit::WIDE).filled(MILLION.into());
    let peers = keyed(TestLimit::WIDE, &texts).map(|peer| peer.filled(MILLION.into()));
    let mut row = |work, ours: &Contender<'_>, numbers: &[u32], best: f64| {
        let keys = KeyChoice::Drawn(numbers);
        let others = sides(&peers, keys, &[("governor, u64", 1.7), ("governor, String", 2.2)]);
        visit(&ComparisonRow::new(work, 1, MILLION.into(), ours.side(keys, None), others).best_peer(best));
    };
    let (uniform, mut zipf) = (uniform_numbers(MILLION), Zipf::new(7, MILLION));
    let zipf = draw_many(1 << 21, || zipf.draw());
    row(UNIFORM, &handle, &uniform, 1.0);
    row(UNIFORM_LIMITER, &limiter, &uniform, 1.25);
    row(ZIPF, &handle, &zipf, 1.3);
    row(ZIPF_LIMITER, &limiter, &zipf, 1.3);
    let keys = KeyChoice::Drawn(&uniform);
    let mut others = vec![single.side(keys, None)];
    others.extend(sides(&peers, keys, &[]));
    let row = ComparisonRow::new(UNIFORM_BATCHES, 2, MILLION.into(), batches.side(keys, None), others);
    visit(&row.at_least_millions(10.0));
}

fn coarse_clock(visit: Visit<'_>) {
    const WIDE: TestLimit = CoarseClocks::WIDE;
    let clocks = CoarseClocks::start();
    let all = clocks.direct(WIDE);
    let [ours, peers @ ..] = &all;
    visit(&ComparisonRow::new(DIRECT_COARSE, 1, 1, ours.side(KeyChoice::Hot, None), sides(peers, KeyChoice::Hot, &[])));

    let texts = string_keys(1);
    let (ours, keyed_limiter) = (clocks.tidegate(1_000, WIDE), clocks.keyed_limiter(1_000, WIDE));
    let peers = clocks.keyed(WIDE, &texts);
    let mut others = vec![keyed_limiter.side(KeyChoice::Hot, None)];
    others.extend(sides(&peers, KeyChoice::Hot, &[]));
    visit(&ComparisonRow::new(HOT_COARSE, 1, 1, ours.side(KeyChoice::Hot, None), others));
}

fn coarse_clock_million_keys(visit: Visit<'_>) {
    const WIDE: TestLimit = CoarseClocks::WIDE;
    let (clocks, texts, uniform) = (CoarseClocks::start(), string_keys(MILLION.into()), uniform_numbers(MILLION));
    let ours = [clocks.tidegate(MILLION as usize, WIDE), clocks.keyed_limiter(MILLION as usize, WIDE)];
    let ours = ours.map(|ours| ours.filled(MILLION.into()));
    let peers = clocks.keyed(WIDE, &texts).map(|peer| peer.filled(MILLION.into()));
    let keys = KeyChoice::Drawn(&uniform);
    for (work, ours) in [UNIFORM_COARSE, UNIFORM_LIMITER_COARSE].into_iter().zip(&ours) {
        visit(&ComparisonRow::new(work, 1, MILLION.into(), ours.side(keys, None), sides(&peers, keys, &[])));
    }
}

fn fixed_window(visit: Visit<'_>) {
    windows_of_few_keys(visit, WindowAlgorithm::Fixed, [FIXED_DENIED, FIXED_FEW]);
}

fn fixed_window_million_keys(visit: Visit<'_>) {
    let numbers = uniform_numbers(MILLION);
    window_row(visit, WindowAlgorithm::Fixed, BOTH_WIDE, FIXED_UNIFORM, KeyChoice::Drawn(&numbers), MILLION);
}

fn sliding_window_counter(visit: Visit<'_>) {
    windows_of_few_keys(visit, WindowAlgorithm::SlidingCounter, [SLIDING_DENIED, SLIDING_FEW]);
}

fn sliding_window_counter_million_keys(visit: Visit<'_>) {
    let numbers = uniform_numbers(MILLION);
    window_row(visit, WindowAlgorithm::SlidingCounter, BOTH_WIDE, SLIDING_UNIFORM, KeyChoice::Drawn(&numbers), MILLION);
}

/// The limit of a window, and of our token bucket beside it.
const BOTH_TIGHT: (u32, TestLimit) = (windows::TIGHT, TestLimit::TIGHT);
const BOTH_WIDE: (u32, TestLimit) = (windows::WIDE, TestLimit::WIDE);

/// Visits a row with one hot key, which is denied, and a row with a thousand keys, which fit into the caches.
fn windows_of_few_keys(visit: Visit<'_>, window: WindowAlgorithm, [denied, few]: [&'static str; 2]) {
    window_row(visit, window, BOTH_TIGHT, denied, KeyChoice::Hot, 1);
    window_row(visit, window, BOTH_WIDE, few, KeyChoice::Drawn(&uniform_numbers(1_000)), 1_000);
}

/// Visits a row that compares a window with our token bucket and with the peer that has such windows.
///
/// A single hot key has to be denied: one processor makes more checks of one key than any limit of these algorithms admits.
fn window_row(
    visit: Visit<'_>,
    window: WindowAlgorithm,
    (limit, bucket): (u32, TestLimit),
    work: &'static str,
    keys: KeyChoice<'_>,
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
    visit(&ComparisonRow::new(work, 1, count.into(), ours.side(keys, None), others));
}

fn batch(visit: Visit<'_>) {
    const KEYS: u32 = 16_000_000;
    let by_handle =
        HandleChecks(engine(KEYS as usize, TestLimit::WIDE.per_second.into(), TestLimit::WIDE.burst.into()));
    let ours = Contender::new("tidegate, batches", BatchedChecks(&by_handle.0)).filled(KEYS.into());
    let single = Contender::new("one at a time", &by_handle);
    let mut uniform = Uniform::new(7, KEYS.into());
    // As many numbers as keys, so that no key is still in the caches when the sequence starts again.
    let numbers = draw_many(1 << 24, || uniform.draw());
    let keys = KeyChoice::Drawn(&numbers);
    let others = vec![single.side(keys, Some(Goal::Ratio(3.0)))];
    visit(&ComparisonRow::new(BATCH, 1, KEYS.into(), ours.side(keys, None), others).at_most_ns(20.0));
}

fn full_check(visit: Visit<'_>) {
    let full = FullCheck::new();
    let numbers = uniform_numbers(CLIENTS as u32);
    let (ours, by_handles) =
        (Contender::new("tidegate", &full), Contender::new("three by handle", ThreeHandles(&full)));
    let batches = Contender::new("tidegate, batches", BatchedFullCheck(&full));
    let (keys, count) = (KeyChoice::Drawn(&numbers), 3 * CLIENTS as u64);
    let others = vec![by_handles.side(keys, Some(Goal::Ratio(0.5)))];
    visit(&ComparisonRow::new(FULL, 2, count, ours.side(keys, None), others).at_most_ns(350.0));
    let others = vec![ours.side_as("one at a time", keys, None)];
    visit(&ComparisonRow::new(FULL_BATCHES, 2, count, batches.side(keys, None), others));
}

/// Draws uniform numbers below `bound`.
fn uniform_numbers(bound: u32) -> Vec<u32> {
    let mut uniform = Uniform::new(7, bound.into());
    draw_many(1 << 21, || uniform.draw())
}

/// Returns all peers as sides with these keys. `goals` has the ratios that ours must reach beside the named peers.
fn sides<'s>(peers: &'s [Contender<'_>], keys: KeyChoice<'s>, goals: &[(&str, f64)]) -> Vec<Side<'s>> {
    let side = |peer: &'s Contender<'_>| {
        let goal = goals.iter().find(|(name, _)| *name == peer.name);
        peer.peer_side(keys, goal.map(|(_, ratio)| Goal::Ratio(*ratio)))
    };
    peers.iter().map(side).collect()
}
