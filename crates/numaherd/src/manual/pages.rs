//! Files, environment and examples of each command, which its definition cannot hold.
//!
//! Tests of the laboratory, which knows both programs, check that every visible command has examples, that
//! the programs understand them, and that every page belongs to a command.

use super::{Entry, Page};

const CONFIGURATION: Entry = Entry {
    name: "/etc/numaherd/numaherd.toml",
    told: "The service's configuration.",
};
const JOURNAL: Entry = Entry {
    name: "/run/numaherd/journal",
    told: "The original affinities, saved before the first change. For users other than root: \
           $XDG_RUNTIME_DIR/numaherd/journal.",
};
const SOCKET: Entry = Entry {
    name: "/run/numaherd/control.sock",
    told: "The control socket of the service. For users other than root: in $XDG_RUNTIME_DIR/numaherd.",
};
const LEDGER: Entry = Entry {
    name: "/var/lib/numaherd/ledger",
    told: "The observations, decisions and outcomes of the service; at 1 GiB, the older half is discarded.",
};

const CONFIGURED: Entry = Entry {
    name: "NUMAHERD_CONFIG",
    told: "The configuration file to use instead of /etc/numaherd/numaherd.toml, or none.",
};
const RUNTIME: Entry = Entry {
    name: "XDG_RUNTIME_DIR",
    told: "The directory of the journal for users other than root.",
};

