//! Mutexes whose owner never panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. No holder of one panics, so a poisoned one is as good.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
