//! The herd against a scripted machine: loop, governor, journal, ledger, replay.

mod asked;
mod asking;
mod control;
mod control_pages;
mod control_properties;
mod control_recorded;
mod failures;
mod fake;
mod groups;
mod heirs;
mod in_step;
mod journal;
mod ledger;
mod losses;
mod paged;
mod pages;
mod policies;
mod promise;
mod properties;
mod quick;
mod replay;
mod run;
mod steal;
mod threads;
mod turned_over;
mod worse;
