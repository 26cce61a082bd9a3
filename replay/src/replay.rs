//! The replay itself: lines in, decisions on a virtual clock, a report out.

use std::{
    error::Error,
    fmt,
    io::{self, Read},
};

use tidegate::{
    Engine, PublishError, Snapshot, TableShares,
    clock::ManualClock,
    time::{Nanos, SECOND_NS},
};

use crate::{
    clients::{ClientId, Clients, Kind},
    log::{
        entries::{Entries, Entry},
        format::LogReading,
        record::{Record, with_request},
        source,
    },
    owner::of_client,
    report::{LimitRow, Report},
    stamp::Utc,
    timeline::Timeline,
    window::{WINDOW_BYTES_MAX, WINDOW_LINES_MAX, Waiting, Window},
};

/// How far lines may be out of order unless told otherwise: an hour.
pub const DEFAULT_WINDOW_NS: u64 = 3_600 * SECOND_NS;

/// How many unreadable lines are kept to be shown.
pub const UNREADABLE_SHOWN: usize = 10;

/// Lines between two calls for progress.
const PROGRESS_LINES: u64 = 8_192;

/// Any number, the same in every run: where keys lie in the table decides nothing that is reported while all have room.
const SEED: u64 = 1;

/// How to replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the logs are read.
    pub reading: LogReading,
    /// How far lines may be out of order, in nanoseconds.
    pub window_ns: u64,
    /// Room for counters, 24 bytes each; see [`keys_for`].
    pub max_keys: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { reading: LogReading::default(), window_ns: DEFAULT_WINDOW_NS, max_keys: 1 << 20 }
    }
}

/// Bytes of a short line: an address, a time, a request and a status.
const SHORT_LINE_BYTES: u64 = 64;

/// More counters at once than most logs have, in 100 MB.
const KEYS_MAX: u64 = 1 << 22;

/// Room for counters that is enough for a log of so many bytes even if every line were of another client: each request
/// needs as many as the policy may charge it, and a table that is half empty finds a slot for every one. At least 65,536
/// (1.6 MB), at most 4 million (100 MB), which is also for a log of unknown length. [`Report::overflow_charges`] tells when
/// it was not enough.
#[must_use]
pub fn keys_for(policy: &Snapshot, log_bytes: Option<u64>) -> usize {
    let per_request = policy.most_limits_per_request() as u64;
    let keys = |bytes: u64| (bytes / SHORT_LINE_BYTES).saturating_mul(2 * per_request);
    log_bytes.map_or(KEYS_MAX, keys).clamp(1 << 16, KEYS_MAX) as usize
}

/// A line that could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnreadableLine {
    /// Name of the log.
    pub log: String,
    /// Its number, from 1, blank lines counted.
    pub number: u64,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for UnreadableLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.log, self.number, self.why)
    }
}

/// A log that could not be read to its end, or not at all.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// Reading stopped. Lines before that count.
    Broken {
        /// Name of the log.
        log: String,
        /// Lines that were read.
        lines: u64,
        /// What happened.
        error: io::Error,
    },
    /// It has lines, and none of them can be read.
    Unreadable {
        /// The first of them.
        first: UnreadableLine,
        /// How many there are.
        lines: u64,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken { log, lines: 0, error } => write!(f, "{log}: cannot be read: {error}"),
            Self::Broken { log, lines, error } => {
                write!(f, "{log}: cannot be read beyond line {lines}: {error}; what was read counts")
            }
            Self::Unreadable { first, lines: 1 } => write!(f, "{first}; it is the only line"),
            Self::Unreadable { first, lines } => {
                write!(f, "{}: none of its {lines} lines can be read; line {}: {}", first.log, first.number, first.why)
            }
        }
    }
}

impl Error for ReadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Broken { error, .. } => Some(error),
            Self::Unreadable { .. } => None,
        }
    }
}

