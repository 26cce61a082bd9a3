//! A decision that owns its data, and [`Backend`], the trait of what makes decisions for a guard: an engine or a server.

use std::time::Duration;

use tidegate::{
    Decide, Decision, Degraded, Request, Retry,
    policy::{OnError, ResponseSettings},
};

use crate::headers;

/// The wait that a denial names when no decision could be made.
const UNDECIDED_RETRY: Duration = Duration::from_secs(1);

/// A decision that owns its data, of an engine or of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OwnedDecision {
    /// Whether the request may go on.
    pub is_allowed: bool,
    /// The time when the request may be repeated.
    pub retry: Retry,
    /// The time that the request should wait before it goes on, so that requests leave a leaky bucket at its rate.
    pub delay: Duration,
    /// Full name of the limit that decided; `None` when no limit applied.
    pub limit_id: Option<String>,
    /// The most that the limit admits at once.
    pub limit: Option<u64>,
    /// The largest cost that the limit would admit now.
    pub remaining: Option<u64>,
    /// The time until the limit has its whole quota again.
    pub reset_after: Option<Duration>,
    /// Version of the policy that decided; 0 if none did.
    pub policy_version: u64,
    /// Reason why the store or the server that should have decided did not.
    pub degraded: Option<String>,
    /// Full names of the shadow limits that would have denied the request; eight at most.
    pub shadow_denied: Vec<String>,
    /// Headers for the response: names in lower case, and values. They are empty in the decision that a guard leaves in a
    /// request, because the guard writes them itself.
    pub headers: Vec<(&'static str, String)>,
}

impl OwnedDecision {
    /// Copies an engine's decision.
    #[must_use]
    pub fn new(decision: &Decision<'_>, settings: ResponseSettings) -> Self {
        Self {
            is_allowed: decision.is_allowed(),
            retry: decision.retry(),
            delay: decision.delay(),
            limit_id: decision.limit_id().map(str::to_owned),
            limit: decision.limit(),
            remaining: decision.remaining(),
            reset_after: decision.reset_after(),
            policy_version: decision.policy_version(),
            degraded: decision.degraded().map(Degraded::name).map(str::to_owned),
            shadow_denied: decision.shadow_denied().map(str::to_owned).collect(),
            headers: headers::of(decision, settings),
        }
    }

    /// Creates the result of a check that could not be decided, for this reason, as `on_error` wants it.
    #[must_use]
    pub fn undecided(reason: &str, on_error: OnError) -> Self {
        let (is_allowed, retry, headers) = match on_error {
            OnError::Open => (true, Retry::Now, Vec::new()),
            OnError::Closed => {
                let wait_s = UNDECIDED_RETRY.as_secs().to_string();
                (false, Retry::After(UNDECIDED_RETRY), vec![(headers::RETRY_AFTER, wait_s)])
            }
        };
        Self {
            is_allowed,
            retry,
            delay: Duration::ZERO,
            limit_id: None,
            limit: None,
            remaining: None,
            reset_after: None,
            policy_version: 0,
            degraded: Some(reason.to_owned()),
            shadow_denied: Vec::new(),
            headers,
        }
    }
}

/// Makes the decisions of a guard. Every type that implements [`Decide`] is a backend, an engine for one; so is the client of a
/// server.
pub trait Backend: Send + Sync + 'static {
    /// Decides a request, and charges it if it is allowed. A request without a cost charges nothing.
    fn decide(&self, request: &Request<'_>) -> impl Future<Output = OwnedDecision> + Send;

    /// Returns what becomes of requests to this domain that cannot be decided.
    fn on_error(&self, domain: &str) -> OnError;
}

impl<T: Decide + Send + Sync + 'static> Backend for T {
    async fn decide(&self, request: &Request<'_>) -> OwnedDecision {
        let settings = self.response_settings(request.parts().domain);
        OwnedDecision::new(&Decide::decide(self, request).await, settings)
    }

    fn on_error(&self, domain: &str) -> OnError {
        self.response_settings(domain).on_error
    }
}
