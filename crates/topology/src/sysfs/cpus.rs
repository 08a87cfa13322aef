//! CPUs: present and online ones, their cores, packages and computing power.

use std::collections::HashMap;

use super::tree::Tree;
use crate::error::ReadError;
use crate::id::{CpuId, PackageId};
use crate::parts::{CpuPart, set_capacities};
use crate::set::CpuSet;

const CPU: &str = "sys/devices/system/cpu";

/// The CPUs that the kernel lists.
pub(super) struct Listed {
    pub present: CpuSet,
    pub online: CpuSet,
}

pub(super) fn listed(tree: &Tree<'_>) -> Result<Listed, ReadError> {
    let file = format!("{CPU}/online");
    let hint = "the root must be the directory that contains sys (/ for this machine)";
    let online: CpuSet = tree.required_list(&file, hint)?;
    let possible: Option<CpuSet> = tree.list(&format!("{CPU}/possible"))?;
    let present: Option<CpuSet> = tree.list(&format!("{CPU}/present"))?;
    for (name, all) in [("possible", &possible), ("present", &present)] {
        if let Some(all) = all
            && let Some(cpu) = online.difference(all).first()
        {
            let why = format!("CPU {cpu} is online but not in {CPU}/{name} ({all})");
            return Err(tree.wrong(&file, &online.to_string(), why));
        }
    }
    Ok(Listed {
        present: present.or(possible).unwrap_or_else(|| online.clone()),
        online,
    })
}

pub(super) fn read(tree: &Tree<'_>, listed: &Listed) -> Result<Vec<CpuPart>, ReadError> {
    let mut parts = Vec::with_capacity(listed.present.len());
    // CPUs by package and core_id, for kernels without sibling lists.
    let mut by_core_id: HashMap<(PackageId, u32), CpuSet> = HashMap::new();
    let mut core_ids: HashMap<CpuId, (PackageId, u32)> = HashMap::new();
    for id in listed.present.iter() {
        let online = listed.online.contains(id);
        let mut part = CpuPart {
            id,
            online,
            ..CpuPart::default()
        };
        // The kernel removes an offline CPU's topology directory.
        if online {
            part.package = package(tree, id)?;
            match siblings(tree, id)? {
                Some(siblings) => part.siblings = siblings,
                None => {
                    let core: Option<u32> =
                        tree.number(&format!("{CPU}/cpu{id}/topology/core_id"))?;
                    if let (Some(package), Some(core)) = (part.package, core) {
                        core_ids.insert(id, (package, core));
                        by_core_id.entry((package, core)).or_default().insert(id);
                    }
                }
            }
        }
        parts.push(part);
    }
    for part in &mut parts {
        if let Some(core) = core_ids.get(&part.id) {
            part.siblings = by_core_id[core].clone();
        }
    }
    capacities(tree, &mut parts)?;
    Ok(parts)
}

fn siblings(tree: &Tree<'_>, cpu: CpuId) -> Result<Option<CpuSet>, ReadError> {
    for name in ["core_cpus_list", "thread_siblings_list"] {
        let file = format!("{CPU}/cpu{cpu}/topology/{name}");
        let Some(list) = tree.list::<CpuId>(&file)? else {
            continue;
        };
        if !list.contains(cpu) {
            let why = format!("CPU {cpu} is not in its own core");
            return Err(tree.wrong(&file, &list.to_string(), why));
        }
        return Ok(Some(list));
    }
    Ok(None)
}

fn package(tree: &Tree<'_>, cpu: CpuId) -> Result<Option<PackageId>, ReadError> {
    let file = format!("{CPU}/cpu{cpu}/topology/physical_package_id");
    // -1 where the firmware does not say.
    match tree.number::<i64>(&file)? {
        None | Some(-1) => Ok(None),
        Some(number) => match u32::try_from(number) {
            Ok(number) => Ok(Some(PackageId(number))),
            Err(_) => Err(tree.wrong(&file, &number.to_string(), "no package has that number")),
        },
    }
}

/// Fills in each CPU's computing power from the first source that has it for every online CPU.
fn capacities(tree: &Tree<'_>, parts: &mut [CpuPart]) -> Result<(), ReadError> {
    let hybrid =
        tree.is_directory("sys/devices/cpu_core") && tree.is_directory("sys/devices/cpu_atom");
    let sources: &[&str] = if hybrid {
        &[
            "cpu_capacity",
            "acpi_cppc/highest_perf",
            "cpufreq/cpuinfo_max_freq",
        ]
    } else {
        &["cpu_capacity"]
    };
    for source in sources {
        let mut values: Vec<Option<u64>> = Vec::with_capacity(parts.len());
        for part in parts.iter().filter(|part| part.online) {
            let file = format!("{CPU}/cpu{}/{source}", part.id);
            let value = tree.number::<u64>(&file)?;
            if value == Some(0) {
                return Err(tree.wrong(&file, "0", "a CPU with capacity 0 cannot be online"));
            }
            values.push(value);
            if value.is_none() {
                break;
            }
        }
        let Some(values) = values.into_iter().collect::<Option<Vec<u64>>>() else {
            continue;
        };
        let strongest = values.iter().copied().max().unwrap_or(1);
        set_capacities(parts, &values, strongest);
        return Ok(());
    }
    Ok(())
}
