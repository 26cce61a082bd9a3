//! A server process with its listeners, in a thread of the test, with a manual clock.

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
    time::{SECOND_NS, Timestamp},
};
use tidegate_service::{
    DEFAULT_CALLER_SHARE, Decider, Handle, ListenerSettings, Listeners, Timeouts,
    http::{Authorize, Http},
};
use tidegate_testkit::PATIENCE;
use tokio::time::Instant;

/// The time at which a test begins, in Unix seconds: the beginning of a minute.
pub(crate) const START: u64 = 1_700_000_040;

/// The number of keys that the table has room for.
pub(crate) const KEYS_MAX: usize = 10_000;

/// The delay of a stop that no test waits for, long enough that it cannot pass during a test.
pub(crate) const LONG_DELAY: Duration = Duration::from_mins(10);

/// A clock that can be made to panic or to block.
#[derive(Clone)]
pub(crate) struct TestClock {
    clock: ManualClock,
    is_broken: Arc<AtomicBool>,
    gate: Gate,
    wall_steps: Arc<Mutex<WallSteps>>,
}

/// The lock that the next reading of a clock waits for, until the other end is dropped.
type Gate = Arc<Mutex<Option<mpsc::Receiver<Infallible>>>>;

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        assert!(!self.is_broken.load(Ordering::SeqCst), "the clock is broken");
        let gate = self.gate.lock().expect("no panic").take();
        if let Some(gate) = gate {
            // An error: the other end was dropped.
            let _ = gate.recv();
        }
        self.clock.now()
    }

    fn ahead(&self) -> Duration {
        self.clock.ahead()
    }

    fn wall_steps(&self) -> WallSteps {
        *self.wall_steps.lock().expect("no panic")
    }
}

/// A process that ends with the test.
pub(crate) struct Process {
    /// The address of the HTTP listener.
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
    /// Starts a process without a policy; `open` adds listeners to the HTTP listener. A scrape reads the present
    /// counts, unless the settings have a period for pages of metrics.
    pub(crate) fn start(
        settings: ListenerSettings,
        authorize: Authorize,
        open: impl FnOnce(Listeners<TestClock>, TestClock) -> Listeners<TestClock>,
    ) -> Self {
        Self::start_with(DEFAULT_CALLER_SHARE, settings, authorize, open)
    }

    /// Starts a process with this share for each caller.
    pub(crate) fn start_with(
        caller_share: u8,
        settings: ListenerSettings,
        authorize: Authorize,
        open: impl FnOnce(Listeners<TestClock>, TestClock) -> Listeners<TestClock>,
    ) -> Self {
        let clock = ManualClock::at(Timestamp::from_nanos(START * SECOND_NS));
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
        let mut settings = ListenerSettings { workers, ..settings };
        // The name under which the tests call the process.
        settings.browsers.hosts.push("tidegate".to_owned());
        if settings.timeouts.metrics_page == Timeouts::default().metrics_page {
            settings.timeouts.metrics_page = Duration::ZERO;
        }
        let doors = Listeners::new(decider, settings, Http { listener, authorize });
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

    /// Publishes a policy in TOML.
    pub(crate) fn publish(&self, policy: &str) {
        let snapshot = Snapshot::parse(policy, Format::Toml).expect("a right policy");
        self.engine.publish(snapshot).expect("room for its limits");
    }

    /// Makes every reading of the clock panic, until the clock is repaired.
    pub(crate) fn break_clock(&self, is_broken: bool) {
        self.is_clock_broken.store(is_broken, Ordering::SeqCst);
    }

    /// Makes the next reading of the clock block until the returned value is dropped.
    pub(crate) fn hold_next_reading(&self) -> mpsc::Sender<Infallible> {
        let (sender, receiver) = mpsc::channel();
        *self.gate.lock().expect("no panic") = Some(receiver);
        sender
    }

    /// Returns whether a blocked reading has begun.
    pub(crate) fn is_reading_held(&self) -> bool {
        self.gate.lock().expect("no panic").is_none()
    }

    /// Sets wall time back by `size`, which must be a minute or more.
    pub(crate) fn set_wall_back(&self, size: Duration) {
        self.clock.set_wall_back(size);
        let mut steps = self.wall_steps.lock().expect("no panic");
        steps.anchors += 1;
        steps.last = Some(WallStep { at: self.clock.now(), size, is_back: true });
    }

    /// Returns the value of one line of the metrics.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        let text = self.metrics();
        let value = value(&text, series);
        assert!(value.is_some(), "{series} is not in\n{text}");
        value.unwrap_or_default()
    }

    /// Returns the value of one line of the metrics; `None` where there is no such line yet.
    pub(crate) fn metric_if_counted(&self, series: &str) -> Option<u64> {
        value(&self.metrics(), series)
    }

    /// Returns whether `/readyz` says that the server is stopping.
    pub(crate) fn is_leaving(&self) -> bool {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let told = agent.get(format!("http://{}/readyz", self.http)).call().expect("an answer");
        told.into_body().read_to_string().expect("text").starts_with("stopping")
    }

    /// Returns all metrics.
    pub(crate) fn metrics(&self) -> String {
        let url = format!("http://{}/metrics", self.http);
        ureq::get(url).call().expect("an answer").body_mut().read_to_string().expect("text")
    }

    /// Stops the process after this delay, without waiting for the end.
    pub(crate) fn drain(&self, delay: Duration) {
        let handle = self.handle.clone();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(handle.drain(delay));
        });
    }

    /// Waits until the process has ended, and returns its result.
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

/// Asserts that of two connections the idle one is closed after `period` and not earlier, and that the used one stays
/// open until it is older than `period` by a quarter, since each use begins its period again.
///
/// `ask` uses a connection, and returns whether it was answered. `closed` waits until the server has closed a
/// connection, and returns whether it did.
pub(crate) fn resting_connections_are_closed<C: Send>(
    period: Duration,
    connect: impl Fn() -> C,
    ask: impl Fn(&mut C) -> bool,
    closed: impl Fn(C) -> bool + Sync,
) {
    // An attempt is void if this thread or the server's was not scheduled for too long to use the connection in time.
    let is_shown = (0..50).any(|_| {
        let [mut used, mut resting] = [connect(), connect()];
        let begun = Instant::now();
        // The times at which the last two uses were sent. The last one alone may have been answered by a thread that was late.
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
                    // The used connection is closed later, too.
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

/// Listens on a free port.
pub(crate) fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}
