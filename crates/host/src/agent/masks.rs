//! Which CPUs run threads whose mask is smaller than the machine: the guest kernel's work in BRM
//! (§4.3, §5), done from user space.
//!
//! The paper's kernel looks at a thread's mask each time it is scheduled, and tags its CPU; here all
//! threads are looked at a few times a second. The paper passes over threads with numbers below 1000,
//! its kernel's own; here kernel threads are recognized by their flag.
//!
//! A look must be cheap, since it runs beside the guest's own work: one system call per thread reads
//! its mask. The folder of a process's threads is listed again only when its number of entries has
//! changed or one of the threads has ended. Whether a process is the kernel's is looked up again once
//! in [`SELDOM`] looks, since a number may be reused. The stat file is read, for the CPU, only of the
//! few threads with small masks.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use numaherd_topology::CpuSet;

use super::protocol::GuestTags;
use crate::files::Root;
use crate::kernel::Kernel;
use crate::proc::stat;

/// Looks between two at what seldom changes.
const SELDOM: u64 = 64;

#[derive(Debug)]
pub(super) struct Masks {
    root: Root,
    kernel: Arc<dyn Kernel>,
    /// This program, which is left out.
    own_pid: Option<u32>,
    processes: HashMap<u32, KnownProcess>,
    looks: u64,
    mask: Vec<u64>,
    text: Vec<u8>,
}

/// What is known of a process from earlier looks.
#[derive(Debug)]
struct KnownProcess {
    is_kernels: bool,
    threads: Vec<u32>,
    /// Links of the folder of its threads when that was listed.
    links: u64,
    seen: u64,
}

impl Masks {
    pub(super) fn new(root: Root, kernel: Arc<dyn Kernel>) -> Self {
        Self {
            own_pid: root.is_live().then(std::process::id),
            root,
            kernel,
            processes: HashMap::new(),
            looks: 0,
            mask: Vec::new(),
            text: Vec::new(),
        }
    }

    /// Looks at all threads.
    ///
    /// # Errors
    /// Processes cannot be listed, or sysfs does not list the CPUs.
    pub(super) fn look(&mut self) -> std::io::Result<GuestTags> {
        let no_cpus = || std::io::Error::other("sys/devices/system/cpu does not list the CPUs");
        let online = self.root.online_cpus().ok_or_else(no_cpus)?;
        let present: Option<CpuSet> = self.root.list("sys/devices/system/cpu/present");
        let last = present.and_then(|cpus| cpus.last()).max(online.last());
        let vcpus = last.map_or(0, |cpu| cpu.0.saturating_add(1));
        let mut tagged = CpuSet::new();
        self.looks += 1;
        for pid in self.root.numbers("proc", "")? {
            if Some(pid) != self.own_pid {
                self.look_at_process(pid, &online, &mut tagged);
            }
        }
        let looks = self.looks;
        self.processes.retain(|_, known| known.seen == looks);
        Ok(GuestTags {
            vcpus,
            tagged: tagged.iter().map(|cpu| cpu.0).collect(),
        })
    }

    fn look_at_process(&mut self, pid: u32, online: &CpuSet, tagged: &mut CpuSet) {
        let seldom = (self.looks + u64::from(pid)).is_multiple_of(SELDOM);
        let known = self.processes.remove(&pid).filter(|_| !seldom);
        let Some(mut known) = known.or_else(|| self.meet(pid)) else {
            return;
        };
        known.seen = self.looks;
        if !known.is_kernels {
            let links = self.links(pid);
            let complete = links == Some(known.links)
                && self.look_at_threads(pid, &known.threads, online, tagged);
            if !complete {
                known.threads = self.threads(pid);
                known.links = links.unwrap_or(0);
                self.look_at_threads(pid, &known.threads, online, tagged);
            }
        }
        self.processes.insert(pid, known);
    }

    /// Looks for the first time; `None` where the process is gone.
    fn meet(&self, pid: u32) -> Option<KnownProcess> {
        let text = self.root.read(&format!("proc/{pid}/stat")).ok()?;
        Some(KnownProcess {
            is_kernels: stat::parse(&text)?.is_kernels(),
            threads: Vec::new(),
            links: 0,
            seen: 0,
        })
    }

    /// Tags the CPUs of threads with small masks; whether all of the threads are there.
    fn look_at_threads(
        &mut self,
        pid: u32,
        threads: &[u32],
        online: &CpuSet,
        tagged: &mut CpuSet,
    ) -> bool {
        let mut all = true;
        for &tid in threads {
            match self.kernel.affinity(tid, &mut self.mask) {
                Err(_) => all = false,
                Ok(()) if is_whole(&self.mask, online) => {}
                Ok(()) => {
                    let path = format!("proc/{pid}/task/{tid}/stat");
                    let text = self.root.read_into(&path, &mut self.text);
                    match text.ok().and_then(|()| stat::parse(&self.text)) {
                        Some(stat) if !stat.has_ended() => drop(tagged.insert(stat.cpu.into())),
                        Some(_) => {}
                        None => all = false,
                    }
                }
            }
        }
        all
    }

    fn threads(&self, pid: u32) -> Vec<u32> {
        let tids = self.root.numbers(&format!("proc/{pid}/task"), "");
        // A process that has just ended has none.
        tids.unwrap_or_default()
    }

    /// Links of the folder of a process's threads: two and one for each, in procfs.
    fn links(&self, pid: u32) -> Option<u64> {
        let folder = self.root.path(&format!("proc/{pid}/task"));
        Some(std::fs::metadata(folder).ok()?.nlink())
    }
}

