//! The protocol between the host and the agent in the lab's guest.
//!
//! The program of this package is the guest's init and agent; it is linked statically and packed
//! into the guest's initial file system by the build script of `numaherd-lab`. The library is the
//! part that both sides share.

pub mod protocol;
