//! Has a thread that waited for a page run since? (M12)
//!
//! The kernel counts a thread's turns on a processor. The count is read while
//! the thread waits, when there is time, and again when the core asks.

use pagemesh_core::At;
use pagemesh_os::threadstat::ThreadStat;
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
    /// A thread whose statistics were not read yet.
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
    served: Served,
}

/// Threads whose statistics are kept open.
const OPEN: usize = 1024;

impl Threads {
    /// Reads how many turns the waiting thread has had so far.
    pub(crate) fn look(&mut self, thread: &mut Thread) {
        if thread.turns.is_none() {
            thread.turns = self.turns(*thread);
        }
    }

    /// The threads got the page they had waited for.
    pub(crate) fn serve<'a>(&mut self, at: At, threads: impl Iterator<Item = &'a Thread>) {
        for thread in threads.filter(|thread| thread.turns.is_some()) {
            self.served.add(at, *thread);
        }
    }

    /// Whether every thread that waited for the page has run since it got it.
    /// A thread of which nothing is known, or that is gone, holds nothing up.
    pub(crate) fn have_run(&mut self, at: At) -> bool {
        let Some(mut served) = self.served.take(at) else {
            return true;
        };
        served.retain(|thread| {
            let now = self.turns(*thread);
            now.is_some() && now == thread.turns
        });
        if served.is_empty() {
            return true;
        }
        self.served.put(at, served);
        false
    }

    /// The page is gone from here.
    pub(crate) fn forget(&mut self, at: At) {
        self.served.take(at);
    }

    /// The process is gone.
    pub(crate) fn process_gone(&mut self, process: i32) {
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

/// The threads that got a page not long ago. The core asks within
/// [`USE_GUARD`](pagemesh_core::limits::USE_GUARD) or never, so that the latest pages are enough:
/// those of two generations, of which the older is forgotten when the younger is full.
#[derive(Debug, Default)]
struct Served {
    young: HashMap<At, Few>,
    old: HashMap<At, Few>,
}

/// Pages of a generation: more than a node is served in that time.
const GENERATION: usize = 2048;

impl Served {
    fn add(&mut self, at: At, thread: Thread) {
        let few = match self.take(at) {
            None => Few::from(thread),
            Some(mut few) => {
                few.add(thread);
                few
            }
        };
        self.put(at, few);
    }

    fn put(&mut self, at: At, few: Few) {
        if self.young.len() == GENERATION {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert(at, few);
    }

    fn take(&mut self, at: At) -> Option<Few> {
        let young = self.young.remove(&at);
        young.or_else(|| self.old.remove(&at))
    }
}

/// The threads that waited for one page: mostly one.
#[derive(Debug)]
struct Few {
    first: Option<Thread>,
    more: Vec<Thread>,
}

/// Threads remembered per page.
const PER_PAGE: usize = 16;

impl From<Thread> for Few {
    fn from(thread: Thread) -> Self {
        Self {
            first: Some(thread),
            more: Vec::new(),
        }
    }
}

impl Few {
    /// One more, or the same again; of too many the oldest is forgotten.
    fn add(&mut self, thread: Thread) {
        self.retain(|known| !known.is(&thread));
        if self.first.is_none() {
            self.first = Some(thread);
            return;
        }
        if self.more.len() == PER_PAGE - 1 {
            self.more.remove(0);
        }
        self.more.push(thread);
    }

    fn retain(&mut self, mut keep: impl FnMut(&Thread) -> bool) {
        self.first = self.first.filter(&mut keep);
        self.more.retain(keep);
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.more.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::{PageIndex, SegmentId};
    use std::sync::mpsc;

    fn thread(number: u32) -> Thread {
        Thread {
            turns: Some(1),
            ..Thread::new(7, number)
        }
    }

    #[test]
    fn the_latest_pages_are_remembered_and_no_more() {
        let at = |page| (SegmentId(1), PageIndex(page));
        let pages = 5 * GENERATION as u32;
        let mut served = Served::default();
        for page in 0..pages {
            served.add(at(page), thread(page));
            assert!(served.young.len() + served.old.len() <= 2 * GENERATION);
        }
        let few = served.take(at(pages - GENERATION as u32)).unwrap();
        assert_eq!(few.first, Some(thread(pages - GENERATION as u32)));
        assert!(served.take(at(0)).is_none(), "long ago");
    }

    #[test]
    fn a_page_may_have_several_threads_each_once() {
        let at = (SegmentId(1), PageIndex(0));
        let mut served = Served::default();
        for round in 0..3 {
            for number in 0..PER_PAGE as u32 + round {
                served.add(at, thread(number));
            }
        }
        let mut few = served.take(at).unwrap();
        assert_eq!(few.more.len() + 1, PER_PAGE);
        few.retain(|thread| thread.number == 3);
        assert!(!few.is_empty());
        few.retain(|_| false);
        assert!(few.is_empty() && served.take(at).is_none());
    }

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
