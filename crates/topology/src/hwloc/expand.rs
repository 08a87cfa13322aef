//! Builds the parts of a machine from a synthetic string's levels.
//!
//! Objects and CPUs are counted in depth-first order. With `n` objects on a level and `p` CPUs in
//! all, object `k` has the CPUs at the places `k * p / n` up to, not including, `(k + 1) * p / n`;
//! `indexes` then gives the kernel's number of the CPU at each place.

use super::synthetic::{Attributes, Description, Indexes, Kind, Wrong, wrong};
use super::{Memory, cpu_set, dealt};
use crate::id::{CpuId, NodeId, PackageId};
use crate::parts::{CpuPart, LARGEST_NODES, Parts};
use crate::set::{CpuSet, LARGEST_PARSED};
use crate::topology::{Cache, Timing};

/// Memory of a node if the string gives none: hwloc's own default.
const DEFAULT_MEMORY: u64 = 1 << 30;

impl Description {
    pub(super) fn parts(&self, name: &str) -> Result<Parts, Wrong> {
        let numbers = self.numbers_of(Kind::Pu)?;
        let set = |level: usize, object: usize| -> CpuSet {
            cpu_set(self.places(level, object).map(|place| numbers[place]))
        };
        let packages = self.numbers_of(Kind::Package)?;
        let package_level = self.level_of(Kind::Package);
        let core_level = self.level_of(Kind::Core);
        let cpus: Vec<CpuPart> = (0..self.cpus())
            .map(|place| CpuPart {
                id: CpuId(numbers[place]),
                online: true,
                package: package_level
                    .map(|level| PackageId(packages[self.object_at(level, place)])),
                siblings: match core_level {
                    Some(level) => set(level, self.object_at(level, place)),
                    None => cpu_set([numbers[place]]),
                },
                capacity: None,
            })
            .collect();
        let mut caches = Vec::new();
        for (at, level) in self.levels.iter().enumerate() {
            if let Kind::Cache(number, kind) = level.kind {
                caches.extend((0..self.levels[at].objects).map(|object| Cache {
                    level: number,
                    kind,
                    size_bytes: level.attributes.size,
                    line_bytes: None,
                    ways: None,
                    cpus: set(at, object),
                }));
            }
        }
        let all = cpu_set(numbers.iter().copied());
        let memories = self.memories(&all, set)?;
        Ok(Parts {
            name: name.to_owned(),
            nodes: dealt(memories, &all),
            cpus,
            caches,
            distances: Vec::new(),
            timing: Timing::default(),
        })
    }

    fn memories(
        &self,
        all: &CpuSet,
        set: impl Fn(usize, usize) -> CpuSet,
    ) -> Result<Vec<Memory>, Wrong> {
        let bytes = |attributes: &Attributes| attributes.memory.unwrap_or(DEFAULT_MEMORY);
        if let Some(level) = self.level_of(Kind::Node) {
            let numbers = self.numbers_of(Kind::Node)?;
            let memory = |object: usize| Memory {
                id: NodeId(numbers[object]),
                bytes: bytes(&self.levels[level].attributes),
                near: set(level, object),
            };
            return Ok((0..self.levels[level].objects).map(memory).collect());
        }
        // hwloc numbers attached nodes in post-order: deeper ones first.
        let mut places = Vec::new();
        for (bracket, attached) in self.attached.iter().enumerate() {
            let objects = attached
                .depth
                .checked_sub(1)
                .map_or(1, |level| self.levels[level].objects);
            if places.len() + objects > LARGEST_NODES as usize {
                return wrong(
                    0,
                    format!("more than {LARGEST_NODES} nodes are taken for a mistake"),
                );
            }
            let width = self.cpus() / objects;
            let depth = attached.depth;
            places.extend((0..objects).map(|o| ((o + 1) * width, usize::MAX - depth, bracket, o)));
        }
        places.sort_unstable();
        let mut indexes = self
            .attached
            .iter()
            .filter_map(|a| a.attributes.indexes.as_ref());
        let given = indexes.next();
        if let Some((_, at)) = indexes.next() {
            return wrong(
                *at,
                "the numbers of attached nodes are given once for all of them",
            );
        }
        if places.is_empty() {
            return Ok(vec![Memory {
                id: NodeId(0),
                bytes: DEFAULT_MEMORY,
                near: all.clone(),
            }]);
        }
        let numbers = self.numbers(given, places.len())?;
        let memory = |(number, (_, _, bracket, object)): (u32, (usize, usize, usize, usize))| {
            let attached = &self.attached[bracket];
            Memory {
                id: NodeId(number),
                bytes: bytes(&attached.attributes),
                near: match attached.depth.checked_sub(1) {
                    Some(level) => set(level, object),
                    None => all.clone(),
                },
            }
        };
        Ok(numbers.into_iter().zip(places).map(memory).collect())
    }

