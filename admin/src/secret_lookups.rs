//! Lookups of tokens and sessions in the database: those of secrets that may be made up take turns by client address, so that a
//! stranger has one of the connections to the database at a time.

use std::{
    collections::HashSet,
    future::Future,
    mem,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{addresses::network, problem::Problem, user_turns::UserTurns};

/// How many valid secrets are remembered in a generation.
const GENERATION: usize = 5_000;
/// How long a lookup waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// The turns of addresses, and the secrets that need none. A secret that was valid is looked up at once, so strangers behind the
/// same address do not delay it. It is looked up all the same, since it may have ended.
#[derive(Debug, Default)]
pub(crate) struct SecretLookups {
    turns: UserTurns,
    valid: Mutex<ValidSecrets>,
}

/// SHA-256 of secrets that were valid when they were looked up last. Those that were not used for a while are forgotten with the
/// older generation. Only a caller with valid secrets adds any.
#[derive(Debug, Default)]
struct ValidSecrets {
    recent: HashSet<String>,
    older: HashSet<String>,
}

impl ValidSecrets {
    fn has(&self, sha256: &str) -> bool {
        self.recent.contains(sha256) || self.older.contains(sha256)
    }

    fn note(&mut self, sha256: &str, is_valid: bool) {
        if !is_valid {
            self.recent.remove(sha256);
            self.older.remove(sha256);
        } else if !self.recent.contains(sha256) {
            if self.recent.len() >= GENERATION {
                self.older = mem::take(&mut self.recent);
            }
            self.recent.insert(sha256.to_owned());
        }
    }
}

impl SecretLookups {
    /// Looks a secret from this address up with `read`: at once, if it was valid before, or else when it is the address's turn.
    pub(crate) async fn find<T>(
        &self,
        sha256: &str,
        address: &str,
        read: impl Future<Output = sqlx::Result<Option<T>>>,
    ) -> Result<Option<T>, Problem> {
        let _turn = if self.valid().has(sha256) {
            None
        } else {
            // Of IPv6, a client has 64 bits.
            let turn = self.turns.turn(&network(address, 64), Instant::now() + PATIENCE).await;
            Some(turn.ok_or(Problem::Busy("Too many tokens and sessions from your address wait to be looked up."))?)
        };
        let found = read.await?;
        self.valid().note(sha256, found.is_some());
        Ok(found)
    }

    fn valid(&self) -> std::sync::MutexGuard<'_, ValidSecrets> {
        // Nothing in there panics.
        self.valid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::timeout;

    use super::*;

    const CROWD: usize = 100;

    /// Returns whether a lookup is done without waiting for any other.
    async fn is_done_at_once(lookups: &SecretLookups, sha256: &str, address: &str, found: Option<()>) -> bool {
        let lookup = lookups.find(sha256, address, ready(Ok(found)));
        matches!(timeout(Duration::ZERO, lookup).await, Ok(Ok(answer)) if answer == found)
    }

    #[tokio::test]
    async fn an_address_has_one_secret_looked_up_that_may_be_made_up() {
        let lookups = SecretLookups::default();
        assert!(is_done_at_once(&lookups, "good", "192.0.2.1", Some(())).await);
        let begun = Mutex::new(0);
        let never = async || {
            *begun.lock().expect("whole") += 1;
            pending::<sqlx::Result<Option<()>>>().await
        };
        let names: Vec<String> = (0..CROWD).map(|number| format!("wrong-{number}")).collect();
        let mut crowd: Vec<_> = names.iter().map(|name| Box::pin(lookups.find(name, "192.0.2.1", never()))).collect();
        for lookup in &mut crowd {
            assert!(timeout(Duration::ZERO, lookup).await.is_err(), "it waits");
        }
        assert_eq!(*begun.lock().expect("whole"), 1, "the database is asked for one");
        assert!(is_done_at_once(&lookups, "wrong", "192.0.2.2", None).await, "another address");
        assert!(is_done_at_once(&lookups, "good", "192.0.2.1", Some(())).await, "a secret that was valid");
        assert!(!is_done_at_once(&lookups, "new", "192.0.2.1", Some(())).await);
        // It has ended.
        assert!(is_done_at_once(&lookups, "good", "192.0.2.1", None).await);
        assert!(!is_done_at_once(&lookups, "good", "192.0.2.1", None).await);
        drop(crowd);
        assert!(is_done_at_once(&lookups, "new", "192.0.2.1", Some(())).await, "the turn is given back");
    }

    #[test]
    fn valid_secrets_that_are_not_used_are_forgotten() {
        let mut valid = ValidSecrets::default();
        valid.note("used", true);
        valid.note("unused", true);
        for number in 0..3 * GENERATION {
            valid.note(&number.to_string(), true);
            valid.note("used", true);
            assert!(valid.recent.len() + valid.older.len() <= 2 * GENERATION);
        }
        assert!(valid.has("used") && !valid.has("unused"));
        valid.note("used", false);
        assert!(!valid.has("used"));
    }
}
