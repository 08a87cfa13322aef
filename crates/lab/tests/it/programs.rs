//! The C programs that guests run (`tests/programs`).

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a program, under a name of the test's own, with the compiler that `make setup` also needs for the PMU
/// module.
pub fn build(program: &str, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{program}.c"));
    let built = temporary(name);
    let status = Command::new("gcc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .args([&built, &source])
        .status()
        .expect("gcc is installed; run `make setup`");
    assert!(status.success());
    built
}

/// A file that a test makes.
pub fn temporary(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}
