//! The arguments of a publish: the policy, its version, and how used quota carries over.

use std::{collections::HashMap, sync::Arc};

use crate::{algorithm::Carry, policy::compiled::Snapshot};

/// A policy to be put in force, and how. A [`Snapshot`] alone is one: under the next version, and used quota stays used.
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
    /// `None`: the next one.
    pub(crate) version: Option<u64>,
    pub(crate) is_anew: bool,
    pub(crate) carry: Carry,
    /// By full name of the limit.
    pub(crate) carries: HashMap<String, Carry>,
}

impl Publish {
    /// Of this policy.
    pub fn of(snapshot: impl Into<Arc<Snapshot>>) -> Self {
        Self {
            snapshot: snapshot.into(),
            version: None,
            is_anew: false,
            carry: Carry::default(),
            carries: HashMap::new(),
        }
    }

    /// Under a version of the caller's, for policies whose versions are counted elsewhere: above that of the policy before,
    /// and below 2^53.
    pub fn under_version(self, version: u64) -> Self {
        Self { version: Some(version), ..self }
    }

    /// Whatever the version of the policy before: whoever counts versions elsewhere counts anew, after a backup was put back
    /// perhaps. An engine takes a thousand of these at least.
    pub fn counted_anew(self) -> Self {
        Self { is_anew: true, ..self }
    }

    /// With this choice for every limit whose numbers change. Limits whose numbers stay keep their buckets as they are.
    pub fn carrying(self, carry: Carry) -> Self {
        Self { carry, ..self }
    }

    /// With another choice for the limit of this full name, such as `default/tier:free/minute`. A name that the policy does
    /// not have says nothing.
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
