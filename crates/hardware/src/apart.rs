//! What host threads change often, apart from what others use.

/// A value with two lines of the host's caches to itself (processors fetch lines in pairs), so that a
/// thread that changes it does not take from other threads what merely lies beside it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);
