//! How long a sandbox waits for its daemons.

use pagemesh_os::procstat::ProcStat;
use std::path::Path;
use std::time::{Duration, Instant};

/// The most that waiting for the disk prolongs a wait.
const LONGEST_STALL: Duration = Duration::from_secs(60);

/// The most time that counts between two looks, which come every few milliseconds. A host that stood
/// still for longer, as a virtual machine does while it is saved, gave no process a chance.
const LONGEST_STEP: Duration = Duration::from_secs(2);

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
        let passed = now - self.looked;
        let since = passed.min(LONGEST_STEP);
        self.looked = now;
        self.end += passed - since;
        if on_disk && self.stalled + since <= LONGEST_STALL {
            self.stalled += since;
            self.end += since;
        }
        now <= self.end
    }

    /// What an error message adds: how long the disk was waited for, and what the process does.
    pub(super) fn remark(&self, pid: u32) -> String {
        let mut remark = String::new();
        if self.stalled >= Duration::from_secs(1) {
            let seconds = self.stalled.as_secs();
            remark = format!(
                "; for {seconds} s its process waited for the disk, which others keep busy"
            );
        }
        if let Some(doing) = doing(pid) {
            remark += &doing;
        }
        remark
    }
}

/// The state of a process, and the processor time that it has used so far.
fn doing(pid: u32) -> Option<String> {
    let stat = ProcStat::of(pid).ok()?;
    let (state, seconds) = (stat.state(), stat.seconds().iter().sum::<f64>());
    Some(format!(
        "; its process {pid} is in state {state} and has used {seconds} s of processor time"
    ))
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
        let stat = ProcStat::read(&thread.path());
        stat.is_ok_and(|stat| stat.state() == 'D')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the wait lasts after so many seconds with a look at the end of each.
    fn lasts(patience: &mut Patience, seconds: u64, on_disk: bool) -> bool {
        (0..seconds).all(|_| patience.look(patience.looked + Duration::from_secs(1), on_disk))
    }

    #[test]
    fn waiting_for_the_disk_is_not_counted_within_a_bound() {
        let mut patience = Patience::of(Duration::from_secs(20));
        assert!(lasts(&mut patience, 15, false));
        assert!(lasts(&mut patience, 60, true));
        assert_eq!(patience.stalled, LONGEST_STALL);
        assert!(patience.remark(std::process::id()).contains("60 s"));
        assert!(lasts(&mut patience, 4, true));
        assert!(!lasts(&mut patience, 4, true));
    }

    #[test]
    fn a_process_that_is_busy_elsewhere_ends_the_wait() {
        let mut patience = Patience::of(Duration::from_secs(20));
        assert!(lasts(&mut patience, 19, false));
        assert!(!lasts(&mut patience, 2, false));
        let remark = patience.remark(std::process::id());
        assert!(remark.starts_with("; its process"), "{remark}");
        assert!(remark.ends_with("s of processor time"), "{remark}");
        assert!(!waits_for_disk(std::process::id()));
    }

    #[test]
    fn the_time_in_which_the_host_stood_still_is_not_counted() {
        let mut patience = Patience::of(Duration::from_secs(20));
        let later = patience.looked + Duration::from_secs(3600);
        assert!(patience.look(later, false));
        assert!(lasts(&mut patience, 17, false));
        assert!(!lasts(&mut patience, 2, false));
    }
}
