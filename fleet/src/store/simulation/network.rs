//! Test only: a virtual network, with the model of the store at its end.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tidegate::time::{Nanos, SECOND_NS};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, sleep_until},
};

use super::random::SimulationRandom;
use crate::{
    lock::lock,
    store::script::{argument::read, script_model::ScriptModel},
};

/// The conditions under which messages travel. Chances are in thousandths.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetworkConditions {
    /// The longest usual delay of a message, milliseconds.
    pub(super) delay_ms: u64,
    /// The chance that a message takes much longer than usual.
    pub(super) slow: u64,
    /// The chance that a request is lost, and the chance that an answer is.
    pub(super) lost: u64,
}

impl NetworkConditions {
    pub(super) const IDEAL: Self = Self { delay_ms: 1, slow: 0, lost: 0 };
}

/// Counts of the network.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct NetworkCounts {
    /// Scripts that the store ran.
    pub(super) scripts: u64,
    /// Operations in these scripts.
    pub(super) charges: u64,
    /// Requests and answers that were sent.
    pub(super) messages: u64,
    /// The messages that were lost.
    pub(super) lost: u64,
}

/// The network, with the store.
pub(super) struct Network {
    began: Instant,
    /// The store's time at the beginning.
    epoch: Nanos,
    is_cluster: bool,
    is_traced: bool,
    state: Mutex<State>,
}

struct State {
    random: SimulationRandom,
    conditions: NetworkConditions,
    store: ScriptModel,
    knows_script: bool,
    /// The time until which the store is paused.
    paused_until: Instant,
    traffic: NetworkCounts,
}

impl Network {
    pub(super) fn new(
        seed: u64,
        epoch: Nanos,
        (is_cluster, is_traced): (bool, bool),
        conditions: NetworkConditions,
    ) -> Arc<Self> {
        let began = Instant::now();
        let state = State {
            random: SimulationRandom::new(seed),
            conditions,
            store: ScriptModel::default(),
            knows_script: false,
            paused_until: began,
            traffic: NetworkCounts::default(),
        };
        Arc::new(Self { began, epoch, is_cluster, is_traced, state: Mutex::new(state) })
    }

    /// Returns the store's time, in whole microseconds.
    pub(super) fn now(&self) -> Nanos {
        self.epoch + self.began.elapsed().as_micros() as u64 * 1_000
    }

    pub(super) fn set_conditions(&self, conditions: NetworkConditions) {
        lock(&self.state).conditions = conditions;
    }

    /// Pauses the store: requests wait until it goes on.
    pub(super) fn pause_store(&self, time: Duration) {
        lock(&self.state).paused_until = Instant::now() + time;
    }

    pub(super) fn traffic(&self) -> NetworkCounts {
        lock(&self.state).traffic
    }

    /// Returns the value of a key.
    pub(super) fn value(&self, key: &str) -> String {
        lock(&self.state).store.value(key, self.now()).to_owned()
    }

    fn run(&self, command: &Command) -> RedisResult<Value> {
        let now = self.now();
        let mut state = lock(&self.state);
        match command.words[0].as_slice() {
            b"INFO" => {
                let info = "run_id:1\r\nmaxmemory_policy:noeviction\r\nevicted_keys:0\r\n";
                return Ok(Value::BulkString(info.into()));
            }
            b"EVALSHA" if !state.knows_script => {
                return Err(RedisError::from((ErrorKind::Server(ServerErrorKind::NoScript), "no such script")));
            }
            b"EVAL" => state.knows_script = true,
            _ => {}
        }
        let text = |word: &Vec<u8>| String::from_utf8(word.clone()).expect("UTF-8");
        let count: usize = text(&command.words[2]).parse().expect("a number of keys");
        let (keys, arguments) = command.words[3..].split_at(count);
        let keys: Vec<_> = keys.iter().map(text).collect();
        let arguments: Vec<_> = arguments.iter().map(Vec::as_slice).collect();
        // Probes of the store do not count.
        if !keys.iter().any(|key| key.ends_with("epoch")) {
            state.traffic.scripts += 1;
            state.traffic.charges += arguments.len() as u64;
        }
        let answer = state.store.run(&keys, &arguments, now);
        if self.is_traced {
            trace(now, &format!("the store runs {:?}: {:?}", read(&arguments), &answer[1..]));
        }
        Ok(Value::Array(answer.into_iter().map(|text| Value::BulkString(text.into_bytes())).collect()))
    }
}

