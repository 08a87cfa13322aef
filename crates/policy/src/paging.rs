//! Pagings: which node each page lives on. One file each; those that judge accesses are rules under one
//! [`driver`].

pub mod by_use;
pub mod counted;
mod credits;
pub mod driver;
pub mod guard;
pub mod next_touch;
pub mod numa_balancing;
pub mod residency;
pub mod single;
pub mod stay;
pub mod tiered;
pub mod tlb_miss;
pub mod whole_set;
pub mod window;
pub mod windows;

#[cfg(test)]
mod bench;
