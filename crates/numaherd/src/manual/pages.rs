//! What no definition of a command line can say: files, environment and examples of each command.
//!
//! The tests hold that every command that people see has examples here, that the program understands
//! each of them, and that nothing here is of a command that there is not.

/// A file or a variable, and what it is for.
pub struct Entry {
    pub name: &'static str,
    pub told: &'static str,
}

/// What the page of a command says beyond the definition of its command line.
#[derive(Default)]
pub struct Page {
    /// The command, as its page is called: `numaherd-lab-run`.
    pub name: &'static str,
    /// More about it; paragraphs have an empty line between them.
    pub description: &'static str,
    pub files: &'static [&'static Entry],
    pub environment: &'static [&'static Entry],
    /// What for, and the line to type.
    pub examples: &'static [(&'static str, &'static str)],
    /// Pages of other commands that are worth a look, beside those above and below it.
    pub beside: &'static [&'static str],
}

const CONFIGURATION: Entry = Entry {
    name: "/etc/numaherd/numaherd.toml",
    told: "The service's configuration.",
};
const JOURNAL: Entry = Entry {
    name: "/run/numaherd/journal",
    told: "The affinities as they were found, written before the first of them changes. For a user \
           other than root: $XDG_RUNTIME_DIR/numaherd/journal.",
};
const SOCKET: Entry = Entry {
    name: "/run/numaherd/control.sock",
    told: "Where the service is spoken to. For a user other than root: in $XDG_RUNTIME_DIR/numaherd.",
};
const LEDGER: Entry = Entry {
    name: "/var/lib/numaherd/ledger",
    told: "What the service has seen, decided and done; its older half is let go at 1 GiB.",
};
const LAB: Entry = Entry {
    name: ".lab",
    told: "The guest's kernel and its modules, as `make setup` prepares them in the source tree.",
};

const CONFIGURED: Entry = Entry {
    name: "NUMAHERD_CONFIG",
    told: "The configuration file in place of /etc/numaherd/numaherd.toml, or none.",
};
const RUNTIME: Entry = Entry {
    name: "XDG_RUNTIME_DIR",
    told: "Where the journal is kept when the user is not root.",
};
const LAB_DIR: Entry = Entry {
    name: "NUMAHERD_LAB_DIR",
    told: "The folder that `make setup` has prepared, where it is not .lab in the source tree.",
};
const LAB_PLUGIN: Entry = Entry {
    name: "NUMAHERD_LAB_PLUGIN",
    told: "QEMU's plugin (libnumaherd_lab_plugin.so), where it is not beside the program.",
};
const CACHE: Entry = Entry {
    name: "XDG_CACHE_HOME",
    told: "Recorded traces are kept in its folder numaherd/traces (~/.cache/numaherd/traces where it \
           is not set).",
};

const IN_LAB: &[&Entry] = &[&LAB_DIR, &LAB_PLUGIN];

