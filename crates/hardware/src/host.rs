//! What the host's caches are told, so that host threads wait less.

#![expect(unsafe_code, reason = "prefetches")]

/// A value with two lines of the host's caches to itself (processors fetch lines in pairs), so that a
/// thread that changes it does not take from other threads what merely lies beside it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// Bytes of a line of the host's caches.
pub(crate) const HOST_LINE_BYTES: usize = 64;

/// Asks the host for the line at one of its addresses. This is a hint: any address will do, and nothing changes.
#[inline]
pub fn host_fetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address as *const i8);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
