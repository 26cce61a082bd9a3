//! Reads of the database for calls that only look: one of each caller at a time, so that a user who reads on many connections has
//! one of the connections to the database. Long reads wait in [queues](crate::work_queue) instead.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    problem::Problem,
    user_turns::{UserTurn, UserTurns},
};

/// How long a read waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// The turns of [callers](crate::caller::name).
#[derive(Debug, Default)]
pub(crate) struct ReadTurns(UserTurns);

impl ReadTurns {
    /// Waits until the reads of this caller that came before are done.
    pub(crate) async fn turn(&self, caller: &str) -> Result<UserTurn, Problem> {
        let turn = self.0.turn(caller, Instant::now() + PATIENCE).await;
        turn.ok_or(Problem::Busy("Other reads of yours are not done yet; wait for their answers."))
    }
}
