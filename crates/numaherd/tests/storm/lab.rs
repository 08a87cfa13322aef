//! The kinds of storm that need a machine with several nodes, whose CPUs, clock and memory may be done anything to: a
//! guest of the lab. One boot carries many tries, each in namespaces of its own, as elsewhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use numaherd_lab_launcher::{Guest, KernelFiles, Options, Result, machine};
use numaherd_topology::Machine as Preset;
use rand::Rng;

use crate::kinds::{over, tenants};
use crate::machine::{Machine, ran};

/// How long a guest may go on.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// Memory of a node in MiB: the tenants need little.
const NODE_MIB: u64 = 256;

/// A guest of four nodes with two CPUs each.
#[derive(Clone, Copy, Debug)]
pub enum Lab {
    /// In the host's time.
    RealTime,
    /// With modelled hardware, and so with counters, in its time.
    Modelled,
}

impl Lab {
    /// Boots it.
    ///
    /// # Errors
    /// The lab is not set up, or the guest cannot be booted.
    pub fn boot(self) -> Result<Guest> {
        let preset = Preset::preset("lab-4x2").expect("a preset");
        let shape = machine::shape(&preset, Some(NODE_MIB))?;
        let model = match self {
            Self::RealTime => None,
            Self::Modelled => Some(machine::model(&preset, None)?),
        };
        let guest = Guest::start(&Options {
            model,
            time_limit: Some(LIMIT),
            ..Options::new(shape, KernelFiles::find(None)?)
        })?;
        if let Self::Modelled = self {
            guest.start_model()?;
        }
        Ok(guest)
    }
}

/// Something that changes on the machine while herds come and go.
type Change = fn(&mut Machine);

/// A herd among tenants, with a change now and then: before it, while it runs, after it was killed or has ended.
fn amid(machine: &mut Machine, change: Change) {
    let ways = ["fork", "daemon", "exec", "threads"];
    let (one, other) = (machine.one_of(&ways), machine.one_of(&ways));
    tenants(machine, &[one, other]);
    let maybe = |machine: &mut Machine| {
        if machine.random.random_bool(0.6) {
            change(machine);
        }
    };
    maybe(machine);
    let herd = machine.herd(&[]);
    machine.placed(&herd);
    maybe(machine);
    machine.go_on(10);
    maybe(machine);
    if machine.random.random_bool(0.5) {
        machine.kill(herd);
        maybe(machine);
        machine.go_on(5);
        maybe(machine);
        machine.restore();
    } else {
        machine.end(herd);
    }
    maybe(machine);
}

pub fn cpusets(machine: &mut Machine, _: Option<u64>) {
    fs::create_dir("cgroups").unwrap();
    assert!(ran("mount", &["-t", "cgroup2", "none", "cgroups"]));
    fs::write("cgroups/cgroup.subtree_control", "+cpuset").unwrap();
    let folder = PathBuf::from("cgroups/storm");
    fs::create_dir_all(&folder).unwrap();
    set_cpus(machine, &folder, "0-7");
    machine.cgroup = Some(folder.clone());
    // What a cpuset without any CPU of a user's makes of his affinity is nothing that can be told from none.
    machine.pins = "1".parse().expect("a CPU");
    amid(machine, |machine| {
        let folder = machine.cgroup.clone().expect("set above");
        let cpus = machine.one_of(&["0-1", "1-5", "1,3-4", "1,6", "0-7"]);
        set_cpus(machine, &folder, cpus);
    });
    set_cpus(machine, &folder, "0-7");
}

/// Gives a cpuset its CPUs.
fn set_cpus(machine: &mut Machine, cgroup: &Path, cpus: &str) {
    fs::write(cgroup.join("cpuset.cpus"), cpus).unwrap();
    machine.narrowed = Some(cpus.to_owned());
}

pub fn hot_plug(machine: &mut Machine, _: Option<u64>) {
    // What the kernel makes of the affinity that a user has set, when its last CPU goes, stays.
    machine.pins = "0".parse().expect("a CPU");
    amid(machine, |machine| {
        let cpu = machine.random.random_range(1..8);
        let is_online = machine.random.random_bool(0.3);
        set_online(cpu, is_online);
    });
    for cpu in 1..8 {
        set_online(cpu, true);
    }
}

fn set_online(cpu: u32, is_online: bool) {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::write(file, u8::from(is_online).to_string()).unwrap();
}

pub fn clocks(machine: &mut Machine, _: Option<u64>) {
    amid(machine, |machine| {
        let by = machine.one_of(&["-1 hour", "+1 hour", "-3 years", "+3 years"]);
        assert!(ran("date", &["-s", by]));
    });
}

pub fn sampling(machine: &mut Machine, _: Option<u64>) {
    machine.tenant("memory");
    machine.tenant("memory");
    tenants(machine, &["fork"]);
    let policy = machine.one_of(&["dino", "brm", "adaptive"]);
    let herd = machine.herd_by(policy, &[]);
    if policy != "adaptive" {
        // It places whom it has seen at work; adaptive, only where that gains something.
        machine.placed(&herd);
    }
    machine.go_on(10);
    over(machine, herd, 0.5);
}
