//! Is the server ready? It is while the policy that was published decides, and the database can be written: that is tried.

use std::time::Duration;

use tidegate_listener::SharedAnswer;
use tokio::time::timeout;

use crate::{base::secrets::now, publish::publisher::Publisher, store::database::Store};

/// A database that could be written is not tried again for so long.
const WELL_FOR: Duration = Duration::from_secs(5);
/// One that could not.
const ILL_FOR: Duration = Duration::from_secs(1);
/// How long a try may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The outcome of the last try, which all who ask are told.
#[derive(Debug, Default)]
pub(crate) struct Readiness(SharedAnswer<Result<(), String>>);

impl Readiness {
    /// What keeps the server from being ready, in words.
    pub(crate) async fn check(&self, publisher: &Publisher, store: &Store, node: &str) -> Result<(), String> {
        let (stored, in_force) = (publisher.in_force().version.version, publisher.engine().version());
        if in_force == 0 {
            return Err("no policy is in force".to_owned());
        }
        if in_force < stored {
            return Err(format!(
                "policy version {stored} is published, and version {in_force} decides; restart the server"
            ));
        }
        // One try at a time: asking often costs the database nothing.
        let try_writing = || {
            let (store, node) = (store.clone(), node.to_owned());
            async move {
                match timeout(PATIENCE, store.try_writing(&node, now())).await {
                    Ok(Ok(())) => Ok(()),
                    Ok(Err(error)) => Err(format!("the database cannot be written: {error}")),
                    Err(_) => {
                        Err(format!("the database cannot be written: it takes more than {} s", PATIENCE.as_secs()))
                    }
                }
            }
        };
        let is_fresh = |age, outcome: &Result<(), String>| age < if outcome.is_ok() { WELL_FOR } else { ILL_FOR };
        let tried = self.0.get(is_fresh, try_writing).await;
        tried.unwrap_or_else(|| Err("the database could not be tried: the log says why".to_owned()))
    }
}
