//! Limits that nodes share through a store: the two halves of a check, and the behaviour without the store. The store
//! here is a bucket of this test, driven by the same steps.

use std::{collections::HashMap, future::Future, pin::pin, task, time::Duration};

use tidegate::{
    Decide, Decision, Degraded, Engine, Identity, Request, Retry, Snapshot,
    clock::{Clock, ManualClock},
    formats::Format,
    internals::{BeginResult, StoreAnswer, StoreCharge, Verdict},
    policy::Sharing,
    time::Timestamp,
};

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 1_790_035_200 * SECOND;

fn engine(limits: &str) -> (ManualClock, Engine<ManualClock>) {
    let clock = ManualClock::at(Timestamp::from_nanos(NOW));
    let engine = Engine::for_simulation(1_000, clock.clone(), 7);
    publish(&engine, limits);
    (clock, engine)
}

fn publish(engine: &Engine<ManualClock>, limits: &str) {
    let text = format!(
        "[domains.default]\ndefaults = {{ user = \"t\" }}\n[[domains.default.tiers]]\nid = \"t\"\nlimits = [{limits}]\n\
         [[domains.default.rules]]\nid = \"pair\"\nendpoint = \"/pair\"\nper = [\"user\", \"ip\"]\n\
         limits = [{{ id = \"s\", algorithm = \"token_bucket\", limit = 5, period = \"1s\", sharing = \"strict\" }}]\n"
    );
    engine.publish(Snapshot::parse(&text, Format::Toml).expect("a good policy")).expect("few limits");
}

fn strict(id: &str, limit: u64, more: &str) -> String {
    format!(
        "{{ id = \"{id}\", algorithm = \"token_bucket\", limit = {limit}, period = \"1m\", sharing = \"strict\"{more} }}"
    )
}

fn local(id: &str, limit: u64) -> String {
    format!("{{ id = \"{id}\", algorithm = \"token_bucket\", limit = {limit}, period = \"1m\" }}")
}

/// A store that several nodes share.
#[derive(Default)]
struct Store {
    words: HashMap<String, u64>,
    asked: usize,
}

impl Store {
    fn answer(&mut self, charge: &StoreCharge<'_>, now: u64) -> StoreAnswer {
        self.asked += 1;
        let word = self.words.entry(key(charge)).or_default();
        // A peek is a step of one token whose word is not stored.
        let verdict = charge.meter.step(*word, now, charge.cost.max(1));
        if let (Verdict::Admit(new), true) = (verdict, charge.cost > 0) {
            *word = new;
        }
        StoreAnswer::Decided { verdict, word: *word, now }
    }

    fn used(&self, charge: &StoreCharge<'_>, now: u64) -> u64 {
        charge.meter.capacity() - charge.meter.remaining(self.words.get(&key(charge)).copied().unwrap_or(0), now)
    }
}

fn key(charge: &StoreCharge<'_>) -> String {
    let identities = charge.identities().map(|it| format!("{}:{}={}", it.value().len(), it.kind(), it.value()));
    format!("{} {}", charge.limit_id, identities.collect::<Vec<_>>().join(" "))
}

fn check<'e>(engine: &'e Engine<ManualClock>, clock: &ManualClock, store: &mut Store, cost: u64) -> Decision<'e> {
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).and_then(|request| request.cost(cost)).expect("valid");
    match engine.begin(&request) {
        BeginResult::Decided(decision) => decision,
        BeginResult::Pending(pending) => {
            let answers: Vec<_> =
                pending.charges().map(|charge| store.answer(&charge, clock.now().as_nanos())).collect();
            let (decision, give_back) = engine.finish(pending, &answers);
            if let Some(give_back) = give_back {
                for charge in give_back.charges() {
                    store.words.remove(&key(&charge));
                }
            }
            decision
        }
    }
}

