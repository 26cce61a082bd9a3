//! Atomic batches of threads that race, and of publishes between them.

use std::time::Duration;

use super::*;
use tidegate::time::Timestamp;

/// Threads take from two limits and from numbers of their own, in different orders: all of a call is charged, or nothing. The
/// test runs until a call was given back.
// Long because the threads and the one that begins their rounds share barriers and counters.
#[test]
fn threads_take_all_or_nothing() {
    const LIMIT: u64 = 10;
    const THREADS: usize = 3;
    const HOUR: u64 = 3_600 * SECOND;
    let text = format!(
        r#"
        [domains.shop]
        defaults = {{ user = "t", ip = "t" }}
        [[domains.shop.tiers]]
        id = "t"
        limits = [{{ id = "l", algorithm = "fixed_window", limit = {LIMIT}, period = "1h" }}]
        "#
    );
    let clock = ManualClock::at(Timestamp::from_nanos(NOW));
    let engine = Engine::for_simulation(1_000, clock.clone(), 7);
    engine.publish(Snapshot::parse(&text, Format::Toml).expect("a good policy")).expect("few limits");
    let (user, ip) = ([who("user", "a")], [who("ip", "a")]);
    let request = |who| (Request::exactly(who).expect("valid").domain("shop"), None);
    let rated = (request(&user).0, Some(Rate::per_hour(LIMIT)));
    let orders = [
        [request(&user), request(&ip), rated],
        [request(&ip), rated, request(&user)],
        [rated, request(&user), request(&ip)],
    ];
    let (round, taken) = (AtomicU64::new(0), AtomicU64::new(0));
    let (begin, end) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    thread::scope(|scope| {
        for order in orders {
            let (engine, round, taken, begin, end) = (&engine, &round, &taken, &begin, &end);
            scope.spawn(move || {
                loop {
                    begin.wait();
                    if round.load(Ordering::Relaxed) == u64::MAX {
                        return;
                    }
                    for _ in 0..LIMIT {
                        let mut decisions = Vec::new();
                        engine.check_atomic_batch(&order, &mut decisions);
                        let is_allowed = decisions.iter().all(Decision::is_allowed);
                        taken.fetch_add(u64::from(is_allowed), Ordering::Relaxed);
                    }
                    end.wait();
                }
            });
        }
        let deadline = Deadline::new();
        loop {
            let before = engine.give_backs();
            taken.store(0, Ordering::Relaxed);
            begin.wait();
            end.wait();
            let (taken, given_back) = (taken.load(Ordering::Relaxed), engine.give_backs() - before);
            // A call that would fit may be denied while another thread gives back what it took.
            let is_right = taken <= LIMIT && taken + given_back >= LIMIT;
            let mut left: Vec<_> =
                [&user, &ip].iter().map(|who| engine.peek(&request(*who).0.without_cost()).remaining()).collect();
            let mut decisions = Vec::new();
            engine.check_atomic_batch(&[(rated.0.without_cost(), rated.1)], &mut decisions);
            left.push(decisions[0].remaining());
            let is_done = !is_right || left != [Some(LIMIT - taken); 3] || engine.give_backs() > 0;
            if is_done || deadline.has_passed() {
                round.store(u64::MAX, Ordering::Relaxed);
                begin.wait();
                assert!(is_right, "{taken}, {given_back} given back");
                assert_eq!(left, [Some(LIMIT - taken); 3], "{taken}, {given_back} given back");
                assert!(engine.give_backs() > 0, "no threads met");
                return;
            }
            clock.advance(Duration::from_nanos(HOUR));
        }
    });
}

/// Publishes change one of two limits all the time: a call that races with one is decided anew, and the other limit is charged once.
#[test]
fn publishes_in_between_charge_no_limit_twice() {
    meet_publishes(1);
}

/// Publishes that leave the numbers of both limits as they are leave no extra charge.
#[test]
fn publishes_that_change_other_numbers_leave_the_sums_exact() {
    meet_publishes(0);
}

/// Returns a policy in which the limit of the tier `changing` is ten times that of `same`, and by `change` more in odd versions.
fn changing_policy(version: u64, same: u64, change: u64) -> Snapshot {
    let changing = 10 * same + version % 2 * change;
    let other = 1 + version % 2;
    let text = format!(
        r#"
        [domains.shop]
        defaults = {{ user = "changing", ip = "same" }}
        [[domains.shop.tiers]]
        id = "other"
        limits = [{{ id = "l", algorithm = "fixed_window", limit = {other}, period = "1h" }}]
        [[domains.shop.tiers]]
        id = "changing"
        limits = [{{ id = "l", algorithm = "fixed_window", limit = {changing}, period = "1h" }}]
        [[domains.shop.tiers]]
        id = "same"
        limits = [{{ id = "l", algorithm = "fixed_window", limit = {same}, period = "1h" }}]
        "#
    );
    Snapshot::parse(&text, Format::Toml).expect("a good policy")
}

