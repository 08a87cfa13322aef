//! What libvirt's cgroups say: which domain a process is, and which vCPU a thread is.
//!
//! libvirt puts each domain in a cgroup of its own and, below it, each vCPU's thread in `vcpuN`
//! (docs/cgroups.rst of libvirt). The layouts by age, in each the part before the vCPU:
//!
//! ```text
//! /machine.slice/machine-qemu\x2d3\x2dweb.scope/libvirt/vcpu0    systemd, since libvirt 5.9
//! /machine.slice/machine-qemu\x2d3\x2dweb.scope/vcpu0            systemd, before
//! /machine/qemu-3-web.libvirt-qemu/vcpu0                         no systemd
//! /machine/web.libvirt-qemu/vcpu0                                no systemd, older
//! /libvirt/qemu/web/vcpu0                                        libvirt before 1.0.5
//! ```
//!
//! The name in a scope is shortened and lacks what systemd does not allow: if QEMU's command line
//! also has one, that is better.

/// The name of the domain that a cgroup path belongs to; `None` if it is no domain of QEMU's.
pub fn domain(path: &str) -> Option<String> {
    let mut parts = path.split('/').skip_while(|part| part.is_empty());
    let mut before: [&str; 2] = [""; 2];
    parts.find_map(|part| {
        let found = scope(part)
            .or_else(|| part.strip_suffix(".libvirt-qemu").map(without_number))
            .or_else(|| {
                let oldest = before == ["libvirt", "qemu"] && !part.is_empty();
                oldest.then(|| part.to_owned())
            });
        before = [before[1], part];
        found
    })
}

/// The index of the vCPU whose cgroup this is.
pub fn vcpu(path: &str) -> Option<u32> {
    let (above, own) = path.rsplit_once('/')?;
    // A domain may be called so itself.
    domain(above)?;
    let number = own.strip_prefix("vcpu")?;
    let plain = number.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| number.parse().ok()).flatten()
}

/// The domain of a systemd scope `machine-qemu\x2d3\x2dweb.scope`.
fn scope(part: &str) -> Option<String> {
    let escaped = part.strip_prefix("machine-")?.strip_suffix(".scope")?;
    let name = unescaped(escaped);
    name.starts_with("qemu-").then(|| without_number(&name))
}

/// `qemu-3-web` is domain web with its number of this run before it.
fn without_number(name: &str) -> String {
    let after = || {
        let (number, name) = name.strip_prefix("qemu-")?.split_once('-')?;
        let plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        (plain && !name.is_empty()).then_some(name)
    };
    after().unwrap_or(name).to_owned()
}

/// Undoes systemd's escaping of unit names (systemd.unit(5)): `\xHH` is a byte, `-` is `/`.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = rest
            .strip_prefix(b"\\x")
            .and_then(|code| code.get(..2))
            .filter(|code| code.iter().all(u8::is_ascii_hexdigit))
            .and_then(|code| std::str::from_utf8(code).ok())
            .and_then(|code| u8::from_str_radix(code, 16).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[4..];
            }
            None => {
                bytes.push(if first == b'-' { b'/' } else { first });
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_names_its_domain_and_vcpu() {
        for layout in [
            r"/machine.slice/machine-qemu\x2d3\x2dweb\x2d1.scope/libvirt",
            r"/machine.slice/machine-qemu\x2d3\x2dweb\x2d1.scope",
            "/machine/qemu-3-web-1.libvirt-qemu",
            "/machine/web-1.libvirt-qemu",
            "/libvirt/qemu/web-1",
            r"/outer/machine.slice/machine-qemu\x2d3\x2dweb\x2d1.scope/libvirt",
        ] {
            assert_eq!(domain(layout).as_deref(), Some("web-1"), "{layout}");
            assert_eq!(vcpu(layout), None, "{layout}");
            let of_vcpu = format!("{layout}/vcpu12");
            assert_eq!(domain(&of_vcpu).as_deref(), Some("web-1"), "{of_vcpu}");
            assert_eq!(vcpu(&of_vcpu), Some(12), "{of_vcpu}");
            assert_eq!(vcpu(&format!("{layout}/emulator")), None);
        }
    }

    #[test]
    fn others_are_no_domains() {
        for path in [
            "/",
            "/user.slice/user-0.slice/session-1.scope",
            r"/machine.slice/machine-lxc\x2d3\x2dweb.scope/libvirt",
            "/machine.slice/machine-debian.scope",
            "/libvirt/qemu",
            "/libvirt/qemu/",
            "/jobs/vcpu0",
        ] {
            assert_eq!(domain(path), None, "{path}");
            assert_eq!(vcpu(path), None, "{path}");
        }
        assert_eq!(domain("/libvirt/qemu/vcpu7").as_deref(), Some("vcpu7"));
        assert_eq!(vcpu("/libvirt/qemu/vcpu7"), None);
    }

    #[test]
    fn a_vcpu_has_a_plain_number() {
        for name in ["vcpu", "vcpu-1", "vcpu+1", "vcpux", "vcpu4294967296"] {
            assert_eq!(vcpu(&format!("/libvirt/qemu/web/{name}")), None, "{name}");
        }
    }

    #[test]
    fn what_systemd_escaped_is_read_back() {
        assert_eq!(unescaped(r"a\x2db-c\x5cx"), r"a-b/c\x");
        assert_eq!(unescaped(r"\x2"), r"\x2");
        assert_eq!(unescaped(r"\xc3\xa4"), "ä");
    }
}
