//! Keys of the loop and of what stands between a policy and the machine.

use super::{Key, Table, key};

pub const TABLES: &[Table] = &[
    Table {
        name: "herd",
        what: "How often the machine is looked at, and how long.",
    },
    Table {
        name: "herd.limits",
        what: "What any policy may do to the machine, however much it asks for. What a limit refuses is in \
               the ledger, with the limit's name.",
    },
    Table {
        name: "herd.limits.worse",
        what: "When a move counts as having made a thread slower; such a move is undone.",
    },
    Table {
        name: "herd.limits.steal",
        what: "When a thread that is held to a busy node, and waits, is given to an idle one.",
    },
];

pub const KEYS: &[Key] = &[
    key(
        "herd.placement_interval_ms",
        "ms",
        "How often threads are placed. DINO's authors found no gain in more often than once a second \
         (DINO 3.3.3).",
    )
    .or(
        "as often as the policy's source has it (brm: 10), or else 1000",
        "1000",
    ),
    key(
        "herd.first_interval_ms",
        "ms",
        "Length of the first interval, where it is shorter than the others: threads that suffer \
         need not wait a whole one for the first decision.",
    )
    .restart(),
    key(
        "herd.paging_interval_ms",
        "ms",
        "How often pages are looked after (DINO 4.2).",
    ),
    key(
        "herd.record_interval_ms",
        "ms",
        "How often what was seen is recorded while nothing is decided; 0 records every interval. It \
         counts where threads are placed more often than this: an hour of 10 ms intervals, each recorded, \
         is some gigabytes.",
    ),
    key(
        "herd.intervals",
        "intervals",
        "Stop after so many placement intervals.",
    )
    .or("run until told to stop", "3600"),
    key(
        "herd.length_ms",
        "ms",
        "Stop after this time.",
    )
    .or("run until told to stop", "3600000"),
    key(
        "herd.dry_run",
        "",
        "Plan, govern and record, but carry nothing out: the way to see what a policy would do to a \
         machine before it may. A reload can turn it on at any time, and off again unless the run began \
         with it.",
    ),
    key(
        "herd.seed",
        "seed",
        "Where the policy's random numbers start. The same seed on the same observations decides the \
         same.",
    ),
    key(
        "herd.limits.cpus",
        "",
        "The CPUs that threads may be given, as a list such as \"0-7,16-23\". Threads found elsewhere \
         are not driven away until their policy moves them.",
    )
    .or("all CPUs", "\"0-7,16-23\""),
    key(
        "herd.limits.nodes",
        "",
        "The nodes that pages may be moved to, as a list such as \"0-1\".",
    )
    .or("all nodes", "\"0-1\""),
    key(
        "herd.limits.stray",
        "",
        "How far a thread may stray from the core that it is given: \"core\", to its SMT siblings \
         only; \"domain\", among the cores that share a last-level cache; \"node\", within the memory \
         node. Within that the kernel goes on balancing.",
    )
    .or(
        "as far as the policy's source has it (brm: \"node\"), or else \"domain\"",
        "\"domain\"",
    ),
    key(
        "herd.limits.take_over",
        "",
        "Steer threads, too, whose affinity their users have set. Otherwise they are seen and left \
         alone.",
    )
    .restart(),
    key(
        "herd.limits.moves_per_interval",
        "moves",
        "Most thread moves in one interval: what may happen at one moment.",
    ),
    key(
        "herd.limits.moves_per_second",
        "moves per second",
        "Most thread moves per second, on average; up to one second's worth may come at once.",
    ),
    key(
        "herd.limits.machine_moves_per_second",
        "moves per second",
        "Most moves per second of the threads of one virtual machine, on average; up to one second's \
         worth may come at once. A guest does not see that its CPU has gone, and one whose CPU holds \
         a lock has the others wait.",
    ),
    key(
        "herd.limits.bounce_limit",
        "moves",
        "A thing that was moved this often between the same two places within `bounce_window_s` stays \
         where it is for `freeze_s`: pages between two nodes, threads between two memory domains \
         (unless `thread_bounce_limit` says otherwise). The figure is that of DINO's authors (Clavis).",
    ),
    key(
        "herd.limits.thread_bounce_limit",
        "moves",
        "The bounce limit for threads, where it is not `bounce_limit`.",
    )
    .or(
        "`bounce_limit` times how often in a second the policy's source decides (brm: 500)",
        "5",
    ),
    key(
        "herd.limits.bounce_window_s",
        "s",
        "The time within which bounces are counted: see `bounce_limit`.",
    ),
    key(
        "herd.limits.freeze_s",
        "s",
        "How long what bounced stays where it is; also how long a thread stays after a move of it \
         was undone.",
    ),
    key(
        "herd.limits.pages_mib_per_s",
        "MiB/s",
        "Most page traffic for all processes together.",
    ),
    key(
        "herd.limits.process_pages_mib_per_s",
        "MiB/s",
        "Most page traffic for one process.",
    ),
    key(
        "herd.limits.machine_pages_mib_per_s",
        "MiB/s",
        "Most page traffic for one process that runs a virtual machine, in place of \
         `process_pages_mib_per_s`. A page of a guest is taken out of two page tables, and the guest's \
         next access to it leaves the guest and comes back.",
    ),
    key(
        "herd.limits.pages_burst_ms",
        "ms",
        "How much page traffic may come at once after a pause, as a time at the full rate.",
    ),
    key(
        "herd.limits.node_reserve",
        "share, 0 to 1",
        "Share of a node's memory that page moves leave free.",
    ),
    key(
        "herd.limits.worse.undo",
        "",
        "Whether a move that made its thread slower is undone. Set it to false to measure a policy as \
         it was published; then nobody looks for such moves either.",
    ),
    key(
        "herd.limits.worse.share",
        "share, 0 to 1",
        "Share of its speed that a thread must have lost.",
    ),
    key(
        "herd.limits.worse.span_ms",
        "ms",
        "How long a span is over which a speed is measured: as many intervals as make it up, or one \
         that is longer.",
    ),
    key(
        "herd.limits.worse.intervals",
        "spans",
        "How many spans are compared on either side of the move.",
    ),
    key(
        "herd.limits.worse.settle",
        "spans",
        "How many spans after the move are passed over: caches fill and pages follow.",
    ),
    key(
        "herd.limits.steal.when",
        "",
        "Whose threads are given to idle nodes: \"node\", those that may stray within a whole node, \
         whose policy leaves the load to the kernel; \"always\", all that are held; \"never\", nobody's.",
    ),
    key(
        "herd.limits.steal.least_wait",
        "CPUs",
        "How much must wait for CPUs of a node, on average.",
    ),
    key(
        "herd.limits.steal.over_ms",
        "ms",
        "Over which time threads must wait, and the other node be idle.",
    ),
];
