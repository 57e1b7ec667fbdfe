//! One host: its one program, and its rights.

use pagemesh_core::Rights;
use pagemesh_wire::peer::Access;
use pagemesh_wire::{PageIndex, SegmentId};
use std::collections::BTreeMap;

/// A word of the job's memory: its segment's number, page, and which word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) segment: usize,
    pub(crate) page: u32,
    pub(crate) word: u32,
}

/// The next action of a program. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Load a word; the program is told its value.
    Load(Place),
    /// Change a word.
    Store(Place, u64),
    /// Use the processor.
    Work(u64),
    /// Leave the processor alone.
    Sleep(u64),
    /// Wait until all programs are here.
    Meet,
    /// Note the time.
    Note,
    /// It is over.
    End,
}

/// A program, as far as memory sees it.
pub(crate) trait Program {
    /// The next action; `loaded` is the value of the last load.
    fn next(&mut self, loaded: u64) -> Act;
}

/// The state of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Stopped at a page.
    Stopped(SegmentId, PageIndex, Access),
    /// It was woken, and has not run since.
    Woken(SegmentId, PageIndex),
    /// It uses the processor.
    Works,
    Sleeps,
    Meets,
    Ended,
}

pub(crate) struct Host {
    /// When the line to each other host is free.
    pub(crate) lines: BTreeMap<usize, u64>,
    pub(crate) rights: BTreeMap<(SegmentId, PageIndex), Rights>,
    /// In the order of the job's segments.
    pub(crate) segments: Vec<SegmentId>,
    pub(crate) program: Box<dyn Program>,
    pub(crate) state: State,
    /// The access that was stopped, to be tried again.
    pub(crate) again: Option<Act>,
    pub(crate) loaded: u64,
    /// Times the program noted, in nanoseconds.
    pub(crate) notes: Vec<u64>,
}

impl Host {
    pub(crate) fn new(program: Box<dyn Program>) -> Self {
        Self {
            lines: BTreeMap::new(),
            rights: BTreeMap::new(),
            segments: Vec::new(),
            program,
            state: State::Sleeps,
            again: None,
            loaded: 0,
            notes: Vec::new(),
        }
    }

    pub(crate) fn may(&self, segment: SegmentId, page: PageIndex) -> Rights {
        let rights = self.rights.get(&(segment, page));
        rights.copied().unwrap_or_default()
    }
}
