//! What nodes are asked, and their answers. Whoever has not answered in time is named.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use tidegate::Request;
use tidegate_fleet::wire::{
    COMMAND, DEADLINE_MS, NodeQuery, NodeReply, QueryMessage, QueryRequest, ReplyMessage, StoreReport,
};
use tokio::{
    sync::mpsc::{self, UnboundedSender},
    time::{Instant, timeout_at},
};

use crate::{
    base::secrets::now,
    domain::error::Problem,
    fleet::registry::{Fleet, absent},
    store::database::Store,
};

/// A node waits for its store for half as long; then another one is asked that has the same.
const STORE_IN: Duration = Duration::from_secs(1);

/// Questions that wait for answers, by their ids.
#[derive(Debug, Default)]
pub(super) struct Asking(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    asked: u64,
    answers: HashMap<String, UnboundedSender<(String, NodeReply)>>,
}

/// What came of a question.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "NodeAnswers")]
pub(crate) struct Outcome {
    /// The nodes that answered, each with what it said.
    pub(crate) answers: BTreeMap<String, NodeReply>,
    /// Those that did not answer within two seconds, are gone, or are connected to another server: of them nothing is known.
    pub(crate) did_not_answer: Vec<String>,
    /// What came of a reset in the store that nodes share limits through: `clear` or `failed`. Absent: no node has one, or some
    /// were named, whose own counters a reset is about then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<NodeReply>,
}

impl Fleet {
    /// Asks nodes, by their names, or all that are known; this process too, if it decides. Of all, those that are connected to
    /// another server are named.
    pub(crate) async fn ask(
        &self,
        store: &Store,
        names: Option<&[String]>,
        ask: &NodeQuery,
    ) -> Result<Outcome, Problem> {
        self.ask_within(Duration::from_millis(DEADLINE_MS), store, names, ask).await
    }

    /// Has what nodes share forget what was used of the limits of a request: each store once, by way of one node that reaches
    /// it. `None`: no node has one.
    pub(crate) async fn clear(&self, store: &Store, request: &QueryRequest) -> Option<NodeReply> {
        let deadline = Instant::now() + Duration::from_millis(DEADLINE_MS);
        let ask = NodeQuery::Clear { request: request.clone() };
        let each = self.by_store().into_values().map(|names| self.clear_one(deadline, store, names, &ask));
        join_all(each).await.into_iter().reduce(|one, other| match (one, other) {
            (NodeReply::Clear { keys, mut cleared }, NodeReply::Clear { keys: more, cleared: others }) => {
                cleared.extend(others);
                NodeReply::Clear { keys: keys + more, cleared }
            }
            (NodeReply::Clear { .. }, failed) | (failed, _) => failed,
        })
    }

    /// What the store of this process has of a request's limits, if it has one.
    pub(crate) async fn stored(&self, request: &Request<'_>) -> Option<Vec<tidegate::internals::StoreAnswer>> {
        self.here.as_ref()?.stored(request).await
    }

