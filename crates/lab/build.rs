//! Builds the guest's init (`guest/`) as a static program, for `src/initrd.rs` to embed.
//!
//! It runs in a guest before any library is in reach, so it is linked statically with the GNU C
//! library of the machine that builds: `crt-static` on the host's own target. That needs flags of
//! its own, hence a cargo of its own in a target directory of its own.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=guest/src");
    println!("cargo::rerun-if-changed=guest/Cargo.toml");
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"));
    let target = variable("TARGET");
    // target/PROFILE/build/PACKAGE/out
    let out = PathBuf::from(variable("OUT_DIR"));
    let shared = out.ancestors().nth(4).unwrap_or(&out).join("guest");
    let flags = format!(
        "CARGO_TARGET_{}_RUSTFLAGS",
        target.to_uppercase().replace('-', "_")
    );

    let mut cargo = Command::new(variable("CARGO"));
    // What the outer cargo tells its compilers (clippy, coverage) is not for this build.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("RUST")
            || name.starts_with("CARGO_ENCODED")
            || name.starts_with("CARGO_PROFILE")
            || name.starts_with("CARGO_BUILD")
        {
            cargo.env_remove(name.as_ref());
        }
    }
    for kept in ["RUSTUP_HOME", "RUSTUP_TOOLCHAIN"] {
        if let Some(value) = env::var_os(kept) {
            cargo.env(kept, value);
        }
    }
    let status = cargo
        .env(
            flags,
            "-C target-feature=+crt-static -C strip=symbols -C panic=abort",
        )
        .args([
            "build",
            "--quiet",
            "--release",
            "--package",
            "numaherd-lab-guest",
            "--bins",
        ])
        .arg("--manifest-path")
        .arg(PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("guest/Cargo.toml"))
        .arg("--target-dir")
        .arg(&shared)
        .args(["--target", &target])
        .status()
        .unwrap_or_else(|error| panic!("could not start cargo for the guest's init: {error}"));
    assert!(
        status.success(),
        "the guest's init did not build; cargo's own message is above"
    );
    let init = shared.join(&target).join("release/numaherd-guest");
    println!("cargo::rustc-env=NUMAHERD_GUEST_INIT={}", init.display());
}
