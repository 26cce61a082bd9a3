//! The one way to change the policy: publishing, rollback, rollout, replication, the policy file.

pub(crate) mod policy_file;
pub(crate) mod publisher;
pub(crate) mod stored_policy;
