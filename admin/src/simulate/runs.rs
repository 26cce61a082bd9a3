//! Runs: one after the other on a thread of their own, in a queue that is bounded and of which each user has a share.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use tidegate::time::SECOND_NS;
use tidegate_replay::{Utc, compare::ComparisonResult};
use tokio::{sync::watch, time};

use crate::{
    auth::principal::Who,
    base::secrets::secret,
    domain::{error::Problem, privacy::Privacy},
    simulate::{
        execution::{Ended, Stop, answer, caught},
        question::{Prepare, Prepared},
        run::{Run, State},
        run_files::{self, DAYS_MAX, RUNS_MAX},
        time::now,
        uploads::Uploads,
    },
    store::data_directory::make_private,
};

/// The most runs that wait.
pub(crate) const QUEUE_MAX: usize = 8;
/// The most runs that have not ended of one user and the tokens that they made: one of each.
const RUNS_OF_USER: usize = 2;
const DAY_NS: u64 = 86_400 * SECOND_NS;
/// Between two looks for runs that are too old.
const TICK: Duration = Duration::from_hours(1);

/// All runs.
#[derive(Debug)]
pub(crate) struct Runs {
    folder: PathBuf,
    /// How identities are shown in what is found of recorded requests.
    privacy: Privacy,
    uploads: Arc<Uploads>,
    state: Mutex<Held>,
    /// What was found takes much memory until it is read: one at a time.
    reading: Mutex<()>,
    /// Something is other than before.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct Held {
    /// Oldest first.
    runs: Vec<(Run, Stop)>,
    /// Runs that are being prepared.
    coming: Vec<Coming>,
    queue: VecDeque<(String, Prepared)>,
    /// Somebody works off the queue.
    is_working: bool,
    thread: Option<JoinHandle<()>>,
    is_closed: bool,
    /// What was asked for last, so that a page after the other is quick.
    last: Option<(String, Arc<ComparisonResult>)>,
}

/// A run that is being prepared.
#[derive(Clone, Debug)]
struct Coming {
    id: String,
    author: String,
    /// The user who runs it, or who made the token that does.
    behind: String,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("runs", &self.runs.len()).finish_non_exhaustive()
    }
}

impl Held {
    /// Checks that there is room for one more run of this author, and of the user behind it.
    fn check_room(&self, author: &str, behind: &str) -> Result<(), Problem> {
        let going = self.runs.iter().map(|(run, _)| run).filter(|run| !run.state.is_over());
        let going = going.map(|run| (&run.author, &run.behind, &run.id));
        let going = going.chain(self.coming.iter().map(|coming| (&coming.author, &coming.behind, &coming.id)));
        let of_user: Vec<_> = going.filter(|(_, of, _)| *of == behind).collect();
        let of_author = of_user.iter().find(|(of, ..)| *of == author);
        let is_share_taken = of_user.len() >= RUNS_OF_USER;
        if let Some((.., id)) = of_author.or_else(|| of_user.first().filter(|_| is_share_taken)) {
            return Err(Problem::AlreadyRunning((*id).clone()));
        }
        if self.queue.len() + self.coming.len() >= QUEUE_MAX || self.is_closed {
            return Err(Problem::Busy("Enough runs wait; come again later."));
        }
        Ok(())
    }

    /// Returns the run that is forgotten first: of the runs that have ended, the oldest one of the user who has the most of them.
    /// Where several users have as many, it is the oldest of all theirs.
    fn first_to_go(&self) -> Option<usize> {
        let ended = || self.runs.iter().map(|(run, _)| run).filter(|run| run.state.is_over());
        let of = |user: &str| ended().filter(|run| run.behind == user).count();
        let most = ended().map(|run| of(&run.behind)).max()?;
        self.runs.iter().position(|(run, _)| run.state.is_over() && of(&run.behind) == most)
    }
}

/// A place in the queue, for a question that is still made ready: who has none need not try.
#[derive(Debug)]
pub(crate) struct Place {
    runs: Arc<Runs>,
    coming: Coming,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.runs.held().coming.retain(|coming| coming.id != self.coming.id);
    }
}

