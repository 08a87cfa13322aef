//! Locking and waiting where a panic elsewhere is no concern: every change under these mutexes is
//! complete at once, and a panic ends the run anyway.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Locks `mutex`.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps until `changed` is notified and `waits` does not hold.
pub fn wait_while<'m, T>(
    changed: &Condvar,
    guard: MutexGuard<'m, T>,
    waits: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'m, T> {
    let woken = changed.wait_while(guard, waits);
    woken.unwrap_or_else(PoisonError::into_inner)
}
