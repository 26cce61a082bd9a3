//! Follows the admin server: opens the stream, applies each snapshot or delta that arrives, answers queries, and
//! reconnects with backoff when the stream breaks.

use std::{convert::Infallible, sync::Arc, time::Duration};

use serde_json::from_str;
use tidegate::{clock::Clock, policy::SCHEMA};
use tidegate_net::backoff::{Backoff, Disconnect};
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};

use crate::{
    agent::{
        apply::SentPolicy,
        compiled_policy::{ApplyError, CompiledPolicy},
        http_client::CallError,
        last_good::LastGood,
        node::{Node, random},
        status::PolicySource,
    },
    wire::{
        self, Acknowledgement, CurrentVersion, Hello, NodeReply, QueryMessage, StoreKeys, StreamEnd,
        event_reader::{EventReader, ServerSentEvent},
    },
};

/// The time without a byte after which the stream counts as broken. The admin server sends a comment every ten seconds.
const SILENCE: Duration = Duration::from_secs(25);

/// The state of following an admin server, over all connections.
#[derive(Debug, Default)]
struct FollowState {
    backoff: Backoff,
    /// The policy in force; `None`: the agent did not compile the engine's policy.
    has: Option<CompiledPolicy>,
    wanted: WantedPolicy,
    /// Whether the policy in force could not be saved to the disk.
    is_unsaved: bool,
    /// Whether a policy of this connection was not put in force. The admin server assumes that the node has it.
    has_skipped_policy: bool,
    /// Whether the admin server sent the secret of the store's keys over this connection.
    has_store_keys: bool,
}

/// The policy that the next connection must deliver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
enum WantedPolicy {
    /// A policy that is newer than the one in force: a delta if possible.
    #[default]
    Newer,
    /// A newer policy, the first one as a snapshot.
    NewerSnapshot,
    /// A snapshot, even of the policy in force.
    Snapshot,
}

impl Node {
    /// Follows the admin server without end. `has` is the policy in force; it is `None` also where an earlier agent of
    /// this engine put one in force.
    pub(crate) async fn follow(self: Arc<Self>, has: Option<CompiledPolicy>) -> Infallible {
        let mut state = FollowState { has, ..FollowState::default() };
        loop {
            let ended = self.follow_once(&mut state).await;
            self.status.send_if_modified(|status| std::mem::take(&mut status.is_connected));
            sleep(state.backoff.pause(ended, random())).await;
        }
    }

    /// Opens one connection, and handles its events until it ends.
    async fn follow_once(self: &Arc<Self>, state: &mut FollowState) -> Disconnect {
        // A digest that cannot match makes the server send the policy of this version again, or a newer one with its
        // `carry`.
        let digest = |has: &CompiledPolicy| {
            if state.wanted == WantedPolicy::Snapshot { String::new() } else { has.sha256.clone() }
        };
        let sha256 = state.has.as_ref().map(digest);
        (state.has_skipped_policy, state.has_store_keys) = (false, false);
        let hello = Hello {
            name: self.name.clone(),
            instance: self.instance.clone(),
            build: env!("CARGO_PKG_VERSION").to_owned(),
            schema: SCHEMA,
            version: sha256.as_ref().map(|_| self.engine.version()),
            sha256,
            deltas: Some(if state.wanted == WantedPolicy::NewerSnapshot { 0 } else { self.deltas() }),
            store: self.queries.store_id(),
            says_goodbye: true,
        };
        let mut stream = match self.client.open(&hello).await {
            Ok(stream) => stream,
            Err(error) => {
                self.report_fault(error.to_string());
                return match error {
                    CallError::Unreachable(_) => Disconnect::Broken,
                    CallError::Refused { .. } => Disconnect::Refused,
                };
            }
        };
        self.status.send_modify(|status| {
            status.is_connected = true;
            status.trouble = None;
        });
        let mut reader = EventReader::default();
        loop {
            let mut events = Vec::new();
            let fault = match timeout(SILENCE, stream.chunk()).await {
                Ok(Ok(Some(piece))) => {
                    reader.read(&piece, |event| events.push(event)).err().map(|error| error.to_string())
                }
                Ok(Ok(None)) => Some("the admin server ended the stream".to_owned()),
                Ok(Err(error)) => Some(format!("the stream broke: {error}")),
                Err(_) => Some("the admin server was not heard for too long".to_owned()),
            };
            for event in events {
                if let Some(end) = self.handle(event, state).await {
                    return end;
                }
            }
            if let Some(fault) = fault {
                self.report_fault(fault);
                return Disconnect::Broken;
            }
        }
    }

