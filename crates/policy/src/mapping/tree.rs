//! The tree of a machine: machine, packages, nodes, memory domains, cores, CPUs.
//!
//! Mappers see a machine as levels of vertices. Height 0 are the CPUs; the last height has one
//! vertex, the root. Only CPUs that are online and allowed are in it, and nothing without such a CPU:
//! no memory-only nodes. A node that spans packages (a machine of one node and two sockets) becomes
//! one vertex under each. A level whose vertices all have a single child (one domain in every node,
//! cores without siblings) says nothing and is left out, as EagerMap skips levels of arity 1.
//!
//! *Hops*, the distance of two CPUs: how many levels up they meet, 0 for a CPU and itself. Node
//! latencies are not used, although some machines state them: those between more than two nodes
//! rarely form a tree, so no mapper that uses a tree could follow them.
//!
//! *Shape*: two vertices are of one shape when their subtrees are alike up to the order of children.
//! What was grouped for one can be put on the other. On an even tree all vertices of a height are of
//! one shape.

use std::collections::BTreeMap;
use std::ops::Range;

use numaherd_topology::{CpuId, CpuSet, Topology};

/// See the top of this file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    // In the order of the tree.
    cpus: Vec<CpuId>,
    // Their places in `cpus`, ascending by CPU number.
    leaf_of: Vec<(CpuId, usize)>,
    // Heights 1 and up.
    levels: Vec<Level>,
    // Vertex above each leaf, for every height from 0.
    above: Vec<Vec<usize>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Level {
    // Of each vertex: where its children are at the height below.
    children: Vec<Range<usize>>,
    // Of each vertex; alike within this height only.
    shapes: Vec<usize>,
}

impl Tree {
    /// The tree of those CPUs of a machine that are online and in `allowed`; `None` when no CPU is.
    pub fn new(topology: &Topology, allowed: &CpuSet) -> Option<Self> {
        let mut paths: Vec<([u32; 4], CpuId)> = topology
            .cpus()
            .iter()
            .filter(|cpu| cpu.online && allowed.contains(cpu.id))
            .map(|cpu| {
                let package = cpu.package.map_or(u32::MAX, |package| package.0);
                ([package, cpu.node.0, cpu.domain.0, cpu.core.0], cpu.id)
            })
            .collect();
        paths.sort_unstable();
        let (paths, cpus): (Vec<_>, Vec<_>) = paths.into_iter().unzip();
        if cpus.is_empty() {
            return None;
        }
        // From the cores up to the machine: where paths differ in the first `depth` steps, another
        // vertex begins.
        let heights = (0..=4).rev().map(|depth| {
            let mut vertex = 0;
            let mut above = vec![0; paths.len()];
            for leaf in 1..paths.len() {
                vertex += usize::from(paths[leaf][..depth] != paths[leaf - 1][..depth]);
                above[leaf] = vertex;
            }
            above
        });
        Some(Self::of_heights(cpus, heights))
    }

    /// An even tree, its arities from the root down: `[2, 4, 2]` is two nodes of four cores of two
    /// CPUs. The CPUs are numbered in the order of the tree. `None` when there is no CPU, or more
    /// than numbers for them.
    pub fn even(arities: &[usize]) -> Option<Self> {
        let cpus = arities
            .iter()
            .try_fold(1usize, |cpus, &arity| cpus.checked_mul(arity))?;
        let cpus: Vec<CpuId> = (0..u32::try_from(cpus).ok()?).map(CpuId).collect();
        if cpus.is_empty() {
            return None;
        }
        let mut below = 1;
        let leaves = cpus.len();
        let heights = arities.iter().rev().map(|arity| {
            below *= arity;
            (0..leaves).map(|leaf| leaf / below).collect()
        });
        Some(Self::of_heights(cpus, heights))
    }

    /// `heights` gives the vertex above each leaf, ascending, from height 1 to the root.
    fn of_heights(cpus: Vec<CpuId>, heights: impl Iterator<Item = Vec<usize>>) -> Self {
        let mut leaf_of: Vec<(CpuId, usize)> = cpus.iter().copied().zip(0..).collect();
        leaf_of.sort_unstable();
        let mut tree = Self {
            above: vec![(0..cpus.len()).collect()],
            leaf_of,
            levels: Vec::new(),
            cpus,
        };
        for above in heights {
            tree.put_on_top(above);
        }
        tree
    }

    fn put_on_top(&mut self, above: Vec<usize>) {
        let top = self.height();
        if self.above[top] == above {
            return;
        }
        let mut children: Vec<Range<usize>> = Vec::new();
        for (&vertex, &child) in above.iter().zip(&self.above[top]) {
            if vertex == children.len() {
                children.push(child..child);
            }
            children[vertex].end = child + 1;
        }
        let mut known: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        let shapes = children.iter().map(|children| {
            let mut below: Vec<usize> = children.clone().map(|c| self.shape(top, c)).collect();
            below.sort_unstable();
            let next = known.len();
            *known.entry(below).or_insert(next)
        });
        let shapes = shapes.collect();
        self.levels.push(Level { children, shapes });
        self.above.push(above);
    }

