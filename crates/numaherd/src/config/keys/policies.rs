//! Keys of the policies: what their sources leave open, and the figures that they print.

use super::{Key, Table, key};

pub const TABLES: &[Table] = &[
    Table {
        name: "policies",
        what: "What the policies can be told. Every figure is its source's by default, so that a policy \
               does what its paper says; docs/policies.md has the rules.",
    },
    Table {
        name: "policies.classes",
        what: "How threads are classed by their miss rate: turtles, devils, super-devils (DINO 3.3.2). \
               `dino` goes by it. What is left out is the preset's.",
    },
    Table {
        name: "policies.placement",
        what: "Which threads are placed at all.",
    },
    Table {
        name: "policies.paging",
        what: "Which pages are moved, by the policies whose memory follows (`dino`, `di-migrate`).",
    },
    Table {
        name: "policies.n_mass",
        what: "When threads leave their home (`n-mass`, and of it `changed_by` in `maximum-local`).",
    },
    Table {
        name: "policies.ipm",
        what: "What `ipm` and `tlb-miss-history` go by, and how they map threads.",
    },
    Table {
        name: "policies.kmaf",
        what: "Which pages `kmaf` moves.",
    },
    Table {
        name: "policies.brm",
        what: "Whom `brm` moves, and how it looks for better nodes.",
    },
    Table {
        name: "policies.oracle",
        what: "How long `oracle` looks for the best layout; it runs in modelled worlds only.",
    },
    Table {
        name: "policies.penalty",
        what: "How much slower programs run when their memory is on another node: the NUMA penalty that \
               `n-mass` and `maximum-local` go by (N-MASS 3.2).",
    },
];

