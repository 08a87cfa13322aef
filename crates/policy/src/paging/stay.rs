//! Stay: pages remain where they are.
//!
//! Problem: to measure the effect of moving threads alone, memory must be left alone. Rule: new pages go where
//! the kernel puts them, usually the node of the thread that touches them first; existing pages do not move.
//!
//! Terms: none. Source: the paging of DI-Plain (DINO §3.1) and of all policies that leave memory to the
//! kernel. Property: there are never any orders.

use crate::policy::Paging;

/// See the top of this file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stay;

impl Paging for Stay {
    fn moves_pages(&self) -> bool {
        false
    }

    fn listens(&self) -> bool {
        false
    }
}
