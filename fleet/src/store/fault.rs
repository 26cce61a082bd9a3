//! Faults of a store: why it refuses or fails, under codes that stay the same in logs, metrics, alerts and documents.

use std::{
    fmt,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{ErrorKind, RedisError};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::lock::lock;

/// How long a fault counts as there after it was met last.
pub(crate) const HOLD: Duration = Duration::from_secs(10);

/// How long a fault that ends by itself, such as a slot that moves, must last before it is reported.
const SETTLES_IN: Duration = Duration::from_secs(1);

/// The longest detail of a fault, bytes.
const DETAIL_MAX: usize = 200;

/// Parts of the texts of rustls' errors.
const TLS_ERRORS: [&str; 5] =
    ["certificate", "fatal alert", "corrupt message", "peer is incompatible", "peer misbehaved"];

/// The time at which a fault is reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Report {
    /// The fault is reported when it is met.
    AtOnce,
    /// The fault is reported when it has lasted for [`SETTLES_IN`], or the store is left alone.
    Lasting,
    /// The fault is reported while the store is left alone, or a part of it does not answer: a single one says nothing.
    Away,
}

/// Defines the faults from one table: variant, code, when it is reported, what it means, and what to do.
macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $fault:ident, $code:literal, $report:ident, $means:literal, $advice:literal;)+) => {
        /// Why a store refuses or fails, or what endangers its keys.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(JsonSchema))]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum StoreFault {
            $($(#[doc = $doc])+ $fault,)+
            /// A fault of a newer release.
            #[serde(other)]
            Unknown,
        }

        impl StoreFault {
            /// All faults that this release knows.
            pub const ALL: [Self; [$($code),+].len()] = [$(Self::$fault),+];

            /// Returns the code, which stays the same between releases.
            #[must_use]
            pub fn code(self) -> &'static str {
                match self {
                    $(Self::$fault => $code,)+
                    Self::Unknown => "unknown",
                }
            }

            /// Returns what the fault means, for people.
            #[must_use]
            pub fn means(self) -> &'static str {
                match self {
                    $(Self::$fault => $means,)+
                    Self::Unknown => "a fault that this release does not know",
                }
            }

            /// Returns what an operator can do about it.
            #[must_use]
            pub fn advice(self) -> &'static str {
                match self {
                    $(Self::$fault => $advice,)+
                    Self::Unknown => "upgrade this server to the release of the node",
                }
            }

            fn report(self) -> Report {
                match self {
                    $(Self::$fault => Report::$report,)+
                    Self::Unknown => Report::AtOnce,
                }
            }
        }
    };
}

faults! {
    /// No connection could be made, or it broke.
    Unreachable, "unreachable", Away, "it cannot be reached",
        "see whether the server runs, its address, port and firewall are right, and it takes more clients (maxclients)";
    /// There was no answer in time.
    Timeout, "timeout", Away, "it does not answer in time",
        "see what keeps the server busy (SLOWLOG) and whether it speaks TLS as the address says, or raise --redis-timeout above a \
         few round trips";
    /// The connection could not be secured.
    Tls, "tls", Away, "the connection could not be secured by TLS",
        "see whether the address speaks TLS and the certificates are valid for this host and signed by the given authority";
    /// The user or password is wrong, or one is needed.
    WrongPassword, "wrong_password", AtOnce, "it does not accept the user or the password",
        "correct the user and the password in the address of the store";
    /// The user lacks a command or the keys.
    NoPermission, "no_permission", AtOnce, "its user may not run a command or touch a key",
        "give the user the rule of the documents: ACL SETUSER";
    /// It is a replica.
    ReadOnly, "read_only", AtOnce, "it is a replica, which takes no writes",
        "point the address at the master, or name the sentinels or the cluster, which know it";
    /// Its memory is full.
    OutOfMemory, "out_of_memory", AtOnce, "its memory is full",
        "raise maxmemory, or move other keys to another server";
    /// It cannot save to its disk.
    Misconfigured, "misconfigured", AtOnce, "it stopped taking writes, since it cannot save to its disk",
        "see the server's log, and free its disk or correct its folder";
    /// It has fewer replicas than it needs.
    NoReplicas, "no_replicas", AtOnce, "it takes no writes, since it has too few replicas",
        "start the missing replicas, or lower min-replicas-to-write";
    /// It reads its data from disk.
    Loading, "loading", Lasting, "it is reading its data from disk",
        "wait until it has read them";
    /// A script or function runs for too long.
    Busy, "busy", Lasting, "another script keeps it busy",
        "end that script (SCRIPT KILL), and see who runs it";
    /// It is a replica whose master is gone.
    MasterDown, "master_down", Lasting, "it is a replica that has lost its master",
        "start the master again, or promote a replica";
    /// The cluster does not serve the slot.
    ClusterDown, "cluster_down", Lasting, "the cluster does not serve some of its slots",
        "see CLUSTER INFO, and start the missing masters or assign their slots";
    /// The key lies on another server of a cluster.
    Moved, "moved", AtOnce, "the key lies on another server of a cluster",
        "give the addresses of two or more servers of the cluster: a single address is of a server alone";
    /// The slot is being moved to another server of a cluster.
    TryAgain, "try_again", AtOnce, "a slot is being moved to another server of the cluster",
        "wait until the move has ended, or end it: redis-cli --cluster fix";
    /// It lacks a command.
    UnknownCommand, "unknown_command", AtOnce, "it lacks a command that is needed",
        "use Redis 5 or newer, or Valkey, and do not rename the commands of the documents";
    /// It refused for another reason.
    Refused, "refused", AtOnce, "it refused",
        "see its own words, and its log";
    /// The admin server has not sent the secret of the keys.
    NoSecret, "no_secret", AtOnce, "the admin server has not sent the secret of the keys yet",
        "see whether the admin server can be reached, or give the node a file with the secret (--redis-secret-file)";
    /// It may evict keys.
    Evicts, "evicts", AtOnce, "it evicts keys when its memory is full, and with each key a quota starts anew",
        "set maxmemory-policy to noeviction";
    /// It lost keys.
    KeysLost, "keys_lost", AtOnce, "it lost keys, so quotas that were used may have started anew",
        "see whether it was flushed or restarted without its data, or evicts keys";
    /// Whether it evicts keys is not known.
    Unwatched, "unwatched", AtOnce, "whether it evicts keys is not known",
        "let the user run INFO";
}

