//! The protocol between the host and the agent in the lab's guest.
//!
//! This package's program is the guest's init and agent. The build script of
//! `numaherd-lab-launcher` links it statically, and that crate packs it into the guest's initial
//! file system. The library is the part that host and guest share.

pub mod protocol;
