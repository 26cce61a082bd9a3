//! Replays logs: reads lines, has them decided in order of time, and reports.

use std::{cmp::Reverse, io::Read};

use tidegate::{
    PublishError, Snapshot,
    time::{Nanos, SECOND_NS},
};

use crate::{
    client_limit::client_limit_name,
    log::{
        entries::{LogEntries, LogEntry},
        format::LogOptions,
        line_format::LineFormat,
    },
    log_source::{LogInput, LogSource},
    read_error::{ReadError, UnreadableLine},
    reorder_window::{ReorderWindow, WINDOW_BYTES_MAX, WINDOW_LINES_MAX},
    report::{FormatRow, LogRow, ReplayReport, UnreadableKind},
    simulation::{PendingRequest, Simulation},
    timestamp::Utc,
};

/// Default length of the reorder window: an hour.
pub const DEFAULT_WINDOW_NS: u64 = 3_600 * SECOND_NS;

/// Most unreadable lines that are stored.
pub const UNREADABLE_SHOWN: usize = 10;

/// Most kinds of unreadable lines that are stored.
const UNREADABLE_KINDS_MAX: usize = 10;

/// Lines between two calls for progress.
const PROGRESS_LINES: u64 = 8_192;

/// Settings of a replay.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// Settings for reading the logs.
    pub reading: LogOptions,
    /// Length of the reorder window in nanoseconds.
    pub window_ns: u64,
    /// Most counters, 24 bytes each; see [`keys_for`].
    pub max_keys: usize,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self { reading: LogOptions::default(), window_ns: DEFAULT_WINDOW_NS, max_keys: 1 << 20 }
    }
}

/// Bytes of a short line: an address, a time, a request and a status.
const SHORT_LINE_BYTES: u64 = 64;

/// Most counters, in 100 MB; most logs need fewer.
const KEYS_MAX: u64 = 1 << 22;

/// Returns the number of counters that is enough for a log of this length even if every line is from another client: each
/// request needs as many as the policy may charge, and a table that is half empty has a slot for each. At least 65,536
/// (1.6 MB), at most 4 million (100 MB), which is also the number for a log of unknown length.
/// [`ReplayReport::overflow_charges`] reports whether it was not enough.
#[must_use]
pub fn keys_for(policy: &Snapshot, log_bytes: Option<u64>) -> usize {
    let per_request = policy.most_limits_per_request() as u64;
    let keys = |bytes: u64| (bytes / SHORT_LINE_BYTES).saturating_mul(2 * per_request);
    log_bytes.map_or(KEYS_MAX, keys).clamp(1 << 16, KEYS_MAX) as usize
}

/// A replay of logs by one policy.
#[derive(Debug)]
pub struct Replay {
    reading: LogOptions,
    window: ReorderWindow<PendingRequest>,
    simulation: Simulation,
    unreadable: u64,
    without_client: u64,
    first_unreadable: Vec<UnreadableLine>,
    unreadable_kinds: Vec<UnreadableKind>,
    /// Fields of the map that no JSON log had so far; `None` if no such log was read.
    absent_fields: Option<Vec<String>>,
    /// The names of fields of the first JSON log.
    field_names: Vec<String>,
    failed_logs: Vec<String>,
    logs: Vec<LogRow>,
}

/// An open log, with its next request.
struct LogCursor<'i> {
    name: String,
    /// Index among the logs.
    place: usize,
    entries: LogEntries<LogInput<'i>>,
    next: Option<(Nanos, PendingRequest)>,
    lines: u64,
    /// Lines that could be read.
    requests: u64,
    refused: u64,
    first_refused: Option<UnreadableLine>,
    /// Number of lines of each format.
    forms: Vec<(LineFormat, u64)>,
}

