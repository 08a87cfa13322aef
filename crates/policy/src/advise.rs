//! Advice before a start: to which nodes a program that wants so many CPUs and so much memory should be
//! bound. It is what `numad -w` tells libvirt for `placement='auto'`.
//!
//! Problem: a machine is about to start, nothing of it can be measured yet, and its CPUs and memory
//! will be bound to the nodes that are named.
//!
//! Rule, in this order:
//! 1. *Enough*: the nodes together have the CPUs idle and the memory free.
//! 2. *Fewest nodes.* Nodes without CPUs are no place to run. Only if all nodes with CPUs together lack
//!    memory, all of those are named, and beside them as few without CPUs as will do.
//! 3. *Nearest to each other*: the least sum of the distances between them.
//! 4. *Most room*: the greatest product of idle CPUs and free memory, which leaves the machine room
//!    to grow and fills the emptiest nodes first.
//!
//! If all nodes are not enough, those with CPUs are named (and those without, if memory is lacking),
//! with what is lacking. A node without memory is never named: the kernel binds no memory to it.
//!
//! Properties: never more nodes than needed; always enough where enough exists; the same answer in
//! whatever order the nodes are listed.
//!
//! Terms: *idle* is in hundredths of a CPU, *free* in bytes; n nodes of which k are named. The fewest
//! are found exactly, by keeping for each count the sets that no other beats in both idle and free.
//! The nearest of them are found by trying sets in order of room, with bounds; beyond
//! [`MOST_STEPS`] steps (machines of dozens of nodes that are all alike) the best so far is taken,
//! which is enough and fewest, but perhaps not the nearest.

use std::cmp::Reverse;

use numaherd_topology::{NodeId, NodeSet, Topology};

/// Steps of the search for the nearest nodes.
const MOST_STEPS: usize = 1 << 18;

/// What a node has to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Which node.
    pub node: NodeId,
    /// Whether it has CPUs that may be used, idle or not.
    pub has_cpus: bool,
    /// Idle CPUs, in hundredths of one.
    pub idle: u64,
    /// Free memory in bytes.
    pub free: u64,
}

/// An amount of CPUs and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// CPUs, in hundredths of one.
    pub cpus: u64,
    /// Memory in bytes.
    pub bytes: u64,
}

impl Amount {
    fn and(self, room: &Room) -> Self {
        Self {
            cpus: self.cpus.saturating_add(room.idle),
            bytes: self.bytes.saturating_add(room.free),
        }
    }

    fn of<'r>(rooms: impl IntoIterator<Item = &'r Room>) -> Self {
        rooms.into_iter().fold(Self::default(), Self::and)
    }

    fn covers(self, want: Self) -> bool {
        self.cpus >= want.cpus && self.bytes >= want.bytes
    }

    fn capped(self, want: Self) -> Self {
        Self {
            cpus: self.cpus.min(want.cpus),
            bytes: self.bytes.min(want.bytes),
        }
    }
}

/// The nodes to bind a program to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The nodes; empty only where there are none.
    pub nodes: NodeSet,
    /// What they lack of what was wanted; nothing where they have enough.
    pub lacks: Amount,
}

/// Chooses among `rooms`, the nodes that may be used and have memory, each once.
pub fn advise(topology: &Topology, rooms: &[Room], want: Amount) -> Advice {
    let mut with_cpus: Vec<Room> = rooms.iter().filter(|room| room.has_cpus).copied().collect();
    let mut without: Vec<Room> = rooms
        .iter()
        .filter(|room| !room.has_cpus)
        .copied()
        .collect();
    most_room_first(&mut with_cpus);
    most_room_first(&mut without);
    let chosen = if !with_cpus.is_empty() && Amount::of(&with_cpus).bytes >= want.bytes {
        fewest(&with_cpus, want).map(|few| nearest(topology, &with_cpus, want, few))
    } else {
        with_memory_only(topology, &with_cpus, &without, want)
    };
    let chosen = chosen.unwrap_or_else(|| {
        let lacks_memory = Amount::of(&with_cpus).bytes < want.bytes;
        let others = without.iter().filter(|_| lacks_memory);
        with_cpus.iter().chain(others).copied().collect()
    });
    let have = Amount::of(&chosen);
    Advice {
        nodes: chosen.iter().map(|room| room.node).collect(),
        lacks: Amount {
            cpus: want.cpus.saturating_sub(have.cpus),
            bytes: want.bytes.saturating_sub(have.bytes),
        },
    }
}

