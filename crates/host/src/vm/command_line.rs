//! What QEMU's command line says of a machine: its name, memory, monitors and agent's port.
//!
//! Options begin with one dash or two; for most of them, the next word is their value: `key=value` pairs separated by
//! commas, with commas in values doubled and the first key left out where it is implied; or one JSON object
//! (qemu-options.hx, util/keyval.c). A value may look like an option (`-append -name`), so options are told from values
//! by which of them take one.
//!
//! A VFIO device or huge pages (hugetlb) show that memory is to stay where it is. A device that is plugged in later
//! does not show here; the kernel then refuses to move what is pinned for it.
//!
//! Not read: `-readconfig` files, and sockets that are not in the file system (TCP, abstract).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use numaherd_quantity::parse_bytes;
use numaherd_world::FixedMemory;

use crate::agent::PORT_NAME;

/// Options without a value, of QEMU 2 to 10; all others take the next word.
const WITHOUT_VALUE: &str = "S alt-grab ctrl-grab curses daemonize enable-fips enable-kvm \
    enable-sync-profile full-screen \
    h help jitdump mem-prealloc no-acpi no-fd-bootchk no-frame no-hpet no-kvm no-kvm-irqchip \
    no-kvm-pit no-kvm-pit-reinjection no-quit no-reboot no-shutdown no-user-config nodefaults \
    nodefconfig nographic old-param only-migratable perfmap portrait preconfig s sdl semihosting \
    singlestep snapshot usb version win2k-hack xen-attach xen-domid-restrict";

/// Where QEMU listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Socket {
    /// A path as QEMU saw it: from its working directory, under its root.
    Path {
        path: PathBuf,
        /// Whether QEMU's machine waits for a connection (`wait=on`).
        waits: bool,
    },
    /// A descriptor that QEMU's starter gave it, already listening.
    Descriptor(u32),
}

/// What a command line says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// Name of the machine.
    pub name: Option<String>,
    /// Memory that the machine starts with, in bytes.
    pub memory_bytes: Option<u64>,
    /// Monitors that speak QMP.
    pub monitors: Vec<Socket>,
    /// The port of the agent in the guest.
    pub agent: Option<Socket>,
    /// Why its memory is to stay in place.
    pub fixed_memory: Option<FixedMemory>,
}

/// Reads `/proc/PID/cmdline`: words that each end with a zero byte.
pub fn parse(text: &[u8]) -> CommandLine {
    let mut line = CommandLine::default();
    let mut sockets = BTreeMap::new();
    let mut monitors = Vec::new();
    let mut agent = None;
    let mut huge = false;
    for (option, value) in options(text) {
        let with = |implied: &str| pairs(value, implied);
        match option {
            b"name" => line.name = with("guest").remove("guest").or(line.name),
            // In MiB without a unit.
            b"m" => {
                line.memory_bytes = with("size")
                    .get("size")
                    .and_then(|size| parse_bytes(size, 1 << 20).ok());
            }
            b"chardev" => {
                let pairs = with("backend");
                if let (Some("socket"), Some(id)) = (text_of(&pairs, "backend"), pairs.get("id")) {
                    sockets.insert(id.clone(), listening(&pairs));
                }
            }
            b"qmp" | b"qmp-pretty" => monitors.push(short_form(value)),
            b"mon" => {
                let mut pairs = with("chardev");
                if text_of(&pairs, "mode") == Some("control") {
                    monitors.extend(pairs.remove("chardev").map(Monitor::Named));
                }
            }
            b"device" => {
                let mut pairs = with("driver");
                let is_port = text_of(&pairs, "driver") == Some("virtserialport");
                if is_port && text_of(&pairs, "name") == Some(PORT_NAME) {
                    agent = pairs.remove("chardev");
                } else if text_of(&pairs, "driver").is_some_and(|d| d.starts_with("vfio-")) {
                    line.fixed_memory = Some(FixedMemory::Device);
                }
            }
            b"mem-path" => huge |= is_of_huge_pages(&String::from_utf8_lossy(value)),
            b"object" => {
                let pairs = with("qom-type");
                huge |= text_of(&pairs, "hugetlb").and_then(truth) == Some(true);
                huge |= text_of(&pairs, "mem-path").is_some_and(is_of_huge_pages);
            }
            _ => {}
        }
    }
    let socket = |id: &String| sockets.get(id).cloned().flatten();
    line.monitors = monitors
        .into_iter()
        .filter_map(|monitor| match monitor {
            Monitor::Named(id) => socket(&id),
            Monitor::At(socket) => socket,
        })
        .collect();
    line.agent = agent.as_ref().and_then(socket);
    let huge = huge.then_some(FixedMemory::HugePages);
    line.fixed_memory = line.fixed_memory.or(huge);
    line
}

/// Whether a path is in a file system of huge pages, as mounted by systemd and libvirt (`/dev/hugepages`,
/// `/dev/hugepages1G`) and by hand (`/mnt/huge`).
fn is_of_huge_pages(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with("huge"))
}

