//! The host on a captured tree, on this machine's kernel, and beside a real QEMU.

mod captured;
mod live;
mod machines;
mod this_machine;
