//! The cells of particles, and the threads that own them. The side of a cell is the reach of
//! forces, so a particle's partners are in its cell and the 26 around it.
//!
//! A cell is a block of memory with room for 16 particles. For more, further blocks from a common
//! pool are chained to it. Each block stores its particles' coordinates one after the other,
//! quantity by quantity.

use crate::error::Error;
use crate::kernels::field::Field;
use crate::kernels::team::share;
use crate::kernels::{Array, Terms, WholeArray};
use crate::sync::lock;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Particles in a block of memory.
pub const ROOM: usize = 16;

/// Quantities of a particle, most with three coordinates.
const QUANTITIES: usize = 13;
/// Its position.
pub const PLACE: usize = 0;
/// Its velocity half a step earlier.
pub const HALF: usize = 3;
/// Its velocity.
pub const VELOCITY: usize = 6;
/// Its acceleration.
pub const ACCELERATION: usize = 9;
/// Its density, a single number.
const DENSITY: usize = 12;

/// Elements of a block.
const SIZE: usize = QUANTITIES * ROOM;

/// A particle: the place of its first quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Particle(usize);

/// All particles of one step.
#[derive(Debug)]
pub struct Cells {
    sides: [usize; 3],
    quantities: Array,
    /// Particles in each block.
    counts: WholeArray,
    /// The block that continues each block; 0, which never continues another, for the end.
    further: WholeArray,
    /// Number of blocks taken from the pool, which begins after the last cell.
    taken: AtomicUsize,
}

impl Cells {
    /// Empty cells, `sides` along the axes, with room for `particles` in all.
    ///
    /// # Errors
    ///
    /// If memory is short.
    pub fn new(terms: &Terms<'_>, sides: [usize; 3], particles: usize) -> Result<Cells, Error> {
        // A cell takes a further block for every 16 particles beyond its first 16.
        let blocks = sides.iter().product::<usize>() + particles / ROOM;
        Ok(Cells {
            sides,
            quantities: Array::new(terms, blocks * SIZE)?,
            counts: WholeArray::new(terms, blocks)?,
            further: WholeArray::new(terms, blocks)?,
            taken: AtomicUsize::new(0),
        })
    }

    /// The cell that contains a position.
    pub fn at(&self, place: [f64; 3]) -> usize {
        let [x, y, z] = std::array::from_fn(|axis| {
            // Below 0 becomes 0; the far wall belongs to the last cell.
            (place[axis] as usize).min(self.sides[axis] - 1)
        });
        (z * self.sides[1] + y) * self.sides[0] + x
    }

    /// Empties a cell.
    pub fn clear(&self, cell: usize) {
        self.counts.field().set(cell, 0);
        self.further.field().set(cell, 0);
    }

    /// Returns all further blocks to the pool. Cells must be cleared before their next use.
    pub fn drop_additions(&self) {
        self.taken.store(0, Ordering::Relaxed);
    }

    /// Adds a particle to a cell. No other thread may use the cell meanwhile.
    pub fn push(&self, cell: usize, place: [f64; 3], half: [f64; 3], velocity: [f64; 3]) {
        let block = self.open_block(cell);
        let at = self.counts.field().get(block);
        self.counts.field().set(block, at + 1);
        let particle = Particle(block * SIZE + at as usize);
        for (quantity, value) in [(PLACE, place), (HALF, half), (VELOCITY, velocity)] {
            self.set(particle, quantity, value);
        }
    }

    /// The last block of a cell, with room for one more.
    fn open_block(&self, cell: usize) -> usize {
        let (counts, further) = (self.counts.field(), self.further.field());
        let mut block = cell;
        while further.get(block) != 0 {
            block = further.get(block) as usize;
        }
        if counts.get(block) < ROOM as u32 {
            return block;
        }
        let cells = self.sides.iter().product::<usize>();
        let next = cells + self.taken.fetch_add(1, Ordering::Relaxed);
        counts.set(next, 0);
        further.set(next, 0);
        let number = u32::try_from(next).expect("the largest class has fewer blocks");
        further.set(block, number);
        next
    }