/// All nodes with CPUs, and as few without as will do; `None` where all are not enough.
fn with_memory_only(
    topology: &Topology,
    with_cpus: &[Room],
    without: &[Room],
    want: Amount,
) -> Option<Vec<Room>> {
    let have = Amount::of(with_cpus);
    if have.cpus < want.cpus {
        return None;
    }
    let rest = Amount {
        cpus: 0,
        bytes: want.bytes - have.bytes,
    };
    let few = fewest(without, rest)?;
    let mut chosen = nearest(topology, without, rest, few);
    chosen.extend_from_slice(with_cpus);
    Some(chosen)
}

fn most_room_first(rooms: &mut [Room]) {
    rooms.sort_by_key(|room| {
        let product = u128::from(room.idle) * u128::from(room.free);
        (Reverse((product, room.free, room.idle)), room.node)
    });
}

/// A set of the fewest nodes that are enough, as places in `rooms`; `None` where all are not.
fn fewest(rooms: &[Room], want: Amount) -> Option<Vec<usize>> {
    if !Amount::of(rooms).covers(want) {
        return None;
    }
    // By the number of their nodes, the sets that no other of as many beats in both idle CPUs and free
    // memory, with what they have of what is wanted.
    let mut unbeaten = vec![vec![(Amount::default(), Vec::new())]];
    // One node at least: there is no answer without any.
    let mut best: Option<Vec<usize>> = None;
    for (at, room) in rooms.iter().enumerate() {
        // A larger set than the best is of no use.
        let most = best.as_ref().map_or(unbeaten.len(), |few| few.len() - 1);
        for count in (0..most.min(unbeaten.len())).rev() {
            for (have, others) in unbeaten[count].clone() {
                let have = have.and(room).capped(want);
                let set = [others, vec![at]].concat();
                if have == want {
                    best = Some(set);
                    break;
                }
                if unbeaten.len() == count + 1 {
                    unbeaten.push(Vec::new());
                }
                let as_many = &mut unbeaten[count + 1];
                if !as_many.iter().any(|(other, _)| other.covers(have)) {
                    as_many.retain(|(other, _)| !have.covers(*other));
                    as_many.push((have, set));
                }
            }
        }
    }
    best
}

/// Of the sets that are enough and have as many nodes as `few`, the nearest, and of those the one with
/// most room.
fn nearest(topology: &Topology, rooms: &[Room], want: Amount, few: Vec<usize>) -> Vec<Room> {
    let distance = |from: usize, to: usize| {
        let one_way = |from: usize, to: usize| {
            let known = topology.distance(rooms[from].node, rooms[to].node);
            // Without distances all are alike.
            u64::from(known.unwrap_or(0))
        };
        one_way(from, to) + one_way(to, from)
    };
    let mut search = Search {
        rooms,
        want,
        count: few.len(),
        best: Vec::new(),
        best_cost: (u64::MAX, Reverse(0)),
        steps: 0,
        distances: (0..rooms.len())
            .map(|from| (0..rooms.len()).map(|to| distance(from, to)).collect())
            .collect(),
        tops: tops(rooms, few.len()),
    };
    search.consider(&few);
    search.go(0, &mut Vec::new(), Amount::default(), 0);
    search.best.iter().map(|&at| rooms[at]).collect()
}

