//! A process with its doors, in a thread of the test, with a clock that stands still.

use std::{
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tidegate::{
    Engine, Snapshot,
    clock::{Clock, ManualClock, WallStep, WallSteps},
    formats::Format,
    time::{Nanos, SECOND_NS},
};
use tidegate_service::{
    DEFAULT_CALLER_SHARE, Decider, Doors, Handle, Periods, Settings,
    http::{Authorize, Http},
};
use tidegate_testkit::PATIENCE;
use tokio::time::Instant;

/// The time when a test begins, in Unix seconds: the first of a minute.
pub(crate) const START: u64 = 1_700_000_040;

/// So many keys have room.
pub(crate) const KEYS_MAX: usize = 10_000;

/// A delay of a stop that no test waits for: long enough that it cannot pass meanwhile.
pub(crate) const LONG_DELAY: Duration = Duration::from_mins(10);

/// A clock that can be broken, or held up.
#[derive(Clone)]
pub(crate) struct TestClock {
    clock: ManualClock,
    is_broken: Arc<AtomicBool>,
    gate: Gate,
    wall_steps: Arc<Mutex<WallSteps>>,
}

/// What the next reading of a clock waits for, until it is dropped at the other end.
type Gate = Arc<Mutex<Option<mpsc::Receiver<Infallible>>>>;

impl Clock for TestClock {
    fn now(&self) -> Nanos {
        assert!(!self.is_broken.load(Ordering::SeqCst), "the clock is broken");
        let gate = self.gate.lock().expect("no panic").take();
        if let Some(gate) = gate {
            // An error: it was dropped.
            let _ = gate.recv();
        }
        self.clock.now()
    }

    fn ahead_ns(&self) -> u64 {
        self.clock.ahead_ns()
    }

    fn wall_steps(&self) -> WallSteps {
        *self.wall_steps.lock().expect("no panic")
    }
}

/// Ends with the test.
pub(crate) struct Process {
    /// Of the HTTP door.
    pub(crate) http: SocketAddr,
    pub(crate) engine: Arc<Engine<TestClock>>,
    pub(crate) clock: ManualClock,
    is_clock_broken: Arc<AtomicBool>,
    gate: Gate,
    wall_steps: Arc<Mutex<WallSteps>>,
    handle: Handle,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Process {
    /// Without a policy; `open` opens more doors than the one of HTTP. A scrape reads what is counted then, unless the settings
    /// say how old a page of metrics may be.
    pub(crate) fn start(
        settings: Settings,
        authorize: Authorize,
        open: impl FnOnce(Doors<TestClock>, TestClock) -> Doors<TestClock>,
    ) -> Self {
        Self::start_with(DEFAULT_CALLER_SHARE, settings, authorize, open)
    }

    /// Starts one of which each caller has this share.
    pub(crate) fn start_with(
        caller_share: u8,
        settings: Settings,
        authorize: Authorize,
        open: impl FnOnce(Doors<TestClock>, TestClock) -> Doors<TestClock>,
    ) -> Self {
        let clock = ManualClock::at(START * SECOND_NS);
        let is_clock_broken = Arc::new(AtomicBool::new(false));
        let (gate, wall_steps) = (Gate::default(), Arc::<Mutex<WallSteps>>::default());
        let test_clock = TestClock {
            clock: clock.clone(),
            is_broken: Arc::clone(&is_clock_broken),
            gate: Arc::clone(&gate),
            wall_steps: Arc::clone(&wall_steps),
        };
        let engine = Arc::new(Engine::for_simulation(KEYS_MAX, test_clock.clone(), 7));
        let (listener, http) = listen();
        let decider = Decider::new(Arc::clone(&engine)).expect("random numbers");
        let decider = Arc::new(decider.with_caller_share(caller_share));
        let workers = if settings.workers == 0 { 2 } else { settings.workers };
        let mut settings = Settings { workers, ..settings };
        // As the tests call it.
        settings.browsers.hosts.push("tidegate".to_owned());
        if settings.periods.metrics_page == Periods::default().metrics_page {
            settings.periods.metrics_page = Duration::ZERO;
        }
        let doors = Doors::new(decider, settings, Http { listener, authorize });
        let doors = open(doors, test_clock);
        let (started, handle) = mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let running = doors.serve()?;
                started.send(running.handle()).expect("the test waits");
                running.await
            })
        });
        let handle = handle.recv().expect("the server starts");
        Self { http, engine, clock, is_clock_broken, gate, wall_steps, handle, thread: Some(thread) }
    }

    /// TOML.
    pub(crate) fn publish(&self, policy: &str) {
        let snapshot = Snapshot::parse(policy, Format::Toml).expect("a right policy");
        self.engine.publish(snapshot).expect("room for its limits");
    }

    /// Whoever asks for the time panics, until the clock is mended.
    pub(crate) fn break_clock(&self, is_broken: bool) {
        self.is_clock_broken.store(is_broken, Ordering::SeqCst);
    }

    /// Has the next reading of the clock wait until what is returned is dropped.
    pub(crate) fn hold_next_reading(&self) -> mpsc::Sender<Infallible> {
        let (sender, receiver) = mpsc::channel();
        *self.gate.lock().expect("no panic") = Some(receiver);
        sender
    }

    /// Returns whether that reading has begun.
    pub(crate) fn is_reading_held(&self) -> bool {
        self.gate.lock().expect("no panic").is_none()
    }

    /// Sets wall time back by `ns` nanoseconds, a minute or more.
    pub(crate) fn set_wall_back(&self, ns: u64) {
        self.clock.set_wall_back(ns);
        let mut steps = self.wall_steps.lock().expect("no panic");
        steps.anchors += 1;
        steps.last = Some(WallStep { at: self.clock.now(), ns, is_back: true });
    }

    /// The value of one line of the metrics.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        let text = self.metrics();
        let value = value(&text, series);
        assert!(value.is_some(), "{series} is not in\n{text}");
        value.unwrap_or_default()
    }

    /// The value of one line of the metrics; `None` while nothing was counted there.
    pub(crate) fn metric_if_counted(&self, series: &str) -> Option<u64> {
        value(&self.metrics(), series)
    }

    /// Returns whether `/readyz` says that the server is stopping.
    pub(crate) fn is_leaving(&self) -> bool {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let told = agent.get(format!("http://{}/readyz", self.http)).call().expect("an answer");
        told.into_body().read_to_string().expect("text").starts_with("stopping")
    }

    /// All of them.
    pub(crate) fn metrics(&self) -> String {
        let url = format!("http://{}/metrics", self.http);
        ureq::get(url).call().expect("an answer").body_mut().read_to_string().expect("text")
    }

    /// Tells it to end after this delay, and does not wait.
    pub(crate) fn drain(&self, delay: Duration) {
        let handle = self.handle.clone();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(handle.drain(delay));
        });
    }

    /// Waits until it has ended, and says how.
    pub(crate) fn ended(&mut self) -> io::Result<()> {
        self.thread.take().map_or(Ok(()), |thread| thread.join().expect("the server does not panic"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.drain(Duration::ZERO);
    }
}

fn value(metrics: &str, series: &str) -> Option<u64> {
    let number = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    Some(number.parse().expect("a number"))
}

/// Shows that of two connections the one that rests for `period` is closed, not earlier, and that the one that is used is not
/// closed, until it is older than `period` by a quarter: each use begins its period again.
///
/// `ask` uses a connection, and returns whether that was answered; `closed` returns when the server has closed one, and whether
/// it did.
pub(crate) fn resting_connections_are_closed<C: Send>(
    period: Duration,
    connect: impl Fn() -> C,
    ask: impl Fn(&mut C) -> bool,
    closed: impl Fn(C) -> bool + Sync,
) {
    // An attempt shows nothing if this thread, or the server's, stood still for too long to use the connection in time.
    let is_shown = (0..50).any(|_| {
        let [mut used, mut resting] = [connect(), connect()];
        let begun = Instant::now();
        // When the last two uses were sent. The last one alone may have been answered by a clock that stood still before it.
        let mut sent = [begun; 2];
        let mut is_used = || {
            let before = sent[0];
            sent = [sent[1], Instant::now()];
            let is_answered = ask(&mut used);
            assert!(
                is_answered || before.elapsed() >= period,
                "a connection was closed {:?} after it was used",
                before.elapsed()
            );
            is_answered
        };
        if !is_used() {
            return false;
        }
        let rested = Instant::now();
        if !ask(&mut resting) {
            assert!(rested.elapsed() >= period, "a connection was closed at once");
            return false;
        }
        thread::scope(|scope| {
            let (tell, is_closed) = mpsc::channel();
            let (closed, teller) = (&closed, tell.clone());
            scope.spawn(move || teller.send((closed(resting), Instant::now())));
            let mut end = None;
            loop {
                if let Ok((is_closed, at)) = is_closed.recv_timeout(period / 20) {
                    assert!(is_closed, "it was not closed, but reset");
                    let rested = at - rested;
                    assert!(rested >= period, "closed after {rested:?} of {period:?}");
                    end = Some(begun + period + period / 4);
                }
                if !is_used() {
                    // The other one is closed some time, too.
                    return false;
                }
                if end.is_some_and(|end| Instant::now() >= end) {
                    return true;
                }
                assert!(end.is_some() || rested.elapsed() < period + PATIENCE, "a connection that rests is not closed");
            }
        })
    });
    assert!(is_shown, "the machine stands still too often for a connection to be used in time");
}

/// On a free port.
pub(crate) fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}
