//! Memory, descriptors, and the limits on both.

use super::{Check, read, read_number};
use crate::units::size;
use rustix::process::{Resource, getrlimit};
use std::path::Path;

/// Every mapping of every process costs the daemon two descriptors or more.
const DESCRIPTORS: u64 = 1024;

/// Below this there is hardly room for other people's pages.
const FREE: u64 = 256 << 20;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = vec![free(), descriptors(), locked(), shared()];
    checks.extend(mappings());
    checks.extend(cgroup());
    checks
}

fn free() -> Check {
    const NAME: &str = "memory";
    let Some(available) = available() else {
        return Check::warning(NAME, "/proc/meminfo says nothing", "mount /proc");
    };
    if available < FREE {
        Check::warning(
            NAME,
            format!("{} available", size(available)),
            "end programs you do not need: pages of segments live in this host's memory",
        )
    } else {
        Check::ok(NAME, format!("{} available", size(available)))
    }
}

fn available() -> Option<u64> {
    let text = read("/proc/meminfo")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

fn descriptors() -> Check {
    const NAME: &str = "open files";
    let limit = getrlimit(Resource::Nofile);
    match limit.current {
        Some(current) if current < DESCRIPTORS => Check::warning(
            NAME,
            format!("at most {current} for one process; the daemon needs two for every mapping"),
            format!(
                "ulimit -n {} (systemd: LimitNOFILE=65536)",
                limit.maximum.unwrap_or(65536)
            ),
        ),
        Some(current) => Check::ok(NAME, format!("up to {current}")),
        None => Check::ok(NAME, "no limit"),
    }
}

fn locked() -> Check {
    const NAME: &str = "locked memory";
    let limit = getrlimit(Resource::Memlock).current;
    let limit = limit.map_or_else(
        || "no limit".to_owned(),
        |bytes| format!("up to {}", size(bytes)),
    );
    Check::ok(NAME, format!("{limit}; PageMesh locks none"))
}

/// Containers give /dev/shm 64 MB, and people suspect it first.
fn shared() -> Check {
    Check::ok(
        "/dev/shm",
        "not used: segments are memfds, bounded by memory only",
    )
}

fn mappings() -> Option<Check> {
    const NAME: &str = "mappings";
    const ENOUGH: u64 = 65530;
    let limit = read_number("/proc/sys/vm/max_map_count")?;
    Some(if limit < ENOUGH {
        Check::warning(
            NAME,
            format!("vm.max_map_count={limit}"),
            format!("sysctl -w vm.max_map_count={ENOUGH}"),
        )
    } else {
        Check::ok(NAME, format!("vm.max_map_count={limit}"))
    })
}

/// The limit of this process's control group, if it is below that of the host.
fn cgroup() -> Option<Check> {
    const NAME: &str = "cgroup memory";
    let limit = cgroup_limit(&read("/proc/self/cgroup")?)?;
    let text = format!("limited to {}; pages of segments count", size(limit));
    Some(if limit < FREE {
        Check::warning(
            NAME,
            text,
            "raise the limit (docker: -m, Kubernetes: resources.limits.memory)",
        )
    } else {
        Check::ok(NAME, text)
    })
}

fn cgroup_limit(cgroups: &str) -> Option<u64> {
    let mut limits = Vec::new();
    for line in cgroups.lines() {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // A limit of any ancestor counts. Inside a container the path may
        // not exist; its root then is the group itself.
        for group in Path::new(path).ancestors() {
            let group = group.strip_prefix("/").unwrap_or(group);
            let file = Path::new(root).join(group).join(file);
            limits.extend(file.to_str().and_then(read_number));
        }
    }
    // Version 1 says "no limit" with the largest number of whole pages.
    limits.into_iter().filter(|limit| *limit < 1 << 60).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_does_not_exist_has_no_limit() {
        assert_eq!(cgroup_limit("0::/no/such/group"), cgroup_limit("0::/"));
        assert_eq!(cgroup_limit("3:cpu:/"), None);
        assert_eq!(cgroup_limit("nonsense"), None);
        assert!(available().unwrap() > 0);
    }
}
