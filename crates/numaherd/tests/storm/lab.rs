//! The kinds of storm that need a machine with several nodes, whose CPUs, clock and memory may be done anything to: a
//! guest of the lab. One boot carries many tries, each in namespaces of its own, as elsewhere.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use numaherd_lab_launcher::{Guest, KernelFiles, Options, Result, Shape, machine};
use numaherd_topology::Machine as Preset;
use rand::Rng;

use crate::herd::Herd;
use crate::kinds::{over, tenants};
use crate::machine::{Machine, field, pause, ran, wait_until};

/// How long a try may take on the host's clock. It has a limit of its own in the guest, so that a guest in which one takes
/// longer hangs.
pub const TRY_LIMIT: Duration = Duration::from_secs(15 * 60);

/// How long a guest may go on.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// Memory of a node in MiB: the tenants need little.
const NODE_MIB: u64 = 256;

/// A guest.
#[derive(Clone, Copy, Debug)]
pub enum Lab {
    /// Four nodes with two CPUs each, in the host's time.
    RealTime,
    /// Two nodes with a CPU each, the second with little memory. What the kernel has every CPU do is soon done by two
    /// emulated ones.
    Small,
    /// Four nodes with two CPUs each, with modelled hardware, and so with counters, in its time.
    Modelled,
}

