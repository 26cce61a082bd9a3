//! The replay itself: lines in, decisions on a virtual clock, a report out.

use std::{
    cmp::Reverse,
    error::Error,
    fmt,
    io::{self, Read},
};

use tidegate::{
    DEFAULT_DOMAIN, Engine, Identity, PublishError, Snapshot, TableShares,
    clock::ManualClock,
    time::{Nanos, SECOND_NS},
};

use crate::{
    client_limit::of_client,
    clients::{ClientId, Clients, Kind},
    log::{
        entries::{Entries, Entry},
        fields::listed,
        format::LogReading,
        line_format::Form,
        record::{Record, with_request},
    },
    log_source::{Log, LogInput},
    reorder_window::{WINDOW_BYTES_MAX, WINDOW_LINES_MAX, Waiting, Window},
    report::{FormRow, LimitRow, LogRow, Report, UnreadableKind},
    timeline::Timeline,
    timestamp::Utc,
};

/// How far lines may be out of order unless told otherwise: an hour.
pub const DEFAULT_WINDOW_NS: u64 = 3_600 * SECOND_NS;

/// How many unreadable lines are kept to be shown.
pub const UNREADABLE_SHOWN: usize = 10;

/// How many kinds of unreadable lines are kept to be shown.
const UNREADABLE_KINDS_MAX: usize = 10;

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
    /// A field that a map names is in no line of any log of JSON.
    NoField {
        /// The field.
        field: String,
        /// The fields of the first lines.
        fields: Vec<String>,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken { log, lines: 0, error } => write!(f, "{log}: cannot be read: {error}"),
            Self::Broken { log, lines, error } => {
                write!(f, "{log}: cannot be read beyond line {lines}: {error}; what was read counts")
            }
            Self::NoField { field, fields } => {
                write!(f, "no line has the field `{field}` that --map names; {}", listed(fields))
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
            Self::Unreadable { .. } | Self::NoField { .. } => None,
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
    without_client: u64,
    first_unreadable: Vec<UnreadableLine>,
    unreadable_kinds: Vec<UnreadableKind>,
    /// Fields of the map that no log of JSON had so far; `None`: no such log was read.
    absent_fields: Option<Vec<String>>,
    /// The names of fields of the first such log.
    field_names: Vec<String>,
    failed_logs: Vec<String>,
    /// Logs that were read.
    logs: Vec<LogRow>,
}

/// A log that is being read.
struct Reading<'i> {
    name: String,
    /// Its place among the logs.
    place: usize,
    entries: Entries<LogInput<'i>>,
    /// Its next request.
    next: Option<(Nanos, Visit)>,
    lines: u64,
    /// Lines that could be read.
    requests: u64,
    refused: u64,
    first_refused: Option<UnreadableLine>,
    /// Lines by their form.
    forms: Vec<(Form, u64)>,
}

impl<'i> Reading<'i> {
    fn new(name: String, place: usize, entries: Entries<LogInput<'i>>) -> Self {
        Self {
            name,
            place,
            entries,
            next: None,
            lines: 0,
            requests: 0,
            refused: 0,
            first_refused: None,
            forms: Vec::new(),
        }
    }

    /// The log in the report, its most frequent form first.
    fn row(mut self) -> LogRow {
        self.forms.sort_by_key(|(_, lines)| Reverse(*lines));
        let row = |(form, lines): (Form, u64)| FormRow { form: form.to_string(), lines };
        LogRow { log: self.name, forms: self.forms.into_iter().map(row).collect() }
    }
}

/// Counts a line of this form. A log has few.
fn count(forms: &mut Vec<(Form, u64)>, form: Form) {
    match forms.iter_mut().find(|(known, _)| *known == form) {
        Some((_, lines)) => *lines += 1,
        None => forms.push((form, 1)),
    }
}

