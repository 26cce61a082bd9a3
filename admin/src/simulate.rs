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

use crate::{problem::Problem, server};

/// Puts a run into the queue. The place is taken before anything is worked out.
pub(crate) async fn start(state: &Data<server::State>, author: String, ask: Ask) -> Result<Run, Problem> {
    let place = Runs::place(state, author)?;
    place.fill(ask::prepare(state.clone(), ask).await?)
}

/// Now, to the millisecond.
fn now() -> Utc {
    Utc(u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default() * 1_000_000)
}
