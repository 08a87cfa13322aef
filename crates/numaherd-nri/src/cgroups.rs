//! The path of a pod's or a container's control group, from the root of the hierarchy.
//!
//! A runtime gives a path (driver `cgroupfs`), or the name of a slice of systemd, whose parents are in its name:
//! `a-b.slice` is in `a.slice`. For a container, it gives the slice, the prefix and the name of a scope, joined by
//! colons.
//!
//! Source: systemd.slice(5); `pkg/cri/util` of containerd for the three parts.

/// The path of the control group that a pod's containers are in; `None` if `parent` names none.
pub fn of_pod(parent: &str) -> Option<String> {
    match parent {
        "" => None,
        path if path.starts_with('/') => usable(path),
        slice => expanded(slice),
    }
}

/// The path of a container's control group; `None` if `path` names none.
pub fn of_container(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split(':').collect();
    match parts[..] {
        [slice, prefix, name] if !path.contains('/') && !name.is_empty() => {
            let parent = expanded(slice)?;
            let unit = match (name.ends_with(".slice"), prefix) {
                (true, _) | (false, "") => name.to_owned(),
                (false, prefix) => format!("{prefix}-{name}.scope"),
            };
            usable(&format!("{parent}/{unit}"))
        }
        _ if path.starts_with('/') => usable(path),
        _ => None,
    }
}

/// The path of a slice: its parents are in its name.
fn expanded(slice: &str) -> Option<String> {
    let stem = slice.strip_suffix(".slice")?;
    if stem.is_empty() || stem.split('-').any(str::is_empty) || slice.contains('/') {
        return None;
    }
    let mut path = String::new();
    for (at, _) in stem.match_indices('-') {
        path += &format!("/{}.slice", &stem[..at]);
    }
    usable(&format!("{path}/{slice}"))
}

/// A path that names one place below the root.
fn usable(path: &str) -> Option<String> {
    let path = path.trim_end_matches('/');
    let is_usable = path.len() > 1
        && !path.contains(char::is_control)
        && path[1..]
            .split('/')
            .all(|part| !matches!(part, "" | "." | ".."));
    is_usable.then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_path_is_itself_and_a_slice_has_its_parents_in_its_name() {
        let pod = |parent| of_pod(parent).unwrap_or_default();
        assert_eq!(pod("/kubepods/burstable/pod1"), "/kubepods/burstable/pod1");
        assert_eq!(
            pod("kubepods-burstable-pod1_2.slice"),
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice"
        );
        let full = "/kubepods.slice/kubepods-pod1.slice";
        assert_eq!(pod(full), full);
        for none in [
            "",
            "/",
            "//",
            "/a/../b",
            "a--b.slice",
            ".slice",
            "scope",
            "/a\n",
        ] {
            assert_eq!(of_pod(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_container_is_a_path_or_a_scope_in_a_slice() {
        let container = |path| of_container(path).unwrap_or_default();
        assert_eq!(
            container("kubepods-pod1.slice:cri-containerd:c1"),
            "/kubepods.slice/kubepods-pod1.slice/cri-containerd-c1.scope"
        );
        assert_eq!(container("/kubepods/pod1/c1"), "/kubepods/pod1/c1");
        assert_eq!(container("a.slice::c"), "/a.slice/c");
        for none in ["", "c1", "a.slice:b:", "x:y:z", "a.slice:cri:../.."] {
            assert_eq!(of_container(none), None, "{none:?}");
        }
    }

    proptest! {
        #[test]
        fn any_path_is_one_place_below_the_root(text in "[a.:/-]{0,12}(\\.slice)?(:[a-z/]{0,3}:[.a-z/]{0,4})?") {
            for path in [of_pod(&text), of_container(&text)].into_iter().flatten() {
                prop_assert!(path.starts_with('/') && path.len() > 1);
                prop_assert!(path[1..].split('/').all(|part| !matches!(part, "" | "." | "..")));
            }
        }
    }
}
