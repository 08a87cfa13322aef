//! Rings that are files, and what is made of the records in them.

use super::*;
use crate::fake;
use crate::files::Root;
use crate::kernel::Attribute;
use crate::perf_errors::Reasons;
use crate::records::tests::{record, sample};
use numaherd_testing::machine;
use numaherd_topology::NodeId;
use std::collections::HashSet;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

const LOCAL: u64 = 0x2 | 0x80 << 5;
const REMOTE: u64 = 0x2 | 0x100 << 5;

fn recipe_of(per_cpu: bool) -> Recipe {
    let options = SampleOptions::default();
    let mut recipe = Recipe::new("test", Attribute::default(), &options);
    recipe.layout = crate::records::tests::PLAIN;
    recipe.per_cpu = per_cpu;
    recipe
}

fn roster(threads: &[u32]) -> Roster {
    let entry = |&tid: &u32| {
        let (thread, process) = (ThreadId { tid, born: 1 }, ProcessId { pid: tid, born: 1 });
        (tid, (thread, process))
    };
    Latest::new(threads.iter().map(entry).collect())
}

type Files = Arc<Mutex<BTreeMap<u32, std::fs::File>>>;

/// Counters whose events are files that look like empty rings, found by CPU or thread.
fn ring_files(files: &Files, refuse: HashSet<u32>) -> Arc<dyn Kernel> {
    let files = files.clone();
    Arc::new(fake::Counters(
        move |_: &Attribute, tid: Option<u32>, cpu: Option<u32>| {
            let which = tid.or(cpu).unwrap();
            if refuse.contains(&which) {
                return Err(Errno::MFILE);
            }
            let file = tempfile::tempfile().unwrap();
            file.set_len(17 * rustix::param::page_size() as u64)
                .unwrap();
            files
                .lock()
                .unwrap()
                .insert(which, file.try_clone().unwrap());
            Ok(file.into())
        },
    ))
}

/// The kernel writes records into a ring.
fn write(files: &Files, which: u32, records: &[Vec<u8>]) {
    let files = files.lock().unwrap();
    let file = &files[&which];
    let mut head = [0; 8];
    file.read_exact_at(&mut head, 1024).unwrap();
    let mut head = u64::from_ne_bytes(head);
    for record in records {
        let at = rustix::param::page_size() as u64 + head;
        file.write_all_at(record, at).unwrap();
        head += record.len() as u64;
    }
    file.write_all_at(&head.to_ne_bytes(), 1024).unwrap();
}

fn sampler(kernel: Arc<dyn Kernel>, per_cpu: bool, roster: Roster) -> Sampler {
    Sampler::new(
        kernel,
        recipe_of(per_cpu),
        machine(2, 1),
        MemoryBlocks::default(),
        roster,
        &SampleOptions::default(),
        1000,
    )
}

fn online() -> CpuSet {
    "0-1".parse().unwrap()
}

#[test]
fn samples_of_all_cpus_in_time_order_and_only_of_watched_threads() {
    let files = Files::default();
    let mut sampler = sampler(ring_files(&files, HashSet::new()), true, roster(&[7, 8]));
    assert!(sampler.collect(&online(), 1000).samples.is_empty());
    let (a, b) = (
        sample(7, 1300, 0xa000, 0, LOCAL),
        sample(7, 1500, 0xb000, 0, REMOTE),
    );
    write(&files, 0, &[a, b]);
    let (c, d) = (
        sample(8, 1400, 0xc000, 1, LOCAL),
        sample(99, 1450, 0xd000, 1, LOCAL),
    );
    write(&files, 1, &[c, d]);
    let collected = sampler.collect(&online(), 2000);
    let found: Vec<_> = collected
        .samples
        .iter()
        .map(|s| (s.time_ns, s.thread.tid, s.address, s.source, s.node))
        .collect();
    assert_eq!(
        found,
        [
            (300, 7, 0xa000, MemorySource::LocalMemory, Some(NodeId(0))),
            (400, 8, 0xc000, MemorySource::LocalMemory, Some(NodeId(1))),
            (500, 7, 0xb000, MemorySource::RemoteMemory, None),
        ]
    );
    assert!(collected.gaps.is_empty(), "{:?}", collected.gaps);
}

#[test]
fn a_rest_forgets_samples_and_gives_the_rings_back() {
    for per_cpu in [true, false] {
        let files = Files::default();
        let mut sampler = sampler(ring_files(&files, HashSet::new()), per_cpu, roster(&[0, 1]));
        sampler.collect(&online(), 1000);
        write(&files, 0, &[sample(0, 1300, 0xa000, 0, LOCAL)]);
        write(&files, 1, &[sample(1, 3000, 0xb000, 1, LOCAL)]);
        assert_eq!(sampler.collect(&online(), 2000).samples.len(), 1);
        write(&files, 0, &[sample(0, 2300, 0xc000, 0, LOCAL)]);
        sampler.close();
        // A file without holders is no longer written to: new rings are other files.
        let before = files.lock().unwrap().len();
        files.lock().unwrap().clear();
        assert!(sampler.collect(&online(), 4000).samples.is_empty());
        assert_eq!(files.lock().unwrap().len(), before);
        write(&files, 1, &[sample(1, 4300, 0xd000, 1, LOCAL)]);
        let found = sampler.collect(&online(), 5000).samples;
        let addresses: Vec<u64> = found.iter().map(|sample| sample.address).collect();
        assert_eq!(addresses, [0xd000]);
    }
}

