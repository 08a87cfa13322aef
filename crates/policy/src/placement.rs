//! Placements: which core each thread runs on. Each has a file or folder of its own; what several
//! share has its own file.

pub mod adaptive;
mod arrange;
pub mod brm;
pub mod di;
pub mod dino;
pub mod joint_oracle;
pub mod linux;
pub mod n_mass;
pub mod oracle;
pub mod random;
pub mod sharing;
pub mod slots;

#[cfg(test)]
mod properties;
