//! The contract of the store: what each function answers, over both databases. A test is written once, and runs in a module
//! `sqlite` and in a module `postgres`, which needs `TIDEGATE_TEST_DATABASE`.

/// Makes a test for each database of each function that is named.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            use crate::store::tests::{Kind, run};

            $(
                #[test]
                fn $name() {
                    run(Kind::Sqlite, super::$name);
                }
            )*
        }

        mod postgres {
            use crate::store::tests::{Kind, run};

            $(
                #[test]
                #[ignore = "needs PostgreSQL"]
                fn $name() {
                    run(Kind::Postgres, super::$name);
                }
            )*
        }
    };
}

mod audit;
mod changes;
mod drafts;
mod error;
mod every_function;
mod metrics;
mod nodes;
mod opening;
mod rollouts;
mod second_factors;
mod secrets;
mod sessions;
mod tokens;
mod users;
mod versions;

use std::{future::Future, path::PathBuf, sync::Arc};

use sqlx::{Any, AnyPool, AssertSqlSafe, any::AnyPoolOptions, pool::PoolConnection, query_scalar, raw_sql};
use tempfile::TempDir;
use tidegate_testkit::postgres::Database;
use tokio::{runtime, sync::Barrier};

use crate::{
    base::secrets::SessionLife,
    publish::stored_policy::write_first,
    store::{
        address::DatabaseUrl,
        audit::Audit,
        data_directory::DataFolder,
        database::{Place, Store, postgres},
    },
};

/// A database in which a test runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Sqlite,
    Postgres,
}

/// The database of one test, with the first policy in it.
struct Home {
    data: PathBuf,
    url: Option<DatabaseUrl>,
    /// The store of the server that made it.
    store: Store,
    // The server's lock lives as long as this.
    _taken: Option<DataFolder>,
}

const LIFE: SessionLife = SessionLife { idle_s: 60, whole_s: 600 };
const LINE: Audit<'static> =
    Audit { actor: "ana", address: "192.0.2.1", action: "test", object: "o", result: "done", request_id: "r" };

/// Runs a test on a database of its own.
fn run(kind: Kind, test: impl AsyncFnOnce(&Home)) {
    let folder = TempDir::new().expect("a folder");
    let database = (kind == Kind::Postgres).then(Database::migrated);
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let data = folder.path().join("data");
        let home = match &database {
            None => {
                let mut taken = DataFolder::take(&data).expect("it is free");
                let store = Store::create(&mut taken, write_first).await.expect("it is made");
                Home { data, url: None, store, _taken: Some(taken) }
            }
            Some(database) => {
                let url = DatabaseUrl::new(database.url());
                let (store, is_first) = Store::of_server(&url, write_first).await.expect("it opens");
                assert!(is_first, "the template has no rows");
                Home { data, url: Some(url), store, _taken: None }
            }
        };
        test(&home).await;
    });
}

impl Home {
    fn is_postgres(&self) -> bool {
        self.url.is_some()
    }

    /// Opens a second store on the database, as another process does.
    async fn another(&self) -> Store {
        Store::attach(&self.data, self.url.as_ref()).await.expect("it opens")
    }

    /// Opens a store with one connection, on which `sql` was executed.
    async fn with_one_connection(&self, sql: &'static str) -> Store {
        let options = match self.store.place {
            Place::File(_) => AnyPoolOptions::new(),
            Place::Server(_) => postgres::pool(1),
        };
        let options = options.max_connections(1);
        let pool: AnyPool =
            options.connect_with((*self.store.pool.connect_options()).clone()).await.expect("it connects");
        let mut connection = pool.acquire().await.expect("the connection");
        raw_sql(sql).execute(&mut *connection).await.expect(sql);
        drop(connection);
        Store { pool, turn: Arc::default(), ..self.store.clone() }
    }

    /// Executes SQL that no function of the store executes.
    async fn execute(&self, sql: &str) {
        raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.store.pool).await.expect(sql);
    }

    /// Returns the number that a query answers.
    async fn number(&self, sql: &str) -> i64 {
        query_scalar::<Any, i64>(AssertSqlSafe(sql.to_owned())).fetch_one(&self.store.pool).await.expect(sql)
    }

    /// Returns how many audit lines there are of this action.
    async fn lines(&self, action: &str) -> i64 {
        self.number(&format!("SELECT count(*) FROM audit WHERE action = '{action}'")).await
    }

    /// Takes a connection of the store.
    async fn connection(&self) -> PoolConnection<Any> {
        self.store.pool.acquire().await.expect("a connection")
    }
}

/// Runs futures on the threads of the runtime, all from the same moment on.
async fn at_once<T: Send + 'static>(
    futures: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let futures: Vec<_> = futures.into_iter().collect();
    let barrier = Arc::new(Barrier::new(futures.len()));
    let spawn = |future| {
        let barrier = Arc::clone(&barrier);
        tokio::spawn(async move {
            barrier.wait().await;
            future.await
        })
    };
    let tasks: Vec<_> = futures.into_iter().map(spawn).collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.expect("no panic"));
    }
    outcomes
}
