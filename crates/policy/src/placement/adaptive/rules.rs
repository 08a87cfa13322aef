//! The rules that plans of `adaptive` name.

use crate::rules::Rule;

/// The rules that plans name.
pub const RULES: &[Rule] = &[GAIN, HOLD, MAKE_ROOM, UNDO, LET_GO, FOLLOW, DEAL, SPREAD];
pub(super) const GAIN: Rule = Rule {
    name: "adaptive: fewer lost cores",
    source: "designed here",
    what: "The machine is expected to lose fewer cores with the thread on this CPU.",
};
pub(super) const HOLD: Rule = Rule {
    name: "adaptive: hold",
    source: "designed here",
    what: "The thread waits for memory and is where the layout wants it: it stays in its memory domain.",
};
pub(super) const MAKE_ROOM: Rule = Rule {
    name: "adaptive: make room",
    source: "designed here",
    what: "The thread does not wait for memory; its CPU goes to one that does. It is the kernel's again at the \
           next look.",
};
pub(super) const UNDO: Rule = Rule {
    name: "adaptive: undo",
    source: "designed here",
    what: "The threads did not become faster by what was done: the thread goes back where it was.",
};
pub(super) const LET_GO: Rule = Rule {
    name: "adaptive: let go",
    source: "designed here",
    what: "Holding the thread gains nothing: it gets its own affinity back.",
};
pub(super) const FOLLOW: Rule = Rule {
    name: "adaptive: memory follows",
    source: "designed here",
    what: "The process's threads are on one node, and the machine is expected to lose fewer cores with its \
           memory there.",
};

pub(super) const DEAL: Rule = Rule {
    name: "adaptive: memory dealt",
    source: "designed here",
    what: "The process's threads are on several nodes and nearly all of its memory is on one: blocks of it go to their \
           nodes in turn. Samples of accesses show later whose they are.",
};
pub(super) const SPREAD: Rule = Rule {
    name: "adaptive: shared memory spread",
    source: "designed here; shared memory spread: Carrefour (ASPLOS 2013)",
    what: "Processes on several nodes have memory in common, and the machine is expected to lose fewer cores with it \
           spread over these nodes, each as often as threads are there.",
};
