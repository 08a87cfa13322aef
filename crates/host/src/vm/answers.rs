//! The contents of a monitor's answers, as QEMU describes them (qapi/machine.json).
//!
//! An answer in another form is an error, never a guess. Whether it is true is for the asker to check
//! ([`super::inquiry`]).

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::qmp::NoAnswer;

/// A vCPU, in the answer to `query-cpus-fast`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct CpuThread {
    /// Its index in the machine.
    #[serde(rename = "cpu-index")]
    pub index: u32,
    /// The thread that runs it, as numbered where QEMU runs.
    #[serde(rename = "thread-id")]
    pub thread: u32,
}

/// The answer to `query-memory-size-summary`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct MemorySize {
    base_memory: u64,
    #[serde(default)]
    plugged_memory: u64,
}

/// A piece of the machine's memory, in the answer to `query-memdev`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Backend {
    /// Its name; older QEMUs omit it.
    #[serde(default)]
    pub id: String,
    /// Bytes.
    pub size: u64,
    /// Whether it is mapped so that other processes can share it; older QEMUs omit this.
    #[serde(default)]
    pub share: bool,
    /// The host nodes that its owner gave it.
    pub host_nodes: Vec<u32>,
    /// Its layout over them: `default`, `preferred`, `bind` or `interleave`.
    pub policy: String,
}

/// The answer to `query-name`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Name {
    /// The machine's name; `None` if it has none.
    pub name: Option<String>,
}

/// The answer to `query-status`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Status {
    /// The machine's state: `running`, `paused`, `prelaunch`, …
    pub status: String,
}

/// Reads an answer.
///
/// # Errors
/// [`NoAnswer::Impossible`] if it does not have the form that QEMU describes.
pub fn read<T: DeserializeOwned>(answer: Value) -> Result<T, NoAnswer> {
    serde_json::from_value(answer)
        .map_err(|error| NoAnswer::Impossible(format!("it is not as QEMU describes it: {error}")))
}

/// The vCPUs in the answer to `query-cpus-fast`, ascending by index.
///
/// # Errors
/// [`NoAnswer::Impossible`]: its form, no vCPU at all, an index twice, or a thread that runs some but
/// not all of them (in single-threaded emulation, one runs them all).
pub fn cpus(answer: Value) -> Result<Vec<CpuThread>, NoAnswer> {
    let impossible = |why| Err(NoAnswer::Impossible(why));
    let mut cpus: Vec<CpuThread> = read(answer)?;
    cpus.sort_unstable_by_key(|cpu| cpu.index);
    let Some(first) = cpus.first() else {
        return impossible("it names no vCPU".to_owned());
    };
    if let Some(twice) = cpus.windows(2).find(|two| two[0].index == two[1].index) {
        return impossible(format!("it names vCPU {} twice", twice[0].index));
    }
    let mut threads: Vec<u32> = cpus.iter().map(|cpu| cpu.thread).collect();
    threads.sort_unstable();
    let one_for_all = threads.iter().all(|thread| *thread == first.thread);
    let twice = threads.windows(2).find(|two| two[0] == two[1]);
    match twice.filter(|_| !one_for_all) {
        Some(twice) => impossible(format!("it has thread {} run several vCPUs", twice[0])),
        None => Ok(cpus),
    }
}

/// The memory that the guest system sees, in bytes, from the answer to `query-memory-size-summary`.
///
/// # Errors
/// [`NoAnswer::Impossible`].
pub fn memory_bytes(answer: Value) -> Result<u64, NoAnswer> {
    let size: MemorySize = read(answer)?;
    let all = size.base_memory.checked_add(size.plugged_memory);
    all.filter(|bytes| *bytes > 0)
        .ok_or_else(|| NoAnswer::Impossible("its sizes make no memory".to_owned()))
}