/// For each place in `rooms` and each number up to `count`, the most CPUs, and the most memory, that so
/// many nodes from that place on can have.
fn tops(rooms: &[Room], count: usize) -> Vec<Vec<Amount>> {
    let mut tops = vec![vec![Amount::default()]; rooms.len() + 1];
    let (mut idle, mut free) = (Vec::new(), Vec::new());
    for (at, room) in rooms.iter().enumerate().rev() {
        for (list, value) in [(&mut idle, room.idle), (&mut free, room.free)] {
            let place = list.partition_point(|&other: &u64| other >= value);
            list.insert(place, value);
            list.truncate(count);
        }
        let mut sum = Amount::default();
        for (&cpus, &bytes) in idle.iter().zip(&free) {
            sum.cpus = sum.cpus.saturating_add(cpus);
            sum.bytes = sum.bytes.saturating_add(bytes);
            tops[at].push(sum);
        }
    }
    tops
}

struct Search<'a> {
    rooms: &'a [Room],
    want: Amount,
    count: usize,
    best: Vec<usize>,
    /// Distances, then room, more being better.
    best_cost: (u64, Reverse<u128>),
    steps: usize,
    distances: Vec<Vec<u64>>,
    tops: Vec<Vec<Amount>>,
}

impl Search<'_> {
    /// Tries all sets that begin with `chosen` and go on from place `next`.
    fn go(&mut self, next: usize, chosen: &mut Vec<usize>, have: Amount, distance: u64) {
        self.steps += 1;
        if chosen.len() == self.count {
            self.consider(chosen);
            return;
        }
        let missing = self.count - chosen.len();
        for at in next..=self.rooms.len().saturating_sub(missing) {
            if self.steps > MOST_STEPS {
                return;
            }
            let top = self.tops[at][missing];
            let most = Amount {
                cpus: have.cpus.saturating_add(top.cpus),
                bytes: have.bytes.saturating_add(top.bytes),
            };
            if !most.covers(self.want) {
                return;
            }
            let further: u64 = chosen.iter().map(|&other| self.distances[at][other]).sum();
            if distance + further > self.best_cost.0 {
                continue;
            }
            chosen.push(at);
            self.go(
                at + 1,
                chosen,
                have.and(&self.rooms[at]),
                distance + further,
            );
            chosen.pop();
        }
    }

    /// Takes a whole set if it is enough and the best so far.
    fn consider(&mut self, set: &[usize]) {
        let have = Amount::of(set.iter().map(|&at| &self.rooms[at]));
        let pairs = set.iter().enumerate().flat_map(|(place, &from)| {
            let others = set[..place].iter();
            others.map(move |&to| (from, to))
        });
        let distance = pairs.map(|(from, to)| self.distances[from][to]).sum();
        let room = u128::from(have.cpus) * u128::from(have.bytes);
        let cost = (distance, Reverse(room));
        if have.covers(self.want) && cost < self.best_cost {
            self.best = set.to_vec();
            self.best_cost = cost;
        }
    }
}

#[cfg(test)]
mod tests {
    use numaherd_topology::{Parts, hwloc};
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn machine(nodes: usize) -> Topology {
        hwloc::synthetic(&format!("numa:{nodes} core:2 pu:1")).unwrap()
    }

    fn room(node: u32, idle: u64, free: u64) -> Room {
        Room {
            node: NodeId(node),
            has_cpus: true,
            idle,
            free,
        }
    }

    fn want(cpus: u64, bytes: u64) -> Amount {
        let cpus = cpus * 100;
        Amount { cpus, bytes }
    }

    #[track_caller]
    fn assert_advice(topology: &Topology, rooms: &[Room], want: Amount, nodes: &str) {
        let advice = advise(topology, rooms, want);
        assert_eq!(advice.nodes.to_string(), nodes);
        assert_eq!(advice.lacks, Amount::default());
    }

    #[test]
    fn one_node_that_has_room_is_enough_and_the_emptiest_is_taken() {
        let rooms = [
            room(0, 200, 4 * GIB),
            room(1, 800, 2 * GIB),
            room(2, 400, 8 * GIB),
            room(3, 700, 5 * GIB),
        ];
        let machine = machine(4);
        assert_advice(&machine, &rooms, want(1, GIB), "3");
        assert_advice(&machine, &rooms, want(8, GIB), "1");
        assert_advice(&machine, &rooms, want(4, 7 * GIB), "2");
    }

