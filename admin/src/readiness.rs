//! Is the server ready? It is while the policy that was published decides, and the database can be written: that is tried.

use std::time::Duration;

use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use crate::server::State;

/// A database that could be written is not tried again for so long.
const WELL_FOR: Duration = Duration::from_secs(5);
/// One that could not.
const ILL_FOR: Duration = Duration::from_secs(1);
/// How long a try may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the last try said, whoever asks.
#[derive(Debug, Default)]
pub(crate) struct Readiness(Mutex<Option<(Instant, Result<(), String>)>>);

impl Readiness {
    /// What keeps the server from being ready, in words.
    pub(crate) async fn check(&self, state: &State) -> Result<(), String> {
        let (stored, in_force) = (state.publisher.in_force().version.version, state.publisher.engine().version());
        if in_force == 0 {
            return Err("no policy is in force".to_owned());
        }
        if in_force < stored {
            return Err(format!(
                "policy version {stored} is published, and version {in_force} decides; restart the server"
            ));
        }
        // One try at a time: asking often costs the database nothing.
        let mut last = self.0.lock().await;
        if let Some((at, outcome)) = &*last
            && at.elapsed() < if outcome.is_ok() { WELL_FOR } else { ILL_FOR }
        {
            return outcome.clone();
        }
        let tried = timeout(PATIENCE, state.store.try_writing(state.figures.node(), crate::secrets::now())).await;
        let outcome = match tried {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(format!("the database cannot be written: {error}")),
            Err(_) => Err(format!("the database cannot be written: it takes more than {} s", PATIENCE.as_secs())),
        };
        *last = Some((Instant::now(), outcome.clone()));
        outcome
    }
}
