//! A consistent cut through a segment of policy `sequential`, while programs store to it.
//!
//! First the pages are copied while programs go on. Then a *hold* begins: what is on this node does
//! not change anywhere from then on. Once every page is here, all are held, and the contents are
//! those of one instant. Pages whose version is still the one that was copied need no second copy,
//! so stores wait only while the others are fetched and copied into memory.

use std::time::{Duration, Instant};

use pagemesh_snapshot::PAGE;
use pagemesh_wire::PageIndex;
use pagemesh_wire::local::{PageState, Refusal, Reply, Request};

use super::SnapshotResult;
use super::copy::{Copier, Page};
use crate::connection::unexpected;
use crate::{Error, LockGuard, Result, Segment};

/// The lock of the segment that one saving process at a time holds, wherever it is.
const SAVERS: u64 = u64::MAX - 0x5a7e;

/// Rounds of copying before the hold: each copies what has changed since the one before.
const ROUNDS: usize = 5;

/// So few changed pages are copied during the hold.
const FEW: u32 = 64;

/// Attempts to hold all pages.
const ATTEMPTS: usize = 3;

/// A hold ends by itself after 10 s.
const LONGEST: Duration = Duration::from_secs(10);

/// How long the saver waits for its turn before it looks whether it is to stop.
const TURN: Duration = Duration::from_millis(200);

/// Copies all pages as of one instant. Returns how many are not zero, and how long stores waited.
pub fn cut(copier: &mut Copier<'_, '_>) -> SnapshotResult<(u64, Duration)> {
    let _turn = turn(copier)?;
    let mut cut = Cut {
        known: vec![PageState::Zero; copier.pages as usize],
        full: vec![false; copier.pages as usize],
        copier,
        stopped: Duration::ZERO,
    };
    let mut before = u32::MAX;
    for _ in 0..ROUNDS {
        let changed = cut.round()?;
        if changed <= FEW || changed > before / 2 {
            break;
        }
        before = changed;
    }
    cut.last_round()?;
    let full = cut.full.iter().filter(|full| **full).count();
    Ok((full as u64, cut.stopped))
}

fn turn(copier: &mut Copier<'_, '_>) -> SnapshotResult<LockGuard> {
    let lock = copier.segment.lock(SAVERS);
    loop {
        match lock.lock_surely(Some(TURN)) {
            Err(Error::TimedOut) => copier.tell(0)?,
            turn => return Ok(turn?),
        }
    }
}

struct Cut<'c, 'a, 'o> {
    copier: &'c mut Copier<'a, 'o>,
    /// The state of each page when it was copied last.
    known: Vec<PageState>,
    /// Whether the file has contents of a page.
    full: Vec<bool>,
    stopped: Duration,
}

