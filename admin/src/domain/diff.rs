//! The objects that differ between two policies.

use std::collections::BTreeMap;

use tidegate::policy::Policy;

use crate::domain::objects::{self, Object, ObjectKey};

pub(crate) fn by_key(policy: &Policy) -> BTreeMap<ObjectKey, Object> {
    objects::all(policy).collect()
}

/// The objects of a policy that are not as before.
#[derive(PartialEq, Debug)]
pub(crate) struct Changed {
    /// Those that are new, or other than before.
    pub(crate) touched: Vec<ObjectKey>,
    pub(crate) removed: Vec<ObjectKey>,
}

impl Changed {
    pub(crate) fn is_none(&self) -> bool {
        self.touched.is_empty() && self.removed.is_empty()
    }
}

pub(crate) fn changed(before: &Policy, after: &Policy) -> Changed {
    let (before, after) = (by_key(before), by_key(after));
    let touched = after.iter().filter(|(key, object)| before.get(key) != Some(object)).map(|(key, _)| key.clone());
    let removed = before.keys().filter(|key| !after.contains_key(key)).cloned();
    Changed { touched: touched.collect(), removed: removed.collect() }
}
