//! QEMU's command line, as a pure function of the guest's shape, its files and its options.
//!
//! * Machine `pc` under multi-threaded TCG: single-threaded TCG crashes with the plugin. Modelled
//!   time makes more vCPUs than host cores meaningful. `la57=off`: page walks of four levels
//!   instead of five.
//! * The guest cannot write to the host: the host's root is exported read-only, and there is no
//!   disk and no network. All files that QEMU shares with this program are anonymous memory,
//!   reached as `/proc/self/fd/N`, so nothing has to be removed afterwards. The one exception is a
//!   requested trace, which the plugin, not the guest, writes.
//! * QEMU's threads have names, which show the host the thread of each vCPU.
//! * Standard input is the agent's socket, standard output the kernel's console, standard error
//!   QEMU's and the plugin's own messages.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use numaherd_lab_guest::protocol::{LAST_LEVEL, PORT_NAME};

use crate::shape::Shape;

/// The hardware model: the plugin and its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The plugin.
    pub plugin: PathBuf,
    /// The plugin's configuration file, as text; see [`crate::machine::hardware`].
    pub configuration: String,
    /// Bytes of the modelled last-level cache. The guest's sysfs shows them in place of the size that QEMU's CPU
    /// claims.
    pub last_level_bytes: u64,
    /// The trace to record, in place of modelling accesses.
    pub recording: Option<Recording>,
    /// Whether accesses of the guest's kernel are modelled, too.
    pub kernel_accesses: bool,
}

/// A virtio serial port for a program in the guest, and the socket on the host that it is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SerialPort {
    /// The port's name; the guest's kernel shows it below `/sys/class/virtio-ports`.
    pub name: String,
    /// The UNIX socket on the host, which QEMU creates and listens on.
    pub socket: PathBuf,
}

/// A trace to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The trace file, which QEMU creates.
    pub file: PathBuf,
    /// The description of the recording, a JSON object.
    pub about: String,
}

/// Files that QEMU opens by number, as `/proc/self/fd/N`. All but the first are for the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inherited {
    /// The initial file system.
    pub initrd: PathBuf,
    /// The memory shared by plugin and PMU module.
    pub shared: PathBuf,
    /// The plugin's configuration.
    pub configuration: PathBuf,
    /// Where the plugin writes its report at the end.
    pub report: PathBuf,
    /// The description of the recording.
    pub about: PathBuf,
}

/// Kernel parameters that every guest gets.
///
/// * `tsc=reliable`: the TSC is the modelled clock.
/// * `lpj`: each CPU would calibrate its delay loop when it comes up, which takes minutes with
///   many more CPUs than the host has. The value is that of a 1 GHz TSC at 250 ticks a second.
/// * No watchdogs: under the model, a vCPU may legitimately stand still for long.
/// * `panic=-1` with QEMU's `-no-reboot` ends QEMU at once.
/// * `no_timer_check`: on a busy host, the timer may tick too late for the kernel's test, which then panics.
/// * `iomem=relaxed`: the guest's first process may map the interrupt controller.
/// * `cryptomgr.notests` and `initcall_blacklist` skip what nothing in the guest uses and what takes an eighth of a
///   boot under emulation: self-tests of ciphers and of the jitter random numbers, encrypted keys, and the certificates
///   for signed modules.
const KERNEL_PARAMETERS: &str = "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable \
    lpj=4000000 no_timer_check nowatchdog rcupdate.rcu_cpu_stall_suppress=1 audit=0 apparmor=0 selinux=0 \
    random.trust_cpu=on iomem=relaxed cryptomgr.notests \
    initcall_blacklist=jent_mod_init,init_encrypted,load_system_certificate_list";

/// QEMU's machine without the model.
const MACHINE: &str = "-machine pc";

/// QEMU's machine with the model. The plugin's TSC counts nanoseconds from power-on. A kernel would calibrate it
/// against another timer and, on a busy host, be wrong by any factor. So [`MODELLED_TIME_PARAMETERS`] give the
/// frequency, and the machine has no other timer to correct it by.
const MODELLED_MACHINE: &str = "-machine pc,hpet=off";

/// Kernel parameters of a guest whose time is modelled.
const MODELLED_TIME_PARAMETERS: &str = "tsc_early_khz=1000000 pmtmr=0";

