//! The caller for whom a task works, so that changes of the database take turns by caller without an argument for it everywhere.

use std::future::Future;

use actix_web::rt::{self, task::JoinHandle};

tokio::task_local! {
    static CALLER: String;
}

/// Does this work for a caller: a user with their tokens, or an address.
pub(crate) async fn working_for<T>(caller: String, work: impl Future<Output = T>) -> T {
    CALLER.scope(caller, work).await
}

/// Returns the caller for whom this task works, if it is for one.
pub(crate) fn present() -> Option<String> {
    CALLER.try_with(Clone::clone).ok()
}

/// Starts a task for the same caller, which goes on if the caller disconnects.
pub(crate) fn spawn<T: 'static>(work: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    match present() {
        Some(caller) => rt::spawn(working_for(caller, work)),
        None => rt::spawn(work),
    }
}
