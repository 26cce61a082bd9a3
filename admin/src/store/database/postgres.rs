//! `PostgreSQL`: opening a database there, refusing to start on one that is not ours, and hearing of what other servers
//! publish.

use std::{
    convert::Infallible,
    fmt::{self, Debug, Display},
    sync::Arc,
    time::Duration,
};

use sqlx::{
    ConnectOptions, Connection, PgConnection, Row,
    any::{AnyConnectOptions, AnyPoolOptions},
    migrate::{MigrateError, Migrator},
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
    query, query_scalar,
};
use tokio::time::{sleep, timeout};

use crate::{
    base::startup_error::StartError,
    store::{
        address::{Address, DatabaseUrl},
        database::{Patience, Place, Store, sqlite},
    },
};

pub(crate) static MIGRATIONS: Migrator = sqlx::migrate!("../migrations/postgres");

/// How long a start waits for the server.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often is asked whether another server published, should a notification be lost.
const POLL: Duration = Duration::from_secs(2);
const CHANNEL: &str = "tidegate_published";
pub(crate) const ANNOUNCE: &str = "NOTIFY tidegate_published";

/// Of whoever changes something, in any server: "TIDG".
pub(crate) const LOCK: i64 = 1_414_087_751;

/// Settings of each connection: every wait has a limit, and an acknowledged change is on the disk. A publish ends after a minute
/// at the latest. Its connection is idle in a transaction while the server compiles the policy, so that limit is longer.
const SET_UP: &str = "
    SET default_transaction_isolation = 'read committed';
    SET default_transaction_read_only = off;
    SET lock_timeout = '5s';
    SET statement_timeout = '30s';
    SET idle_in_transaction_session_timeout = '75s';
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
    SELECT set_config('application_name', 'tidegate', false) WHERE current_setting('application_name') = '';";

/// The server that has the database.
#[derive(Clone)]
pub(crate) struct Server {
    /// The address without what is secret.
    pub(crate) name: String,
    options: Box<PgConnectOptions>,
}

// The options hold the password.
impl Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.name)
    }
}

impl Store {
    /// Opens the database at this address, and brings it to this build's migrations. One that is empty gets what `fill` puts
    /// into it; then the answer is true.
    pub(crate) async fn of_server(
        url: &DatabaseUrl,
        fill: impl AsyncFnOnce(&Self) -> sqlx::Result<()>,
    ) -> Result<(Self, bool), StartError> {
        let Address { any, postgres, name } = url.parse().map_err(StartError::Address)?;
        let explain = |error| explain(&name, &postgres, &error);
        let waited = || StartError::Unreachable { database: name.clone(), why: "it does not answer".to_owned() };
        // A connection of the driver itself says what is wrong at once, where a pool would try again.
        let mut connection = timeout(PATIENCE, postgres.connect()).await.map_err(|_| waited())?.map_err(explain)?;
        // Until it is closed, no other server looks, migrates or publishes.
        sqlx::raw_sql("SET lock_timeout = '60s'").execute(&mut connection).await.map_err(explain)?;
        let lock = query("SELECT pg_advisory_lock($1)").bind(LOCK).execute(&mut connection);
        lock.await.map_err(explain)?;
        look(&mut connection, &name, &postgres).await?;
        MIGRATIONS.run(&mut connection).await.map_err(|error| match error {
            MigrateError::Execute(error) => explain(error),
            error => other(&name, error),
        })?;
        connection.close().await.map_err(explain)?;
        let store = Self::connected(any, &postgres, &name).await?;
        let is_first = store.is_unused().await.map_err(explain)?;
        if is_first {
            fill(&store).await.map_err(explain)?;
        }
        Ok((store, is_first))
    }

    /// Opens the database at this address beside the servers that have it.
    pub(super) async fn attach_to_server(url: &DatabaseUrl) -> Result<Self, StartError> {
        let Address { any, postgres, name } = url.parse().map_err(StartError::Address)?;
        let explain = |error| explain(&name, &postgres, &error);
        let waited = || StartError::Unreachable { database: name.clone(), why: "it does not answer".to_owned() };
        let mut connection = timeout(PATIENCE, postgres.connect()).await.map_err(|_| waited())?.map_err(explain)?;
        look(&mut connection, &name, &postgres).await?;
        let applied = query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL").fetch_one(&mut connection);
        let mut version = 0;
        if applied.await.map_err(explain)? {
            let newest = query_scalar("SELECT coalesce(max(version), 0) FROM _sqlx_migrations");
            version = newest.fetch_one(&mut connection).await.map_err(explain)?;
        }
        sqlite::check_applied(version, &name)?;
        connection.close().await.map_err(explain)?;
        Self::connected(any, &postgres, &name).await
    }

    async fn connected(any: AnyConnectOptions, postgres: &PgConnectOptions, name: &str) -> Result<Self, StartError> {
        sqlx::any::install_default_drivers();
        let pool = pool(8).connect_with(any).await.map_err(|error| explain(name, postgres, &error))?;
        let server = Server { name: name.to_owned(), options: Box::new(postgres.clone()) };
        Ok(Self {
            pool,
            place: Place::Server(server),
            turn: Arc::default(),
            callers: Arc::default(),
            reads: Arc::default(),
            patience: Patience::default(),
            meter: Arc::default(),
        })
    }

