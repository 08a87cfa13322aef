//! What people see of runs, as golden files.

mod contributed;
mod explained;
mod jobs;
mod lived;
mod lost;
mod made;
mod openmetrics;
mod reported;
mod runs;
mod served;
mod status;
mod summed;
mod topped;
mod totalled;
