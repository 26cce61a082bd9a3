//! Atomic batches: requests that are decided together are charged all or nothing, each with the decision that it would
//! have had in its turn.

mod threads;

use std::{
    fmt::Write as _,
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use proptest::prelude::*;
use tidegate::{
    Decision, Engine, Identity, Rate, RatedLimiter, Request, Retry, Snapshot, algorithm::TokenBucket,
    clock::ManualClock, formats::Format, time::Timestamp,
};
use tidegate_conformance::Deadline;

const SECOND: u64 = 1_000_000_000;
/// The beginning of a minute and of a day in 2026.
const NOW: u64 = 1_790_035_200 * SECOND;
const KINDS: [&str; 4] = ["user", "ip", "key", "guest"];
const PATHS: [&str; 4] = ["/all", "/pair", "/dear", "/other"];

/// Returns a policy with every algorithm, a shadow limit, one that nodes share; rules for one kind, for two together, and for everyone.
fn policy() -> String {
    let limit = |id: &str, algorithm: &str, limit: u64, more: &str| {
        format!("{{ id = \"{id}\", algorithm = \"{algorithm}\", limit = {limit}, period = \"10s\"{more} }},")
    };
    let tiers = [
        ("user", [limit("a", "token_bucket", 6, ""), limit("b", "sliding_window_log", 9, "")].concat()),
        ("ip", [limit("a", "fixed_window", 5, ""), limit("c", "leaky_bucket", 3, ", mode = \"shadow\"")].concat()),
        ("key", limit("a", "sliding_window_counter", 8, ", sharing = \"strict\", on_failure = { local = 0.5 }")),
    ];
    let mut text = "[domains.shop]\ndefaults = { user = \"user\", ip = \"ip\", key = \"key\" }\n".to_owned();
    for (id, limits) in tiers {
        let _ = write!(text, "[[domains.shop.tiers]]\nid = \"{id}\"\nlimits = [{limits}]\n");
    }
    for (id, endpoint, per, cost, limits) in [
        ("all", "/all", "\"everyone\"", 1, limit("l", "token_bucket", 7, "")),
        ("any", "*", "\"everyone\"", 1, limit("l", "fixed_window", 15, "")),
        ("pair", "/pair", "[\"user\", \"ip\"]", 1, limit("l", "fixed_window", 4, "")),
        ("two", "*", "[\"user\", \"key\"]", 1, limit("l", "sliding_window_log", 5, "")),
        ("dear", "/dear", "\"user\"", 3, limit("l", "token_bucket", 11, "")),
    ] {
        let _ = write!(
            text,
            "[[domains.shop.rules]]\nid = \"{id}\"\nendpoint = \"{endpoint}\"\nper = {per}\ncost = {cost}\nlimits = [{limits}]\n"
        );
    }
    text
}

fn engine(at: u64) -> Engine<ManualClock> {
    let engine = Engine::for_simulation(1_000, ManualClock::at(Timestamp::from_nanos(at)), 7);
    engine.publish(Snapshot::parse(&policy(), Format::Toml).expect("a good policy")).expect("few limits");
    engine
}

/// A request as numbers.
#[derive(Clone, Debug)]
struct RequestNumbers {
    values: Vec<(usize, u8)>,
    path: Option<usize>,
    cost: u64,
    /// The tokens in ten minutes, if the request brings its own numbers.
    rate: Option<u64>,
}

fn asked() -> impl Strategy<Value = RequestNumbers> {
    let values = proptest::sample::subsequence(vec![0, 1, 2, 3], 0..=2).prop_flat_map(|kinds| {
        proptest::collection::vec(0..2_u8, kinds.len())
            .prop_map(move |values| kinds.iter().copied().zip(values).collect())
    });
    let path = proptest::option::of(0..PATHS.len());
    let cost = prop_oneof![1 => Just(0), 6 => 1..4_u64, 1 => Just(1 << 40)];
    (values, path, cost, proptest::option::weighted(0.3, 0..9_u64))
        .prop_map(|(values, path, cost, rate)| RequestNumbers { values, path, cost, rate })
}

fn rate(tokens: u64) -> Rate {
    Rate::per_hour(6 * tokens).burst(tokens)
}

/// Calls `ask` with the requests, which borrow the names of their identities.
fn with_requests<T>(asked: &[RequestNumbers], ask: impl FnOnce(&[(Request<'_>, Option<Rate>)]) -> T) -> T {
    let texts: Vec<Vec<(usize, String)>> = asked
        .iter()
        .map(|asked| asked.values.iter().map(|&(kind, value)| (kind, value.to_string())).collect())
        .collect();
    let identity = |(kind, text)| Identity::new(KINDS[kind], text).expect("valid");
    let identities: Vec<Vec<Identity<'_>>> =
        texts.iter().map(|texts| texts.iter().map(|(kind, text)| identity((*kind, text))).collect()).collect();
    let request = |(asked, identities)| -> (Request<'_>, Option<Rate>) {
        let (asked, identities): (&RequestNumbers, &Vec<_>) = (asked, identities);
        let request = Request::exactly(identities).expect("valid").domain("shop");
        let request = asked.path.map_or(Ok(request), |path| request.endpoint(PATHS[path])).expect("short");
        let request =
            if asked.cost == 0 { request.without_cost() } else { request.cost(asked.cost).expect("in range") };
        (request, asked.rate.map(rate))
    };
    ask(&asked.iter().zip(&identities).map(request).collect::<Vec<_>>())
}

/// The slow model: charges everything so far again to new limiters, so that nothing must be undone.
struct Model {
    engine: Engine<ManualClock>,
    rated: RatedLimiter<ManualClock>,
}

/// Whether it is allowed, by which limit, and its numbers.
#[derive(PartialEq, Eq, Debug)]
struct Said {
    is_allowed: bool,
    limit_id: Option<String>,
    limit: Option<u64>,
    /// The remaining tokens, when all of them are there again, and when to retry.
    numbers: Option<(Option<u64>, Option<u64>, Retry)>,
}

impl Said {
    fn of(decision: &Decision<'_>) -> Self {
        let ms = |wait: Duration| wait.as_nanos() as u64;
        Self {
            is_allowed: decision.is_allowed(),
            limit_id: decision.limit_id().map(str::to_owned),
            limit: decision.limit(),
            numbers: Some((decision.remaining(), decision.reset_after().map(ms), decision.retry())),
        }
    }

    /// Returns only the limit of a refusal: its numbers differ where a charge of the same call stood in its way.
    fn of_refusal(self) -> Self {
        Self { numbers: self.numbers.filter(|_| self.is_allowed), ..self }
    }
}

impl Model {
    fn after(calls: &[(Vec<RequestNumbers>, u64)]) -> Self {
        let clock = ManualClock::at(Timestamp::from_nanos(NOW));
        let engine = Engine::for_simulation(1_000, clock.clone(), 7);
        engine.publish(Snapshot::parse(&policy(), Format::Toml).expect("a good policy")).expect("few limits");
        let model = Self { engine, rated: RatedLimiter::with_clock(1_000, clock) };
        for (charged, pause) in calls {
            for asked in charged {
                assert!(model.check(asked, asked.cost, false).is_allowed, "it was allowed then");
            }
            model.engine.clock().advance(Duration::from_nanos(*pause));
        }
        model
    }

    fn check(&self, asked: &RequestNumbers, cost: u64, is_peek: bool) -> Said {
        if let Some(tokens) = asked.rate {
            let key = format!("{:?} {:?} {tokens}", asked.values, asked.path);
            let bucket = TokenBucket::new(6 * tokens.max(1), Duration::from_hours(1), tokens.max(1)).expect("it fits");
            let outcome = match is_peek {
                // Numbers that admit nothing.
                _ if tokens == 0 => None,
                true => Some(self.rated.peek_n(&*key, bucket, cost)),
                false => Some(self.rated.check_n(&*key, bucket, cost)),
            };
            let numbers = outcome
                .map_or((0, 0, Retry::Never), |it| (it.remaining(), it.reset_after().as_nanos() as u64, it.retry()));
            return Said {
                is_allowed: outcome.is_some_and(|outcome| outcome.is_allowed()),
                limit_id: Some("override".to_owned()),
                limit: Some(tokens),
                numbers: Some((Some(numbers.0), Some(numbers.1), numbers.2)),
            };
        }
        let one = [RequestNumbers { cost, rate: None, ..asked.clone() }];
        with_requests(&one, |requests| {
            let request = &requests[0].0;
            Said::of(&if is_peek { self.engine.peek(request) } else { self.engine.check(request) })
        })
    }
}

proptest! {
    #[test]
    fn it_is_as_if_they_were_checked_in_turn_and_undone_where_one_is_denied(
        calls in proptest::collection::vec((proptest::collection::vec(asked(), 0..5), 0..4 * SECOND), 1..14),
    ) {
        let engine = engine(NOW);
        let mut charged: Vec<(Vec<RequestNumbers>, u64)> = Vec::new();
        for (asked, pause) in calls {
            let mut said: Vec<Said> = Vec::new();
            with_requests(&asked, |requests| {
                let mut decisions = Vec::new();
                engine.check_atomic_batch(requests, &mut decisions);
                said.extend(decisions.iter().map(Said::of));
            });

            let (before, trial) = (Model::after(&charged), Model::after(&charged));
            let mut expected: Vec<Said> = asked
                .iter()
                .map(|asked| trial.check(asked, asked.cost.max(1), asked.cost == 0))
                .collect();
            let all = expected.iter().all(|said| said.is_allowed);
            for (asked, expected) in asked.iter().zip(&mut expected) {
                if expected.is_allowed && (!all || asked.cost == 0) {
                    *expected = before.check(asked, 0, true);
                }
            }
            let (said, expected): (Vec<_>, Vec<_>) =
                (said.into_iter().map(Said::of_refusal).collect(), expected.into_iter().map(Said::of_refusal).collect());
            prop_assert_eq!(said, expected);
            let paid = asked.into_iter().filter(|asked| all && asked.cost > 0).collect();
            charged.push((paid, pause));
            engine.clock().advance(Duration::from_nanos(pause));
        }
    }
}

fn who<'a>(kind: &'a str, value: &'a str) -> Identity<'a> {
    Identity::new(kind, value).expect("valid")
}

fn limits(engine: &Engine<ManualClock>, identities: &[Identity<'_>], path: Option<&str>) -> Vec<String> {
    let request = Request::exactly(identities).expect("valid").domain("shop");
    let request = path.map_or(Ok(request), |path| request.endpoint(path)).expect("short");
    let mut met = Vec::new();
    let _ = engine.check_observing(&request, |limit| met.push(engine.limit_name(limit.limit).to_owned()));
    met
}

#[test]
fn exactly_these_identities_meet_the_rules_of_their_set_alone() {
    let engine = engine(NOW);
    let (user, ip, guest) = (who("user", "a"), who("ip", "a"), who("guest", "a"));
    let tier = ["shop/tier:user/a", "shop/tier:user/b"];
    assert_eq!(limits(&engine, &[user], None), tier);
    assert_eq!(limits(&engine, &[user], Some("/dear")), [&tier[..], &["shop/rule:dear/l"]].concat());
    // No tier, no rule of one kind, none of everyone.
    assert_eq!(limits(&engine, &[user, ip], Some("/pair")), ["shop/rule:pair/l"]);
    assert_eq!(limits(&engine, &[ip, user], Some("/pair")), ["shop/rule:pair/l"]);
    assert_eq!(limits(&engine, &[user, ip], Some("/all")), [""; 0]);
    assert_eq!(limits(&engine, &[user, guest], Some("/dear")), [""; 0], "the policy does not speak of that kind");
    assert_eq!(limits(&engine, &[guest], Some("/all")), [""; 0]);
    // No identity at all: the rules for everyone.
    assert_eq!(limits(&engine, &[], Some("/all")), ["shop/rule:all/l"]);
    assert_eq!(limits(&engine, &[], None), ["shop/rule:any/l"], "without a path by `*` alone");
    // A request without that flag meets its limits as usual.
    let both = [user, ip];
    let request = Request::new(&both).expect("valid").domain("shop").endpoint("/all").expect("short");
    let mut met = 0;
    let _ = engine.check_observing(&request, |_| met += 1);
    assert_eq!(met, 5, "two tiers, and everyone");
}

#[test]
fn the_numbers_of_a_request_replace_those_of_the_policy() {
    let engine = engine(NOW);
    let ada = [who("user", "ada")];
    let request = Request::exactly(&ada).expect("valid").domain("shop");
    let ask = |rate| {
        let mut decisions = Vec::new();
        engine.check_atomic_batch(&[(request, rate)], &mut decisions);
        let decision = decisions.pop().expect("one");
        (decision.is_allowed(), decision.remaining(), decision.limit_id())
    };
    let rate = Some(Rate::per_minute(2));
    let own = Some("override");
    assert_eq!(ask(rate), (true, Some(1), own));
    assert_eq!(ask(rate), (true, Some(0), own));
    assert_eq!(ask(rate), (false, Some(0), own));
    assert_eq!(ask(None), (true, Some(5), Some("shop/tier:user/a")), "the policy's is untouched");
    assert_eq!(ask(Some(Rate::per_second(0))), (false, Some(0), own));
    let totals = engine.totals();
    assert_eq!(totals.denied, 2);
}

/// Two rates of one caller are limits of their own: neither is charged for the other, and both are charged or none.
#[test]
fn two_rates_of_one_caller_are_two_limits() {
    let engine = engine(NOW);
    let ada = [who("user", "ada")];
    let request = |cost| Request::exactly(&ada).expect("valid").cost(cost).expect("in range");
    let ask = |requests: &[(Request<'_>, Option<Rate>)]| {
        let mut decisions = Vec::new();
        engine.check_atomic_batch(requests, &mut decisions);
        decisions.iter().map(|it| (it.is_allowed(), it.remaining().expect("a limit"))).collect::<Vec<_>>()
    };
    let both = [(request(1), Some(Rate::per_second(100))), (request(1), Some(Rate::per_hour(1_000)))];
    for left in (0..100).rev() {
        assert_eq!(ask(&both), [(true, left), (true, 900 + left)]);
    }
    assert_eq!(ask(&both), [(false, 0), (true, 900)]);
    engine.clock().advance(Duration::from_secs(1));
    assert_eq!(ask(&both), [(true, 99), (true, 899)]);
    // Together they cost more than the second ever holds, but each fits.
    assert_eq!(ask(&[(request(3), Some(rate(8))), (request(1), Some(rate(2)))]), [(true, 5), (true, 1)]);
    // Nothing is used under other numbers.
    assert_eq!(ask(&[(request(1), Some(rate(3)))]), [(true, 2)]);
    assert_eq!(ask(&[(request(1), Some(rate(3).burst(2)))]), [(true, 1)]);
}

/// The key is made of the identities, the endpoint and the numbers, and nothing else.
#[test]
fn keys_of_requests_with_numbers_of_their_own_are_told_apart() {
    let engine = engine(NOW);
    let once = Some(Rate::per_hour(1));
    let is_allowed = |request: Request<'_>| {
        let mut decisions = Vec::new();
        engine.check_atomic_batch(&[(request, once)], &mut decisions);
        decisions[0].is_allowed()
    };
    let identities = [
        vec![],
        vec![who("user", "a")],
        vec![who("ip", "a")],
        vec![who("user", "b")],
        vec![who("user", "a"), who("ip", "a")],
        vec![who("user", "a"), who("ip", "b")],
    ];
    for domain in ["shop", "other"] {
        for identities in &identities {
            let request = Request::exactly(identities).expect("valid").domain(domain);
            for endpoint in [None, Some("/a"), Some("/b")] {
                let request = endpoint.map_or(Ok(request), |endpoint| request.endpoint(endpoint)).expect("short");
                for request in [request, request.method("GET"), request.method("/a")] {
                    assert!(is_allowed(request), "{request:?}");
                    assert!(!is_allowed(request), "{request:?}");
                }
            }
        }
    }
    let turned = [who("ip", "a"), who("user", "a")];
    let request = Request::exactly(&turned).expect("valid").domain("shop");
    assert!(!is_allowed(request), "in another order");
    assert!(!is_allowed(request.endpoint("/x/../a?page=2").expect("short")), "the path as rules see it");
    assert!(!is_allowed(request.method("get")), "the method in any case");
}

#[test]
fn denied_calls_count_for_the_requests_that_were_refused_and_peeks_never_count() {
    let engine = engine(NOW);
    let (ada, bob) = ([who("user", "ada")], [who("user", "bob")]);
    let request = |who| Request::exactly(who).expect("valid").domain("shop");
    let six = request(&ada).cost(6).expect("in range");
    let mut decisions = Vec::new();
    engine.check_atomic_batch(&[(six, None), (request(&bob), None)], &mut decisions);
    engine.check_atomic_batch(&[(request(&bob), None), (request(&ada), None)], &mut decisions);
    engine.check_atomic_batch(
        &[(request(&ada).without_cost(), None), (request(&bob).without_cost(), None)],
        &mut decisions,
    );
    let allowed: Vec<bool> = decisions.iter().map(Decision::is_allowed).collect();
    assert_eq!(allowed, [true, true, true, false, false, true]);
    assert_eq!(decisions[5].remaining(), Some(5), "one of bob's was charged");
    let totals = engine.totals();
    assert_eq!((totals.allowed, totals.denied), (2, 1));
}
