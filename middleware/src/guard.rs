//! The guard of a service: reads the identities and the cost of each request, has it decided, and says whether it may pass. It is
//! the same under every framework.

use std::{
    fmt,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
};

use tidegate::{DEFAULT_DOMAIN, ENDPOINT_BYTES_MAX, Endpoints, InvalidPattern, Request, normalized_path};

use crate::{
    decision::{Backend, OwnedDecision},
    extract::{ExtractedIdentities, Extractors},
    request_head::RequestHead,
    response::{Refusal, RefusalResponse},
};

const COST_MAX: u64 = (1 << 53) - 1;

/// Protects a service: a `tower` layer (feature `tower`) and a middleware of actix-web (feature `actix`). Clones share their
/// counts.
///
/// The guard puts its decision into the extensions of the request, as [`OwnedDecision`], for the service behind it.
pub struct Guard<B>(Arc<Settings<B>>);

struct Settings<B> {
    backend: Arc<B>,
    extractors: Extractors,
    domain: Arc<str>,
    exempt: Option<Arc<Endpoints>>,
    cost: Option<CostFn>,
    respond: Option<RespondFn>,
    no_identity: NoIdentity,
    counts: Arc<GuardCounts>,
}

type CostFn = Arc<dyn Fn(&dyn RequestHead) -> u64 + Send + Sync>;
type RespondFn = Arc<dyn Fn(&Refusal) -> RefusalResponse + Send + Sync>;

/// The treatment of a request that has none of the identities.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NoIdentity {
    /// The request passes without a limit, and is counted; the first is logged.
    #[default]
    Pass,
    /// The response is 403.
    Refuse,
}

/// Counts of requests that an engine does not count.
#[derive(Debug, Default)]
pub struct GuardCounts {
    no_identity: AtomicU64,
    undecided: AtomicU64,
    has_warned: AtomicBool,
}

impl GuardCounts {
    /// Returns the number of requests without any of the identities.
    #[must_use]
    pub fn no_identity(&self) -> u64 {
        self.no_identity.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that could not be decided, also because an extractor, a cost or an engine's observer
    /// panicked.
    #[must_use]
    pub fn undecided(&self) -> u64 {
        self.undecided.load(Ordering::Relaxed)
    }
}

impl<B> Clone for Guard<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B> Clone for Settings<B> {
    fn clone(&self) -> Self {
        let Self { backend, extractors, domain, exempt, cost, respond, no_identity, counts } = self;
        Self {
            backend: Arc::clone(backend),
            extractors: extractors.clone(),
            domain: Arc::clone(domain),
            exempt: exempt.clone(),
            cost: cost.clone(),
            respond: respond.clone(),
            no_identity: *no_identity,
            counts: Arc::clone(counts),
        }
    }
}

impl<B> fmt::Debug for Guard<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { extractors, domain, .. } = &*self.0;
        f.debug_struct("Guard").field("domain", domain).field("extractors", extractors).finish_non_exhaustive()
    }
}

impl<B> Guard<B> {
    /// Creates a guard that has every request decided by `backend`, under the identities that `extractors` find.
    #[must_use]
    pub fn new(backend: Arc<B>, extractors: Extractors) -> Self {
        Self(Arc::new(Settings {
            backend,
            extractors,
            domain: DEFAULT_DOMAIN.into(),
            exempt: None,
            cost: None,
            respond: None,
            no_identity: NoIdentity::default(),
            counts: Arc::default(),
        }))
    }

    /// Decides in this domain of the policy; in `default` unless set.
    #[must_use]
    pub fn domain(self, domain: &str) -> Self {
        self.with(|settings| settings.domain = domain.into())
    }

    /// Lets requests pass without a decision whose path matches one of these patterns: `/healthz`, `/users/{id}`, `/assets/*`.
    ///
    /// # Errors
    ///
    /// [`InvalidPattern`], for the first pattern that is invalid.
    pub fn exempt<'a>(self, patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidPattern> {
        let exempt = Arc::new(Endpoints::parse(patterns)?);
        Ok(self.with(|settings| settings.exempt = Some(exempt)))
    }

    /// Sets the cost of a request, in tokens; 1 unless set. A cost of 0 charges nothing, so it is denied only where every request
    /// of the client is denied; a cost above 2^53 - 1 counts as 2^53 - 1.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&dyn RequestHead) -> u64 + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.cost = Some(Arc::new(cost)))
    }

    /// Sets the treatment of a request that has none of the identities.
    #[must_use]
    pub fn no_identity(self, treatment: NoIdentity) -> Self {
        self.with(|settings| settings.no_identity = treatment)
    }

    /// Sets the response to a request that may not pass; [problem details](RefusalResponse::problem) unless set. A gRPC call is
    /// always answered [with a gRPC status](RefusalResponse::grpc).
    #[must_use]
    pub fn respond(self, respond: impl Fn(&Refusal) -> RefusalResponse + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.respond = Some(Arc::new(respond)))
    }

    /// Returns the counts of this guard and all of its clones.
    #[must_use]
    pub fn counts(&self) -> &Arc<GuardCounts> {
        &self.0.counts
    }

    fn with(mut self, change: impl FnOnce(&mut Settings<B>)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Reads the parts of a request that its check needs.
    pub(crate) fn read<'r>(&'r self, head: &'r dyn RequestHead) -> GuardedRequest<'r> {
        let is_grpc = head.first("content-type").is_some_and(is_grpc);
        // An extractor or a cost of the caller's may panic.
        GuardedRequest { check: catch_panic(|| self.read_check(head)).unwrap_or(GuardedCheck::Unreadable), is_grpc }
    }

    fn read_check<'r>(&'r self, head: &'r dyn RequestHead) -> GuardedCheck<'r> {
        let Settings { exempt, extractors, cost, .. } = &*self.0;
        // Only an exempt path as it is written: a path with `.` or `..` that stands for one may be routed elsewhere.
        if exempt.as_ref().is_some_and(|exempt| normalized_path(head.path()) == head.path() && exempt.has(head.path()))
        {
            return GuardedCheck::Exempt;
        }
        GuardedCheck::Required(CheckInput {
            identities: extractors.found(head),
            path: head.path(),
            method: head.method(),
            cost: cost.as_ref().map_or(1, |cost| cost(head)),
        })
    }
}