impl Place {
    /// Puts the run into the queue.
    pub(crate) fn fill(self, prepared: Prepared) -> Result<Run, Problem> {
        let runs = &self.runs;
        let mut held = runs.held();
        held.coming.retain(|coming| coming.id != self.coming.id);
        if held.is_closed {
            return Err(Problem::Busy("The server is being stopped."));
        }
        let Coming { id, author, behind } = self.coming.clone();
        let run = Run {
            id: id.clone(),
            author,
            behind,
            state: State::Queued,
            waits_for: None,
            created_at: now(),
            started_at: None,
            ended_at: None,
            policy_version: prepared.policy_version,
            asked: prepared.asked.clone(),
            keys: matches!(prepared.traffic, Prepare::Recorded { .. }).then_some(runs.privacy.keys),
            about: prepared.about.clone(),
            done: 0,
            of: prepared.of,
            at: None,
            error: None,
            summary: None,
        };
        held.runs.push((run, Stop::default()));
        held.queue.push_back((id.clone(), prepared));
        if !held.is_working {
            let worker = Arc::clone(runs);
            let thread = thread::Builder::new().name("what-if".to_owned()).spawn(move || worker.work());
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
        runs.changed.send_replace(());
        runs.run(&id).ok_or_else(|| Problem::Internal("a run is missing".to_owned()))
    }
}

impl Runs {
    /// With the runs that earlier processes kept in this folder, but for those of recorded requests that show identities
    /// more clearly than `privacy` has them shown.
    pub(crate) fn open(folder: PathBuf, privacy: Privacy, uploads: Arc<Uploads>) -> io::Result<Self> {
        make_private(&folder)?;
        let (runs, too_clear): (Vec<Run>, Vec<Run>) = run_files::read_all(&folder)?
            .into_iter()
            .partition(|run| run.about.recorded.is_none() || run.keys.is_some_and(|shown| shown >= privacy.keys));
        for run in &too_clear {
            run_files::remove(&folder, &run.id);
        }
        run_files::tidy(&folder)?;
        let held = Held { runs: runs.into_iter().map(|run| (run, Stop::default())).collect(), ..Held::default() };
        let (state, changed) = (Mutex::new(held), watch::Sender::new(()));
        let runs = Self { folder, privacy, uploads, state, reading: Mutex::default(), changed };
        runs.forget_old(&mut runs.held(), 0);
        Ok(runs)
    }

    /// Forgets runs that are too old, for ever.
    pub(crate) async fn run_out(&self) -> Infallible {
        let mut ticks = time::interval(TICK);
        loop {
            ticks.tick().await;
            self.forget_old(&mut self.held(), 0);
        }
    }

