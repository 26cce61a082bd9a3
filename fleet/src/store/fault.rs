//! Faults of a store: the reasons why it refuses or fails, under codes that are stable in logs, metrics, alerts and
//! documents.

use std::{fmt, time::Duration};

use redis::{ErrorKind, RedisError};
use serde::{Deserialize, Serialize};

/// Parts of the texts of rustls errors.
const TLS_ERRORS: [&str; 5] =
    ["certificate", "fatal alert", "corrupt message", "peer is incompatible", "peer misbehaved"];

/// The time that a fault which ends by itself, such as a slot that moves, must last before it is reported.
pub(crate) const SETTLES_IN: Duration = Duration::from_secs(1);

/// The condition under which a fault is reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReportCondition {
    /// The fault is reported when it occurs.
    AtOnce,
    /// The fault is reported when it has lasted for [`SETTLES_IN`], or while the circuit breaker is open.
    Lasting,
    /// The fault is reported while the circuit breaker is open, or a part of the store does not answer: a single one
    /// means nothing.
    Away,
}

/// Defines the faults from one table: variant, code, when it is reported, meaning, and advice.
macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $fault:ident, $code:literal, $report:ident, $means:literal, $advice:literal;)+) => {
        /// The reason why a store refuses or fails, or what endangers its keys.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

            /// Returns the meaning of the fault, for people.
            #[must_use]
            pub fn means(self) -> &'static str {
                match self {
                    $(Self::$fault => $means,)+
                    Self::Unknown => "a fault that this release does not know",
                }
            }

            /// Returns what an operator can do about the fault.
            #[must_use]
            pub fn advice(self) -> &'static str {
                match self {
                    $(Self::$fault => $advice,)+
                    Self::Unknown => "upgrade this server to the release of the node",
                }
            }

            pub(crate) fn report(self) -> ReportCondition {
                match self {
                    $(Self::$fault => ReportCondition::$report,)+
                    Self::Unknown => ReportCondition::AtOnce,
                }
            }
        }
    };
}

faults! {
    /// A connection could not be made, or it broke.
    Unreachable, "unreachable", Away, "it cannot be reached",
        "see whether the server runs, its address, port and firewall are right, and it takes more clients (maxclients)";
    /// The store did not answer in time.
    Timeout, "timeout", Away, "it does not answer in time",
        "see what keeps the server busy (SLOWLOG) and whether it speaks TLS as the address says, or raise --redis-timeout above a \
         few round trips";
    /// The connection could not be secured.
    Tls, "tls", Away, "the connection could not be secured by TLS",
        "see whether the address speaks TLS and the certificates are valid for this host and signed by the given authority";
    /// The user or the password is wrong, or one is needed.
    WrongPassword, "wrong_password", AtOnce, "it does not accept the user or the password",
        "correct the user and the password in the address of the store";
    /// The user lacks the permission for a command or for the keys.
    NoPermission, "no_permission", AtOnce, "its user may not run a command or touch a key",
        "give the user the rule of the documents: ACL SETUSER";
    /// The server is a replica.
    ReadOnly, "read_only", AtOnce, "it is a replica, which takes no writes",
        "point the address at the master, or name the sentinels or the cluster, which know it";
    /// The memory of the server is full.
    OutOfMemory, "out_of_memory", AtOnce, "its memory is full",
        "raise maxmemory, or move other keys to another server";
    /// The server cannot save to its disk.
    Misconfigured, "misconfigured", AtOnce, "it stopped taking writes, since it cannot save to its disk",
        "see the server's log, and free its disk or correct its folder";
    /// The server has fewer replicas than it needs.
    NoReplicas, "no_replicas", AtOnce, "it takes no writes, since it has too few replicas",
        "start the missing replicas, or lower min-replicas-to-write";
    /// The server reads its data from disk.
    Loading, "loading", Lasting, "it is reading its data from disk",
        "wait until it has read them";
    /// A script or function of the server runs for too long.
    Busy, "busy", Lasting, "another script keeps it busy",
        "end that script (SCRIPT KILL), and see who runs it";
    /// The server is a replica that has lost its master.
    MasterDown, "master_down", Lasting, "it is a replica that has lost its master",
        "start the master again, or promote a replica";
    /// The cluster does not serve the slot.
    ClusterDown, "cluster_down", Lasting, "the cluster does not serve some of its slots",
        "see CLUSTER INFO, and start the missing masters or assign their slots";
    /// The key is on another server of a cluster.
    Moved, "moved", AtOnce, "the key lies on another server of a cluster",
        "give the addresses of two or more servers of the cluster: a single address is of a server alone";
    /// The slot is being moved to another server of a cluster.
    TryAgain, "try_again", AtOnce, "a slot is being moved to another server of the cluster",
        "wait until the move has ended, or end it: redis-cli --cluster fix";
    /// The server lacks a command.
    UnknownCommand, "unknown_command", AtOnce, "it lacks a command that is needed",
        "use Redis 5 or newer, or Valkey, and do not rename the commands of the documents";
    /// The server refused for another reason.
    Refused, "refused", AtOnce, "it refused",
        "see its own words, and its log";
    /// The admin server has not sent the secret of the keys.
    NoSecret, "no_secret", AtOnce, "the admin server has not sent the secret of the keys yet",
        "see whether the admin server can be reached, or give the node a file with the secret (--redis-secret-file)";
    /// The server may evict keys.
    Evicts, "evicts", AtOnce, "it evicts keys when its memory is full, and with each key a quota starts anew",
        "set maxmemory-policy to noeviction";
    /// The server lost keys.
    KeysLost, "keys_lost", AtOnce, "it lost keys, so quotas that were used may have started anew",
        "see whether it was flushed or restarted without its data, or evicts keys";
    /// The node cannot find out whether the server evicts keys.
    Unwatched, "unwatched", AtOnce, "whether it evicts keys is not known",
        "let the user run INFO";
}

impl StoreFault {
    /// Returns whether checks are decided in spite of the fault, which endangers keys and refuses nothing.
    #[must_use]
    pub fn is_warning(self) -> bool {
        matches!(self, Self::Evicts | Self::KeysLost | Self::Unwatched)
    }

    /// Returns whether the store did not answer, rather than refuse.
    #[must_use]
    pub fn is_silence(self) -> bool {
        self.report() == ReportCondition::Away
    }

    /// Returns the fault that an error of the Redis client shows.
    pub(crate) fn of(error: &RedisError) -> Self {
        // Before Redis 7 the code of an error within a script is inside the text of another error.
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

/// Returns an error in one line: as the server stated it, or as the client does.
pub(crate) fn said(error: &RedisError) -> String {
    let text = match error.code() {
        Some(code) => format!("{code} {}", error.detail().unwrap_or_default()),
        // The script's arguments are not text.
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "StoreFaultReport"))]
pub struct FaultReport {
    /// The code of the fault.
    pub code: StoreFault,
    /// The meaning of the fault, the text of the store, and the advice: for people.
    pub message: String,
}

impl FaultReport {
    pub(crate) fn new(code: StoreFault, detail: &str) -> Self {
        let said = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
        Self { code, message: format!("{}{said}; {}", code.means(), code.advice()) }
    }
}

impl fmt::Display for FaultReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
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
    fn each_error_of_a_server_has_a_fault() {
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
}