    /// Handles an event. Returns how the connection ends, if the event ends it.
    async fn handle(self: &Arc<Self>, event: ServerSentEvent, state: &mut FollowState) -> Option<Disconnect> {
        if matches!(event.name.as_str(), wire::SNAPSHOT | wire::DELTA | wire::CURRENT) && !state.has_store_keys {
            // The secret comes before these events, so this server is of an older release that has none.
            let _ = self.take_store_keys(None);
        }
        match event.name.as_str() {
            wire::STORE_KEYS => {
                state.has_store_keys = true;
                match from_str(&event.data) {
                    Ok(StoreKeys { secret }) => {
                        let is_new = self.take_store_keys(Some(&secret));
                        let last_good = self.last_good.as_ref().filter(|_| is_new);
                        if let Some(Err(error)) = last_good.map(|last_good| last_good.write_store_keys(&secret)) {
                            let fault = "the secret of the keys in the store is not kept for the next start";
                            self.report_fault(format!("{fault}: {error}"));
                        }
                    }
                    Err(error) => {
                        self.report_fault(format!("the secret of the keys in the store cannot be read: {error}"));
                    }
                }
            }
            wire::SNAPSHOT => return self.take_policy(from_str(&event.data).map(SentPolicy::Snapshot), state).await,
            wire::DELTA => return self.take_policy(from_str(&event.data).map(SentPolicy::Delta), state).await,
            wire::CURRENT => {
                let CurrentVersion { .. } = from_str(&event.data).ok()?;
                state.backoff.reset();
                self.note_in_force(self.engine.version(), PolicySource::Admin);
            }
            wire::COMMAND => {
                let command: QueryMessage = from_str(&event.data).ok()?;
                if command.query.get("what").is_some_and(|what| what == "resync") {
                    self.send_reply(command.id, NodeReply::Resync {}).await;
                    state.wanted = WantedPolicy::Snapshot;
                    return Some(Disconnect::Restart);
                }
                let node = Arc::clone(self);
                tokio::spawn(async move { node.answer(command).await });
            }
            wire::RESTART => return Some(Disconnect::Restart),
            wire::BYE => {
                let why = from_str(&event.data).map_or_else(|_| String::new(), |bye: StreamEnd| bye.reason);
                self.report_fault(format!("the admin server ended the stream: {why}"));
                return Some(Disconnect::Restart);
            }
            _ => {}
        }
        None
    }

    /// Applies a snapshot or a delta, saves it, and acknowledges it.
    async fn take_policy(
        self: &Arc<Self>,
        sent: serde_json::Result<SentPolicy>,
        state: &mut FollowState,
    ) -> Option<Disconnect> {
        if state.has_skipped_policy {
            // This policy lacks the `carry` of the one that was not applied. A new connection states the version in
            // force, so the server sends the two together.
            return Some(Disconnect::Restart);
        }
        let began = Instant::now();
        let sent = match sent {
            Ok(sent) => sent,
            Err(error) => {
                self.report_fault(format!("the policy was damaged on its way: {error}"));
                state.wanted = state.wanted.max(WantedPolicy::NewerSnapshot);
                return Some(Disconnect::Broken);
            }
        };
        let is_delta = matches!(sent, SentPolicy::Delta(_));
        if is_delta && state.is_unsaved {
            // A delta can be saved only after the policy that it is against.
            state.wanted = WantedPolicy::NewerSnapshot;
            return Some(Disconnect::Restart);
        }
        let version = sent.version();
        let (node, has) = (Arc::clone(self), state.has.clone());
        // A policy with a hundred thousand clients takes a while to compile, so it must not block a thread that serves
        // requests.
        let done = spawn_blocking(move || {
            let applied = node.apply(&sent, has);
            let took = began.elapsed();
            let kept = node.last_good.as_ref().filter(|_| applied.is_ok()).map(|last_good| match &sent {
                SentPolicy::Snapshot(sent) => last_good.write(sent),
                SentPolicy::Delta(sent) => last_good.add(sent),
            });
            (applied, took, kept)
        });
        let (applied, took, kept) = done.await.unwrap_or_else(|error| {
            (Err(ApplyError::Refused(format!("it could not be taken in: {error}"))), began.elapsed(), None)
        });
        let refused = applied.as_ref().err().map(ToString::to_string);
        if let Some(why) = refused.as_ref().filter(|_| is_delta) {
            tracing::warn!(version, why, "what differs cannot be taken in, the policy is asked for whole");
            state.wanted = WantedPolicy::NewerSnapshot;
            return Some(Disconnect::Restart);
        }
        let not_kept = kept.and_then(Result::err).map(|error| error.to_string());
        self.acknowledge(Acknowledgement {
            name: self.name.clone(),
            instance: self.instance.clone(),
            version,
            at_ms: self.engine.clock().wall().as_nanos() / 1_000_000,
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            refused,
            not_kept: not_kept.clone(),
        });
        self.finish_policy((version, took), applied, not_kept, state)
    }

