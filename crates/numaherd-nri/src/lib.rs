//! numaherd-nri: turns each pod of a Kubernetes node into a group of the herd.
//!
//! A container runtime tells the program about every pod and container over NRI ([`nri`]). The program answers at once,
//! and never adjusts or refuses anything. Behind that, one thread keeps the picture of all pods, writes their groups to
//! a file in the directory that the herd's configuration names (`groups_from`), and asks the herd to read it.
//!
//! ```text
//!   runtime ──NRI──▶ Watcher ──Change──▶ Keeper ──file──▶ herd
//!                   (answers)            Pods              ▲
//!                                          └────reload─────┘
//! ```
//!
//! | | |
//! |---|---|
//! | `watcher` | the plugin: an answer and a change for each request |
//! | `pods` | the picture of all pods; pure |
//! | `cgroups` | where a pod's and a container's control group is; pure |
//! | `rules` | which policy a pod gets; pure |
//! | `groups` | the groups of a picture, and the file; pure |
//! | `keeper` | the thread that writes the file and asks the herd |
//! | `herd` | the herd's control socket |
//! | `runtime` | connects again and again |
//! | `host_cgroups` | starts a program in the host's cgroup namespace |

pub mod cgroups;
pub mod groups;
pub mod herd;
pub mod host_cgroups;
pub mod keeper;
pub mod pods;
pub mod rules;
pub mod runtime;
pub mod watcher;

use std::fmt;
use std::io::Write as _;

/// Writes a message to standard error; a failure to write is ignored.
pub fn say(message: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "numaherd-nri: {message}");
}

/// A text from outside, as one line of bounded length without control characters.
pub fn shown(text: &str) -> String {
    const MOST: usize = 200;
    let harmless = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut shown: String = text.chars().take(MOST).map(harmless).collect();
    if text.chars().nth(MOST).is_some() {
        shown.push('…');
    }
    shown
}
