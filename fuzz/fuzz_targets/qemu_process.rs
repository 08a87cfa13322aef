//! What /proc shows of a process that may be a virtual machine: its command line and its cgroups.
//!
//! Holds: no bytes make the readers panic; a name that was read can be written on a command line, its
//! commas twice, and reads back the same; a vCPU's cgroup belongs to a domain, and the domain is the
//! same one with the vCPU's part taken off.
//!
//! Reader: crates/host/src/vm/command_line.rs crates/host/src/vm/libvirt.rs
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_host::vm::command_line;
use numaherd_host::vm::libvirt;

use numaherd_host::vm::command_line::{CommandLine, Socket};

numaherd_fuzz::target!(|text: &[u8]| {
    let line = command_line::parse(text);
    for socket in line.monitors.iter().chain(&line.agent) {
        if let Socket::Path { path, .. } = socket {
            assert!(!path.as_os_str().is_empty());
        }
    }
    if let Some(name) = line.name {
        let value = name.replace(',', ",,");
        let written = format!("qemu\0-name\0guest={value}\0");
        let expected = CommandLine {
            name: Some(name),
            ..CommandLine::default()
        };
        assert_eq!(command_line::parse(written.as_bytes()), expected);
    }
    let path = String::from_utf8_lossy(text);
    if libvirt::vcpu(&path).is_some() {
        let domain = libvirt::domain(&path);
        assert!(domain.is_some());
        let (above, _) = path.rsplit_once('/').expect("a vCPU is below its domain");
        assert_eq!(libvirt::domain(above), domain);
    }
});
