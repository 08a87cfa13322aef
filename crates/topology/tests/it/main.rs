//! Machines as files, trees and XML describe them, and how they are drawn.

mod draw;
mod hwloc;
mod machine;
mod sets;
mod sysfs;
mod tree;