impl Cut<'_, '_, '_> {
    /// Copies the pages that changed since they were copied last, while programs go on. Returns how
    /// many those are.
    fn round(&mut self) -> SnapshotResult<u32> {
        // Pages that processes of this node may store to become readable, so that their versions
        // show later stores.
        Hold::begin(self.copier.segment)?.end()?;
        let mut changed = 0;
        let mut page = [0; PAGE];
        let mut index = 0;
        while index < self.copier.pages {
            for state in self.fetched(index)? {
                if state != self.known[index as usize] || state == PageState::Unsure {
                    changed += 1;
                    self.copier.read(PageIndex(index), &mut page)?;
                    self.take(index, state, &page)?;
                }
                index += 1;
            }
            self.copier.tell(index)?;
        }
        Ok(changed)
    }

    /// The states of the pages from this one on, as many as the daemon tells at once, after those
    /// that were not here have been fetched.
    fn fetched(&self, first: u32) -> SnapshotResult<Vec<PageState>> {
        let states = self.states(first)?;
        if !states.contains(&PageState::Unsure) {
            return Ok(states);
        }
        self.touch(first, &states)?;
        self.states(first)
    }

    fn states(&self, first: u32) -> SnapshotResult<Vec<PageState>> {
        let segment = self.copier.segment;
        let request = Request::States {
            segment: segment.id(),
            first: PageIndex(first),
        };
        let left = (self.copier.pages - first) as usize;
        match segment.mesh().ask(request, None)?.reply {
            Reply::States(states) if (1..=left).contains(&states.len()) => Ok(states),
            other => Err(unexpected(&other).into()),
        }
    }

    /// Fetches the pages that are not here, neighbours together.
    fn touch(&self, first: u32, states: &[PageState]) -> SnapshotResult<()> {
        let unsure = |state: &PageState| *state == PageState::Unsure;
        let mut at = first;
        for run in states.chunk_by(|one, other| unsure(one) == unsure(other)) {
            let count = run.len() as u32;
            if unsure(&run[0]) {
                self.copier.fetch(at, count);
            }
            at += count;
        }
        let mut page = [0; PAGE];
        for (index, _) in (first..).zip(states).filter(|(_, state)| unsure(state)) {
            self.copier.read(PageIndex(index), &mut page)?;
        }
        Ok(())
    }

    /// Writes a page to the file, if the file has other contents of it.
    fn take(&mut self, index: u32, state: PageState, page: &Page) -> SnapshotResult<()> {
        let place = index as usize;
        let full = *page != [0; PAGE];
        if full || self.full[place] {
            self.copier.write(PageIndex(index), page)?;
        }
        self.full[place] = full;
        self.known[place] = state;
        Ok(())
    }

    /// Holds all pages, and copies those that have changed.
    fn last_round(&mut self) -> SnapshotResult<()> {
        let mut attempt = 1;
        loop {
            let begun = Instant::now();
            let hold = Hold::begin(self.copier.segment)?;
            let copied = self.copy_held(begun);
            let ended = hold.end();
            self.stopped += begun.elapsed();
            // The disk may be slow, so nothing is written while stores wait.
            for (index, state, page) in copied? {
                self.take(index, state, &page)?;
            }
            match ended {
                Err(Error::Refused(Refusal::Limit(_))) if attempt < ATTEMPTS => attempt += 1,
                ended => return Ok(ended?),
            }
        }
    }

    /// The pages that have changed since they were copied, with all pages held. If that takes
    /// longer than a hold lasts, only some: the hold's end tells.
    fn copy_held(&mut self, begun: Instant) -> SnapshotResult<Vec<(u32, PageState, Box<Page>)>> {
        let mut copied = Vec::new();
        let mut index = 0;
        while index < self.copier.pages {
            self.copier.tell(index)?;
            let states = self.fetched(index)?;
            if states.contains(&PageState::Unsure) {
                if begun.elapsed() > LONGEST {
                    break;
                }
                // A page that was on its way to another node comes back.
                continue;
            }
            for state in states {
                if state != self.known[index as usize] {
                    let mut page = Box::new([0; PAGE]);
                    self.copier.read(PageIndex(index), &mut page)?;
                    copied.push((index, state, page));
                }
                index += 1;
            }
        }
        Ok(copied)
    }
}

/// What is on this node of a segment does not change anywhere while this exists.
struct Hold<'s> {
    segment: &'s Segment,
    over: bool,
}

impl<'s> Hold<'s> {
    fn begin(segment: &'s Segment) -> Result<Self> {
        let request = Request::Hold {
            segment: segment.id(),
        };
        segment.mesh().done(request)?;
        let over = false;
        Ok(Self { segment, over })
    }

    /// Lets pages change again. An error says that they could before.
    fn end(mut self) -> Result<()> {
        self.over = true;
        self.segment.mesh().done(Request::EndHold {
            segment: self.segment.id(),
        })
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        if !self.over {
            let segment = self.segment.id();
            let connection = self.segment.mesh().connection();
            connection.tell(Request::EndHold { segment });
        }
    }
}
