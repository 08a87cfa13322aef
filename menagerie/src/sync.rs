//! Locking and waiting without regard to poisoning: changes under these mutexes are never left half
//! done, and a panic ends the run anyway.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Locks `mutex`.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps until `waits` returns false; checks it after each notification of `changed`.
pub fn wait_while<'m, T>(
    changed: &Condvar,
    guard: MutexGuard<'m, T>,
    waits: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'m, T> {
    let woken = changed.wait_while(guard, waits);
    woken.unwrap_or_else(PoisonError::into_inner)
}
