//! All layouts of some threads on the CPUs of a pool, each once up to symmetry.
//!
//! A layout gives each thread a CPU. Only layouts that load CPUs evenly count: physical cores before
//! siblings, one thread on each CPU before a second ([`Level`]). So `n` threads take `n` slots of the
//! lowest levels: all slots below the highest of these levels, and any slots of that level for the
//! threads that are left.
//!
//! Symmetry: cores of one domain are alike when their CPUs are (capacity, what is held of them, how
//! many threads they must and may have), and so are CPUs of one core. Of several that are alike and
//! have no thread yet, only the first is tried. So layouts differ only in which threads share a
//! domain, a core or a CPU.
//!
//! Properties: up to the names of like cores and CPUs, every even layout is walked through exactly
//! once.

use std::ops::ControlFlow;

use numaherd_topology::Topology;

use crate::placement::n_mass::processors::Level;
use crate::placement::slots::{At, PoolSlots};
use crate::relabel::most_staying_first;

/// Layouts of more threads are not counted: unless hardly anything can differ there are far more than
/// can be tried, and a walk through them costs more with every thread.
const MOST_THREADS: usize = 64;

/// What makes CPUs of one core alike: capacity, threads held, threads it must and may have.
type Likeness = (u32, usize, usize, usize);

/// One CPU that threads can be put on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cpu {
    at: At,
    core: usize,
    /// Threads it must have at least: slots below the highest level.
    must: usize,
    /// Threads it may have at most.
    may: usize,
    like: Likeness,
}

/// One physical core.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Core {
    domain: usize,
    cpus: Vec<usize>,
    /// Cores of one kind are alike.
    kind: usize,
}

/// All layouts of some threads on the slots of a pool.
#[derive(Clone, Debug)]
pub struct Space {
    cpus: Vec<Cpu>,
    cores: Vec<Core>,
    kinds: usize,
    threads: usize,
    /// How many threads take slots of the highest level.
    last_level: usize,
    /// Place of each CPU in `cpus`, by place in the pool's slots.
    index: Vec<Vec<usize>>,
}

/// Threads on CPUs, while a layout is being made.
#[derive(Clone, Debug)]
pub struct Board {
    /// The CPU of each thread that has one yet, by place in [`Space`]'s CPUs.
    of: Vec<usize>,
    on: Vec<usize>,
    on_core: Vec<usize>,
    last_level: usize,
}

impl Space {
    /// The layouts of that many threads.
    pub fn new(slots: &PoolSlots, topology: &Topology, threads: usize) -> Self {
        let all = slots.domains.iter().flat_map(|domain| &domain.cpus);
        let held: usize = all.clone().map(|slots| slots.held).sum();
        let rounds = (threads + held).div_ceil(all.clone().count().max(1));
        let levels = |held: usize, tier: usize| (held..rounds).map(move |round| (round, tier));
        let mut by_level: Vec<Level> = all.flat_map(|s| levels(s.held, s.tier)).collect();
        by_level.sort_unstable();
        let highest = threads.checked_sub(1).map(|last| by_level[last]);
        let below = |level: &Level| highest.is_some_and(|highest| *level < highest);

        let mut space = Self {
            cpus: Vec::new(),
            cores: Vec::new(),
            kinds: 0,
            threads,
            last_level: threads - by_level.iter().filter(|level| below(level)).count(),
            index: slots.empty_loads(),
        };
        for (domain, of_domain) in slots.domains.iter().enumerate() {
            let first = space.cores.len();
            let mut ids = Vec::new();
            for (cpu, slots) in of_domain.cpus.iter().enumerate() {
                let id = topology.cpu(slots.cpu).map(|cpu| cpu.core);
                let core = ids.iter().position(|&known| known == id);
                let core = core.unwrap_or_else(|| {
                    ids.push(id);
                    space.cores.push(Core {
                        domain,
                        cpus: Vec::new(),
                        kind: 0,
                    });
                    ids.len() - 1
                });
                let must = levels(slots.held, slots.tier).filter(below).count();
                let may = levels(slots.held, slots.tier)
                    .filter(|&level| highest.is_some_and(|highest| level <= highest))
                    .count();
                space.index[domain][cpu] = space.cpus.len();
                space.cores[first + core].cpus.push(space.cpus.len());
                space.cpus.push(Cpu {
                    at: At { domain, cpu },
                    core: first + core,
                    must,
                    may,
                    like: (slots.capacity, slots.held, must, may),
                });
            }
        }
        space.sort_cores();
        space
    }