pub const KEYS: &[Key] = &[
    key(
        "policies.classes.preset",
        "",
        "Which set of values the rule starts from: \"paper\" is DINO's, \"clavis\" that of its authors' own \
         scheduler.",
    ),
    key(
        "policies.classes.devil_from",
        "lines per 1000 instructions",
        "Lowest miss rate of a devil (DINO 3.3.2).",
    )
    .or("2, or 1.5 with the preset \"clavis\"", "2.0"),
    key(
        "policies.classes.super_devil_above",
        "lines per 1000 instructions",
        "Miss rate above which a thread is a super-devil (DINO 3.3.2).",
    )
    .or("100, or 50 with the preset \"clavis\"", "100.0"),
    key(
        "policies.classes.votes",
        "intervals",
        "How many intervals must speak for another class before a thread gets it (DINO 3.3.3).",
    )
    .or("7, or 5 with the preset \"clavis\"", "7"),
    key(
        "policies.classes.of_last",
        "intervals",
        "Of how many last intervals (DINO 3.3.3).",
    )
    .or("10", "10"),
    key(
        "policies.placement.least_cpu_share",
        "share of a CPU, 0 to 1",
        "Threads that use less of a CPU than this are left to the kernel (Clavis). Where more threads \
         run than there are CPUs, less is asked of each.",
    ),
    key(
        "policies.paging.window_pages",
        "base pages",
        "How many pages one sampled access moves, half of them before it (DINO 4.1, Clavis).",
    ),
    key(
        "policies.paging.bounce_limit",
        "orders back",
        "How often a chunk of pages may be ordered back to another node before it is frozen (Clavis).",
    ),
    key(
        "policies.paging.thaw_after_s",
        "s",
        "After which time a frozen chunk gets another chance. No source: DINO only says that migration is \
         discontinued.",
    ),
    key(
        "policies.n_mass.threshold",
        "lines per 1000 instructions",
        "Pressure that a processor must stay below when a thread is moved there that is not at home \
         there (N-MASS 3.4: where the link between the paper's processors saturates).",
    ),
    key(
        "policies.n_mass.changed_by",
        "share of a miss rate",
        "Threads are placed anew when a miss rate changed by more than this (N-MASS 3.4).",
    ),
    key(
        "policies.n_mass.most_moved",
        "",
        "How much a thread that leaves its home may take with it, two readings of N-MASS 3.1: \"half\", less than \
         half the difference of the pressures; \"difference\", as long as both pressures end \
         between where they began.",
    ),
    key(
        "policies.n_mass.exchange",
        "",
        "Whether threads may change places where there is no free core. Not in the algorithm as \
         printed.",
    ),
    key(
        "policies.ipm.age",
        "share, 0 to 1",
        "What is left after an interval of what was known to be shared (IPM 4.4.4).",
    ),
    key(
        "policies.ipm.changed_by",
        "share, 0 to 1",
        "Threads are mapped anew when more than this share of all sharing is between other pairs. No source: \
         IPM 4.4.4 says \"significantly\".",
    ),
    key(
        "policies.ipm.mapper",
        "",
        "What maps threads to CPUs by what they share: \"eager\" is EagerMap (IPM 4.4.4); \"refined\" is never \
         worse than that; \"exact\" is the best there is for a dozen threads, and refined beyond.",
    ),
    key(
        "policies.ipm.evidence",
        "",
        "What pages and threads are judged by: \"residency\", how long translations stay in TLBs, as a \
         unit at them tells (IPM 3.2); \"samples\", memory samples, for machines without such a unit, \
         weaker by as much as samples are fewer than accesses.",
    ),
    key(
        "policies.ipm.cr_aging",
        "credits, 1 to 15",
        "CR_aging of events that are credited in place of residency (IPM 6.4).",
    ),
    key(
        "policies.ipm.cr_mig",
        "credits, below cr_aging",
        "CR_mig of the same (IPM 6.4).",
    ),
    key(
        "policies.kmaf.exclusivity",
        "share, 0 to 1",
        "The share of a page's faults that a node must have to get it. No source known to us.",
    ),
    key(
        "policies.brm.candidates",
        "",
        "Who says which threads are moved at all: \"auto\", tags in processes of which anybody tells, \
         in others what is seen; \"tagged\", tags of users or of agents in virtual machines alone (BRM 4.3); \
         \"inferred\", what is seen alone (BRM 8); \"all\", every thread.",
    ),
    key(
        "policies.brm.requests_per_s",
        "requests to the uncore per second",
        "What makes a thread a candidate where nobody tells. No source.",
    ),
    key(
        "policies.brm.least_change",
        "share of its uncore penalty",
        "A thread that was on another node, and whose own penalty changed by less, is no candidate any \
         more (BRM 8; the figure has no source).",
    ),
    key(
        "policies.brm.forget_after_least_ms",
        "ms",
        "What a thread knows of nodes is forgotten after a random time, at least this for each node that \
         it then has to explore. No source: BRM 4.4 says \"random\".",
    ),
    key(
        "policies.brm.forget_after_most_ms",
        "ms",
        "At most this, likewise. No source.",
    ),
    key(
        "policies.brm.least_gain",
        "share of the system-wide penalty",
        "A node counts as better where the penalty was less by more than this. BRM prints 0; the figure \
         has no source.",
    ),
    key(
        "policies.brm.average",
        "",
        "What becomes of average penalties when a thread comes to another node, which BRM 5 does not \
         say: \"anew\", all begin again; \"through\", they go on.",
    ),
    key(
        "policies.brm.steps",
        "",
        "How the probability to move changes on more than two nodes: \"text\", one step a tick \
         (BRM 4.4); \"printed\", a step for every other node (Algorithm 1).",
    ),
    key(
        "policies.brm.system_penalty",
        "",
        "How the system-wide penalty is kept: \"plain\", one total (BRM 4.2); \"sharded\", a part for each node \
         that sees the others as of the last tick (BRM 8).",
    ),
    key(
        "policies.oracle.layouts",
        "layouts",
        "How many layouts are tried at most; where there are no more than that, all are. No source.",
    ),
    key(
        "policies.oracle.changed_by",
        "share of a miss rate",
        "Threads are placed anew when a miss rate changed by more than this; as for N-MASS.",
    ),
    key(
        "policies.penalty.estimate",
        "",
        "Where a penalty comes from: \"profile\", what was measured of the program, else the regression; \
         \"regression\", the regression for all (N-MASS 4.5).",
    ),
    key(
        "policies.penalty.intercept",
        "NUMA penalty",
        "The regression's penalty of a program that never goes to memory (N-MASS 4.5).",
    ),
    key(
        "policies.penalty.slope",
        "NUMA penalty per line per 1000 instructions",
        "What a line per 1000 instructions adds to it (N-MASS 4.5).",
    ),
    key(
        "policies.penalty.programs",
        "NUMA penalty, 1 or more",
        "Measured penalties by process name: `numaherd profile` measures them.",
    )
    .example("{ mcf = 1.21 }"),
    key(
        "policies.penalty.miss_rates",
        "lines per 1000 instructions",
        "Miss rates recorded of programs alone, by process name: N-MASS takes them in place of those \
         measured now, as its prototype did (N-MASS 3.4).",
    )
    .example("{ mcf = 38.3 }"),
];
