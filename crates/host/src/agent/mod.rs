//! Explicit tags from inside a virtual machine (BRM §4.3, §5).
//!
//! The guest kernel of the paper makes two hypercalls: `tag` when a scheduled thread has a CPU mask
//! smaller than the machine, `clear` when it exits. Here no kernel is changed: a guest program looks
//! at the masks and tells the host over a virtio serial port.
//!
//! | part | file |
//! |---|---|
//! | the lines that are sent | [`protocol`] |
//! | in the guest: which CPUs run such threads | [`masks`] |
//! | in the guest: the port to the host | [`port`] |
//! | in the guest: what is told when | [`guest`] |
//! | on the host: how far an agent is believed | [`hearing`] |
//! | on the host: the connections to all agents | [`listener`] |
//!
//! A guest is not trusted: whatever it sends costs the host only a bounded amount of memory and time.
//! At worst, it decides whether its own vCPUs are candidates.

mod guest;
pub mod hearing;
mod listener;
mod masks;
mod port;
pub mod protocol;

use std::path::PathBuf;
use std::sync::Arc;

use numaherd_world::{Process, ProcessId, Tag, Thread, VirtualMachine};

use listener::{AgentListener, Port};

pub use guest::{AgentNews, AgentOptions, GuestAgent};
pub use protocol::GuestTags;
pub(crate) use protocol::PORT_NAME;

/// The agents of all watched machines.
#[derive(Debug, Default)]
pub(crate) struct Agents {
    /// From the first port on.
    listener: Option<AgentListener>,
}

impl Agents {
    /// Adds to the vCPUs' threads what the agents tell (`threads` ascend by id), and to the machines
    /// the state of their agents. `ports` are the sockets of the machines that have one. `gaps`
    /// reports each problem with an agent once.
    pub(crate) fn observe(
        &mut self,
        ports: impl IntoIterator<Item = (ProcessId, PathBuf)>,
        processes: &mut [Process],
        threads: &mut [Thread],
        gaps: &mut Vec<String>,
    ) {
        let ports: Vec<Port> = ports
            .into_iter()
            .filter_map(|(process, path)| port(process, path, processes))
            .collect();
        if self.listener.is_none() && ports.is_empty() {
            return;
        }
        let listener = match self.listener.take().map_or_else(AgentListener::start, Ok) {
            Ok(listener) => self.listener.insert(listener),
            Err(error) => {
                gaps.push(format!("no agent can be listened to: {error}"));
                return;
            }
        };
        listener.follow(ports);
        gaps.append(&mut listener.gaps());
        for process in processes {
            if let Some(machine) = &mut process.machine {
                let (agent, told) = listener.state(process.id);
                if machine.agent != agent {
                    Arc::make_mut(machine).agent = agent;
                }
                if let Some(told) = told {
                    tag(machine, &told, threads);
                }
            }
        }
    }
}

/// The port of a machine whose vCPUs are known.
fn port(process: ProcessId, path: PathBuf, processes: &[Process]) -> Option<Port> {
    let found = processes.binary_search_by_key(&process, |process| process.id);
    let machine = processes[found.ok()?].machine.as_ref()?;
    Some(Port {
        machine: process,
        name: machine.name.clone(),
        path,
        vcpus: machine.vcpus.last()?.index.saturating_add(1),
    })
}

/// Tags the threads of a machine's vCPUs. One whose own mask makes it a candidate stays one: its user
/// then cares where the vCPU is, whatever runs in it.
fn tag(machine: &VirtualMachine, told: &GuestTags, threads: &mut [Thread]) {
    for vcpu in machine.vcpus.iter().filter(|vcpu| vcpu.index < told.vcpus) {
        let found = threads.binary_search_by_key(&vcpu.thread, |thread| thread.id);
        if let Ok(at) = found {
            let tag = match told.tagged.binary_search(&vcpu.index) {
                Ok(_) => Tag::Agent,
                Err(_) => Tag::Clear,
            };
            threads[at].tag.get_or_insert(tag);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    use numaherd_world::{Agent, VirtualCpu};

    use super::*;
    use crate::fake::thread;

    #[test]
    fn what_an_agent_tells_is_put_to_the_threads_of_its_vcpus() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent");
        let socket = UnixListener::bind(&path).unwrap();
        let process = ProcessId {
            pid: std::process::id(),
            born: 1,
        };
        // Four vCPUs, three of them online in the guest; and a thread that runs none.
        let mut threads: Vec<Thread> = (10..15).map(|tid| thread(process, tid)).collect();
        threads[1].tag = Some(Tag::Mask);
        let vcpus = (0..4).map(|index| VirtualCpu {
            index,
            thread: threads[index as usize].id,
        });
        let machine = VirtualMachine {
            name: "web".to_owned(),
            vcpus: vcpus.collect(),
            memory_bytes: None,
            source: String::new(),
            agent: Agent::Silent,
            fixed_memory: None,
        };
        let mut processes = [Process {
            id: process,
            name: "qemu".to_owned(),
            allowed_nodes: Arc::default(),
            residency: None,
            memory_policy: None,
            extents: Arc::default(),
            sharing: None,
            machine: Some(Arc::new(machine)),
            group: None,
        }];
        let mut gaps = Vec::new();
        let mut agents = Agents::default();
        agents.observe([], &mut processes, &mut threads, &mut gaps);
        assert!(agents.listener.is_none(), "no thread without a port");

        let mut observe = |threads: &mut Vec<Thread>| {
            agents.observe(
                [(process, path.clone())],
                &mut processes,
                threads,
                &mut gaps,
            );
            processes[0].machine.as_ref().unwrap().agent
        };
        assert_eq!(observe(&mut threads), Agent::Silent);
        assert!(
            threads
                .iter()
                .all(|thread| thread.tag.is_none_or(|tag| tag == Tag::Mask))
        );
        let (vcpus, tagged) = (3, vec![0]);
        let line = protocol::write(0, &GuestTags { vcpus, tagged });
        let mut agent = socket.accept().unwrap().0;
        agent.write_all(&line).unwrap();
        while observe(&mut threads) != Agent::Telling {
            std::thread::yield_now();
        }
        let tags: Vec<Option<Tag>> = threads.iter().map(|thread| thread.tag).collect();
        let expected = [
            Some(Tag::Agent),
            Some(Tag::Mask),
            Some(Tag::Clear),
            None,
            None,
        ];
        assert_eq!(tags, expected);
        assert_eq!(gaps, Vec::<String>::new());
    }
}
