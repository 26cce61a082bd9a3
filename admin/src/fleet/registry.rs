//! The nodes that follow this server: who is connected, what each has in force, what it told, and what it is asked.

mod node_queries;

mod connecting;

mod rows;

mod announcements;

use std::{
    collections::{BTreeMap, HashSet},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use serde_json::json;
use tidegate_fleet::{
    ErrorCounts, QueryHandler,
    wire::{Acknowledgement, ErrorCount, Goodbye, Hello, Process, Report, bounded_errors, is_name},
};
use tokio::{sync::mpsc, time::Instant};

use self::{node_queries::Asking, rows::Figures as NodeFigures};
pub(crate) use self::{
    node_queries::Outcome,
    rows::{NodeDetails, NodeRow, Overshoot, Trouble},
};
use crate::{
    base::{
        event_log::{Events, Topic},
        periods::Periods,
    },
    domain::{error::Problem, rollout::Targets, version::Version},
    fleet::{
        clock_skew::Ahead,
        node_history::{NodeSecond, Past},
        snapshot_push::Pushing,
    },
    metrics::collector::Figures,
    store::{database::Store, nodes::NODES_MAX},
};

/// A node reports every second: without a word for so long, something is wrong with it.
const GONE: Duration = Duration::from_secs(5);
/// Whoever ended without a word and is back sooner, lost its connection and nothing else.
const BACK_WITHIN: Duration = Duration::from_secs(10);
/// How long one that is gone is remembered.
const REMEMBERED: Duration = Duration::from_hours(24);
/// What may wait for a reader before it is told to start again.
const WAITING_MAX: usize = 32;
/// The kind of errors that a process counts where it refuses to reserve, since the caller has its share of reservations.
const REFUSED_RESERVATION: &str = "too_many_reservations";
/// The kind of error as which a request id is reported that was forgotten within its minute.
const FORGOTTEN_REQUEST_ID: &str = "forgotten_request_id";
/// Between two looks at all.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between the name of a server and when it started.
const SINCE: &str = " since ";
/// Names that the addresses of calls have for themselves.
const TAKEN: [&str; 4] = ["acknowledgements", "answers", "goodbyes", "reports"];

/// All of them.
#[derive(Debug)]
pub(crate) struct Fleet {
    nodes: Mutex<Nodes>,
    asking: Asking,
    pub(crate) pushing: Pushing,
    events: Arc<Events>,
    figures: Arc<Figures>,
    /// Tells the nodes of this process from those of other servers, and of the process before.
    server: String,
    /// Answers for the engine of this process, if it decides.
    here: Option<QueryHandler>,
    own: OwnProcess,
    pub(crate) periods: Periods,
}

/// What this process says of itself.
#[derive(Debug)]
pub(crate) struct OwnProcess {
    pub(crate) process: Process,
    pub(crate) errors: ErrorCounts,
}

#[derive(Debug, Default)]
struct Nodes {
    by_name: BTreeMap<String, Node>,
    connections: u64,
    /// What the engine of this process did.
    here: Past,
    /// Those whose names were claimed for this server since others were told.
    claimed: HashSet<String>,
    /// Requests that nodes refused for want of room, counted from each node's first report to this server.
    refused_for_room: RefusedForRoom,
}

/// Counts of what found no room in a table, since a caller had its share or the table was full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RefusedForRoom {
    /// Requests to reserve that were refused.
    pub(crate) reservations: u64,
    /// Request ids that were forgotten within their minute.
    pub(crate) request_ids: u64,
}

impl RefusedForRoom {
    fn of(errors: &[ErrorCount]) -> Self {
        let count = |kind| errors.iter().find(|error| error.kind == kind).map_or(0, |error| error.count);
        Self { reservations: count(REFUSED_RESERVATION), request_ids: count(FORGOTTEN_REQUEST_ID) }
    }

    fn zip(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            reservations: with(self.reservations, other.reservations),
            request_ids: with(self.request_ids, other.request_ids),
        }
    }
}

