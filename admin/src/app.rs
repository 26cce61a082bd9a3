//! The admin server as one value: opened from settings, served until it is told to stop. Tests open the same value on
//! port 0 with a database of their own.

use std::{
    convert::Infallible,
    fs::Permissions,
    future::{Future, pending},
    io,
    net::TcpListener,
    num::NonZeroU32,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use openidconnect::url::Url;
use tempfile::TempDir;
use tidegate::{
    Engine, Publish,
    clock::{Clock, SystemClock},
};
use tidegate_fleet::{ErrorCounts, QueryHandler, store::SharedEngine, wire::Process};
use tidegate_listener::{ConnectionCaps, ConnectionLimiter, HttpListener, HttpPeriods};
use tidegate_net::tls::Tls;
use tokio::{sync::watch, task::spawn_blocking, time::timeout};

use crate::{
    auth::{
        audit_queue::{Beside, Clerk},
        denied_audit::Refusals,
        known_browsers::Browsers,
        last_seen::Seen,
        login_limiter::Tries,
        oidc::Provider,
        oidc_cookie::Seal,
        passwords,
        secret_lookups::SecretLookups,
        settings::Access,
        setup::Setup,
    },
    base::{
        addresses::is_loopback, event_log::Events, periods::Periods, secrets::SECRET_BYTES, startup_error::StartError,
    },
    capacity::{spool::Spool, work_queue::WorkQueue},
    domain::privacy::{Keys, Privacy},
    fleet::{
        live_tail::{TailContext, Watches},
        registry::{Fleet, OwnProcess},
    },
    http::{
        connections::{Connections, Open},
        readiness::Readiness,
        routes, server,
        state::State,
    },
    live::{
        alerts::Alerts,
        event_publisher::{follow_audit, follow_policy},
    },
    metrics::{
        clock::FiguresClock,
        collector::{Figures, SAMPLED_ONE_IN},
        telemetry::Telemetry,
    },
    publish::{
        policy_file::{PolicyFile, PolicyFileOutcome},
        publisher::Publisher,
        stored_policy::{Stored, write_first},
    },
    simulate::{recorder::Recorder, runs::Runs, uploads::Uploads},
    store::{
        address::DatabaseUrl,
        data_directory::{DataFolder, first_secret, forget_secret},
        database::Store,
    },
};

/// How long a stop waits for the database to take what is still to be written.
const LAST_WRITES_WITHIN: Duration = Duration::from_secs(5);
/// How long it waits for readers of streams to take their last event.
const FAREWELL: Duration = Duration::from_millis(500);
/// A handful of people, and the machine has other work.
const WORKERS: usize = 2;
/// How long a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection that is being closed has for the rest of a request.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a connection may be idle. It is longer than nginx keeps its connections (60 s), so that it does not send a request over
/// one that the server is just closing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// What an admin server is made of.
#[derive(Debug)]
pub struct Settings {
    /// Folder of the database; made when it is absent.
    pub data: PathBuf,
    /// A database on a server of `PostgreSQL`, instead of one in the folder. Several admin servers may have the same.
    pub database: Option<DatabaseUrl>,
    /// With a `database`: are runs of what-if and uploaded logs kept in the folder `data`? They are in a temporary one
    /// otherwise, and go with the process. Each server needs a folder of its own.
    pub keeps_files: bool,
    /// Where it listens.
    pub listener: TcpListener,
    /// The engine that decides by what is published here.
    pub engine: Arc<Engine>,
    /// The store of limits that this engine shares with others.
    pub store: Option<Arc<SharedEngine<SystemClock>>>,
    /// Shown on the page, so that nobody takes one for the other.
    pub environment: Option<String>,
    /// Is it the one that must not be taken for another? The page has a stripe then.
    pub production: bool,
    /// Does that engine answer checks in this process? If not, this is the control plane alone.
    pub is_node: bool,
    /// Name of this node in the figures; others with the same database have others.
    pub node: String,
    /// What tells the time under which figures are kept.
    pub figures_clock: FiguresClock,
    /// Where people reach it, if not at its listener: behind a proxy, perhaps with TLS.
    pub url: Option<String>,
    /// A policy that is kept in a file.
    pub policy: Option<PolicyFile>,
    /// How the identities of others are shown.
    pub keys: Keys,
    /// Keep the requests of one identity in so many, to try policies on.
    pub record: Option<NonZeroU32>,
    /// Where checks can be sent, to be shown on the page; such as `http://127.0.0.1:9080`.
    pub check_url: Option<String>,
    /// With what this process runs, to be shown with its engine. When it began, and how it is observed, is known here.
    pub process: Process,
    /// What counts the errors of its doors.
    pub errors: ErrorCounts,
    /// How people sign in.
    pub access: Access,
    /// The caps of connections.
    pub connections: ConnectionCaps,
    /// How long the server waits for others.
    pub periods: Periods,
}

/// An admin server, its database open and its policy in force.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    state: Arc<State>,
    setup_code: Option<String>,
    is_first_start: bool,
    policy_file: Option<PolicyFileOutcome>,
    tls: Option<Tls>,
    connection_limiter: Arc<ConnectionLimiter>,
    clerk: Clerk,
    // No other process takes the folder while this lives.
    folder: Option<DataFolder>,
    _scratch: Option<TempDir>,
}

