//! The claims of DINO.
