//! The caller for whom a task works, so that changes of the database take turns by caller without an argument for it everywhere.

use std::future::Future;

use tokio::task::{self, JoinHandle};

use crate::base::addresses::network;

tokio::task_local! {
    static CALLER: String;
}

/// Returns the name of a caller: a user, with their tokens, at a client address, or a stranger there. Of IPv6, a client has 64
/// bits. A user at another address is another caller, so a token that floods the server from one address does not keep its user
/// from revoking it at another.
pub(crate) fn name(user: Option<&str>, address: &str) -> String {
    let network = network(address, 64);
    match user {
        Some(user) => format!("{user}@{network}"),
        None => network,
    }
}

/// Returns the user of a caller; `None`: a stranger.
pub(crate) fn user(caller: &str) -> Option<&str> {
    caller.rsplit_once('@').map(|(user, _)| user)
}

/// Does this work for the caller of this name.
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
        Some(caller) => task::spawn_local(working_for(caller, work)),
        None => task::spawn_local(work),
    }
}