/// Lets threads check while publishes change the numbers of the users' limit by up to `change`.
fn meet_publishes(change: u64) {
    const LIMIT: u64 = 2_000;
    let policy = |version| changing_policy(version, LIMIT, change);
    let engine = Engine::for_simulation(1_000, ManualClock::at(Timestamp::from_nanos(NOW)), 7);
    engine.publish(policy(0)).expect("few limits");
    let (user, ip) = ([who("user", "a")], [who("ip", "a")]);
    let request = |who| Request::exactly(who).expect("valid").domain("shop");
    let rated = (request(&user), Some(Rate::per_hour(10 * LIMIT)));
    let published = AtomicU64::new(1);
    let allowed: u64 = thread::scope(|scope| {
        let ask = || {
            let mut allowed = 0;
            for number in 0..LIMIT {
                // The thread waits for a publish now and then: all of its calls may fit between two publishes.
                let before = published.load(Ordering::SeqCst);
                if number % 100 == 0 {
                    Deadline::new().wait_until("a publish", || published.load(Ordering::SeqCst) > before);
                }
                let mut decisions = Vec::new();
                engine.check_atomic_batch(&[(request(&ip), None), rated, (request(&user), None)], &mut decisions);
                assert_eq!(decisions.len(), 3);
                allowed += u64::from(decisions.iter().all(Decision::is_allowed));
            }
            allowed
        };
        let threads = [scope.spawn(ask), scope.spawn(ask)];
        let mut version = 1;
        while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            version += 1;
            assert_eq!(engine.publish(policy(version)), Ok(version));
            published.store(version, Ordering::SeqCst);
        }
        assert!(version > 10, "they met few publishes");
        threads.into_iter().map(|thread| thread.join().expect("it ends")).sum()
    });
    assert_eq!(allowed, LIMIT, "each call was allowed until the limit was used up");
    assert_eq!(engine.peek(&request(&ip).without_cost()).remaining(), Some(0));
    let mut left = Vec::new();
    engine.check_atomic_batch(&[(rated.0.without_cost(), rated.1)], &mut left);
    assert_eq!(left[0].remaining(), Some(9 * LIMIT));
    // A charge that a publish kept from being given back stays charged to the client.
    let left = engine.peek(&request(&user).without_cost()).remaining();
    assert!(left <= Some(9 * LIMIT + change), "{left:?}");
    assert!(change > 0 || left == Some(9 * LIMIT), "{left:?}");
    assert_eq!(engine.totals().allowed, 3 * LIMIT);
}

/// Lets threads check these together until one call is denied. Returns how many calls were allowed.
fn taken(engine: &Engine<ManualClock>, requests: &[(Request<'_>, Option<Rate>)]) -> u64 {
    let take = || {
        let (mut taken, mut decisions) = (0, Vec::new());
        loop {
            decisions.clear();
            engine.check_atomic_batch(requests, &mut decisions);
            if !decisions.iter().all(Decision::is_allowed) {
                return taken;
            }
            taken += 1;
        }
    };
    thread::scope(|scope| {
        let threads = [(); 3].map(|()| scope.spawn(take));
        threads.into_iter().map(|thread| thread.join().expect("it ends")).sum()
    })
}

/// Every charge is counted also where the table has no room for the keys.
#[test]
fn threads_take_no_more_where_keys_are_in_overflow_buckets() {
    const LIMIT: u64 = 1_000;
    let text = format!(
        r#"
        [domains.shop]
        defaults = {{ user = "t", ip = "t", key = "t" }}
        [[domains.shop.tiers]]
        id = "t"
        limits = [{{ id = "l", algorithm = "fixed_window", limit = {LIMIT}, period = "1h" }}]
        "#
    );
    let engine = Engine::for_simulation(1, ManualClock::at(Timestamp::from_nanos(NOW)), 7);
    engine.publish(Snapshot::parse(&text, Format::Toml).expect("a good policy")).expect("few limits");
    // These keys fill the table.
    for number in 0..10_000 {
        let value = number.to_string();
        let _ = engine
            .check(&Request::exactly(&[who("key", &value)]).expect("valid").domain("shop").cost(LIMIT).expect("valid"));
    }
    let before = engine.overflow_charges();
    let (user, ip) = ([who("user", "a")], [who("ip", "a")]);
    let request = |who| Request::exactly(who).expect("valid").domain("shop");
    let requests = [
        (request(&user), Some(Rate::per_hour(LIMIT))),
        (request(&user), Some(Rate::per_hour(2 * LIMIT))),
        (request(&ip), Some(Rate::per_hour(LIMIT))),
    ];
    let taken = taken(&engine, &requests);
    assert!(engine.overflow_charges() > before, "there was room");
    assert!(taken > 0 && taken <= LIMIT, "{taken}");
}
