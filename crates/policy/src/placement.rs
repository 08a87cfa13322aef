//! Placements: which core each thread runs on. One file (or folder) each; what they share beside.

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
