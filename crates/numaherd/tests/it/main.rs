//! The program as a person, a service manager and a guest meet it.

mod advise;
mod agent;
mod cli;
mod config;
mod explain_page;
mod fleet;
mod heirs;
mod program;
mod reload;
mod report;
mod serve;
mod slurm;
mod top;
mod trial;
mod uneven;
