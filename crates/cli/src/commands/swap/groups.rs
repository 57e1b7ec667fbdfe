//! Memory control groups: what their limits mean for a swap device.

use crate::exit::{Exit, Trouble};
use crate::units::size;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// Numbers from here on stand for no limit in the first version of control groups.
const NO_LIMIT: u64 = 1 << 62;

/// Fails if the limit of a group would be exceeded when what it has swapped out comes back and
/// `other` bytes of that go to other swap space.
///
/// # Errors
/// With the group, and what to do.
pub(super) fn check(other: u64) -> Result<()> {
    for place in places() {
        look(&place, &place.root, other)?;
    }
    Ok(())
}

/// Fails if a process that serves the device is in a group with a limit. When the limit is reached
/// the process waits until pages of the group are swapped out, that is, for itself: with the first
/// version of control groups for ever.
///
/// # Errors
/// With the group, and what to do.
pub(super) fn check_free(name: &str, pid: u32) -> Result<()> {
    let lists = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    for files in places() {
        let group = lists.lines().find_map(|line| files.group_in(line));
        let Some(group) = group else {
            continue;
        };
        let inside = group.trim_start_matches('/');
        for group in Path::new(inside).ancestors() {
            let limit = std::fs::read_to_string(files.root.join(group).join(files.limit));
            let limit = limit.ok().and_then(|limit| limit.trim().parse().ok());
            if let Some(limit) = limit.filter(|limit| *limit < NO_LIMIT) {
                let why = format!(
                    "the {name} (process {pid}) is in the memory control group {}, which has a \
                     limit of {}: it would wait for its own swap device there. Start it outside of \
                     the group, or without the limit (systemd: MemoryMax=infinity)",
                    group.display(),
                    size(limit)
                );
                return Err(Trouble::new(Exit::FAILURE, why).into());
            }
        }
    }
    Ok(())
}

/// Where the memory control groups are, and how their files are called.
struct GroupFiles {
    root: PathBuf,
    limit: &'static str,
    current: &'static str,
    /// The file with the bytes that the group has swapped out; without one, a line of `memory.stat` has them.
    swap: Option<&'static str>,
    /// How a process's list of groups names the controller.
    controller: &'static str,
    /// The fields of `memory.stat` for the page cache, for shared memory in it, for swapped pages.
    fields: [&'static str; 3],
}

/// Both versions of control groups; at most one of them has the memory controller.
fn places() -> [GroupFiles; 2] {
    [
        GroupFiles {
            root: "/sys/fs/cgroup".into(),
            limit: "memory.max",
            current: "memory.current",
            swap: Some("memory.swap.current"),
            controller: "",
            fields: ["file", "shmem", ""],
        },
        GroupFiles {
            root: "/sys/fs/cgroup/memory".into(),
            limit: "memory.limit_in_bytes",
            current: "memory.usage_in_bytes",
            swap: None,
            controller: "memory",
            fields: ["total_cache", "total_shmem", "total_swap"],
        },
    ]
}

impl GroupFiles {
    /// The group in this line of a process's list, if it is one of these.
    fn group_in<'a>(&self, line: &'a str) -> Option<&'a str> {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let is_it = controllers.split(',').any(|name| name == self.controller);
        is_it.then_some(group)
    }
}

/// Memory of one group and the groups in it.
#[derive(Clone, Copy, Debug)]
struct Group {
    limit: u64,
    current: u64,
    /// What the kernel can drop: page cache.
    droppable: u64,
    swap: u64,
}

impl Group {
    fn read(files: &GroupFiles, path: &Path) -> Option<Self> {
        let read = |name: &str| std::fs::read_to_string(path.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        let stat = read("memory.stat")?;
        let field = |name: &str| {
            let mut lines = stat.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
        };
        let cache: u64 = field(files.fields[0])?;
        Some(Self {
            // The word for no limit is not a number.
            limit: number(files.limit).unwrap_or(u64::MAX),
            current: number(files.current)?,
            droppable: cache.saturating_sub(field(files.fields[1]).unwrap_or(0)),
            swap: files.swap.map_or_else(|| field(files.fields[2]), number)?,
        })
    }

    /// Bytes too many if everything that is swapped out comes back and `other` go elsewhere.
    fn excess(self, other: u64) -> u64 {
        let kept = self.current.saturating_sub(self.droppable);
        let all = kept.saturating_add(self.swap.saturating_sub(other));
        all.saturating_sub(self.limit)
    }
}

/// Looks at a group and all that are in it. Groups come and go meanwhile.
fn look(files: &GroupFiles, path: &Path, other: u64) -> Result<()> {
    if let Some(group) = Group::read(files, path) {
        if group.swap == 0 {
            return Ok(());
        }
        let excess = group.excess(other);
        if excess > 0 {
            let name = path.strip_prefix(&files.root).unwrap_or(path).display();
            let why = format!(
                "the memory control group {name} has {} swapped out, and its limit of {} would be \
                 exceeded by {} if they came back: raise {}, or end programs of the group, and try \
                 again",
                size(group.swap),
                size(group.limit),
                size(excess),
                files.limit
            );
            return Err(Trouble::new(Exit::FAILURE, why).into());
        }
    }
    let Ok(entries) = std::fs::read_dir(path) else {
        return Ok(());
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            look(files, &entry.path(), other)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_counts_what_it_cannot_drop() {
        let group = Group {
            limit: 100,
            current: 90,
            droppable: 30,
            swap: 50,
        };
        assert_eq!(group.excess(0), 10);
        assert_eq!(group.excess(10), 0);
        assert_eq!(
            Group {
                limit: u64::MAX,
                ..group
            }
            .excess(0),
            0
        );
    }

    #[test]
    fn groups_of_both_versions_are_read() {
        let root = std::env::temp_dir().join(format!("pagemesh-groups-{}", std::process::id()));
        let inner = root.join("outer/inner");
        std::fs::create_dir_all(&inner).unwrap();
        let write = |name: &str, text: &str| std::fs::write(inner.join(name), text).unwrap();
        write("memory.max", "1000\n");
        write("memory.current", "900\n");
        write("memory.swap.current", "400\n");
        write("memory.stat", "anon 5\nfile 300\nshmem 100\n");
        let [mut second, _] = places();
        second.root.clone_from(&root);
        let why = look(&second, &root, 0).unwrap_err().to_string();
        assert!(
            why.contains("outer/inner") && why.contains("100 B"),
            "{why}"
        );
        write("memory.max", "max\n");
        look(&second, &root, 0).unwrap();
        write("memory.limit_in_bytes", "1000\n");
        write("memory.usage_in_bytes", "900\n");
        write(
            "memory.stat",
            "total_cache 300\ntotal_shmem 300\ntotal_swap 101\n",
        );
        let [_, mut first] = places();
        first.root.clone_from(&root);
        assert!(look(&first, &root, 0).is_err());
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_process_s_groups_are_found_in_its_list() {
        let [second, first] = places();
        assert_eq!(first.group_in("4:cpu,memory:/a/b:c"), Some("/a/b:c"));
        assert_eq!(first.group_in("0::/x"), None);
        assert_eq!(second.group_in("0::/x"), Some("/x"));
    }
}
