//! `/proc/PID/cgroup` and the mounts where its paths are found (`/proc/self/mountinfo`).

use super::words;

/// In which cgroups a thread is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cgroups {
    /// Path in the unified hierarchy (version 2).
    pub unified: Option<String>,
    /// Path in version 1's hierarchy of the cpuset controller.
    pub cpuset: Option<String>,
    /// Paths in all other hierarchies of version 1.
    pub others: Vec<String>,
}

impl Cgroups {
    /// Whether the thread is in that cgroup, or in one below it, in any hierarchy.
    pub fn within(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        self.unified
            .iter()
            .chain(&self.cpuset)
            .chain(&self.others)
            .any(|own| {
                own.strip_prefix(path)
                    .is_some_and(|below| below.is_empty() || below.starts_with('/'))
            })
    }
}

/// Reads a cgroup file: a line `number:controllers:path` for each hierarchy.
pub fn parse(text: &[u8]) -> Cgroups {
    let mut cgroups = Cgroups::default();
    for line in text.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(3, |byte| *byte == b':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let path = String::from_utf8_lossy(path).into_owned();
        if controllers.is_empty() {
            cgroups.unified = Some(path);
        } else if controllers
            .split(|byte| *byte == b',')
            .any(|c| c == b"cpuset")
        {
            cgroups.cpuset = Some(path);
        } else {
            cgroups.others.push(path);
        }
    }
    cgroups
}

/// Where the hierarchies with cpusets are mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    /// Mount point of version 2.
    pub unified: Option<String>,
    /// Mount point of version 1's cpuset controller.
    pub cpuset: Option<String>,
}

/// Reads a mountinfo file (Documentation/filesystems/proc.rst, 3.5).
pub fn mounts(text: &[u8]) -> Mounts {
    let mut mounts = Mounts::default();
    for line in text.split(|byte| *byte == b'\n') {
        let mut fields = words(line);
        let (Some(root), Some(point)) = (fields.nth(3), fields.next()) else {
            continue;
        };
        let mut after_dash = fields.skip_while(|word| *word != b"-").skip(1);
        let (Some(kind), _, options) = (
            after_dash.next(),
            after_dash.next(),
            after_dash.next().unwrap_or_default(),
        ) else {
            continue;
        };
        // A mount of a part of the hierarchy (a container's) does not have the paths of the whole.
        if root != b"/" {
            continue;
        }
        let point = || Some(String::from_utf8_lossy(point).into_owned());
        match kind {
            b"cgroup2" if mounts.unified.is_none() => mounts.unified = point(),
            b"cgroup" if options.split(|byte| *byte == b',').any(|o| o == b"cpuset") => {
                mounts.cpuset = point();
            }
            _ => {}
        }
    }
    mounts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_side_by_side() {
        let cgroups =
            parse(b"9:name=systemd:/\n4:memory:/a:b/c\n3:cpuset:/jobs/7\n0::/user.slice\n");
        assert_eq!(cgroups.unified.as_deref(), Some("/user.slice"));
        assert_eq!(cgroups.cpuset.as_deref(), Some("/jobs/7"));
        assert_eq!(cgroups.others, ["/", "/a:b/c"]);
    }

    #[test]
    fn a_cgroup_holds_those_below_it_but_not_its_namesakes() {
        let of = |path: &str| parse(format!("0::{path}\n").as_bytes());
        assert!(of("/jobs/7").within("/jobs"));
        assert!(of("/jobs").within("/jobs/"));
        assert!(!of("/jobs-old").within("/jobs"));
        assert!(of("/anything").within("/"));
    }

    #[test]
    fn where_hierarchies_are_mounted() {
        let mounts = mounts(
            b"26 1 0:23 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 none rw\n\
              30 1 0:27 / /sys/fs/cgroup/cpuset rw shared:3 - cgroup cgroup rw,cpuset\n\
              31 1 0:28 /docker/1 /elsewhere rw - cgroup cgroup rw,cpuset\n\
              1 1 0:1 / / rw - ext4 /dev/root rw\n",
        );
        assert_eq!(mounts.unified.as_deref(), Some("/sys/fs/cgroup/unified"));
        assert_eq!(mounts.cpuset.as_deref(), Some("/sys/fs/cgroup/cpuset"));
    }
}
