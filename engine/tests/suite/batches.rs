//! Batches decide exactly as checks one at a time, at the same instant and in the same order, whatever requests they
//! contain and whatever is published meanwhile.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use proptest::prelude::*;
use tidegate::{
    Decision, Engine, Handle, Identity, Request, RequestError, Snapshot,
    clock::{Clock, ManualClock},
    formats::Format,
    time::Timestamp,
};

const SECOND: u64 = 1_000_000_000;
/// The beginning of a minute and of a day in 2026.
const NOW: u64 = 1_790_035_200 * SECOND;

/// The last one has no limits.
const KINDS: [&str; 4] = ["user", "ip", "key", "guest"];

/// Returns a policy with every algorithm, a shadow limit, a limit of nothing, and one that nodes share; a rule for
/// everyone, and a rule that multiplies costs. `raise` is added to the numbers.
fn policy(raise: u64) -> String {
    let limit = |id: &str, algorithm: &str, limit: u64, more: &str| {
        format!("{{ id = \"{id}\", algorithm = \"{algorithm}\", limit = {limit}, period = \"10s\"{more} }},")
    };
    let tiers: [Vec<String>; 3] = [
        vec![limit("a", "token_bucket", 6 + raise, ""), limit("b", "sliding_window_log", 9 + raise, "")],
        vec![
            limit("a", "fixed_window", 12 + raise, ""),
            limit("b", "sliding_window_counter", 10 + raise, ""),
            limit("c", "leaky_bucket", 5 + raise, ", mode = \"shadow\""),
        ],
        vec![limit("a", "leaky_bucket", 20 + raise, ", sharing = \"strict\", on_failure = { local = 0.5 }")],
    ];
    let defaults: Vec<String> = KINDS[..3].iter().map(|kind| format!("{kind} = \"{kind}\"")).collect();
    let mut text = format!("[domains.default]\ndefaults = {{ {} }}\n", defaults.join(", "));
    for (kind, limits) in KINDS.iter().zip(tiers) {
        let _ = write!(text, "[[domains.default.tiers]]\nid = \"{kind}\"\nlimits = [{}]\n", limits.concat());
    }
    for (endpoint, per, cost, numbers) in [
        ("/all", "\"everyone\"", 1, limit("l", "token_bucket", 30 + raise, "")),
        ("/dear", "[\"user\", \"ip\"]", 3, limit("l", "fixed_window", 25 + raise, "")),
        ("/never", "\"user\"", 1, limit("l", "token_bucket", 0, "")),
    ] {
        let id = &endpoint[1..];
        let _ = write!(
            text,
            "[[domains.default.rules]]\nid = \"{id}\"\nendpoint = \"{endpoint}\"\nper = {per}\ncost = {cost}\nlimits = [{numbers}]\n"
        );
    }
    text
}

fn snapshot(raise: u64) -> Snapshot {
    Snapshot::parse(&policy(raise), Format::Toml).expect("a good policy")
}

/// Makes an engine. Two engines of the same seed decide alike.
fn engine(max_keys: usize) -> Engine<ManualClock> {
    let engine = Engine::for_simulation(max_keys, ManualClock::at(Timestamp::from_nanos(NOW)), 7);
    engine.publish(snapshot(0)).expect("few limits");
    engine
}

/// A request as numbers: its identities and their values, its endpoint, and its cost.
#[derive(Clone, Debug)]
struct RequestNumbers {
    values: Vec<(usize, u8)>,
    endpoint: Option<&'static str>,
    cost: u64,
}

fn asked() -> impl Strategy<Value = RequestNumbers> {
    let values = proptest::sample::subsequence(vec![0, 1, 2, 3], 1..=4).prop_flat_map(|kinds| {
        proptest::collection::vec(0..4_u8, kinds.len())
            .prop_map(move |values| kinds.iter().copied().zip(values).collect())
    });
    let endpoint = proptest::sample::select(vec![None, Some("/all"), Some("/dear"), Some("/never"), Some("/other")]);
    (values, endpoint, prop_oneof![4 => 0..4_u64, 1 => Just(1 << 40)])
        .prop_map(|(values, endpoint, cost)| RequestNumbers { values, endpoint, cost })
}

