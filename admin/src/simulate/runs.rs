//! Runs: one after the other on a thread of their own, one at a time for each user, in a queue that is bounded.

use std::{
    collections::VecDeque,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use actix_web::web::Data;
use crossbeam_utils::atomic::AtomicCell;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate::time::SECOND_NS;
use tidegate_replay::{
    Utc,
    compare::{Compare, Outcome, Summary},
    traffic::{LogTraffic, MadeTraffic, RecordedTraffic, Traffic},
};
use tokio::{sync::watch, time::Instant};

use super::{
    ask::{Prepare, Prepared},
    kept::{self, DAYS_MAX, RUNS_MAX},
    now,
};
use crate::{folder::make_private, problem::Problem, recorder::Recorded, secrets::secret, server};

/// The most runs that wait.
pub(crate) const QUEUE_MAX: usize = 8;
const DAY_NS: u64 = 86_400 * SECOND_NS;
/// Between two words about progress.
const TELL: Duration = Duration::from_millis(250);
/// Steps between two looks at the clock, and at whether to stop: well below a millisecond.
const STEPS: usize = 256;

/// Where a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RunState")]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Queued,
    Running,
    Done,
    Stopped,
    Failed,
}

impl State {
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Stopped | Self::Failed)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

/// A run, as it is told.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Run {
    pub(crate) id: String,
    /// Who asked.
    pub(crate) author: String,
    pub(crate) state: State,
    /// How many runs come before it, while it waits.
    pub(crate) waits_for: Option<usize>,
    pub(crate) created_at: Utc,
    started_at: Option<Utc>,
    ended_at: Option<Utc>,
    /// The version that was in force when it was asked for.
    policy_version: u64,
    /// The question, to be asked again; none where it is too long to be kept.
    #[schemars(with = "Option<super::Ask>")]
    asked: Option<Value>,
    about: About,
    /// Requests so far.
    pub(crate) done: u64,
    /// About how many there are.
    pub(crate) of: u64,
    /// The time that it has come to on its own clock.
    pub(crate) at: Option<Utc>,
    /// Why it failed.
    pub(crate) error: Option<String>,
    /// What was found, in short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) summary: Option<Summary>,
}

/// What is known of a run's traffic beside.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AboutTraffic")]
pub(crate) struct About {
    /// Lines of the log that were left out, because they could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<u64>,
    /// Requests of the log that came too late for their place in time, and were asked at the newest one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) late: Option<u64>,
    /// Did made-up traffic end early, because more requests do not fit?
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cut: Option<bool>,
    /// What the recorder had kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) recorded: Option<Recorded>,
}

/// All runs.
#[derive(Debug)]
pub(crate) struct Runs {
    folder: PathBuf,
    state: Mutex<Held>,
    /// Something is other than before.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct Held {
    /// Oldest first.
    runs: Vec<(Run, Arc<AtomicCell<bool>>)>,
    queue: VecDeque<(String, Prepared)>,
    /// Somebody works off the queue.
    is_working: bool,
    thread: Option<JoinHandle<()>>,
    is_closed: bool,
    /// What was asked for last, so that a page after the other is quick.
    last: Option<(String, Arc<Outcome>)>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("runs", &self.runs.len()).finish_non_exhaustive()
    }
}

/// How a run ends that is not done.
enum Ended {
    Stopped,
    Failed(String),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Failed(format!("the log cannot be read to its end: {error}"))
    }
}

impl Runs {
    /// With the runs that earlier processes kept in this folder.
    pub(crate) fn open(folder: PathBuf) -> io::Result<Self> {
        make_private(&folder)?;
        let runs = kept::read_all(&folder)?.into_iter().map(|run| (run, Arc::default())).collect();
        let held = Held { runs, ..Held::default() };
        Ok(Self { folder, state: Mutex::new(held), changed: watch::Sender::new(()) })
    }

