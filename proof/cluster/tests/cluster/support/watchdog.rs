//! Ends a test run in which something hangs, and says where.
//!
//! A thread that waits for a page that never comes cannot be called back, so
//! the whole run ends.

use super::evidence;
use pagemesh_cli::sandbox::Sandbox;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Longer than a test takes, unless the machine is very busy.
const LIMIT: Duration = Duration::from_secs(150);

/// Then the test hangs if its daemons served no wait for this time. A program that computes on a busy
/// host waits for no page meanwhile.
const STEP: Duration = Duration::from_secs(60);

/// A test that takes longer than this will not come to an end.
const STEPS: usize = 3;

/// Lines of each daemon's log to show.
const TAIL: usize = 15;

/// Watches until it is dropped.
pub(super) struct Watchdog {
    _told_by_dropping: Sender<()>,
}

impl Watchdog {
    /// Watches over the test of the calling thread.
    pub(super) fn over(sandbox: &Sandbox) -> Self {
        let (sender, ended) = channel::<()>();
        let test = std::thread::current().name().unwrap_or("?").to_owned();
        let places = evidence::places(sandbox);
        let limit = LIMIT + super::stress_time();
        std::thread::spawn(move || {
            let late = |limit| ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
            if !late(limit) {
                return;
            }
            let mut done = evidence::progress(&places);
            for _ in 0..STEPS {
                if !late(STEP) {
                    return;
                }
                let now = evidence::progress(&places);
                if now == done {
                    break;
                }
                done = now;
            }
            bark(&test, places.iter().map(|place| place.log.clone()));
            evidence::keep(&places);
            std::process::abort();
        });
        Self {
            _told_by_dropping: sender,
        }
    }
}

/// Past the test runner, which shows nothing of a run that was aborted.
fn bark(test: &str, logs: impl Iterator<Item = PathBuf>) {
    let mut output = std::io::stderr().lock();
    let _ = writeln!(output, "\ntest {test} hangs");
    for log in logs {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(TAIL)..];
        let _ = writeln!(output, "{}:\n  {}", log.display(), last.join("\n  "));
    }
}