    /// The CPUs, in the order of the tree.
    pub fn cpus(&self) -> &[CpuId] {
        &self.cpus
    }

    /// The height of the root; 0 when there is one CPU.
    pub fn height(&self) -> usize {
        self.levels.len()
    }

    /// How many vertices there are at a height.
    pub fn vertices(&self, height: usize) -> usize {
        match height {
            0 => self.cpus.len(),
            _ => self.levels[height - 1].children.len(),
        }
    }

    /// The vertices under one, as places at the height below. Height 0 has nothing below.
    pub fn children(&self, height: usize, vertex: usize) -> Range<usize> {
        self.levels[height - 1].children[vertex].clone()
    }

    /// The distance of two CPUs in hops; `None` when one of them is not in the tree.
    pub fn hops(&self, one: CpuId, other: CpuId) -> Option<usize> {
        Some(self.hops_of_leaves(self.leaf(one)?, self.leaf(other)?))
    }

    /// The hops between two CPUs, by their places in [`Tree::cpus`].
    pub(super) fn hops_of_leaves(&self, one: usize, other: usize) -> usize {
        self.above
            .iter()
            .position(|above| above[one] == above[other])
            .unwrap_or(self.height())
    }

    /// The place of a CPU in [`Tree::cpus`].
    pub(super) fn leaf(&self, cpu: CpuId) -> Option<usize> {
        let at = self.leaf_of.binary_search_by_key(&cpu, |&(cpu, _)| cpu);
        at.ok().map(|at| self.leaf_of[at].1)
    }

    /// The vertex of a height that a leaf is under.
    pub(super) fn above(&self, height: usize, leaf: usize) -> usize {
        self.above[height][leaf]
    }

    /// The vertex that one is under, at the next height.
    pub(super) fn parent(&self, height: usize, vertex: usize) -> usize {
        self.levels[height]
            .children
            .partition_point(|children| children.end <= vertex)
    }

    /// The shape of a subtree: equal for two vertices of a height that are alike.
    pub(super) fn shape(&self, height: usize, vertex: usize) -> usize {
        match height {
            0 => 0,
            _ => self.levels[height - 1].shapes[vertex],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_testing::{Scene, Shape};

    fn tree(shape: &Shape) -> Tree {
        let topology = Scene::new(shape).topology;
        let all = topology.cpus().iter().map(|cpu| cpu.id).collect();
        Tree::new(&topology, &all).expect("there are CPUs")
    }

    #[test]
    fn levels_that_say_nothing_are_left_out() {
        // One package, two nodes of one domain each, cores of two CPUs.
        let tree = tree(&Shape {
            nodes: vec![vec![2], vec![2]],
            siblings: 2,
            offline: vec![],
        });
        assert_eq!(tree, Tree::even(&[1, 2, 1, 2, 2]).expect("eight CPUs"));
        assert_eq!(tree.height(), 3);
        let hops = |a, b| tree.hops(CpuId(a), CpuId(b));
        assert_eq!(
            [hops(0, 0), hops(0, 1), hops(0, 2), hops(0, 4), hops(0, 8)],
            [Some(0), Some(1), Some(2), Some(3), None]
        );
    }

    #[test]
    fn uneven_nodes_differ_in_shape_and_offline_cpus_and_bare_memory_are_not_in_it() {
        // A node of three cores, one offline; memory without cores; two nodes of two cores.
        let tree = tree(&Shape {
            nodes: vec![vec![4], vec![], vec![2], vec![2]],
            siblings: 1,
            offline: vec![1],
        });
        let cpus: Vec<u32> = tree.cpus().iter().map(|cpu| cpu.0).collect();
        assert_eq!(cpus, [0, 2, 3, 4, 5, 6, 7]);
        assert_eq!(tree.vertices(1), 3);
        assert_eq!(tree.children(1, 1), 3..5);
        let shapes: Vec<usize> = (0..3).map(|node| tree.shape(1, node)).collect();
        assert_eq!(shapes, [0, 1, 1]);
        assert_eq!(tree.parent(0, 2), 0);
        assert_eq!(tree.parent(0, 3), 1);
    }

    #[test]
    fn only_allowed_cpus_are_in_it() {
        let topology = Scene::uniform(2, 2).topology;
        let one: CpuSet = [CpuId(3)].into_iter().collect();
        let tree = Tree::new(&topology, &one).expect("CPU 3");
        assert_eq!((tree.cpus(), tree.height()), (&[CpuId(3)][..], 0));
        assert_eq!(Tree::new(&topology, &CpuSet::new()), None);
    }
}
