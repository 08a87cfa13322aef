//! The files that `make setup` prepares, and their places.
//!
//! The lab directory is `$NUMAHERD_LAB_DIR`, else `.lab` in the working directory or in its nearest
//! ancestor that has one, else `.lab` in the source tree that this program was built from.
//! `scripts/setup.sh` fills it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Context, Error, Result};

/// Oldest major version of QEMU that works (plugin interface 4).
const OLDEST_QEMU: u32 = 10;

/// The guest's kernel, its modules and QEMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFiles {
    /// The kernel, unpacked: under emulation, its own decompressor would take a tenth of a boot. QEMU starts it at the
    /// entry for Xen's PVH, so the memory layout is the same in every boot.
    pub image: PathBuf,
    /// The kernel's release, as `uname -r` prints it.
    pub release: String,
    /// The configuration with which it was built, if the lab directory has it.
    pub config: Option<PathBuf>,
    /// Modules of the stock kernel, in order of loading.
    pub modules: Vec<PathBuf>,
    /// The lab's PMU module.
    pub pmu: PathBuf,
    /// QEMU's program.
    pub qemu: PathBuf,
}

impl KernelFiles {
    /// Finds everything that a guest needs to boot, with the kernel of `make setup` or, for `linux`, that of a version
    /// such as `7.3`.
    ///
    /// # Errors
    /// [`Error::NotSetUp`], [`Error::NoLinux`], [`Error::NoQemu`] or [`Error::OldQemu`], each of which says what
    /// to do.
    pub fn find(linux: Option<&str>) -> Result<Self> {
        let files = Self::in_directory(&of_version(lab_directory(), linux)?)?;
        check_qemu(&files.qemu)?;
        Ok(files)
    }

    /// The files in a given lab directory. QEMU is looked up on the `PATH`; its version is not checked.
    ///
    /// # Errors
    /// [`Error::NotSetUp`] and [`Error::NoQemu`].
    pub fn in_directory(lab: &Path) -> Result<Self> {
        let kernel = lab.join("kernel");
        let image = present("the guest's kernel", kernel.join("vmlinux"))?;
        let release = present("the kernel's release", kernel.join("release"))?;
        let release = fs::read_to_string(&release)
            .context(|| format!("reading {}", release.display()))?
            .trim()
            .to_owned();
        let directory = present("the kernel's modules", kernel.join("modules"))?;
        let mut modules = fs::read_dir(&directory)
            .and_then(|entries| {
                entries
                    .map(|entry| entry.map(|entry| entry.path()))
                    .collect::<Result<Vec<_>, _>>()
            })
            .context(|| format!("listing {}", directory.display()))?;
        modules.sort();
        let pmu = present("the PMU module", kernel.join("lab_pmu.ko"))?;
        let qemu = on_path("qemu-system-x86_64").ok_or(Error::NoQemu)?;
        let config = Some(kernel.join("config")).filter(|config| config.is_file());
        Ok(Self {
            image,
            release,
            config,
            modules,
            pmu,
            qemu,
        })
    }
}

/// The lab directory: see the head of this file.
fn lab_directory() -> PathBuf {
    if let Some(named) = env::var_os("NUMAHERD_LAB_DIR") {
        return PathBuf::from(named);
    }
    let working = env::current_dir().unwrap_or_default();
    working
        .ancestors()
        .map(|directory| directory.join(".lab"))
        .find(|lab| lab.is_dir())
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.lab"))
}

/// `linux-VERSION` in the lab directory; if it does not exist, the lab directory itself if its kernel has this version.
fn of_version(lab: PathBuf, linux: Option<&str>) -> Result<PathBuf> {
    let Some(version) = linux else {
        return Ok(lab);
    };
    let newer = lab.join(format!("linux-{version}"));
    if newer.is_dir() {
        return Ok(newer);
    }
    let release = fs::read_to_string(lab.join("kernel/release")).unwrap_or_default();
    let rest = release.strip_prefix(version);
    match rest.is_some_and(|rest| rest.starts_with('.')) {
        true => Ok(lab),
        false => Err(Error::NoLinux {
            version: version.to_owned(),
            path: newer,
        }),
    }
}

/// The directory of other projects' programs, which `scripts/setup.sh peers` builds.
pub fn peers() -> PathBuf {
    lab_directory().join("peers/bin")
}

