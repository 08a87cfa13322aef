//! One candidate at a time: which may try other nodes, and until when. Not in the paper.
//!
//! Problem: the penalty that a candidate keeps for a node is that of all candidates while it was
//! there (BRM §4.2). If others have moved since, it is the price of a layout that is gone, and
//! candidates that try nodes at the same time learn each other's moves instead of their own. BRM
//! spreads moves by chance and forgets everything now and then (§4.4); four threads that share data
//! still need up to a minute to come together, and are sometimes parted again. Its authors chose
//! chance because cores that agree on a turn must synchronise. Here one thread decides for all of
//! them.
//!
//! Rule: the first candidate whose draw makes it move has the *turn*. Until the turn is over, no
//! other candidate learns or moves. After each move it waits [`SETTLES`] ticks, until averages,
//! which begin anew with the move, describe the new layout. Then it goes on, without a draw, to the
//! node with the least penalty (an unknown one counts as the least). If that is where it is, it
//! stays, and the turn is over. If it ends on another node than it began on, the others forget what
//! they know, because it describes a layout that is gone. A candidate also forgets after as many
//! times the random period as there are candidates. So all turns together take the same share of
//! time, however many candidates there are.
//!
//! So a turn ends with a system-wide penalty no larger than it began with, as far as that can be
//! measured. Once no candidate can lower it alone, none moves until something is forgotten. A turn
//! takes about (other nodes + 1) x `SETTLES` ticks, and every candidate has one before the layout is
//! known to be good: this is for tens of candidates, not for thousands.

use numaherd_world::{Snapshot, ThreadId};

/// As many samples as the inverse of an average's weight. Chosen from 5 to 24 with results in sight:
/// longer ones differ little except in the time that they take.
const SETTLES: u32 = 8;
/// A turn without a decision for so many ticks is over: its thread sleeps, or is no longer a
/// candidate.
const LAPSES: u32 = 4 * SETTLES;

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    thread: ThreadId,
    /// The node it was on when its turn began, by its place in the topology.
    began_on: usize,
    /// Ticks since its last move.
    ticks: u32,
}

/// What a candidate may do in a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Learn, and draw.
    Free,
    /// Nothing: another has the turn, or its own last move has not settled.
    Waits,
    /// Learn, and go to the best node, or end its turn on it.
    Decides,
}

impl Turn {
    /// A turn that begins with a move off a node.
    pub fn begins(thread: ThreadId, on: usize) -> Self {
        Self {
            thread,
            began_on: on,
            ticks: 0,
        }
    }

    /// The turn a tick later; `None` if it has lapsed or its thread is gone.
    pub fn tick(mut self, snapshot: &Snapshot) -> Option<Self> {
        self.ticks += 1;
        let goes_on = self.ticks <= LAPSES && snapshot.thread(self.thread).is_some();
        goes_on.then_some(self)
    }

    /// What a candidate may do while this turn is on.
    pub fn role(&self, thread: ThreadId) -> Role {
        if thread == self.thread && self.ticks > SETTLES {
            Role::Decides
        } else {
            Role::Waits
        }
    }

    /// Notes that its thread goes on to another node.
    pub fn moves(&mut self) {
        self.ticks = 0;
    }

    /// Whether it ends on another node than it began on.
    pub fn has_changed(&self, on: usize) -> bool {
        self.began_on != on
    }
}