/// Bytes of shared memory for a machine: a power of two, as a PCI BAR requires, and more than the
/// plugin's layout needs. The unused part takes no memory.
#[must_use]
pub fn shared_bytes(shape: &Shape) -> u64 {
    let vcpu = (128 << 10) + 8 * shape.nodes.len() as u64;
    ((128 << 10) + 16 * shape.nodes.len() as u64 + u64::from(shape.cpus()) * vcpu)
        .next_power_of_two()
}

/// QEMU's arguments, without its name.
#[must_use]
pub fn arguments(
    shape: &Shape,
    kernel_image: &Path,
    kernel_parameters: &[String],
    model: Option<&Model>,
    serial_port: Option<&SerialPort>,
    inherited: &Inherited,
) -> Vec<OsString> {
    let mut arguments = Arguments::default();
    arguments.words("-name numaherd-lab,debug-threads=on");
    arguments.words("-nodefaults -no-user-config -no-reboot -display none");
    arguments.words(model.map_or(MACHINE, |_| MODELLED_MACHINE));
    arguments.words("-accel tcg,thread=multi -cpu max,la57=off");
    arguments.words(&format!(
        "-smp {},sockets={},cores={},threads={}",
        shape.cpus(),
        shape.sockets(),
        shape.cores_per_socket,
        shape.threads_per_core
    ));
    memory(&mut arguments, shape);
    arguments.option("-kernel", kernel_image);
    arguments.option("-initrd", &inherited.initrd);
    let mut parameters = vec![KERNEL_PARAMETERS];
    parameters.extend(model.map(|_| MODELLED_TIME_PARAMETERS));
    let last_level = model.map(|model| format!("{LAST_LEVEL}{}", model.last_level_bytes));
    parameters.extend(last_level.as_deref());
    parameters.extend(kernel_parameters.iter().map(String::as_str));
    arguments.option("-append", parameters.join(" "));
    // Not `stdio`, which would also read the host's messages to the agent.
    arguments.words("-serial file:/proc/self/fd/1");
    arguments.words("-chardev socket,id=agent,fd=0 -device virtio-serial-pci");
    arguments.words(&format!(
        "-device virtserialport,chardev=agent,name={PORT_NAME}"
    ));
    if let Some(port) = serial_port {
        let mut socket = joined("socket,id=port,path=", &port.socket);
        socket.push(",server=on,wait=off");
        arguments.option("-chardev", socket);
        let name = &port.name;
        arguments.option(
            "-device",
            format!("virtserialport,chardev=port,name={name}"),
        );
    }
    arguments.words(
        "-fsdev local,id=hostroot,path=/,security_model=none,readonly=on,multidevs=remap \
         -device virtio-9p-pci,fsdev=hostroot,mount_tag=hostroot",
    );
    if let Some(model) = model {
        let bytes = shared_bytes(shape);
        let backend = format!("memory-backend-file,id=shared,share=on,size={bytes},mem-path=");
        arguments.option("-object", joined(&backend, &inherited.shared));
        arguments.words("-device ivshmem-plain,memdev=shared");
        let mut plugin = escaped(&model.plugin);
        plugin.push(joined(",shm=", &inherited.shared));
        plugin.push(joined(",config=", &inherited.configuration));
        plugin.push(joined(",report=", &inherited.report));
        if model.kernel_accesses {
            plugin.push(",kernel=on");
        }
        if let Some(recording) = &model.recording {
            plugin.push(joined(",trace=", &recording.file));
            plugin.push(joined(",about=", &inherited.about));
        }
        arguments.option("-plugin", plugin);
    }
    arguments.list
}

/// Memory, nodes and the distances between them. All distances are given, in both directions: QEMU
/// fills in missing ones only if the matrix is symmetric.
fn memory(arguments: &mut Arguments, shape: &Shape) {
    arguments.words(&format!("-m {}M", shape.memory_mib()));
    let mut first = 0;
    for (number, node) in shape.nodes.iter().enumerate() {
        let mut option = format!("node,nodeid={number}");
        if node.cpus > 0 {
            option.push_str(&format!(",cpus={first}-{}", first + node.cpus - 1));
            first += node.cpus;
        }
        if node.memory_mib > 0 {
            arguments.words(&format!(
                "-object memory-backend-ram,id=memory{number},size={}M",
                node.memory_mib
            ));
            option.push_str(&format!(",memdev=memory{number}"));
        }
        arguments.option("-numa", option);
    }
    for (from, row) in shape.distances.iter().enumerate() {
        for (to, distance) in row.iter().enumerate().filter(|&(to, _)| to != from) {
            arguments.option("-numa", format!("dist,src={from},dst={to},val={distance}"));
        }
    }
}