#[test]
fn two_nodes_that_share_a_store_share_the_limit() {
    let (clock, one) = engine(&strict("s", 10, ""));
    let two = Engine::for_simulation(1_000, clock.clone(), 8);
    publish(&two, &strict("s", 10, ""));
    let mut store = Store::default();
    let allowed = (0..20).filter(|turn| {
        let node = if turn % 2 == 0 { &one } else { &two };
        let decision = check(node, &clock, &mut store, 1);
        assert_eq!(decision.degraded(), None);
        assert_eq!((decision.limit(), decision.limit_id()), (Some(10), Some("default/tier:t/s")));
        decision.is_allowed()
    });
    assert_eq!(allowed.count(), 10);
    let denied = check(&one, &clock, &mut store, 1);
    assert_eq!(denied.retry(), Retry::After(Duration::from_secs(6)));
    assert_eq!(one.totals().allowed + two.totals().allowed, 10);
}

#[test]
fn a_local_denial_asks_no_store_and_a_store_s_denial_charges_nothing_here() {
    let (clock, engine) = engine(&[local("l", 3), strict("s", 2, "")].join(", "));
    let mut store = Store::default();
    let seen: Vec<_> = (0..4).map(|_| check(&engine, &clock, &mut store, 1).limit_id()).collect();
    // Two allowed, then the store refuses: nothing of the local limit is used by that.
    assert_eq!(
        seen,
        [Some("default/tier:t/s"), Some("default/tier:t/s"), Some("default/tier:t/s"), Some("default/tier:t/s")]
    );
    let mut here = engine.handle("default/tier:t/l", "user").expect("is there");
    assert_eq!(here.check(b"ada").remaining(), Some(0));
    let asked = store.asked;
    assert_eq!(check(&engine, &clock, &mut store, 1).limit_id(), Some("default/tier:t/l"));
    assert_eq!(store.asked, asked, "the local limit refused first");
}

#[test]
fn what_the_store_admitted_is_named_for_giving_back_when_a_limit_here_refuses_meanwhile() {
    let (clock, engine) = engine(&[local("l", 1), strict("s", 5, "")].join(", "));
    let mut store = Store::default();
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).expect("valid");
    let BeginResult::Pending(pending) = engine.begin(&request) else { panic!("a shared limit") };
    let answers: Vec<_> = pending.charges().map(|charge| store.answer(&charge, clock.now().as_nanos())).collect();
    // Another check takes the last token of the local limit while the store decides.
    let mut here = engine.handle("default/tier:t/l", "user").expect("is there");
    assert!(here.check(b"ada").is_allowed());
    let (decision, give_back) = engine.finish(pending, &answers);
    assert!(!decision.is_allowed());
    assert_eq!(decision.limit_id(), Some("default/tier:t/l"));
    let give_back = give_back.expect("the store admitted");
    let named: Vec<_> = give_back.charges().map(|charge| (charge.limit_id.to_owned(), charge.cost)).collect();
    assert_eq!(named, [("default/tier:t/s".to_owned(), 1)]);
    assert_eq!(store.used(&give_back.charges().next().expect("one"), clock.now().as_nanos()), 1);
}

#[test]
fn without_a_store_on_failure_decides_and_the_decision_is_marked() {
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).expect("valid");
    let admitted = |more: &str, by_the_store: bool| {
        let (_, engine) = engine(&strict("s", 10, more));
        let decide = || {
            if !by_the_store {
                return engine.check(&request);
            }
            let BeginResult::Pending(pending) = engine.begin(&request) else { panic!("a shared limit") };
            let (decision, give_back) = engine.finish(pending, &[StoreAnswer::Failed]);
            assert!(give_back.is_none());
            decision
        };
        let reason = if by_the_store { Degraded::StoreFailed } else { Degraded::NoStore };
        let decisions: Vec<_> = (0..20).map(|_| decide()).collect();
        assert!(decisions.iter().all(|it| it.degraded() == Some(reason)));
        decisions.iter().filter(|it| it.is_allowed()).count()
    };
    for by_the_store in [false, true] {
        assert_eq!(admitted("", by_the_store), 5, "half, unless it says otherwise");
        assert_eq!(admitted(", on_failure = { local = 0.2 }", by_the_store), 2);
        assert_eq!(admitted(", on_failure = { local = 0.01 }", by_the_store), 1, "one at least");
        assert_eq!(admitted(", on_failure = \"open\"", by_the_store), 20);
        assert_eq!(admitted(", on_failure = \"closed\"", by_the_store), 0);
    }
}

