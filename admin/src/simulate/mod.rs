//! What-if: what a policy would do to some traffic, beside another one, before anybody publishes it. Nothing here touches the
//! engine that decides.

pub(crate) mod description;
pub(crate) mod execution;
pub(crate) mod preview;
pub(crate) mod question;
pub(crate) mod recorder;
pub(crate) mod run;
pub(crate) mod run_files;
pub(crate) mod runs;
pub(crate) mod uploads;

use actix_web::web::Data;
use jiff::Timestamp;
use tidegate_replay::Utc;

use self::{question::Ask, run::Run, runs::Runs};
use crate::{
    app,
    domain::error::Problem,
    http::{extract::body::Files, guard::Who},
};

/// Puts a run into the queue. Its place there is taken before the question is read.
pub(crate) async fn start(state: &Data<app::State>, who: &Who, question: Files<Ask>) -> Result<Run, Problem> {
    let place = Runs::place(state, who)?;
    let question = question.receive(state, &who.behind).await?;
    let (heavy, ask) = state.heavy.of(&who.behind).place().await?.step(move || question.read()).await?;
    place.fill(question::prepare(state.clone(), heavy, ask?).await?)
}

/// Now, to the millisecond.
fn now() -> Utc {
    Utc(u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default() * 1_000_000)
}
