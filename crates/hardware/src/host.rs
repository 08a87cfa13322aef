//! The host's cache lines, and data laid out for them, so that host threads wait less.

/// A value with two lines of the host's caches to itself (processors fetch lines in pairs), which
/// prevents false sharing with neighbouring data.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// Bytes of a line of the host's caches.
pub(crate) const HOST_LINE_BYTES: usize = 64;