    #[test]
    fn of_several_nodes_the_nearest_to_each_other_are_taken() {
        // 0 and 1 are in one socket, 2 and 3 in the other.
        let mut parts = Parts::from(machine(4));
        let near = |a: usize, b: usize| if a / 2 == b / 2 { 12 } else { 32 };
        let row = |a| {
            (0..4)
                .map(|b| if a == b { 10 } else { near(a, b) })
                .collect()
        };
        parts.distances = (0..4).map(row).collect();
        let topology = Topology::new(parts).unwrap();
        let rooms = [
            room(0, 800, 8 * GIB),
            room(1, 300, 2 * GIB),
            room(2, 800, 8 * GIB),
            room(3, 400, 4 * GIB),
        ];
        // 0 and 2 have the most room, but are far apart.
        assert_advice(&topology, &rooms, want(10, GIB), "2-3");
        assert_advice(&topology, &rooms, want(14, GIB), "0,2");
    }

    #[test]
    fn memory_only_nodes_are_named_only_for_their_memory() {
        let mut rooms = vec![
            room(0, 800, 8 * GIB),
            room(1, 800, 8 * GIB),
            room(2, 0, 99 * GIB),
            room(3, 0, 50 * GIB),
        ];
        for room in &mut rooms[2..] {
            room.has_cpus = false;
        }
        let machine = machine(4);
        assert_advice(&machine, &rooms, want(1, 16 * GIB), "0-1");
        assert_advice(&machine, &rooms, want(1, 20 * GIB), "0-2");
        assert_advice(&machine, &rooms, want(1, 120 * GIB), "0-3");
        // CPUs lack: more memory is of no help.
        let advice = advise(&machine, &rooms, want(17, GIB));
        assert_eq!(advice.nodes.to_string(), "0-1");
        let lacks = Amount {
            cpus: 100,
            bytes: 0,
        };
        assert_eq!(advice.lacks, lacks);
    }

    #[test]
    fn where_nothing_is_enough_all_nodes_are_named_and_what_lacks() {
        let rooms = [room(0, 150, GIB), room(1, 120, GIB)];
        let advice = advise(&machine(2), &rooms, want(4, 3 * GIB));
        assert_eq!(advice.nodes.to_string(), "0-1");
        let (cpus, bytes) = (130, GIB);
        assert_eq!(advice.lacks, Amount { cpus, bytes });
        let no_cpus = Room {
            has_cpus: false,
            ..room(0, 0, GIB)
        };
        let advice = advise(&machine(1), &[no_cpus], want(0, 0));
        assert_eq!(
            advice.nodes.to_string(),
            "0",
            "nothing is wanted, but one node is named"
        );
        let none = advise(&machine(2), &[], want(1, 0));
        assert!(none.nodes.is_empty());
        assert_eq!(none.lacks, want(1, 0));
    }

    #[test]
    fn many_nodes_that_are_all_alike_take_no_longer_than_they_may() {
        let topology = machine(64);
        let rooms: Vec<Room> = (0..64).map(|node| room(node, 200, GIB)).collect();
        let advice = advise(&topology, &rooms, want(64, GIB));
        assert_eq!((advice.nodes.len(), advice.lacks), (32, Amount::default()));
    }

    /// Up to 7 nodes with distances of any kind.
    fn any_machine() -> impl Strategy<Value = (Topology, Vec<Room>)> {
        (1usize..8).prop_flat_map(|nodes| {
            let distances = proptest::collection::vec(11u32..40, nodes * nodes);
            let rooms = proptest::collection::vec((0u64..9, 0u64..9, any::<bool>()), nodes);
            (distances, rooms).prop_map(move |(distances, rooms)| {
                let mut parts = Parts::from(machine(nodes));
                let cell = |a: usize, b: usize| if a == b { 10 } else { distances[a * nodes + b] };
                let row = |a| (0..nodes).map(|b| cell(a, b)).collect();
                parts.distances = (0..nodes).map(row).collect();
                let rooms = rooms
                    .into_iter()
                    .zip(0..)
                    .map(|((idle, free, cpus), node)| Room {
                        node: NodeId(node),
                        has_cpus: cpus,
                        idle: if cpus { idle * 100 } else { 0 },
                        free: free * GIB,
                    });
                (Topology::new(parts).unwrap(), rooms.collect())
            })
        })
    }