impl Admin {
    #[cfg(test)]
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Connections that it takes at once: those of nodes last as long as the nodes.
    pub const CONNECTIONS_MAX: usize = 5_120;

    /// Opens the database, or makes it with the example policy, and publishes its newest version to the engine.
    ///
    /// # Errors
    ///
    /// Says what keeps it from starting, and what to do. A database that is missing, read-only, damaged or newer is never
    /// taken for an empty one.
    #[expect(clippy::too_many_lines, reason = "one thing after the other is opened, each with those before it")]
    pub async fn open(settings: Settings) -> Result<Self, StartError> {
        let Settings {
            data,
            database,
            keeps_files,
            listener,
            engine,
            store: shared,
            environment,
            production,
            is_node,
            node,
            figures_clock,
            url,
            policy,
            keys,
            record,
            check_url,
            process,
            errors,
            access,
            connections,
            periods,
        } = settings;
        let tls = access.tls.clone().map(Tls::open).transpose().map_err(StartError::Tls)?;
        passwords::prepare().map_err(|error| StartError::Random(error.to_string()))?;
        let provider = provider(&access, || redirect(&listener, url.as_deref(), tls.is_some()))?;
        let (store, folder, is_first_start) = take_store(&data, database.as_ref(), keeps_files).await?;
        let name = store.name();
        let failed = |error: sqlx::Error| StartError::Database { database: name.clone(), why: error.to_string() };
        let (file_name, policy_file) = follow_file(policy, &store).await?;
        let here = is_node.then(|| node.clone());
        let stored = Stored::read(&mut *store.reading().await.map_err(failed)?, &name).await.map_err(failed)?;
        let (targets, snapshot) = stored.compile(here.as_deref())?;
        let version = targets.of(here.as_deref()).version.version;
        engine.publish(Publish::of(snapshot).under_version(version)).map_err(StartError::Engine)?;
        let broken = |why: io::Error| StartError::Folder { path: data.clone(), why: why.to_string() };
        // Without a folder what-if has one for as long as this lives.
        let scratch = if folder.is_none() { Some(scratch_folder().map_err(broken)?) } else { None };
        let place = scratch.as_ref().map_or(&*data, TempDir::path);
        let Secrets { hashing: secret, sign_ins, browsers, store_keys } =
            Secrets::read(&store, database.is_none().then_some(&*data)).await?;
        if let Some(shared) = &shared {
            shared.take_key_secret(Some(&store_keys));
        }
        let recorder = record.map(|one_in| recorder(&engine, one_in, &secret));
        let uploads = Arc::new(Uploads::open(place.join("uploads")).map_err(broken)?);
        let privacy = Privacy::new(keys, &secret);
        let spool = Spool::in_folder(place.join("uploads"));
        let runs = Runs::open(place.join("simulations"), privacy, Arc::clone(&uploads)).map_err(broken)?;
        let (setup, setup_code) = setup(store.has_administrator().await.map_err(failed)?)?;
        let Cookies { name: cookie, are_secure: secure_cookies, is_https } =
            Cookies::of(&listener, url.as_deref(), tls.is_some());
        let connection_limiter = ConnectionLimiter::new("admin", connections, false);
        let telemetry = Arc::new(Telemetry::new(store.meter(), &connection_limiter));
        // Tells the events of this process from those of the one before.
        let events = Arc::new(Events::new(format!("{:x}", jiff::Timestamp::now().as_nanosecond())));
        let has_figures = store.has_figures().await.map_err(failed)?;
        let (of, told) = (Arc::clone(&engine), Arc::clone(&events));
        let figures = Arc::new(Figures::new(of, node, figures_clock, privacy, told, has_figures));
        let decides = is_node.then(|| QueryHandler::of(Arc::clone(&engine), shared));
        let own = OwnProcess { process: started(process, record), errors };
        let fleet = Arc::new(Fleet::new(Arc::clone(&events), Arc::clone(&figures), decides, own, periods));
        let changes =
            Publisher::new(store.clone(), engine, (targets, here), Arc::clone(&telemetry), Arc::clone(&fleet));
        let (beside, clerk) = Beside::new();
        let stopping = watch::Sender::new(false);
        let watches = Watches::new(TailContext {
            events: Arc::clone(&events),
            fleet: Arc::clone(&fleet),
            store: store.clone(),
            figures: Arc::clone(&figures),
            privacy,
            stopping: stopping.subscribe(),
        });
        let state = State {
            publisher: Arc::new(changes),
            policy_file: file_name,
            apart: store.apart(),
            store,
            figures,
            fleet,
            events,
            alerts: Alerts::default(),
            telemetry,
            readiness: Readiness::default(),
            privacy,
            store_keys: URL_SAFE_NO_PAD.encode(store_keys),
            recorder,
            heavy: WorkQueue::heavy(),
            queries: WorkQueue::queries(),
            bodies: Arc::default(),
            answers: Arc::default(),
            spool: Arc::new(spool),
            uploads,
            runs: Arc::new(runs),
            watches: Arc::new(watches),
            setup,
            tries: Tries::new(),
            secret_lookups: SecretLookups::default(),
            browsers,
            provider,
            sign_ins,
            seen: Seen::default(),
            refusals: Refusals::default(),
            beside,
            certificate: tidegate_net::tls::CertificateFault::default(),
            trusted_proxies: access.trusted_proxies.clone(),
            session_life: access.session_life(),
            environment,
            production,
            check_url,
            document: LazyLock::new(Box::new({
                let cookie = cookie.clone();
                move || routes::document(&cookie)
            })),
            cookie,
            secure_cookies,
            is_https,
            build: routes::build(),
            session_ended: watch::Sender::new(()),
            stopping,
        };
        Ok(Self {
            listener,
            state: Arc::new(state),
            setup_code,
            is_first_start,
            policy_file,
            tls,
            connection_limiter,
            clerk,
            folder,
            _scratch: scratch,
        })
    }

