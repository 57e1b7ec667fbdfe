//! A memory control group with a limit, for the processes that are to swap.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// It ends with this value, once its processes have ended.
pub(super) struct Group {
    path: PathBuf,
    tasks: &'static str,
}

/// Groups of this process so far.
static MADE: AtomicU32 = AtomicU32::new(0);

impl Group {
    /// In whichever version of control groups this host has; none if that is forbidden.
    pub(super) fn make(limit: u64) -> Option<Self> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("pagemesh-far-{}-{number}", std::process::id());
        let [first, second] = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].map(Path::new);
        let is_first = first.join("memory.limit_in_bytes").exists();
        let (root, file, tasks) = match is_first {
            true => (first, "memory.limit_in_bytes", "tasks"),
            false => (second, "memory.max", "cgroup.procs"),
        };
        if !is_first {
            let _ = std::fs::write(root.join("cgroup.subtree_control"), "+memory");
        }
        let path = root.join(name);
        std::fs::create_dir(&path).ok()?;
        let group = Self { path, tasks };
        let limited = std::fs::write(group.path.join(file), limit.to_string());
        limited.is_ok().then_some(group)
    }

    /// A command that runs in the group from its first instruction on.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]);
        command.arg(self.path.join(self.tasks)).arg(program);
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.path);
    }
}