/// A monitor as an option gives it.
enum Monitor {
    /// By the name of a character device.
    Named(String),
    /// By its socket; `None` if it cannot be found.
    At(Option<Socket>),
}

/// The options with their values, in order; without what stands alone (disk images).
fn options(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    // The first word is the program.
    let mut words = text.split(|byte| *byte == 0).skip(1);
    std::iter::from_fn(move || {
        loop {
            let word = words.next()?;
            let Some(option) = word.strip_prefix(b"-") else {
                continue;
            };
            let option = option.strip_prefix(b"-").unwrap_or(option);
            let alone = WITHOUT_VALUE
                .split(' ')
                .any(|name| name.as_bytes() == option);
            let value: &[u8] = if alone { b"" } else { words.next()? };
            return Some((option, value));
        }
    })
}

/// The pairs of a value; `implied` is the key of a first word without one. The last of equal keys counts. Words without
/// a value are switches: `key` is on, `nokey` is off.
fn pairs(value: &[u8], implied: &str) -> BTreeMap<String, String> {
    if value.starts_with(b"{") {
        return json_pairs(value);
    }
    let mut pairs = BTreeMap::new();
    for (at, word) in between_commas(value).into_iter().enumerate() {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (key, value) = match word.iter().position(|byte| *byte == b'=') {
            Some(equals) => (text(&word[..equals]), text(&word[equals + 1..])),
            None if at == 0 && !implied.is_empty() => (implied.to_owned(), text(&word)),
            None => match word.strip_prefix(b"no") {
                Some(key) if !key.is_empty() => (text(key), "off".to_owned()),
                _ => (text(&word), "on".to_owned()),
            },
        };
        pairs.insert(key, value);
    }
    pairs
}

/// The members of a JSON object that are strings, numbers or truths.
fn json_pairs(value: &[u8]) -> BTreeMap<String, String> {
    use serde_json::Value;
    let Ok(Value::Object(members)) = serde_json::from_slice(value) else {
        return BTreeMap::new();
    };
    let plain = |value| match value {
        Value::String(text) => Some(text),
        Value::Bool(on) => Some(if on { "on" } else { "off" }.to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    members
        .into_iter()
        .filter_map(|(key, value)| Some((key, plain(value)?)))
        .collect()
}

/// Splits at single commas; two are one in the text.
fn between_commas(value: &[u8]) -> Vec<Vec<u8>> {
    let mut words = vec![Vec::new()];
    let mut bytes = value.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte == b',' && bytes.next_if_eq(&b',').is_none() {
            words.push(Vec::new());
        } else if let Some(word) = words.last_mut() {
            word.push(byte);
        }
    }
    words
}

fn text_of<'p>(pairs: &'p BTreeMap<String, String>, key: &str) -> Option<&'p str> {
    pairs.get(key).map(String::as_str)
}

/// A truth as QEMU reads them; `None` for what is none.
fn truth(text: &str) -> Option<bool> {
    match text {
        "on" | "yes" | "true" | "y" => Some(true),
        "off" | "no" | "false" | "n" => Some(false),
        _ => None,
    }
}

/// The socket at which a character device listens; `None` if it calls out, or has no path in the file system.
fn listening(pairs: &BTreeMap<String, String>) -> Option<Socket> {
    let on = |key: &str, unsaid: bool| text_of(pairs, key).and_then(truth).unwrap_or(unsaid);
    if !on("server", false) || on("abstract", false) {
        return None;
    }
    if let Some(descriptor) = pairs.get("fd") {
        return descriptor.parse().ok().map(Socket::Descriptor);
    }
    let path = text_of(pairs, "path").filter(|path| !path.is_empty())?;
    Some(Socket::Path {
        path: PathBuf::from(OsStr::from_bytes(path.as_bytes())),
        waits: on("wait", true),
    })
}

