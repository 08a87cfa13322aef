//! A time step: convection and the heat source, explicitly; then conduction, implicitly, by ten
//! steps of conjugate gradients with the diagonal as preconditioner.
//!
//! The unknowns are the inner points of the elements and the mortar points. The operator expands
//! mortars to surfaces, applies conduction and mass in each element, and compresses surfaces to
//! mortars. Threads split the elements, and the mortar points, both in the octree's order. In the
//! last part, each element stores its additions in its slots, and each mortar point collects them
//! from there, so sums do not depend on the order of threads.

use super::element::{self, Operators, POINTS, VOLUME, Values};
use super::mesh::{Ball, Cell};
use super::mortar::{self, SLOTS, Skeleton, Split};
use super::numbering::{Grid, Sources};
use crate::kernels::field::{Field, WholeField};
use crate::kernels::{Member, Stopped};
use std::collections::HashMap;
use std::sync::Arc;

/// Steps of conjugate gradients.
const ITERATIONS: usize = 10;

/// The vectors of conjugate gradients, for the elements' points or the mortar points.
#[derive(Clone, Copy, Debug)]
pub struct Unknowns<'a> {
    /// The residual of the equations.
    pub residual: Field<'a>,
    /// The direction of the next step.
    pub direction: Field<'a>,
    /// The operator applied to the direction.
    pub image: Field<'a>,
    /// The change of the temperature by conduction.
    pub update: Field<'a>,
}

/// Values at the points of elements.
#[derive(Clone, Copy, Debug)]
pub struct Elements<'a> {
    /// The temperature, in two copies: a change of the mesh transfers it from one to the other.
    pub temperature: [Field<'a>; 2],
    /// The unknowns of the linear system.
    pub unknowns: Unknowns<'a>,
    /// The elements' additions for mortars.
    pub slots: Field<'a>,
    /// The mortar point of every slot.
    pub index: WholeField<'a>,
}

/// Values at mortar points.
#[derive(Clone, Copy, Debug)]
pub struct Mortars<'a> {
    /// The temperature before conduction.
    pub guess: Field<'a>,
    /// The unknowns of the linear system.
    pub unknowns: Unknowns<'a>,
    /// One over the diagonal; zero on the border, whose temperature is fixed.
    pub inverse: Field<'a>,
    /// One over the number of elements in an average.
    pub share: Field<'a>,
}

/// One thread's part of the steps.
#[derive(Debug)]
pub struct Solver<'a> {
    /// The data of the elements.
    pub elements: Elements<'a>,
    /// The data of the mortar points.
    pub mortars: Mortars<'a>,
    /// The mesh.
    pub grid: Arc<Grid>,
    /// Its slots by mortar point.
    pub sources: Arc<Sources>,
    /// Index of the current temperature.
    pub current: usize,
    operators: Operators,
    step: f64,
    radius: f64,
    /// One over the diagonal inside an element, by level.
    inner: Vec<Values>,
    /// The diagonal's two parts in every slot, by the split.
    diagonals: HashMap<Split, Vec<[f64; 2]>>,
}

