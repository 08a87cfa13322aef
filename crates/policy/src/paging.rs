//! Pagings: which node each page lives on. Each has a file of its own; those that judge single accesses
//! are rules of one [`driver`].

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