/// Whether a mask covers all online CPUs.
fn is_whole(mask: &[u64], online: &CpuSet) -> bool {
    let words = online.as_words().iter().enumerate();
    words
        .map(|(at, &word)| word & !mask.get(at).unwrap_or(&0))
        .all(|left_out| left_out == 0)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::kernel::of_root;

    const KERNEL_THREAD: u64 = 0x0020_0000;

    struct Tree(tempfile::TempDir);

    impl Tree {
        /// A guest of four CPUs, of which `online` are.
        fn new(online: &str) -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            tree.write("sys/devices/system/cpu/online", online);
            tree.write("sys/devices/system/cpu/present", "0-3\n");
            std::fs::create_dir_all(tree.path().join("proc")).unwrap();
            tree
        }

        fn path(&self) -> &Path {
            self.0.path()
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        /// A thread of a process, on a CPU.
        fn thread(&self, pid: u32, tid: u32, flags: u64, mask: &str, cpu: u32) {
            let stat = format!(
                "{tid} (x) R 1 0 0 0 -1 {flags} 0 0 0 0 7 5 0 0 20 0 1 0 {tid} 0 0 0 0 0 0 0 0 0 \
                 0 0 \
                 0 0 0 0 17 {cpu} 0 0 0 0\n"
            );
            let status = format!("Name:\tx\nCpus_allowed_list:\t{mask}\n");
            for folder in [format!("proc/{tid}"), format!("proc/{pid}/task/{tid}")] {
                self.write(&format!("{folder}/stat"), &stat);
                self.write(&format!("{folder}/status"), &status);
            }
        }

        fn end(&self, pid: u32, tid: u32) {
            for folder in [format!("proc/{pid}/task/{tid}"), format!("proc/{tid}")] {
                let _ = std::fs::remove_dir_all(self.path().join(folder));
            }
        }

        fn masks(&self) -> Masks {
            let root = Root::new(self.path());
            Masks::new(root.clone(), of_root(&root))
        }
    }

    fn tagged(masks: &mut Masks) -> Vec<u32> {
        masks.look().unwrap().tagged
    }

    #[test]
    fn cpus_of_threads_with_small_masks_are_tagged() {
        let tree = Tree::new("0-3\n");
        tree.thread(10, 10, 0, "0-3", 0);
        tree.thread(10, 11, 0, "1-2", 1);
        tree.thread(20, 20, 0, "3", 3);
        // As kworker/2:0 has it.
        tree.thread(30, 30, KERNEL_THREAD, "2", 2);
        let mut masks = tree.masks();
        let (vcpus, tags) = (4, vec![1, 3]);
        let tagged = tags;
        assert_eq!(masks.look().unwrap(), GuestTags { vcpus, tagged });
    }

    #[test]
    fn a_tag_follows_its_thread_and_goes_with_it() {
        let tree = Tree::new("0-3\n");
        tree.thread(10, 10, 0, "0-3", 0);
        tree.thread(10, 11, 0, "1-2", 1);
        let mut masks = tree.masks();
        assert_eq!(tagged(&mut masks), [1]);
        tree.thread(10, 11, 0, "1-2", 2);
        assert_eq!(tagged(&mut masks), [2]);
        tree.end(10, 11);
        assert_eq!(tagged(&mut masks), Vec::<u32>::new());
        // A new thread; and one whose user binds it only now.
        tree.thread(10, 12, 0, "3", 3);
        tree.thread(10, 10, 0, "0", 0);
        assert_eq!(tagged(&mut masks), [0, 3]);
    }

    #[test]
    fn a_number_that_a_kernel_thread_had_is_looked_at_again() {
        let tree = Tree::new("0-3\n");
        tree.thread(30, 30, KERNEL_THREAD, "2", 2);
        let mut masks = tree.masks();
        assert_eq!(tagged(&mut masks), Vec::<u32>::new());
        tree.thread(30, 30, 0, "2", 2);
        let found = (0..SELDOM).any(|_| tagged(&mut masks) == [2]);
        assert!(found, "not within {SELDOM} looks");
    }

    #[test]
    fn a_cpu_that_is_offline_makes_no_mask_small() {
        let tree = Tree::new("0-2\n");
        tree.thread(10, 10, 0, "0-2", 0);
        tree.thread(20, 20, 0, "0-1,3", 1);
        let mut masks = tree.masks();
        let told = masks.look().unwrap();
        assert_eq!((told.vcpus, told.tagged), (4, vec![1]));
    }

    #[test]
    fn a_tree_without_cpus_is_refused() {
        let tree = Tree::new("0-3\n");
        std::fs::remove_file(tree.path().join("sys/devices/system/cpu/online")).unwrap();
        assert!(tree.masks().look().is_err());
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        let root = Root::new(Path::new("/"));
        let mut masks = Masks::new(root.clone(), of_root(&root));
        for _ in 0..3 {
            let told = masks.look().unwrap();
            assert!(told.tagged.iter().all(|&cpu| cpu < told.vcpus));
        }
        assert!(
            masks
                .processes
                .values()
                .any(|known| !known.threads.is_empty())
        );
    }

    proptest! {
        #[test]
        fn a_mask_is_whole_when_it_contains_what_is_online(
            mask in proptest::collection::btree_set(0u32..200, 0..40),
            online in proptest::collection::btree_set(0u32..200, 0..40),
        ) {
            let set = |cpus: &std::collections::BTreeSet<u32>| {
                cpus.iter().map(|&cpu| cpu.into()).collect::<CpuSet>()
            };
            let whole = is_whole(set(&mask).as_words(), &set(&online));
            prop_assert_eq!(whole, online.is_subset(&mask));
        }
    }
}
