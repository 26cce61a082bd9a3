//! Locking of mutexes whose holders never panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. No holder of one panics, so the data behind a poisoned one is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
