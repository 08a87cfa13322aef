//! Keys of the program itself: what runs, for whom, and where things are kept.

use super::{Key, Table, key};

pub const TABLES: &[Table] = &[
    Table {
        name: "",
        what: "What runs, and where things are kept. These stand before any heading.",
    },
    Table {
        name: "selection",
        what: "Whose threads are looked after: at most one of these. When none is given, all that \
               may be steered: every process that is not the kernel's and whose user has not bound \
               it.",
    },
];

pub const KEYS: &[Key] = &[
    key(
        "policy",
        "",
        "The policy: a name from `numaherd policies`, or a placement and a paging joined by a plus, \
         such as \"dino+whole-set\".",
    )
    .or("\"dino\"", "\"dino\""),
    key(
        "events",
        "",
        "A file of events to count with on this processor, tried before the built-in ones: see \
         docs/events.md. A relative path is beside the configuration file.",
    )
    .or("the built-in events alone", "\"events.toml\"")
    .restart(),
    key(
        "ledger",
        "",
        "Record everything seen, decided and done in this file, up to 1 GiB, of which the older half \
         is then let go: what `numaherd explain`, `report`, `top` and `replay` read.",
    )
    .or("nothing is recorded", "\"/var/lib/numaherd/ledger\"")
    .restart(),
    key(
        "journal",
        "",
        "Where affinities are written down as they were found, before the first change: what \
         `numaherd release` gives back after a crash. Keep it on a file system that a crash of the \
         program survives and a reboot need not.",
    )
    .or(
        "/run/numaherd/journal, or $XDG_RUNTIME_DIR/numaherd/journal for other users than root",
        "\"/run/numaherd/journal\"",
    )
    .restart(),
    key(
        "selection.cgroup",
        "",
        "The processes of this control group and those below it, by its path from the root of the \
         hierarchy, as /proc/PID/cgroup shows it.",
    )
    .or("processes of any control group", "\"/machine.slice\"")
    .restart(),
    key(
        "selection.name",
        "",
        "Processes of this command name, as /proc/PID/comm has it (the kernel keeps 15 bytes).",
    )
    .or("processes of any name", "\"postgres\"")
    .restart(),
    key(
        "selection.user",
        "",
        "Processes of this user, by name or number.",
    )
    .or("processes of any user", "\"postgres\"")
    .restart(),
];

pub const GROUP_TABLES: &[Table] = &[Table {
    name: "group",
    what: "Groups of processes with a policy of their own, or with none; as many as you like, each under a \
           heading [[group]]. A process belongs to the first group, in the order of the file, that it \
           fits: of `names`, `users`, `cgroups` and `pids` every one that is given must name it. \
           Processes in no group go by the policy at the top of the file.",
}];

pub const GROUP_KEYS: &[Key] = &[
    key(
        "group.name",
        "",
        "What the group is called in everything that people see. Each name once.",
    ),
    key(
        "group.names",
        "",
        "Processes of these command names, as /proc/PID/comm has them (the kernel keeps 15 bytes); * stands \
         for any letters, ? for one.",
    ),
    key(
        "group.users",
        "",
        "Processes of these users, by name or number.",
    ),
    key(
        "group.cgroups",
        "",
        "Processes in these control groups or below them, by their paths from the root of the \
         hierarchy, as /proc/PID/cgroup shows them.",
    ),
    key(
        "group.pids",
        "process numbers",
        "These processes.",
    ),
    key(
        "group.policy",
        "",
        "The group's policy, as `policy` above; \"none\" leaves its processes alone: they are seen, \
         and nothing of theirs is moved.",
    )
    .or("the policy at the top of the file", "\"none\""),
    key(
        "group.placement_interval_ms",
        "ms",
        "How often the group's threads are placed.",
    )
    .or(
        "as often as its policy's source has it, or else 1000",
        "1000",
    ),
    key(
        "group.stray",
        "",
        "How far the group's threads may stray, as `herd.limits.stray`.",
    )
    .or(
        "`herd.limits.stray`, or else as far as its policy's source has it, or else \"domain\"",
        "\"node\"",
    ),
    key(
        "group.thread_bounce_limit",
        "moves",
        "The bounce limit for the group's threads, as `herd.limits.thread_bounce_limit`.",
    )
    .or(
        "`herd.limits.thread_bounce_limit`, or else by how often its policy decides",
        "5",
    ),
];