    /// Was the database made just now?
    #[must_use]
    pub fn is_first_start(&self) -> bool {
        self.is_first_start
    }

    /// What became of the policy that is kept in a file, if one was given.
    #[must_use]
    pub fn policy_file(&self) -> Option<PolicyFileOutcome> {
        self.policy_file
    }

    /// Path of the one-time link for the first administrator, below the server's address; `None` when there is one.
    #[must_use]
    pub fn setup_path(&self) -> Option<String> {
        self.setup_code.as_ref().map(|code| format!("/setup#code={code}"))
    }

    /// Do people reach it from other machines, without TLS? Browsers keep no session then.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        self.state.secure_cookies && !self.state.is_https
    }

    /// Returns whether other users of the machine may look into the data folder.
    #[must_use]
    pub fn is_folder_open(&self) -> bool {
        self.folder.as_ref().is_some_and(DataFolder::is_open)
    }

    /// Version of the policy in force here.
    #[must_use]
    pub fn policy_version(&self) -> u64 {
        self.state.publisher.engine().version()
    }

    /// Serves until `stop` ends; then lets open requests end, for five seconds at most, and streams, for half a second.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let connections = Connections::default();
        let mut open = connections.watch();
        let Periods { request_head, drain, unread_answers, .. } = self.state.fleet.periods;
        let listener = HttpListener {
            socket: self.listener,
            tls: self.tls.as_ref().map(Tls::config).transpose()?,
            connections: self.connection_limiter,
            workers: WORKERS,
            periods: HttpPeriods {
                idle: IDLE_TIMEOUT,
                handshake: HANDSHAKE_TIMEOUT,
                request_head,
                unread: unread_answers,
                linger: LINGER_TIMEOUT,
            },
            drain,
        };
        let server = server::start(listener, Arc::clone(&self.state), connections)?;
        let handle = server.handle();
        let drain = async {
            stop.await;
            self.state.stopping.send_replace(true);
            let drained = handle.stop(true);
            let rest = async {
                // It is told whenever a connection ends.
                let _ = timeout(FAREWELL, open.wait_for(Open::is_none)).await;
                let _ = open.wait_for(Open::is_streams).await;
            };
            tokio::select! {
                () = drained => {}
                () = rest => {}
            }
        };
        let (figures, store) = (Arc::clone(&self.state.figures), self.state.apart.clone());
        // Not stopped between a minute's being written and its being known to be: it ends when it is told to.
        let keeper = tokio::spawn(async move { figures.keep(&store).await });
        // Nor between a refusal and its line.
        let clerk = tokio::spawn(self.clerk.work());
        let State { publisher, figures, fleet, events, store, apart, .. } = &*self.state;
        let ended = tokio::select! {
            ended = server => ended,
            never = follow_policy(publisher, events, fleet, figures.node()) => match never {},
            never = self.state.refusals.run(self.state.audit_log()) => match never {},
            never = follow_audit(store, events, &self.state.session_ended) => match never {},
            never = self.state.alerts.run(self.state.sight()) => match never {},
            never = figures.run() => match never {},
            never = fleet.run(|| publisher.targets()) => match never {},
            never = fleet.tell_others(store) => match never {},
            never = self.state.publisher.follow() => match never {},
            never = follow_certificate(self.tls, &self.state.certificate) => match never {},
            never = record(self.state.recorder.as_deref()) => match never {},
            never = self.state.uploads.run() => match never {},
            never = self.state.runs.run_out() => match never {},
            // What is left ends with the server: streams of readers who do not read.
            () = drain => Ok(()),
        };
        let runs = Arc::clone(&self.state.runs);
        let _ = spawn_blocking(move || runs.close()).await;
        self.state.refusals.turn(self.state.audit_log());
        self.state.beside.end();
        figures.end();
        // They have no panics to tell of; a database that does not answer is not waited for.
        drop(timeout(LAST_WRITES_WITHIN, async { tokio::join!(clerk, keeper, fleet.leave(apart)) }).await);
        tokio::join!(store.close(), apart.close());
        ended
    }
}

