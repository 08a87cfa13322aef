//! Which threads a run herds, according to the command line or the configuration.
//!
//! A user who may not place all users' threads places only his own: a process that he names must be his, and any
//! other selection is limited to his. The same holds under a policy that uses memory for a user who may not access
//! all users' memory.

use std::path::Path;

use anyhow::Result;
use numaherd_host::{Confined, Selection, user_number, user_of};

use super::program::Program;
use crate::config::file::SelectionSettings;
use crate::exit::{coded, ended};

/// The threads of the program that was started, or those that are chosen. `confined` is the only user whose threads
/// may be placed.
///
/// # Errors
/// There is no such user, or a named process belongs to another user.
pub fn selection(
    root: &Path,
    pids: &[u32],
    chosen: &SelectionSettings,
    program: Option<&Program>,
    confined: Option<Confined>,
) -> Result<Selection> {
    if let Some(program) = program {
        return Ok(Selection::Child { pid: program.pid() });
    }
    let is_others = |user: u32| confined.is_some_and(|own| own.user != user);
    let denied = |what: String| {
        let lacks = confined.map_or("", |own| own.lacks);
        denied(&format!("{what} of another user"), lacks)
    };
    if !pids.is_empty() {
        if let Some(pid) = pids
            .iter()
            .find(|&&pid| user_of(root, pid).is_some_and(is_others))
        {
            return Err(denied(format!("process {pid} is")));
        }
        return Ok(Selection::Processes {
            pids: pids.to_vec(),
            descendants: true,
        });
    }
    if let Some(path) = &chosen.cgroup {
        return Ok(Selection::Cgroup { path: path.clone() });
    }
    if let Some(name) = &chosen.name {
        return Ok(Selection::Command { name: name.clone() });
    }
    if let Some(user) = &chosen.user {
        let uid = user_number(root, user).map_err(coded)?;
        if is_others(uid) {
            return Err(denied(format!("the processes of {user} are")));
        }
        return Ok(Selection::User { uid });
    }
    let own = confined.map(|own| Selection::User { uid: own.user });
    Ok(own.unwrap_or(Selection::Machine))
}

/// What to say if no process is selected in the first interval: a name may be misspelt.
pub fn awaited(selection: &Selection) -> Option<String> {
    let nobody = match selection {
        Selection::Machine | Selection::Child { .. } | Selection::Processes { .. } => return None,
        Selection::Cgroup { path } => format!("no process is in the control group {path}"),
        Selection::Command { name } => format!("no process has the name {name}"),
        Selection::User { uid } => format!("no process is of user {uid}"),
    };
    Some(format!("{nobody} so far; those that come later are herded"))
}

/// The error for an action that needs a missing capability.
pub fn denied(what: &str, lacks: &str) -> anyhow::Error {
    let instead = match lacks {
        "CAP_SYS_PTRACE" => {
            ", or choose a policy that neither moves pages nor goes by where they are"
        }
        _ => "",
    };
    ended!(
        Permission,
        "{what}, and without {lacks} this user may steer only his own: run as root, give numaherd \
         {lacks}{instead}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::{self, Exit};

    /// A tree with process 7 of user 1000 and process 8 of user 2000.
    fn tree() -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for (pid, uid) in [(7, 1000), (8, 2000)] {
            let folder = tree.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&folder).unwrap();
            let status = format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n");
            std::fs::write(folder.join("status"), status).unwrap();
        }
        tree
    }

    fn selected(pids: &[u32], user: Option<&str>, confined: Option<u32>) -> Result<Selection> {
        let lacks = "CAP_SYS_PTRACE";
        let confined = confined.map(|user| Confined { user, lacks });
        let chosen = SelectionSettings {
            user: user.map(str::to_owned),
            ..SelectionSettings::default()
        };
        selection(tree().path(), pids, &chosen, None, confined)
    }

    #[test]
    fn who_may_place_everyone_chooses_anyone() {
        assert_eq!(selected(&[], None, None).unwrap(), Selection::Machine);
        assert!(selected(&[7, 8], None, None).is_ok());
        assert!(selected(&[], Some("2000"), None).is_ok());
    }

    #[test]
    fn an_ordinary_user_places_his_own_and_is_told_so_of_others() {
        let own = Selection::User { uid: 1000 };
        assert_eq!(selected(&[], None, Some(1000)).unwrap(), own);
        assert_eq!(selected(&[], Some("1000"), Some(1000)).unwrap(), own);
        assert!(selected(&[7], None, Some(1000)).is_ok());
        for refused in [
            selected(&[7, 8], None, Some(1000)),
            selected(&[], Some("2000"), Some(1000)),
        ] {
            let error = refused.unwrap_err();
            assert_eq!(exit::of(&error), Some(Exit::Permission), "{error}");
            assert!(
                error
                    .to_string()
                    .contains("give numaherd CAP_SYS_PTRACE, or choose"),
                "{error}"
            );
        }
    }
}
