//! The model as a world: what a machine of round figures does, and what its options change.

mod balancing;
mod credit;
mod joint;
mod micro;
mod new_pages;
mod options;
mod round;
mod uncore;
mod world;
