//! The status of an agent.

/// The status of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Status {
    /// The stream of the admin server is open.
    pub is_connected: bool,
    /// Version of the policy in force; 0: none, so everything is allowed.
    pub version: u64,
    /// Where that policy comes from.
    pub source: Option<Source>,
    /// The present fault, as text for people; `None` while all is well.
    pub trouble: Option<String>,
}

/// The source of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// From the disk: the admin server was not heard since the start.
    LastGood,
    /// From the admin server.
    Admin,
}