    /// A cell's particles.
    #[inline(always)]
    pub fn particles(&self, cell: usize) -> impl Iterator<Item = Particle> {
        let (counts, further) = (self.counts.field(), self.further.field());
        let next = move |block: &usize| match further.get(*block) {
            0 => None,
            next => Some(next as usize),
        };
        let blocks = std::iter::successors(Some(cell), next);
        blocks.flat_map(move |block| {
            (0..counts.get(block) as usize).map(move |at| Particle(block * SIZE + at))
        })
    }

    fn field(&self) -> Field<'_> {
        self.quantities.field()
    }

    /// Its [`PLACE`], [`HALF`], [`VELOCITY`] or [`ACCELERATION`].
    #[inline(always)]
    pub fn get(&self, particle: Particle, quantity: usize) -> [f64; 3] {
        let field = self.field();
        std::array::from_fn(|axis| field.get(particle.0 + (quantity + axis) * ROOM))
    }

    /// Sets a quantity that [`Cells::get`] returns.
    #[inline(always)]
    pub fn set(&self, particle: Particle, quantity: usize, value: [f64; 3]) {
        let field = self.field();
        for (axis, value) in value.into_iter().enumerate() {
            field.set(particle.0 + (quantity + axis) * ROOM, value);
        }
    }

    /// Its density.
    #[inline(always)]
    pub fn density(&self, particle: Particle) -> f64 {
        self.field().get(particle.0 + DENSITY * ROOM)
    }

    /// Adds to its acceleration.
    #[inline(always)]
    pub fn add_acceleration(&self, particle: Particle, change: [f64; 3]) {
        for (axis, change) in change.into_iter().enumerate() {
            self.field()
                .add(particle.0 + (ACCELERATION + axis) * ROOM, change);
        }
    }

    /// Sets its density.
    pub fn set_density(&self, particle: Particle, density: f64) {
        self.field().set(particle.0 + DENSITY * ROOM, density);
    }

    /// Adds to its density.
    #[inline(always)]
    pub fn add_density(&self, particle: Particle, change: f64) {
        self.field().add(particle.0 + DENSITY * ROOM, change);
    }
}

/// The owners of cells.
#[derive(Debug)]
pub struct Blocks {
    /// Each thread's block.
    blocks: Vec<Block>,
    /// For each cell, a mutex if a neighbour belongs to another thread.
    edges: Vec<Option<Mutex<()>>>,
}

/// A thread's cells: all cells over a rectangle, from bottom to top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    x: Range<usize>,
    z: Range<usize>,
}

impl Block {
    /// Its cells.
    pub fn cells(&self, sides: [usize; 3]) -> impl Iterator<Item = usize> + use<> {
        let Block { x, z } = self.clone();
        z.flat_map(move |z| {
            let x = x.clone();
            (0..sides[1]).flat_map(move |y| {
                let row = (z * sides[1] + y) * sides[0];
                row + x.start..row + x.end
            })
        })
    }
}

impl Blocks {
    /// Divides cells among `threads`, with nearly equal numbers of parts along the third and the first axis. Neighbours
    /// along the third have consecutive numbers, as in PARSEC's fluidanimate.
    pub fn new(sides: [usize; 3], threads: usize) -> Blocks {
        let fits = |parts: &usize| threads.is_multiple_of(*parts);
        let along_z = (1..=threads.isqrt()).rev().find(fits).unwrap_or(1);
        let along_x = threads / along_z;
        let blocks: Vec<_> = (0..threads)
            .map(|index| Block {
                x: share(sides[0], index / along_z, along_x),
                z: share(sides[2], index % along_z, along_z),
            })
            .collect();
        let mut owners = vec![0; sides.iter().product()];
        for (index, block) in blocks.iter().enumerate() {
            block.cells(sides).for_each(|cell| owners[cell] = index);
        }
        let has_other = |cell: usize| {
            let other = |near: &usize| owners[*near] != owners[cell];
            around(cell, sides).any(|near| other(&near))
        };
        let edges = (0..owners.len())
            .map(|cell| has_other(cell).then(Mutex::default))
            .collect();
        Blocks { blocks, edges }
    }

    /// A thread's cells.
    pub fn of(&self, thread: usize) -> &Block {
        &self.blocks[thread]
    }

