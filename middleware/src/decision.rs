//! Decisions as middleware keeps them, and who makes them: an engine in the same process, or a server.

use std::time::Duration;

use tidegate::{
    Decide, Decision, Degraded, Request, Retry,
    policy::{DoorSettings, OnError},
};

use crate::headers;

/// A decision, whoever made it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Ruling {
    /// May the request go on?
    pub allowed: bool,
    /// When it may come again.
    pub retry: Retry,
    /// How long it should wait before it goes on, so that requests leave a leaky bucket at its rate.
    pub delay: Duration,
    /// Full name of the limit that decided; `None` when no limit applied.
    pub limit_id: Option<String>,
    /// The most that the limit admits at once.
    pub limit: Option<u64>,
    /// The largest cost that the limit would admit now.
    pub remaining: Option<u64>,
    /// Until the limit has all of its quota again.
    pub reset_after: Option<Duration>,
    /// Version of the policy that decided; 0: none did.
    pub policy_version: u64,
    /// Why it was decided without what should have been asked.
    pub degraded: Option<String>,
    /// Full names of the shadow limits that would have denied the request; eight at most.
    pub shadow_denied: Vec<String>,
    /// What its answer is to carry: names of lower case and values. A guard takes them out of what it leaves in a request.
    pub headers: Vec<(&'static str, String)>,
}

impl Ruling {
    /// Of an engine's decision.
    #[must_use]
    pub fn new(decision: &Decision<'_>, door: DoorSettings) -> Self {
        Self {
            allowed: decision.is_allowed(),
            retry: decision.retry(),
            delay: decision.delay(),
            limit_id: decision.limit_id().map(str::to_owned),
            limit: decision.limit(),
            remaining: decision.remaining(),
            reset_after: decision.reset_after(),
            policy_version: decision.policy_version(),
            degraded: decision.degraded().map(Degraded::name).map(str::to_owned),
            shadow_denied: decision.shadow_denied().map(str::to_owned).collect(),
            headers: headers::of(decision, door),
        }
    }

    /// Where nobody decided, for this reason: as the domain or the caller wants it then.
    #[must_use]
    pub fn undecided(reason: &str, on_error: OnError) -> Self {
        let allowed = on_error == OnError::Open;
        Self {
            allowed,
            retry: if allowed { Retry::Now } else { Retry::After(UNDECIDED_RETRY) },
            delay: Duration::ZERO,
            limit_id: None,
            limit: None,
            remaining: None,
            reset_after: None,
            policy_version: 0,
            degraded: Some(reason.to_owned()),
            shadow_denied: Vec::new(),
            headers: if allowed {
                Vec::new()
            } else {
                vec![(headers::RETRY_AFTER, UNDECIDED_RETRY.as_secs().to_string())]
            },
        }
    }
}

/// When to come again if nobody could decide.
const UNDECIDED_RETRY: Duration = Duration::from_secs(1);

/// Who decides for middleware. An engine does, and whatever else implements [`Decide`]; so does a client of a server.
pub trait Decider: Send + Sync + 'static {
    /// Decides a request, and charges it when it is allowed. A request without a cost is only looked at.
    fn decide(&self, request: &Request<'_>) -> impl Future<Output = Ruling> + Send;

    /// What is answered in this domain when nobody can decide.
    fn on_error(&self, domain: &str) -> OnError;
}

impl<T: Decide + Send + Sync + 'static> Decider for T {
    async fn decide(&self, request: &Request<'_>) -> Ruling {
        let door = self.door_settings(request.parts().domain);
        Ruling::new(&Decide::decide(self, request).await, door)
    }

    fn on_error(&self, domain: &str) -> OnError {
        self.door_settings(domain).on_error
    }
}
