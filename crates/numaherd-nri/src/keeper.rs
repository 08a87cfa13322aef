//! The thread that writes the file of groups and asks the herd to read it.
//!
//! The keeper gathers changes that come close together into one file: it waits until none has come for [`QUIET`], but
//! at most [`LONGEST`]. It replaces the file as a whole, and only if the content differs. While no herd answers, the
//! file stays; the keeper says so once, and asks again after each [`AGAIN`]. If the herd refuses the file because
//! policies that pods ask for conflict, the keeper writes one without these policies.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::groups::Groups;
use crate::herd::Asked;
use crate::pods::{Change, Pods};
use crate::rules::Rules;
use crate::shown;

/// The file is written once no change has come for this time.
const QUIET: Duration = Duration::from_millis(250);

/// The file is written this long after the first change at the latest.
const LONGEST: Duration = Duration::from_secs(2);

/// After how long a herd that did not answer is asked again.
const AGAIN: Duration = Duration::from_secs(10);

/// The most messages that are remembered in order to say each once.
const MOST_SAID: usize = 1000;

/// Keeps a file of groups.
pub struct Keeper<'a> {
    /// Which policies pods get.
    pub rules: &'a Rules,
    /// The file.
    pub file: PathBuf,
    /// Asks the herd to read it.
    pub reload: &'a mut dyn FnMut() -> Asked,
    /// Says something to people.
    pub say: &'a mut dyn FnMut(&str),
}

#[derive(Default)]
struct Memory {
    pods: Pods,
    /// The messages that were said, so that each is said once.
    said: BTreeSet<String>,
    /// Whether the herd has yet to read the file.
    owed: bool,
}