impl StoreFault {
    /// Returns whether checks are decided in spite of it: it endangers keys, and refuses nothing.
    #[must_use]
    pub fn is_warning(self) -> bool {
        matches!(self, Self::Evicts | Self::KeysLost | Self::Unwatched)
    }

    /// Returns whether the store did not answer, rather than refuse.
    #[must_use]
    pub fn is_silence(self) -> bool {
        self.report() == Report::Away
    }

    /// Returns the fault that an error of the client shows.
    pub(crate) fn of(error: &RedisError) -> Self {
        // Before Redis 7 the code of what a script met stands in the text of another error.
        let text = said(error);
        let mut words = text.split_ascii_whitespace().map(|word| word.trim_start_matches('-').trim_end_matches(':'));
        if let Some(fault) = words.find_map(Self::of_word) {
            return fault;
        }
        let has = |part| text.contains(part);
        if has("max number of clients") {
            Self::Unreachable
        } else if has("The user executing the script can't") || has("ACL failure") {
            Self::NoPermission
        } else if has("unknown command") || has("Unknown Redis command") || has("Unknown command") {
            Self::UnknownCommand
        } else if error.kind() == ErrorKind::AuthenticationFailed || has("invalid password") || has("ERR AUTH ") {
            Self::WrongPassword
        } else if error.is_timeout() || has("took too long") || has("timed out") {
            Self::Timeout
        } else if TLS_ERRORS.into_iter().any(has) {
            Self::Tls
        } else if error.code().is_some() {
            Self::Refused
        } else {
            Self::Unreachable
        }
    }

    fn of_word(word: &str) -> Option<Self> {
        Some(match word {
            "NOAUTH" | "WRONGPASS" => Self::WrongPassword,
            "NOPERM" | "DENIED" => Self::NoPermission,
            "READONLY" | "ReadOnly" => Self::ReadOnly,
            "OOM" => Self::OutOfMemory,
            "MISCONF" => Self::Misconfigured,
            "NOREPLICAS" => Self::NoReplicas,
            "LOADING" => Self::Loading,
            "BUSY" => Self::Busy,
            "MASTERDOWN" => Self::MasterDown,
            "CLUSTERDOWN" => Self::ClusterDown,
            "MOVED" | "ASK" | "CROSSSLOT" => Self::Moved,
            "TRYAGAIN" => Self::TryAgain,
            _ => return None,
        })
    }
}

/// Returns an error in one line, as the server said it, or in the words of the client.
fn said(error: &RedisError) -> String {
    let text = match error.code() {
        Some(code) => format!("{code} {}", error.detail().unwrap_or_default()),
        // The script's arguments are no text.
        None if error.kind() == ErrorKind::Parse => {
            "unknown command: the answer repeats bytes of EVALSHA or EVAL".to_owned()
        }
        None => error.to_string(),
    };
    text.replace(char::is_control, " ")
}

impl fmt::Display for StoreFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// A fault that a node has with its store now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "StoreFaultReport"))]
pub struct FaultReport {
    /// The code of the fault.
    pub code: StoreFault,
    /// The meaning of the fault, the store's own words, and what to do: for people.
    pub message: String,
}