impl Replay {
    /// A replay of this policy.
    pub fn new(policy: Snapshot, options: &Options) -> Result<Self, PublishError> {
        Ok(Self {
            reading: options.reading.clone(),
            window: Window::new(options.window_ns, WINDOW_LINES_MAX, WINDOW_BYTES_MAX),
            judge: Judge::new(policy, options)?,
            unreadable: 0,
            without_client: 0,
            first_unreadable: Vec::new(),
            unreadable_kinds: Vec::new(),
            absent_fields: None,
            field_names: Vec::new(),
            failed_logs: Vec::new(),
            logs: Vec::new(),
        })
    }

    /// Reads a log, gzip or plain; `name` is for messages. Several logs read one after the other are one log.
    ///
    /// `progress` is told now and then how many lines were read in all.
    pub fn read(&mut self, log: impl Read, name: &str, progress: impl FnMut(u64)) -> Result<(), ReadError> {
        self.read_all(vec![Log::stream(name, log)], progress).pop().map_or(Ok(()), Err)
    }

    /// Reads logs as one, in order of time, whatever order they come in, and returns what is wrong with some of them.
    ///
    /// `progress` is told now and then how many lines were read in all.
    pub fn read_all<'i>(&mut self, logs: Vec<Log<'i>>, mut progress: impl FnMut(u64)) -> Vec<ReadError> {
        let (mut errors, mut open) = (Vec::new(), Vec::<Box<Reading<'i>>>::new());
        // One log is read once, even if it could be read again.
        let is_alone = logs.len() == 1;
        let with_first = |mut log: Log<'i>| (if is_alone { 0 } else { log.first_time(&self.reading) }, log);
        let mut closed: Vec<_> = logs.into_iter().map(with_first).enumerate().collect();
        // The next one last; of those that begin at the same time the one that was named first.
        closed.sort_by_key(|(place, (first, _))| Reverse((*first, *place)));
        let mut told = self.lines();
        loop {
            let next =
                open.iter().enumerate().min_by_key(|(_, log)| (log.next.as_ref().map(|(time, _)| *time), log.place));
            let due = next.and_then(|(place, log)| Some((place, log.next.as_ref()?.0)));
            let is_due = |(_, (first, _)): &mut (usize, (Nanos, Log<'i>))| due.is_none_or(|(_, next)| *first <= next);
            if let Some((place, (_, log))) = closed.pop_if(is_due) {
                let name = log.name.clone();
                match log.open(&self.reading) {
                    Ok(entries) => {
                        open.extend(self.advance(Box::new(Reading::new(name, place, entries)), &mut errors));
                    }
                    Err(error) => errors.push(ReadError::Broken { log: name, lines: 0, error }),
                }
                continue;
            }
            let Some((place, _)) = due else { break };
            let mut log = open.swap_remove(place);
            if let Some((time, visit)) = log.next.take() {
                self.take(time, visit);
            }
            open.extend(self.advance(log, &mut errors));
            if self.lines() - told >= PROGRESS_LINES {
                told = self.lines();
                progress(told);
            }
        }
        progress(self.lines());
        let absent = self.absent_fields.take().into_iter().flatten();
        errors.extend(absent.map(|field| ReadError::NoField { field, fields: self.field_names.clone() }));
        self.failed_logs.extend(errors.iter().map(ToString::to_string));
        errors
    }

    /// Reads a log up to its next request; `None`: it has no more.
    fn advance<'i>(&mut self, mut log: Box<Reading<'i>>, errors: &mut Vec<ReadError>) -> Option<Box<Reading<'i>>> {
        let mut is_broken = false;
        loop {
            let (number, entry) = match log.entries.next() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(error) => {
                    errors.push(ReadError::Broken { log: log.name.clone(), lines: log.lines, error });
                    is_broken = true;
                    break;
                }
            };
            log.lines = number;
            match entry {
                Entry::Nothing => {}
                Entry::Request(record, form) => {
                    log.next = Some((record.time, self.judge.visit(&record)));
                    log.requests += 1;
                    count(&mut log.forms, form);
                    return Some(log);
                }
                Entry::NoClient(form) => {
                    self.without_client += 1;
                    log.requests += 1;
                    count(&mut log.forms, form);
                }
                Entry::Refused(why) => {
                    let line = UnreadableLine { log: log.name.clone(), number, why: why.to_string() };
                    self.refuse(line.clone(), why.problem.into_owned());
                    log.first_refused.get_or_insert(line);
                    log.refused += 1;
                }
            }
        }
        if let Some(first) = log.first_refused.take().filter(|_| log.requests == 0 && !is_broken) {
            errors.push(ReadError::Unreadable { first, lines: log.refused });
        }
        if let Some(absent) = log.entries.absent_fields().filter(|_| log.requests > 0) {
            if let Some(of_others) = &mut self.absent_fields {
                of_others.retain(|field| absent.contains(field));
            } else {
                (self.absent_fields, self.field_names) = (Some(absent), log.entries.fields());
            }
        }
        self.logs.push(log.row());
        None
    }

    /// Counts a line that cannot be read, and keeps it if it is one of the first, or the first of its kind.
    fn refuse(&mut self, line: UnreadableLine, problem: String) {
        self.unreadable += 1;
        if let Some(kind) = self.unreadable_kinds.iter_mut().find(|kind| kind.problem == problem) {
            kind.lines += 1;
        } else if self.unreadable_kinds.len() < UNREADABLE_KINDS_MAX {
            self.unreadable_kinds.push(UnreadableKind { problem, lines: 1, example: line.to_string() });
        }
        if self.first_unreadable.len() < UNREADABLE_SHOWN {
            self.first_unreadable.push(line);
        }
    }

    /// Lines so far that were not blank.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.window.lines() + self.unreadable + self.without_client
    }

    /// Requests so far: lines that could be read, of a client.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.window.lines()
    }

    /// Lines so far that could not be read.
    #[must_use]
    pub fn unreadable(&self) -> u64 {
        self.unreadable
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
        let Judge { limits, clients, timeline, without_path, allowed, denied, first, last, .. } = self.judge;
        let (bucket_seconds, timeline) = timeline.into_rows();
        Report {
            lines,
            requests,
            unreadable: self.unreadable,
            without_client: self.without_client,
            without_path,
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
            unreadable_kinds: self.unreadable_kinds,
            failed_logs: self.failed_logs,
            logs: self.logs,
            overflow_charges,
        }
    }

    /// Puts a request into the window, and decides what is due.
    fn take(&mut self, time: Nanos, visit: Visit) {
        self.window.put(time, visit);
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
    without_path: u64,
    allowed: u64,
    denied: u64,
    first: Option<Nanos>,
    last: Option<Nanos>,
}