/// Finds the plugin: `$NUMAHERD_LAB_PLUGIN`, else where cargo puts it (`cargo build --profile lab
/// -p numaherd-lab-plugin`) in the target directory that this program runs from.
///
/// # Errors
/// [`Error::NotSetUp`].
pub fn find_plugin() -> Result<PathBuf> {
    const BUILT: &str = "lab/libnumaherd_lab_plugin.so";
    let named = env::var_os("NUMAHERD_LAB_PLUGIN").map(PathBuf::from);
    let path = named.unwrap_or_else(|| {
        let program = env::current_exe().unwrap_or_default();
        let beside = program.ancestors().map(|directory| directory.join(BUILT));
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../target")
            .join(BUILT);
        beside
            .into_iter()
            .find(|path| path.exists())
            .unwrap_or(source)
    });
    present("the QEMU plugin", path)
}

/// `path`, if it exists.
fn present(what: &'static str, path: PathBuf) -> Result<PathBuf> {
    if path.exists() {
        Ok(path)
    } else {
        Err(Error::NotSetUp { what, path })
    }
}

/// The file that a shell would run for a program's name.
pub fn on_path(program: impl AsRef<Path>) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|directory| directory.join(&program))
        .find(|candidate| candidate.is_file())
}

fn check_qemu(qemu: &Path) -> Result<()> {
    let output = Command::new(qemu)
        .arg("--version")
        .output()
        .context(|| format!("asking {} for its version", qemu.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let line = said.lines().next().unwrap_or_default();
    match major_version(line) {
        Some(major) if major >= OLDEST_QEMU => Ok(()),
        _ => Err(Error::OldQemu {
            found: line.to_owned(),
            oldest: OLDEST_QEMU,
        }),
    }
}

/// The major version in `QEMU emulator version 10.0.2 (Debian …)`.
fn major_version(line: &str) -> Option<u32> {
    let version = line.split_once("version ")?.1;
    version
        .split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemus_version_line_is_read() {
        assert_eq!(
            major_version("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)"),
            Some(10)
        );
        assert_eq!(major_version("QEMU emulator version 7.2.17"), Some(7));
        assert_eq!(major_version("something else"), None);
    }

    #[test]
    fn what_is_no_qemu_or_too_old_is_refused() {
        // `echo --version` names itself and no version of QEMU.
        let error = check_qemu(Path::new("/bin/echo")).expect_err("not QEMU");
        assert!(
            matches!(
                error,
                Error::OldQemu {
                    oldest: OLDEST_QEMU,
                    ..
                }
            ),
            "{error}"
        );
        assert!(error.to_string().contains("make setup"));
    }

    #[test]
    fn an_empty_lab_directory_says_what_to_do() {
        let missing = Path::new("/nonexistent/lab");
        let message = KernelFiles::in_directory(missing)
            .expect_err("nothing there")
            .to_string();
        assert_eq!(
            message,
            "the lab is not set up: the guest's kernel is missing at \
             /nonexistent/lab/kernel/vmlinux; run `make setup`"
        );
    }

    #[test]
    fn a_version_is_that_of_the_usual_kernel_or_of_a_newer_one() {
        let folder = tempfile::tempdir().unwrap();
        let lab = folder.path();
        fs::create_dir(lab.join("kernel")).unwrap();
        fs::write(lab.join("kernel/release"), "6.12.95+deb12-amd64\n").unwrap();
        fs::create_dir(lab.join("linux-7.3")).unwrap();
        let found = |version| of_version(lab.to_owned(), version);
        assert_eq!(found(None).unwrap(), lab);
        assert_eq!(found(Some("6.12")).unwrap(), lab);
        assert_eq!(found(Some("7.3")).unwrap(), lab.join("linux-7.3"));
        for other in ["6.1", "7.2"] {
            let error = found(Some(other)).expect_err("there is no such kernel");
            assert!(matches!(error, Error::NoLinux { .. }), "{other}: {error}");
        }
    }

    #[test]
    fn a_newer_linux_that_is_not_there_says_what_to_do() {
        let message = KernelFiles::find(Some("9.9")).expect_err("not there");
        let message = message.to_string();
        assert!(
            message.ends_with("linux-9.9 is missing; run `scripts/setup.sh linux 9.9`"),
            "{message}"
        );
    }
}