/// Makes a temporary folder, for this user alone.
fn scratch_folder() -> io::Result<TempDir> {
    tempfile::Builder::new().prefix("tidegate-").permissions(Permissions::from_mode(0o700)).tempdir()
}

/// Whom else people sign in by, who come back to `redirect`.
fn provider(
    access: &Access,
    redirect: impl FnOnce() -> Result<String, String>,
) -> Result<Option<Provider>, StartError> {
    let provider = access.oidc.clone().map(|oidc| Provider::new(oidc, redirect()?)).transpose();
    provider.map_err(|why| StartError::Oidc { why })
}

/// Where browsers come back from the provider.
fn redirect(listener: &TcpListener, url: Option<&str>, has_tls: bool) -> Result<String, String> {
    let scheme = if has_tls { "https" } else { "http" };
    let here = listener.local_addr().ok().filter(|address| address.ip().is_loopback());
    let url = url.map(str::to_owned).or_else(|| Some(format!("{scheme}://{}", here?)));
    let url =
        url.ok_or("--oidc-issuer needs --admin-url: where browsers reach the dashboard, to come back from there")?;
    Ok(format!("{url}{}", routes::CALLBACK))
}

/// The way to the first administrator, with its code while there is none.
fn setup(has_administrator: bool) -> Result<(Setup, Option<String>), StartError> {
    if has_administrator {
        return Ok((Setup::default(), None));
    }
    let (setup, code) = Setup::open().map_err(|error| StartError::Random(error.to_string()))?;
    Ok((setup, Some(code)))
}

/// How sessions are kept by browsers.
struct Cookies {
    name: String,
    are_secure: bool,
    is_https: bool,
}

impl Cookies {
    /// Of a server that people reach at `url`, or else at its listener.
    fn of(listener: &TcpListener, url: Option<&str>, has_tls: bool) -> Self {
        let address = listener.local_addr();
        let is_here = match url {
            Some(url) => Url::parse(url).is_ok_and(|url| is_loopback(&url)),
            None => address.as_ref().is_ok_and(|address| address.ip().is_loopback()),
        };
        let is_https = has_tls || url.is_some_and(|url| url.starts_with("https:"));
        let are_secure = is_https || !is_here;
        let port = address.map_or(0, |address| address.port());
        // With this prefix no other host, and nobody without TLS, can set it.
        let name = format!("{}tidegate_session_{port}", if is_https { "__Host-" } else { "" });
        Self { name, are_secure, is_https }
    }
}

/// Follows the files of the certificate, for ever.
async fn follow_certificate(tls: Option<Tls>, trouble: &tidegate_net::tls::CertificateFault) -> Infallible {
    match tls {
        Some(tls) => tls.follow(trouble).await,
        None => pending().await,
    }
}

