//! What there is to know of the host's caches, so that host threads wait less.

/// A value with two lines of the host's caches to itself (processors fetch lines in pairs), so that a
/// thread that changes it does not take from other threads what merely lies beside it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// Bytes of a line of the host's caches.
pub(crate) const HOST_LINE_BYTES: usize = 64;