    /// Locks a cell, if other threads may access it.
    #[inline(always)]
    pub fn lock(&self, cell: usize) -> Option<MutexGuard<'_, ()>> {
        self.edges[cell].as_ref().map(lock)
    }

    /// Copies the particles of `cell` of `before` to their new cells.
    ///
    /// A particle moves by less than a cell in a step, so only cells at the edge get particles from
    /// other threads.
    pub fn sort(&self, before: &Cells, cell: usize, now: &Cells) {
        for particle in before.particles(cell) {
            let place = before.get(particle, PLACE);
            let (half, velocity) = (before.get(particle, HALF), before.get(particle, VELOCITY));
            let to = now.at(place);
            let _alone = self.lock(to);
            now.push(to, place, half, velocity);
        }
    }
}

/// The cells around one, itself included, in order.
pub fn around(cell: usize, sides: [usize; 3]) -> impl Iterator<Item = usize> {
    let [nx, ny, nz] = sides;
    let [x, y, z] = [cell % nx, cell / nx % ny, cell / nx / ny];
    let near = |at: usize, side: usize| at.saturating_sub(1)..(at + 2).min(side);
    near(z, nz).flat_map(move |z| {
        near(y, ny).flat_map(move |y| near(x, nx).map(move |x| (z * ny + y) * nx + x))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{Class, trial};
    use proptest::prelude::*;

    fn sides() -> impl Strategy<Value = [usize; 3]> {
        [1usize..9, 1usize..5, 1usize..9]
    }

    proptest! {
        #[test]
        fn every_cell_belongs_to_one_thread(sides in sides(), threads in 1usize..20) {
            let blocks = Blocks::new(sides, threads);
            let mut owned: Vec<_> =
                (0..threads).flat_map(|thread| blocks.of(thread).cells(sides)).collect();
            owned.sort_unstable();
            prop_assert!(owned.into_iter().eq(0..sides.iter().product()));
        }

        #[test]
        fn a_cell_without_a_mutex_is_written_by_its_owner_alone(
            sides in sides(), threads in 1usize..20
        ) {
            let blocks = Blocks::new(sides, threads);
            for thread in 0..threads {
                for cell in blocks.of(thread).cells(sides) {
                    for near in around(cell, sides) {
                        let is_own = blocks.of(thread).cells(sides).any(|own| own == near);
                        prop_assert!(is_own || blocks.lock(near).is_some());
                    }
                }
            }
        }

        #[test]
        fn near_is_mutual(sides in sides(), cell in 0usize..512) {
            let cell = cell % sides.iter().product::<usize>();
            for near in around(cell, sides) {
                prop_assert!(around(near, sides).any(|back| back == cell));
            }
            prop_assert!(around(cell, sides).is_sorted());
        }

        #[test]
        fn a_cell_holds_any_number_of_particles(count in 0usize..100) {
            let (visited, before) = trial::with_terms(Class::S, 1, |terms| {
                let cells = Cells::new(terms, [2, 1, 1], count).unwrap();
                for particle in 0..count {
                    cells.push(1, [particle as f64; 3], [0.0; 3], [0.0; 3]);
                }
                let mut visited = Vec::new();
                visited.extend(cells.particles(1).map(|particle| (particle, cells.get(particle, PLACE)[0])));
                let mut before = Vec::new();
                for (particle, _) in &visited {
                    let earlier = cells.particles(1).take_while(|other| other != particle);
                    before.push(earlier.count());
                }
                let places: Vec<_> = visited.into_iter().map(|(_, place)| place).collect();
                (places, before)
            });
            prop_assert!(visited.into_iter().eq((0..count).map(|particle| particle as f64)));
            prop_assert!(before.into_iter().eq(0..count));
        }
    }

    #[test]
    fn places_beyond_the_walls_belong_to_the_outermost_cells() {
        trial::with_terms(Class::S, 1, |terms| {
            let cells = Cells::new(terms, [2, 3, 4], 0).unwrap();
            assert_eq!(cells.at([-1.0, -0.5, 0.0]), 0);
            assert_eq!(cells.at([2.0, 3.5, 9.0]), 2 * 3 * 4 - 1);
        });
    }
}
