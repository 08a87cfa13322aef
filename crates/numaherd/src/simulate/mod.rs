//! `numaherd simulate`: a scenario on the contention model.

pub mod trial;
