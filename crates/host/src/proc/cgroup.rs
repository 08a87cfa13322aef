//! `/proc/PID/cgroup` and the mounts where its paths are found (`/proc/self/mountinfo`).

use super::{lines, split_once, words};

/// The cgroups of a thread.
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
    /// Whether the thread is in that cgroup, or one below it, in any hierarchy.
    pub fn within(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        self.paths().any(|own| {
            own.strip_prefix(path)
                .is_some_and(|below| below.is_empty() || below.starts_with('/'))
        })
    }

    /// The paths in all hierarchies.
    pub fn paths(&self) -> impl Iterator<Item = &String> {
        let all = self.unified.iter().chain(&self.cpuset);
        all.chain(&self.others)
    }
}

/// Reads a cgroup file: a line `number:controllers:path` for each hierarchy.
pub fn parse(text: &[u8]) -> Cgroups {
    let mut cgroups = Cgroups::default();
    for line in lines(text) {
        let parts = split_once(line, b':').and_then(|(_, rest)| split_once(rest, b':'));
        let Some((controllers, path)) = parts else {
            continue;
        };
        let path = String::from_utf8_lossy(path).into_owned();
        if controllers.is_empty() {
            cgroups.unified = Some(path);
        } else if has_cpuset(controllers) {
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
    for line in lines(text) {
        let mut fields = words(line);
        let (root, point) = (fields.nth(3), fields.next());
        let mut after_dash = fields.skip_while(|word| *word != b"-").skip(1);
        let (kind, options) = (after_dash.next(), after_dash.nth(1).unwrap_or_default());
        // A mount of part of the hierarchy (a container's) lacks the paths of the whole.
        let Some(point) = point.filter(|_| root == Some(b"/")) else {
            continue;
        };
        let point = || Some(String::from_utf8_lossy(point).into_owned());
        match kind {
            Some(b"cgroup2") if mounts.unified.is_none() => mounts.unified = point(),
            Some(b"cgroup") if has_cpuset(options) => mounts.cpuset = point(),
            _ => {}
        }
    }
    mounts
}

/// Whether a list of controllers or options names the cpuset controller.
fn has_cpuset(list: &[u8]) -> bool {
    list.split(|byte| *byte == b',').any(|one| one == b"cpuset")
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
