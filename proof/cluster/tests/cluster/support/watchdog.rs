//! Ends a test run in which something hangs, and says where. Shows what the daemons of a test said last,
//! and which of their counters tell of a fault.
//!
//! A thread that waits for a page that never comes cannot be called back, so
//! the whole run ends.

use super::evidence::{self, Place};
use pagemesh_cli::sandbox::Sandbox;
use std::io::Write as _;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

/// A test whose cluster runs.
struct Running {
    test: String,
    places: Vec<Place>,
}

static RUNNING: Mutex<Vec<Arc<Running>>> = Mutex::new(Vec::new());

/// Watches until it is dropped.
pub(super) struct Watchdog {
    running: Arc<Running>,
    _told_by_dropping: Sender<()>,
}

impl Watchdog {
    /// Watches over the test of the calling thread.
    pub(super) fn over(sandbox: &Sandbox) -> Self {
        let (sender, ended) = channel::<()>();
        let running = Arc::new(Running {
            test: std::thread::current().name().unwrap_or("?").to_owned(),
            places: evidence::places(sandbox),
        });
        let limit = LIMIT + super::stress_time();
        let watched = Arc::clone(&running);
        std::thread::spawn(move || {
            let late = |limit| ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
            if !late(limit) {
                return;
            }
            let mut done = evidence::progress(&watched.places);
            for _ in 0..STEPS {
                if !late(STEP) {
                    return;
                }
                let now = evidence::progress(&watched.places);
                if now == done {
                    break;
                }
                done = now;
            }
            watched.show("hangs");
            std::process::abort();
        });
        running_tests().push(Arc::clone(&running));
        Self {
            running,
            _told_by_dropping: sender,
        }
    }

    /// Shows what the daemons of this test said last.
    pub(super) fn show(&self, what: &str) {
        self.running.show(what);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        running_tests().retain(|one| !Arc::ptr_eq(one, &self.running));
    }
}

/// Shows what the daemons of all clusters said last.
pub(super) fn show_all() {
    for running in running_tests().iter() {
        running.show("runs");
    }
}

fn running_tests() -> MutexGuard<'static, Vec<Arc<Running>>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Running {
    /// Past the test runner, which shows nothing of a run that was aborted.
    fn show(&self, what: &str) {
        // A daemon that stands still lets others wait for their output, if this has it.
        let said: Vec<_> = self.places.iter().map(said).collect();
        let mut output = std::io::stderr().lock();
        let _ = writeln!(output, "\ntest {} {what}", self.test);
        let _ = writeln!(output, "{}", said.join("\n"));
        drop(output);
        evidence::keep(&self.places);
    }
}

/// The end of a daemon's log, and its counters that tell of a fault.
fn said(place: &Place) -> String {
    let text = std::fs::read_to_string(&place.log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(TAIL)..].join("\n  ");
    let counters = evidence::suspicious(place);
    let log = place.log.display();
    format!("{log}:\n  {last}\n  counters: {counters:?}")
}
