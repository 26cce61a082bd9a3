//! Work that takes long for a large policy: beside the threads that answer, and little of it at a time, so that whoever
//! may look cannot take the machine from those who check and publish.

use std::{
    future::{Future, Ready, ready},
    marker::PhantomData,
    sync::Arc,
    time::Duration,
};

use actix_web::{FromRequest, HttpRequest, dev::Payload, rt, web::Data};
use serde::Serialize;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time::timeout,
};

use crate::{problem::Problem, server::State};

/// How much is done at a time.
const AT_ONCE: usize = 2;
/// How long work waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// The places for such work; an argument of handlers that have some.
#[derive(Clone, Debug)]
pub(crate) struct Heavy {
    places: Arc<Semaphore>,
    patience: Duration,
}

impl Default for Heavy {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(AT_ONCE)), patience: PATIENCE }
    }
}

/// A place for one piece of work. Whoever has it keeps it until the work is done, whether or not somebody still waits for it.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
}

/// What was made, as JSON already.
#[derive(Debug)]
pub(crate) struct Written<T> {
    pub(crate) text: String,
    of: PhantomData<fn() -> T>,
}

impl Heavy {
    /// Waits for a place.
    pub(crate) async fn place(&self) -> Result<Place, Problem> {
        let place = timeout(self.patience, Arc::clone(&self.places).acquire_owned()).await.ok().and_then(Result::ok);
        place
            .map(|permit| Place { _permit: permit })
            .ok_or(Problem::Busy("As much is worked on as may be at a time; come again."))
    }

    /// Does this work when it is its turn.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        self.place().await?.work(work).await
    }
}

impl Place {
    /// Does this work.
    pub(crate) async fn work<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
        self.step(work).await.map(|(_, done)| done)
    }

    /// Does this work, and keeps the place for more.
    pub(crate) async fn step<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(Self, T), Problem> {
        let done = spawn_blocking(move || {
            let done = work();
            (self, done)
        });
        done.await.map_err(|error| Problem::Internal(error.to_string()))
    }

    /// Makes something and writes it down.
    pub(crate) async fn write<T: Serialize + 'static>(
        self,
        make: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<Written<T>, Problem> {
        self.work(move || {
            let text = serde_json::to_string(&make()?).map_err(|error| Problem::Internal(error.to_string()))?;
            Ok(Written { text, of: PhantomData })
        })
        .await?
    }

    /// Waits for what does such work itself.
    pub(crate) async fn whole<T: 'static>(self, work: impl Future<Output = T> + 'static) -> Result<(Self, T), Problem> {
        let done = rt::spawn(async move { (self, work.await) });
        done.await.map_err(|error| Problem::Internal(error.to_string()))
    }
}

impl FromRequest for Heavy {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let state = request.app_data::<Data<State>>();
        ready(
            state.map(|state| state.heavy.clone()).ok_or_else(|| Problem::Internal("the state is missing".to_owned())),
        )
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    /// Who finds all places taken waits, and is told to come again; what is being done keeps its place.
    #[tokio::test]
    async fn so_much_is_done_at_a_time() {
        let heavy = Heavy { patience: Duration::from_millis(20), ..Heavy::default() };
        let (mut ends, mut going) = (Vec::new(), Vec::new());
        for _ in 0..AT_ONCE {
            let (end, ended) = oneshot::channel::<()>();
            ends.push(end);
            let mut work = Box::pin(heavy.work(move || ended.blocking_recv()));
            assert!(timeout(Duration::from_millis(1), &mut work).await.is_err(), "it goes on");
            going.push(work);
        }
        // Nobody waits for one of them any more.
        going.pop();
        assert!(matches!(heavy.work(|| ()).await, Err(Problem::Busy(_))));
        drop(ends);
        for work in going {
            assert!(work.await.is_ok());
        }
        assert!(heavy.work(|| ()).await.is_ok());
        let place = heavy.place().await.expect("a place");
        assert!(matches!(place.write(|| Ok(7)).await, Ok(written) if written.text == "7"));
    }
}