#[derive(Debug)]
struct Node {
    hello: Hello,
    address: String,
    /// `None`: its stream is not open.
    connection: Option<Sender>,
    heard: Instant,
    heard_at: jiff::Timestamp,
    /// Number of the last report that was counted.
    reported: u64,
    /// When it was made, by the node's clock; 0: there was none.
    reported_at_ms: u64,
    ahead: Ahead,
    figures: NodeFigures,
    /// What it said last of its process, and of its errors.
    process: Option<Process>,
    errors: Vec<ErrorCount>,
    past: Past,
    was_silent: bool,
    /// Its process said that it stops.
    has_stopped: bool,
    acknowledged: Option<Acknowledgement>,
    acknowledged_at: jiff::Timestamp,
}

/// An event, and until when it is of use.
pub(crate) type Message = (Instant, Bytes);

/// What goes to a stream.
#[derive(Debug)]
struct Sender {
    number: u64,
    since: jiff::Timestamp,
    /// The name is this server's among those of its database.
    is_claimed: bool,
    messages: mpsc::Sender<Message>,
}

/// The stream of a node. When it is dropped, the node is not connected any more.
#[derive(Debug)]
pub(crate) struct Connection {
    fleet: Arc<Fleet>,
    pub(crate) name: String,
    number: u64,
    /// Events; its end: another stream of the same process took over, or this one was too slow.
    pub(crate) messages: mpsc::Receiver<Message>,
}

impl Fleet {
    /// `here`: answers for the engine of this process, if it decides.
    pub(crate) fn new(
        events: Arc<Events>,
        figures: Arc<Figures>,
        here: Option<QueryHandler>,
        own: OwnProcess,
        periods: Periods,
    ) -> Self {
        let server = format!("{}{SINCE}{}", figures.node(), jiff::Timestamp::now());
        let mut nodes = Nodes::default();
        nodes.here.decides_by(figures.engine().version(), None, None);
        Self {
            nodes: Mutex::new(nodes),
            server,
            asking: Asking::default(),
            pushing: Pushing::default(),
            events,
            figures,
            here,
            own,
            periods,
        }
    }

    /// Registers the stream of a node; refuses a name that another process has, whichever server of the database it is
    /// connected to.
    pub(crate) async fn connect(
        self: &Arc<Self>,
        store: &Store,
        hello: Hello,
        address: String,
    ) -> Result<Connection, Problem> {
        let connection = self.register(hello, address)?;
        self.claim(store, &connection).await?;
        Ok(connection)
    }

    fn register(self: &Arc<Self>, hello: Hello, address: String) -> Result<Connection, Problem> {
        for (parameter, name) in [("name", &hello.name), ("instance", &hello.instance)] {
            if !is_name(name) || TAKEN.contains(&name.as_str()) {
                let why = format!("`{name}` cannot be a {parameter}: letters, digits, `.`, `_` and `-`");
                return Err(Problem::parameter(parameter, why));
            }
        }
        if self.here.is_some() && hello.name == self.figures.node() {
            return Err(Problem::DuplicateNode { name: hello.name, who: "this server's own engine".to_owned() });
        }
        let mut nodes = self.nodes();
        let taken = |node: &Node| {
            let sender = node.connection.as_ref()?;
            let is_taken =
                node.hello.instance != hello.instance && node.heard.elapsed() < self.periods.node_name_timeout;
            is_taken.then_some(sender.since)
        };
        match nodes.by_name.get(&hello.name).map(taken) {
            Some(Some(since)) => {
                let who = format!("a process that is connected to this server since {since}");
                return Err(Problem::DuplicateNode { name: hello.name, who });
            }
            None if !nodes.has_room() => {
                return Err(Problem::Full(format!("{NODES_MAX} nodes are connected.")));
            }
            _ => {}
        }
        nodes.connections += 1;
        let (number, name) = (nodes.connections, hello.name.clone());
        let (sender, messages) = mpsc::channel(WAITING_MAX);
        let sender = Sender { number, since: jiff::Timestamp::now(), is_claimed: false, messages: sender };
        let node = nodes.by_name.entry(name.clone()).or_insert_with(|| Node::new(hello.clone()));
        let mut said = "It connected";
        if node.hello.instance != hello.instance {
            said = "It connected, another process than before";
            *node = Node { past: mem::take(&mut node.past), ..Node::new(hello.clone()) };
        }
        node.past.says("connected", said);
        node.figures.policy_version = hello.version.unwrap_or(0);
        node.hello = hello;
        node.address = address;
        node.connection = Some(sender);
        node.hears();
        Ok(Connection { fleet: Arc::clone(self), name, number, messages })
    }

