//! Which CPUs a thread's cgroup allows: cpusets of both cgroup versions.
//!
//! The kernel keeps every thread to its cpuset whatever anyone orders; this only lets the program know beforehand. A
//! cgroup without the controller has its parent's CPUs.
//!
//! Linux shows a cpuset's new CPUs before it has set the masks of its threads anew, one by one (`update_cpumasks_hier`
//! in kernel/cgroup/cpuset.c): a mask read in between need not be what this cpuset leaves of one. It may be what the
//! previous cpuset left of it ([`Cpusets::earlier`]).

use std::sync::Arc;

use numaherd_topology::CpuSet;

use crate::files::Root;
use crate::proc::cgroup::{Cgroups, Mounts, mounts, parse};

/// How long in ns the CPUs read for a cpuset count as current, where that matters (chosen here: far shorter than anyone
/// leaves a cpuset unchanged).
const FRESH_NS: u64 = 1_000_000;

/// How long in ns a mask may be what a former cpuset left of one (chosen here: the kernel is through with some ten
/// thousand threads by then).
const EARLIER_NS: u64 = 1_000_000_000;

/// How many former cpusets are kept (chosen here).
const MOST_EARLIER: usize = 16;

/// A known cpuset; its number stays the same while the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpusetNumber(usize);

/// All cpusets seen so far, each read at most once per scan.
#[derive(Debug)]
pub(crate) struct Cpusets {
    root: Root,
    mounts: Mounts,
    online: CpuSet,
    scan: u64,
    /// When it began.
    now_ns: u64,
    changes: u64,
    known: Vec<KnownCpuset>,
}

#[derive(Debug)]
struct KnownCpuset {
    unified: Option<String>,
    cpuset: Option<String>,
    cpus: Arc<CpuSet>,
    read_in: Option<u64>,
    /// The latest scan that found its CPUs changed.
    changed_in: Option<u64>,
    /// Its former CPUs, with when a change was found.
    earlier: Vec<(Arc<CpuSet>, u64)>,
}

impl Cpusets {
    pub(crate) fn new(root: Root) -> Self {
        let mut mounts = root
            .read("proc/self/mountinfo")
            .map(|text| mounts(&text))
            .unwrap_or_default();
        if mounts == Mounts::default() {
            mounts.unified = Some("sys/fs/cgroup".to_owned());
        }
        Self {
            root,
            mounts,
            online: CpuSet::new(),
            scan: 0,
            now_ns: 0,
            changes: 0,
            known: Vec::new(),
        }
    }

    /// Begins a scan: what was read before is old.
    pub(crate) fn begin(&mut self, online: &CpuSet) {
        self.scan += 1;
        self.online.clone_from(online);
    }

    /// The same at a time, with the CPUs online as before.
    pub(crate) fn begin_again(&mut self, now_ns: u64) {
        self.scan += 1;
        self.now_ns = now_ns;
    }

