//! Which processes are watched: the selected ones, with their groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use numaherd_topology::NodeSet;
use numaherd_world::ProcessId;

use super::{RESTING, SELDOM, Scanner, Watched};
use crate::files::Root;
use crate::groups::group_of;
use crate::options::Selection;
use crate::proc::{cgroup, stat, status};
use crate::users;

/// The first process starts services and takes orphans in, whose masks must not be confused with masks
/// inherited from it. It is placed only if named.
const FIRST_PROCESS: u32 = 1;

impl Scanner {
    /// Whether it is time to check whether an unwatched process is selected.
    pub(super) fn is_due(&self, pid: u32) -> bool {
        Some(pid) != self.own_pid
            && self
                .passed_over
                .get(&pid)
                .is_none_or(|again| self.scan >= *again)
    }

    /// Adds a process if it is selected.
    pub(super) fn consider(&mut self, pid: u32) {
        let Ok(text) = self.root.read(&format!("proc/{pid}/stat")) else {
            return;
        };
        let Some(stat) = stat::parse(&text) else {
            return;
        };
        let id = ProcessId {
            pid,
            born: stat.born,
        };
        let of_other = |&user: &u32| users::of_process(&self.root, pid) != Some(user);
        if !self.is_selected(id, &stat) || self.only_user.as_ref().is_some_and(of_other) {
            // The kernel's own threads seldom end, so their numbers are seldom reused.
            let rests = if stat.is_kernels() { RESTING } else { SELDOM };
            // Spread the later checks over the scans.
            let again = self.scan + rests - u64::from(pid) % (rests / 2);
            self.passed_over.insert(pid, again);
            return;
        }
        self.passed_over.remove(&pid);
        let mut watched = Watched {
            id,
            name: String::from_utf8_lossy(stat.name).into_owned(),
            parent: stat.parent,
            allowed_nodes: self.allowed_nodes(pid),
            group: None,
            grouped_as: String::new(),
            ran_ns: 0,
            threads: BTreeMap::new(),
            told_ns: None,
            has_slept: false,
            elsewhere_ns: 0,
        };
        self.group(&mut watched);
        if self.is_there(id) {
            self.watched.insert(pid, watched);
        }
    }

    /// Whether the number of a process is still its own.
    pub(super) fn is_there(&self, process: ProcessId) -> bool {
        identity(&self.root, process.pid) == Some(process)
    }

    fn is_selected(&self, process: ProcessId, stat: &stat::Stat<'_>) -> bool {
        let pid = process.pid;
        let parent = || self.watched.get(&stat.parent);
        let is_descendant = || parent().is_some_and(|parent| self.is_there(parent.id));
        match &self.selection {
            Selection::Machine => pid != FIRST_PROCESS,
            Selection::Processes { descendants, .. } => {
                self.named.contains(&process) || (*descendants && is_descendant())
            }
            Selection::Child { .. } => self.named.contains(&process) || is_descendant(),
            Selection::Command { name } => {
                let kept = &name.as_bytes()[..name.len().min(15)];
                stat.name == kept
            }
            Selection::Cgroup { path } => self
                .root
                .read(&format!("proc/{pid}/cgroup"))
                .is_ok_and(|text| cgroup::parse(&text).within(path)),
            Selection::User { uid } => {
                pid != FIRST_PROCESS && users::of_process(&self.root, pid) == Some(*uid)
            }
        }
    }

    pub(super) fn allowed_nodes(&mut self, pid: u32) -> Arc<NodeSet> {
        self.root
            .read_into(&format!("proc/{pid}/status"), &mut self.buffer)
            .ok()
            .and_then(|()| status::parse(&self.buffer).nodes)
            .map(|nodes| nodes.intersection(&self.all_nodes))
            .filter(|nodes| !nodes.is_empty() && *nodes != *self.all_nodes)
            .map_or_else(|| self.all_nodes.clone(), Arc::new)
    }

    /// Finds the group of a process by the present rules.
    pub(super) fn group(&self, process: &mut Watched) {
        process.group = group_of(&self.rules, &self.root, process.id.pid, &process.name);
        process.grouped_as.clone_from(&process.name);
    }
}

/// The process that has this number now.
pub(super) fn identity(root: &Root, pid: u32) -> Option<ProcessId> {
    let text = root.read(&format!("proc/{pid}/stat")).ok()?;
    let born = stat::parse(&text)?.born;
    Some(ProcessId { pid, born })
}