impl Keeper<'_> {
    /// Keeps the file up to date until the channel of changes closes.
    pub fn keep(mut self, changes: &Receiver<Change>) {
        let mut memory = Memory::default();
        loop {
            let first = match memory.owed {
                true => changes.recv_timeout(AGAIN),
                false => changes.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match first {
                Ok(change) => {
                    memory.pods.take(change);
                    let more = gather(changes, &mut memory.pods);
                    self.write(&mut memory);
                    if !more {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.ask(&mut memory, None),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn write(&mut self, memory: &mut Memory) {
        let groups = Groups::of(&memory.pods, self.rules);
        for note in &groups.notes {
            self.once(memory, note);
        }
        match self.replace(&groups, memory) {
            true => self.ask(memory, Some(&groups)),
            false if memory.owed => self.ask(memory, Some(&groups)),
            false => {}
        }
    }

    /// Writes the file if its content differs; returns whether it did.
    fn replace(&mut self, groups: &Groups, memory: &mut Memory) -> bool {
        let text = groups.file();
        if fs::read_to_string(&self.file).is_ok_and(|now| now == text) {
            return false;
        }
        let written = replace(&self.file, &text);
        if let Err(error) = &written {
            let file = self.file.display();
            let told = format!(
                "cannot write the groups to {file}: {error}; the herd keeps those that it has"
            );
            self.once(memory, &told);
        }
        written.is_ok()
    }

    fn ask(&mut self, memory: &mut Memory, groups: Option<&Groups>) {
        memory.owed = false;
        match (self.reload)() {
            Asked::Done => {
                memory.said.retain(|said| !said.starts_with(NOBODY));
            }
            Asked::Nobody(why) => {
                memory.owed = true;
                let told = format!(
                    "{NOBODY} ({why}); the groups are in {}, and a herd that starts reads them",
                    self.file.display()
                );
                self.once(memory, &told);
            }
            Asked::Refused(why) => {
                let told = format!("the herd refuses the groups: {}", shown(&why));
                self.once(memory, &told);
                let Some(plain) = groups.map(Groups::without_policies) else {
                    return;
                };
                if Some(&plain) != groups && self.replace(&plain, memory) {
                    self.once(memory, "the pods run on without the policies that they ask for, but for those that are left alone");
                    self.ask(memory, None);
                }
            }
        }
    }

    fn once(&mut self, memory: &mut Memory, told: &str) {
        if memory.said.len() >= MOST_SAID {
            memory.said.clear();
        }
        if memory.said.insert(told.to_owned()) {
            (self.say)(told);
        }
    }
}

/// The beginning of the message that no herd answers.
const NOBODY: &str = "no herd answers";

/// Gathers further changes; returns false once the channel has closed.
fn gather(changes: &Receiver<Change>, pods: &mut Pods) -> bool {
    let until = Instant::now() + LONGEST;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match changes.recv_timeout(QUIET.min(left)) {
            Ok(change) => pods.take(change),
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

/// Replaces a file as a whole; its directory is made if it is not there.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    // The herd does not read files with this extension.
    let new = path.with_extension("new");
    let mut file = fs::File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::pods::{Pod, Qos};

    fn pod(name: &str, asks_for: Option<&str>) -> Change {
        let pod = Pod {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            qos: Qos::Burstable,
            labels: Default::default(),
            asks_for: asks_for.map(str::to_owned),
            cgroup: Some(format!("/kubepods/{name}")),
        };
        Change::Pod(name.to_owned(), pod)
    }

    /// Keeps a file through these changes, each of which is written before the next comes. Returns what was said, how
    /// often the herd was asked, and the file.
    fn kept(changes: Vec<Change>, answers: &[Asked]) -> (Vec<String>, usize, String) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("groups.d/kubernetes.toml");
        let (sender, receiver) = channel();
        let mut waiting = changes.into_iter();
        sender.send(waiting.next().unwrap()).unwrap();
        let mut sender = Some(sender);
        let (mut said, mut asked) = (Vec::new(), 0);
        let mut reload = || {
            asked += 1;
            match waiting.next() {
                Some(change) => sender.as_ref().unwrap().send(change).unwrap(),
                None => sender = None,
            }
            answers[(asked - 1).min(answers.len() - 1)].clone()
        };
        let rules = Rules::default();
        let keeper = Keeper {
            rules: &rules,
            file: file.clone(),
            reload: &mut reload,
            say: &mut |told| said.push(told.to_owned()),
        };
        keeper.keep(&receiver);
        let place = format!("{}/", folder.path().display());
        let said = said.iter().map(|told| told.replace(&place, "")).collect();
        (said, asked, fs::read_to_string(file).unwrap())
    }

    #[test]
    fn a_file_is_written_and_the_herd_is_asked_for_each_change() {
        let (said, asked, file) = kept(vec![pod("a", None), pod("b", None)], &[Asked::Done]);
        assert_eq!((said, asked), (Vec::new(), 2));
        assert!(file.contains("\"shop/a\"") && file.contains("\"shop/b\""));
    }

    #[test]
    fn that_no_herd_answers_is_said_once_and_the_file_stays() {
        let nobody = Asked::Nobody("there is none".to_owned());
        let (said, asked, file) = kept(vec![pod("a", None), pod("b", None)], &[nobody]);
        assert_eq!(asked, 2);
        assert_eq!(
            said,
            [
                "no herd answers (there is none); the groups are in groups.d/kubernetes.toml, and a herd that starts \
              reads them"
            ]
        );
        assert!(file.contains("\"shop/b\""));
    }

    #[test]
    fn a_herd_that_refuses_the_policies_gets_the_groups_without_them() {
        let answers = [
            Asked::Refused("these do not go together".to_owned()),
            Asked::Done,
        ];
        let changes = vec![pod("a", Some("linux"))];
        let (said, asked, file) = kept(changes, &answers);
        assert_eq!(asked, 2);
        assert_eq!(
            said[0],
            "the herd refuses the groups: these do not go together"
        );
        assert_eq!(said.len(), 2);
        assert!(
            file.contains("\"shop/a\"") && !file.contains("policy"),
            "{file}"
        );
    }

    #[test]
    fn an_annotation_with_a_policy_that_there_is_not_is_said_once() {
        let changes = vec![pod("a", Some("nothing")), pod("b", None)];
        let (said, _, file) = kept(changes, &[Asked::Done]);
        assert_eq!(said.len(), 1);
        assert!(
            said[0].starts_with("the pod shop/a runs on without"),
            "{said:?}"
        );
        assert!(!file.contains("policy"));
    }
}