/// Prints an event and its time.
pub(super) fn trace(now: Nanos, what: &str) {
    println!("{}.{:06}  {what}", now / SECOND_NS % 100_000, now % SECOND_NS / 1_000);
}

/// A command as the store reads it.
struct Command {
    words: Vec<Vec<u8>>,
}

/// The fate of a request and of its answer.
struct Journey {
    there_ms: u64,
    back_ms: u64,
    is_request_lost: bool,
    is_answer_lost: bool,
    /// The time after which the node notices that one of them was lost.
    noticed_ms: u64,
}

impl State {
    fn journey(&mut self) -> Journey {
        let Self { random, conditions, traffic, .. } = self;
        let delay_ms = |random: &mut SimulationRandom| {
            if random.happens(conditions.slow) {
                // Longer than the timeout of a check, of background requests, or of all requests.
                let longest = random.one_of(&[10, 60, 400, 3_000, 12_000]);
                random.within(1, longest)
            } else {
                random.within(0, conditions.delay_ms)
            }
        };
        let (there_ms, back_ms) = (delay_ms(random), delay_ms(random));
        let (is_request_lost, is_answer_lost) = (random.happens(conditions.lost), random.happens(conditions.lost));
        let noticed_ms = random.one_of(&[0, 20, 2_000, 60_000]);
        traffic.messages += 2 - u64::from(is_request_lost);
        traffic.lost += u64::from(is_request_lost || is_answer_lost);
        Journey { there_ms, back_ms, is_request_lost, is_answer_lost, noticed_ms }
    }
}

/// The network as one node uses it.
pub(crate) struct Wire {
    network: Arc<Network>,
    is_cut: AtomicBool,
    is_dead: AtomicBool,
    /// The time until which answers to the node are held back.
    held_until: Mutex<Instant>,
}

impl Wire {
    pub(super) fn new(network: &Arc<Network>) -> Arc<Self> {
        let (is_cut, is_dead) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { network: Arc::clone(network), is_cut, is_dead, held_until: Mutex::new(Instant::now()) })
    }

    /// Returns whether the store is a cluster.
    pub(crate) fn is_cluster(&self) -> bool {
        self.network.is_cluster
    }

    /// Cuts the node off, or reconnects it.
    pub(super) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }

    pub(super) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Holds answers to the node back for this time.
    pub(super) fn hold(&self, time: Duration) {
        *lock(&self.held_until) = Instant::now() + time;
    }

    /// Kills the node: it sends nothing more. What it sent before still arrives.
    pub(super) fn kill(&self) {
        self.is_dead.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    /// Sends a command, and returns the answer. Messages may overtake each other.
    pub(crate) async fn send(self: &Arc<Self>, command: &Cmd) -> RedisResult<Value> {
        if self.is_dead() {
            return Err(broken());
        }
        let words = command.args_iter().map(|word| match word {
            redis::Arg::Simple(word) => word.to_vec(),
            redis::Arg::Cursor => unreachable!("no cursor"),
            _ => unreachable!("only simple words"),
        });
        let command = Command { words: words.collect() };
        let (sender, answer) = oneshot::channel();
        let wire = Arc::clone(self);
        // A request that was sent arrives even if its sender is gone.
        tokio::spawn(async move {
            let answer = wire.carry(command).await;
            drop(sender.send(answer));
        });
        answer.await.unwrap_or_else(|_| Err(broken()))
    }

    async fn carry(&self, command: Command) -> RedisResult<Value> {
        let network = &self.network;
        let journey = lock(&network.state).journey();
        let noticed = Duration::from_millis(journey.noticed_ms);
        sleep(Duration::from_millis(journey.there_ms)).await;
        if journey.is_request_lost || self.is_cut() {
            sleep(noticed).await;
            return Err(broken());
        }
        loop {
            let until = lock(&network.state).paused_until;
            if until <= Instant::now() {
                break;
            }
            sleep_until(until).await;
        }
        let answer = network.run(&command);
        sleep(Duration::from_millis(journey.back_ms)).await;
        let held_until = *lock(&self.held_until);
        sleep_until(held_until).await;
        if journey.is_answer_lost || self.is_cut() {
            sleep(noticed).await;
            return Err(broken());
        }
        answer
    }
}

fn broken() -> RedisError {
    RedisError::from((ErrorKind::Io, "the connection broke"))
}
