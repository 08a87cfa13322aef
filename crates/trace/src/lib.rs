//! Traces: the loads and stores of a real program, recorded once and used any number of times.
//!
//! * [`Event`] is one load, store, sleep or wake of one thread.
//! * [`file`](mod@file) is the trace file: compact, streamed in both directions, readable up to any damage.
//! * [`import`] reads the traces of other tools.
//! * [`info`] says what is in a trace.
//! * [`sra`] says which pages should follow a thread that was moved.
//! * [`world`] plays a trace on a machine.

mod error;
mod event;
pub mod file;
pub mod import;
pub mod info;
mod pages;
pub mod sra;
mod turns;
pub mod world;

pub use error::{Damage, Error};
pub use event::{Event, Kind, ThreadInfo};
pub use file::{EncodedFrame, Encoder, FRAME_EVENTS, FrameInfo, FrameReader, Trace, Writer};