    /// Gives cores that are alike one kind.
    fn sort_cores(&mut self) {
        let mut known: std::collections::HashMap<(usize, Vec<Likeness>), usize> =
            std::collections::HashMap::new();
        for core in &mut self.cores {
            let like = core.cpus.iter().map(|&cpu| self.cpus[cpu].like).collect();
            let next = known.len();
            core.kind = *known.entry((core.domain, like)).or_insert(next);
        }
        self.kinds = known.len();
    }

    /// How many threads are laid out.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// No thread anywhere yet.
    pub fn empty(&self) -> Board {
        Board {
            of: Vec::with_capacity(self.threads),
            on: vec![0; self.cpus.len()],
            on_core: vec![0; self.cores.len()],
            last_level: 0,
        }
    }

    /// A layout, by place in the pool's slots.
    pub fn layout(&self, board: &Board) -> Vec<At> {
        board.of.iter().map(|&cpu| self.cpus[cpu].at).collect()
    }

    /// The board of wished-for places, made even: each thread in order gets the CPU wished for if it
    /// has room, else a CPU with room in that domain, else in any. Within a core, fuller CPUs get the
    /// names of earlier ones, so that a wish that is even up to names is kept.
    pub fn board(&self, wishes: &[Option<At>]) -> Board {
        let mut loads = vec![0usize; self.cpus.len()];
        let wished = |at: At| self.index[at.domain][at.cpu];
        for &at in wishes.iter().flatten() {
            loads[wished(at)] += 1;
        }
        let mut name: Vec<usize> = (0..self.cpus.len()).collect();
        for core in &self.cores {
            for &cpu in &core.cpus {
                let (capacity, held, ..) = self.cpus[cpu].like;
                let same = |&&other: &&usize| {
                    let like = self.cpus[other].like;
                    (like.0, like.1) == (capacity, held)
                };
                let names: Vec<usize> = core.cpus.iter().filter(same).copied().collect();
                let mut fullest = names.clone();
                fullest.sort_by_key(|&cpu| (std::cmp::Reverse(loads[cpu]), cpu));
                for (from, to) in fullest.into_iter().zip(names) {
                    name[from] = to;
                }
            }
        }
        let mut board = self.empty();
        for &wish in wishes {
            let kept = wish.map(|at| name[wished(at)]);
            let kept = kept.filter(|&cpu| self.has_room(&board, cpu));
            let cpu = kept.unwrap_or_else(|| {
                let options = self.options(&board);
                let near = wish.and_then(|at| {
                    let near = |&&cpu: &&usize| self.cpus[cpu].at.domain == at.domain;
                    options.iter().find(near)
                });
                *near.unwrap_or(&options[0])
            });
            self.push(&mut board, cpu);
        }
        board
    }

    fn has_room(&self, board: &Board, cpu: usize) -> bool {
        let (on, cpu) = (board.on[cpu], &self.cpus[cpu]);
        on < cpu.must || (on < cpu.may && board.last_level < self.last_level)
    }

    /// The CPUs that one more thread can be put on, one of those that are alike; at least one while a
    /// thread lacks a CPU.
    pub fn options(&self, board: &Board) -> Vec<usize> {
        let mut options = Vec::new();
        let mut seen = vec![false; self.kinds];
        for (core, of_core) in self.cores.iter().enumerate() {
            let empty = board.on_core[core] == 0;
            if empty && std::mem::replace(&mut seen[of_core.kind], true) {
                continue;
            }
            for (rank, &cpu) in of_core.cpus.iter().enumerate() {
                let alike = |&&other: &&usize| {
                    board.on[other] == 0 && self.cpus[other].like == self.cpus[cpu].like
                };
                let doubles = board.on[cpu] == 0 && of_core.cpus[..rank].iter().any(|o| alike(&o));
                if !doubles && self.has_room(board, cpu) {
                    options.push(cpu);
                }
            }
        }
        options
    }

    /// Puts the next thread on a CPU.
    pub fn push(&self, board: &mut Board, cpu: usize) {
        board.of.push(cpu);
        self.count(board, cpu);
    }

