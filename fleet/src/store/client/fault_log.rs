//! The log of the faults of a store that a node meets: those that are present now, and the count of each.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::RedisError;
use tokio::time::Instant;

use crate::{
    lock::lock,
    store::fault::{FaultReport, ReportCondition, SETTLES_IN, StoreFault, said},
};

/// The time for which a fault counts as present after it last occurred.
pub(crate) const HOLD: Duration = Duration::from_secs(10);

const DETAIL_BYTES_MAX: usize = 200;

/// The faults of one store, as one node meets them.
#[derive(Debug, Default)]
pub(crate) struct FaultLog {
    met: Mutex<FaultState>,
    counts: [AtomicU64; StoreFault::ALL.len()],
}

#[derive(Debug, Default)]
struct FaultState {
    entries: [Option<Entry>; StoreFault::ALL.len()],
    /// The last fault that is no warning.
    last: Option<StoreFault>,
    /// The time at which the store last recovered from all faults.
    recovered_at: Option<Instant>,
    /// Whether the log says that a fault is present.
    logged: [bool; StoreFault::ALL.len()],
}

#[derive(Debug)]
struct Entry {
    first: Instant,
    last: Instant,
    /// The time until which it counts as present.
    until: Instant,
    /// Whether it is reported while the circuit breaker is closed.
    is_shown: bool,
    detail: String,
}

#[derive(PartialEq, Eq, Debug)]
pub(crate) enum FaultChange {
    Began(FaultReport),
    Ended(StoreFault),
}

impl FaultLog {
    /// Records an error of the client. Returns its fault.
    pub(crate) fn meet(&self, error: &RedisError) -> StoreFault {
        let fault = StoreFault::of(error);
        self.counts[fault as usize].fetch_add(1, Ordering::Relaxed);
        self.note(fault, HOLD, || said(error));
        fault
    }

    /// Records the late outcome of a request that counted as a timeout, unless the store has recovered since then.
    pub(crate) fn meet_late(&self, error: &RedisError, since: Instant) {
        if lock(&self.met).recovered_at.is_none_or(|at| at < since) {
            self.note(StoreFault::of(error), HOLD, || said(error));
        }
    }

    /// Records that a fault is present for `lasts` from now on.
    pub(crate) fn note(&self, fault: StoreFault, lasts: Duration, detail: impl FnOnce() -> String) {
        let now = Instant::now();
        let mut met = lock(&self.met);
        if !fault.is_warning() {
            met.last = Some(fault);
        }
        let before = met.entries[fault as usize].take().filter(|entry| now <= entry.until);
        let is_shown = before.as_ref().is_some_and(|entry| entry.is_shown);
        // A fault that ended by itself and comes again later has not lasted.
        let before = before.filter(|entry| now <= entry.last + SETTLES_IN);
        let first = before.map_or(now, |entry| entry.first);
        let mut detail = detail();
        detail.truncate(detail.floor_char_boundary(DETAIL_BYTES_MAX));
        met.entries[fault as usize] = Some(Entry { first, last: now, until: now + lasts, is_shown, detail });
    }

    /// Reports a fault of a part of the store, while the rest answers.
    pub(crate) fn show(&self, fault: StoreFault) {
        if let Some(entry) = &mut lock(&self.met).entries[fault as usize] {
            entry.is_shown = true;
        }
    }

    /// Records that all parts of the store answer.
    pub(crate) fn hide_parts(&self) {
        lock(&self.met).entries.iter_mut().flatten().for_each(|entry| entry.is_shown = false);
    }

    pub(crate) fn end(&self, fault: StoreFault) {
        let mut met = lock(&self.met);
        met.entries[fault as usize] = None;
        met.last = met.last.filter(|last| *last != fault);
    }

    /// Records that the store answers again: all faults but warnings are over.
    pub(crate) fn end_all(&self) {
        let mut met = lock(&self.met);
        (met.last, met.recovered_at) = (None, Some(Instant::now()));
        let is_over = |fault: &StoreFault| !fault.is_warning() && *fault != StoreFault::NoSecret;
        for fault in StoreFault::ALL.into_iter().filter(is_over) {
            met.entries[fault as usize] = None;
        }
    }

