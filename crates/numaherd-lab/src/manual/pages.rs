//! Files, environment and examples of the laboratory's commands, which their definition cannot hold.

use numaherd::manual::{Entry, Page};

const LAB: Entry = Entry {
    name: ".lab",
    told: "The guest's kernel and modules, prepared by `make setup` in the source tree.",
};
const LAB_DIR: Entry = Entry {
    name: "NUMAHERD_LAB_DIR",
    told: "The folder prepared by `make setup`, if it is not .lab in the source tree.",
};
const LAB_PLUGIN: Entry = Entry {
    name: "NUMAHERD_LAB_PLUGIN",
    told: "The QEMU plugin (libnumaherd_lab_plugin.so), if it is not beside the program.",
};
const CACHE: Entry = Entry {
    name: "XDG_CACHE_HOME",
    told: "Recorded traces are kept in its folder numaherd/traces (default: \
           ~/.cache/numaherd/traces).",
};

const IN_LAB: &[&Entry] = &[&LAB_DIR, &LAB_PLUGIN];

/// The pages of the laboratory's commands.
pub const PAGES: &[Page] = &[
    Page {
        name: "numaherd-profile",
        files: &[&LAB],
        environment: IN_LAB,
        examples: &[
            (
                "Measure a program in the lab:",
                "numaherd profile -o server.toml -- ./server --once",
            ),
            (
                "Measure it on this machine, with its own counters:",
                "numaherd profile --here -o server.toml -- ./server --once",
            ),
        ],
        beside: &["numaherd-simulate"],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-simulate",
        examples: &[
            ("List the scenarios:", "numaherd simulate --list"),
            (
                "One of them under two policies, five times each:",
                "numaherd simulate small --policies linux,dino --repeat 5",
            ),
        ],
        beside: &["numaherd-profile", "numaherd-lab-compare"],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-reproduce",
        files: &[&Entry {
            name: "~/.cache/numaherd/traces",
            told: "Recorded traces, on which IPM's claims are checked.",
        }],
        environment: &[&CACHE, &LAB_DIR, &LAB_PLUGIN],
        examples: &[("Check DINO's claims:", "numaherd reproduce dino")],
        beside: &["numaherd-simulate"],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-trace",
        environment: IN_LAB,
        examples: &[(
            "Record what a program loads and stores:",
            "numaherd trace record -o program.trace -- ./program",
        )],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-trace-record",
        files: &[&LAB],
        environment: IN_LAB,
        examples: &[(
            "A program's accesses, for ten seconds:",
            "numaherd trace record -o program.trace --limit 10s -- ./program",
        )],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-trace-info",
        examples: &[(
            "Threads, pages and accesses of a trace:",
            "numaherd trace info program.trace",
        )],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-trace-import",
        examples: &[(
            "Import a recording of valgrind:",
            "numaherd trace import lackey.txt -o program.trace",
        )],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-trace-sra",
        examples: &[(
            "How many remote accesses a window of pages would save:",
            "numaherd trace sra program.trace --csv sra.csv",
        )],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-trace-simulate",
        examples: &[(
            "Two policies on the same accesses:",
            "numaherd trace simulate program.trace --policies linux,ipm",
        )],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-lab",
        files: &[&LAB],
        environment: IN_LAB,
        examples: &[(
            "A program on a machine with four nodes:",
            "numaherd lab run -- ./program",
        )],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-lab-run",
        files: &[&LAB],
        environment: IN_LAB,
        examples: &[
            (
                "Describe a machine with four nodes:",
                "numaherd lab run -- numactl --hardware",
            ),
            (
                "In the host's time, without modelled hardware:",
                "numaherd lab run --real-time -- ./program",
            ),
        ],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-lab-compare",
        files: &[&LAB],
        environment: IN_LAB,
        examples: &[(
            "Linux, its NUMA balancing and DINO on one scenario:",
            "numaherd lab compare devils-on-one-node --policies linux,linux-balancing,dino",
        )],
        beside: &["numaherd-simulate", "numaherd-report"],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-lab-brm",
        files: &[&LAB],
        environment: IN_LAB,
        examples: &[(
            "An hour or two instead of half a day:",
            "numaherd lab brm --quick",
        )],
        beside: &["numaherd-reproduce"],
        ..Page::EMPTY
    },
];