impl<'a> Solver<'a> {
    /// For steps of length `step` and a source of radius `radius`, with elements up to level `finest`.
    pub fn new(
        elements: Elements<'a>,
        mortars: Mortars<'a>,
        [step, radius]: [f64; 2],
        finest: u32,
    ) -> Solver<'a> {
        let operators = Operators::new();
        let inner = (0..=finest).map(|level| {
            let side = 0.5f64.powi(level.cast_signed());
            let [conduction, mass] = element::scales(side, step);
            std::array::from_fn(|p| {
                let mut unit = [0.0; VOLUME];
                unit[p] = 1.0;
                1.0 / (conduction * operators.conducted(&unit)[p] + mass * element::MASS[p])
            })
        });
        let inner = inner.collect();
        Solver {
            elements,
            mortars,
            grid: Arc::default(),
            sources: Arc::default(),
            current: 0,
            operators,
            step,
            radius,
            inner,
            diagonals: HashMap::new(),
        }
    }

    fn own_elements(&self, member: &Member<'_>) -> std::ops::Range<usize> {
        member.share(self.grid.cells.len())
    }

    fn own_mortars(&self, member: &Member<'_>) -> std::ops::Range<usize> {
        member.share(self.grid.mortars())
    }

    /// The source at `time`.
    pub fn ball(&self, time: f64) -> Ball {
        let start = [3.0 / 7.0, 2.0 / 7.0, 2.0 / 7.0];
        Ball {
            centre: start.map(|at| at + element::VELOCITY * time),
            radius: self.radius,
        }
    }

    /// Sets the temperature of own elements to 0.
    pub fn clear(&self, member: &Member<'_>) {
        for e in self.own_elements(member) {
            store(self.elements.temperature[self.current], e, &[0.0; VOLUME]);
        }
    }

    /// One step from `time` on.
    ///
    /// # Errors
    ///
    /// If the run must end, as for all functions here that return [`Stopped`].
    pub fn advance(&mut self, member: &Member<'_>, time: f64) -> Result<(), Stopped> {
        for e in self.own_elements(member) {
            self.carry(e, time);
        }
        member.wait()?;
        for m in self.own_mortars(member) {
            let average = self.collect(m) * self.mortars.share.get(m);
            self.mortars.guess.set(m, average);
        }
        member.wait()?;
        for e in self.own_elements(member) {
            self.begin_element(e);
        }
        member.wait()?;
        self.conduct(member)?;
        let temperature = self.elements.temperature[self.current];
        for e in self.own_elements(member) {
            let mut update = load(self.elements.unknowns.update, e);
            self.expand(e, self.mortars.unknowns.update, &mut update);
            let old = load(temperature, e);
            store(temperature, e, &std::array::from_fn(|p| old[p] + update[p]));
        }
        Ok(())
    }

    /// Applies convection and the source by the fourth-order Runge-Kutta method. Stores the
    /// right-hand side of conduction, and the surface for an average.
    fn carry(&self, e: usize, time: f64) {
        let cell = self.grid.cells[e];
        let temperature = self.elements.temperature[self.current];
        let old = load(temperature, e);
        let rate = |values: &Values, time: f64| -> Values {
            let (carried, source) = (
                self.operators.carried(values, cell.side()),
                self.heat(cell, time),
            );
            std::array::from_fn(|p| carried[p] + source[p])
        };
        let after = |rate: &Values, step: f64| -> Values {
            std::array::from_fn(|p| old[p] + step * rate[p])
        };
        let half = 0.5 * self.step;
        let first = rate(&old, time);
        let second = rate(&after(&first, half), time + half);
        let third = rate(&after(&second, half), time + half);
        let fourth = rate(&after(&third, self.step), time + self.step);
        let mean: Values = std::array::from_fn(|p| {
            let sum = first[p] + 2.0 * second[p] + 2.0 * third[p] + fourth[p];
            if on_border(cell, p) { 0.0 } else { sum / 6.0 }
        });
        let [_, mass] = element::scales(cell.side(), 1.0);
        let right: Values =
            std::array::from_fn(|p| mass * element::MASS[p] * (old[p] / self.step + mean[p]));
        store(self.elements.unknowns.residual, e, &right);
        let new = after(&mean, self.step);
        store(temperature, e, &new);
        self.leave(e, &mortar::plain(self.grid.splits[e], &new));
    }

    /// The heat of the source at the points of `cell`.
    fn heat(&self, cell: Cell, time: f64) -> Values {
        let ball = self.ball(time);
        let (corner, half) = (cell.corner(), 0.5 * cell.side());
        let points = element::points();
        let square = |axis: usize| -> [f64; POINTS] {
            points.map(|at| (corner[axis] + (at + 1.0) * half - ball.centre[axis]).powi(2))
        };
        let squares = [square(0), square(1), square(2)];
        std::array::from_fn(|p| {
            let [i, j, k] = [p % POINTS, p / POINTS % POINTS, p / (POINTS * POINTS)];
            let distance = squares[0][i] + squares[1][j] + squares[2][k];
            if distance <= ball.radius * ball.radius {
                (distance.sqrt() * std::f64::consts::PI / ball.radius).cos() + 1.0
            } else {
                0.0
            }
        })
    }

    /// Sets the surface from the mortars' guess, and computes the residual.
    fn begin_element(&self, e: usize) {
        let temperature = self.elements.temperature[self.current];
        let mut values = load(temperature, e);
        self.expand(e, self.mortars.guess, &mut values);
        store(temperature, e, &values);
        let image = self.apply(e, &values);
        let right = load(self.elements.unknowns.residual, e);
        let residual = std::array::from_fn(|p| right[p] - image[p]);
        store(self.elements.unknowns.residual, e, &residual);
        self.leave(e, &mortar::compress(self.grid.splits[e], &residual));
    }

    /// Conjugate gradients, from a zero update. The elements have stored the residual's surface before.
    fn conduct(&self, member: &Member<'_>) -> Result<(), Stopped> {
        for m in self.own_mortars(member) {
            self.mortars.unknowns.residual.set(m, self.collect(m));
            self.mortars.unknowns.update.set(m, 0.0);
        }
        for e in self.own_elements(member) {
            store(self.elements.unknowns.update, e, &[0.0; VOLUME]);
        }
        let mut before = 0.0;
        for iteration in 0..ITERATIONS {
            // The preconditioned residual is computed twice rather than stored.
            let mut product = 0.0;
            for (of, at, inverse) in self.unknowns(member) {
                let r = of.residual.get(at);
                product += r * r * inverse;
            }
            let product = member.sum(product)?;
            let beta = product / before;
            before = product;
            for (of, at, inverse) in self.unknowns(member) {
                let new = of.residual.get(at) * inverse;
                // Ignores the direction of an earlier time step, even if it is NaN.
                let kept = match iteration {
                    0 => 0.0,
                    _ => beta * of.direction.get(at),
                };
                of.direction.set(at, kept + new);
            }
            member.wait()?;
            self.follow(member, product)?;
        }
        member.wait()
    }

    /// One step along the direction; `product` is that of the residual and the preconditioned residual.
    fn follow(&self, member: &Member<'_>, product: f64) -> Result<(), Stopped> {
        let (elements, mortars) = (self.elements.unknowns, self.mortars.unknowns);
        for e in self.own_elements(member) {
            let mut direction = load(elements.direction, e);
            self.expand(e, mortars.direction, &mut direction);
            let image = self.apply(e, &direction);
            store(elements.image, e, &image);
            self.leave(e, &mortar::compress(self.grid.splits[e], &image));
        }
        member.wait()?;
        for m in self.own_mortars(member) {
            mortars.image.set(m, self.collect(m));
        }
        let mut length = 0.0;
        for (of, at, _) in self.unknowns(member) {
            length += of.direction.get(at) * of.image.get(at);
        }
        let alpha = product / member.sum(length)?;
        for (of, at, _) in self.unknowns(member) {
            of.update.add(at, alpha * of.direction.get(at));
            of.residual.add(at, -alpha * of.image.get(at));
        }
        Ok(())
    }

    /// Every inner point of own elements, then every own mortar point: its vectors, its index
    /// there, and one over the diagonal.
    fn unknowns(&self, member: &Member<'_>) -> impl Iterator<Item = (&Unknowns<'a>, usize, f64)> {
        let elements = self.own_elements(member).flat_map(move |e| {
            let inverses = &self.inner[self.grid.cells[e].level as usize];
            let point = move |p| (&self.elements.unknowns, VOLUME * e + p, inverses[p]);
            INNER.into_iter().map(point)
        });
        let mortar = |m| (&self.mortars.unknowns, m, self.mortars.inverse.get(m));
        elements.chain(self.own_mortars(member).map(mortar))
    }

    /// The implicit operator within an element.
    #[inline]
    fn apply(&self, e: usize, values: &Values) -> Values {
        let [conduction, mass] = element::scales(self.grid.cells[e].side(), self.step);
        let conducted = self.operators.conducted(values);
        std::array::from_fn(|p| conduction * conducted[p] + mass * element::MASS[p] * values[p])
    }

    /// Sets the surface of `values` from the mortars.
    #[inline]
    fn expand(&self, e: usize, mortars: Field<'_>, values: &mut Values) {
        let index = self.elements.index.row(SLOTS * e, SLOTS);
        let read = |slot| mortars.get(index.get(slot) as usize);
        mortar::expand(self.grid.splits[e], read, values);
    }

    /// Stores an element's additions for the mortars in its slots.
    #[inline]
    fn leave(&self, e: usize, skeleton: &Skeleton) {
        let slots = self.elements.slots.row(SLOTS * e, SLOTS);
        for slot in mortar::used(self.grid.splits[e]) {
            slots.set(slot, skeleton[slot]);
        }
    }

    /// The sum of all elements' additions for mortar point `m`.
    fn collect(&self, m: usize) -> f64 {
        let sources = self.sources.of(m).iter();
        sources
            .map(|slot| self.elements.slots.get(*slot as usize))
            .sum()
    }

    /// Stores the mortar points of own elements. To be called before the sources are made.
    pub fn connect(&self, member: &Member<'_>) {
        for e in self.own_elements(member) {
            let index = self.elements.index.row(SLOTS * e, SLOTS);
            (0..SLOTS).for_each(|slot| index.set(slot, u32::MAX));
            self.grid.slots(e, |slot, mortar| index.set(slot, mortar));
        }
    }

    /// Computes the data that depend only on the mesh: the diagonal and the averages' shares.
    ///
    /// # Errors
    ///
    /// If the run must end.
    pub fn prepare(&mut self, member: &Member<'_>) -> Result<(), Stopped> {
        for e in self.own_elements(member) {
            let split = self.grid.splits[e];
            let operators = &self.operators;
            let parts = self
                .diagonals
                .entry(split)
                .or_insert_with(|| diagonal(operators, split));
            let [conduction, mass] = element::scales(self.grid.cells[e].side(), self.step);
            let skeleton =
                std::array::from_fn(|slot| conduction * parts[slot][0] + mass * parts[slot][1]);
            self.leave(e, &skeleton);
        }
        member.wait()?;
        for m in self.own_mortars(member) {
            let held = self.grid.border[m];
            let inverse = if held { 0.0 } else { 1.0 / self.collect(m) };
            self.mortars.inverse.set(m, inverse);
        }
        member.wait()?;
        for e in self.own_elements(member) {
            self.leave(e, &mortar::weights(self.grid.splits[e]));
        }
        member.wait()?;
        for m in self.own_mortars(member) {
            self.mortars.share.set(m, 1.0 / self.collect(m));
        }
        member.wait()
    }

    /// Computes the temperature of own elements, in the current array, from the elements of `old`, in the other.
    pub fn remap(&self, member: &Member<'_>, old: &Grid) {
        let from = self.elements.temperature[1 - self.current];
        let to = self.elements.temperature[self.current];
        for e in self.own_elements(member) {
            store(to, e, &self.temperature_of(self.grid.cells[e], old, from));
        }
    }

    /// The temperature in `cell` of a field over the elements of `old`.
    fn temperature_of(&self, cell: Cell, old: &Grid, from: Field<'_>) -> Values {
        if let Some(e) = old.places.of(cell) {
            return load(from, e);
        }
        match cell.parent() {
            Some((parent, octant)) if old.places.cover(parent) => {
                let whole = self.temperature_of(parent, old, from);
                self.operators.part(&whole, octant)
            }
            _ => {
                let part = |octant| self.temperature_of(cell.child(octant), old, from);
                self.operators.whole(&std::array::from_fn(part))
            }
        }
    }

    /// The integral of the temperature.
    ///
    /// # Errors
    ///
    /// If the run must end.
    pub fn integral(&self, member: &Member<'_>) -> Result<f64, Stopped> {
        let temperature = self.elements.temperature[self.current];
        let mut total = 0.0;
        for e in self.own_elements(member) {
            let [_, volume] = element::scales(self.grid.cells[e].side(), 1.0);
            let values = load(temperature, e);
            total += volume
                * (0..VOLUME)
                    .map(|p| values[p] * element::MASS[p])
                    .sum::<f64>();
        }
        member.sum(total)
    }
}