impl Lab {
    /// Boots it.
    ///
    /// # Errors
    /// The lab is not set up, or the guest cannot be booted.
    pub fn boot(self) -> Result<Guest> {
        let preset = Preset::preset("lab-4x2").expect("a preset");
        let shape = match self {
            Self::Small => {
                let mut shape = Shape::uniform(2, 1, 4 * NODE_MIB);
                shape.nodes[1].memory_mib = NODE_MIB / 2;
                shape
            }
            Self::RealTime | Self::Modelled => machine::shape(&preset, Some(NODE_MIB))?,
        };
        let model = match self {
            Self::RealTime | Self::Small => None,
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

/// Has the tenants in a cpuset, which has all CPUs.
fn in_cpuset(machine: &mut Machine) -> PathBuf {
    fs::create_dir("cgroups").unwrap();
    assert!(ran("mount", &["-t", "cgroup2", "none", "cgroups"]));
    fs::write("cgroups/cgroup.subtree_control", "+cpuset").unwrap();
    let folder = PathBuf::from("cgroups/storm");
    fs::create_dir_all(&folder).unwrap();
    set_cpus(machine, &folder, "0-7");
    machine.cgroup = Some(folder.clone());
    // What a cpuset without any CPU of a user's makes of his affinity is nothing that can be told from none.
    machine.pins = "1".parse().expect("a CPU");
    folder
}

pub fn cpusets(machine: &mut Machine, _: Option<u64>) {
    let folder = in_cpuset(machine);
    amid(machine, |machine| {
        let folder = machine.cgroup.clone().expect("set above");
        let cpus = machine.one_of(&CPUSETS);
        set_cpus(machine, &folder, cpus);
    });
    set_cpus(machine, &folder, "0-7");
}

/// The CPUs that a cpuset may have.
const CPUSETS: [&str; 5] = ["0-1", "1-5", "1,3-4", "1,6", "0-7"];

/// The same while the cpuset changes all the time, and while herds stop and `release` restores affinities too.
pub fn cpusets_meanwhile(machine: &mut Machine, _: Option<u64>) {
    let folder = in_cpuset(machine);
    tenants(machine, &["fork", "threads"]);
    let herd = machine.herd(&[]);
    machine.placed(&herd);
    machine.narrowed = CPUSETS.map(str::to_owned).to_vec();
    let goes_on = Arc::new(AtomicBool::new(true));
    let (changes, cpus) = (goes_on.clone(), folder.join("cpuset.cpus"));
    let changing = thread::spawn(move || {
        let mut turns = CPUSETS.iter().cycle();
        while changes.load(Ordering::Relaxed) {
            fs::write(&cpus, turns.next().expect("they go on")).unwrap();
            pause(BETWEEN_CHANGES);
        }
    });
    machine.go_on(10);
    over(machine, herd, 0.5);
    goes_on.store(false, Ordering::Relaxed);
    changing.join().expect("a cpuset can be changed");
    set_cpus(machine, &folder, "0-7");
}

/// How long a cpuset stays as it is: far shorter than a stop takes.
const BETWEEN_CHANGES: Duration = Duration::from_millis(20);

/// Gives a cpuset its CPUs.
fn set_cpus(machine: &mut Machine, cgroup: &Path, cpus: &str) {
    fs::write(cgroup.join("cpuset.cpus"), cpus).unwrap();
    machine.narrowed = vec![cpus.to_owned()];
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

/// What the kernel keeps free on the machine whose nodes are full: on each, more than the herd's limits keep free.
const KEPT_KIB: u64 = 320 << 10;

/// What is free on a node that is full: less than the kernel wants to keep there (its share of [`KEPT_KIB`], and a quarter more),
/// and more than a tenant's memory and what the herd's limits keep, so that the herd asks the kernel.
const FREE_KIB: u64 = 38 << 10;

/// The least memory of a process whose memory is to move, in pages.
const MOVED_PAGES: u64 = 2048;

const LEDGER: &str = "ledger";

/// What a ledger says of pages for which the kernel had no room.
const SAYS_FULL: &str = "\"node-full\":";

/// What a ledger says of threads whose events are counted.
const SAYS_COUNTED: &str = "\"counts\":{";

/// Has memory follow its threads to a node that is full. The kernel takes the place of a moved page from its new node alone,
/// finds nothing there that it could reclaim, ends no process for the sake of one node, and so answers ENOMEM. The herd
/// is killed or asked to end while further memory may be on its way.
pub fn full_nodes(machine: &mut Machine, _: Option<u64>) {
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    fs::write("/proc/sys/vm/min_free_kbytes", KEPT_KIB.to_string()).unwrap();
    let filler = filler(1);
    // All memory that is needed meanwhile comes from node 0.
    fill(1, &filler);
    // Whoever may choose is on the CPU of node 0.
    machine.pins = "1".parse().expect("a CPU");
    machine.pinned_tenant("work");
    let mut tenants = Vec::new();
    for _ in 0..4 {
        let pid = machine.tenant("memory");
        tenants.push(pid.to_string());
        let is_all_there = || {
            let pages = field(&format!("/proc/{pid}/statm"), "");
            let resident = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok());
            resident > Some(MOVED_PAGES)
        };
        wait_until("a tenant has its memory", is_all_there);
    }
    let herd = finds_node_full(machine, &filler, &tenants);
    machine.tenant("fork");
    over(machine, herd, 0.5);
}

/// A herd of these tenants that has drawn the CPU of node 1 for a thread on that of node 0, and to which the kernel has said
/// that node 1 is full. One that has not is asked to end: the kernel may have reclaimed memory there meanwhile. Others have no
/// part in it: of a process with several threads no memory moves unless all are drawn to one node.
fn finds_node_full(machine: &mut Machine, filler: &Path, tenants: &[String]) -> Herd {
    let selected = tenants.iter().flat_map(|pid| ["--pid", pid]);
    let selected: Vec<&str> = selected.collect();
    loop {
        fill(1, filler);
        let _ = fs::remove_file(LEDGER);
        let seed = machine.random.random::<u32>().to_string();
        let recorded = ["--seed", &seed, "--ledger", LEDGER];
        let herd = machine.herd_by("random+whole-set", &[&selected[..], &recorded].concat());
        machine.placed(&herd);
        let says = |what: &str| fs::read_to_string(LEDGER).is_ok_and(|said| said.contains(what));
        wait_until("what is placed is recorded", || says("\"result\":\"done\""));
        if says("\"from\":0,\"to\":1,") {
            wait_until("memory follows", || {
                assert!(!herd.has_ended(), "a herd ended: {}", herd.said());
                says("\"kind\":\"paging\"")
            });
            if says(SAYS_FULL) {
                return herd;
            }
        }
        machine.end(herd);
    }
}

/// A file in memory that fills a node; empty at first.
fn filler(node: u32) -> PathBuf {
    let folder = format!("full-{node}");
    fs::create_dir(&folder).unwrap();
    let only_there = format!("mpol=bind:{node}");
    assert!(ran(
        "mount",
        &["-t", "tmpfs", "-o", &only_there, "none", &folder]
    ));
    let file = Path::new(&folder).join("filler");
    File::create(&file).unwrap();
    file
}

/// Lets it grow until the node is full.
fn fill(node: u32, filler: &Path) {
    let mut file = File::options().append(true).open(filler).unwrap();
    while free_kib(node) > FREE_KIB {
        file.write_all(&[1; 1 << 20]).unwrap();
    }
}

fn free_kib(node: u32) -> u64 {
    let meminfo = format!("/sys/devices/system/node/node{node}/meminfo");
    let free = field(&meminfo, &format!("Node {node} MemFree:"));
    let kib = free.strip_suffix(" kB").and_then(|kib| kib.parse().ok());
    kib.expect("a number of KiB")
}

pub fn sampling(machine: &mut Machine, _: Option<u64>) {
    machine.tenant("memory");
    machine.tenant("memory");
    tenants(machine, &["fork"]);
    let policy = machine.one_of(&["dino", "brm", "adaptive", "random+sampled"]);
    let herd = machine.herd_by(policy, &["--ledger", LEDGER]);
    if policy != "adaptive" {
        // It places whom it has seen at work; adaptive, only where that gains something.
        machine.placed(&herd);
    }
    if policy != "random+sampled" {
        wait_until("threads are counted", || {
            fs::read_to_string(LEDGER).is_ok_and(|said| said.contains(SAYS_COUNTED))
        });
    }
    // Time for pages to be sampled, and to follow.
    machine.go_on(100);
    over(machine, herd, 0.5);
}
