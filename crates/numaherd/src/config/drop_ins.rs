//! Further groups, in files of their own. Programs that know what runs on a machine write them, so that the
//! configuration need not be edited.
//!
//! The key `groups_from` names a directory. Each file in it whose name ends with `.toml` holds `[[group]]` and
//! nothing else; the groups follow those of the configuration, file by file in the order of their names. A missing
//! directory has no groups. A mistake is reported with its file and line, and the whole configuration is refused.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Result;
use numaherd_files::setting::{self, joined};
use numaherd_files::{read, settings};

use super::file::groups::Group;
use super::{Effective, LARGEST_FILE, Origin};
use crate::exit::{Exit, OrExit, ended};

/// The most files of a directory that are read.
const MOST_FILES: usize = 64;

settings! {
    /// A file of a directory of groups.
    pub struct DropIn {
        /// The groups.
        group: Vec<Group>;
    }
}

impl Effective {
    /// Takes in the groups of the directory that the configuration names.
    ///
    /// # Errors
    /// A file there cannot be read or is wrong, or its groups conflict with the others.
    pub(super) fn take_in(&mut self) -> Result<()> {
        let Some(folder) = self.config.groups_from.clone() else {
            return Ok(());
        };
        for (number, path) in files(&folder)?.into_iter().enumerate() {
            let text = read::text(&path, LARGEST_FILE).or_exit(Exit::Usage)?;
            let file = path.display().to_string();
            let (drop_in, read) = setting::read::<DropIn>(&text, &file).or_exit(Exit::Usage)?;
            self.drop_ins.push(path);
            let before = self.config.group.len();
            for (at, group) in drop_in.group.into_iter().enumerate() {
                let (there, here) = (format!("group[{at}]"), format!("group[{}]", before + at));
                for setting in Group::settings() {
                    if let Some(&line) = read.lines.get(&joined(&there, setting)) {
                        let origin = Origin::DropIn { number, line };
                        self.origins.insert(joined(&here, setting), origin);
                    }
                }
                self.config.group.push(group);
            }
        }
        self.check()
    }
}

impl Group {
    /// The names of its settings.
    fn settings() -> impl Iterator<Item = &'static str> {
        let section = <Self as setting::Value>::KIND.section();
        section
            .into_iter()
            .flat_map(|section| section.settings.iter().map(|s| s.name))
    }
}

/// The files of a directory of groups, sorted by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let refused = |why: String| {
        let shown = folder.display();
        ended(
            Exit::Usage,
            format!("cannot read the groups in {shown}: {why}"),
        )
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(refused(error.to_string())),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| refused(error.to_string()))?.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            files.push(path);
        }
        if files.len() > MOST_FILES {
            return Err(refused(format!("more than {MOST_FILES} files are there")));
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a configuration and a directory of groups with these files.
    fn told(own: &str, files: &[(&str, &str)]) -> Result<Effective, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n.toml");
        fs::write(&path, format!("groups_from = \"groups.d\"\n{own}")).unwrap();
        for (name, text) in files {
            fs::create_dir_all(folder.path().join("groups.d")).unwrap();
            fs::write(folder.path().join("groups.d").join(name), text).unwrap();
        }
        let place = format!("{}/", folder.path().display());
        Effective::of_named(&path).map_err(|error| error.to_string().replace(&place, ""))
    }

    const OWN: &str = "[[group]]\nname = \"own\"\nnames = [\"a\"]\npolicy = \"none\"\n";

    #[test]
    fn groups_of_files_follow_those_of_the_configuration_in_the_order_of_names() {
        let group = |name: &str| format!("[[group]]\nname = \"{name}\"\ncgroups = [\"/{name}\"]\n");
        let effective = told(
            OWN,
            &[
                ("b.toml", &group("b")),
                ("a.toml", &group("a")),
                ("a.txt", "no such file"),
            ],
        );
        let effective = effective.unwrap();
        let names: Vec<&str> = effective.config.group.iter().map(|g| &*g.name).collect();
        assert_eq!(names, ["own", "a", "b"]);
        let origin = effective.origin("group[2].cgroups").unwrap();
        assert!(origin.ends_with("groups.d/b.toml line 3"), "{origin}");
    }

    #[test]
    fn a_directory_that_is_not_there_has_no_groups() {
        assert_eq!(told(OWN, &[]).unwrap().config.group.len(), 1);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let wrong = |text: &str| told(OWN, &[("k.toml", text)]).unwrap_err();
        assert_eq!(
            wrong("policy = \"linux\"\n"),
            "groups.d/k.toml:1: policy: unknown key; it belongs in [[group]]"
        );
        let nameless = wrong("[[group]]\nname = \"x\"\n");
        assert!(
            nameless.starts_with("groups.d/k.toml:1: group: names no process"),
            "{nameless}"
        );
        let unknown = wrong("\n[[group]]\nname = \"x\"\npids = [1]\npolicy = \"dinno\"\n");
        assert!(unknown.starts_with("groups.d/k.toml line 5: "), "{unknown}");
        let twice = wrong("[[group]]\nname = \"own\"\npids = [1]\n");
        assert!(twice.starts_with("groups.d/k.toml line 2: "), "{twice}");
    }
}
