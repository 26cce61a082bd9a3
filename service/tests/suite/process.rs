//! A process with its doors, in a thread of the test, with a clock that stands still.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tidegate::{
    Engine, Snapshot,
    clock::{Clock, ManualClock},
    formats::Format,
    time::{Nanos, SECOND_NS},
};
use tidegate_service::{
    Decider, Doors, Handle, Settings,
    http::{Authorize, Http},
};

/// The time when a test begins, in Unix seconds: the first of a minute.
pub(crate) const START: u64 = 1_700_000_040;

/// So many keys have room.
pub(crate) const KEYS_MAX: usize = 10_000;

/// A clock that can be broken.
#[derive(Clone)]
pub(crate) struct TestClock {
    clock: ManualClock,
    is_broken: Arc<AtomicBool>,
}

impl Clock for TestClock {
    fn now(&self) -> Nanos {
        assert!(!self.is_broken.load(Ordering::SeqCst), "the clock is broken");
        self.clock.now()
    }
}

/// Ends with the test.
pub(crate) struct Process {
    /// Of the HTTP door.
    pub(crate) http: SocketAddr,
    pub(crate) engine: Arc<Engine<TestClock>>,
    pub(crate) clock: ManualClock,
    is_clock_broken: Arc<AtomicBool>,
    handle: Handle,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Process {
    /// Without a policy; `open` opens more doors than the one of HTTP.
    pub(crate) fn start(
        settings: Settings,
        authorize: Authorize,
        open: impl FnOnce(Doors<TestClock>, TestClock) -> Doors<TestClock>,
    ) -> Self {
        let clock = ManualClock::at(START * SECOND_NS);
        let is_clock_broken = Arc::new(AtomicBool::new(false));
        let test_clock = TestClock { clock: clock.clone(), is_broken: Arc::clone(&is_clock_broken) };
        let engine = Arc::new(Engine::for_simulation(KEYS_MAX, test_clock.clone(), 7));
        let (listener, http) = listen();
        let decider = Arc::new(Decider::new(Arc::clone(&engine)).expect("random numbers"));
        let doors = Doors::new(decider, Settings { workers: 2, ..settings }, Http { listener, authorize });
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
        Self { http, engine, clock, is_clock_broken, handle, thread: Some(thread) }
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

    /// The value of one line of the metrics.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        let url = format!("http://{}/metrics", self.http);
        let text = ureq::get(url).call().expect("an answer").body_mut().read_to_string().expect("text");
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        assert!(line.is_some(), "{series} is not in\n{text}");
        line.and_then(|number| number.parse().ok()).expect("a number")
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

/// On a free port.
pub(crate) fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}
