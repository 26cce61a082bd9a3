//! What-if: what a policy would do to some traffic, beside another one, before anybody publishes it. Nothing here touches the
//! engine that decides.

mod ask;
mod kept;
mod preview;
mod runs;
mod uploads;

use jiff::Timestamp;
use tidegate_replay::Utc;

pub(crate) use self::{
    ask::{Ask, prepare},
    kept::{DAYS_MAX, RUNS_MAX},
    preview::{PreviewAnswer, PreviewAsk, show},
    runs::{QUEUE_MAX, Run, Runs, State},
    uploads::{BYTES_MAX, LINES_MAX, PLAIN_BYTES_MAX, UPLOADS_MAX, Upload, Uploads},
};

/// Now, to the millisecond.
fn now() -> Utc {
    Utc(u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default() * 1_000_000)
}