    /// What became of a snapshot.
    pub(crate) fn acknowledge(&self, targets: &Targets, acknowledgement: Acknowledgement) -> Result<(), Problem> {
        let name = acknowledgement.name.clone();
        let told = json!({
            "version": acknowledgement.version, "node": name, "took_ms": acknowledgement.took_ms,
            "refused": acknowledgement.refused,
        });
        self.of(&name, &acknowledgement.instance.clone(), |node| {
            // Each comes by a connection of its own, so an older one may come later.
            let (at_ms, version) = (acknowledgement.at_ms, acknowledgement.version);
            if node.acknowledged.as_ref().is_some_and(|newer| (newer.at_ms, newer.version) > (at_ms, version)) {
                return;
            }
            if acknowledgement.refused.is_none() {
                node.figures.policy_version = acknowledgement.version;
            }
            node.past.acknowledged(&acknowledgement);
            node.acknowledged = Some(acknowledgement);
            node.acknowledged_at = jiff::Timestamp::now();
            node.compares(&targets.of(Some(&name)).version);
        })?;
        self.events.put(Topic::Policy, "policy.applied", &told, |_, _| {});
        Ok(())
    }

    /// A node stops, and said so: it is not missed.
    pub(crate) fn goodbye(&self, goodbye: &Goodbye) -> Result<(), Problem> {
        self.of(&goodbye.name, &goodbye.instance, |node| {
            node.has_stopped = true;
            // Its stream ends before its connection is seen to.
            node.connection = None;
            node.past.says("stopped", "It stopped");
        })
    }

    /// Prepares what nodes are sent of a version, if there are any.
    pub(crate) async fn has_changed(&self, before: &Targets, after: &Targets) {
        let (had, newest) = (before.newest.version.version, after.newest.version.version);
        let since = |targets: &Targets| targets.rollout().map(|rollout| rollout.since.clone());
        if before.staged.is_some() && had != newest && since(before) != since(after) {
            self.pushing.is_taken_back(had);
        }
        let is_anybody = self.nodes().by_name.values().any(|node| node.connection.is_some());
        if is_anybody {
            for made in after.each() {
                if let Some(on) = before.each().find(|on| on.version.version == made.version.follows) {
                    self.pushing.has_changed(on, made).await;
                }
            }
        }
    }

    /// What a node counted. One that was counted already is not counted again.
    pub(crate) fn report(&self, targets: &Targets, report: &Report) -> Result<(), Problem> {
        let (is_new, refused_for_room) = self.of(&report.name, &report.instance, |node| {
            let is_new = report.sequence > node.reported;
            let mut refused_for_room = RefusedForRoom::default();
            if is_new {
                let before_ms =
                    if node.reported_at_ms == 0 { report.at_ms.saturating_sub(1_000) } else { node.reported_at_ms };
                node.ahead.add(report.at_ms, jiff::Timestamp::now().as_millisecond());
                let interval_ms = report.at_ms.saturating_sub(before_ms).max(1);
                node.figures = NodeFigures::of_report(report, interval_ms, &node.ahead);
                node.compares(&targets.of(Some(&report.name)).version);
                let errors = bounded_errors(report.errors.clone());
                // What it counted before its first report may be long ago.
                if node.reported > 0 {
                    refused_for_room =
                        RefusedForRoom::of(&errors).zip(RefusedForRoom::of(&node.errors), u64::saturating_sub);
                }
                node.errors = errors;
                if let Some(process) = &report.process {
                    node.process = Some(process.clone().bounded());
                }
                (node.reported, node.reported_at_ms) = (report.sequence, report.at_ms);
            }
            (is_new, refused_for_room)
        })?;
        if is_new {
            let mut nodes = self.nodes();
            nodes.refused_for_room = nodes.refused_for_room.zip(refused_for_room, u64::saturating_add);
            drop(nodes);
            self.figures.take_in(report);
        }
        Ok(())
    }

