//! What people see of runs, as golden files.

mod explained;
mod lived;
mod made;
mod reported;
mod runs;
mod served;
mod status;
mod summed;
mod topped;
mod totalled;