const PAGES: &[Page] = &[
    Page {
        name: "numaherd",
        description: "\
On a machine with several memory nodes, programs lose time to each other: their threads meet at one
cache, their pages at one memory controller. Numaherd watches threads and pages, lets a policy decide
where they are best, keeps to what the user has forbidden, and carries it out by affinities and page
moves on a stock kernel.

It is safe to stop: every affinity is given back as it was found. What it does can be tried without
consequences by `numaherd run --dry-run`.",
        files: &[&CONFIGURATION, &JOURNAL, &SOCKET, &LEDGER],
        environment: &[&CONFIGURED, &RUNTIME, &LAB_DIR, &LAB_PLUGIN],
        examples: &[
            ("What can be done here, and what is missing:", "numaherd doctor"),
            (
                "What it would do, without doing it, for a minute:",
                "numaherd run --dry-run --for 1m --ledger /tmp/run.ledger",
            ),
            ("What was decided, and why:", "numaherd explain /tmp/run.ledger"),
        ],
        beside: &[],
    },
    Page {
        name: "numaherd-run",
        files: &[&CONFIGURATION, &JOURNAL],
        environment: &[&CONFIGURED, &RUNTIME],
        examples: &[
            (
                "Herd one process and its children by DINO's classes:",
                "numaherd run --policy dino --pid 4711",
            ),
            (
                "Start a program, herd it alone, and keep a record:",
                "numaherd run --ledger run.ledger -- ./server --port 80",
            ),
            (
                "Placements of one policy, paging of another, on some of the CPUs:",
                "numaherd run --policy maximum-local+whole-set --cpus 0-15",
            ),
        ],
        beside: &["numaherd-doctor", "numaherd-release", "numaherd-policies"],
        ..NONE
    },
    Page {
        name: "numaherd-doctor",
        environment: &[],
        examples: &[
            ("This machine:", "numaherd doctor"),
            (
                "Another one, of whose /proc and /sys there is a copy:",
                "numaherd doctor --root ./captured",
            ),
        ],
        beside: &["numaherd-topology", "numaherd-policies"],
        ..NONE
    },
    Page {
        name: "numaherd-topology",
        examples: &[
            ("This machine:", "numaherd topology"),
            ("A machine that is not there:", "numaherd topology \"numa:4 core:2 pu:1\""),
        ],
        beside: &["numaherd-doctor"],
        ..NONE
    },
    Page {
        name: "numaherd-policies",
        examples: &[
            ("All of them:", "numaherd policies"),
            ("One, with what it needs and where it is from:", "numaherd policies n-mass"),
        ],
        beside: &["numaherd-run"],
        ..NONE
    },
    Page {
        name: "numaherd-explain",
        examples: &[(
            "Everything that was decided about one process:",
            "numaherd explain run.ledger --pid 4711",
        )],
        beside: &["numaherd-run", "numaherd-report"],
        ..NONE
    },
    Page {
        name: "numaherd-report",
        examples: &[(
            "Two runs side by side, on one page:",
            "numaherd report before.ledger after.ledger -o compared.html",
        )],
        beside: &["numaherd-run", "numaherd-explain"],
        ..NONE
    },
    Page {
        name: "numaherd-top",
        files: &[&SOCKET],
        environment: &[
            &RUNTIME,
            &Entry {
                name: "NO_COLOR",
                told: "Where it is set, everything is told without colours.",
            },
        ],
        examples: &[
            ("The herd that runs here, or else this machine:", "numaherd top"),
            (
                "A run that is over, from its tenth minute on:",
                "numaherd top run.ledger --at 10m",
            ),
            (
                "One frame, for a script:",
                "numaherd top --once --width 100 --height 30",
            ),
        ],
        beside: &["numaherd-explain", "numaherd-report"],
        ..NONE
    },
    Page {
        name: "numaherd-record",
        environment: &[],
        examples: &[(
            "An hour of this machine, nothing touched:",
            "numaherd record -o hour.ledger --for 1h",
        )],
        beside: &["numaherd-replay"],
        ..NONE
    },
    Page {
        name: "numaherd-replay",
        examples: &[(
            "What two policies would have decided:",
            "numaherd replay hour.ledger --policy dino,n-mass",
        )],
        beside: &["numaherd-record", "numaherd-explain"],
        ..NONE
    },
    Page {
        name: "numaherd-config",
        files: &[&CONFIGURATION],
        environment: &[&CONFIGURED],
        examples: &[
            ("Is the file right?", "numaherd config check"),
            ("What holds, and what sets it:", "numaherd config show"),
        ],
        beside: &["numaherd-run", "numaherd-policies"],
        ..NONE
    },
    Page {
        name: "numaherd-config-show",
        files: &[&CONFIGURATION],
        environment: &[&CONFIGURED],
        examples: &[(
            "What is not the default, for a run by another policy:",
            "numaherd config show --changed --policy n-mass",
        )],
        ..NONE
    },
    Page {
        name: "numaherd-config-check",
        files: &[&CONFIGURATION],
        environment: &[&CONFIGURED],
        examples: &[(
            "Before it replaces the one in force:",
            "numaherd config check ./numaherd.toml",
        )],
        ..NONE
    },
    Page {
        name: "numaherd-config-keys",
        examples: &[
            ("All of them:", "numaherd config keys"),
            ("What a key means:", "numaherd config keys herd.limits.stray"),
        ],
        ..NONE
    },
    Page {
        name: "numaherd-config-example",
        examples: &[("A file to begin with:", "numaherd config example")],
        ..NONE
    },
    Page {
        name: "numaherd-serve",
        files: &[&CONFIGURATION, &JOURNAL, &SOCKET, &LEDGER],
        environment: &[&CONFIGURED, &RUNTIME],
        examples: &[
            ("As the service does:", "numaherd serve"),
            (
                "The page and the metrics on a UNIX socket alone:",
                "numaherd serve --listen unix:/run/numaherd/http.sock",
            ),
            (
                "For a Prometheus on another machine:",
                "numaherd serve --listen 192.0.2.7:9741 --allow-remote --token-file /etc/numaherd/token",
            ),
        ],
        beside: &["numaherd-ctl", "numaherd-run", "numaherd-top"],
        ..NONE
    },
    Page {
        name: "numaherd-ctl",
        files: &[&SOCKET],
        environment: &[&RUNTIME],
        examples: &[
            ("What it does:", "numaherd ctl status"),
            (
                "Stop it deciding, and have the machine as it was found:",
                "numaherd ctl pause --give-back",
            ),
        ],
        beside: &["numaherd-serve", "numaherd-top"],
        ..NONE
    },
    Page {
        name: "numaherd-ctl-status",
        files: &[&SOCKET],
        examples: &[("For a script:", "numaherd ctl status --json")],
        ..NONE
    },
    Page {
        name: "numaherd-ctl-pause",
        files: &[&SOCKET],
        examples: &[("Threads stay where they are:", "numaherd ctl pause")],
        ..NONE
    },
    Page {
        name: "numaherd-ctl-resume",
        files: &[&SOCKET],
        examples: &[("After a pause:", "numaherd ctl resume")],
        ..NONE
    },
    Page {
        name: "numaherd-ctl-policy",
        files: &[&SOCKET],
        examples: &[("Until the herd ends:", "numaherd ctl policy n-mass")],
        ..NONE
    },
    Page {
        name: "numaherd-ctl-reload",
        files: &[&SOCKET],
        examples: &[("After the file was changed:", "numaherd ctl reload")],
        ..NONE
    },
    Page {
        name: "numaherd-ctl-watch",
        files: &[&SOCKET],
        examples: &[("The ledger's lines as they come:", "numaherd ctl watch")],
        ..NONE
    },
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
                "Measure it on this machine, by its own counters:",
                "numaherd profile --here -o server.toml -- ./server --once",
            ),
        ],
        beside: &["numaherd-simulate"],
        ..NONE
    },
    Page {
        name: "numaherd-simulate",
        examples: &[
            ("Which scenarios there are:", "numaherd simulate --list"),
            (
                "One of them under two policies, five times each:",
                "numaherd simulate small --policies linux,dino --repeat 5",
            ),
        ],
        beside: &["numaherd-profile", "numaherd-lab-compare"],
        ..NONE
    },
    Page {
        name: "numaherd-reproduce",
        files: &[&Entry {
            name: "~/.cache/numaherd/traces",
            told: "Recorded traces, which IPM's claims are held against.",
        }],
        environment: &[&CACHE, &LAB_DIR, &LAB_PLUGIN],
        examples: &[("DINO's claims, and how they hold:", "numaherd reproduce dino")],
        beside: &["numaherd-simulate"],
        ..NONE
    },
    Page {
        name: "numaherd-release",
        files: &[&JOURNAL],
        environment: &[&RUNTIME],
        examples: &[("After a run was killed:", "numaherd release")],
        beside: &["numaherd-run"],
        ..NONE
    },
    Page {
        name: "numaherd-agent",
        examples: &[
            ("In a virtual machine, as long as it runs:", "numaherd agent"),
            ("Once, to see that the port works:", "numaherd agent --once"),
        ],
        beside: &["numaherd-run"],
        ..NONE
    },
    Page {
        name: "numaherd-advise",
        examples: &[("Where four CPUs and 8 GiB are free:", "numaherd advise -w 4:8192")],
        beside: &["numaherd-topology"],
        ..NONE
    },
    Page {
        name: "numaherd-trace",
        environment: IN_LAB,
        examples: &[(
            "What a program loads and stores, recorded and told:",
            "numaherd trace record -o program.trace -- ./program",
        )],
        ..NONE
    },
    Page {
        name: "numaherd-trace-record",
        files: &[&LAB],
        environment: IN_LAB,
        examples: &[(
            "A program's accesses, for ten seconds:",
            "numaherd trace record -o program.trace --limit 10s -- ./program",
        )],
        ..NONE
    },
    Page {
        name: "numaherd-trace-info",
        examples: &[("Threads, pages and accesses of a trace:", "numaherd trace info program.trace")],
        ..NONE
    },
    Page {
        name: "numaherd-trace-import",
        examples: &[(
            "Take over what valgrind has recorded:",
            "numaherd trace import lackey.txt -o program.trace",
        )],
        ..NONE
    },
    Page {
        name: "numaherd-trace-sra",
        examples: &[(
            "How many remote accesses a window of pages would save:",
            "numaherd trace sra program.trace --csv sra.csv",
        )],
        ..NONE
    },
    Page {
        name: "numaherd-trace-simulate",
        examples: &[(
            "Two policies on the same accesses:",
            "numaherd trace simulate program.trace --policies linux,ipm",
        )],
        ..NONE
    },
    Page {
        name: "numaherd-lab",
        files: &[&LAB],
        environment: IN_LAB,
        examples: &[("A program on a machine with four nodes:", "numaherd lab run -- ./program")],
        ..NONE
    },
    Page {
        name: "numaherd-lab-run",
        files: &[&LAB],
        environment: IN_LAB,
        examples: &[
            ("What a machine of four nodes looks like:", "numaherd lab run -- numactl --hardware"),
            (
                "In the host's time, without modelled hardware:",
                "numaherd lab run --real-time -- ./program",
            ),
        ],
        ..NONE
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
        ..NONE
    },
    Page {
        name: "numaherd-lab-brm",
        files: &[&LAB],
        environment: IN_LAB,
        examples: &[("An hour or two instead of half a day:", "numaherd lab brm --quick")],
        beside: &["numaherd-reproduce"],
        ..NONE
    },
];

const NONE: Page = Page {
    name: "",
    description: "",
    files: &[],
    environment: &[],
    examples: &[],
    beside: &[],
};

/// What there is to say of a command; nothing where it is not known.
pub fn of(name: &str) -> &'static Page {
    PAGES.iter().find(|page| page.name == name).unwrap_or(&NONE)
}

/// Whether there is a page of this name.
pub fn is_command(name: &str) -> bool {
    PAGES.iter().any(|page| page.name == name)
}

/// All of them.
#[cfg(test)]
pub fn all() -> &'static [Page] {
    PAGES
}