/// Opens the database, and takes the folder where it has one. True: it was made just now.
async fn take_store(
    data: &Path,
    database: Option<&DatabaseUrl>,
    keeps_files: bool,
) -> Result<(Store, Option<DataFolder>, bool), StartError> {
    if let Some(database) = database {
        let folder = keeps_files.then(|| DataFolder::beside_database(data)).transpose()?;
        let (store, is_first_start) = Store::of_server(database, write_first).await?;
        return Ok((store, folder, is_first_start));
    }
    let mut folder = DataFolder::take(data)?;
    let is_first_start = folder.is_new();
    let store =
        if is_first_start { Store::create(&mut folder, write_first).await? } else { Store::open(&mut folder).await? };
    Ok((store, Some(folder), is_first_start))
}

/// Publishes the policy of a file, if that is to be done; answers the file's name, and what became of it.
async fn follow_file(
    file: Option<PolicyFile>,
    store: &Store,
) -> Result<(Option<String>, Option<PolicyFileOutcome>), StartError> {
    let Some(file) = file else { return Ok((None, None)) };
    let name = file.name.clone();
    Ok((Some(name), Some(file.follow(store).await?)))
}

/// The secrets that all servers of a database share, each made by the first of them.
struct Secrets {
    /// Hashes identities that are not shown.
    hashing: [u8; SECRET_BYTES],
    /// Seals sign-ins by the provider.
    sign_ins: Seal,
    /// Signs the cookies of browsers that are known.
    browsers: Browsers,
    /// Names the keys of shared limits in their store.
    store_keys: [u8; SECRET_BYTES],
}

impl Secrets {
    /// Reads them from the database. What older builds kept in this folder is taken over.
    async fn read(store: &Store, folder: Option<&Path>) -> Result<Self, StartError> {
        let broken = |why: io::Error| StartError::Folder {
            path: folder.unwrap_or(Path::new("")).to_owned(),
            why: why.to_string(),
        };
        let named = async |name, first: io::Result<[u8; SECRET_BYTES]>| {
            let failed = |error: sqlx::Error| StartError::Database { database: store.name(), why: error.to_string() };
            store.secret(name, &first.map_err(broken)?).await.map_err(failed)
        };
        let hashing = named("hashing", first_secret(folder)).await?;
        folder.map_or(Ok(()), forget_secret).map_err(broken)?;
        Ok(Self {
            hashing,
            sign_ins: Seal::of(&named("sign_ins", first_secret(None)).await?),
            browsers: Browsers::of(&named("browsers", first_secret(None)).await?),
            store_keys: named("store_keys", first_secret(None)).await?,
        })
    }
}

/// Takes in what checks recorded, for ever.
async fn record(recorder: Option<&Recorder>) -> Infallible {
    match recorder {
        Some(recorder) => recorder.run().await,
        None => pending().await,
    }
}

/// What the process is, that starts now.
fn started(process: Process, record: Option<NonZeroU32>) -> Process {
    let started_at_ms = jiff::Timestamp::now().as_millisecond().unsigned_abs();
    let recorded_one_in = record.map(NonZeroU32::get);
    Process { started_at_ms, observed_one_in: SAMPLED_ONE_IN.get(), recorded_one_in, ..process.bounded() }
}

/// A recorder that is shown every decision, because a sampled identity's are all kept.
fn recorder(engine: &Arc<Engine>, one_in: NonZeroU32, secret: &[u8; SECRET_BYTES]) -> Arc<Recorder> {
    // The engine keeps the recorder, not the other way round.
    let clock = Arc::downgrade(engine);
    let now = move || clock.upgrade().map_or(0, |engine| engine.clock().now().as_nanos());
    let recorder = Arc::new(Recorder::new(one_in, secret, now));
    engine.observe(NonZeroU32::MIN, Arc::clone(&recorder));
    recorder
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::oidc::Oidc;

    /// Tests of the server choose others; these are what `docs/` states.
    #[test]
    fn the_defaults_are_the_documented_periods() {
        let Periods {
            node_read_timeout,
            node_name_timeout,
            node_heartbeat,
            look_timeout,
            drain,
            request_head,
            body_timeout,
            file_timeout,
            unread_answers,
        } = Periods::default();
        let of_nodes = [node_read_timeout, node_name_timeout, node_heartbeat, look_timeout];
        assert_eq!(of_nodes.map(|period| period.as_millis()), [20_000, 3_000, 10_000, 20_000]);
        let of_requests = [drain, Oidc::PATIENCE, request_head, body_timeout, file_timeout, unread_answers];
        assert_eq!(of_requests.map(|period| period.as_millis()), [5_000, 10_000, 10_000, 5_000, 60_000, 60_000]);
    }
}
