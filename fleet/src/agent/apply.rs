//! Applies policies to the engine of a node: the last good one at the start, then each snapshot or delta that the admin
//! server sends.

use std::{collections::BTreeMap, sync::Arc};

use tidegate::{Publish, algorithm::Carry};

use crate::{
    agent::{
        compiled_policy::{ApplyError, CompiledPolicy},
        last_good::StoredPolicy,
        node::Node,
        status::PolicySource,
    },
    wire::{DeltaMessage, SnapshotMessage, payload::unpack},
};

/// A policy as the admin server sent it: a snapshot or a delta.
#[derive(Debug)]
pub(super) enum SentPolicy {
    Snapshot(SnapshotMessage),
    Delta(DeltaMessage),
}

impl SentPolicy {
    pub(super) fn version(&self) -> u64 {
        match self {
            Self::Snapshot(sent) => sent.version,
            Self::Delta(sent) => sent.version,
        }
    }
}

impl Node {
    /// Puts the last good policy in force at the start of the node, if there is one.
    pub(crate) fn begin(&self) -> Option<CompiledPolicy> {
        let last_good = self.last_good.as_ref()?;
        match last_good.read_store_keys() {
            Ok(None) => {}
            Ok(Some(secret)) => drop(self.take_store_keys(Some(&secret))),
            Err(error) => self.report_fault(format!("the secret of the keys in the store cannot be read: {error}")),
        }
        let found = match last_good.read() {
            Ok(StoredPolicy::Usable { snapshot, deltas, lost }) => match self.begin_with(&snapshot, &deltas) {
                Ok((compiled, refused)) => {
                    tracing::info!(version = compiled.version, "started with the last good policy");
                    self.note_in_force(compiled.version, PolicySource::LastGood);
                    if let Some(why) = refused.map(|why| why.to_string()).or(lost) {
                        self.report_fault(format!("later policies were kept, but cannot be put in force: {why}"));
                    }
                    return Some(compiled);
                }
                Err(ApplyError::Damaged(why)) => last_good.set_aside(&why.to_string()),
                Err(why @ (ApplyError::Refused(_) | ApplyError::UnknownBase)) => {
                    Ok(StoredPolicy::Refused(why.to_string()))
                }
            },
            other => other,
        };
        match found {
            Ok(StoredPolicy::Absent | StoredPolicy::Usable { .. }) => {}
            Ok(StoredPolicy::Damaged(why)) => self.report_fault(why),
            Ok(StoredPolicy::Refused(why)) => self.report_fault(format!("the last good policy is not in force: {why}")),
            Err(error) => self.report_fault(format!("the last good policy cannot be read: {error}")),
        }
        None
    }

    /// Puts a stored snapshot in force with as many of its deltas as can be applied. Returns the reason where one
    /// cannot.
    fn begin_with(
        &self,
        snapshot: &SnapshotMessage,
        deltas: &[DeltaMessage],
    ) -> Result<(CompiledPolicy, Option<ApplyError>), ApplyError> {
        let mut last = CompiledPolicy::from_snapshot(snapshot)?;
        let mut refused = None;
        for delta in deltas {
            match last.with_delta(delta) {
                Ok(next) => last = next,
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        self.enforce(&last, &BTreeMap::new())?;
        Ok((last, refused))
    }

    /// Applies a snapshot or a delta: checks it, compiles it and swaps it in. `has` is the policy in force. The admin
    /// server decides, even where its version is lower than that of the policy in force: its database may have been
    /// restored from a backup.
    pub(super) fn apply(&self, sent: &SentPolicy, has: Option<CompiledPolicy>) -> Result<CompiledPolicy, ApplyError> {
        let (compiled, carry) = match sent {
            SentPolicy::Snapshot(sent) => {
                let is_that = |has: &CompiledPolicy| has.sha256 == sent.sha256 && sent.version == self.engine.version();
                if let Some(has) = has.filter(|has| has.is_from_snapshot && is_that(has)) {
                    // The node asked for the same policy again.
                    unpack(&sent.document, sent.bytes, &sent.sha256)?;
                    return Ok(has);
                }
                (CompiledPolicy::from_snapshot(sent)?, &sent.carry)
            }
            SentPolicy::Delta(sent) => (has.ok_or(ApplyError::UnknownBase)?.with_delta(sent)?, &sent.carry),
        };
        self.enforce(&compiled, carry)?;
        Ok(compiled)
    }

    fn enforce(&self, compiled: &CompiledPolicy, carry: &BTreeMap<String, Carry>) -> Result<(), ApplyError> {
        let publish = Publish::of(Arc::clone(&compiled.snapshot)).under_version(compiled.version).counted_anew();
        let publish = carry.iter().fold(publish, |publish, (limit, carry)| publish.carrying_limit(limit, *carry));
        self.engine.publish(publish).map(drop).map_err(|error| ApplyError::Refused(error.to_string()))
    }
}