/// The monitor that `-qmp` names: `unix:PATH,…`, or `chardev:ID`.
fn short_form(value: &[u8]) -> Monitor {
    if let Some(id) = value.strip_prefix(b"chardev:") {
        return Monitor::Named(String::from_utf8_lossy(id).into_owned());
    }
    let socket = value.strip_prefix(b"unix:");
    Monitor::At(socket.and_then(|value| listening(&pairs(value, "path"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(words: &[&str]) -> CommandLine {
        let text: String = words.iter().map(|word| format!("{word}\0")).collect();
        parse(text.as_bytes())
    }

    fn at(path: &str, waits: bool) -> Socket {
        let path = path.into();
        Socket::Path { path, waits }
    }

    #[test]
    fn a_machine_started_by_hand() {
        let line = line(&[
            "qemu-system-x86_64",
            "-enable-kvm",
            "-name",
            "guest=a,,b=c,debug-threads=on",
            "-m",
            "2G,slots=2,maxmem=8G",
            "--qmp",
            "unix:q.sock,server=on,wait=off",
            "-qmp-pretty",
            "unix:/run/pretty,server",
            "disk.img",
        ]);
        assert_eq!(line.name.as_deref(), Some("a,b=c"));
        assert_eq!(line.memory_bytes, Some(2 << 30));
        assert_eq!(
            line.monitors,
            [at("q.sock", false), at("/run/pretty", true)]
        );
        assert_eq!(line.agent, None);
    }

    #[test]
    fn a_machine_as_libvirt_starts_it() {
        let line = line(&[
            "/usr/bin/qemu-system-x86_64",
            "-name",
            "guest=web-1,debug-threads=on",
            "-S",
            "-object",
            r#"{"qom-type":"secret","id":"masterKey0","format":"raw"}"#,
            "-m",
            "size=4194304k",
            "-nodefaults",
            "-chardev",
            "socket,id=charmonitor,fd=29,server=on,wait=off",
            "-mon",
            "chardev=charmonitor,id=monitor,mode=control",
            "-chardev",
            "socket,id=charchannel0,fd=33,server=on,wait=off",
            "-device",
            r#"{"driver":"virtserialport","bus":"virtio-serial0.0","nr":1,"chardev":"charchannel0","id":"channel0","name":"org.numaherd.agent.0"}"#,
        ]);
        assert_eq!(line.name.as_deref(), Some("web-1"));
        assert_eq!(line.memory_bytes, Some(4 << 30));
        assert_eq!(line.monitors, [Socket::Descriptor(29)]);
        assert_eq!(line.agent, Some(Socket::Descriptor(33)));
    }

    #[test]
    fn memory_of_huge_pages_or_pinned_for_a_device_is_fixed() {
        let of = |words: &[&str]| line(&[&["qemu"], words].concat()).fixed_memory;
        let huge = Some(FixedMemory::HugePages);
        let json =
            r#"{"qom-type":"memory-backend-file","mem-path":"/dev/hugepages/libvirt/qemu/1-a"}"#;
        for words in [
            ["-object", json],
            ["-object", "memory-backend-memfd,id=m,size=1G,hugetlb=on"],
            [
                "-object",
                r#"{"qom-type":"memory-backend-memfd","hugetlb":true}"#,
            ],
            ["-mem-path", "/mnt/huge"],
        ] {
            assert_eq!(of(&words), huge, "{words:?}");
        }
        for device in [
            "vfio-pci,host=01:00.0",
            r#"{"driver":"vfio-pci","host":"0000:01:00.0"}"#,
        ] {
            let words = ["-device", device, "-mem-path", "/dev/hugepages"];
            assert_eq!(of(&words), Some(FixedMemory::Device), "{device}");
        }
        for words in [
            ["-object", "memory-backend-memfd,id=m,size=1G,hugetlb=off"],
            ["-object", "memory-backend-file,mem-path=/dev/shm/a"],
            ["-device", "virtio-net"],
        ] {
            assert_eq!(of(&words), None, "{words:?}");
        }
    }

    #[test]
    fn only_the_agents_own_port_is_the_agents() {
        let port = |name: &str| {
            line(&[
                "qemu",
                "-chardev",
                "socket,id=c,path=/run/a,server,nowait",
                "-device",
                &format!("virtserialport,chardev=c,name={name}"),
            ])
            .agent
        };
        assert_eq!(port(PORT_NAME), Some(at("/run/a", false)));
        assert_eq!(port("org.qemu.guest_agent.0"), None);
    }

    #[test]
    fn a_value_that_looks_like_an_option_is_none() {
        let line = line(&["qemu", "-append", "-name", "-nographic", "-name", "real"]);
        assert_eq!(line.name.as_deref(), Some("real"));
    }

    #[test]
    fn monitors_for_people_and_sockets_that_call_out_are_not_asked() {
        let line = line(&[
            "qemu",
            "-chardev",
            "socket,id=a,path=/run/a,server=on",
            "-mon",
            "chardev=a,mode=readline",
            "-chardev",
            "socket,id=b,path=/run/b",
            "-mon",
            "b,mode=control",
            "-qmp",
            "tcp:localhost:4444,server",
            "-qmp",
            "stdio",
            "-qmp",
            "unix:@hidden,abstract=on,server=on",
            "-monitor",
            "unix:/run/people,server",
        ]);
        assert_eq!(line.monitors, []);
    }

    proptest! {
        #[test]
        fn names_are_read_back(name in "[a-z,= {-]{1,20}") {
            let value = format!("guest={}", name.replace(',', ",,"));
            prop_assert_eq!(line(&["qemu", "-S", "-name", &value]).name, Some(name));
        }

        #[test]
        fn garbage_never_panics(
            words in proptest::collection::vec(
                prop_oneof![
                    Just("-qmp".to_owned()),
                    Just("-chardev".to_owned()),
                    Just("-device".to_owned()),
                    Just("-m".to_owned()),
                    "[a-z0-9,=:/{}\"]{0,40}",
                    any::<String>(),
                ],
                0..12,
            ),
        ) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let _ = line(&words);
        }
    }
}
