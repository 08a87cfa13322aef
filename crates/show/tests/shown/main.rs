//! What people see of runs, as golden files.

mod contributed;
mod explained;
mod fleet;
mod jobs;
mod lived;
mod lost;
mod made;
mod openmetrics;
mod promql;
mod reported;
mod runs;
mod served;
mod status;
mod summed;
mod thousand;
mod topped;
mod totalled;