    /// All, by name.
    pub(crate) fn rows(&self, targets: &Targets) -> Vec<NodeRow> {
        let target = |name: &str| &targets.of(Some(name)).version;
        let here = self.here.as_ref().map(|answers| {
            let target = target(self.figures.node());
            let always = Some((target, jiff::Timestamp::UNIX_EPOCH));
            let behind_since = self.nodes().here.behind_since(self.figures.engine().version(), always);
            NodeRow::of_this_one(&self.figures, answers.store_report(), target, behind_since)
        });
        let nodes = self.nodes();
        here.into_iter().chain(nodes.by_name.values().map(|node| node.row(target(&node.hello.name)))).collect()
    }

    /// One of them, with all that is known of it.
    pub(crate) fn details(&self, targets: &Targets, name: &str) -> Result<NodeDetails, Problem> {
        let row = self.rows(targets).into_iter().find(|row| row.node == name).ok_or_else(|| absent(name))?;
        let nodes = self.nodes();
        if row.is_here() {
            let OwnProcess { process, errors } = &self.own;
            let (process, errors) = (Some(process.clone()), bounded_errors(errors.now()));
            let overshoot = self.overshoot(&nodes, self.here.as_ref().and_then(QueryHandler::store_id));
            return Ok(NodeDetails { row, process, errors, overshoot, events: nodes.here.events() });
        }
        let node = nodes.by_name.get(name).ok_or_else(|| absent(name))?;
        let (process, errors) = (node.process.clone(), node.errors.clone());
        let overshoot = self.overshoot(&nodes, node.hello.store);
        Ok(NodeDetails { row, process, errors, overshoot, events: node.past.events() })
    }

    /// Returns the counts of this process and of its nodes together. They never shrink.
    pub(crate) fn refused_for_room(&self) -> RefusedForRoom {
        RefusedForRoom::of(&self.own.errors.now()).zip(self.nodes().refused_for_room, u64::saturating_add)
    }

    /// Of the nodes that are there and share limits through this store.
    fn overshoot(&self, nodes: &Nodes, store: Option<u64>) -> Option<Overshoot> {
        store?;
        let here = self.here.as_ref().filter(|here| here.store_id() == store).and_then(QueryHandler::store_report);
        let there = nodes.by_name.values().filter(|node| node.is_there() && node.hello.store == store);
        Some(Overshoot::of(here.into_iter().chain(there.filter_map(|node| node.figures.store.clone()))))
    }

    /// Its seconds, oldest first.
    pub(crate) fn history(&self, name: &str) -> Result<Vec<NodeSecond>, Problem> {
        let nodes = self.nodes();
        if self.here.is_some() && name == self.figures.node() {
            return Ok(nodes.here.seconds());
        }
        nodes.by_name.get(name).map(|node| node.past.seconds()).ok_or_else(|| absent(name))
    }

    /// The engine of this process decides by a version, or does not.
    pub(crate) fn happened_here(&self, version: u64, took_ms: Option<u64>, refused: Option<&str>) {
        self.nodes().here.decides_by(version, took_ms, refused);
    }