    /// Takes a place for one more.
    pub(crate) fn place(self: &Arc<Self>, who: &Who) -> Result<Place, Problem> {
        let id = secret().map_err(|error| Problem::Internal(error.to_string()))?[..16].to_owned();
        let mut held = self.held();
        self.forget_old(&mut held, 1);
        held.check_room(&who.name, &who.behind)?;
        let coming = Coming { id, author: who.name.clone(), behind: who.behind.clone() };
        held.coming.push(coming.clone());
        drop(held);
        Ok(Place { runs: Arc::clone(self), coming })
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
    pub(crate) fn outcome(&self, id: &str) -> io::Result<Arc<ComparisonResult>> {
        let last = || self.held().last.as_ref().filter(|(last, _)| last == id).map(|(_, outcome)| Arc::clone(outcome));
        if let Some(outcome) = last() {
            return Ok(outcome);
        }
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have read it by now.
        if let Some(outcome) = last() {
            return Ok(outcome);
        }
        let outcome = Arc::new(run_files::outcome(&self.folder, id)?);
        self.held().last = Some((id.to_owned(), Arc::clone(&outcome)));
        Ok(outcome)
    }

    /// Stops a run, if it has not ended, and answers it.
    pub(crate) fn stop(&self, id: &str) -> Option<Run> {
        let mut held = self.held();
        let (run, stop) = held.runs.iter_mut().find(|(run, _)| run.id == id)?;
        if !run.state.is_over() {
            // The thread looks at this many times in a millisecond; whoever asks is told at once.
            stop.store(true);
            run.end(State::Stopped, None);
            held.queue.retain(|(waiting, _)| waiting != id);
        }
        drop(held);
        self.changed.send_replace(());
        self.run(id)
    }

    /// Forgets a run that has ended. `None`: it is not there.
    pub(crate) fn forget(&self, id: &str) -> Option<Result<(), Problem>> {
        let mut held = self.held();
        let place = held.runs.iter().position(|(run, _)| run.id == id)?;
        let state = held.runs[place].0.state;
        if !state.is_over() {
            return Some(Err(Problem::NotEnded(state.name())));
        }
        held.runs.remove(place);
        held.last.take_if(|(last, _)| last == id);
        drop(held);
        run_files::remove(&self.folder, id);
        self.changed.send_replace(());
        Some(Ok(()))
    }

    /// Stops all and takes no more. Waits for the thread, which looks at whether to stop between some steps and whenever it
    /// reads or writes; only what is put together at the end of a run it finishes, at most a second or so.
    pub(crate) fn close(&self) {
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
    fn work(&self) {
        while let Some((id, prepared, stop)) = self.next() {
            let upload = match &prepared.traffic {
                Prepare::Log { upload, .. } => Some(upload.clone()),
                _ => None,
            };
            let ended = caught(|| self.found(&id, prepared, &stop));
            if let Some(upload) = upload {
                self.uploads.used(&upload);
            }
            self.end(&id, ended);
        }
    }

    /// The next run of the queue, which runs from now on.
    fn next(&self) -> Option<(String, Prepared, Stop)> {
        let mut held = self.held();
        loop {
            let Some((id, prepared)) = held.queue.pop_front() else {
                held.is_working = false;
                return None;
            };
            let Some((run, stop)) = held.runs.iter_mut().find(|(run, _)| run.id == id) else { continue };
            (run.state, run.started_at) = (State::Running, Some(now()));
            let stop = Arc::clone(stop);
            drop(held);
            self.changed.send_replace(());
            return Some((id, prepared, stop));
        }
    }

    /// Answers a question, and writes down what was found.
    fn found(&self, id: &str, prepared: Prepared, stop: &Stop) -> Result<(Run, ComparisonResult), Ended> {
        let (outcome, about) = answer(prepared, self.privacy, stop, |progress| {
            if let Some((run, _)) = self.held().runs.iter_mut().find(|(run, _)| run.id == id) {
                (run.done, run.at) = progress;
            }
            self.changed.send_replace(());
        })?;
        let mut run = self.run(id).filter(|run| !run.state.is_over()).ok_or(Ended::Stopped)?;
        run.about = about;
        run.end(State::Done, None);
        run.summary = Some(Arc::new(outcome.summary.clone()));
        match run_files::write(&self.folder, &run, &outcome, stop) {
            Ok(()) => Ok((run, outcome)),
            Err(_) if stop.load() => Err(Ended::Stopped),
            Err(error) => Err(Ended::Failed(format!("the result cannot be kept: {error}"))),
        }
    }

    fn end(&self, id: &str, ended: Result<(Run, ComparisonResult), Ended>) {
        let mut held = self.held();
        let run = held.runs.iter_mut().map(|(run, _)| run).find(|run| run.id == id && !run.state.is_over());
        match (ended, run) {
            (Ok((done, outcome)), Some(run)) => {
                *run = done;
                held.last = Some((id.to_owned(), Arc::new(outcome)));
            }
            (Err(Ended::Stopped), Some(run)) => run.end(State::Stopped, None),
            (Err(Ended::Failed(why)), Some(run)) => {
                tracing::warn!(id, why, "a run failed");
                run.end(State::Failed, Some(why));
            }
            // It was stopped while its result was put together.
            (_, None) => {}
        }
        let is_done = held.runs.iter().any(|(run, _)| run.id == id && run.state == State::Done);
        drop(held);
        if !is_done {
            run_files::remove(&self.folder, id);
        }
        self.changed.send_replace(());
    }

    /// Forgets runs that are too old, and makes room for so many more.
    fn forget_old(&self, held: &mut Held, more: usize) {
        let oldest = Utc(now().0.saturating_sub(DAYS_MAX * DAY_NS));
        held.runs.retain(|(run, _)| {
            let goes = run.state.is_over() && run.created_at < oldest;
            if goes {
                run_files::remove(&self.folder, &run.id);
            }
            !goes
        });
        while held.runs.len() + more > RUNS_MAX
            && let Some(index) = held.first_to_go()
        {
            run_files::remove(&self.folder, &held.runs.remove(index).0.id);
        }
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

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use tidegate_replay::traffic::TrafficPlan;

    use super::*;
    use crate::{base::secrets::SECRET_BYTES, domain::privacy::Keys, simulate::about_traffic::About};

    fn run(number: usize, state: State) -> (Run, Stop) {
        let run = Run {
            id: number.to_string(),
            author: format!("user{number}"),
            behind: format!("user{number}"),
            state,
            waits_for: None,
            created_at: now(),
            started_at: None,
            ended_at: None,
            policy_version: 1,
            asked: None,
            keys: None,
            about: About::default(),
            done: 0,
            of: 1,
            at: None,
            error: None,
            summary: None,
        };
        (run, Stop::default())
    }

    fn prepared() -> Prepared {
        let rows = serde_json::from_str(r#"[{ "rate": 1, "for": "1s" }]"#).expect("rows");
        let made = TrafficPlan::new(rows, "default").expect("right rows");
        Prepared {
            policies: [None, None],
            traffic: Prepare::Made { made, seed: 1, start: 0 },
            of: 1,
            room: 1,
            asked: None,
            policy_version: 1,
            about: About::default(),
        }
    }

    #[test]
    fn a_queue_has_a_bound_and_tells_who_comes_before() {
        let mut held = Held::default();
        held.runs.push(run(0, State::Running));
        for number in 1..=QUEUE_MAX {
            held.check_room(&format!("user{number}"), &format!("user{number}")).expect("there is room");
            held.runs.push(run(number, State::Queued));
            held.queue.push_back((number.to_string(), prepared()));
            let told = placed(&held, &held.runs[number].0);
            assert_eq!(told.waits_for, Some(number));
        }
        assert_eq!(placed(&held, &held.runs[0].0).waits_for, None);
        assert!(matches!(held.check_room("ana", "ana"), Err(Problem::Busy(_))));
        assert!(matches!(held.check_room("user3", "user3"), Err(Problem::AlreadyRunning(id)) if id == "3"));
        // What is being prepared has its place too.
        held.queue.pop_front();
        held.check_room("ana", "ana").expect("there is room");
        held.coming.push(coming("eve", "eve", "x"));
        assert!(matches!(held.check_room("ana", "ana"), Err(Problem::Busy(_))));
        assert!(matches!(held.check_room("eve", "eve"), Err(Problem::AlreadyRunning(id)) if id == "x"));
        // Who has ended may come again.
        held.coming.clear();
        held.runs[3].0.end(State::Done, None);
        held.check_room("user3", "user3").expect("it is over");
    }

    #[test]
    fn a_user_and_their_tokens_have_two_runs_and_leave_the_others_theirs() {
        let mut held = Held::default();
        for (author, id) in [("ana", "1"), ("token:ci", "2")] {
            held.check_room(author, "ana").expect("there is room");
            held.coming.push(coming(author, "ana", id));
        }
        for (author, id) in [("ana", "1"), ("token:ci", "2"), ("token:other", "1")] {
            let refused = held.check_room(author, "ana");
            assert!(matches!(&refused, Err(Problem::AlreadyRunning(of)) if of == id), "{author}: {refused:?}");
        }
        held.check_room("ben", "ben").expect("another user has their own share");
        held.coming.remove(0);
        held.check_room("token:other", "ana").expect("the room was given back");
    }

    #[test]
    fn a_user_who_asks_for_many_runs_loses_their_own() {
        let folder = TempDir::new().expect("a folder");
        let uploads = Arc::new(Uploads::open(folder.path().join("uploads")).expect("a folder"));
        let privacy = Privacy::new(Keys::default(), &[0; SECRET_BYTES]);
        let runs = Runs::open(folder.path().join("simulations"), privacy, uploads).expect("a folder");
        let mut held = runs.held();
        let add = |held: &mut Held, user: &str, count: usize| {
            for _ in 0..count {
                runs.forget_old(held, 1);
                let (mut run, stop) = run(held.runs.len(), State::Done);
                user.clone_into(&mut run.behind);
                held.runs.push((run, stop));
            }
        };
        let count = |held: &Held, user: &str| held.runs.iter().filter(|(run, _)| run.behind == user).count();
        add(&mut held, "ben", 2);
        add(&mut held, "mallory", 3 * RUNS_MAX);
        assert_eq!((count(&held, "ben"), count(&held, "mallory")), (2, RUNS_MAX - 2));
        // Another user has room until both have as many; then the oldest of all goes.
        add(&mut held, "ben", RUNS_MAX / 2 - 2);
        assert_eq!((count(&held, "ben"), count(&held, "mallory")), (RUNS_MAX / 2, RUNS_MAX / 2));
        runs.forget_old(&mut held, 1);
        assert_eq!((count(&held, "ben"), count(&held, "mallory")), (RUNS_MAX / 2 - 1, RUNS_MAX / 2));
        // A run that has not ended stays.
        held.runs.iter_mut().for_each(|(run, _)| run.state = State::Queued);
        runs.forget_old(&mut held, RUNS_MAX);
        assert_eq!(held.runs.len(), RUNS_MAX - 1);
    }

    fn coming(author: &str, behind: &str, id: &str) -> Coming {
        Coming { id: id.to_owned(), author: author.to_owned(), behind: behind.to_owned() }
    }
}