    /// Updates the state after a policy was applied or not. Returns how the connection ends, if it does.
    fn finish_policy(
        &self,
        (version, took): (u64, Duration),
        applied: Result<CompiledPolicy, ApplyError>,
        not_kept: Option<String>,
        state: &mut FollowState,
    ) -> Option<Disconnect> {
        match applied {
            Ok(compiled) => {
                tracing::info!(version, took_ms = took.as_millis() as u64, "policy in force");
                state.backoff.reset();
                state.has = Some(compiled);
                state.wanted = WantedPolicy::Newer;
                state.is_unsaved = not_kept.is_some();
                self.note_in_force(version, PolicySource::Admin);
                if let Some(why) = not_kept {
                    self.report_fault(format!("the policy is in force, but not kept for the next start: {why}"));
                }
                None
            }
            Err(not_applied) => {
                state.has_skipped_policy = true;
                if matches!(not_applied, ApplyError::Refused(_)) {
                    // Sending it again would not help.
                    state.wanted = WantedPolicy::Newer;
                }
                self.report_fault(format!("version {version} is not in force: {not_applied}"));
                matches!(not_applied, ApplyError::Damaged(_)).then_some(Disconnect::Broken)
            }
        }
    }

    /// Returns how many deltas the node accepts before a snapshot. The number is random, so that nodes that started
    /// together do not need their snapshots at the same time.
    fn deltas(&self) -> u32 {
        let kept = self.last_good.as_ref().map_or(0, LastGood::deltas);
        let most = wire::DELTAS_MAX - (random() % u64::from(wire::DELTAS_MAX / 2)) as u32;
        most.saturating_sub(kept)
    }

    async fn answer(&self, QueryMessage { id, deadline_ms, query }: QueryMessage) {
        let reply = match serde_json::from_value(query) {
            Ok(query) => match timeout(Duration::from_millis(deadline_ms), self.queries.answer(query)).await {
                Ok(reply) => reply,
                // The admin server no longer waits for a reply.
                Err(_) => return,
            },
            Err(error) => NodeReply::Failed { why: format!("this build does not know the question: {error}") },
        };
        self.send_reply(id, reply).await;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        fs,
        io::{BufRead, BufReader, Write},
        net::TcpListener,
        path::Path,
        sync::mpsc,
        thread,
    };

    use serde_json::json;
    use tempfile::TempDir;
    use tidegate::{
        Engine,
        policy::{self, Policy},
    };
    use tokio::runtime;

    use super::*;
    use crate::{
        agent::{http_client::NodeToken, last_good::StoredPolicy, start::Agent},
        wire::{
            DeltaMessage, SnapshotMessage,
            payload::{pack, sha256},
        },
    };

    const GOOD: &str = r#"{"domains":{"default":{}}}"#;
    const REFUSED: &str = r#"{"domains":{"default":{"from":"the future"}}}"#;

    fn snapshot(version: u64, document: &str) -> SnapshotMessage {
        SnapshotMessage {
            version,
            sha256: sha256(document),
            published_at: String::new(),
            carry: BTreeMap::new(),
            bytes: document.len() as u64,
            document: pack(document),
        }
    }

    fn event(version: u64, document: &str) -> String {
        format!("event: {}\ndata: {}\n\n", wire::SNAPSHOT, json!(snapshot(version, document)))
    }

    fn run<T>(what: impl Future<Output = T>) -> T {
        runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(what)
    }

    fn delta(version: u64, before: &str, after: &str) -> String {
        let policy = |text| from_str::<Policy>(text).expect("it is right");
        let (before_policy, after_policy) = (policy(before), policy(after));
        let text = json!(policy::Delta::between(&before_policy, &after_policy)).to_string();
        let delta = DeltaMessage {
            version,
            sha256: sha256(after),
            published_at: String::new(),
            since_sha256: sha256(before),
            carry: BTreeMap::new(),
            bytes: text.len() as u64,
            delta_sha256: sha256(&text),
            delta: pack(&text),
        };
        format!("event: {}\ndata: {}\n\n", wire::DELTA, json!(delta))
    }

