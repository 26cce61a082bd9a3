//! Tests of the turns of peers, with a clock that the tasks set.

use std::{
    future::poll_fn,
    net::IpAddr,
    panic::{AssertUnwindSafe, catch_unwind},
};

use proptest::prelude::*;
use tokio::{
    runtime,
    task::{JoinHandle, LocalSet},
    time::timeout,
};

use super::*;

/// A clock that tasks advance by the time that they use.
#[derive(Clone, Default)]
struct Clock(Rc<Cell<Duration>>);

impl Clock {
    fn turns(&self) -> Rc<Turns> {
        let (clock, start) = (self.clone(), Instant::now());
        Turns::with_clock(move || start + clock.0.get())
    }

    fn take(&self, micros: u64) {
        self.0.update(|now| now + Duration::from_micros(micros));
    }

    /// Lets the tasks run until they have used this many milliseconds.
    async fn pass(&self, millis: u64) {
        let end = self.0.get() + Duration::from_millis(millis);
        while self.0.get() < end {
            yield_now().await;
        }
    }
}

fn peer(last: u8) -> PeerNetwork {
    IpAddr::from([192, 0, 2, last]).into()
}

/// The time and the turns that a task has used, and the longest time that it waited for a turn.
#[derive(Clone, Copy, Default, Debug)]
struct Usage {
    time: Duration,
    turns: u32,
    longest_wait: Duration,
}

/// Starts a task that is always ready, and uses this many microseconds a turn.
fn busy(turns: &Rc<PeerTurns>, clock: &Clock, micros: u64) -> Rc<Cell<Usage>> {
    let taken = Rc::new(Cell::new(Usage::default()));
    let (clock, taken_by_task) = (clock.clone(), Rc::clone(&taken));
    let work = async move {
        let mut last = clock.0.get();
        loop {
            let waited = clock.0.get().saturating_sub(last);
            clock.take(micros);
            last = clock.0.get();
            taken_by_task.update(|Usage { time, turns, longest_wait }| Usage {
                time: time + Duration::from_micros(micros),
                turns: turns + 1,
                longest_wait: longest_wait.max(waited),
            });
            yield_now().await;
        }
    };
    drop(spawn_local(turns.run(work)));
    taken
}

