//! The status of an agent: its connection, the version in force, and the present fault.

/// The status of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct AgentStatus {
    /// Whether the stream of the admin server is open.
    pub is_connected: bool,
    /// The version of the policy in force; 0: none, so everything is allowed.
    pub version: u64,
    /// The source of that policy.
    pub source: Option<PolicySource>,
    /// The present fault, as text for people; `None` while there is none.
    pub trouble: Option<String>,
}

/// The source of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicySource {
    /// The disk: the agent has not reached the admin server since the start.
    LastGood,
    /// The admin server.
    Admin,
}