#[test]
fn a_closed_limit_says_when_to_come_again() {
    let (_, engine) = engine(&strict("s", 10, ", on_failure = \"closed\""));
    let who = [Identity::new("user", "ada").expect("valid")];
    let decision = engine.check(&Request::new(&who).expect("valid"));
    assert_eq!(decision.retry(), Retry::After(Duration::from_secs(1)));
    assert_eq!((decision.limit_id(), decision.remaining()), (Some("default/tier:t/s"), Some(0)));
}

#[test]
fn a_shadow_in_the_store_never_denies() {
    let (clock, engine) = engine(&strict("s", 1, ", mode = \"shadow\""));
    let mut store = Store::default();
    assert!(check(&engine, &clock, &mut store, 1).shadow_denied().next().is_none());
    let second = check(&engine, &clock, &mut store, 1);
    assert!(second.is_allowed());
    assert_eq!(second.shadow_denied().collect::<Vec<_>>(), ["default/tier:t/s"]);
}

#[test]
fn a_charge_names_what_it_counts_whatever_the_order_of_the_request() {
    let (_, engine) = engine(&local("l", 100));
    let (user, ip) = (Identity::new("user", "ada").expect("valid"), Identity::new("ip", "::1").expect("valid"));
    let mut keys = Vec::new();
    for identities in [[user, ip], [ip, user]] {
        let request = Request::new(&identities).and_then(|request| request.endpoint("/pair")).expect("valid");
        let BeginResult::Pending(pending) = engine.begin(&request) else { panic!("a shared limit") };
        let charges: Vec<_> = pending.charges().collect();
        assert_eq!(charges.len(), 1);
        assert_eq!(
            (charges[0].limit_id, charges[0].sharing, charges[0].is_shadow),
            ("default/rule:pair/s", Sharing::Strict, false)
        );
        keys.push(key(&charges[0]));
    }
    assert_eq!(keys[0], "default/rule:pair/s 3:ip=::1 3:user=ada");
    assert_eq!(keys[0], keys[1]);
}

#[test]
fn a_check_that_a_publish_overtakes_is_finished_by_the_new_numbers() {
    let (clock, engine) = engine(&[local("l", 10), strict("s", 5, "")].join(", "));
    let mut store = Store::default();
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).and_then(|request| request.cost(5)).expect("valid");
    let mut begin = |tiers: &str| {
        store.words.clear();
        let BeginResult::Pending(pending) = engine.begin(&request) else { panic!("a shared limit") };
        let answers: Vec<_> = pending.charges().map(|charge| store.answer(&charge, clock.now().as_nanos())).collect();
        publish(&engine, tiers);
        engine.finish(pending, &answers)
    };
    let (decision, give_back) = begin(&[local("l", 4), strict("s", 5, "")].join(", "));
    assert_eq!((decision.is_allowed(), decision.limit_id()), (false, Some("default/tier:t/l")));
    assert!(give_back.is_some());
    publish(&engine, &[local("l", 10), strict("s", 5, "")].join(", "));
    // The local limit is gone: its old bucket is charged, and it denies no request afterwards.
    let (decision, give_back) = begin(&strict("s", 5, ""));
    assert!(decision.is_allowed() && give_back.is_none());
}

#[test]
fn a_limit_that_changed_and_went_between_the_halves_counts_no_charge() {
    let (clock, engine) = engine(&[local("l", 10), strict("s", 5, "")].join(", "));
    let mut store = Store::default();
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).expect("valid");
    assert!(check(&engine, &clock, &mut store, 1).is_allowed());
    let BeginResult::Pending(pending) = engine.begin(&request) else { panic!("a shared limit") };
    let answers: Vec<_> = pending.charges().map(|charge| store.answer(&charge, clock.now().as_nanos())).collect();
    publish(&engine, &[local("l", 4), strict("s", 5, "")].join(", "));
    publish(&engine, &strict("s", 5, ""));
    let (decision, give_back) = engine.finish(pending, &answers);
    assert_eq!((decision.limit_id(), decision.remaining()), (Some("default/tier:t/s"), Some(3)));
    assert!(give_back.is_none());
}

