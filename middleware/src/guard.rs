//! What stands before a service: which requests are asked for, as whom, at what cost, and what becomes of them. The same under
//! every framework.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tidegate::{DEFAULT_DOMAIN, ENDPOINT_BYTES_MAX, Endpoints, Request, plain_path};

use crate::{
    answer::{Answer, Refusal},
    extract::{Extractors, Found},
    head::RequestHead,
    ruling::{Decider, Ruling},
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
    exempt: Arc<Endpoints>,
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

    /// Requests that nobody could decide.
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
            exempt: Arc::clone(exempt),
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
            exempt: Arc::default(),
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
        Ok(self.with(|settings| settings.exempt = exempt))
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
    pub(crate) fn read(&self, head: &dyn RequestHead) -> Asked {
        let Settings { exempt, extractors, cost, .. } = &*self.0;
        // Only as it is written: what stands for an exempt path by its dots may be routed as another.
        if plain_path(head.path()) == head.path() && exempt.has(head.path()) {
            return Asked { check: None, is_grpc: false };
        }
        let check = Check {
            found: extractors.found(head),
            path: head.path().to_owned(),
            method: head.method().to_owned(),
            cost: cost.as_ref().map_or(1, |cost| cost(head)),
        };
        let is_grpc = head.header("content-type").first().is_some_and(|value| is_grpc(value));
        Asked { check: Some(check), is_grpc }
    }
}

/// `application/grpc`, also with its format (`+proto`) or parameters; not that of browsers, `application/grpc-web`.
fn is_grpc(content_type: &[u8]) -> bool {
    let rest = content_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

impl<D: Decider> Guard<D> {
    /// What becomes of it: it goes on, with the decision where one was made, or it is answered.
    pub(crate) async fn judge(&self, Asked { check, is_grpc }: Asked) -> Result<Option<Ruling>, Answer> {
        let Some(check) = check else { return Ok(None) };
        self.decide(check).await.map_err(|refusal| {
            let answer = match &self.0.respond {
                _ if is_grpc => Answer::grpc(&refusal),
                Some(respond) => respond(&refusal),
                None => Answer::problem(&refusal),
            };
            answer.with_headers_of(refusal)
        })
    }

    async fn decide(&self, Check { found, path, method, cost }: Check) -> Result<Option<Ruling>, Refusal> {
        let Settings { decider, domain, no_identity, counts, .. } = &*self.0;
        if path.len() > ENDPOINT_BYTES_MAX {
            return Err(Refusal::PathTooLong);
        }
        let identities = found.identities();
        if identities.is_empty() {
            counts.no_identity.fetch_add(1, Ordering::Relaxed);
            if !counts.is_told.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    becomes = ?no_identity,
                    "a request has none of the identities that are looked for; where that is the address, the server must be \
                     told to keep it, as axum is by into_make_service_with_connect_info"
                );
            }
            return match no_identity {
                NoIdentity::Pass => Ok(None),
                NoIdentity::Refuse => Err(Refusal::NoIdentity),
            };
        }
        let request = Request::new(&identities).and_then(|request| request.endpoint(&path));
        let request = request.and_then(|request| match cost {
            0 => Ok(request.without_cost()),
            _ => request.cost(cost.min(COST_MAX)),
        });
        let ruling = match request {
            Ok(request) => decider.decide(&request.domain(domain).method(&method)).await,
            // Found identities are right, so this is a mistake of ours.
            Err(_) => Ruling::undecided("internal_error", decider.on_error(domain)),
        };
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
}

/// What there is to ask of a request.
pub(crate) struct Asked {
    /// `None`: it is exempt.
    check: Option<Check>,
    is_grpc: bool,
}

struct Check {
    found: Found,
    path: String,
    method: String,
    cost: u64,
}