    /// Asks these nodes, one after the other, until one has reached the store.
    async fn clear_one(&self, deadline: Instant, store: &Store, names: Vec<String>, ask: &NodeQuery) -> NodeReply {
        let mut why = "no node answered in time".to_owned();
        for name in names {
            let within = deadline.saturating_duration_since(Instant::now()).min(STORE_IN);
            let asked = self.ask_within(within, store, Some(std::slice::from_ref(&name)), ask).await;
            match asked.map(|mut outcome| outcome.answers.remove(&name)) {
                Ok(Some(told @ NodeReply::Clear { .. })) => return told,
                Ok(Some(NodeReply::Failed { why: said })) => why = format!("{name}: {said}"),
                Ok(_) => why = format!("{name} did not answer"),
                // It is gone by now.
                Err(_) => {}
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        NodeReply::Failed { why }
    }

    /// Nodes that are there and share limits, by the store that they do it through: first those whom it answers, and of them
    /// this process.
    fn by_store(&self) -> BTreeMap<u64, Vec<String>> {
        let is_away = |store: Option<&StoreReport>| store.is_some_and(|store| store.is_away);
        let here = self.here.as_ref().and_then(|here| {
            Some((here.store_id()?, is_away(here.store_report().as_ref()), self.figures.node().to_owned()))
        });
        let nodes = self.nodes();
        let there = nodes.by_name.iter().filter(|(_, node)| node.is_there());
        let there = there
            .filter_map(|(name, node)| Some((node.hello.store?, is_away(node.figures.store.as_ref()), name.clone())));
        let mut all: Vec<_> = here.into_iter().chain(there).collect();
        all.sort_by_key(|(_, is_away, _)| *is_away);
        let mut by_store = BTreeMap::<_, Vec<_>>::new();
        for (store, _, name) in all {
            by_store.entry(store).or_default().push(name);
        }
        by_store
    }

    async fn ask_within(
        &self,
        within: Duration,
        store: &Store,
        names: Option<&[String]>,
        ask: &NodeQuery,
    ) -> Result<Outcome, Problem> {
        let deadline = Instant::now() + within;
        let deadline_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let (sender, mut answers) = mpsc::unbounded_channel();
        let id = {
            let mut waiting = self.asking.lock();
            waiting.asked += 1;
            let id = waiting.asked.to_string();
            waiting.answers.insert(id.clone(), sender);
            id
        };
        // However this ends.
        let _forget = Forget { asking: &self.asking, id: &id };
        let command = QueryMessage { id: id.clone(), deadline_ms, query: json!(ask) };
        let message = Bytes::from(format!("event: {COMMAND}\ndata: {}\n\n", json!(command)));
        let is_here = |name: &String| self.here.is_some() && name == self.figures.node();
        let (mut outcome, mut missing) = (Outcome::default(), Vec::new());
        let all = {
            let mut nodes = self.nodes();
            let all: BTreeSet<String> = match names {
                // Who has stopped has nothing to answer.
                None => {
                    let going = nodes.by_name.iter().filter(|(_, node)| !node.is_stopped());
                    going.map(|(name, _)| name.clone()).collect()
                }
                Some(names) => names.iter().filter(|name| !is_here(name)).cloned().collect(),
            };
            // Before anything is sent.
            if let Some(unknown) = all.iter().find(|name| !nodes.by_name.contains_key(*name)) {
                return Err(absent(unknown));
            }
            for name in &all {
                let Some(node) = nodes.by_name.get_mut(name) else { continue };
                let sent = node.connection.as_ref().map(|sender| sender.messages.try_send((deadline, message.clone())));
                if matches!(sent, Some(Err(_))) {
                    // It does not read: its stream ends once it does, and it starts again.
                    node.connection = None;
                }
                // Nobody waits for one that is gone.
                let list = if matches!(sent, Some(Ok(()))) { &mut missing } else { &mut outcome.did_not_answer };
                list.push(name.clone());
            }
            all
        };
        let is_asked = names.is_none_or(|names| names.iter().any(is_here));
        if let Some(here) = self.here.as_ref().filter(|_| is_asked) {
            outcome.answers.insert(self.figures.node().to_owned(), here.answer(ask.clone()).await);
        }
        if names.is_none() {
            let known = async {
                let _turn = store.reads.turn().await?;
                Ok::<_, Problem>(store.connected_nodes(now()).await?)
            };
            match timeout_at(deadline, known).await {
                Ok(Ok(known)) => {
                    let others = known.into_iter().filter(|name| !all.contains(name) && !is_here(name));
                    outcome.did_not_answer.extend(others);
                }
                Ok(Err(error)) => tracing::warn!(%error, "nodes of other servers are not named"),
                Err(_) => tracing::warn!("nodes of other servers are not named: the database took too long"),
            }
        }
        while !missing.is_empty()
            && let Ok(Some((name, told))) = timeout_at(deadline, answers.recv()).await
        {
            if let Some(place) = missing.iter().position(|missing| *missing == name) {
                missing.swap_remove(place);
                outcome.answers.insert(name, told);
            }
        }
        outcome.did_not_answer.append(&mut missing);
        outcome.did_not_answer.sort();
        Ok(outcome)
    }

    /// Takes an answer in; one that came too late is nobody's.
    pub(crate) fn answer(&self, answer: ReplyMessage) -> Result<(), Problem> {
        self.of(&answer.name, &answer.instance, |_| ())?;
        let waits = self.asking.lock().answers.get(&answer.id).cloned();
        let waits = waits.ok_or_else(|| Problem::NotFound("Nobody waits for this answer any more.".to_owned()))?;
        // Whoever asked may have gone just now.
        let _ = waits.send((answer.name, answer.reply));
        Ok(())
    }
}

impl Asking {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing in here panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Forget<'a> {
    asking: &'a Asking,
    id: &'a str,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.asking.lock().answers.remove(self.id);
    }
}
