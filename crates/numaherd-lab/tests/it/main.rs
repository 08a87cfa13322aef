//! The laboratory as a person meets it, and the program in the lab's guest.

mod adaptive;
mod brm_in_lab;
mod cli;
mod compare;
mod example;
mod guest;
mod lab_run;
mod package;
mod profile;
mod profile_in_lab;
mod reproduce;
mod simulate;
mod trace;