    /// The kernel's number of each object of this kind; empty if there is no such level.
    fn numbers_of(&self, kind: Kind) -> Result<Vec<u32>, Wrong> {
        let Some(at) = self.level_of(kind) else {
            return Ok(Vec::new());
        };
        let level = &self.levels[at];
        self.numbers(level.attributes.indexes.as_ref(), level.objects)
    }

    /// Number of CPUs.
    fn cpus(&self) -> usize {
        self.levels.last().map_or(1, |level| level.objects)
    }

    fn level_of(&self, kind: Kind) -> Option<usize> {
        self.levels.iter().position(|level| level.kind == kind)
    }

    /// The places of an object's CPUs.
    fn places(&self, level: usize, object: usize) -> std::ops::Range<usize> {
        let width = self.cpus() / self.levels[level].objects;
        object * width..(object + 1) * width
    }

    /// The object of a level that the CPU at a place belongs to.
    fn object_at(&self, level: usize, place: usize) -> usize {
        place / (self.cpus() / self.levels[level].objects)
    }

    /// The number of each of `total` objects.
    fn numbers(&self, indexes: Option<&(Indexes, usize)>, total: usize) -> Result<Vec<u32>, Wrong> {
        let largest = u32::try_from(total).expect("a level has at most LARGEST_PARSED objects");
        let Some((indexes, at)) = indexes else {
            return Ok((0..largest).collect());
        };
        let steps = match indexes {
            Indexes::List(list) => return listed(list, total, *at),
            Indexes::Steps(steps) => steps.clone(),
            Indexes::Types(types) => self.steps(types, total, *at)?,
        };
        interleaved(steps, total, *at)
    }

    /// The interleaving steps over the objects of each type in turn.
    fn steps(&self, types: &[Kind], total: usize, at: usize) -> Result<Vec<(usize, usize)>, Wrong> {
        let mut levels = Vec::new();
        for &kind in types {
            match self.level_of(kind) {
                Some(level) if total.is_multiple_of(self.levels[level].objects) => {
                    levels.push(level);
                }
                Some(_) => return wrong(at, "an interleaving over a type below the level itself"),
                None => return wrong(at, "an interleaving over a type that has no level"),
            }
        }
        let outer = |level: usize| {
            let shallower = levels.iter().filter(|&&other| other < level).max();
            shallower.map_or(1, |&other| self.levels[other].objects)
        };
        let step = |&level: &usize| {
            let objects = self.levels[level].objects;
            (total / objects, objects / outer(level))
        };
        Ok(levels.iter().map(step).collect())
    }
}

fn listed(list: &[u32], total: usize, at: usize) -> Result<Vec<u32>, Wrong> {
    if list.len() != total {
        return wrong(at, format!("{} numbers for {total} objects", list.len()));
    }
    if let Some(large) = list.iter().find(|&&number| number > LARGEST_PARSED) {
        return wrong(at, format!("the number {large} is taken for a mistake"));
    }
    if cpu_set(list.iter().copied()).len() != total {
        return wrong(at, "a number given to two objects");
    }
    Ok(list.to_vec())
}

fn interleaved(mut steps: Vec<(usize, usize)>, total: usize, at: usize) -> Result<Vec<u32>, Wrong> {
    let covered = steps
        .iter()
        .fold(1_usize, |all, &(_, times)| all.saturating_mul(times));
    if covered == 0 || !total.is_multiple_of(covered) {
        return wrong(
            at,
            format!("an interleaving of {covered} for {total} objects"),
        );
    }
    steps.push((1, total / covered));
    let mut numbers: Vec<Option<u32>> = vec![None; total];
    for number in 0..total {
        let mut left = number;
        let mut place: usize = 0;
        for &(step, times) in &steps {
            place = place.saturating_add((left % times).saturating_mul(step));
            left /= times;
        }
        let number = u32::try_from(number).expect("a level has at most LARGEST_PARSED objects");
        match numbers.get_mut(place) {
            Some(free @ None) => *free = Some(number),
            _ => return wrong(at, "an interleaving that does not reach every object once"),
        }
    }
    Ok(numbers.into_iter().flatten().collect())
}
