//! Pagings: which node each page lives on. One file each.

pub mod guard;
pub mod stay;
pub mod whole_set;
pub mod window;
