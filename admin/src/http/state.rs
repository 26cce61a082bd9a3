//! What handlers share.

use std::sync::{Arc, LazyLock};

use ipnet::IpNet;
use tidegate_net::tls::CertificateFault;
use tokio::sync::watch;

use crate::{
    auth::{
        audit_queue::Beside,
        denied_audit::{AuditLog, Refusals},
        known_browsers::Browsers,
        last_seen::Seen,
        login_limiter::Tries,
        oidc::Provider,
        oidc_cookie::Seal,
        secret_lookups::SecretLookups,
        setup::Setup,
    },
    base::{event_log::Events, secrets::SessionLife},
    capacity::{body_budget::BodyBudget, spool::Spool, work_queue::WorkQueue},
    domain::privacy::Privacy,
    fleet::{live_tail::Watches, registry::Fleet},
    http::{api_document::Document, readiness::Readiness},
    live::alerts::{Alerts, Sight},
    metrics::{collector::Figures, telemetry},
    publish::publisher::Publisher,
    simulate::{question::QuestionContext, recorder::Recorder, runs::Runs, uploads::Uploads},
    store::database::Store,
};

/// What handlers share.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) store: Store,
    /// For what is written beside the answers, and at the end.
    pub(crate) apart: Store,
    pub(crate) publisher: Arc<Publisher>,
    /// Path of the file that the policy is kept in.
    pub(crate) policy_file: Option<String>,
    pub(crate) figures: Arc<Figures>,
    pub(crate) fleet: Arc<Fleet>,
    /// The secret of the keys in the store, as nodes are sent it.
    pub(crate) store_keys: String,
    pub(crate) events: Arc<Events>,
    pub(crate) alerts: Alerts,
    pub(crate) telemetry: telemetry::Shared,
    pub(crate) readiness: Readiness,
    pub(crate) privacy: Privacy,
    pub(crate) recorder: Option<Arc<Recorder>>,
    /// Work on whole policies, and long searches of the audit log.
    pub(crate) heavy: Arc<WorkQueue>,
    /// Queries of figures, alerts, runs and logs.
    pub(crate) queries: Arc<WorkQueue>,
    pub(crate) bodies: Arc<BodyBudget>,
    /// The memory for long answers until they are sent.
    pub(crate) answers: Arc<BodyBudget>,
    pub(crate) spool: Arc<Spool>,
    pub(crate) uploads: Arc<Uploads>,
    pub(crate) runs: Arc<Runs>,
    pub(crate) watches: Arc<Watches>,
    pub(crate) setup: Setup,
    pub(crate) tries: Tries,
    pub(crate) secret_lookups: SecretLookups,
    pub(crate) browsers: Browsers,
    pub(crate) provider: Option<Provider>,
    pub(crate) sign_ins: Seal,
    pub(crate) seen: Seen,
    pub(crate) refusals: Refusals,
    pub(crate) beside: Beside,
    /// What is wrong with it.
    pub(crate) certificate: CertificateFault,
    pub(crate) trusted_proxies: Vec<IpNet>,
    pub(crate) session_life: SessionLife,
    pub(crate) environment: Option<String>,
    pub(crate) production: bool,
    pub(crate) check_url: Option<String>,
    /// Name of the session's cookie: browsers keep cookies by host, whatever the port.
    pub(crate) cookie: String,
    /// Cookies only over TLS: everywhere but on loopback.
    pub(crate) secure_cookies: bool,
    /// Do browsers come by TLS?
    pub(crate) is_https: bool,
    /// Describes the REST calls. Made when it is first asked for.
    pub(crate) document: LazyLock<Document, Box<dyn FnOnce() -> Document + Send>>,
    /// Tells a server with another page from this one.
    pub(crate) build: String,
    /// Changes whenever a session was ended.
    pub(crate) session_ended: watch::Sender<()>,
    /// True when the server is being stopped.
    pub(crate) stopping: watch::Sender<bool>,
}

impl State {
    /// What alerts are found in.
    pub(crate) fn sight(&self) -> Sight<'_> {
        let Self { publisher, figures, fleet, store, events, certificate, telemetry, .. } = self;
        Sight { publisher, figures, fleet, store, events, certificate, telemetry }
    }

    /// Returns where lines of the audit log are written beside the answers.
    pub(crate) fn audit_log(&self) -> AuditLog<'_> {
        AuditLog { store: &self.apart, queue: &self.beside }
    }

    /// Returns what questions of what-if are made ready from.
    pub(crate) fn question_context(&self) -> QuestionContext {
        QuestionContext {
            publisher: Arc::clone(&self.publisher),
            store: self.store.clone(),
            privacy: self.privacy,
            uploads: Arc::clone(&self.uploads),
            recorder: self.recorder.clone(),
        }
    }
}
