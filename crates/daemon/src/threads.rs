//! Has a thread that waited for a page run since? (M12)
//!
//! The kernel counts a thread's turns on a processor. The count is read while
//! the thread waits, when there is time, and again when the core asks.

use pagemesh_os::threadstat::ThreadStat;
use pagemesh_wire::{PageIndex, SegmentId};
use std::collections::HashMap;

/// A thread that waits, or waited, for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread {
    process: i32,
    number: u32,
    /// Turns it had had while it waited, if anybody looked.
    turns: Option<u64>,
}

impl Thread {
    /// A thread nobody has looked at.
    pub(crate) fn new(process: i32, number: u32) -> Self {
        Self {
            process,
            number,
            turns: None,
        }
    }

    /// Whether both are one thread.
    pub(crate) fn is(&self, other: &Self) -> bool {
        (self.process, self.number) == (other.process, other.number)
    }
}

/// Threads that waited for pages.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    stats: HashMap<(i32, u32), Option<ThreadStat>>,
    served: HashMap<(SegmentId, PageIndex), Vec<Thread>>,
}

/// Threads whose statistics are kept open.
const OPEN: usize = 1024;
/// Pages whose threads are remembered.
const PAGES: usize = 1 << 16;
/// Threads remembered per page.
const PER_PAGE: usize = 16;

impl Threads {
    /// Reads how many turns the waiting thread has had so far.
    pub(crate) fn look(&mut self, thread: &mut Thread) {
        if thread.turns.is_none() {
            thread.turns = self.turns(*thread);
        }
    }

    /// The threads got the page they had waited for.
    pub(crate) fn serve<'a>(
        &mut self,
        at: (SegmentId, PageIndex),
        threads: impl Iterator<Item = &'a Thread>,
    ) {
        if self.served.len() >= PAGES {
            self.served.clear();
        }
        for thread in threads.filter(|thread| thread.turns.is_some()) {
            let served = self.served.entry(at).or_default();
            served.retain(|known| !known.is(thread));
            if served.len() == PER_PAGE {
                served.remove(0);
            }
            served.push(*thread);
        }
    }

    /// Whether every thread that waited for the page has run since it got it.
    /// A thread of which nothing is known, or that is gone, holds nothing up.
    pub(crate) fn have_run(&mut self, at: (SegmentId, PageIndex)) -> bool {
        let Some(served) = self.served.remove(&at) else {
            return true;
        };
        let waiting: Vec<_> = served
            .into_iter()
            .filter(|thread| {
                let now = self.turns(*thread);
                now.is_some() && now == thread.turns
            })
            .collect();
        if waiting.is_empty() {
            return true;
        }
        self.served.insert(at, waiting);
        false
    }

    /// The page is gone from here.
    pub(crate) fn forget(&mut self, at: (SegmentId, PageIndex)) {
        if !self.served.is_empty() {
            self.served.remove(&at);
        }
    }

    /// The process is gone.
    pub(crate) fn bury(&mut self, process: i32) {
        self.stats.retain(|(of, _), _| *of != process);
    }

    fn turns(&mut self, thread: Thread) -> Option<u64> {
        if thread.process == 0 {
            return None;
        }
        if self.stats.len() >= OPEN {
            self.stats.clear();
        }
        let key = (thread.process, thread.number);
        let stat = self
            .stats
            .entry(key)
            .or_insert_with(|| ThreadStat::open(thread.process, thread.number).ok());
        let turns = stat.as_ref().and_then(ThreadStat::turns);
        // A number may come to mean another thread: look anew next time.
        if turns.is_none() {
            self.stats.remove(&key);
        }
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn tells_a_thread_that_ran_from_one_that_did_not() {
        let at = (SegmentId(1), PageIndex(0));
        let mut threads = Threads::default();
        assert!(threads.have_run(at), "nothing is known");
        let (wake, sleep) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid()).unwrap();
            sleep.recv().unwrap();
            tell.send(rustix::thread::gettid()).unwrap();
            let _ = sleep.recv();
        });
        let number = told.recv().unwrap().as_raw_nonzero().get() as u32;
        std::thread::sleep(std::time::Duration::from_millis(20));
        let mut thread = Thread::new(std::process::id() as i32, number);
        threads.look(&mut thread);
        if thread.turns.is_none() {
            eprintln!("skipped: this kernel keeps no scheduling statistics");
            return;
        }
        threads.serve(at, std::iter::once(&thread));
        assert!(!threads.have_run(at));
        wake.send(()).unwrap();
        told.recv().unwrap();
        assert!(threads.have_run(at));
        drop(wake);
        sleeper.join().unwrap();
        threads.serve(at, std::iter::once(&thread));
        assert!(threads.have_run(at), "a thread that is gone");
    }
}
