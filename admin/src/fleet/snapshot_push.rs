//! A policy as it goes to nodes, whole or what differs: packed once, whoever reads it; cut, so that no connection holds more
//! than a piece of it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use serde_json::json;
use tidegate::policy;
use tidegate_fleet::wire::{
    DELTA, DeltaMessage, SNAPSHOT,
    payload::{pack, sha256},
};
use tokio::{sync, task::spawn_blocking};

use crate::domain::{
    error::Problem,
    published::{Published, Shared},
    version::{Carries, Version},
};

/// Bytes of a piece.
const PIECE: usize = 16 << 10;

/// Versions that are kept packed: the newest, and the one that some nodes keep meanwhile.
const PACKED_MAX: usize = 2;
/// Deltas that are kept.
const KEPT_MAX: usize = 16;
/// A delta is sent where it is at most this part of the whole.
const PERCENT_MAX: usize = 25;

/// The newest policies, as they go to nodes.
#[derive(Debug, Default)]
pub(crate) struct Pushing {
    /// By their versions.
    whole: sync::Mutex<BTreeMap<u64, Arc<Pushed>>>,
    /// By the versions that they make.
    deltas: Mutex<BTreeMap<u64, Differs>>,
}

/// What differs in a version from the one that it was made on.
#[derive(Debug)]
struct Differs {
    /// The version that it differs from.
    follows: u64,
    /// Of the document that it differs from.
    since: String,
    /// Of the document that it makes.
    sha256: String,
    /// How much of what a node takes it is: one, and one more for each hundredth of the whole.
    cost: u32,
    event: Bytes,
}

/// A version as it goes to every node, but for its end.
#[derive(Debug)]
pub(crate) struct Pushed {
    text: Bytes,
}

impl Pushing {
    /// Packs a version, unless somebody has.
    pub(crate) async fn packed(&self, published: &Shared) -> Result<Arc<Pushed>, Problem> {
        let version = published.version.version;
        let mut newest = self.whole.lock().await;
        if let Some(pushed) = newest.get(&version) {
            return Ok(Arc::clone(pushed));
        }
        let published = Arc::clone(published);
        let packed = spawn_blocking(move || Pushed::of(&published)).await;
        let packed = Arc::new(packed.map_err(|error| Problem::Internal(error.to_string()))?);
        newest.insert(version, Arc::clone(&packed));
        while newest.len() > PACKED_MAX {
            newest.pop_first();
        }
        Ok(packed)
    }

    /// Keeps what differs in a version from the one that it was made on.
    pub(crate) async fn has_changed(&self, before: &Shared, after: &Shared) {
        let version = after.version.version;
        if self.deltas().contains_key(&version) {
            return;
        }
        let (before, after) = (Arc::clone(before), Arc::clone(after));
        // Where there is none, nodes are sent the whole.
        if let Ok(Some(differs)) = spawn_blocking(move || Differs::between(&before, &after)).await {
            let mut deltas = self.deltas();
            deltas.insert(version, differs);
            while deltas.len() > KEPT_MAX {
                deltas.pop_first();
            }
        }
    }

    /// Nodes that did not have this version are not led through it.
    pub(crate) fn is_taken_back(&self, version: u64) {
        self.deltas().remove(&version);
    }

    /// What leads from a version, with the document of this digest, to another, if anything does, and what it costs.
    pub(crate) fn path(&self, since: u64, sha256: &str, to: &Version) -> Option<(Vec<Bytes>, u32)> {
        let deltas = self.deltas();
        let (mut version, mut digest, mut cost) = (to.version, to.sha256.as_str(), 0);
        let mut path = Vec::new();
        // Backwards: a version was made on one alone.
        while version > since {
            let differs = deltas.get(&version).filter(|differs| differs.sha256 == digest)?;
            cost += differs.cost;
            path.push(differs.event.clone());
            (version, digest) = (differs.follows, differs.since.as_str());
        }
        path.reverse();
        (version == since && digest == sha256).then_some((path, cost))
    }

    fn deltas(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Differs>> {
        // Nothing in here panics.
        self.deltas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Differs {
    /// `None` where the whole is sent rather.
    fn between(before: &Published, after: &Published) -> Option<Self> {
        let delta = serde_json::to_string(&policy::Delta::between(&before.policy, &after.policy)).ok()?;
        let percent = delta.len().saturating_mul(100) / after.document.len().max(1);
        if percent > PERCENT_MAX {
            return None;
        }
        let Version { version, sha256: digest, published_at, carry, .. } = &after.version;
        let delta = DeltaMessage {
            version: *version,
            sha256: digest.clone(),
            published_at: published_at.clone(),
            since_sha256: before.version.sha256.clone(),
            carry: carry.0.clone(),
            bytes: delta.len() as u64,
            delta_sha256: sha256(&delta),
            delta: pack(&delta),
        };
        let event = format!("event: {DELTA}\nid: {version}\ndata: {}\n\n", json!(delta));
        let (follows, cost) = (before.version.version, 1 + percent as u32);
        Some(Self { follows, since: delta.since_sha256, sha256: delta.sha256, cost, event: event.into() })
    }
}

/// Cuts a text into pieces.
pub(crate) fn cut(text: &Bytes) -> impl Iterator<Item = Bytes> {
    (0..text.len()).step_by(PIECE).map(|start| text.slice(start..text.len().min(start + PIECE)))
}

impl Pushed {
    fn of(published: &Shared) -> Self {
        let version = &published.version;
        let head = json!({
            "version": version.version, "sha256": version.sha256, "published_at": version.published_at,
            "bytes": published.document.len(), "document": pack(&published.document),
        });
        let head = head.to_string();
        let open = head.strip_suffix('}').unwrap_or(&head);
        let text = format!("event: {SNAPSHOT}\nid: {}\ndata: {open}", version.version);
        Self { text: text.into() }
    }

    /// The event, with what becomes of used quota on a node.
    pub(crate) fn pieces(&self, carry: &Carries) -> impl Iterator<Item = Bytes> {
        let end = Bytes::from(format!(",\"carry\":{}}}\n\n", json!(carry)));
        cut(&self.text).chain([end])
    }
}
