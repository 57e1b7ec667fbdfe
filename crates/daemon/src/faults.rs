//! Faults that are being served: since when, of which kind, with which waiting threads.

use crate::threads::Thread;
use pagemesh_os::uffd::FaultKind;
use pagemesh_sorted::LongMap;
use pagemesh_wire::{MappingId, PageIndex};

/// All faults being served, by mapping and page.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    waiting: LongMap<(MappingId, PageIndex), Waiting>,
    /// Faults that went to another node and whose threads were not looked at yet.
    unseen: Vec<(MappingId, PageIndex)>,
    /// The last page that was asked for and has no memory on this host yet.
    wants_memory: Option<(MappingId, PageIndex)>,
}

/// One fault being served.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// When the daemon first heard of it, in nanoseconds.
    pub(crate) since: u64,
    /// The kind that the kernel reported.
    pub(crate) kind: FaultKind,
    /// Another node has to help.
    pub(crate) remote: bool,
    first: Thread,
    more: Vec<Thread>,
}

/// Threads remembered per fault; of the others it is not known whether they ran.
const THREADS: usize = 64;

impl Waiting {
    /// The threads that wait.
    pub(crate) fn threads(&self) -> impl Iterator<Item = &Thread> {
        std::iter::once(&self.first).chain(&self.more)
    }

    fn threads_mut(&mut self) -> impl Iterator<Item = &mut Thread> {
        std::iter::once(&mut self.first).chain(&mut self.more)
    }
}

impl Faults {
    /// The kernel reported a fault, perhaps once more.
    pub(crate) fn note(
        &mut self,
        at: (MappingId, PageIndex),
        kind: FaultKind,
        thread: Thread,
        now: u64,
    ) {
        let waiting = self.waiting.entry(at).or_insert(Waiting {
            since: now,
            kind,
            remote: false,
            first: thread,
            more: Vec::new(),
        });
        waiting.kind = kind;
        let known = waiting.threads().any(|known| known.is(&thread));
        if !known && waiting.more.len() < THREADS {
            waiting.more.push(thread);
        }
    }

    /// The fault is not over although everything that could be done here was:
    /// another node has to help, and there is time to look at the thread.
    pub(crate) fn note_remote(&mut self, at: (MappingId, PageIndex)) {
        if let Some(waiting) = self.waiting.get_mut(&at) {
            waiting.remote = true;
            self.unseen.push(at);
            if waiting.kind == FaultKind::Missing {
                self.wants_memory = Some(at);
            }
        }
    }

    /// Lets `look` see the threads it has not seen, now that there is time.
    pub(crate) fn look(&mut self, mut look: impl FnMut(&mut Thread)) {
        for at in self.unseen.drain(..) {
            if let Some(waiting) = self.waiting.get_mut(&at) {
                waiting.threads_mut().for_each(&mut look);
            }
        }
    }

    /// The page that was asked for last and will want memory, once.
    pub(crate) fn wants_memory(&mut self) -> Option<(MappingId, PageIndex)> {
        self.wants_memory.take()
    }

    /// True if there are threads whose statistics were not read yet.
    pub(crate) fn has_unseen(&self) -> bool {
        !self.unseen.is_empty()
    }

    /// The kind that the kernel reported where threads wait, if any do.
    pub(crate) fn kind(&self, at: (MappingId, PageIndex)) -> Option<FaultKind> {
        self.waiting.get(&at).map(|waiting| waiting.kind)
    }

    /// The page was taken away: the kind that the kernel reported there is outdated.
    pub(crate) fn outdate(&mut self, at: (MappingId, PageIndex)) {
        if let Some(waiting) = self.waiting.get_mut(&at) {
            waiting.kind = FaultKind::Missing;
        }
    }

    /// The fault is over.
    pub(crate) fn end(&mut self, at: (MappingId, PageIndex)) -> Option<Waiting> {
        if self.waiting.is_empty() {
            return None;
        }
        self.waiting.remove(&at)
    }

    /// The mapping is gone, and its threads with it.
    pub(crate) fn forget(&mut self, mapping: MappingId) {
        self.waiting.retain(|(of, _), _| *of != mapping);
    }

    /// Whether any thread waits for a page of a mapping.
    pub(crate) fn has_stopped(&self, mapping: MappingId) -> bool {
        let pages = (mapping, PageIndex(0))..=(mapping, PageIndex(u32::MAX));
        self.waiting.range(pages).next().is_some()
    }

    /// Whether any thread waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_one_fault() {
        let at = (MappingId(1), PageIndex(2));
        let mut faults = Faults::default();
        let thread = |number| Thread::new(7, number);
        faults.note(at, FaultKind::Missing, thread(1), 100);
        faults.note(at, FaultKind::Missing, thread(1), 200);
        faults.note(at, FaultKind::Minor, thread(2), 300);
        faults.note_remote(at);
        let mut seen = 0;
        faults.look(|_| seen += 1);
        faults.look(|_| seen += 10);
        assert_eq!(seen, 2);
        let waiting = faults.end(at).unwrap();
        assert_eq!((waiting.since, waiting.remote), (100, true));
        assert_eq!(waiting.threads().count(), 2);
        assert!(faults.end(at).is_none() && faults.is_empty());
    }

    #[test]
    fn memory_is_wanted_for_pages_that_have_none_here() {
        let mut faults = Faults::default();
        let kinds = [
            FaultKind::Minor,
            FaultKind::WriteProtect,
            FaultKind::Missing,
        ];
        for (page, kind) in (0..).map(PageIndex).zip(kinds) {
            let at = (MappingId(1), page);
            faults.note(at, kind, Thread::new(7, 1), 100);
            assert_eq!(faults.wants_memory(), None, "nobody was asked");
            faults.note_remote(at);
            let missing = kind == FaultKind::Missing;
            assert_eq!(faults.wants_memory(), missing.then_some(at));
            assert_eq!(faults.wants_memory(), None, "once");
        }
    }
}