    /// The same unless the last scan has just begun.
    pub(crate) fn refresh(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.now_ns) >= FRESH_NS {
            self.begin_again(now_ns);
        }
    }

    /// What a cpuset had shortly before, if that differs.
    pub(crate) fn earlier(&self, number: CpusetNumber) -> Vec<CpuSet> {
        let is_recent = |until_ns: u64| self.now_ns.saturating_sub(until_ns) < EARLIER_NS;
        let earlier = self.known[number.0].earlier.iter();
        let recent = earlier.filter(|(_, until_ns)| is_recent(*until_ns));
        recent.map(|(cpus, _)| (**cpus).clone()).collect()
    }

    /// The cpuset of the thread with this folder in /proc.
    pub(crate) fn number_of(&mut self, folder: &str) -> CpusetNumber {
        let text = self.root.read(&format!("{folder}/cgroup"));
        self.number(&text.map(|text| parse(&text)).unwrap_or_default())
    }

    /// How often a known cpuset was found with other CPUs.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether its CPUs changed in this scan or the one before.
    pub(crate) fn has_changed(&mut self, number: CpusetNumber) -> bool {
        self.cpus(number);
        let changed_in = self.known[number.0].changed_in;
        changed_in.is_some_and(|changed_in| self.scan - changed_in < 2)
    }

    /// The number of the cpuset of these cgroups.
    pub(crate) fn number(&mut self, cgroups: &Cgroups) -> CpusetNumber {
        let same = |known: &KnownCpuset| {
            known.unified == cgroups.unified && known.cpuset == cgroups.cpuset
        };
        let at = self.known.iter().position(same).unwrap_or_else(|| {
            self.known.push(KnownCpuset {
                unified: cgroups.unified.clone(),
                cpuset: cgroups.cpuset.clone(),
                cpus: Arc::default(),
                read_in: None,
                changed_in: None,
                earlier: Vec::new(),
            });
            self.known.len() - 1
        });
        CpusetNumber(at)
    }

    /// Its CPUs that are online now.
    pub(crate) fn cpus(&mut self, number: CpusetNumber) -> Arc<CpuSet> {
        let known = &self.known[number.0];
        if known.read_in == Some(self.scan) {
            return known.cpus.clone();
        }
        let cpus = self
            .read(known)
            .map(|cpus| cpus.intersection(&self.online))
            .filter(|cpus| !cpus.is_empty())
            .unwrap_or_else(|| self.online.clone());
        let known = &mut self.known[number.0];
        if *known.cpus != cpus {
            let before = std::mem::replace(&mut known.cpus, Arc::new(cpus));
            if known.read_in.is_some() {
                known.changed_in = Some(self.scan);
                self.changes += 1;
                known.earlier.retain(|(cpus, _)| *cpus != before);
                if known.earlier.len() == MOST_EARLIER {
                    known.earlier.remove(0);
                }
                known.earlier.push((before, self.now_ns));
            }
        }
        known.read_in = Some(self.scan);
        known.cpus.clone()
    }

    fn read(&self, known: &KnownCpuset) -> Option<CpuSet> {
        let one = |mount: &Option<String>, path: &Option<String>, file: &str| {
            let mount = mount.as_deref()?;
            // A path outside the reader's cgroup namespace cannot be looked up.
            let mut path = path.as_deref().filter(|path| !path.contains("/.."))?;
            loop {
                path = path.trim_end_matches('/');
                let found = self.root.list(&format!("{mount}{path}/{file}"));
                if found.is_some() || path.is_empty() {
                    return found;
                }
                path = &path[..path.rfind('/').unwrap_or(0)];
            }
        };
        one(&self.mounts.cpuset, &known.cpuset, "cpuset.effective_cpus").or_else(|| {
            one(
                &self.mounts.unified,
                &known.unified,
                "cpuset.cpus.effective",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Cpusets) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let cpusets = Cpusets::new(Root::new(root.path()));
        (root, cpusets)
    }

    fn cpus_of(cpusets: &mut Cpusets, online: &str, cgroup: &str) -> String {
        cpusets.begin(&online.parse().unwrap());
        let number = cpusets.number(&parse(cgroup.as_bytes()));
        cpusets.cpus(number).to_string()
    }

    #[test]
    fn a_cgroup_without_the_controller_has_its_parents_cpus() {
        let (_root, mut cpusets) = tree(&[
            ("sys/fs/cgroup/jobs/cpuset.cpus.effective", "2-5\n"),
            ("sys/fs/cgroup/jobs/7/cgroup.procs", ""),
        ]);
        assert_eq!(cpus_of(&mut cpusets, "0-7", "0::/jobs/7\n"), "2-5");
        assert_eq!(cpus_of(&mut cpusets, "0-3", "0::/jobs/7\n"), "2-3");
        assert_eq!(cpus_of(&mut cpusets, "0-7", "0::/other\n"), "0-7");
    }

    #[test]
    fn version_one_is_asked_where_it_is_mounted() {
        let (_root, mut cpusets) = tree(&[
            (
                "proc/self/mountinfo",
                "30 1 0:27 / /cg/cpuset rw - cgroup none rw,cpuset\n",
            ),
            ("cg/cpuset/a/cpuset.effective_cpus", "1\n"),
        ]);
        assert_eq!(cpus_of(&mut cpusets, "0-7", "3:cpuset:/a\n0::/\n"), "1");
    }

    #[test]
    fn a_change_is_seen_by_the_next_scan() {
        let file = "sys/fs/cgroup/a/cpuset.cpus.effective";
        let (root, mut cpusets) = tree(&[(file, "0-1")]);
        assert_eq!(cpus_of(&mut cpusets, "0-7", "0::/a\n"), "0-1");
        std::fs::write(root.path().join(file), "4").unwrap();
        assert_eq!(cpus_of(&mut cpusets, "0-7", "0::/a\n"), "4");
        let number = cpusets.number(&parse(b"0::/a\n"));
        let earlier = |cpusets: &Cpusets| {
            cpusets
                .earlier(number)
                .iter()
                .map(CpuSet::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(earlier(&cpusets), ["0-1"]);
        cpusets.begin_again(EARLIER_NS);
        assert_eq!(earlier(&cpusets), Vec::<String>::new());
    }

    #[test]
    fn a_path_outside_the_namespace_is_not_followed() {
        let (_root, mut cpusets) = tree(&[("sys/fs/cgroup/cpuset.cpus.effective", "0")]);
        assert_eq!(cpus_of(&mut cpusets, "0-7", "0::/../../a\n"), "0-7");
    }
}
