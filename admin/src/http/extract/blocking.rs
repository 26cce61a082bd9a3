//! The caller's place in a queue of long work, as an argument of handlers.

use std::{
    future::{Ready, ready},
    sync::Arc,
};

use actix_web::{FromRequest, HttpRequest, dev::Payload, web::Data};

use crate::{
    base::caller,
    capacity::work_queue::{CallerWork, HeavyQueue, QueryQueue, WorkQueue},
    domain::error::Problem,
    http::{client_address::address, guard::sender, state::State},
};

/// A queue of the server.
pub(crate) trait Queue {
    fn of(state: &State) -> &Arc<WorkQueue>;
}

impl Queue for HeavyQueue {
    fn of(state: &State) -> &Arc<WorkQueue> {
        &state.heavy
    }
}

impl Queue for QueryQueue {
    fn of(state: &State) -> &Arc<WorkQueue> {
        &state.queries
    }
}

impl<Q: Queue> FromRequest for CallerWork<Q> {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let state = request.app_data::<Data<State>>();
        let state = state.ok_or_else(|| Problem::Internal("the state is missing".to_owned()));
        ready(state.and_then(|state| {
            let user = sender(request).ok_or(Problem::Unauthorized)?;
            let (caller, reads) = (caller::name(Some(&user), &address(request)), Arc::clone(&state.store.reads));
            Ok(Self::new(Q::of(state).of(&user), caller, reads))
        }))
    }
}