    fn count(&self, board: &mut Board, cpu: usize) {
        board.last_level += usize::from(board.on[cpu] >= self.cpus[cpu].must);
        board.on[cpu] += 1;
        board.on_core[self.cpus[cpu].core] += 1;
    }

    fn uncount(&self, board: &mut Board, cpu: usize) {
        board.on[cpu] -= 1;
        board.on_core[self.cpus[cpu].core] -= 1;
        board.last_level -= usize::from(board.on[cpu] >= self.cpus[cpu].must);
    }

    /// Takes the last thread off again.
    pub fn pop(&self, board: &mut Board) {
        if let Some(cpu) = board.of.pop() {
            self.uncount(board, cpu);
        }
    }

    /// Where a thread could be instead while the others stay: one of CPUs that are alike.
    pub fn moves(&self, board: &Board, thread: usize) -> Vec<usize> {
        let mut without = board.clone();
        let from = board.of[thread];
        self.uncount(&mut without, from);
        let mut moves = self.options(&without);
        // Alone on its core, it would only go to another like it.
        let core = self.cpus[from].core;
        let kind = self.cores[core].kind;
        let alone = without.on_core[core] == 0;
        let other = |cpu: usize| self.cpus[cpu].core;
        moves.retain(|&cpu| {
            let same = alone && without.on_core[other(cpu)] == 0;
            cpu != from && !(same && self.cores[other(cpu)].kind == kind)
        });
        moves
    }

    /// Whether two threads that change places make another layout.
    pub fn differ(&self, board: &Board, a: usize, b: usize) -> bool {
        let (x, y) = (board.of[a], board.of[b]);
        let (core_x, core_y) = (self.cpus[x].core, self.cpus[y].core);
        let alone = |core: usize| board.on_core[core] == 1;
        let alike = self.cores[core_x].kind == self.cores[core_y].kind;
        x != y && !(alike && alone(core_x) && alone(core_y))
    }

    /// Puts a thread on another CPU.
    pub fn shift(&self, board: &mut Board, thread: usize, cpu: usize) {
        let from = std::mem::replace(&mut board.of[thread], cpu);
        self.uncount(board, from);
        self.count(board, cpu);
    }

    /// Lets two threads change places.
    pub fn swap(&self, board: &mut Board, a: usize, b: usize) {
        board.of.swap(a, b);
    }

