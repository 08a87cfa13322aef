// SPDX-License-Identifier: GPL-2.0-or-later
//! Locking without regard to poisoning: with the profile `lab`, a panic aborts.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
