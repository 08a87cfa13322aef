//! The command line of `numaherd agent` and `numaherd advise`, for virtual machines.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use numaherd_quantity::parse_time;

/// Options of `agent`.
#[derive(Debug, Args)]
#[command(after_help = AGENT_HELP)]
pub struct Agent {
    /// The port to the host [default: the one named org.numaherd.agent.0]
    #[arg(long, value_name = "PATH")]
    pub port: Option<PathBuf>,

    /// How often to check threads [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub interval: Option<Duration>,

    /// Report to the host once, and exit
    #[arg(long)]
    pub once: bool,

    /// Read the machine whose /proc, /sys and /dev are below this directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}

const AGENT_HELP: &str = "\
The virtual machine needs a virtio serial port. On QEMU's command line:
  -device virtio-serial-pci
  -chardev socket,id=numaherd,path=/run/NAME.numaherd,server=on,wait=off
  -device virtserialport,chardev=numaherd,name=org.numaherd.agent.0
In libvirt's XML, under <devices>:
  <channel type='unix'><target type='virtio' name='org.numaherd.agent.0'/></channel>
On the host, `numaherd run` finds it.";

/// Options of `advise`.
#[derive(Debug, Args)]
#[command(after_help = ADVISE_HELP)]
pub struct Advise {
    /// Number of CPUs, and MiB of memory
    #[arg(short = 'w', value_name = "CPUS[:MB]", value_parser = wanted, required = true)]
    pub want: Wanted,

    /// Read the machine whose /proc and /sys are below this directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}

const ADVISE_HELP: &str = "\
Prints a list such as 0-1,3: the fewest nodes with enough idle CPUs and free memory, and of those, the \
nearest to each other. If all nodes together are not enough, it prints all of them, and reports on \
standard error what is missing. Started under the name numad, as the package numaherd-numad installs \
it, the program gives numad's own answers, and libvirt's placement='auto' uses it.";

/// The resources that a new program needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// CPUs.
    pub cpus: u64,
    /// Memory in MiB; 0 if not given.
    pub mib: u64,
}

/// Reads `4` or `4:2048` as CPUs and MiB.
fn wanted(text: &str) -> Result<Wanted, String> {
    let (cpus, mib) = text.split_once(':').unwrap_or((text, "0"));
    let number = |digits: &str| {
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| digits.parse::<u64>().ok()).flatten()
    };
    match (number(cpus), number(mib)) {
        (Some(cpus @ 1..), Some(mib)) => Ok(Wanted { cpus, mib }),
        (Some(0), _) => Err("at least one CPU is required".to_owned()),
        _ => Err("write CPUs, or CPUs and MiB, such as 4 or 4:2048".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_cpus_and_perhaps_mebibytes() {
        assert_eq!(wanted("4"), Ok(Wanted { cpus: 4, mib: 0 }));
        let (cpus, mib) = (16, 65536);
        assert_eq!(wanted("16:65536"), Ok(Wanted { cpus, mib }));
        for wrong in [
            "", "0", "0:5", ":5", "4:", "-1", "+4", "4:5:6", "4 ", "4:5MiB",
        ] {
            assert!(wanted(wrong).is_err(), "{wrong}");
        }
    }
}
