//! `Publish`: the arguments of a publish: the policy, its version, and how used quota carries over.

use std::{collections::HashMap, sync::Arc};

use crate::{algorithm::Carry, policy::compiled::Snapshot};

/// A policy to put in force, with its version and how used quota carries over. A [`Snapshot`] alone means the next
/// version, and that used quota stays used.
///
/// ```
/// # use tidegate::{Engine, Publish, Snapshot, algorithm::Carry};
/// # let engine = Engine::with_max_keys(10);
/// # let (policy, tighter) = (Snapshot::default(), Snapshot::default());
/// engine.publish(policy)?;
/// engine.publish(Publish::of(tighter).under_version(17).carrying(Carry::Proportional))?;
/// assert_eq!(engine.version(), 17);
/// # Ok::<(), tidegate::PublishError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Publish {
    pub(crate) snapshot: Arc<Snapshot>,
    /// The version; `None` for the next one.
    pub(crate) version: Option<u64>,
    pub(crate) is_anew: bool,
    pub(crate) carry: Carry,
    /// The exceptions to `carry`, by full name of the limit.
    pub(crate) carries: HashMap<String, Carry>,
}

impl Publish {
    /// Returns a publish of this policy under the next version, where used quota stays used.
    pub fn of(snapshot: impl Into<Arc<Snapshot>>) -> Self {
        Self {
            snapshot: snapshot.into(),
            version: None,
            is_anew: false,
            carry: Carry::default(),
            carries: HashMap::new(),
        }
    }

    /// Sets the version, for policies whose versions are counted elsewhere. It must be above that of the policy before,
    /// and below 2^53.
    pub fn under_version(self, version: u64) -> Self {
        Self { version: Some(version), ..self }
    }

    /// Accepts a version that is not above that of the policy before: version numbers that are counted elsewhere have
    /// started over, perhaps after a backup was restored. An engine accepts at least a thousand of these.
    pub fn counted_anew(self) -> Self {
        Self { is_anew: true, ..self }
    }

    /// Sets how used quota carries over for every limit whose numbers change. Limits whose numbers stay keep their
    /// buckets as they are.
    pub fn carrying(self, carry: Carry) -> Self {
        Self { carry, ..self }
    }

    /// Sets how used quota carries over for the limit of this full name, such as `default/tier:free/minute`. A name
    /// that the policy does not have is ignored.
    pub fn carrying_limit(mut self, limit_id: impl Into<String>, carry: Carry) -> Self {
        self.carries.insert(limit_id.into(), carry);
        self
    }
}

impl From<Snapshot> for Publish {
    fn from(snapshot: Snapshot) -> Self {
        Self::of(snapshot)
    }
}

impl From<Arc<Snapshot>> for Publish {
    fn from(snapshot: Arc<Snapshot>) -> Self {
        Self::of(snapshot)
    }
}
