//! One candidate at a time: who may try other nodes, and until when. Not in the paper.
//!
//! Problem: the penalty that a candidate keeps for a node is everybody's, as it was when the
//! candidate was there (BRM §4.2). Where others moved meanwhile it is the price of a layout that is
//! gone, and candidates that try nodes at the same time learn each other's moves instead of their
//! own. BRM spreads moves by chance and forgets everything now and then (§4.4); four threads that
//! share data still need up to a minute to come together so, and are sometimes parted again. Its
//! authors chose chance because cores that agree on a turn must synchronise. Here one thread decides
//! for all of them.
//!
//! Rule: the first candidate whose draw says go has the *turn*. Until it is over nobody else learns
//! or moves. After each move it waits [`SETTLES`] ticks, for averages that began anew with the move
//! to tell of the new layout; then it goes on, without a draw, to the node with the least penalty
//! (one that it knows nothing of counts as the least), or stays if that is where it is: then the
//! turn is over. If it is on another node than it began on, what the others know is of a layout
//! that is gone: they forget it. What a candidate knows is forgotten after as many times the random
//! period as there are candidates, so that all their turns together take the same share of time,
//! however many they are.
//!
//! So a turn ends with a system-wide penalty no larger than it began with, as far as that can be
//! measured, and once nobody can lower it alone nobody moves until something is forgotten. A turn
//! takes about (other nodes + 1) x `SETTLES` ticks, and everybody has one before the layout is
//! known to be good: this is for tens of candidates, not for thousands.

use numaherd_world::{Snapshot, ThreadId};

/// As many samples as the inverse of an average's weight. Chosen with results in sight, of 5 to 24:
/// longer ones differ little but for the time that they take.
const SETTLES: u32 = 8;
/// A turn without a decision for so many ticks is over: whose it is sleeps, or is no candidate any
/// more.
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

    /// A tick later; nothing where it is over by itself.
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

    /// It goes on to another node.
    pub fn moves(&mut self) {
        self.ticks = 0;
    }

    /// Whether it ends elsewhere than it began.
    pub fn has_changed(&self, on: usize) -> bool {
        self.began_on != on
    }
}
