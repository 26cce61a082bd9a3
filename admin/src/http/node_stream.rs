//! The stream of a node: the policy that it should have, then every new one, what it is asked, and signs of life. A reader
//! that is slow is told to start again; the server never waits for it.

use std::{collections::VecDeque, convert::Infallible, rc::Rc, sync::Arc};

use actix_web::web::{Bytes, Data};
use futures_util::{Stream, stream};
use serde::Serialize;
use serde_json::json;
use tidegate_fleet::wire::{
    BYE, CURRENT, CurrentVersion, DELTAS_MAX, Hello, RESTART, STORE_KEYS, StoreKeys, StreamEnd,
};
use tokio::{
    sync::watch,
    time::{self, Instant, Interval},
};

use crate::{
    auth::principal::Who,
    domain::{error::Problem, published::Shared, rollout::Targets, version::Version},
    fleet::{
        registry::{Connection, Message},
        snapshot_push::cut,
    },
    http::{guard, state::State},
};

/// Versions that a reader may have missed without being slow.
const MISSED_MAX: u64 = 4;

struct Reader {
    state: Data<State>,
    who: Rc<Who>,
    connection: Connection,
    targets: watch::Receiver<Arc<Targets>>,
    session_ended: watch::Receiver<()>,
    stopping: watch::Receiver<bool>,
    heartbeat: Interval,
    /// The version that it has or was sent; 0: none.
    sent: u64,
    /// Of that version's document; empty: it is not known.
    sha256: String,
    /// How many deltas it takes before a whole policy; `None`: it takes none at all.
    deltas: Option<u32>,
    pieces: VecDeque<Bytes>,
    /// Since when they are being sent.
    since: Instant,
    is_over: bool,
}

enum Happened {
    Stop,
    Published,
    /// `None`: somebody took its place, or it is too slow.
    Message(Option<Message>),
    Look,
    Heartbeat,
}

/// What a node is told, from the policy that it should have on.
pub(crate) async fn events(
    state: Data<State>,
    who: Rc<Who>,
    connection: Connection,
    hello: &Hello,
) -> Result<impl Stream<Item = Result<Bytes, Infallible>> + 'static, Problem> {
    let heartbeat = state.fleet.periods.node_heartbeat;
    let mut reader = Reader {
        targets: state.publisher.subscribe(),
        session_ended: state.session_ended.subscribe(),
        stopping: state.stopping.subscribe(),
        heartbeat: time::interval_at(Instant::now() + heartbeat, heartbeat),
        state,
        who,
        connection,
        sent: 0,
        sha256: String::new(),
        deltas: hello.deltas.map(|deltas| deltas.min(DELTAS_MAX)),
        pieces: VecDeque::new(),
        since: Instant::now(),
        is_over: false,
    };
    // A node that has no store is not to know it.
    if hello.store.is_some() {
        reader.say(STORE_KEYS, &StoreKeys { secret: reader.state.store_keys.clone() });
    }
    let target = reader.target();
    let version = target.version.version;
    let is_same = |digest: &String| *digest == target.version.sha256;
    if hello.version == Some(version) && hello.sha256.as_ref().is_some_and(is_same) {
        reader.has(&target.version);
        reader.say(CURRENT, &CurrentVersion { version });
    } else {
        reader.sent = hello.version.filter(|&had| had < version).unwrap_or(0);
        reader.sha256 = hello.sha256.clone().unwrap_or_default();
        reader.send(&target).await?;
    }
    Ok(stream::unfold(reader, async |mut reader| reader.next().await.map(|piece| (Ok(piece), reader))))
}

impl Reader {
    /// What the node should have.
    fn target(&mut self) -> Shared {
        Arc::clone(self.targets.borrow_and_update().of(Some(&self.connection.name)))
    }

    /// The next piece of the stream; `None` at its end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if *self.stopping.borrow() && !self.is_over {
                if !self.pieces.is_empty() {
                    // In the middle of an event nothing can be said.
                    return None;
                }
                self.end("it is being stopped");
            }
            if let Some(piece) = self.pieces.pop_front() {
                if self.pieces.is_empty()
                    && !self.is_over
                    && self.since.elapsed() > self.state.fleet.periods.node_read_timeout
                {
                    self.restart();
                }
                return Some(piece);
            }
            if self.is_over {
                return None;
            }
            // The senders live as long as the state, which this reader holds.
            let happened = tokio::select! {
                _ = self.stopping.changed() => Happened::Stop,
                _ = self.targets.changed() => Happened::Published,
                message = self.connection.messages.recv() => Happened::Message(message),
                _ = self.session_ended.changed() => Happened::Look,
                _ = self.heartbeat.tick() => Happened::Heartbeat,
            };
            // The node is given time to read from when there is something to read.
            self.since = Instant::now();
            match happened {
                Happened::Stop => {}
                Happened::Published => self.follow().await,
                // One that waited for too long would be obeyed with nobody to know.
                Happened::Message(Some((deadline, _))) if deadline <= Instant::now() => {}
                Happened::Message(Some((_, message))) => self.pieces.push_back(message),
                Happened::Message(None) => self.restart(),
                Happened::Look | Happened::Heartbeat => match guard::still(&self.state, &self.who).await {
                    Ok(Some(reason)) => self.end(reason),
                    // Or the database has trouble, not the node.
                    Ok(None) | Err(_) => self.pieces.push_back(Bytes::from_static(b": alive\n\n")),
                },
            }
        }
    }

    /// Sends what the node should have by now.
    async fn follow(&mut self) {
        let target = self.target();
        let version = target.version.version;
        if version > self.sent + MISSED_MAX {
            return self.restart();
        }
        // Whoever comes again is sent it then.
        if let Err(problem) = self.send(&target).await {
            tracing::warn!(%problem, version, "a policy could not be sent to a node");
            self.restart();
        }
    }

    async fn send(&mut self, target: &Shared) -> Result<(), Problem> {
        let version = target.version.version;
        if version <= self.sent {
            return Ok(());
        }
        if let Some(left) = self.deltas {
            let path = self.state.fleet.pushing.path(self.sent, &self.sha256, &target.version);
            let is_used_up = left == 0 || path.as_ref().is_some_and(|(_, cost)| *cost > left);
            if let Some((path, cost)) = path.filter(|_| !is_used_up) {
                self.deltas = Some(left - cost);
                self.pieces.extend(path.iter().flat_map(cut));
                self.has(&target.version);
                return Ok(());
            }
            // A whole one that is sent for another reason leaves nodes that came together apart.
            if is_used_up {
                self.deltas = Some(DELTAS_MAX);
            }
        }
        let pushed = self.state.fleet.pushing.packed(target).await?;
        let pieces = match self.sent {
            0 => pushed.pieces(&crate::domain::version::Carries::default()).collect::<VecDeque<_>>(),
            had if had + 1 == version => pushed.pieces(&target.version.carry).collect(),
            had => pushed.pieces(&self.state.store.carries_since(had, version).await?).collect(),
        };
        self.pieces.extend(pieces);
        self.has(&target.version);
        Ok(())
    }

    fn has(&mut self, version: &Version) {
        self.sent = version.version;
        self.sha256.clone_from(&version.sha256);
    }

    fn say(&mut self, name: &str, data: &impl Serialize) {
        self.pieces.push_back(Bytes::from(format!("event: {name}\ndata: {}\n\n", json!(data))));
    }

    fn restart(&mut self) {
        self.say(RESTART, &json!({}));
        self.is_over = true;
    }

    fn end(&mut self, reason: &str) {
        self.say(BYE, &StreamEnd { reason: reason.to_owned() });
        self.is_over = true;
    }
}