    /// Walks through all layouts, until `each` breaks off. Depth first over the threads, on a stack
    /// of its own: there may be many threads.
    pub fn walk(&self, mut each: impl FnMut(&Board) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut board = self.empty();
        let mut open: Vec<std::vec::IntoIter<usize>> = Vec::new();
        if self.threads == 0 {
            return each(&board);
        }
        open.push(self.options(&board).into_iter());
        while let Some(options) = open.last_mut() {
            let Some(cpu) = options.next() else {
                open.pop();
                self.pop(&mut board);
                continue;
            };
            let before = board.last_level;
            self.push(&mut board, cpu);
            // Once the last slot of the highest level is taken, what each core may yet get is known.
            let settled = before < board.last_level && board.last_level == self.last_level;
            let cores = match self.cpus[cpu].core {
                _ if settled => 0..self.cores.len(),
                core => core..core + 1,
            };
            if !cores
                .into_iter()
                .all(|core| self.is_first_of_its_names(&board, core))
            {
                self.pop(&mut board);
            } else if board.of.len() < self.threads {
                open.push(self.options(&board).into_iter());
            } else {
                each(&board)?;
                self.pop(&mut board);
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether a board can still lead to the layout that counts, of those that differ only in names.
    /// CPUs of one core that differ only in how many threads they must and may have could swap names
    /// if they end with equally many. Of the two layouts, the one counts whose earlier CPU has the
    /// earlier first thread.
    fn is_first_of_its_names(&self, board: &Board, core: usize) -> bool {
        let first = |cpu: usize| board.of.iter().position(|&of| of == cpu);
        let cpus = &self.cores[core].cpus;
        cpus.iter().enumerate().all(|(rank, &b)| {
            let (capacity, held, ..) = self.cpus[b].like;
            let same = |a: &&usize| {
                let like = self.cpus[**a].like;
                (like.0, like.1) == (capacity, held) && like != self.cpus[b].like
            };
            cpus[..rank].iter().filter(same).all(|&a| {
                let in_order = match (first(a), first(b)) {
                    (_, None) => true,
                    (None, Some(_)) => false,
                    (Some(a), Some(b)) => a < b,
                };
                let most = if board.last_level < self.last_level {
                    self.cpus[a].may
                } else {
                    self.cpus[a].must.max(board.on[a])
                };
                in_order || most > board.on[b]
            })
        })
    }

    /// How many layouts there are; `None` for more than `most`, and for more than 64 threads.
    pub fn count_up_to(&self, most: usize) -> Option<usize> {
        if self.threads > MOST_THREADS {
            return None;
        }
        let mut count = 0;
        let counted = self.walk(|_| {
            count += 1;
            if count > most {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        counted.is_continue().then_some(count)
    }

    /// The same layout with other names of like cores and CPUs, chosen core by core so that many
    /// threads stay where they sit.
    pub fn renamed(&self, board: &Board, sits: &[Option<At>]) -> Board {
        let mut on_cpu: Vec<Vec<usize>> = vec![Vec::new(); self.cpus.len()];
        for (thread, &cpu) in board.of.iter().enumerate() {
            on_cpu[cpu].push(thread);
        }
        let sits_on = |thread: usize| sits[thread].map(|at| self.index[at.domain][at.cpu]);
        let core_of = |cpu: usize| self.cpus[cpu].core;
        // A pair of cores for each thread that stays if its core gets the name of the one where it
        // sits.
        let cores = board.of.iter().enumerate();
        let cores =
            cores.filter_map(|(thread, &cpu)| Some((core_of(cpu), core_of(sits_on(thread)?))));
        let staying = cores.filter(|&(from, to)| self.cores[from].kind == self.cores[to].kind);
        let mut name: Vec<Option<usize>> = vec![None; self.cores.len()];
        let mut given = vec![false; self.cores.len()];
        most_staying_first(staying.collect(), |(from, to)| {
            if name[from].is_none() && !given[to] {
                name[from] = Some(to);
                given[to] = true;
            }
        });
        // The rest in order, those with threads first.
        let mut free: Vec<Vec<usize>> = vec![Vec::new(); self.kinds];
        for core in (0..self.cores.len()).rev().filter(|&core| !given[core]) {
            free[self.cores[core].kind].push(core);
        }
        for with_threads in [true, false] {
            for core in 0..self.cores.len() {
                if name[core].is_none() && (board.on_core[core] > 0) == with_threads {
                    name[core] = free[self.cores[core].kind].pop();
                }
            }
        }
        let mut of = vec![0; board.of.len()];
        for (core, name) in name.into_iter().enumerate() {
            let Some(name) = name.filter(|_| board.on_core[core] > 0) else {
                continue;
            };
            self.rename_cpus(core, name, &on_cpu, &sits_on, &mut of);
        }
        let mut renamed = self.empty();
        for cpu in of {
            self.push(&mut renamed, cpu);
        }
        renamed
    }

    /// Renames CPUs within a renamed core: each CPU's threads go to the like CPU where most of them
    /// sit.
    fn rename_cpus(
        &self,
        core: usize,
        name: usize,
        on_cpu: &[Vec<usize>],
        sits_on: &impl Fn(usize) -> Option<usize>,
        of: &mut [usize],
    ) {
        let mut free = self.cores[name].cpus.clone();
        let mut hands: Vec<usize> = self.cores[core].cpus.clone();
        // CPUs whose threads can stay come first.
        let stays = |hand: usize, cpu: usize| {
            let there = on_cpu[hand].iter().filter(|&&t| sits_on(t) == Some(cpu));
            there.count()
        };
        hands.sort_by_key(|&hand| {
            let most = free.iter().map(|&cpu| stays(hand, cpu)).max();
            (std::cmp::Reverse(most), hand)
        });
        for hand in hands {
            let like = |&&cpu: &&usize| self.cpus[cpu].like == self.cpus[hand].like;
            let best = free
                .iter()
                .filter(like)
                .copied()
                .max_by_key(|&cpu| (stays(hand, cpu), std::cmp::Reverse(cpu)));
            let best = best.expect("cores of one kind have like CPUs");
            free.retain(|&cpu| cpu != best);
            for &thread in &on_cpu[hand] {
                of[thread] = best;
            }
        }
    }
}