/// A request that waits to be decided. One allocation, for its text.
#[derive(Debug)]
struct Visit {
    client: Option<ClientId>,
    user: Option<ClientId>,
    /// How much of `text` is the method; the rest is the endpoint.
    method_bytes: Option<u8>,
    has_endpoint: bool,
    text: Box<str>,
}

impl Waiting for Visit {
    fn bytes(&self) -> usize {
        self.text.len()
    }
}

/// Decides the requests of logs as a policy would have.
#[derive(Debug)]
pub struct Replay {
    reading: LogReading,
    window: Window<Visit>,
    judge: Judge,
    unreadable: u64,
    first_unreadable: Vec<UnreadableLine>,
}

impl Replay {
    /// A replay of this policy.
    pub fn new(policy: Snapshot, options: &Options) -> Result<Self, PublishError> {
        Ok(Self {
            reading: options.reading.clone(),
            window: Window::new(options.window_ns, WINDOW_LINES_MAX, WINDOW_BYTES_MAX),
            judge: Judge::new(policy, options.max_keys, options.reading.kind())?,
            unreadable: 0,
            first_unreadable: Vec::new(),
        })
    }

    /// Reads a log, gzip or plain; `name` is for messages. Several logs read one after the other are one log.
    ///
    /// `progress` is told now and then how many lines were read in all.
    pub fn read(&mut self, log: impl Read, name: &str, mut progress: impl FnMut(u64)) -> Result<(), ReadError> {
        let broken = |lines, error| ReadError::Broken { log: name.to_owned(), lines, error };
        let log = source::plain(log).map_err(|error| broken(0, error))?;
        let mut entries = Entries::new(log, &self.reading);
        let (mut read, mut refused, mut first_refused, requests_before) = (0, 0, None, self.requests());
        loop {
            let (number, entry) = match entries.next() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(error) => return Err(broken(read, error)),
            };
            read = number;
            let refused_for = match entry {
                Entry::Nothing => continue,
                Entry::Request(record) => {
                    self.take(&record);
                    None
                }
                Entry::Refused(why) => Some(why),
            };
            if let Some(why) = refused_for {
                let line = UnreadableLine { log: name.to_owned(), number, why: why.into_owned() };
                if self.first_unreadable.len() < UNREADABLE_SHOWN {
                    self.first_unreadable.push(line.clone());
                }
                first_refused.get_or_insert(line);
                refused += 1;
                self.unreadable += 1;
            }
            if number.is_multiple_of(PROGRESS_LINES) {
                progress(self.lines());
            }
        }
        progress(self.lines());
        match first_refused {
            Some(first) if self.requests() == requests_before => Err(ReadError::Unreadable { first, lines: refused }),
            _ => Ok(()),
        }
    }

    /// Lines so far that were not blank.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.window.lines() + self.unreadable
    }

    /// Requests so far: lines that could be read.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.window.lines()
    }

    /// The first lines that could not be read, at most [`UNREADABLE_SHOWN`].
    #[must_use]
    pub fn first_unreadable(&self) -> &[UnreadableLine] {
        &self.first_unreadable
    }

    /// Decides what still waits, and reports. `clients_max` bounds the list of clients; 0 lists all.
    #[must_use]
    pub fn finish(mut self, clients_max: usize) -> Report {
        while let Some((time, visit)) = self.window.take() {
            self.judge.decide(time, &visit);
        }
        let (lines, requests) = (self.lines(), self.requests());
        let overflow_charges = self.judge.engine.overflow_charges();
        let Judge { limits, clients, timeline, allowed, denied, first, last, .. } = self.judge;
        let (bucket_seconds, timeline) = timeline.into_rows();
        Report {
            lines,
            requests,
            unreadable: self.unreadable,
            late: self.window.late(),
            allowed,
            denied,
            from: first.map(Utc),
            to: last.map(Utc),
            limits: limits
                .into_iter()
                .filter(|limit| limit.checked > 0 || of_client(&limit.limit_id).is_none())
                .collect(),
            clients: clients.into_rows(clients_max),
            bucket_seconds,
            timeline,
            overflow_charges,
        }
    }

    /// Puts a request into the window, and decides what is due.
    fn take(&mut self, record: &Record<'_>) {
        let visit = self.judge.visit(record);
        self.window.put(record.time, visit);
        while let Some((time, visit)) = self.window.take_due() {
            self.judge.decide(time, &visit);
        }
    }
}

