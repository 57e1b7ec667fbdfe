//! What the host has: memory that programs could get now, within the limits of the daemon's control
//! groups, and how busy its processors are.

use std::path::{Path, PathBuf};

/// Bytes of the host's memory: all, and what programs could get now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) total: u64,
    pub(crate) available: u64,
}

impl Host {
    pub(crate) fn ask() -> Option<Self> {
        let host = Self::read(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let groups = group_directories(&groups, Path::new("/sys/fs/cgroup"));
        Some(groups.iter().fold(host, |host, group| host.within(group)))
    }

    fn read(text: &str) -> Option<Self> {
        let field = |name: &str| field(text, name)?.checked_mul(1024);
        Some(Self {
            total: field("MemTotal:")?,
            available: field("MemAvailable:")?,
        })
    }

    /// The memory of a host, limited to that of one control group: programs in a container get no more.
    /// Pages of files that were not used lately count as available.
    fn within(self, group: &Path) -> Self {
        let number = |name: &str| -> Option<u64> {
            let text = std::fs::read_to_string(group.join(name)).ok()?;
            text.trim().parse().ok()
        };
        let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"));
        let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"));
        let (Some(limit), Some(used)) = (limit, used) else {
            return self;
        };
        let text = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let files = field(&text, "total_inactive_file").or_else(|| field(&text, "inactive_file"));
        let used = used.saturating_sub(files.unwrap_or(0));
        Self {
            total: self.total.min(limit),
            available: self.available.min(limit.saturating_sub(used)),
        }
    }
}

/// The number in the line that begins with `name`.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok())?
    })
}

/// The directories of the memory control groups that /proc/self/cgroup names, and of those that they
/// are in, in whichever version this host has.
fn group_directories(text: &str, root: &Path) -> Vec<PathBuf> {
    let of_memory = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let base = match controllers {
            "" => root.to_path_buf(),
            some if some.split(',').any(|name| name == "memory") => root.join("memory"),
            _ => return None,
        };
        let path = Path::new(path.trim_start_matches('/'));
        Some(path.ancestors().map(|group| base.join(group)).collect())
    };
    let groups = text.lines().filter_map(of_memory);
    groups.collect::<Vec<Vec<_>>>().concat()
}

/// How busy the processors are, by what the kernel counted between two looks.
#[derive(Debug, Default)]
pub(crate) struct Processors {
    idle: u64,
    all: u64,
    busy: u8,
}

impl Processors {
    /// The part of their time that was used lately, in percent: half of it the last look's.
    pub(crate) fn look(&mut self) -> u8 {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        self.read(&text)
    }

    fn read(&mut self, text: &str) -> u8 {
        let words = text.lines().next().unwrap_or_default();
        // User, nice, system, idle, waiting for disks, and more; guests are in the first two.
        let times = words.split_whitespace().skip(1).take(8);
        let times: Vec<u64> = times.map_while(|word| word.parse().ok()).collect();
        let idle: u64 = times.iter().skip(3).take(2).sum();
        let all: u64 = times.iter().sum();
        let (idle_now, now) = (idle.saturating_sub(self.idle), all.saturating_sub(self.all));
        let is_first = self.all == 0;
        (self.idle, self.all) = (idle, all);
        if now > 0 {
            let busy = 100 - (100 * idle_now.min(now)).div_ceil(now) as u8;
            let before = if is_first { busy } else { self.busy };
            self.busy = (before / 2 + busy / 2) + (before & busy & 1);
        }
        self.busy
    }
}

/// A host for tests.
#[cfg(test)]
pub(crate) const HOST: Host = Host {
    total: 8 << 30,
    available: 5 << 30,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_read_from_its_kernel() {
        let text = "MemTotal:       8388608 kB\nMemFree: 1 kB\nMemAvailable:    5242880 kB\n";
        assert_eq!(Host::read(text), Some(HOST));
        assert!(Host::ask().is_some_and(|host| host.available <= host.total));
    }

    #[test]
    fn a_control_group_has_no_more_than_its_limit() {
        let root = std::env::temp_dir().join(format!("pagemesh-host-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("memory/one/memory.limit_in_bytes", "3000000000\n");
        write("memory/one/memory.usage_in_bytes", "2500000000\n");
        write(
            "memory/one/memory.stat",
            "cache 7\ntotal_inactive_file 500000000\n",
        );
        write("two/memory.max", "max\n");
        write("two/three/memory.max", "4000000000\n");
        write("two/three/memory.current", "1000000000\n");
        write("two/three/memory.stat", "inactive_file 0\n");
        let first = group_directories("4:cpu:/\n3:memory,hugetlb:/one/in\n0::/\n", &root);
        assert_eq!(first[1], root.join("memory/one"));
        let within =
            |groups: &[PathBuf]| groups.iter().fold(HOST, |host, group| host.within(group));
        let narrowed = within(&first);
        assert_eq!(
            (narrowed.total, narrowed.available),
            (3_000_000_000, 1_000_000_000)
        );
        let second = within(&group_directories("0::/two/three\n", &root));
        assert_eq!(
            (second.total, second.available),
            (4_000_000_000, 3_000_000_000)
        );
        assert_eq!(within(&group_directories("0::/two\n", &root)), HOST);
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn processors_are_as_busy_as_the_kernel_says() {
        let mut processors = Processors::default();
        assert_eq!(processors.read("cpu  25 0 25 40 10 0 0 0 0 0\n"), 50);
        // Nothing has happened since.
        assert_eq!(processors.read("cpu  25 0 25 40 10 0 0 0 0 0\n"), 50);
        assert_eq!(processors.read("cpu  125 0 25 40 10 0 0 0 0 0\n"), 75);
        assert_eq!(processors.read("nonsense"), 75);
        let mut real = Processors::default();
        assert!(real.look() <= 100);
    }
}
