//! Compiles a snapshot or a delta that the admin server sent, after unpacking and checking it.

use std::sync::Arc;

use derive_more::{Display, From};
use serde_json::from_str;
use tidegate::policy::borrowed;

use crate::wire::{
    DeltaMessage, SnapshotMessage,
    payload::{PayloadError, unpack},
};

/// A policy that is ready to be put in force.
#[derive(Clone, Debug)]
pub(crate) struct CompiledPolicy {
    pub(crate) version: u64,
    /// The SHA-256 of its document, hex.
    pub(crate) sha256: String,
    pub(crate) snapshot: Arc<tidegate::Snapshot>,
    /// Whether all of it was compiled from the document with that digest, rather than from deltas.
    pub(crate) is_from_snapshot: bool,
}

/// The reason why a policy was not put in force.
#[derive(Debug, Display, From)]
pub(crate) enum ApplyError {
    /// The message is damaged: the policy must be sent again.
    #[from]
    Damaged(PayloadError),
    /// The policy cannot be read or compiled by this build, and sending it again would not help.
    Refused(String),
    /// The delta is against a document that this node does not have.
    #[display("it differs from a policy that is not here")]
    UnknownBase,
}

impl std::error::Error for ApplyError {}

impl CompiledPolicy {
    pub(crate) fn from_snapshot(sent: &SnapshotMessage) -> Result<Self, ApplyError> {
        let document = unpack(&sent.document, sent.bytes, &sent.sha256)?;
        let policy: borrowed::Policy<'_> = from_str(&document).map_err(|error| unreadable(&error))?;
        let snapshot = tidegate::Snapshot::compile_borrowed(&policy).map_err(|problems| refused(&problems))?.into();
        Ok(Self { version: sent.version, sha256: sent.sha256.clone(), snapshot, is_from_snapshot: true })
    }

    /// Compiles a delta against this policy.
    pub(crate) fn with_delta(&self, sent: &DeltaMessage) -> Result<Self, ApplyError> {
        if self.sha256 != sent.since_sha256 {
            return Err(ApplyError::UnknownBase);
        }
        let delta = unpack(&sent.delta, sent.bytes, &sent.delta_sha256)?;
        let delta: borrowed::Delta<'_> = from_str(&delta).map_err(|error| unreadable(&error))?;
        let snapshot = self.snapshot.compile_delta(&delta).map_err(|problems| refused(&problems))?.into();
        Ok(Self { version: sent.version, sha256: sent.sha256.clone(), snapshot, is_from_snapshot: false })
    }
}

fn unreadable(error: &serde_json::Error) -> ApplyError {
    ApplyError::Refused(format!("this build cannot read it: {error}"))
}

fn refused(problems: &tidegate::Problems) -> ApplyError {
    ApplyError::Refused(problems.to_string())
}