/// The points that are not on the surface.
const INNER: [usize; 27] = {
    let mut inner = [0; 27];
    let mut at = 0;
    while at < 27 {
        inner[at] = element::point([1 + at % 3, 1 + at / 3 % 3, 1 + at / 9]);
        at += 1;
    }
    inner
};

/// Whether a point of `cell` lies on the border of the unit cube.
fn on_border(cell: Cell, p: usize) -> bool {
    let at = [p % POINTS, p / POINTS % POINTS, p / (POINTS * POINTS)];
    (0..3).any(|axis| {
        (at[axis] == 0 && cell.at[axis] == 0)
            || (at[axis] == POINTS - 1 && cell.at[axis] + 1 == 1 << cell.level)
    })
}

/// The operator's diagonal at each mortar point of an element: conduction and mass.
fn diagonal(operators: &Operators, split: Split) -> Vec<[f64; 2]> {
    let part = |slot: usize| {
        let mut values = [0.0; VOLUME];
        let unit = |of| if of == slot { 1.0 } else { 0.0 };
        mortar::expand(split, unit, &mut values);
        let conducted = operators.conducted(&values);
        let products = (0..VOLUME).map(|p| {
            let value = values[p];
            [value * conducted[p], value * value * element::MASS[p]]
        });
        products.fold([0.0; 2], |sum, product| {
            [sum[0] + product[0], sum[1] + product[1]]
        })
    };
    (0..SLOTS).map(part).collect()
}

#[inline]
fn load(field: Field<'_>, e: usize) -> Values {
    let row = field.row(VOLUME * e, VOLUME);
    std::array::from_fn(|p| row.get(p))
}

#[inline]
fn store(field: Field<'_>, e: usize, values: &Values) {
    let row = field.row(VOLUME * e, VOLUME);
    for (p, value) in values.iter().enumerate() {
        row.set(p, *value);
    }
}
