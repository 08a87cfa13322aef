//! What people see of a run, drawn from the ledger alone.
//!
//! * [`live`]: what happened in an interval, one line, while it runs;
//! * [`summary`]: the results of a run, at its end;
//! * [`mod@explain`]: what was seen, decided, refused, done, and what followed, from a whole ledger;
//! * [`job`]: what a batch job lost, at its end;
//! * [`fleet`]: which of many machines, their groups and programs lose most, and what would help;
//! * [`status`]: the present state of a herd and its machine;
//! * [`metrics`] and [`mod@page`]: the same for a scraper and for a browser;
//! * [`replay`]: how other policies' decisions on a recording compare with the recorded ones;
//! * [`top`]: a run on a terminal, now or at any moment;
//! * [`trial`]: the results of an experiment that runs a policy and Linux in turn;
//! * [`report`]: a page of charts and tables, of one run or of several side by side.
//!
//! Values in, text or serializable values out: nothing here reads a file, asks a clock or knows a world. A figure that
//! was not measured is left out or reported as missing, never made up.

mod error;
pub mod explain;
pub mod fleet;
pub mod guards;
mod guests;
pub mod job;
pub mod live;
pub mod losses;
mod markup;
pub mod metrics;
pub mod page;
mod reading;
pub mod replay;
pub mod report;
pub mod requests;
pub mod run;
pub mod status;
pub mod summary;
pub mod top;
pub mod trial;
mod words;

pub use error::ShowError;
pub use guests::{Guest, Vcpu};
pub use words::{entry, paragraph};