impl<'i> LogCursor<'i> {
    fn new(name: String, place: usize, entries: LogEntries<LogInput<'i>>) -> Self {
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

    /// Returns the log for the report, its most frequent format first.
    fn row(mut self) -> LogRow {
        self.forms.sort_by_key(|(_, lines)| Reverse(*lines));
        let row = |(form, lines): (LineFormat, u64)| FormatRow { form: form.to_string(), lines };
        LogRow { log: self.name, forms: self.forms.into_iter().map(row).collect() }
    }
}

/// Counts a line of this format. A log has few formats.
fn count(forms: &mut Vec<(LineFormat, u64)>, form: LineFormat) {
    match forms.iter_mut().find(|(known, _)| *known == form) {
        Some((_, lines)) => *lines += 1,
        None => forms.push((form, 1)),
    }
}

impl Replay {
    /// Creates a replay of this policy.
    pub fn new(policy: Snapshot, options: &ReplayOptions) -> Result<Self, PublishError> {
        Ok(Self {
            reading: options.reading.clone(),
            window: ReorderWindow::new(options.window_ns, WINDOW_LINES_MAX, WINDOW_BYTES_MAX),
            simulation: Simulation::new(policy, options)?,
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

    /// Reads a log, gzip or plain; `name` is for messages. Several logs that are read in sequence are one log.
    ///
    /// `progress` is called regularly with the number of lines so far.
    pub fn read(&mut self, log: impl Read, name: &str, progress: impl FnMut(u64)) -> Result<(), ReadError> {
        self.read_all(vec![LogSource::stream(name, log)], progress).pop().map_or(Ok(()), Err)
    }

    /// Reads logs and merges them in order of time, in whatever order they are given; returns their errors.
    ///
    /// `progress` is called regularly with the number of lines so far.
    pub fn read_all<'i>(&mut self, logs: Vec<LogSource<'i>>, mut progress: impl FnMut(u64)) -> Vec<ReadError> {
        let (mut errors, mut open) = (Vec::new(), Vec::<Box<LogCursor<'i>>>::new());
        // A single log is read only once.
        let is_alone = logs.len() == 1;
        let with_first = |mut log: LogSource<'i>| (if is_alone { 0 } else { log.first_time(&self.reading) }, log);
        let mut closed: Vec<_> = logs.into_iter().map(with_first).enumerate().collect();
        // The next one is last; among logs that begin at the same time, the one that was given first.
        closed.sort_by_key(|(place, (first, _))| Reverse((*first, *place)));
        let mut told = self.lines();
        loop {
            let next =
                open.iter().enumerate().min_by_key(|(_, log)| (log.next.as_ref().map(|(time, _)| *time), log.place));
            let due = next.and_then(|(place, log)| Some((place, log.next.as_ref()?.0)));
            let is_due =
                |(_, (first, _)): &mut (usize, (Nanos, LogSource<'i>))| due.is_none_or(|(_, next)| *first <= next);
            if let Some((place, (_, log))) = closed.pop_if(is_due) {
                let name = log.name.clone();
                match log.open(&self.reading) {
                    Ok(entries) => {
                        open.extend(self.advance(Box::new(LogCursor::new(name, place, entries)), &mut errors));
                    }
                    Err(error) => errors.push(ReadError::Broken { log: name, lines: 0, error }),
                }
                continue;
            }
            let Some((place, _)) = due else { break };
            let mut log = open.swap_remove(place);
            if let Some((time, request)) = log.next.take() {
                self.take(time, request);
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

    /// Reads a log up to its next request; returns `None` at its end.
    fn advance<'i>(&mut self, mut log: Box<LogCursor<'i>>, errors: &mut Vec<ReadError>) -> Option<Box<LogCursor<'i>>> {
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
                LogEntry::Nothing => {}
                LogEntry::Request(record, form) => {
                    log.next = Some((record.time, self.simulation.pending(&record)));
                    log.requests += 1;
                    count(&mut log.forms, form);
                    return Some(log);
                }
                LogEntry::NoClient(form) => {
                    self.without_client += 1;
                    log.requests += 1;
                    count(&mut log.forms, form);
                }
                LogEntry::Refused(why) => {
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
        if let Some(absent) = log.entries.parser.absent_fields().filter(|_| log.requests > 0) {
            if let Some(of_others) = &mut self.absent_fields {
                of_others.retain(|field| absent.contains(field));
            } else {
                (self.absent_fields, self.field_names) = (Some(absent), log.entries.parser.fields());
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

    /// Returns the number of lines so far that were not blank.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.window.lines() + self.unreadable + self.without_client
    }

    /// Returns the number of requests so far: readable lines with a client.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.window.lines()
    }

    /// Returns the number of unreadable lines so far.
    #[must_use]
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Returns the first unreadable lines, at most [`UNREADABLE_SHOWN`].
    #[must_use]
    pub fn first_unreadable(&self) -> &[UnreadableLine] {
        &self.first_unreadable
    }

    /// Decides the rest of the window, and returns the report. `clients_max` bounds the list of clients; 0 lists all.
    #[must_use]
    pub fn finish(mut self, clients_max: usize) -> ReplayReport {
        while let Some((time, request)) = self.window.take() {
            self.simulation.decide(time, &request);
        }
        let (lines, requests) = (self.lines(), self.requests());
        let overflow_charges = self.simulation.engine.overflow_charges();
        let Simulation { limits, clients, timeline, without_path, allowed, denied, first, last, .. } = self.simulation;
        let (bucket_seconds, timeline) = timeline.into_rows();
        ReplayReport {
            lines,
            requests,
            unreadable: self.unreadable,
            without_client: self.without_client,
            without_path,
            late: self.window.late,
            allowed,
            denied,
            from: first.map(Utc),
            to: last.map(Utc),
            limits: limits
                .into_iter()
                .filter(|limit| limit.checked > 0 || client_limit_name(&limit.limit_id).is_none())
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

    /// Puts a request into the window, and decides the requests that are due.
    fn take(&mut self, time: Nanos, request: PendingRequest) {
        self.window.put(time, request);
        while let Some((time, request)) = self.window.take_due() {
            self.simulation.decide(time, &request);
        }
    }
}
