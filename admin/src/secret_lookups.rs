//! Lookups of tokens and sessions in the database take turns: those of secrets that may be made up by client address, others by
//! user and address. So each of them has one of the connections to the database at a time.

use std::{
    collections::HashMap,
    future::Future,
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use actix_web::rt;
use tokio::{select, sync::oneshot, time::Instant};

use crate::{caller, problem::Problem, user_turns::UserTurns};

/// How many valid secrets are remembered in a generation.
const GENERATION: usize = 5_000;
/// How long a lookup waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// The turns of users and addresses, and the users of secrets that were valid. A secret that was valid waits for those of its
/// user only, so strangers behind the same address do not delay it. It is looked up all the same, since it may have ended.
#[derive(Debug, Default)]
pub(crate) struct SecretLookups {
    turns: Arc<UserTurns>,
    valid: Mutex<ValidSecrets>,
}

/// SHA-256 of secrets that were valid when they were looked up last, and their users. Those that were not used for a while are
/// forgotten with the older generation. Only a caller with valid secrets adds any.
#[derive(Debug, Default)]
struct ValidSecrets {
    recent: HashMap<String, String>,
    older: HashMap<String, String>,
}

impl ValidSecrets {
    fn user(&self, sha256: &str) -> Option<&String> {
        self.recent.get(sha256).or_else(|| self.older.get(sha256))
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
    /// Looks a secret from this address up with `read`, in the turn of the user whose it was, or else of a stranger. `user` returns
    /// the user of what was found.
    pub(crate) async fn find<T: 'static>(
        &self,
        sha256: &str,
        address: &str,
        read: impl Future<Output = sqlx::Result<Option<T>>> + 'static,
        user: impl FnOnce(&T) -> String,
    ) -> Result<Option<T>, Problem> {
        let name = caller::name(self.valid().user(sha256).map(String::as_str), address);
        let (turns, end) = (Arc::clone(&self.turns), Instant::now() + PATIENCE);
        let (mut answer, answered) = oneshot::channel();
        // A task of its own: the turn is handed on without waiting for the connections of a peer to have theirs, and where the
        // caller disconnects it is kept until the database has read.
        rt::spawn(async move {
            let turn = select! {
                turn = turns.turn(&name, end) => turn,
                () = answer.closed() => return,
            };
            let found = match turn {
                Some(_turn) => read.await.map_err(Problem::from),
                None => Err(Problem::Busy("Too many tokens and sessions of yours wait to be looked up; come again.")),
            };
            // Ignores send errors: the caller may have disconnected.
            let _ = answer.send(found);
        });
        let found = answered.await.map_err(|error| Problem::Internal(error.to_string()))??;
        self.valid().note(sha256, found.as_ref().map(user));
        Ok(found)
    }

    fn valid(&self) -> std::sync::MutexGuard<'_, ValidSecrets> {
        // Nothing in there panics.
        self.valid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::ready,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use actix_web::rt::System;
    use tokio::{sync::Notify, task::yield_now, time::timeout};

    use super::*;

    const CROWD: usize = 100;
    /// Turns of all tasks, of which a lookup that waits for nothing needs two.
    const TURNS_OF_TASKS: usize = 20;

    /// Returns whether a lookup is done without waiting for any other. `Some`: the secret is one of that user.
    async fn is_done_at_once(lookups: &SecretLookups, sha256: &str, address: &str, user: Option<&str>) -> bool {
        let found = user.map(str::to_owned);
        let mut lookup = Box::pin(lookups.find(sha256, address, ready(Ok(found.clone())), String::clone));
        for _ in 0..TURNS_OF_TASKS {
            if let Ok(answer) = timeout(Duration::ZERO, &mut lookup).await {
                assert_eq!(answer.expect("it is read"), found);
                return true;
            }
            yield_now().await;
        }
        false
    }

    /// A lookup of each of these secrets begins, and ends with `end`. Holds that the database is asked for the first one only.
    async fn crowd<'a>(
        lookups: &'a SecretLookups,
        secrets: &'a [String],
        end: &'a Arc<Notify>,
    ) -> Vec<impl Future + Unpin + 'a> {
        let begun = Arc::new(AtomicUsize::new(0));
        let lookup = |secret: &'a String| {
            let (begun, end) = (Arc::clone(&begun), Arc::clone(end));
            let read = async move {
                begun.fetch_add(1, Ordering::Relaxed);
                end.notified().await;
                Ok(None)
            };
            Box::pin(lookups.find(secret, "192.0.2.1", read, String::clone))
        };
        let mut crowd: Vec<_> = secrets.iter().map(lookup).collect();
        for lookup in &mut crowd {
            assert!(timeout(Duration::ZERO, lookup).await.is_err(), "it waits");
        }
        for _ in 0..TURNS_OF_TASKS {
            yield_now().await;
        }
        assert_eq!(begun.load(Ordering::Relaxed), 1, "the database is asked for one");
        crowd
    }

    #[test]
    fn an_address_has_one_secret_looked_up_that_may_be_made_up() {
        System::new().block_on(look_up_made_up_secrets());
    }

    async fn look_up_made_up_secrets() {
        let lookups = SecretLookups::default();
        assert!(is_done_at_once(&lookups, "good", "192.0.2.1", Some("ana")).await);
        let secrets: Vec<String> = (0..CROWD).map(|number| format!("wrong-{number}")).collect();
        let end = Arc::default();
        let crowd = crowd(&lookups, &secrets, &end).await;
        assert!(is_done_at_once(&lookups, "wrong", "192.0.2.2", None).await, "another address");
        assert!(is_done_at_once(&lookups, "good", "192.0.2.1", Some("ana")).await, "a secret that was valid");
        assert!(!is_done_at_once(&lookups, "new", "192.0.2.1", Some("ana")).await);
        // It has ended.
        assert!(is_done_at_once(&lookups, "good", "192.0.2.1", None).await);
        assert!(!is_done_at_once(&lookups, "good", "192.0.2.1", None).await);
        drop(crowd);
        assert!(!is_done_at_once(&lookups, "new", "192.0.2.1", Some("ana")).await, "the database still reads");
        end.notify_waiters();
        assert!(is_done_at_once(&lookups, "new", "192.0.2.1", Some("ana")).await, "the turn is given back");
    }

    #[test]
    fn a_user_has_one_secret_looked_up_at_an_address() {
        System::new().block_on(look_up_secrets_of_a_user());
    }

    async fn look_up_secrets_of_a_user() {
        let lookups = SecretLookups::default();
        let secrets: Vec<String> = (0..CROWD).map(|number| format!("good-{number}")).collect();
        for secret in &secrets {
            assert!(is_done_at_once(&lookups, secret, "192.0.2.1", Some("eve")).await);
        }
        assert!(is_done_at_once(&lookups, "good", "192.0.2.1", Some("ana")).await);
        let end = Arc::default();
        let _crowd = crowd(&lookups, &secrets, &end).await;
        assert!(is_done_at_once(&lookups, "good", "192.0.2.1", Some("ana")).await, "another user");
        assert!(is_done_at_once(&lookups, "new", "192.0.2.1", Some("ben")).await, "a secret that was never seen");
        assert!(!is_done_at_once(&lookups, "good-0", "192.0.2.1", Some("eve")).await);
        assert!(is_done_at_once(&lookups, "good-0", "192.0.2.2", Some("eve")).await, "from another address");
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
        assert_eq!((valid.user("used"), valid.user("unused")), (ana().as_ref(), None));
        valid.note("used", None);
        assert_eq!(valid.user("used"), None);
    }
}
