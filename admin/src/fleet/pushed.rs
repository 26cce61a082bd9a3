//! A policy as it goes to nodes: packed once, whoever reads it; cut, so that no connection holds more than a piece of it.

use std::{collections::BTreeMap, sync::Arc};

use actix_web::web::Bytes;
use serde_json::json;
use tidegate_fleet::{payload::pack, wire::SNAPSHOT};
use tokio::{sync::Mutex, task::spawn_blocking};

use crate::{problem::Problem, published::Shared, store::Carries};

/// Bytes of a piece.
const PIECE: usize = 16 << 10;

/// Versions that are kept packed: the newest, and the one that some nodes keep meanwhile.
const PACKED_MAX: usize = 2;

/// The newest policies, packed, by their versions.
#[derive(Debug, Default)]
pub(super) struct Pushing(Mutex<BTreeMap<u64, Arc<Pushed>>>);

/// A version as it goes to every node, but for its end.
#[derive(Debug)]
pub(super) struct Pushed {
    text: Bytes,
}

impl Pushing {
    /// Packs a version, unless somebody has.
    pub(super) async fn packed(&self, published: &Shared) -> Result<Arc<Pushed>, Problem> {
        let version = published.version.version;
        let mut newest = self.0.lock().await;
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
    pub(super) fn pieces(&self, carry: &Carries) -> impl Iterator<Item = Bytes> {
        let end = Bytes::from(format!(",\"carry\":{}}}\n\n", json!(carry)));
        let pieces = (0..self.text.len()).step_by(PIECE);
        pieces.map(|start| self.text.slice(start..self.text.len().min(start + PIECE))).chain([end])
    }
}
