//! Reads of the database for calls that only look: one of each caller at a time, so that a user who reads on many connections has
//! one of the connections to the database. Long reads wait in [queues](crate::capacity::work_queue) instead.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    base::{
        caller,
        user_turns::{CallerTurn, CallerTurns},
    },
    domain::error::Problem,
};

/// How long a read waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// The turns of [callers](caller::name).
#[derive(Debug, Default)]
pub(crate) struct ReadTurns(CallerTurns);

impl ReadTurns {
    /// Waits until the reads that came before are done of the caller for whom this task works. Work of the server itself has no
    /// turn.
    pub(crate) async fn turn(&self) -> Result<Option<CallerTurn>, Problem> {
        match caller::present() {
            Some(caller) => self.turn_of(&caller).await.map(Some),
            None => Ok(None),
        }
    }

    /// Waits until the reads of this caller that came before are done.
    pub(crate) async fn turn_of(&self, caller: &str) -> Result<CallerTurn, Problem> {
        let turn = self.0.turn(caller, Instant::now() + PATIENCE).await;
        turn.ok_or(Problem::Busy("Other reads of yours are not done yet; wait for their answers."))
    }
}