#[tokio::test]
async fn a_peer_with_a_thousand_tasks_does_not_delay_another_peer() {
    let clock = Clock::default();
    let turns = clock.turns();
    let test = async {
        let (many, one) = (turns.peer_turns(peer(1)), turns.peer_turns(peer(2)));
        let of_many: Vec<_> = (0..1_000).map(|_| busy(&many, &clock, 100)).collect();
        let of_one = busy(&one, &clock, 10);
        clock.pass(2_000).await;
        let longest = of_one.get().longest_wait;
        assert!(longest <= ALLOWANCE + Duration::from_micros(100), "{longest:?}");
        // The tasks of the peer take turns among themselves.
        let had = of_many.iter().map(|taken| taken.get().turns);
        let (least, most) = (had.clone().min().expect("some"), had.max().expect("some"));
        assert!(least > 10 && most - least <= 1, "{least} to {most}");
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn peers_get_the_same_time_whatever_the_length_of_their_turns() {
    let clock = Clock::default();
    let turns = clock.turns();
    let test = async {
        let (long, short) = (turns.peer_turns(peer(1)), turns.peer_turns(peer(2)));
        let of_long = busy(&long, &clock, 3_000);
        let of_short: Vec<_> = (0..10).map(|_| busy(&short, &clock, 70)).collect();
        clock.pass(2_000).await;
        let of_short: Duration = of_short.iter().map(|taken| taken.get().time).sum();
        let ratio = of_long.get().time.as_secs_f64() / of_short.as_secs_f64();
        assert!((0.8..1.25).contains(&ratio), "{ratio}");
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn an_interrupted_turn_counts_up_to_the_largest_debt() {
    let clock = Clock::default();
    let turns = clock.turns();
    let test = async {
        let (interrupted, others) = (turns.peer_turns(peer(1)), turns.peer_turns(peer(2)));
        for _ in 0..10 {
            busy(&others, &clock, 100);
        }
        let times = Rc::new(RefCell::new(Vec::new()));
        let (clock_of_task, times_of_task) = (clock.clone(), Rc::clone(&times));
        drop(spawn_local(interrupted.run(async move {
            clock_of_task.take(300_000);
            times_of_task.borrow_mut().push(clock_of_task.0.get());
            yield_now().await;
            times_of_task.borrow_mut().push(clock_of_task.0.get());
        })));
        clock.pass(400).await;
        let [began, went_on] = times.borrow()[..] else { panic!("it goes on") };
        let waited = went_on.saturating_sub(began);
        assert!((DEBT_MAX..2 * DEBT_MAX).contains(&waited), "{waited:?}");
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn a_task_that_hurries_does_not_wait_for_other_tasks_of_its_peer() {
    const TURNS: u32 = 100;
    let clock = Clock::default();
    let turns = clock.turns();
    let test = async {
        let many = turns.peer_turns(peer(1));
        let work = |hurries: bool| {
            let clock = clock.clone();
            async move {
                // Ends the first turn.
                yield_now().await;
                let guard = hurries.then(hurry);
                let began = clock.0.get();
                for _ in 0..TURNS {
                    clock.take(1);
                    yield_now().await;
                }
                drop(guard);
                let held = clock.0.get();
                yield_now().await;
                (held.saturating_sub(began), clock.0.get().saturating_sub(held))
            }
        };
        let of_many: Vec<_> = (0..1_000).map(|_| busy(&many, &clock, 100)).collect();
        let (hurries, waits) = (spawn_local(many.run(work(true))), spawn_local(many.run(work(false))));
        let (held, after) = hurries.await.expect("it ends");
        waits.abort();
        let round = ALLOWANCE + Duration::from_micros(100);
        assert!(held <= round * TURNS, "{held:?}");
        assert!(after > round * 100, "it waits again: {after:?}");
        assert!(of_many.iter().all(|taken| taken.get().turns > 0));
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn the_time_of_a_turn_is_its_start_even_after_nested_turns() {
    let clock = Clock::default();
    let turns = clock.turns();
    let start = (turns.now)();
    let after = |micros| start + Duration::from_micros(micros);
    let test = async {
        let (outer, inner) = (turns.peer_turns(peer(1)), turns.peer_turns(peer(2)));
        let task = outer.run(async {
            clock.take(100);
            assert_eq!(turn_time(), after(0), "time has passed since");
            let nested = async {
                clock.take(10);
                assert_eq!(turn_time(), after(100));
            };
            inner.run(nested).await;
            assert_eq!(turn_time(), after(0), "after a nested turn");
            let mut nested = inner.run(async {
                assert_eq!(turn_time(), after(110));
                panic!("as it is to");
            });
            let polled = poll_fn(|context| {
                let poll = AssertUnwindSafe(|| Pin::new(&mut nested).poll(context));
                Poll::Ready(catch_unwind(poll))
            });
            assert!(polled.await.is_err());
            assert_eq!(turn_time(), after(0), "after a nested panic");
            yield_now().await;
            assert_eq!(turn_time(), after(110), "the next turn");
        });
        task.await;
        let before = Instant::now();
        let now = turn_time();
        assert!((before..=Instant::now()).contains(&now), "outside of turns");
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn a_task_without_turns_may_hurry() {
    assert!(hurry().0.is_none());
}

/// The way in which a task ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Done,
    Panicked,
    /// Aborted from outside, at this turn of the aborting task.
    Aborted(u32),
}

fn ends() -> impl Strategy<Value = End> {
    prop_oneof![4 => Just(End::Done), 1 => Just(End::Panicked), 2 => (0..50_u32).prop_map(End::Aborted)]
}

/// Runs tasks to their ends. A task has a peer, a number of turns, the microseconds of a turn, and an end.
async fn run_all(tasks: &[(u8, u32, u64, End)]) -> Result<(), TestCaseError> {
    let clock = Clock::default();
    let turns = clock.turns();
    let mut begun: Vec<(JoinHandle<()>, End)> = Vec::new();
    for &(number, count, micros, end) in tasks {
        let clock = clock.clone();
        let work = async move {
            for _ in 0..count {
                clock.take(micros);
                yield_now().await;
            }
            assert!(!matches!(end, End::Panicked), "as it is to");
        };
        begun.push((spawn_local(turns.peer_turns(peer(number)).run(work)), end));
    }
    for turn in 0..50 {
        for (task, _) in begun.iter().filter(|(_, end)| matches!(end, End::Aborted(at) if *at == turn)) {
            task.abort();
        }
        yield_now().await;
    }
    for (task, end) in begun {
        let ended = task.await;
        match end {
            End::Done => prop_assert!(ended.is_ok()),
            End::Panicked => prop_assert!(ended.is_err_and(|error| error.is_panic())),
            End::Aborted(_) => {}
        }
    }
    while !turns.spent.borrow().is_empty() {
        yield_now().await;
    }
    prop_assert!(turns.peers.borrow().is_empty());
    Ok(())
}

proptest! {
    /// No task waits forever, and no memory leaks.
    #[test]
    fn however_tasks_end_the_others_go_on(
        tasks in prop::collection::vec((0..3_u8, 1..20_u32, 0..400_u64, ends()), 1..80)
    ) {
        let runtime = runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let test = async { timeout(Duration::from_mins(1), run_all(&tasks)).await };
        LocalSet::new().block_on(&runtime, test).expect("all of them end")?;
    }
}