#[test]
fn what_may_be_incomplete_waits_for_the_next_collection() {
    let files = Files::default();
    let mut sampler = sampler(ring_files(&files, HashSet::new()), true, roster(&[7]));
    sampler.collect(&online(), 1000);
    write(
        &files,
        0,
        &[
            sample(7, 1900, 1 << 12, 0, LOCAL),
            sample(7, 2100, 2 << 12, 0, LOCAL),
        ],
    );
    let first = sampler.collect(&online(), 2000).samples;
    write(&files, 1, &[sample(7, 2050, 3 << 12, 1, LOCAL)]);
    let second = sampler.collect(&online(), 3000).samples;
    let times = |samples: &[Sample]| samples.iter().map(|s| s.time_ns).collect::<Vec<_>>();
    assert_eq!(
        (times(&first), times(&second)),
        (vec![900], vec![1050, 1100])
    );
}

#[test]
fn losses_are_gaps() {
    let files = Files::default();
    let mut sampler = sampler(ring_files(&files, HashSet::new()), true, roster(&[7]));
    sampler.collect(&online(), 1000);
    write(
        &files,
        0,
        &[record(2, &[1, 40]), record(5, &[0, 0, 0]), record(13, &[2])],
    );
    let gaps = sampler.collect(&online(), 2000).gaps;
    assert!(
        gaps[0].starts_with("42 memory samples were lost"),
        "{gaps:?}"
    );
    assert!(gaps[1].contains("throttled sampling 1 times"), "{gaps:?}");
}

#[test]
fn a_cpu_that_refuses_is_a_gap_and_is_tried_again() {
    let files = Files::default();
    let kernel = ring_files(&files, HashSet::from([1]));
    let mut sampler = sampler(kernel, true, roster(&[7]));
    for _ in 0..2 {
        let gaps = sampler.collect(&online(), 1000).gaps;
        assert!(gaps[0].starts_with("1 CPUs are not sampled"), "{gaps:?}");
    }
    assert_eq!(sampler.cpus.len(), 1);
}

#[test]
fn more_threads_than_rings_take_turns() {
    let files = Files::default();
    let open = Arc::new(Mutex::new(0));
    let limit = {
        let (files, open) = (ring_files(&files, HashSet::new()), open.clone());
        fake::Counters(move |a: &Attribute, tid, cpu| {
            let mut open = open.lock().unwrap();
            if *open >= 2 {
                return Err(Errno::MFILE);
            }
            *open += 1;
            files.open(a, tid, cpu, None)
        })
    };
    let mut sampler = sampler(Arc::new(limit), false, roster(&[1, 2, 3, 4]));
    let gaps = sampler.collect(&online(), 1000).gaps;
    assert!(gaps[0].starts_with("2 threads are not sampled"), "{gaps:?}");
    let first: HashSet<u32> = sampler.threads.keys().map(|t| t.tid).collect();
    assert_eq!(first, HashSet::from([1, 2]));
    *open.lock().unwrap() = 0;
    for _ in 0..TURN {
        sampler.collect(&online(), 1000);
    }
    let second: HashSet<u32> = sampler.threads.keys().map(|t| t.tid).collect();
    assert_eq!(second, HashSet::from([3, 4]));
}

#[test]
fn a_machine_that_cannot_sample_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    let reasons = Reasons::new(&root, &crate::proc::cpuinfo::Processor::default());
    let kernel = fake::Counters(|_: &Attribute, _, _| Err(Errno::NOENT));
    let options = SampleOptions::default();
    let why = |root| {
        choose(&kernel, root, &options, &reasons, CpuId(0))
            .unwrap_err()
            .reason
    };
    assert!(why(&root).contains("none of the machine's PMUs"));
    let spe = folder.path().join("sys/bus/event_source/devices/arm_spe_0");
    std::fs::create_dir_all(spe).unwrap();
    assert!(why(&root).contains("Arm SPE"));
}

#[test]
fn what_the_kernel_does_not_allow_is_left_out_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    let pmu = folder.path().join("sys/bus/event_source/devices/ibs_op");
    std::fs::create_dir_all(pmu.join("format")).unwrap();
    std::fs::write(pmu.join("type"), "11").unwrap();
    std::fs::write(pmu.join("format/cnt_ctl"), "config:19").unwrap();
    let reasons = Reasons::new(&root, &crate::proc::cpuinfo::Processor::default());
    // Threads only, and no physical addresses.
    let kernel = fake::Counters(|a: &Attribute, tid: Option<u32>, _| {
        assert_eq!((a.kind, a.config, a.sample_period % 16), (11, 1 << 19, 0));
        match tid {
            Some(_) if a.sample_type & (1 << 19) == 0 => Ok(tempfile::tempfile().unwrap().into()),
            _ => Err(Errno::ACCESS),
        }
    });
    let options = SampleOptions::default();
    let recipe = choose(&kernel, &root, &options, &reasons, CpuId(0)).unwrap();
    let caveat = recipe.caveat.unwrap();
    assert!(
        caveat.contains("take turns") && caveat.contains("physical"),
        "{caveat}"
    );
}