    /// Returns the count of each fault since the start.
    pub(crate) fn counts(&self) -> [u64; StoreFault::ALL.len()] {
        self.counts.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Returns the faults that are present now. `is_away` means that the circuit breaker is open.
    pub(crate) fn current(&self, is_away: bool) -> Vec<FaultReport> {
        let (met, now) = (lock(&self.met), Instant::now());
        StoreFault::ALL.into_iter().filter_map(|fault| met.current(fault, is_away, now)).collect()
    }

    /// Returns whether the store refuses something now.
    pub(crate) fn is_refusing(&self) -> bool {
        let (met, now) = (lock(&self.met), Instant::now());
        StoreFault::ALL.into_iter().any(|fault| !fault.is_warning() && met.current(fault, false, now).is_some())
    }

    /// Returns the faults that began and ended since the last call.
    pub(crate) fn changes(&self, is_away: bool) -> Vec<FaultChange> {
        let (mut met, now) = (lock(&self.met), Instant::now());
        let mut changes = Vec::new();
        for fault in StoreFault::ALL {
            let current = met.current(fault, is_away, now);
            let was_there = std::mem::replace(&mut met.logged[fault as usize], current.is_some());
            match current {
                Some(report) if !was_there => changes.push(FaultChange::Began(report)),
                None if was_there => changes.push(FaultChange::Ended(fault)),
                _ => {}
            }
        }
        changes
    }
}

impl FaultState {
    fn current(&self, fault: StoreFault, is_away: bool, now: Instant) -> Option<FaultReport> {
        let entry = self.entries[fault as usize].as_ref();
        // The reason for an open circuit breaker is the last error, however old it is.
        if is_away && self.last == Some(fault) {
            return Some(FaultReport::new(fault, entry.map_or("", |it| &it.detail)));
        }
        let entry = entry.filter(|entry| now < entry.until)?;
        let is_there = match fault.report() {
            ReportCondition::AtOnce => true,
            ReportCondition::Lasting => entry.last.duration_since(entry.first) >= SETTLES_IN,
            ReportCondition::Away => entry.is_shown,
        };
        is_there.then(|| FaultReport::new(fault, &entry.detail))
    }
}

#[cfg(test)]
mod tests {
    use redis::{ErrorKind, Value};

    use super::*;

    fn error(line: &str) -> RedisError {
        let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).and_then(Value::extract_error);
        reply.expect_err("an error")
    }

    fn codes(reports: &[FaultReport]) -> Vec<&'static str> {
        reports.iter().map(|report| report.code.code()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_reported_at_once_and_logged_once() {
        let faults = FaultLog::default();
        for _ in 0..3 {
            faults.meet(&error("OOM command not allowed"));
        }
        assert_eq!(codes(&faults.current(false)), ["out_of_memory"]);
        assert!(
            matches!(&faults.changes(false)[..], [FaultChange::Began(report)] if report.message.contains("(OOM command not allowed); raise maxmemory"))
        );
        assert_eq!(faults.changes(false), []);
        assert_eq!(faults.counts()[StoreFault::OutOfMemory as usize], 3);
        tokio::time::advance(HOLD).await;
        assert_eq!(faults.changes(false), [FaultChange::Ended(StoreFault::OutOfMemory)]);
        assert_eq!(faults.current(false), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_that_settles_by_itself_is_reported_when_it_lasts() {
        let faults = FaultLog::default();
        for (pause, is_reported) in [(0, false), (2_000, false), (700, false), (700, true)] {
            tokio::time::advance(Duration::from_millis(pause)).await;
            faults.meet(&error("LOADING Redis is loading the dataset in memory"));
            faults.meet(&RedisError::from((ErrorKind::Io, "it took too long")));
            let expected: &[&str] = if is_reported { &["loading"] } else { &[] };
            assert_eq!(codes(&faults.current(false)), expected, "{pause}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_of_a_store_that_does_not_answer_is_reported() {
        let faults = FaultLog::default();
        faults.meet(&RedisError::from((ErrorKind::Io, "it took too long")));
        faults.show(StoreFault::Timeout);
        assert_eq!(codes(&faults.current(false)), ["timeout"]);
        faults.hide_parts();
        faults.meet(&RedisError::from((ErrorKind::Io, "it took too long")));
        assert_eq!(faults.current(false), [], "a timeout of a check");
        faults.show(StoreFault::Timeout);
        tokio::time::advance(HOLD).await;
        assert_eq!(faults.current(false), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_error_from_before_the_recovery_is_ignored() {
        let (faults, asked_at) = (FaultLog::default(), Instant::now());
        let wrong = error("WRONGPASS invalid username-password pair");
        faults.meet_late(&wrong, asked_at);
        assert_eq!(codes(&faults.current(false)), ["wrong_password"]);
        tokio::time::advance(Duration::from_millis(1)).await;
        faults.end_all();
        faults.meet_late(&wrong, asked_at);
        assert_eq!(faults.current(false), []);
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_breaker_has_a_fault_until_the_store_answers() {
        let faults = FaultLog::default();
        faults.meet(&RedisError::from((ErrorKind::Io, "it took too long")));
        tokio::time::advance(10 * HOLD).await;
        assert_eq!(codes(&faults.current(true)), ["timeout"]);
        faults.note(StoreFault::Evicts, HOLD, || "allkeys-lru".to_owned());
        assert_eq!(codes(&faults.current(true)), ["timeout", "evicts"]);
        faults.end_all();
        assert_eq!(codes(&faults.current(false)), ["evicts"]);
        faults.end(StoreFault::Evicts);
        assert_eq!(faults.current(false), []);
    }
}
