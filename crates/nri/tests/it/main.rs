//! The protocol as a plugin and as a hostile runtime use it.

mod properties;
mod session;
mod wire;
