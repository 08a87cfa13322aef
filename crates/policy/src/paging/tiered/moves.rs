//! Blocks that are to move, and the orders for them.

use std::borrow::Cow;

use numaherd_topology::NodeId;
use numaherd_world::{BLOCK_PAGES, PageOrder, Pages, ProcessId, ThreadId};

use super::{COLD, USED};
use crate::rules::Rule;

/// The most blocks of one order (chosen here).
const MOST_TOGETHER: u64 = 32;

/// A block that is to move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    pub process: ProcessId,
    pub thread: ThreadId,
    pub block: u64,
    pub to: NodeId,
    pub rule: Rule,
    /// The node that is short or loaded, or from which it is used.
    pub near: NodeId,
}

/// The orders for moves, neighbours in one; memory is cold after so many seconds.
pub(super) fn orders(mut moves: Vec<Move>, seconds: u64) -> Vec<PageOrder> {
    moves.sort_by_key(|one| (one.process, one.block));
    let together = |a: &Move, b: &Move| {
        let is_next = b.block == a.block + 1 && !b.block.is_multiple_of(MOST_TOGETHER);
        is_next && (a.process, a.to, a.rule, a.near) == (b.process, b.to, b.rule, b.near)
    };
    let runs = moves.chunk_by(together);
    runs.map(|run| {
        let one = run[0];
        let (blocks, near) = (run.len() as u64, one.near);
        let pages = match blocks {
            1 => "a block".to_owned(),
            _ => format!("{blocks} blocks"),
        };
        let why = match one.rule.name {
            name if name == COLD.name => {
                format!("node {near} is short of memory, and nobody used {pages} for {seconds} s")
            }
            name if name == USED.name => {
                format!("node {near} uses {pages} apart from all CPUs")
            }
            _ => format!(
                "node {near} answers later than node {} would, and its CPUs use {pages} least",
                one.to
            ),
        };
        PageOrder {
            process: one.process,
            thread: one.thread,
            pages: Pages::Window {
                first: one.block * BLOCK_PAGES,
                count: blocks * BLOCK_PAGES,
            },
            to: one.to,
            rule: Cow::Borrowed(one.rule.name),
            why,
        }
    })
    .collect()
}