impl FaultReport {
    fn new(code: StoreFault, detail: &str) -> Self {
        let said = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
        Self { code, message: format!("{}{said}; {}", code.means(), code.advice()) }
    }
}

impl fmt::Display for FaultReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

/// The faults of one store, as one node meets them.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    met: Mutex<Met>,
    counts: [AtomicU64; StoreFault::ALL.len()],
}

#[derive(Debug, Default)]
struct Met {
    entries: [Option<Entry>; StoreFault::ALL.len()],
    /// The fault that was met last, other than warnings.
    last: Option<StoreFault>,
    /// When all of them were over.
    recovered_at: Option<Instant>,
    /// Whether the log says that a fault is there.
    logged: [bool; StoreFault::ALL.len()],
}

#[derive(Debug)]
struct Entry {
    first: Instant,
    last: Instant,
    /// The time until which it counts as there.
    until: Instant,
    /// Whether it is reported while the store is asked.
    is_shown: bool,
    detail: String,
}

/// A change of the faults that are there.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum FaultChange {
    Began(FaultReport),
    Ended(StoreFault),
}

impl Faults {
    /// Takes in an error of the client. Returns which fault that is.
    pub(crate) fn meet(&self, error: &RedisError) -> StoreFault {
        let fault = StoreFault::of(error);
        self.counts[fault as usize].fetch_add(1, Ordering::Relaxed);
        self.note(fault, HOLD, || said(error));
        fault
    }

    /// Takes in what became of a question that counted as a timeout `since` then, unless the store has answered since.
    pub(crate) fn meet_late(&self, error: &RedisError, since: Instant) {
        if lock(&self.met).recovered_at.is_none_or(|at| at < since) {
            self.note(StoreFault::of(error), HOLD, || said(error));
        }
    }

