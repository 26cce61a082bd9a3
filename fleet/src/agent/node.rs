//! The state that the tasks of an agent share, and what a node posts to the admin server.

use std::{convert::Infallible, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use tidegate::{Engine, clock::SystemClock};
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{MissedTickBehavior, interval, sleep, timeout},
};

use crate::{
    agent::{
        http_client::{AdminClient, CallError},
        last_good::LastGood,
        process::ErrorCounts,
        query_handler::QueryHandler,
        status::{AgentStatus, PolicySource},
    },
    store::SharedEngine,
    wire::{self, Acknowledgement, Goodbye, NodeReply, Process, ReplyMessage},
};

/// The time after which the engine adjusts to wall time again.
const WALL_EVERY: Duration = Duration::from_secs(5);
pub(super) const REPORT_EVERY: Duration = Duration::from_secs(1);
/// The number of times that a lost acknowledgement is sent. The next report states the version too.
const ACKNOWLEDGE_TRIES: u32 = 3;
const STORE_KEYS_BYTES: usize = 32;
/// The time limit for telling the admin server that the node stops.
const GOODBYE: Duration = Duration::from_secs(2);

/// The state of an agent.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) instance: String,
    pub(crate) client: AdminClient,
    pub(crate) engine: Arc<Engine>,
    pub(crate) store: Option<Arc<SharedEngine<SystemClock>>>,
    pub(crate) queries: QueryHandler,
    pub(crate) last_good: Option<LastGood>,
    pub(crate) process: Process,
    pub(crate) errors: ErrorCounts,
    pub(crate) status: watch::Sender<AgentStatus>,
}

impl Node {
    /// Takes the secret of the store's keys: 32 bytes, base64url. Returns whether it is valid.
    pub(super) fn take_store_keys(&self, secret: Option<&str>) -> bool {
        let Some(store) = &self.store else { return false };
        let secret = secret.map(|secret| URL_SAFE_NO_PAD.decode(secret).unwrap_or_default());
        let is_valid = secret.as_ref().is_none_or(|secret| secret.len() == STORE_KEYS_BYTES);
        if is_valid {
            store.take_key_secret(secret.as_deref());
        } else {
            self.report_fault("the secret of the keys in the store is damaged".to_owned());
        }
        is_valid
    }

    pub(super) fn acknowledge(self: &Arc<Self>, acknowledgement: Acknowledgement) {
        let node = Arc::clone(self);
        tokio::spawn(async move {
            for _ in 0..ACKNOWLEDGE_TRIES {
                match node.client.post(wire::ACKNOWLEDGEMENTS, &acknowledgement).await {
                    Ok(()) | Err(CallError::Refused { .. }) => return,
                    Err(CallError::Unreachable(_)) => sleep(REPORT_EVERY).await,
                }
            }
        });
    }

    pub(super) async fn send_reply(&self, id: String, reply: NodeReply) {
        let message = ReplyMessage { name: self.name.clone(), instance: self.instance.clone(), id, reply };
        if let Err(error) = self.client.post(wire::ANSWERS, &message).await {
            tracing::warn!(%error, "an answer did not arrive");
        }
    }

    /// Tells the admin server that this node stops.
    pub(crate) async fn say_goodbye(&self) {
        let goodbye = Goodbye { name: self.name.clone(), instance: self.instance.clone() };
        match timeout(GOODBYE, self.client.post(wire::GOODBYES, &goodbye)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the admin server does not know that this node stops"),
            Err(_) => tracing::warn!("the admin server does not know that this node stops: it does not answer"),
        }
    }

    /// Makes the engine adjust to wall time without end.
    pub(crate) async fn follow_wall_time(self: Arc<Self>) -> Infallible {
        let mut ticks = interval(WALL_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let engine = Arc::clone(&self.engine);
            // A large table whose windows change takes a while. The task does not panic.
            let _ = spawn_blocking(move || engine.follow_wall_time()).await;
        }
    }

    pub(super) fn note_in_force(&self, version: u64, source: PolicySource) {
        self.status.send_modify(|status| {
            status.version = version;
            status.source = Some(source);
            status.trouble = None;
        });
    }

    pub(super) fn report_fault(&self, fault: String) {
        self.status.send_if_modified(|status| {
            if status.trouble.as_ref() == Some(&fault) {
                return false;
            }
            tracing::warn!(version = status.version, "{fault}");
            status.trouble = Some(fault);
            true
        });
    }
}

/// Returns a random number for a pause; a middle one where the system has no random numbers.
pub(super) fn random() -> u64 {
    getrandom::u64().unwrap_or(u64::MAX / 2)
}
