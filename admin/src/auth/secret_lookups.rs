//! Lookups of tokens and sessions in the database take turns: those of secrets that may be made up by client address, others by
//! user and address. So each of them has one of the connections to the database at a time. Requests that wait with the same secret
//! share one lookup.

use std::{
    collections::HashMap,
    future::Future,
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    auth::principal::sender_of,
    base::{
        caller,
        secrets::{SessionLife, now},
        user_turns::CallerTurns,
    },
    capacity::shared_work::SharedWork,
    domain::error::Problem,
    store::{database::Store, sessions::Session, tokens::Token},
};

/// How many valid secrets are remembered in a generation.
const GENERATION: usize = 5_000;
/// How long a lookup waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);
const TOO_MANY: Problem = Problem::Busy("Too many tokens and sessions of yours wait to be looked up; come again.");

/// The turns of users and addresses, and the users of secrets that were valid. A secret that was valid waits for those of its
/// user only, so strangers behind the same address do not delay it. It is looked up all the same, since it may have ended.
#[derive(Debug, Default)]
pub(crate) struct SecretLookups {
    turns: Arc<CallerTurns>,
    valid: Arc<Mutex<ValidSecrets>>,
    sessions: Lookups<Session>,
    tokens: Lookups<Token>,
}

/// Lookups that have not begun, by whose turn they wait for and the SHA-256 of the secret.
type Lookups<T> = SharedWork<(String, String), Option<T>>;

/// SHA-256 of secrets that were valid when they were looked up last, and their users. Those that were not used for a while are
/// forgotten with the older generation. Only a caller with valid secrets adds any.
#[derive(Debug, Default)]
struct ValidSecrets {
    recent: HashMap<String, String>,
    older: HashMap<String, String>,
}

impl ValidSecrets {
    fn user(&self, sha256: &str) -> Option<&str> {
        self.recent.get(sha256).or_else(|| self.older.get(sha256)).map(String::as_str)
    }

    /// Notes the user of a secret that was looked up; `None`: it is not valid.
    fn note(&mut self, sha256: &str, user: Option<String>) {
        let Some(user) = user else {
            self.recent.remove(sha256);
            self.older.remove(sha256);
            return;
        };
        if self.recent.get(sha256) == Some(&user) {
            return;
        }
        if self.recent.len() >= GENERATION {
            self.older = mem::take(&mut self.recent);
        }
        self.recent.insert(sha256.to_owned(), user);
    }
}

impl SecretLookups {
    /// Looks up the session of this SHA-256, which is used at this address. `user`: the user whose it was, if that is known.
    pub(crate) async fn session(
        &self,
        store: &Store,
        (sha256, life): (&str, SessionLife),
        address: &str,
        user: Option<&str>,
    ) -> Result<Option<Session>, Problem> {
        let (store, id) = (store.clone(), sha256.to_owned());
        let read = async move { store.session(&id, now(), life).await };
        self.find(&self.sessions, sha256, (address, user), read, |session| session.name.clone()).await
    }

    /// Looks up the token of this SHA-256, which is used at this address. `user`: the user whose it was, if that is known.
    pub(crate) async fn token(
        &self,
        store: &Store,
        sha256: &str,
        address: &str,
        user: Option<&str>,
    ) -> Result<Option<Token>, Problem> {
        let (store, id) = (store.clone(), sha256.to_owned());
        let read = async move { store.token_of(&id, now()).await };
        let user_of = |token: &Token| sender_of(token.may, &token.full_name(), &token.made_by).to_owned();
        self.find(&self.tokens, sha256, (address, user), read, user_of).await
    }

    /// Looks a secret up with `read`, in the turn of the user whose it was, or else of a stranger. `user_of` returns the user of
    /// the token or session that was found.
    async fn find<T: Clone + Send + Sync + 'static>(
        &self,
        lookups: &Lookups<T>,
        sha256: &str,
        (address, user): (&str, Option<&str>),
        read: impl Future<Output = sqlx::Result<Option<T>>> + Send + 'static,
        user_of: impl FnOnce(&T) -> String + Send + 'static,
    ) -> Result<Option<T>, Problem> {
        let name = caller::name(user.or(lock(&self.valid).user(sha256)), address);
        let key = (name.clone(), sha256.to_owned());
        let (turns, end) = (Arc::clone(&self.turns), Instant::now() + PATIENCE);
        let turn = async move { turns.turn(&name, end).await.ok_or(TOO_MANY) };
        let (valid, sha256) = (Arc::clone(&self.valid), sha256.to_owned());
        let look = async move {
            let found = read.await?;
            lock(&valid).note(&sha256, found.as_ref().map(user_of));
            Ok(found)
        };
        lookups.share(key, turn, look).await
    }
}