/// The pages of `numaherd`'s own commands.
pub const PAGES: &[Page] = &[
    Page {
        name: "numaherd",
        description: "\
On a machine with several memory nodes, programs slow each other down: their threads compete for a
cache, their pages for a memory controller. Numaherd observes threads and pages, lets a policy decide
where they should be, respects the limits that users have set, and applies the decision with
affinities and page moves on a stock kernel.

It is always safe to stop: Numaherd restores every affinity that it has changed. To try it without
changing anything, use `numaherd run --dry-run`.",
        files: &[&CONFIGURATION, &JOURNAL, &SOCKET, &LEDGER],
        environment: &[&CONFIGURED, &RUNTIME],
        examples: &[
            ("What this machine supports, and what is missing:", "numaherd doctor"),
            (
                "What it would do, without changing anything, for a minute:",
                "numaherd run --dry-run --for 1m --ledger /tmp/run.ledger",
            ),
            ("What it decided, and why:", "numaherd explain /tmp/run.ledger"),
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
                "Start a program, herd only that, and keep a record:",
                "numaherd run --ledger run.ledger -- ./server --port 80",
            ),
            (
                "The placement of one policy and the paging of another, on some of the CPUs:",
                "numaherd run --policy maximum-local+whole-set --cpus 0-15",
            ),
        ],
        beside: &["numaherd-doctor", "numaherd-release", "numaherd-policies"],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-doctor",
        environment: &[],
        examples: &[
            ("This machine:", "numaherd doctor"),
            (
                "Another machine, from a copy of its /proc and /sys:",
                "numaherd doctor --root ./captured",
            ),
        ],
        beside: &["numaherd-topology", "numaherd-policies"],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-topology",
        examples: &[
            ("This machine:", "numaherd topology"),
            ("A synthetic machine:", "numaherd topology \"numa:4 core:2 pu:1\""),
        ],
        beside: &["numaherd-doctor"],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-policies",
        examples: &[
            ("All of them:", "numaherd policies"),
            ("One, with its needs and its source:", "numaherd policies n-mass"),
        ],
        beside: &["numaherd-run"],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-explain",
        examples: &[(
            "Everything that was decided about one process:",
            "numaherd explain run.ledger --pid 4711",
        )],
        beside: &["numaherd-run", "numaherd-report"],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-report",
        examples: &[(
            "Two runs side by side, on one page:",
            "numaherd report before.ledger after.ledger -o compared.html",
        )],
        beside: &["numaherd-run", "numaherd-explain"],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-top",
        files: &[&SOCKET],
        environment: &[
            &RUNTIME,
            &Entry {
                name: "NO_COLOR",
                told: "If set, colours are not used.",
            },
        ],
        examples: &[
            ("The running herd, or else this machine:", "numaherd top"),
            (
                "A finished run, from its tenth minute on:",
                "numaherd top run.ledger --at 10m",
            ),
            (
                "One frame, for a script:",
                "numaherd top --once --width 100 --height 30",
            ),
        ],
        beside: &["numaherd-explain", "numaherd-report"],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-record",
        environment: &[],
        examples: &[(
            "An hour of this machine, without changing anything:",
            "numaherd record -o hour.ledger --for 1h",
        )],
        beside: &["numaherd-replay"],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-replay",
        examples: &[(
            "What two policies would have decided:",
            "numaherd replay hour.ledger --policy dino,n-mass",
        )],
        beside: &["numaherd-record", "numaherd-explain"],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-config",
        files: &[&CONFIGURATION],
        environment: &[&CONFIGURED],
        examples: &[
            ("Check the file:", "numaherd config check"),
            ("The settings in effect, and their sources:", "numaherd config show"),
        ],
        beside: &["numaherd-run", "numaherd-policies"],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-config-show",
        files: &[&CONFIGURATION],
        environment: &[&CONFIGURED],
        examples: &[(
            "Settings that differ from the default, for a run with another policy:",
            "numaherd config show --changed --policy n-mass",
        )],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-config-check",
        files: &[&CONFIGURATION],
        environment: &[&CONFIGURED],
        examples: &[(
            "Before it replaces the current one:",
            "numaherd config check ./numaherd.toml",
        )],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-config-keys",
        examples: &[
            ("All of them:", "numaherd config keys"),
            ("What a key means:", "numaherd config keys herd.limits.stray"),
        ],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-config-example",
        examples: &[("A file to start from:", "numaherd config example")],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-serve",
        files: &[&CONFIGURATION, &JOURNAL, &SOCKET, &LEDGER],
        environment: &[&CONFIGURED, &RUNTIME],
        examples: &[
            ("Like the service:", "numaherd serve"),
            (
                "The web page and the metrics on a UNIX socket only:",
                "numaherd serve --listen unix:/run/numaherd/http.sock",
            ),
            (
                "For a Prometheus on another machine:",
                "numaherd serve --listen 192.0.2.7:9741 --allow-remote --token-file /etc/numaherd/token",
            ),
        ],
        beside: &["numaherd-ctl", "numaherd-run", "numaherd-top"],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-ctl",
        files: &[&SOCKET],
        environment: &[&RUNTIME],
        examples: &[
            ("What it does:", "numaherd ctl status"),
            (
                "Stop all decisions, and restore the original affinities:",
                "numaherd ctl pause --give-back",
            ),
        ],
        beside: &["numaherd-serve", "numaherd-top"],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-ctl-status",
        files: &[&SOCKET],
        examples: &[("For a script:", "numaherd ctl status --json")],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-ctl-pause",
        files: &[&SOCKET],
        examples: &[("Threads stay where they are:", "numaherd ctl pause")],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-ctl-resume",
        files: &[&SOCKET],
        examples: &[("After a pause:", "numaherd ctl resume")],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-ctl-policy",
        files: &[&SOCKET],
        examples: &[("Until the herd ends:", "numaherd ctl policy n-mass")],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-ctl-reload",
        files: &[&SOCKET],
        examples: &[("After a change to the file:", "numaherd ctl reload")],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-ctl-watch",
        files: &[&SOCKET],
        examples: &[("The ledger's lines as they are recorded:", "numaherd ctl watch")],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-release",
        files: &[&JOURNAL],
        environment: &[&RUNTIME],
        examples: &[("After a run was killed:", "numaherd release")],
        beside: &["numaherd-run"],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-agent",
        examples: &[
            ("In a virtual machine, as long as it runs:", "numaherd agent"),
            ("Once, to test the port:", "numaherd agent --once"),
        ],
        beside: &["numaherd-run"],
        ..Page::EMPTY
    },
    Page {
        name: "numaherd-advise",
        examples: &[("Nodes with four idle CPUs and 8 GiB of free memory:", "numaherd advise -w 4:8192")],
        beside: &["numaherd-topology"],
        ..Page::EMPTY
    },
];