impl Judge {
    fn new(policy: Snapshot, options: &Options) -> Result<Self, PublishError> {
        let clock = ManualClock::default();
        // The log says who comes: nothing is kept for others.
        let engine = Engine::for_simulation(options.max_keys, clock.clone(), SEED)
            .with_shares(TableShares::WHOLE)
            .with_ipv6_prefix(options.reading.clients.ipv6_prefix);
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
            clients: Clients::new(options.reading.kind()),
            timeline: Timeline::default(),
            without_path: 0,
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
            client: record.client.as_ref().map(|client| self.client_id(Kind::Ip, Kind::IP, client)),
            user: record.user.as_ref().map(|user| self.client_id(Kind::User, record.kind, user)),
            method_bytes: method.map(|method| method.len() as u8),
            has_endpoint: endpoint.is_some(),
            text: text.into_boxed_str(),
        }
    }

    /// Returns the place of an identity, by the value under which a server counts it. A host name is its own value.
    fn client_id(&mut self, kind: Kind, name: &str, value: &str) -> ClientId {
        let counted = Identity::new(name, value).and_then(|identity| self.engine.counted(DEFAULT_DOMAIN, identity));
        self.clients.id(kind, counted.as_ref().map_or(value, |counted| counted.identity().value()))
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
        self.without_path += u64::from(!visit.has_endpoint);
        *(if is_allowed { &mut self.allowed } else { &mut self.denied }) += 1;
        self.first.get_or_insert(now);
        self.last = Some(now);
    }
}