    /// Does something with the node of this name, which is this process.
    fn of<T>(&self, name: &str, instance: &str, with: impl FnOnce(&mut Node) -> T) -> Result<T, Problem> {
        let mut nodes = self.nodes();
        let node = nodes.by_name.get_mut(name).filter(|node| node.hello.instance == instance);
        let node =
            node.ok_or_else(|| Problem::NotFound(format!("`{name}` is not connected, or not this process of it.")))?;
        node.hears();
        Ok(with(node))
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        // Nothing in here panics.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Nodes {
    /// Is there room for one more? The one that is gone longest makes it.
    fn has_room(&mut self) -> bool {
        if self.by_name.len() < NODES_MAX {
            return true;
        }
        let gone = self.by_name.iter().filter(|(_, node)| node.connection.is_none());
        let Some(name) = gone.min_by_key(|(_, node)| node.heard).map(|(name, _)| name.clone()) else { return false };
        self.by_name.remove(&name);
        true
    }
}

impl Node {
    fn new(hello: Hello) -> Self {
        Self {
            hello,
            address: String::new(),
            connection: None,
            heard: Instant::now(),
            heard_at: jiff::Timestamp::now(),
            reported: 0,
            reported_at_ms: 0,
            ahead: Ahead::default(),
            figures: NodeFigures::default(),
            process: None,
            errors: Vec::new(),
            past: Past::default(),
            was_silent: false,
            has_stopped: false,
            acknowledged: None,
            acknowledged_at: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    /// Connected, and heard lately.
    fn is_there(&self) -> bool {
        self.connection.is_some() && self.heard.elapsed() < GONE
    }

    /// It said that it stops, and its connection ended.
    fn is_stopped(&self) -> bool {
        self.connection.is_none() && self.has_stopped
    }

    /// Its connection ended without a word, and it has not come back.
    fn is_missed(&self) -> bool {
        let is_back_late = self.connection.is_none() && self.heard.elapsed() >= BACK_WITHIN;
        is_back_late && self.hello.says_goodbye && !self.has_stopped
    }

    /// Is its stream the one of this number?
    fn has(&self, connection: u64) -> bool {
        self.connection.as_ref().is_some_and(|sender| sender.number == connection)
    }

    /// `None`: it is not.
    fn connected_at(&self) -> Option<jiff::Timestamp> {
        self.connection.as_ref().map(|sender| sender.since)
    }

    /// Sees whether it has what it should have.
    fn compares(&mut self, target: &Version) {
        let connected = self.connected_at();
        self.past.compares(self.figures.policy_version, connected.map(|since| (target, since)));
    }

    fn hears(&mut self) {
        self.heard = Instant::now();
        self.heard_at = jiff::Timestamp::now();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut nodes = self.fleet.nodes();
        if let Some(node) = nodes.by_name.get_mut(&self.name).filter(|node| node.has(self.number)) {
            node.connection = None;
            node.past.says("disconnected", "Its connection ended");
        }
    }
}

pub(crate) fn absent(name: &str) -> Problem {
    Problem::NotFound(format!("There is no node `{name}`."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: String) -> Node {
        let hello = Hello {
            name,
            instance: "a".to_owned(),
            build: String::new(),
            schema: 1,
            version: None,
            sha256: None,
            deltas: None,
            store: None,
            says_goodbye: true,
        };
        Node::new(hello)
    }

    #[test]
    fn who_is_gone_longest_makes_room_and_who_is_connected_never() {
        const GONE: usize = 20;
        let (mut nodes, now) = (Nodes::default(), Instant::now());
        let add = |nodes: &mut Nodes, number: usize, is_connected: bool| {
            let name = format!("n-{number}");
            let mut node = node(name.clone());
            node.heard = now + Duration::from_millis((2 * NODES_MAX - number) as u64);
            if is_connected {
                let (messages, _) = mpsc::channel(1);
                let since = jiff::Timestamp::UNIX_EPOCH;
                node.connection = Some(Sender { number: 0, since, is_claimed: true, messages });
            }
            nodes.by_name.insert(name, node);
        };
        // Of those with the lowest numbers every other one is gone; the higher its number, the longer.
        for number in 0..NODES_MAX {
            assert!(nodes.has_room(), "{number}");
            add(&mut nodes, number, number >= 2 * GONE || number % 2 == 0);
        }
        for new in 0..GONE {
            assert!(nodes.has_room());
            assert_eq!(nodes.by_name.len(), NODES_MAX - 1);
            let oldest = 2 * GONE - 1 - 2 * new;
            assert!(!nodes.by_name.contains_key(&format!("n-{oldest}")), "{oldest}");
            add(&mut nodes, NODES_MAX + new, true);
        }
        assert!(!nodes.has_room(), "all are connected");
        assert_eq!(nodes.by_name.len(), NODES_MAX);
        nodes.by_name.remove("n-0");
        assert!(nodes.has_room());
    }
}