    /// The best by the rule, from all sets.
    fn by_trying_all(topology: &Topology, rooms: &[Room], want: Amount) -> Option<NodeSet> {
        let sets = 1u32..1 << rooms.len();
        let with_cpus = |room: &Room| u32::from(room.has_cpus);
        let all_cpus: u32 = rooms.iter().map(with_cpus).sum();
        sets.filter_map(|set| {
            let chosen: Vec<&Room> = rooms
                .iter()
                .enumerate()
                .filter(|(at, _)| set >> at & 1 == 1)
                .map(|(_, room)| room)
                .collect();
            let cpus: u32 = chosen.iter().map(|room| with_cpus(room)).sum();
            let only = chosen.len() - cpus as usize;
            // Those without CPUs come only after all that have some.
            if only > 0 && cpus < all_cpus {
                return None;
            }
            let have = Amount::of(chosen.iter().copied());
            // What the choice is between: those with CPUs, or, beside all of these, those without.
            let between: Vec<&&Room> = chosen
                .iter()
                .filter(|room| only == 0 || !room.has_cpus)
                .collect();
            let distance: u32 = between
                .iter()
                .flat_map(|a| between.iter().map(|b| (a.node, b.node)))
                .filter(|(a, b)| a != b)
                .map(|(a, b)| topology.distance(a, b).unwrap())
                .sum();
            let room = u128::from(have.cpus) * u128::from(have.bytes);
            let cost = (only, chosen.len(), distance, Reverse(room));
            let nodes: NodeSet = chosen.iter().map(|room| room.node).collect();
            have.covers(want).then_some((cost, nodes))
        })
        .min_by_key(|(cost, _)| *cost)
        .map(|(_, nodes)| nodes)
    }

    fn cost(topology: &Topology, rooms: &[Room], nodes: &NodeSet) -> (usize, usize, u32) {
        let chosen = || rooms.iter().filter(|room| nodes.contains(room.node));
        let only = chosen().filter(|room| !room.has_cpus).count();
        let between: Vec<&Room> = chosen()
            .filter(|room| only == 0 || !room.has_cpus)
            .collect();
        let pairs = between
            .iter()
            .flat_map(|a| between.iter().map(|b| (a.node, b.node)));
        let distances = pairs.filter(|(a, b)| a != b);
        let sum = distances
            .map(|(a, b)| topology.distance(a, b).unwrap())
            .sum();
        (only, nodes.len(), sum)
    }

    proptest! {
        #[test]
        fn never_more_than_needed_always_enough_and_nearest(
            (topology, rooms) in any_machine(),
            cpus in 0u64..30,
            gib in 0u64..30,
        ) {
            let want = want(cpus, gib * GIB);
            let advice = advise(&topology, &rooms, want);
            let have = Amount::of(rooms.iter().filter(|room| advice.nodes.contains(room.node)));
            prop_assert_eq!(advice.lacks == Amount::default(), have.covers(want));
            match by_trying_all(&topology, &rooms, want) {
                Some(best) => {
                    prop_assert!(have.covers(want));
                    prop_assert_eq!(
                        cost(&topology, &rooms, &advice.nodes),
                        cost(&topology, &rooms, &best)
                    );
                }
                None => prop_assert!(!have.covers(want)),
            }
        }

        #[test]
        fn the_order_of_the_list_makes_no_difference(
            (topology, rooms) in any_machine(),
            cpus in 0u64..20,
            turn in 0usize..7,
        ) {
            let mut turned = rooms.clone();
            turned.rotate_left(turn % rooms.len());
            let want = want(cpus, 4 * GIB);
            let advice = advise(&topology, &rooms, want);
            prop_assert_eq!(advice, advise(&topology, &turned, want));
        }
    }
}
