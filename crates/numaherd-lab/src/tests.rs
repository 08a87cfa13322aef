//! Tests that need the definitions of both programs.

pub mod documents;
