//! Real guests: how they end, what programs see in them, and what their hardware model counts.

mod ends;
mod guest;
mod ipm;
mod kernel;
mod modelled;
mod programs;
mod record;
mod uncore;
mod walked;
