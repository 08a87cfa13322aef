// SPDX-License-Identifier: GPL-2.0-or-later
//! Locking where a panic elsewhere is no concern: the profile `lab` aborts on one.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