/// The bytes of plugged-in memory devices, from the answer to `query-memory-devices`.
///
/// # Errors
/// [`NoAnswer::Impossible`].
pub fn plugged_bytes(answer: Value) -> Result<u64, NoAnswer> {
    #[derive(Deserialize)]
    struct Device {
        data: Data,
    }
    #[derive(Deserialize)]
    struct Data {
        size: u64,
    }
    let devices: Vec<Device> = read(answer)?;
    let mut sizes = devices.iter().map(|device| device.data.size);
    sizes
        .try_fold(0_u64, u64::checked_add)
        .ok_or_else(|| NoAnswer::Impossible("its sizes are beyond all memory".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn as_qemu_10_answers() {
        let cpus = cpus(json!([
            {"thread-id": 108, "props": {"core-id": 1}, "qom-path": "/machine/unattached/device[2]",
             "cpu-index": 1, "target": "x86_64"},
            {"thread-id": 107, "props": {"core-id": 0}, "qom-path": "/machine/unattached/device[0]",
             "cpu-index": 0, "target": "x86_64"}
        ]));
        let cpu = |index, thread| CpuThread { index, thread };
        assert_eq!(cpus.unwrap(), [cpu(0, 107), cpu(1, 108)]);
        let summary = json!({"base-memory": 67_108_864, "plugged-memory": 67_108_864});
        assert_eq!(memory_bytes(summary).unwrap(), 128 << 20);
        let devices = json!([{"type": "dimm", "data": {"memdev": "/objects/m1", "hotplugged": false,
            "addr": 4_294_967_296_u64, "hotpluggable": true, "size": 67_108_864, "slot": 0,
            "node": 0, "id": "d1"}}]);
        assert_eq!(plugged_bytes(devices).unwrap(), 64 << 20);
        let memdevs = json!([{"share": true, "reserve": true, "prealloc": false,
            "host-nodes": [1], "size": 67_108_864, "merge": true, "dump": true, "policy": "bind",
            "id": "m1"}]);
        let backends: Vec<Backend> = read(memdevs).unwrap();
        assert!(backends[0].share && backends[0].host_nodes == [1]);
        let name = |answer| read::<Name>(answer).unwrap().name;
        assert_eq!(name(json!({"name": "a,b=c"})).as_deref(), Some("a,b=c"));
        assert_eq!(name(json!({})), None);
        let prelaunch = json!({"status": "prelaunch", "running": false});
        assert_eq!(read::<Status>(prelaunch).unwrap().status, "prelaunch");
    }

    #[test]
    fn one_thread_may_run_all_vcpus_but_not_some() {
        let answer = |threads: &[u32]| {
            let cpus = threads
                .iter()
                .enumerate()
                .map(|(index, thread)| json!({"cpu-index": index, "thread-id": thread}));
            cpus.collect::<Value>()
        };
        assert_eq!(cpus(answer(&[7, 7, 7])).unwrap().len(), 3);
        let some = cpus(answer(&[7, 8, 7])).unwrap_err();
        assert_eq!(some.to_string(), "it has thread 7 run several vCPUs");
    }

    #[test]
    fn what_cannot_be_is_an_error() {
        let cpu = |index: Value, thread: Value| json!([{"cpu-index": index, "thread-id": thread}]);
        for answer in [
            json!({}),
            json!([]),
            json!([{}]),
            json!("CPU"),
            cpu(json!("0"), json!(7)),
            cpu(json!(0), json!(-7)),
            cpu(json!(0), json!(7.5)),
            cpu(json!(4_294_967_296_u64), json!(7)),
            cpu(json!(0), json!(1e300)),
            json!([{"cpu-index": 0, "thread-id": 7}, {"cpu-index": 0, "thread-id": 8}]),
        ] {
            assert!(cpus(answer.clone()).is_err(), "{answer}");
        }
        let sizes =
            |base: u64, plugged: u64| json!({"base-memory": base, "plugged-memory": plugged});
        assert!(memory_bytes(sizes(0, 0)).is_err());
        assert!(memory_bytes(sizes(u64::MAX, 1)).is_err());
        let device = json!({"data": {"size": u64::MAX}});
        assert!(plugged_bytes(json!([device, device])).is_err());
        assert!(read::<Vec<Backend>>(json!([{"size": 1}])).is_err());
        assert!(read::<Status>(json!({"status": 7})).is_err());
    }
}