fn lock(valid: &Mutex<ValidSecrets>) -> std::sync::MutexGuard<'_, ValidSecrets> {
    // Nothing in there panics.
    valid.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{
        future::ready,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use futures_util::future::{LocalBoxFuture, join_all};
    use tokio::{sync::Semaphore, task::yield_now, time::timeout};

    use super::*;

    const CROWD: usize = 100;
    /// Turns of all tasks, of which a lookup that waits for nothing needs two.
    const TURNS_OF_TASKS: usize = 20;

    /// Lookups, whose secrets are found to be of a user.
    #[derive(Default)]
    struct Test {
        secrets: SecretLookups,
        lookups: Lookups<String>,
    }

    impl Test {
        async fn find(
            &self,
            sha256: &str,
            address: &str,
            read: impl Future<Output = sqlx::Result<Option<String>>> + Send + 'static,
        ) -> Result<Option<String>, Problem> {
            self.secrets.find(&self.lookups, sha256, (address, None), read, String::clone).await
        }

        /// Returns whether a lookup is done without waiting for any other. `Some`: the secret is one of that user.
        async fn is_done_at_once(&self, sha256: &str, address: &str, user: Option<&str>) -> bool {
            let found = user.map(str::to_owned);
            let mut lookup = Box::pin(self.find(sha256, address, ready(Ok(found.clone()))));
            for _ in 0..TURNS_OF_TASKS {
                if let Ok(answer) = timeout(Duration::ZERO, &mut lookup).await {
                    assert_eq!(answer.expect("it is read"), found);
                    return true;
                }
                yield_now().await;
            }
            false
        }
    }

    /// Lookups of a crowd at the same address, which go on until the test lets them end.
    struct Crowd<'t> {
        lookups: LocalBoxFuture<'t, Vec<Result<Option<String>, Problem>>>,
        begun: Arc<AtomicUsize>,
        end: Arc<Semaphore>,
    }

    impl<'t> Crowd<'t> {
        /// A lookup of each of these secrets begins. Holds that the database is asked for the first one only.
        async fn begin(test: &'t Test, secrets: &'t [String]) -> Self {
            let (begun, end) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
            let lookup = |secret| {
                let (begun, end) = (Arc::clone(&begun), Arc::clone(&end));
                let read = async move {
                    begun.fetch_add(1, Ordering::Relaxed);
                    end.acquire().await.expect("open").forget();
                    Ok(None)
                };
                test.find(secret, "192.0.2.1", read)
            };
            let mut lookups = Box::pin(join_all(secrets.iter().map(|secret| lookup(secret.as_str()))));
            for _ in 0..TURNS_OF_TASKS {
                assert!(timeout(Duration::ZERO, &mut lookups).await.is_err(), "they wait");
                yield_now().await;
            }
            let crowd = Self { lookups, begun, end };
            assert_eq!(crowd.begun(), 1, "the database is asked for one");
            crowd
        }

        fn begun(&self) -> usize {
            self.begun.load(Ordering::Relaxed)
        }
    }

    fn names(secret: &str) -> Vec<String> {
        (0..CROWD).map(|number| format!("{secret}-{number}")).collect()
    }

    #[tokio::test]
    async fn an_address_has_one_secret_looked_up_that_may_be_made_up() {
        let test = Test::default();
        assert!(test.is_done_at_once("good", "192.0.2.1", Some("ana")).await);
        let secrets = names("wrong");
        let crowd = Crowd::begin(&test, &secrets).await;
        assert!(test.is_done_at_once("wrong", "192.0.2.2", None).await, "another address");
        assert!(test.is_done_at_once("good", "192.0.2.1", Some("ana")).await, "a secret that was valid");
        assert!(!test.is_done_at_once("new", "192.0.2.1", Some("ana")).await);
        // It has ended.
        assert!(test.is_done_at_once("good", "192.0.2.1", None).await);
        assert!(!test.is_done_at_once("good", "192.0.2.1", None).await);
        let end = Arc::clone(&crowd.end);
        drop(crowd);
        assert!(!test.is_done_at_once("new", "192.0.2.1", Some("ana")).await, "the database still reads");
        end.add_permits(1);
        assert!(test.is_done_at_once("new", "192.0.2.1", Some("ana")).await, "the turn is given back");
    }

    #[tokio::test]
    async fn a_user_has_one_secret_looked_up_at_an_address() {
        let test = Test::default();
        let secrets = names("good");
        for secret in &secrets {
            assert!(test.is_done_at_once(secret, "192.0.2.1", Some("eve")).await);
        }
        assert!(test.is_done_at_once("good", "192.0.2.1", Some("ana")).await);
        let _crowd = Crowd::begin(&test, &secrets).await;
        assert!(test.is_done_at_once("good", "192.0.2.1", Some("ana")).await, "another user");
        assert!(test.is_done_at_once("new", "192.0.2.1", Some("ben")).await, "a secret that was never seen");
        assert!(!test.is_done_at_once("good-0", "192.0.2.1", Some("eve")).await);
        assert!(test.is_done_at_once("good-0", "192.0.2.2", Some("eve")).await, "from another address");
    }

    /// A fleet may have one token.
    #[tokio::test]
    async fn requests_with_the_same_secret_share_lookups() {
        let test = Test::default();
        let secret = vec!["good".to_owned(); CROWD];
        let crowd = Crowd::begin(&test, &secret).await;
        crowd.end.add_permits(1);
        let begun = Arc::clone(&crowd.begun);
        let found = crowd.lookups.await;
        assert!(found.iter().all(|found| matches!(found, Ok(None))));
        assert_eq!(begun.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn valid_secrets_that_are_not_used_are_forgotten() {
        let mut valid = ValidSecrets::default();
        let ana = || Some("ana".to_owned());
        valid.note("used", ana());
        valid.note("unused", ana());
        for number in 0..3 * GENERATION {
            valid.note(&number.to_string(), ana());
            valid.note("used", ana());
            assert!(valid.recent.len() + valid.older.len() <= 2 * GENERATION);
        }
        assert_eq!((valid.user("used"), valid.user("unused")), (Some("ana"), None));
        valid.note("used", None);
        assert_eq!(valid.user("used"), None);
    }
}