/// A path for QEMU's option parser, with doubled commas.
fn escaped(path: &Path) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let bytes = path.as_os_str().as_bytes();
    let doubled = bytes
        .iter()
        .flat_map(|&byte| std::iter::repeat_n(byte, if byte == b',' { 2 } else { 1 }));
    OsString::from_vec(doubled.collect())
}

fn joined(start: &str, path: &Path) -> OsString {
    let mut whole = OsString::from(start);
    whole.push(escaped(path));
    whole
}

#[derive(Default)]
struct Arguments {
    list: Vec<OsString>,
}

impl Arguments {
    fn words(&mut self, words: &str) {
        self.list
            .extend(words.split_whitespace().map(OsString::from));
    }
    fn option(&mut self, name: &str, value: impl Into<OsString>) {
        self.list.push(name.into());
        self.list.push(value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::NodeShape;

    /// The arguments with one option a line.
    fn shown(arguments: &[OsString]) -> String {
        let mut lines = String::new();
        for argument in arguments {
            let argument = argument.to_string_lossy();
            let start = if argument.starts_with('-') { "\n" } else { " " };
            lines.push_str(start);
            lines.push_str(&argument);
        }
        lines.trim_start().to_owned()
    }

    fn inherited() -> Inherited {
        let file = |number: u32| PathBuf::from(format!("/proc/self/fd/{number}"));
        Inherited {
            initrd: file(3),
            shared: file(4),
            configuration: file(5),
            report: file(6),
            about: file(7),
        }
    }

    #[test]
    fn a_plain_guest_of_one_node() {
        let shape = Shape::uniform(1, 2, 512);
        let arguments = arguments(
            &shape,
            Path::new("/lab/vmlinux"),
            &[],
            None,
            None,
            &inherited(),
        );
        insta::assert_snapshot!("one_node", shown(&arguments));
    }

    #[test]
    fn a_modelled_guest_with_uneven_nodes_and_asymmetric_distances() {
        let shape = Shape {
            nodes: vec![
                NodeShape {
                    cpus: 4,
                    memory_mib: 512,
                },
                NodeShape {
                    cpus: 2,
                    memory_mib: 0,
                },
                NodeShape {
                    cpus: 0,
                    memory_mib: 1024,
                },
            ],
            threads_per_core: 2,
            cores_per_socket: 1,
            distances: vec![vec![10, 21, 30], vec![22, 10, 31], vec![17, 28, 10]],
        };
        assert_eq!(shape.check(), Ok(()));
        let model = Model {
            plugin: "/a,b/plugin.so".into(),
            configuration: "unused here".to_owned(),
            last_level_bytes: 2 << 20,
            recording: Some(Recording {
                file: "/traces/a,b.trace".into(),
                about: "unused here".to_owned(),
            }),
            kernel_accesses: true,
        };
        let parameters = ["numa_balancing=disable".to_owned()];
        let arguments = arguments(
            &shape,
            Path::new("/lab/vmlinux"),
            &parameters,
            Some(&model),
            Some(&SerialPort {
                name: "org.example.0".to_owned(),
                socket: "/run/a,b.socket".into(),
            }),
            &inherited(),
        );
        insta::assert_snapshot!("uneven_nodes", shown(&arguments));
    }

    #[test]
    fn the_shared_memory_is_a_power_of_two_and_grows_with_the_machine() {
        let bytes = |nodes, cores| shared_bytes(&Shape::uniform(nodes, cores, 256));
        for (nodes, cores) in [(1, 1), (4, 2), (16, 2), (64, 4)] {
            assert!(bytes(nodes, cores).is_power_of_two());
            assert!(bytes(nodes, cores) > u64::from(cores) * nodes as u64 * (128 << 10));
        }
    }
}
