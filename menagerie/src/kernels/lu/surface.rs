//! The integral of the pressure over the surface of a box inside the grid: the third number that
//! verifies a run of lu (RNR-94-007, section 3.1).

use crate::kernels::cfd::flow::Flow;
use crate::kernels::cfd::{Axis, PRESSURE};
use crate::kernels::{Member, Stopped};
use std::ops::{Range, RangeInclusive};

/// The integral. All members call it and get the same result.
///
/// # Errors
///
/// If the run must end.
pub fn integral(flow: Flow<'_>, member: &Member<'_>) -> Result<f64, Stopped> {
    let n = flow.grid.n();
    // Fewer than the points inside: the definition removes a layer from y and z.
    let extent = [1..=n - 2, 1..=n - 3, 2..=n - 2];
    let faces = [
        (Axis::X, Axis::Y, Axis::Z),
        (Axis::Y, Axis::X, Axis::Z),
        (Axis::Z, Axis::X, Axis::Y),
    ];
    let mut sum = 0.0;
    for (normal, inner, outer) in faces {
        let cells = |axis: Axis| cells(&extent[axis.index()]);
        let sides = [
            *extent[normal.index()].start(),
            *extent[normal.index()].end(),
        ];
        for v in member.share_of(cells(outer)) {
            for u in cells(inner) {
                for side in sides {
                    for (du, dv) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                        let mut position = [0; 3];
                        position[normal.index()] = side;
                        position[inner.index()] = u + du;
                        position[outer.index()] = v + dv;
                        sum += pressure(flow, position);
                    }
                }
            }
        }
    }
    // The mean of each cell's corners times its area.
    let spacing = flow.grid.spacing();
    Ok(0.25 * spacing * spacing * member.sum(sum)?)
}

/// The cells between points `points`, by the number of their first point.
fn cells(points: &RangeInclusive<usize>) -> Range<usize> {
    *points.start()..*points.end()
}

fn pressure(flow: Flow<'_>, [i, j, k]: [usize; 3]) -> f64 {
    let [density, x, y, z, energy] = flow.state.get(flow.grid.at(i, j, k));
    PRESSURE * (energy - 0.5 * (x * x + y * y + z * z) / density)
}
