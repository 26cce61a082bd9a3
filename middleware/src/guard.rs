//! What stands before a service: which requests are asked for, as whom, at what cost, and what becomes of them. The same under
//! every framework.

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

use tidegate::{DEFAULT_DOMAIN, ENDPOINT_BYTES_MAX, Endpoints, Request, plain_path};

use crate::{
    decision::{Decider, Ruling},
    extract::{Extractors, Found},
    request_head::RequestHead,
    response::{Answer, Refusal},
};

/// The largest cost of a request.
const COST_MAX: u64 = (1 << 53) - 1;

/// Protects a service: a `tower` layer (feature `tower`) and a middleware of actix-web (feature `actix`). A copy is the same
/// guard.
///
/// What it decides is in the request's extensions, as [`Ruling`], for whoever comes behind it.
pub struct Guard<D>(Arc<Settings<D>>);

struct Settings<D> {
    decider: Arc<D>,
    extractors: Extractors,
    domain: Arc<str>,
    exempt: Option<Arc<Endpoints>>,
    cost: Option<Cost>,
    respond: Option<Respond>,
    no_identity: NoIdentity,
    counts: Arc<Counts>,
}

type Cost = Arc<dyn Fn(&dyn RequestHead) -> u64 + Send + Sync>;
type Respond = Arc<dyn Fn(&Refusal) -> Answer + Send + Sync>;

/// What becomes of a request that has none of the identities.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NoIdentity {
    /// It goes on unlimited, and is counted; the first is logged.
    #[default]
    Pass,
    /// It is answered 403.
    Refuse,
}

/// What a guard saw that an engine does not count.
#[derive(Debug, Default)]
pub struct Counts {
    no_identity: AtomicU64,
    undecided: AtomicU64,
    is_told: AtomicBool,
}

impl Counts {
    /// Requests without any of the identities.
    #[must_use]
    pub fn no_identity(&self) -> u64 {
        self.no_identity.load(Ordering::Relaxed)
    }

    /// Requests that nobody could decide, also because an extractor, a cost or an engine's observer panicked.
    #[must_use]
    pub fn undecided(&self) -> u64 {
        self.undecided.load(Ordering::Relaxed)
    }
}

impl<D> Clone for Guard<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D> Clone for Settings<D> {
    fn clone(&self) -> Self {
        let Self { decider, extractors, domain, exempt, cost, respond, no_identity, counts } = self;
        Self {
            decider: Arc::clone(decider),
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

impl<D> fmt::Debug for Guard<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { extractors, domain, .. } = &*self.0;
        f.debug_struct("Guard").field("domain", domain).field("extractors", extractors).finish_non_exhaustive()
    }
}

impl<D> Guard<D> {
    /// Every request is asked of `decider`, as whom `extractors` find.
    #[must_use]
    pub fn new(decider: Arc<D>, extractors: Extractors) -> Self {
        Self(Arc::new(Settings {
            decider,
            extractors,
            domain: DEFAULT_DOMAIN.into(),
            exempt: None,
            cost: None,
            respond: None,
            no_identity: NoIdentity::default(),
            counts: Arc::default(),
        }))
    }

    /// In this domain of the policy instead of `default`.
    #[must_use]
    pub fn domain(self, domain: &str) -> Self {
        self.with(|settings| settings.domain = domain.into())
    }

    /// Requests to paths that match one of these patterns go on without being asked for: `/healthz`, `/users/{id}`,
    /// `/assets/*`. In words, which of them is wrong.
    pub fn exempt<'a>(self, patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let exempt = Arc::new(Endpoints::parse(patterns)?);
        Ok(self.with(|settings| settings.exempt = Some(exempt)))
    }

    /// What a request costs, in tokens; 1 unless told. A cost of 0 charges nothing, so only who is denied everything is denied
    /// then; one above 2^53 - 1 is that.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&dyn RequestHead) -> u64 + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.cost = Some(Arc::new(cost)))
    }

    /// What becomes of a request that has none of the identities.
    #[must_use]
    pub fn no_identity(self, becomes: NoIdentity) -> Self {
        self.with(|settings| settings.no_identity = becomes)
    }

    /// What is answered instead of [problem details](Answer::problem). Calls of gRPC are answered [as gRPC has
    /// it](Answer::grpc) all the same.
    #[must_use]
    pub fn respond(self, respond: impl Fn(&Refusal) -> Answer + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.respond = Some(Arc::new(respond)))
    }

    /// What it saw; also that of all its copies.
    #[must_use]
    pub fn counts(&self) -> &Arc<Counts> {
        &self.0.counts
    }

    fn with(mut self, change: impl FnOnce(&mut Settings<D>)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Reads what there is to ask of a request.
    pub(crate) fn read<'r>(&'r self, head: &'r dyn RequestHead) -> Asked<'r> {
        let is_grpc = head.first("content-type").is_some_and(is_grpc);
        // An extractor or a cost of the caller's may panic.
        Asked { check: caught(|| self.check(head)).unwrap_or(Check::Unreadable), is_grpc }
    }

    fn check<'r>(&'r self, head: &'r dyn RequestHead) -> Check<'r> {
        let Settings { exempt, extractors, cost, .. } = &*self.0;
        // Only as it is written: what stands for an exempt path by its dots may be routed as another.
        if exempt.as_ref().is_some_and(|exempt| plain_path(head.path()) == head.path() && exempt.has(head.path())) {
            return Check::Exempt;
        }
        Check::Of(Read {
            found: extractors.found(head),
            path: head.path(),
            method: head.method(),
            cost: cost.as_ref().map_or(1, |cost| cost(head)),
        })
    }
}

