//! The claims of N-MASS.