/// Runs code of the caller's; `None` if it panicked, which the panic hook has reported. A guard changes nothing of its own
/// meanwhile.
fn catch_panic<T>(run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run)).ok()
}

/// Returns whether a content type is `application/grpc`, also with its format (`+proto`) or parameters. The type of browsers,
/// `application/grpc-web`, is another one.
fn is_grpc(content_type: &[u8]) -> bool {
    let rest = content_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

impl<B: Backend> Guard<B> {
    /// Decides whether a request may pass: returns the decision, if one was made, or the response to the refused request.
    pub(crate) async fn admit(
        &self,
        GuardedRequest { check, is_grpc }: GuardedRequest<'_>,
    ) -> Result<Option<OwnedDecision>, RefusalResponse> {
        self.decide(check).await.map_err(|refusal| {
            let response = match &self.0.respond {
                _ if is_grpc => RefusalResponse::grpc(&refusal),
                Some(respond) => {
                    catch_panic(|| respond(&refusal)).unwrap_or_else(|| RefusalResponse::problem(&refusal))
                }
                None => RefusalResponse::problem(&refusal),
            };
            response.with_headers_of(refusal)
        })
    }

    async fn decide(&self, check: GuardedCheck<'_>) -> Result<Option<OwnedDecision>, Refusal> {
        let Settings { backend, domain, no_identity, counts, .. } = &*self.0;
        let decision = match check {
            GuardedCheck::Exempt => return Ok(None),
            GuardedCheck::Unreadable => None,
            GuardedCheck::Required(CheckInput { path, .. }) if path.len() > ENDPOINT_BYTES_MAX => {
                return Err(Refusal::PathTooLong);
            }
            GuardedCheck::Required(input) if input.identities.is_empty() => {
                self.count_no_identity();
                return match no_identity {
                    NoIdentity::Pass => Ok(None),
                    NoIdentity::Refuse => Err(Refusal::NoIdentity),
                };
            }
            GuardedCheck::Required(input) => self.ask_backend(&input).await,
        };
        let decision = decision.unwrap_or_else(|| OwnedDecision::undecided("internal_error", backend.on_error(domain)));
        let is_undecided = decision.limit_id.is_none() && decision.degraded.is_some();
        if is_undecided {
            counts.undecided.fetch_add(1, Ordering::Relaxed);
        }
        match (decision.is_allowed, is_undecided) {
            (true, _) => Ok(Some(decision)),
            (false, false) => Err(Refusal::Denied(decision)),
            (false, true) => Err(Refusal::Undecided(decision)),
        }
    }

    /// Has the backend decide; `None` if it panicked.
    async fn ask_backend(&self, input: &CheckInput<'_>) -> Option<OwnedDecision> {
        let Settings { backend, domain, .. } = &*self.0;
        let identities = input.identities.identities();
        let request = Request::new(&identities).and_then(|request| request.endpoint(input.path));
        let request = request.and_then(|request| match input.cost {
            0 => Ok(request.without_cost()),
            cost => request.cost(cost.min(COST_MAX)),
        });
        // Extracted identities are valid, so an error is a mistake of the guard.
        let request = request.ok()?.domain(domain).method(input.method);
        let mut deciding = pin!(backend.decide(&request));
        poll_fn(|context| match catch_panic(|| deciding.as_mut().poll(context)) {
            Some(polled) => polled.map(Some),
            None => Poll::Ready(None),
        })
        .await
    }

    /// Counts a request without identity, and warns of the first one.
    fn count_no_identity(&self) {
        let Settings { no_identity, counts, .. } = &*self.0;
        counts.no_identity.fetch_add(1, Ordering::Relaxed);
        if !counts.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                becomes = ?no_identity,
                "a request has none of the identities that are looked for; where that is the address, the server must be \
                 told to keep it, as axum is by into_make_service_with_connect_info"
            );
        }
    }
}

/// The parts of a request that its check needs. It has nothing of the framework's, so that it may wait on any thread.
pub(crate) struct GuardedRequest<'r> {
    check: GuardedCheck<'r>,
    is_grpc: bool,
}

#[expect(clippy::large_enum_variant, reason = "nearly all are large, and none is kept")]
enum GuardedCheck<'r> {
    /// The request passes without a check.
    Exempt,
    /// An extractor or a cost panicked.
    Unreadable,
    /// The backend has to decide.
    Required(CheckInput<'r>),
}

struct CheckInput<'r> {
    identities: ExtractedIdentities<'r>,
    path: &'r str,
    method: &'r str,
    cost: u64,
}