/// Calls `ask` with the requests, which borrow the names of their identities.
fn with_requests<T>(asked: &[RequestNumbers], ask: impl FnOnce(&[Request<'_>]) -> T) -> T {
    let texts: Vec<Vec<(usize, String)>> = asked
        .iter()
        .map(|asked| asked.values.iter().map(|&(kind, value)| (kind, format!("{value}"))).collect())
        .collect();
    let identities: Vec<Vec<Identity<'_>>> = texts
        .iter()
        .map(|texts| texts.iter().map(|(kind, text)| Identity::new(KINDS[*kind], text).expect("valid")).collect())
        .collect();
    let requests: Vec<Request<'_>> = asked
        .iter()
        .zip(&identities)
        .map(|(asked, identities)| {
            let request = Request::new(identities).expect("valid");
            let request = asked.endpoint.map_or(Ok(request), |endpoint| request.endpoint(endpoint)).expect("valid");
            if asked.cost == 0 { request.without_cost() } else { request.cost(asked.cost).expect("in range") }
        })
        .collect();
    ask(&requests)
}

/// Returns everything that a decision says.
fn said(decision: &Decision<'_>) -> String {
    format!("{decision:?} {:?} {:?}", decision.limit_id(), decision.shadow_denied().collect::<Vec<_>>())
}

/// A receiver of decisions that publishes another policy after some of them, in the middle of a batch.
struct Publisher<'e> {
    engine: &'e Engine<ManualClock>,
    /// Pairs of a number of decisions and the amount that is then added to the numbers.
    publishes: &'e [(usize, u64)],
    said: Vec<String>,
}

impl<'e> Extend<Decision<'e>> for Publisher<'e> {
    fn extend<T: IntoIterator<Item = Decision<'e>>>(&mut self, decisions: T) {
        for decision in decisions {
            self.said.push(said(&decision));
            for (_, raise) in self.publishes.iter().filter(|(after, _)| *after == self.said.len()) {
                self.engine.publish(snapshot(*raise)).expect("the same limits");
            }
        }
    }
}

fn publishes() -> impl Strategy<Value = Vec<(usize, u64)>> {
    proptest::collection::vec((1..150_usize, 0..3_u64), 0..4)
}

proptest! {
    #[test]
    fn a_batch_answers_what_single_checks_answer_also_while_policies_change(
        batches in proptest::collection::vec((proptest::collection::vec(asked(), 0..150), publishes(), 0..8 * SECOND), 1..4),
        max_keys in prop_oneof![Just(3_usize), Just(1_000)],
    ) {
        let (one, other) = (engine(max_keys), engine(max_keys));
        for (batch, publishes, pause) in &batches {
            with_requests(batch, |requests| {
                let mut together = Publisher { engine: &one, publishes, said: Vec::new() };
                one.check_batch(requests, &mut together);
                let mut alone = Publisher { engine: &other, publishes, said: Vec::new() };
                for request in requests {
                    alone.extend([other.check(request)]);
                }
                prop_assert_eq!(together.said, alone.said);
                Ok(())
            })?;
            prop_assert_eq!(one.totals(), other.totals());
            prop_assert_eq!(one.limit_counts(), other.limit_counts());
            prop_assert_eq!(one.overflow_charges(), other.overflow_charges());
            one.clock().advance(Duration::from_nanos(*pause));
            other.clock().advance(Duration::from_nanos(*pause));
        }
    }

    #[test]
    fn a_batch_of_a_handle_answers_what_its_single_checks_answer(
        limit in proptest::sample::select(vec![
            ("user", "default/tier:user/a"), ("user", "default/tier:user/b"), ("ip", "default/tier:ip/a"),
            ("ip", "default/tier:ip/b"), ("ip", "default/tier:ip/c"), ("key", "default/tier:key/a"),
            ("user", "default/rule:never/l"),
        ]),
        batches in proptest::collection::vec(
            (proptest::collection::vec(0..20_u64, 0..150), 1..4_u64, publishes(), 0..8 * SECOND), 1..4),
        max_keys in prop_oneof![Just(3_usize), Just(1_000)],
    ) {
        let (one, other) = (engine(max_keys), engine(max_keys));
        let handle = |engine| Engine::handle(engine, limit.1, limit.0).expect("the policy has it");
        let (mut batching, mut checking): (Handle<'_, _>, Handle<'_, _>) = (handle(&one), handle(&other));
        for (keys, cost, publishes, pause) in &batches {
            let mut together = Publisher { engine: &one, publishes, said: Vec::new() };
            batching.check_batch_n(keys, *cost, &mut together).expect("in range");
            let mut alone = Publisher { engine: &other, publishes, said: Vec::new() };
            for key in keys {
                alone.extend([checking.check_n(key, *cost).expect("in range")]);
            }
            prop_assert_eq!(together.said, alone.said);
            prop_assert_eq!(one.totals(), other.totals());
            one.clock().advance(Duration::from_nanos(*pause));
            other.clock().advance(Duration::from_nanos(*pause));
        }
    }
}

