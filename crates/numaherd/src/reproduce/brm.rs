//! BRM: Rao, Wang, Zhou, Xu, "Optimizing Virtual Machine Scheduling in NUMA Multicore Systems", HPCA
//! 2013.

pub mod lab;