/// The engine, its clock, and the counts.
#[derive(Debug)]
struct Judge {
    engine: Engine<ManualClock>,
    clock: ManualClock,
    /// By their index in the engine.
    limits: Vec<LimitRow>,
    clients: Clients,
    timeline: Timeline,
    allowed: u64,
    denied: u64,
    first: Option<Nanos>,
    last: Option<Nanos>,
}

impl Judge {
    fn new(policy: Snapshot, max_keys: usize, kind: &str) -> Result<Self, PublishError> {
        let clock = ManualClock::default();
        // The log says who comes: nothing is kept for others.
        let engine = Engine::for_simulation(max_keys, clock.clone(), SEED).with_shares(TableShares::WHOLE);
        // A fresh engine numbers the limits of its first policy in their order.
        let row = |name: &str| LimitRow {
            id: name.rsplit('/').next().unwrap_or(name).to_owned(),
            limit_id: name.to_owned(),
            checked: 0,
            denied: 0,
        };
        let limits = policy.limit_names().map(row).collect();
        engine.publish(policy)?;
        Ok(Self {
            engine,
            clock,
            limits,
            clients: Clients::new(kind),
            timeline: Timeline::default(),
            allowed: 0,
            denied: 0,
            first: None,
            last: None,
        })
    }

    /// What is kept of a line until its turn comes.
    fn visit(&mut self, record: &Record<'_>) -> Visit {
        let (method, endpoint) = (record.target.method.as_deref(), record.target.endpoint.as_deref());
        let (method_text, path) = (method.unwrap_or_default(), endpoint.unwrap_or_default());
        let mut text = String::with_capacity(method_text.len() + path.len());
        text.push_str(method_text);
        text.push_str(path);
        Visit {
            client: record.client.as_ref().map(|client| self.clients.id(Kind::Ip, client)),
            user: record.user.as_ref().map(|user| self.clients.id(Kind::User, user)),
            method_bytes: method.map(|method| method.len() as u8),
            has_endpoint: endpoint.is_some(),
            text: text.into_boxed_str(),
        }
    }

    fn decide(&mut self, now: Nanos, visit: &Visit) {
        self.clock.set(now);
        let (method, endpoint) = visit.text.split_at(visit.method_bytes.map_or(0, usize::from));
        let method = visit.method_bytes.map(|_| method);
        let client = visit.client.map(|client| self.clients.value(client));
        let user = visit.user.map(|user| (self.clients.kind(), self.clients.value(user)));
        let (engine, limits) = (&self.engine, &mut self.limits);
        let is_allowed = with_request(client, user, method, visit.has_endpoint.then_some(endpoint), |request| {
            let mut last_met = None;
            let decision = engine.check_observing(request, |met| {
                let place = met.limit.place();
                if let Some(limit) = limits.get_mut(place) {
                    limit.checked += 1;
                }
                last_met = Some(place);
            });
            // The last one that was looked at is the one that refused.
            if !decision.is_allowed()
                && let Some(limit) = last_met.and_then(|place| limits.get_mut(place))
            {
                limit.denied += 1;
            }
            decision.is_allowed()
        });
        // The same parts made a request when the line was read.
        let Ok(is_allowed) = is_allowed else { return };
        for identity in [visit.client, visit.user].into_iter().flatten() {
            self.clients.count(identity, now, is_allowed);
        }
        self.timeline.count(now, is_allowed);
        *(if is_allowed { &mut self.allowed } else { &mut self.denied }) += 1;
        self.first.get_or_insert(now);
        self.last = Some(now);
    }
}