#[test]
fn what_the_store_answered_is_read_by_the_numbers_that_it_was_asked_for() {
    let daily = "{ id = \"s\", algorithm = \"fixed_window\", limit = 5, period = \"1d\", sharing = \"strict\" }";
    let (clock, engine) = engine(daily);
    let mut store = Store::default();
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).expect("valid");
    for after in ["leaky_bucket\", sharing = \"strict", "token_bucket"] {
        publish(&engine, daily);
        let BeginResult::Pending(pending) = engine.begin(&request) else { panic!("a shared limit") };
        let answers: Vec<_> = pending.charges().map(|charge| store.answer(&charge, clock.now().as_nanos())).collect();
        publish(&engine, &format!("{{ id = \"s\", limit = 5, period = \"1d\", algorithm = \"{after}\" }}"));
        let (decision, _) = engine.finish(pending, &answers);
        assert_eq!((decision.delay(), decision.limit()), (Duration::ZERO, Some(5)));
        assert_eq!(decision.remaining(), Some(5 - store.words.len() as u64 - u64::from(after == "token_bucket")));
        assert_eq!(decision.reset_after(), Some(Duration::from_nanos(86_400 * SECOND - NOW % (86_400 * SECOND))));
    }
}

#[test]
fn a_check_that_another_engine_began_is_decided_by_this_one() {
    let (_, ours) = engine(&strict("s", 5, ""));
    let (_, other) = engine(&local("m", 3));
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).expect("valid");
    let BeginResult::Pending(pending) = ours.begin(&request) else { panic!("the store decides") };
    let (decision, give_back) = other.finish(pending, &[]);
    assert_eq!((decision.limit_id(), decision.remaining()), (Some("default/tier:t/m"), Some(2)));
    assert!(give_back.is_none());
}

#[test]
fn a_look_that_begins_is_not_counted_as_a_check() {
    let (_, engine) = engine(
        "{ id = \"l\", algorithm = \"token_bucket\", limit = 0, period = \"1m\" }, { id = \"s\", \
                              algorithm = \"token_bucket\", limit = 5, period = \"1m\", sharing = \"strict\" }",
    );
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).expect("valid");
    let denied = |request: &Request<'_>| {
        assert!(matches!(engine.begin(request), BeginResult::Decided(decision) if !decision.is_allowed()));
        engine.totals().denied
    };
    assert_eq!(denied(&request.without_cost()), 0);
    assert_eq!(denied(&request), 1, "a check is");
}

#[test]
fn a_peek_asks_the_store_to_look() {
    let (clock, engine) = engine(&strict("s", 10, ""));
    let mut store = Store::default();
    assert!(check(&engine, &clock, &mut store, 4).is_allowed());
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).expect("valid").without_cost();
    let BeginResult::Pending(pending) = engine.begin(&request) else { panic!("a shared limit") };
    let answers: Vec<_> = pending.charges().map(|charge| store.answer(&charge, clock.now().as_nanos())).collect();
    assert_eq!(pending.charges().next().map(|charge| charge.cost), Some(0));
    let (decision, give_back) = engine.finish(pending, &answers);
    assert!(decision.is_allowed() && give_back.is_none());
    assert_eq!(decision.remaining(), Some(6));
    assert_eq!(engine.totals().allowed, 1, "a look is not counted");
}

#[test]
fn an_engine_alone_decides_at_once() {
    let (_, engine) = engine(&local("l", 1));
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).expect("valid");
    let mut context = task::Context::from_waker(task::Waker::noop());
    let mut decide = || match pin!(engine.decide(&request)).as_mut().poll(&mut context) {
        task::Poll::Ready(decision) => decision.is_allowed(),
        task::Poll::Pending => panic!("it never waits"),
    };
    assert!(decide() && !decide());
}