    /// Puts a run into the queue.
    pub(crate) fn add(&self, server: &Data<server::State>, author: String, prepared: Prepared) -> Result<Run, Problem> {
        let id = secret().map_err(|error| Problem::Internal(error.to_string()))?[..16].to_owned();
        let mut held = self.held();
        self.forget_old(&mut held);
        if let Some((run, _)) = held.runs.iter().find(|(run, _)| run.author == author && !run.state.is_over()) {
            return Err(Problem::AlreadyRunning(run.id.clone()));
        }
        if held.queue.len() >= QUEUE_MAX || held.is_closed {
            return Err(Problem::Busy("Enough runs wait; come again later."));
        }
        let run = Run {
            id: id.clone(),
            author,
            state: State::Queued,
            waits_for: None,
            created_at: now(),
            started_at: None,
            ended_at: None,
            policy_version: prepared.policy_version,
            asked: prepared.asked.clone(),
            about: prepared.about.clone(),
            done: 0,
            of: prepared.of,
            at: None,
            error: None,
            summary: None,
        };
        held.runs.push((run, Arc::default()));
        held.queue.push_back((id.clone(), prepared));
        if !held.is_working {
            let server = server.clone();
            let thread = thread::Builder::new().name("what-if".to_owned()).spawn(move || server.runs.work(&server));
            match thread {
                Ok(thread) => (held.is_working, held.thread) = (true, Some(thread)),
                Err(error) => {
                    held.runs.pop();
                    held.queue.pop_back();
                    return Err(Problem::Internal(format!("no thread for a run: {error}")));
                }
            }
        }
        drop(held);
        self.changed.send_replace(());
        self.run(&id).ok_or_else(|| Problem::Internal("a run is missing".to_owned()))
    }

    /// Newest first, without what they found.
    pub(crate) fn all(&self) -> Vec<Run> {
        let held = self.held();
        let told = |(run, _): &(Run, _)| Run { summary: None, ..placed(&held, run) };
        held.runs.iter().rev().map(told).collect()
    }

    pub(crate) fn run(&self, id: &str) -> Option<Run> {
        let held = self.held();
        held.runs.iter().find(|(run, _)| run.id == id).map(|(run, _)| placed(&held, run))
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// What a run found, from its file. It takes a while.
    pub(crate) fn outcome(&self, id: &str) -> io::Result<Arc<Outcome>> {
        if let Some((_, outcome)) = self.held().last.as_ref().filter(|(last, _)| last == id) {
            return Ok(Arc::clone(outcome));
        }
        let outcome = Arc::new(kept::outcome(&self.folder, id)?);
        self.held().last = Some((id.to_owned(), Arc::clone(&outcome)));
        Ok(outcome)
    }

    /// Stops a run that has not ended, and answers it; forgets one that has.
    pub(crate) fn end(&self, id: &str) -> Option<Run> {
        let mut held = self.held();
        let place = held.runs.iter().position(|(run, _)| run.id == id)?;
        let (run, stop) = &mut held.runs[place];
        if run.state.is_over() {
            let (mut run, _) = held.runs.remove(place);
            held.last.take_if(|(last, _)| last == id);
            drop(held);
            kept::remove(&self.folder, id);
            run.summary = None;
            return Some(run);
        }
        // The thread looks at this many times in a millisecond; whoever asks is told at once.
        stop.store(true);
        (run.state, run.ended_at) = (State::Stopped, Some(now()));
        let run = run.clone();
        held.queue.retain(|(waiting, _)| waiting != id);
        drop(held);
        self.changed.send_replace(());
        Some(run)
    }

    /// Stops all and takes no more. Waits for the thread, which takes some milliseconds.
    pub(crate) fn stop(&self) {
        let mut held = self.held();
        held.is_closed = true;
        held.queue.clear();
        held.runs.iter().for_each(|(_, stop)| stop.store(true));
        let thread = held.thread.take();
        drop(held);
        // What it may have panicked with was written to the log.
        thread.map(JoinHandle::join);
    }

    /// Works off the queue.
    fn work(&self, server: &server::State) {
        loop {
            let mut held = self.held();
            let Some((id, prepared)) = held.queue.pop_front() else {
                held.is_working = false;
                return;
            };
            let Some((run, stop)) = held.runs.iter_mut().find(|(run, _)| run.id == id) else { continue };
            (run.state, run.started_at) = (State::Running, Some(now()));
            let stop = Arc::clone(stop);
            drop(held);
            self.changed.send_replace(());
            let upload = match &prepared.traffic {
                Prepare::Log { upload, .. } => Some(upload.clone()),
                _ => None,
            };
            let answer = self.answer(&id, prepared, server, &stop);
            if let Some(upload) = upload {
                server.uploads.used(&upload);
            }
            self.close(&id, answer);
        }
    }

    /// Answers one question.
    fn answer(
        &self,
        id: &str,
        prepared: Prepared,
        server: &server::State,
        stop: &AtomicCell<bool>,
    ) -> Result<Outcome, Ended> {
        let Prepared { policies, traffic, room, .. } = prepared;
        let mut compare = Compare::new(policies, room).map_err(|error| Ended::Failed(error.to_string()))?;
        let mut source = match traffic {
            Prepare::Made { made, seed, start } => Source::Made(made.traffic(start, seed)),
            Prepare::Log { file, format, domain, .. } => Source::Log(Box::new(LogTraffic::new(file, format, &domain)?)),
            Prepare::Recorded { records, sample } => {
                if let Some(sample) = sample {
                    compare = compare.of_sample(Box::new(move |kind, value| sample.has(kind, value)));
                }
                Source::Recorded(RecordedTraffic::new(records))
            }
        };
        let (mut at, mut told, mut go) = (None, Instant::now(), true);
        while go {
            for _ in 0..STEPS {
                go = source.traffic().step(&mut |now, request| {
                    at = Some(Utc(now));
                    compare.ask(now, request)
                })?;
                if !go {
                    break;
                }
            }
            if stop.load() {
                return Err(Ended::Stopped);
            }
            if told.elapsed() >= TELL {
                told = Instant::now();
                self.change(id, |run| (run.done, run.at) = (compare.requests(), at));
                self.changed.send_replace(());
            }
        }
        self.change(id, |run| (run.done, run.at) = (compare.requests(), at));
        // Somebody's own rows and files are told as they are.
        let is_others = matches!(source, Source::Recorded(_));
        let privacy = server.privacy;
        let show = move |kind: &str, value: &str, number| {
            if is_others { privacy.key(kind, value, number) } else { format!("{kind}:{value}") }
        };
        self.change(id, |run| source.tell(&mut run.about));
        Ok(compare.finish(show))
    }

    fn close(&self, id: &str, answer: Result<Outcome, Ended>) {
        let over = |run: &mut Run, state, error| {
            (run.state, run.error, run.ended_at) = (state, error, Some(now()));
        };
        let done = match answer {
            Ok(outcome) => {
                let Some(mut run) = self.run(id).filter(|run| !run.state.is_over()) else { return };
                over(&mut run, State::Done, None);
                run.summary = Some(outcome.summary.clone());
                kept::write(&self.folder, &run, &outcome)
                    .map(|()| (run, outcome))
                    .map_err(|error| Ended::Failed(format!("the result cannot be kept: {error}")))
            }
            Err(ended) => Err(ended),
        };
        let mut held = self.held();
        let place = held.runs.iter().position(|(run, _)| run.id == id);
        match (done, place.map(|place| &mut held.runs[place].0).filter(|run| !run.state.is_over())) {
            (Ok((done, outcome)), Some(run)) => {
                *run = done;
                held.last = Some((id.to_owned(), Arc::new(outcome)));
            }
            // It was stopped or forgotten while its result was put together.
            (Ok(_), None) => kept::remove(&self.folder, id),
            (Err(Ended::Stopped), Some(run)) => over(run, State::Stopped, None),
            (Err(Ended::Failed(why)), Some(run)) => {
                tracing::warn!(id, why, "a run failed");
                over(run, State::Failed, Some(why));
            }
            (Err(_), None) => {}
        }
        drop(held);
        self.changed.send_replace(());
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut Run)) {
        if let Some((run, _)) = self.held().runs.iter_mut().find(|(run, _)| run.id == id) {
            change(run);
        }
    }