/// The plans of two such requests do not fit into one group of fetched lines.
#[test]
fn requests_with_as_many_limits_as_there_can_be_are_decided_in_their_order() {
    let limits: Vec<String> = (0..20)
        .map(|id| format!("{{ id = \"l{id}\", algorithm = \"fixed_window\", limit = 7, period = \"1m\" }},"))
        .collect();
    let limits = limits.concat();
    let mut text = "[domains.default]\ndefaults = { user = \"t\", ip = \"t\", key = \"t\" }\n".to_owned();
    let _ = write!(text, "[[domains.default.tiers]]\nid = \"t\"\nlimits = [{limits}]\n");
    let engine = Engine::for_simulation(1_000, ManualClock::at(Timestamp::from_nanos(NOW)), 7);
    engine.publish(Snapshot::parse(&text, Format::Toml).expect("a good policy")).expect("few limits");
    let who = ["user", "ip", "key"].map(|kind| Identity::new(kind, "ada").expect("valid"));
    let mut decisions = Vec::new();
    engine.check_batch(&[Request::new(&who).expect("valid"); 10], &mut decisions);
    let allowed: Vec<bool> = decisions.iter().map(Decision::is_allowed).collect();
    assert_eq!(allowed, [true, true, true, true, true, true, true, false, false, false]);
    assert!(decisions[..7].iter().map(Decision::remaining).eq((0..7).rev().map(Some)));
}

#[test]
fn a_cost_out_of_range_decides_nothing() {
    let engine = engine(1_000);
    let mut handle = engine.handle("default/tier:user/a", "user").expect("the policy has it");
    let mut decisions = Vec::new();
    for cost in [0, 1 << 53, u64::MAX] {
        assert!(
            matches!(handle.check_batch_n(&["ada"], cost, &mut decisions), Err(RequestError::Cost(given)) if given == cost)
        );
    }
    assert!(decisions.is_empty());
    assert_eq!(engine.totals(), tidegate::Totals::default());
}

/// A handle whose limit is gone allows, and finds it again when it is back.
#[test]
fn a_batch_of_a_limit_that_the_policy_lost_is_allowed() {
    let engine = engine(1_000);
    let mut handle = engine.handle("default/tier:user/a", "user").expect("the policy has it");
    let mut allowed = |count: usize| {
        let mut decisions = Vec::new();
        handle.check_batch(&vec!["ada"; count], &mut decisions);
        decisions.iter().filter(|decision| decision.is_allowed()).count()
    };
    assert_eq!(allowed(10), 6);
    engine.publish(Snapshot::default()).expect("nothing");
    assert_eq!(allowed(100), 100);
    engine.publish(snapshot(0)).expect("the same limits");
    assert_eq!(allowed(10), 0);
}

/// A clock that moves by a nanosecond at every reading, as a real clock does.
#[derive(Debug)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// A new key, or one in overflow, is charged at a time read anew; the next check of the batch must not be behind that.
#[test]
fn a_new_key_has_its_whole_burst_within_one_batch() {
    for max_keys in [1_000, 1] {
        let engine = Engine::for_simulation(max_keys, Ticking(AtomicU64::new(NOW)), 7);
        engine.publish(snapshot(0)).expect("few limits");
        // These keys fill the table.
        let mut others = engine.handle("default/tier:ip/a", "ip").expect("the policy has it");
        for other in 0..if max_keys == 1 { 100_u64 } else { 0 } {
            let _ = others.check(other);
        }
        assert_eq!(engine.overflow_charges() > 0, max_keys == 1);
        let allowed = |decisions: Vec<Decision<'_>>| decisions.iter().filter(|decision| decision.is_allowed()).count();
        let mut decisions = Vec::new();
        let mut handle = engine.handle("default/tier:user/a", "user").expect("the policy has it");
        handle.check_batch(&["ada"; 10], &mut decisions);
        if max_keys > 1 {
            let left = decisions.iter().filter(|decision| decision.is_allowed()).map(Decision::remaining);
            assert!(left.eq([5, 4, 3, 2, 1, 0].map(Some)), "{decisions:?}");
        }
        assert_eq!(allowed(decisions), 6, "by a handle, room for {max_keys}");

        let engine = Engine::for_simulation(max_keys, Ticking(AtomicU64::new(NOW)), 7);
        engine.publish(snapshot(0)).expect("few limits");
        let who = [Identity::new("user", "ada").expect("valid"), Identity::new("ip", "ada").expect("valid")];
        let mut decisions = Vec::new();
        engine.check_batch(&[Request::new(&who).expect("valid"); 10], &mut decisions);
        assert_eq!(allowed(decisions), 6, "by requests, room for {max_keys}");
    }
}