/// `None`: it panicked, which the panic's hook has told. Nothing of a guard changes while somebody else's code runs.
fn caught<T>(run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run)).ok()
}

/// `application/grpc`, also with its format (`+proto`) or parameters; not that of browsers, `application/grpc-web`.
fn is_grpc(content_type: &[u8]) -> bool {
    let rest = content_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

impl<D: Decider> Guard<D> {
    /// What becomes of it: it goes on, with the decision where one was made, or it is answered.
    pub(crate) async fn judge(&self, Asked { check, is_grpc }: Asked<'_>) -> Result<Option<Ruling>, Answer> {
        self.decide(check).await.map_err(|refusal| {
            let answer = match &self.0.respond {
                _ if is_grpc => Answer::grpc(&refusal),
                Some(respond) => caught(|| respond(&refusal)).unwrap_or_else(|| Answer::problem(&refusal)),
                None => Answer::problem(&refusal),
            };
            answer.with_headers_of(refusal)
        })
    }

    async fn decide(&self, check: Check<'_>) -> Result<Option<Ruling>, Refusal> {
        let Settings { decider, domain, no_identity, counts, .. } = &*self.0;
        let ruling = match check {
            Check::Exempt => return Ok(None),
            Check::Unreadable => None,
            Check::Of(Read { path, .. }) if path.len() > ENDPOINT_BYTES_MAX => return Err(Refusal::PathTooLong),
            Check::Of(Read { found, path, method, cost }) => {
                let identities = found.identities();
                if identities.is_empty() {
                    self.tell_of_nobody();
                    return match no_identity {
                        NoIdentity::Pass => Ok(None),
                        NoIdentity::Refuse => Err(Refusal::NoIdentity),
                    };
                }
                let request = Request::new(&identities).and_then(|request| request.endpoint(path));
                let request = request.and_then(|request| match cost {
                    0 => Ok(request.without_cost()),
                    _ => request.cost(cost.min(COST_MAX)),
                });
                match request {
                    Ok(request) => {
                        let request = request.domain(domain).method(method);
                        let mut deciding = pin!(decider.decide(&request));
                        poll_fn(|context| match caught(|| deciding.as_mut().poll(context)) {
                            Some(polled) => polled.map(Some),
                            None => Poll::Ready(None),
                        })
                        .await
                    }
                    // Found identities are right, so this is a mistake of ours.
                    Err(_) => None,
                }
            }
        };
        let ruling = ruling.unwrap_or_else(|| Ruling::undecided("internal_error", decider.on_error(domain)));
        let is_undecided = ruling.limit_id.is_none() && ruling.degraded.is_some();
        if is_undecided {
            counts.undecided.fetch_add(1, Ordering::Relaxed);
        }
        match (ruling.allowed, is_undecided) {
            (true, _) => Ok(Some(ruling)),
            (false, false) => Err(Refusal::Denied(ruling)),
            (false, true) => Err(Refusal::Undecided(ruling)),
        }
    }

    /// Of a request without identity.
    fn tell_of_nobody(&self) {
        let Settings { no_identity, counts, .. } = &*self.0;
        counts.no_identity.fetch_add(1, Ordering::Relaxed);
        if !counts.is_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                becomes = ?no_identity,
                "a request has none of the identities that are looked for; where that is the address, the server must be \
                 told to keep it, as axum is by into_make_service_with_connect_info"
            );
        }
    }
}

/// What there is to ask of a request. Nothing of the framework's, so that it may wait on any thread.
pub(crate) struct Asked<'r> {
    check: Check<'r>,
    is_grpc: bool,
}

#[expect(clippy::large_enum_variant, reason = "nearly all are large, and none is kept")]
enum Check<'r> {
    /// It goes on without being asked for.
    Exempt,
    /// Somebody panicked over it.
    Unreadable,
    Of(Read<'r>),
}

struct Read<'r> {
    found: Found<'r>,
    path: &'r str,
    method: &'r str,
    cost: u64,
}
