//! Each steerer, in a tree with the files that it is known by, and in one without.

use super::*;

/// A tree of these files; what is found in it.
fn found(files: &[(&str, &str)]) -> Vec<Finding> {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    others(&Root::new(folder.path()))
}

/// The only finding, which must say what to do.
#[track_caller]
fn one(files: &[(&str, &str)]) -> Finding {
    let mut found = found(files);
    assert_eq!(found.len(), 1, "{found:?}");
    let only = found.remove(0);
    assert!(only.remedy.is_some(), "{only:?}");
    only
}

#[test]
fn a_quiet_machine_has_nobody() {
    let quiet = [
        ("proc/sys/kernel/numa_balancing", "0\n"),
        ("sys/kernel/sched_ext/state", "disabled\n"),
        ("proc/1/comm", "systemd\n"),
        ("sys/fs/cgroup/system.slice/cpuset.cpus", "\n"),
        ("sys/devices/system/cpu/online", "0-7\n"),
        ("sys/fs/cgroup/cpuset/docker/cpuset.cpus", "0-7\n"),
        (
            "etc/systemd/system.conf",
            "[Manager]\n#CPUAffinity=0-3\nNUMAPolicy=\n",
        ),
        ("sys/devices/system/cpu/isolated", "\n"),
        ("sys/kernel/mm/numa/demotion_enabled", "false\n"),
        ("sys/kernel/mm/damon/admin/kdamonds/0/state", "off\n"),
        ("sys/kernel/mm/ksm/run", "0\n"),
        ("sys/kernel/mm/ksm/merge_across_nodes", "1\n"),
        (
            "var/lib/kubelet/cpu_manager_state",
            r#"{"policyName":"none"}"#,
        ),
        (
            "var/lib/kubelet/memory_manager_state",
            r#"{"policyName":"None"}"#,
        ),
    ];
    assert_eq!(found(&quiet), []);
    assert_eq!(found(&[]), []);
}

#[test]
fn balancing_and_tiering_disturb() {
    let mode = |mode| one(&[("proc/sys/kernel/numa_balancing", mode)]);
    for (value, told) in [
        ("1\n", "other policies"),
        ("3\n", "other policies"),
        ("2\n", "slow memory"),
    ] {
        let finding = mode(value);
        assert_eq!(finding.verdict, Verdict::Weak);
        assert!(finding.found.contains(told), "{finding:?}");
    }
}

#[test]
fn daemons_are_known_by_their_names() {
    for (name, verdict) in [
        ("numad", Verdict::Bad),
        ("irqbalance", Verdict::Weak),
        ("slurmd", Verdict::Weak),
        ("tuned", Verdict::Weak),
    ] {
        let finding = one(&[("proc/70/comm", name), ("proc/71/comm", "other")]);
        assert_eq!((finding.subject.as_str(), finding.verdict), (name, verdict));
        assert!(finding.found.contains("process 70"), "{finding:?}");
    }
    let profiled = one(&[
        ("proc/70/comm", "tuned\n"),
        ("etc/tuned/active_profile", "latency-performance\n"),
    ]);
    assert!(
        profiled.found.contains("latency-performance"),
        "{profiled:?}"
    );
}

#[test]
fn kubelet_is_known_by_its_state_however_it_is_spaced() {
    let cpu = one(&[(
        "var/lib/kubelet/cpu_manager_state",
        "{\n  \"policyName\": \"static\",\n  \"defaultCpuSet\": \"0-7\"\n}",
    )]);
    assert_eq!(cpu.subject, "kubelet");
    let memory = one(&[(
        "var/lib/kubelet/memory_manager_state",
        r#"{"policyName":"Static"}"#,
    )]);
    assert_eq!(memory.subject, "kubelet memory");
}

#[test]
fn cpusets_of_machines_and_of_others_are_told_apart() {
    let machine = "sys/fs/cgroup/machine.slice/machine-qemu.scope/libvirt";
    let found = found(&[
        (&format!("{machine}/vcpu0/cpuset.cpus"), "2\n"),
        (&format!("{machine}/vcpu1/cpuset.cpus"), "3\n"),
        (&format!("{machine}/emulator/cpuset.cpus"), "\n"),
        ("sys/fs/cgroup/system.slice/db.service/cpuset.cpus", "0-3\n"),
    ]);
    let told: Vec<&str> = found.iter().map(|one| one.found.as_str()).collect();
    assert_eq!(
        told,
        [
            "it keeps 2 vCPUs or their emulators to CPUs of their own \
             (/sys/fs/cgroup/machine.slice/machine-qemu.scope/libvirt/vcpu0: 2)",
            "1 control groups have CPUs of their own (/sys/fs/cgroup/system.slice/db.service: 0-3)",
        ]
    );
}

#[test]
fn systemd_is_read_where_a_person_writes() {
    let finding = one(&[
        ("etc/systemd/system.conf", "[Manager]\nCPUAffinity=0-3\n"),
        (
            "etc/systemd/system/db.service.d/numa.conf",
            "[Service]\nNUMAPolicy = bind\nNUMAMask=0\n",
        ),
        (
            "etc/systemd/system/web.service",
            "[Service]\nExecStart=/bin/true\n",
        ),
    ]);
    assert_eq!(
        finding.found,
        "it starts services with CPUs or nodes of their own (/etc/systemd/system.conf: \
         CPUAffinity=0-3 and 1 more)"
    );
}

#[test]
fn the_kernels_own_movers_are_found() {
    let isolated = one(&[("sys/devices/system/cpu/isolated", "4-7\n")]);
    assert!(isolated.found.contains("4-7"), "{isolated:?}");
    let demoting = one(&[("sys/kernel/mm/numa/demotion_enabled", "true\n")]);
    assert_eq!(demoting.subject, "demotion");
    let watching = one(&[
        ("sys/kernel/mm/damon/admin/kdamonds/0/state", "on\n"),
        ("sys/kernel/mm/damon/admin/kdamonds/1/state", "off\n"),
    ]);
    assert!(watching.found.starts_with("1 of"), "{watching:?}");
    let merging = one(&[
        ("sys/kernel/mm/ksm/run", "1\n"),
        ("sys/kernel/mm/ksm/merge_across_nodes", "1\n"),
    ]);
    assert_eq!(merging.subject, "KSM");
    let within = [
        ("sys/kernel/mm/ksm/run", "1\n"),
        ("sys/kernel/mm/ksm/merge_across_nodes", "0\n"),
    ];
    assert_eq!(found(&within), []);
}