    /// Has nothing ever been published here? Versions may be lost, but so are then the lines that tell of them.
    async fn is_unused(&self) -> sqlx::Result<bool> {
        let found = query("SELECT 1 WHERE EXISTS (SELECT 1 FROM audit) OR EXISTS (SELECT 1 FROM policy_versions)")
            .fetch_optional(&self.pool)
            .await?;
        Ok(found.is_none())
    }
}

/// So many connections at most.
pub(crate) fn pool(connections: u32) -> AnyPoolOptions {
    AnyPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(PATIENCE)
        .after_connect(|connection, _| Box::pin(async { sqlx::raw_sql(SET_UP).execute(connection).await.map(drop) }))
}

impl Server {
    /// Tells `wake` of each notification, and every few seconds in any case: notifications of a time without a connection
    /// are lost, and some that stand between (poolers) pass none on.
    pub(crate) async fn listen(&self, wake: impl Fn()) -> Infallible {
        let hear = async {
            loop {
                let Err(error) = self.hear(&wake).await;
                tracing::debug!(%error, "no notifications from the database; it is asked instead");
                sleep(POLL).await;
            }
        };
        let poll = async {
            loop {
                sleep(POLL).await;
                wake();
            }
        };
        tokio::select! {
            never = hear => never,
            never = poll => never,
        }
    }

    async fn hear(&self, wake: impl Fn()) -> sqlx::Result<Infallible> {
        let pool = PgPoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
        let mut listener = PgListener::connect_with(&pool.connect_lazy_with((*self.options).clone())).await?;
        listener.listen(CHANNEL).await?;
        loop {
            listener.recv().await?;
            wake();
        }
    }
}

/// Can it be ours, and is it not from the future? Changes nothing.
async fn look(connection: &mut PgConnection, name: &str, options: &PgConnectOptions) -> Result<(), StartError> {
    let explain = |error| explain(name, options, &error);
    let about = query(
        "SELECT current_setting('server_encoding') AS encoding, current_setting('transaction_read_only') AS read_only,
                to_regclass('_sqlx_migrations') IS NOT NULL AS is_used",
    );
    let about = about.fetch_one(&mut *connection).await.map_err(explain)?;
    let encoding: String = about.try_get("encoding").map_err(explain)?;
    if encoding != "UTF8" {
        let why = format!(
            "its encoding is {encoding}; make another one with UTF8 (createdb --encoding UTF8 --template template0)"
        );
        return Err(other(name, why));
    }
    if about.try_get::<String, _>("read_only").map_err(explain)? == "on" {
        return Err(StartError::Standby(name.to_owned()));
    }
    if !about.try_get::<bool, _>("is_used").map_err(explain)? {
        // Tables of extensions do not count.
        let strange: Option<String> = query_scalar(
            "SELECT relname::text FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')
             AND NOT EXISTS (SELECT 1 FROM pg_depend WHERE objid = pg_class.oid AND deptype = 'e') ORDER BY 1 LIMIT 1",
        )
        .fetch_optional(&mut *connection)
        .await
        .map_err(explain)?;
        let foreign = |found| StartError::ForeignTables { database: name.to_owned(), found };
        return strange.map_or(Ok(()), |found| Err(foreign(found)));
    }
    // Other programs keep a table of migrations under this name too.
    let strangers: Option<i64> = query_scalar(
        "SELECT version FROM _sqlx_migrations WHERE version = (SELECT min(version) FROM _sqlx_migrations)
         AND checksum <> $1",
    )
    .bind(MIGRATIONS.iter().next().map_or(&[][..], |first| &first.checksum))
    .fetch_optional(&mut *connection)
    .await
    .map_err(explain)?;
    if strangers.is_some() {
        let found = "_sqlx_migrations, of another program".to_owned();
        return Err(StartError::ForeignTables { database: name.to_owned(), found });
    }
    let found: i64 = query_scalar("SELECT coalesce(max(version), 0) FROM _sqlx_migrations")
        .fetch_one(&mut *connection)
        .await
        .map_err(explain)?;
    let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0);
    if found > known {
        return Err(StartError::Newer { database: name.to_owned(), found, known });
    }
    Ok(())
}

/// What a start is refused for, by SQLSTATE, with what to do.
fn explain(name: &str, options: &PgConnectOptions, error: &sqlx::Error) -> StartError {
    let unreachable = || StartError::Unreachable { database: name.to_owned(), why: error.to_string() };
    let Some(database_error) = error.as_database_error() else {
        return match error {
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut => unreachable(),
            error => other(name, error),
        };
    };
    match database_error.code().as_deref() {
        Some("28P01" | "28000") => other(
            name,
            format!(
                "the server refuses the user or the password ({}); both stand in the address: \
                 postgres://USER:PASSWORD@HOST/NAME",
                database_error.message()
            ),
        ),
        Some("3D000") => {
            let database = options.get_database().unwrap_or("NAME");
            other(name, format!("the server has no such database; make it: createdb {database}"))
        }
        Some("42501") => other(
            name,
            format!(
                "{}; make the user the owner of the database, so that it can make tables",
                database_error.message()
            ),
        ),
        Some(state) if state.starts_with("57P") || state == "53300" => unreachable(),
        _ => other(name, database_error),
    }
}

fn other(name: &str, why: impl Display) -> StartError {
    StartError::Database { database: name.to_owned(), why: format!("{why}") }
}
