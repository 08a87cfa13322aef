//! The program as its users meet it.

mod cli;
mod kernels;
