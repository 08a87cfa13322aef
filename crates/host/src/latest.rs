//! A value that one thread replaces while others read it.

use std::sync::{Arc, PoisonError, RwLock};

/// A value that is replaced as a whole. Clones share it.
#[derive(Debug)]
pub(crate) struct Latest<T>(Arc<RwLock<Arc<T>>>);

impl<T> Latest<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(value))))
    }

    pub(crate) fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }

    pub(crate) fn now(&self) -> Arc<T> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl<T> Clone for Latest<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
