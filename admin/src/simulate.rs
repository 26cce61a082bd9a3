//! What-if: what a policy would do to some traffic, beside another one, before anybody publishes it. Nothing here touches the
//! engine that decides.

mod answer;
mod ask;
mod kept;
mod preview;
mod run;
mod runs;
mod uploads;
mod words;

use actix_web::web::Data;
use jiff::Timestamp;
use tidegate_replay::Utc;

pub(crate) use self::{
    ask::Ask,
    kept::{DAYS_MAX, RUNS_MAX},
    preview::{PreviewAnswer, PreviewAsk, show},
    run::{Run, State},
    runs::{QUEUE_MAX, Runs},
    uploads::{BYTES_MAX, LINES_MAX, PLAIN_BYTES_MAX, UPLOADS_MAX, Upload, Uploads},
    words::bound,
};

use crate::{access::Who, body::Files, problem::Problem, server};

/// Puts a run into the queue. Its place there is taken before the question is read.
pub(crate) async fn start(state: &Data<server::State>, who: &Who, question: Files<Ask>) -> Result<Run, Problem> {
    let place = Runs::place(state, who)?;
    let question = question.receive(state, &who.behind).await?;
    let (heavy, ask) = state.heavy.of(&who.behind).place().await?.step(move || question.read()).await?;
    place.fill(ask::prepare(state.clone(), heavy, ask?).await?)
}

/// Now, to the millisecond.
fn now() -> Utc {
    Utc(u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default() * 1_000_000)
}