    /// Forgets runs that are too old, and the oldest where there are too many.
    fn forget_old(&self, held: &mut Held) {
        let oldest = Utc(now().0.saturating_sub(DAYS_MAX * DAY_NS));
        let mut surplus = (held.runs.len() + 1).saturating_sub(RUNS_MAX);
        held.runs.retain(|(run, _)| {
            let goes = run.state.is_over() && (surplus > 0 || run.created_at < oldest);
            if goes {
                surplus = surplus.saturating_sub(1);
                kept::remove(&self.folder, &run.id);
            }
            !goes
        });
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // Nothing in here panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A run with its place in the queue.
fn placed(held: &Held, run: &Run) -> Run {
    let place = held.queue.iter().position(|(id, _)| *id == run.id);
    let is_busy = held.runs.iter().any(|(run, _)| run.state == State::Running);
    Run { waits_for: place.map(|place| place + usize::from(is_busy)), ..run.clone() }
}

/// Where requests come from.
enum Source {
    Made(MadeTraffic),
    Log(Box<LogTraffic<'static>>),
    Recorded(RecordedTraffic),
}

impl Source {
    fn traffic(&mut self) -> &mut dyn Traffic {
        match self {
            Self::Made(made) => made,
            Self::Log(log) => &mut **log,
            Self::Recorded(recorded) => recorded,
        }
    }

    /// Says at the end what is to be said of it.
    fn tell(&self, about: &mut About) {
        match self {
            Self::Made(made) => about.cut = Some(made.is_cut()),
            Self::Log(log) => about.late = Some(log.late()),
            Self::Recorded(_) => {}
        }
    }
}