    /// Runs an agent against a server that sends these texts, one on each connection, until this version is in force.
    /// Returns the request lines of the connections. The server does not read what the agent posts.
    fn follow(says: Vec<String>, folder: &Path, version: u64) -> Vec<String> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let (asked, asks) = mpsc::channel();
        thread::spawn(move || {
            let mut said = says.into_iter();
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.expect("it connects");
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).expect("it asks");
                if !line.starts_with("GET ") {
                    continue;
                }
                let Some(events) = said.next() else { break };
                asked.send(line).expect("it is waited for");
                write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{events}").expect("it reads");
                open.push(stream);
            }
        });
        run(async {
            let follower = Agent::new(&url, NodeToken::text("token")).named("n-1").keeping_in(folder);
            let following = follower.start(Arc::new(Engine::with_max_keys(100))).await.expect("it starts");
            let mut status = following.watch();
            let newest = timeout(SILENCE, status.wait_for(|status| status.version == version)).await;
            assert!(newest.is_ok_and(|newest| newest.is_ok()), "{:?}", following.status());
        });
        asks.try_iter().collect()
    }

    #[test]
    fn after_a_refused_snapshot_the_node_reconnects_with_the_version_in_force() {
        let folder = TempDir::new().expect("a folder");
        let says = vec![event(1, GOOD) + &event(2, REFUSED) + &event(3, GOOD), event(3, GOOD)];
        let asks = follow(says, folder.path(), 3);
        assert!(asks.len() == 2 && !asks[0].contains("&version=") && asks[1].contains("&version=1&"), "{asks:?}");
    }

    #[test]
    fn deltas_are_applied_and_saved_and_after_one_that_does_not_fit_the_node_asks_for_a_snapshot() {
        let document = |clients: &[&str]| {
            let client = |value: &&str| json!({"kind": "user", "value": value, "override": {"unlimited": true}});
            let clients = clients.iter().map(client).collect::<Vec<_>>();
            json!({"domains": {"default": {"clients": clients}}}).to_string()
        };
        let (one, two, three, four) =
            (document(&["a"]), document(&["a", "b"]), document(&["b", "c"]), document(&["c", "d"]));
        let folder = TempDir::new().expect("a folder");
        let says = vec![
            event(1, &one) + &delta(2, &one, &two) + &delta(3, &two, &three) + &delta(5, &one, &four),
            event(5, &four) + &delta(6, &four, &one),
        ];
        let asks = follow(says, folder.path(), 6);
        assert!(asks.len() == 2 && asks[0].contains("&deltas="), "{asks:?}");
        assert!(asks[1].contains("&version=3&") && asks[1].contains("&deltas=0&"), "{asks:?}");
        let last_good = LastGood::in_folder(folder.path()).expect("it is there");
        let found = last_good.read();
        assert!(
            matches!(&found, Ok(StoredPolicy::Usable { snapshot, deltas, lost: None }) if snapshot.version == 5 && deltas.len() == 1),
            "{found:?}"
        );

        // The next start has all of it without the admin server.
        let follower =
            Agent::new("http://127.0.0.1:1", NodeToken::text("token")).named("n-1").keeping_in(folder.path());
        let following = run(follower.start(Arc::new(Engine::with_max_keys(100)))).expect("it starts");
        assert_eq!((following.status().version, following.status().source), (6, Some(PolicySource::LastGood)));
    }

    #[test]
    fn after_a_policy_that_was_not_saved_the_node_asks_for_a_snapshot() {
        let folder = TempDir::new().expect("a folder");
        // A folder that is not empty cannot be replaced by a rename.
        let in_the_way = folder.path().join("last-good.json");
        fs::create_dir_all(in_the_way.join("x")).expect("made");
        let says = vec![event(1, GOOD) + &delta(2, GOOD, GOOD), event(2, GOOD)];
        let asks = follow(says, folder.path(), 2);
        assert!(asks.len() == 2 && asks[1].contains("&version=1&") && asks[1].contains("&deltas=0&"), "{asks:?}");
    }

    #[test]
    fn a_last_good_policy_that_is_refused_stays_on_the_disk() {
        let folder = TempDir::new().expect("a folder");
        let last_good = LastGood::in_folder(folder.path()).expect("it is there");
        last_good.write(&snapshot(2, REFUSED)).expect("written");
        let follower =
            Agent::new("http://127.0.0.1:1", NodeToken::text("token")).named("n-1").keeping_in(folder.path());
        let following = run(follower.start(Arc::new(Engine::with_max_keys(100)))).expect("it starts");
        assert_eq!(following.status().version, 0);
        assert!(matches!(last_good.read(), Ok(StoredPolicy::Usable { .. })));
    }
}
