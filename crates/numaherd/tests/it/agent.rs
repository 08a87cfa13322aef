//! `numaherd agent` in a real guest, heard by the host's world: the whole way from a thread's mask in
//! the guest to the tag of a vCPU's thread on the host. One boot serves all of it.
//!
//! Needs the lab (`make setup`); without it the test fails and says so.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use numaherd_host::{Host, HostOptions, Selection};
use numaherd_lab_launcher::{
    Command, Ending, Event, Guest, KernelFiles, Options, Running, SerialPort, Shape,
};
use numaherd_topology::sysfs;
use numaherd_world::{Agent, Snapshot, Tag, VirtualMachine, World};

const PROGRAM: &str = env!("CARGO_BIN_EXE_numaherd");
const PORT: &str = "org.numaherd.agent.0";

fn guest(socket: &Path) -> Guest {
    let files = KernelFiles::find(None).unwrap_or_else(|error| panic!("{error}"));
    let mut options = Options::new(Shape::uniform(2, 2, 512), files);
    options.serial_port = Some(SerialPort {
        name: PORT.to_owned(),
        socket: socket.to_owned(),
    });
    Guest::start(&options).unwrap_or_else(|error| panic!("{error}"))
}

fn start<'g>(guest: &'g Guest, script: &str) -> Running<'g> {
    let command = Command::inherited(["sh", "-c", script]).expect("a working directory");
    guest
        .spawn(&command)
        .unwrap_or_else(|error| panic!("{error}"))
}

fn ending(running: &mut Running<'_>) -> Ending {
    loop {
        if let Some(Event::Ended(ending)) = running.next(None).unwrap() {
            return ending;
        }
    }
}

fn end(mut running: Running<'_>) {
    running.signal(9).unwrap();
    ending(&mut running);
}

/// The host's view of the guest.
struct View {
    host: Host,
}

impl View {
    fn of(guest: &Guest) -> Self {
        let selection = Selection::Processes {
            pids: vec![guest.qemu_pid()],
            descendants: false,
        };
        let topology = Arc::new(sysfs::read(Path::new("/")).unwrap());
        let host = Host::new(HostOptions::new(selection), topology).unwrap();
        Self { host }
    }

    /// Observes until something is so, and gives the snapshot in which it is; what was said until then
    /// is in `gaps`.
    fn until(&mut self, what: &str, is_so: impl Fn(&VirtualMachine, &Snapshot) -> bool) -> Seen {
        let mut gaps = Vec::new();
        for _ in 0..1200 {
            self.host.run_for(Duration::from_millis(50));
            let snapshot = self.host.observe().unwrap();
            gaps.extend_from_slice(&snapshot.gaps);
            let machine = snapshot
                .processes
                .first()
                .and_then(|process| process.machine.clone());
            if let Some(machine) = machine.filter(|machine| is_so(machine, &snapshot)) {
                return Seen { machine, gaps };
            }
        }
        panic!("waited in vain for this: {what}; what was said: {gaps:?}");
    }

    /// Waits until the vCPUs have these tags, by index.
    fn until_tagged(&mut self, tags: [Option<Tag>; 4]) -> Seen {
        self.until(&format!("{tags:?}"), |machine, snapshot| {
            let of = |vcpu: &numaherd_world::VirtualCpu| snapshot.thread(vcpu.thread)?.tag;
            machine.vcpus.iter().map(of).eq(tags)
        })
    }
}

struct Seen {
    machine: Arc<VirtualMachine>,
    gaps: Vec<String>,
}

#[test]
fn a_mask_in_the_guest_becomes_a_tag_on_the_host_and_goes_with_its_thread() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("agent");
    let guest = guest(&socket);
    let mut view = View::of(&guest);

    let seen = view.until("four vCPUs", |machine, _| machine.vcpus.len() == 4);
    assert_eq!(seen.machine.agent, Agent::Silent);

    let mut agent = start(&guest, &format!("exec '{PROGRAM}' agent --interval 50ms"));
    let clear = Some(Tag::Clear);
    let seen = view.until_tagged([clear; 4]);
    assert_eq!(seen.machine.agent, Agent::Telling);

    let bound = start(&guest, "exec taskset -c 2 sh -c 'while :; do :; done'");
    view.until_tagged([clear, clear, Some(Tag::Agent), clear]);
    // Free on one node is still not free everywhere; it is where it runs.
    let two = start(&guest, "exec taskset -c 0,1 sleep 1000");
    view.until("a tag on node 0", |machine, snapshot| {
        let tagged = |index: usize| {
            let thread = snapshot.thread(machine.vcpus[index].thread);
            thread.and_then(|thread| thread.tag) == Some(Tag::Agent)
        };
        tagged(2) && (tagged(0) || tagged(1))
    });
    end(two);
    end(bound);
    view.until_tagged([clear; 4]);

    // An agent that is told to end does, and what it told is forgotten.
    agent.signal(15).unwrap();
    assert_eq!(ending(&mut agent), Ending::Exited(0));
    let seen = view.until_tagged([None; 4]);
    assert_eq!(seen.machine.agent, Agent::Silent);
    assert_eq!(seen.gaps, Vec::<String>::new());

    // And who speaks rubbish is cut off, with one sentence.
    let device =
        "/dev/$(grep -lx org.numaherd.agent.0 /sys/class/virtio-ports/*/name | cut -d/ -f5)";
    let rubbish = start(
        &guest,
        &format!("while :; do printf '\\n{{\"rubbish\":1}}\\n' > {device}; done"),
    );
    let seen = view.until("distrust", |machine, _| machine.agent == Agent::Distrusted);
    let said: Vec<&String> = seen
        .gaps
        .iter()
        .filter(|gap| gap.contains("is ignored"))
        .collect();
    assert_eq!(said.len(), 1, "{:?}", seen.gaps);
    assert!(said[0].contains("numaherd-lab"), "{}", said[0]);
    end(rubbish);
}