    /// Takes in that a fault is there for `lasts` from now on.
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
        detail.truncate(detail.floor_char_boundary(DETAIL_MAX));
        met.entries[fault as usize] = Some(Entry { first, last: now, until: now + lasts, is_shown, detail });
    }

    /// Reports a fault of a part of the store, while the rest answers.
    pub(crate) fn show(&self, fault: StoreFault) {
        if let Some(entry) = &mut lock(&self.met).entries[fault as usize] {
            entry.is_shown = true;
        }
    }

    /// Takes in that all parts of the store answer.
    pub(crate) fn hide_parts(&self) {
        lock(&self.met).entries.iter_mut().flatten().for_each(|entry| entry.is_shown = false);
    }

    /// Takes in that a fault is over.
    pub(crate) fn end(&self, fault: StoreFault) {
        let mut met = lock(&self.met);
        met.entries[fault as usize] = None;
        met.last = met.last.filter(|last| *last != fault);
    }

    /// Takes in that the store answers again: all faults but warnings are over.
    pub(crate) fn end_all(&self) {
        let mut met = lock(&self.met);
        (met.last, met.recovered_at) = (None, Some(Instant::now()));
        let is_over = |fault: &StoreFault| !fault.is_warning() && *fault != StoreFault::NoSecret;
        for fault in StoreFault::ALL.into_iter().filter(is_over) {
            met.entries[fault as usize] = None;
        }
    }

    /// Returns how often each fault was met since the start.
    pub(crate) fn counts(&self) -> [u64; StoreFault::ALL.len()] {
        self.counts.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Returns the faults that are there now. `is_away`: the store is left alone.
    pub(crate) fn current(&self, is_away: bool) -> Vec<FaultReport> {
        let (met, now) = (lock(&self.met), Instant::now());
        StoreFault::ALL.into_iter().filter_map(|fault| met.current(fault, is_away, now)).collect()
    }

    /// Returns whether the store refuses something now.
    pub(crate) fn is_refusing(&self) -> bool {
        let (met, now) = (lock(&self.met), Instant::now());
        StoreFault::ALL.into_iter().any(|fault| !fault.is_warning() && met.current(fault, false, now).is_some())
    }

    /// Returns what has begun and ended since this was called last.
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

impl Met {
    fn current(&self, fault: StoreFault, is_away: bool, now: Instant) -> Option<FaultReport> {
        let entry = self.entries[fault as usize].as_ref();
        // The cause why a store is left alone is its last answer, however old that is.
        if is_away && self.last == Some(fault) {
            return Some(FaultReport::new(fault, entry.map_or("", |it| &it.detail)));
        }
        let entry = entry.filter(|entry| now < entry.until)?;
        let is_there = match fault.report() {
            Report::AtOnce => true,
            Report::Lasting => entry.last.duration_since(entry.first) >= SETTLES_IN,
            Report::Away => entry.is_shown,
        };
        is_there.then(|| FaultReport::new(fault, &entry.detail))
    }
}

#[cfg(test)]
mod tests {
    use redis::{ServerErrorKind, Value};

    use super::*;

    fn error(line: &str) -> RedisError {
        let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).and_then(Value::extract_error);
        reply.expect_err("an error")
    }

    #[test]
    fn what_servers_say_has_a_code() {
        for (line, fault) in [
            (
                "READONLY You can't write against a read only replica. script: 1f, on @user_script:1.",
                StoreFault::ReadOnly,
            ),
            (
                "ERR Error running script (call to f_1): @user_script:98: @user_script: 98: -READONLY You can't write against",
                StoreFault::ReadOnly,
            ),
            ("OOM command not allowed when used memory > 'maxmemory'.", StoreFault::OutOfMemory),
            (
                "ERR The user executing the script can't run this command or subcommand script: 1f",
                StoreFault::NoPermission,
            ),
            (
                "ERR ACL failure in script: No permissions to access a key script: on @user_script:1.",
                StoreFault::NoPermission,
            ),
            ("NOPERM User x has no permissions to run the 'set' command", StoreFault::NoPermission),
            ("MISCONF Redis is configured to save RDB snapshots", StoreFault::Misconfigured),
            ("NOREPLICAS Not enough good replicas to write.", StoreFault::NoReplicas),
            ("LOADING Redis is loading the dataset in memory", StoreFault::Loading),
            ("BUSY Redis is busy running a script.", StoreFault::Busy),
            ("MASTERDOWN Link with MASTER is down", StoreFault::MasterDown),
            ("CLUSTERDOWN Hash slot not served", StoreFault::ClusterDown),
            ("MOVED 3999 127.0.0.1:6381", StoreFault::Moved),
            ("CROSSSLOT Keys in request don't hash to the same slot", StoreFault::Moved),
            ("TRYAGAIN Multiple keys request during rehashing of slot", StoreFault::TryAgain),
            ("NOAUTH Authentication required.", StoreFault::WrongPassword),
            ("WRONGPASS invalid username-password pair or user is disabled.", StoreFault::WrongPassword),
            ("ERR invalid password", StoreFault::WrongPassword),
            ("DENIED Redis is running in protected mode", StoreFault::NoPermission),
            ("ERR max number of clients reached", StoreFault::Unreachable),
            ("ERR unknown command 'EVALSHA', with args beginning with:", StoreFault::UnknownCommand),
            ("ERR something else", StoreFault::Refused),
        ] {
            assert_eq!(StoreFault::of(&error(line)), fault, "{line}");
        }
        assert_eq!(error("READONLY x").kind(), ErrorKind::Server(ServerErrorKind::ReadOnly));
        assert_eq!(StoreFault::of(&RedisError::from((ErrorKind::Io, "it took too long"))), StoreFault::Timeout);
        for (text, fault) in [
            ("invalid peer certificate: UnknownIssuer", StoreFault::Tls),
            ("received fatal alert: CertificateRequired", StoreFault::Tls),
            ("Connection refused", StoreFault::Unreachable),
        ] {
            assert_eq!(StoreFault::of(&RedisError::from(std::io::Error::other(text))), fault, "{text}");
        }
    }

    #[test]
    fn a_code_is_the_name_on_the_wire_and_is_used_once() {
        let mut codes = StoreFault::ALL.map(StoreFault::code);
        for fault in StoreFault::ALL {
            assert_eq!(serde_json::to_value(fault).expect("JSON"), fault.code());
        }
        codes.sort_unstable();
        assert!(codes.windows(2).all(|pair| pair[0] != pair[1]), "{codes:?}");
        assert_eq!(serde_json::from_str::<StoreFault>("\"of_tomorrow\"").expect("a fault"), StoreFault::Unknown);
    }

    fn codes(reports: &[FaultReport]) -> Vec<&'static str> {
        reports.iter().map(|report| report.code.code()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_reported_at_once_and_logged_once() {
        let faults = Faults::default();
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
    async fn what_settles_by_itself_is_reported_when_it_does_not() {
        let faults = Faults::default();
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
        let faults = Faults::default();
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
    async fn what_a_question_came_to_before_the_store_was_back_is_no_fault() {
        let (faults, asked_at) = (Faults::default(), Instant::now());
        let wrong = error("WRONGPASS invalid username-password pair");
        faults.meet_late(&wrong, asked_at);
        assert_eq!(codes(&faults.current(false)), ["wrong_password"]);
        tokio::time::advance(Duration::from_millis(1)).await;
        faults.end_all();
        faults.meet_late(&wrong, asked_at);
        assert_eq!(faults.current(false), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_left_alone_has_a_cause_until_it_answers() {
        let faults = Faults::default();
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
