//! How long a sandbox waits for its daemons.

use std::path::Path;
use std::time::{Duration, Instant};

/// The most that waiting for the disk prolongs a wait.
const LONGEST_STALL: Duration = Duration::from_secs(60);

/// An end of waiting that moves while the daemon waits for the disk: a host that reads a program
/// from a disk that others keep busy takes tens of seconds until the program does anything.
pub(super) struct Patience {
    end: Instant,
    stalled: Duration,
    looked: Instant,
}

impl Patience {
    pub(super) fn of(time: Duration) -> Self {
        let now = Instant::now();
        Self {
            end: now + time,
            stalled: Duration::ZERO,
            looked: now,
        }
    }

    /// Whether to wait longer for this process.
    pub(super) fn lasts(&mut self, pid: u32) -> bool {
        self.look(Instant::now(), waits_for_disk(pid))
    }

    fn look(&mut self, now: Instant, on_disk: bool) -> bool {
        let since = now - self.looked;
        self.looked = now;
        if on_disk && self.stalled + since <= LONGEST_STALL {
            self.stalled += since;
            self.end += since;
        }
        now <= self.end
    }

    /// What an error message adds when the disk was waited for.
    pub(super) fn remark(&self) -> String {
        if self.stalled < Duration::from_secs(1) {
            return String::new();
        }
        let seconds = self.stalled.as_secs();
        format!("; for {seconds} s its process waited for the disk, which others keep busy")
    }
}

/// Whether a thread of it sleeps where no signal wakes it, as one that reads from the disk does.
fn waits_for_disk(pid: u32) -> bool {
    let Ok(threads) = Path::new("/proc")
        .join(pid.to_string())
        .join("task")
        .read_dir()
    else {
        return false;
    };
    threads.flatten().any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The name in parentheses may contain anything.
        stat.rsplit_once(") ")
            .is_some_and(|(_, fields)| fields.starts_with('D'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(patience: &Patience, milliseconds: u64) -> Instant {
        patience.looked + Duration::from_millis(milliseconds)
    }

    #[test]
    fn waiting_for_the_disk_is_not_counted_within_a_bound() {
        let mut patience = Patience::of(Duration::from_secs(20));
        assert!(patience.look(after(&patience, 15_000), false));
        for _ in 0..12 {
            assert!(patience.look(after(&patience, 5_000), true));
        }
        assert_eq!(patience.stalled, LONGEST_STALL);
        assert!(patience.remark().contains("60 s"));
        assert!(patience.look(after(&patience, 4_000), true));
        assert!(!patience.look(after(&patience, 4_000), true));
    }

    #[test]
    fn a_process_that_is_busy_elsewhere_ends_the_wait() {
        let mut patience = Patience::of(Duration::from_secs(20));
        assert!(patience.look(after(&patience, 19_000), false));
        assert!(!patience.look(after(&patience, 2_000), false));
        assert_eq!(patience.remark(), "");
        assert!(!waits_for_disk(std::process::id()));
    }
}
