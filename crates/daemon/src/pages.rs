//! Puts pages into frames and mappings and takes them out without losing a store.
//!
//! Contents belong to frames, rights to mappings. Placing writes the frame and the mapping in one
//! call where possible; revoking first stops stores, then copies, then empties the frame, then
//! wakes. A failed call wakes no thread, so every error is followed by a wake; the thread repeats
//! its access and faults again.

use crate::counters::{Count, Counters};
use crate::diff_store::Changes;
use crate::mapping::{Mapping, Mappings};
use crate::payload::Payload;
use crate::segment::{Segment, Segments};
use crate::stash::Stash;
use crate::unplaced_contents::UnplacedContents;
use pagemesh_core::{At, PageRange, Rights, Source};
use pagemesh_os::memfd::{PAGE, PageBytes};
use pagemesh_os::uffd::{FaultKind, Outcome};
use pagemesh_wire::{MappingId, PageIndex, SegmentId};
use std::sync::LazyLock;

mod prepared;
mod take;
mod trap;

/// All pages on this node.
#[derive(Debug)]
pub(crate) struct Pages {
    /// Frames.
    pub(crate) segments: Segments,
    /// Rights.
    pub(crate) mappings: Mappings,
    /// Contents that left their frames.
    pub(crate) stash: Stash,
    /// Twins and diffs.
    pub(crate) changes: Changes,
    /// Unplaced contents: frames for which there is no memory.
    pub(crate) waiting: UnplacedContents,
    /// After a takeover: an effect may have been carried out by the previous daemon already, and
    /// programs may have gone on since.
    pub(crate) again: bool,
    /// Protection is switched off, for the control run of a test.
    pub(crate) unprotected: bool,
    /// The frame that was allocated last ahead of its contents. It has none yet, unless they came
    /// for another thread.
    prepared: Option<At>,
}

/// New contents of a frame.
#[derive(Debug)]
pub(crate) enum Fresh {
    /// Contents from this source.
    From(Source),
    /// Contents after diffs were applied.
    Merged(Box<PageBytes>),
}

const ZEROS: &PageBytes = &[0; PAGE];

/// Zeros for as many pages as one effect may have.
static MANY_ZEROS: LazyLock<Vec<PageBytes>> = LazyLock::new(|| vec![[0; PAGE]; 64]);
const LENGTH: u64 = PAGE as u64;

/// Attempts of a call that the kernel wants repeated.
const TRIES: usize = 100;

impl Fresh {
    /// Contents for the first `count` pages of a fill, if they need not be looked for.
    pub(crate) fn zeros(&self, count: usize) -> &'static [PageBytes] {
        match self {
            Self::From(Source::Zero) => &MANY_ZEROS[..count.min(MANY_ZEROS.len())],
            _ => &[],
        }
    }
}

impl Pages {
    /// Without pages, except those in the stash and the diff store.
    pub(crate) fn new(stash: Stash, changes: Changes) -> Self {
        Self {
            segments: Segments::default(),
            mappings: Mappings::default(),
            stash,
            changes,
            waiting: UnplacedContents::default(),
            again: false,
            unprotected: false,
            prepared: None,
        }
    }

    /// Appends contents to a datagram; false if they are not there.
    pub(crate) fn append(
        &self,
        at: At,
        source: Source,
        payload: Payload<'_>,
        datagram: &mut Vec<u8>,
    ) -> bool {
        let waiting = || self.waiting.get(at).filter(|_| source == Source::Frame);
        if let Some(bytes) =
            known((&self.stash, &self.changes), at, source, payload).or_else(waiting)
        {
            datagram.extend_from_slice(bytes);
            return true;
        }
        if let Source::Prefix(bytes) = source {
            let start = datagram.len();
            let there = self.append(at, Source::Frame, payload, datagram);
            datagram.truncate(start + usize::from(bytes));
            datagram.resize(start + PAGE, 0);
            return there;
        }
        if source != Source::Frame {
            return false;
        }
        let Some(segment) = self.segments.get(at.0) else {
            let given_back = self.segments.is_given_back(at.0);
            if given_back {
                datagram.extend_from_slice(ZEROS);
            }
            return given_back;
        };
        segment.append(at.1, datagram).is_ok()
    }

    /// Writes contents into a frame, over what is there.
    pub(crate) fn fill(&mut self, at: At, fresh: &Fresh, payload: Payload<'_>) {
        if matches!(fresh, Fresh::From(Source::Frame)) {
            return;
        }
        // Only a process that maps the segment can have stored since. Frames for pages of files, which
        // none maps, may still have the contents of another page.
        if self.again && self.has(at) && !self.ids_of(at.0).is_empty() {
            return;
        }
        if let Fresh::From(Source::Prefix(bytes)) = fresh {
            return self.fill_prefix(at, usize::from(*bytes), payload);
        }
        let Some(bytes) = fresh_bytes((&self.stash, &self.changes), at, fresh, payload) else {
            tracing::error!(segment = %at.0, page = %at.1, ?fresh, "contents are not there");
            return;
        };
        put((&mut self.segments, &mut self.waiting), at, bytes);
    }

    /// Writes the first bytes of a page that came into a frame; the others stay.
    fn fill_prefix(&mut self, at: At, bytes: usize, payload: Payload<'_>) {
        let Some(page) = payload.page() else {
            tracing::error!(segment = %at.0, page = %at.1, "contents are not there");
            return;
        };
        if let Some(mut whole) = self.waiting.leave(at) {
            whole[..bytes].copy_from_slice(&page[..bytes]);
            return self.put(at, &whole);
        }
        let segment = self.segments.receive(at.0);
        if !segment.is_ok_and(|segment| segment.write_some(at.1, 0, &page[..bytes]).is_ok()) {
            let mut whole = *ZEROS;
            whole[..bytes].copy_from_slice(&page[..bytes]);
            self.put(at, &whole);
        }
    }

    /// Writes these bytes into a frame, over what is there.
    pub(crate) fn put(&mut self, at: At, bytes: &PageBytes) {
        put((&mut self.segments, &mut self.waiting), at, bytes);
    }

    /// Contents from a source other than a frame.
    pub(crate) fn contents<'a>(
        &'a self,
        at: At,
        source: Source,
        payload: Payload<'a>,
    ) -> Option<&'a PageBytes> {
        known((&self.stash, &self.changes), at, source, payload)
    }

    /// Writes contents into a frame and gives one mapping the page.
    pub(crate) fn place(
        &mut self,
        id: MappingId,
        at: At,
        rights: Rights,
        fresh: &Fresh,
        payload: Payload<'_>,
        counters: &mut Counters,
    ) {
        let write = rights == Rights::Write;
        let mapping = self.mappings.get(id).filter(|mapping| mapping.write);
        let target = mapping.and_then(|mapping| Some((mapping, mapping.place.address(at.1)?)));
        let bytes = fresh_bytes((&self.stash, &self.changes), at, fresh, payload);
        let prepared = self.prepared.take_if(|prepared| *prepared == at);
        if let (Some((mapping, address)), Some(bytes), None) = (target, bytes, prepared) {
            match mapping.uffd.copy(address, bytes, write) {
                Outcome::Done => return counters.add(Count::PagesPlaced, 1),
                // The previous daemon placed it, and the program may have stored to it since.
                Outcome::AlreadyThere if self.again => {}
                // A process put a page there. The frame must have the contents that the core names.
                Outcome::AlreadyThere if self.has(at) => counters.add(Count::FramesOverwritten, 1),
                // The mapping is gone; the frame still needs the contents.
                _ => {}
            }
        }
        self.fill(at, fresh, payload);
        self.map(id, at, rights, None, counters);
    }

    /// As [`Pages::place`], for consecutive pages whose contents came with datagrams. Returns how
    /// many were placed, from the first on; the next one must be placed by itself.
    pub(crate) fn place_run(
        &self,
        id: MappingId,
        (of, first): At,
        rights: Rights,
        pages: &[PageBytes],
        counters: &mut Counters,
    ) -> usize {
        let Some(mapping) = self.mappings.get(id).filter(|mapping| mapping.write) else {
            return 0;
        };
        let pages = &pages[..self.unprepared((of, first), pages.len())];
        let last = PageIndex(first.0 + (pages.len() as u32).saturating_sub(1));
        let (Some(address), Some(_)) = (mapping.place.address(first), mapping.place.address(last))
        else {
            return 0;
        };
        if pages.is_empty() {
            return 0;
        }
        let write = rights == Rights::Write;
        let placed = mapping.uffd.copy_run(address, pages, write);
        counters.add(Count::PagesPlaced, placed as u64);
        placed
    }

    /// Gives one mapping the page in the frame. `found` is the kind of the thread's fault: it may
    /// spare a system call.
    pub(crate) fn map(
        &mut self,
        id: MappingId,
        at: At,
        rights: Rights,
        found: Option<FaultKind>,
        counters: &mut Counters,
    ) {
        let write = rights == Rights::Write;
        for _ in 0..TRIES {
            let Some(mapping) = self.mappings.get(id) else {
                return;
            };
            let Some(address) = mapping.place.address(at.1) else {
                return;
            };
            if write && mapping.write && found == Some(FaultKind::WriteProtect) {
                // The page is present and protected. If it is gone by now, the thread faults again.
                mapping.uffd.unprotect(address, LENGTH);
                return;
            }
            match show(mapping, address, write) {
                Outcome::Done => return counters.add(Count::PagesPlaced, 1),
                Outcome::Retry => {}
                Outcome::NotThere => self.restore(at, counters),
                other => {
                    if !matches!(other, Outcome::AlreadyThere | Outcome::Gone) {
                        counters.add(Count::PlacingFailed, 1);
                        tracing::debug!(mapping = %id, page = %at.1, ?other, "not mapped");
                    }
                    break;
                }
            }
        }
        self.wake(id, at.1);
    }

    /// Lets one mapping store to pages that it may load, all at once. False if they must be given
    /// to it one by one. Where a page is not mapped, the next access faults.
    pub(crate) fn let_store_run(&self, id: MappingId, pages: PageRange) -> bool {
        let mapping = self.mappings.get(id).filter(|mapping| mapping.write);
        let part = mapping.and_then(|mapping| Some((mapping, mapping.place.part(pages)?)));
        part.is_some_and(|(mapping, (address, length))| {
            mapping.uffd.unprotect(address, length) == Outcome::Done
        })
    }

    /// Refills a frame that is unexpectedly empty: there was no memory for it, or a process with
    /// write access punched a hole, which means zeros.
    fn restore(&mut self, at: At, counters: &mut Counters) {
        let Some(bytes) = self.waiting.leave(at) else {
            counters.add(Count::FramesPunched, 1);
            return self.fill(at, &Fresh::From(Source::Zero), Payload::NONE);
        };
        counters.add(Count::FramesWaited, 1);
        if write(&mut self.segments, at, &bytes).is_err() {
            self.waiting.enter(at, &bytes);
        }
    }

    fn wake(&self, id: MappingId, page: PageIndex) {
        if let Some(mapping) = self.mappings.get(id)
            && let Some(address) = mapping.place.address(page)
        {
            mapping.uffd.wake(address, LENGTH);
        }
    }

    /// Puts contents that never had a frame into the stash.
    pub(crate) fn keep(&mut self, at: At, bytes: &PageBytes) {
        let kept = self.stash.keep(at.0, at.1, |room| {
            *room = *bytes;
            Ok(())
        });
        if let Err(error) = kept {
            tracing::error!(segment = %at.0, page = %at.1, %error, "a page cannot be kept");
        }
    }

    /// Whether the page's frame has contents.
    pub(crate) fn has(&self, at: At) -> bool {
        let segment = self.segments.get(at.0);
        segment.is_some_and(|segment| segment.has(at.1))
    }

    /// Poisons the page in one mapping: accesses fail. False if the kernel cannot.
    pub(crate) fn poison(&self, id: MappingId, at: At) -> bool {
        let Some(mapping) = self.mappings.get(id) else {
            return true;
        };
        let Some(address) = mapping.place.address(at.1) else {
            return true;
        };
        // The write protection must go before the page can be poisoned.
        mapping.uffd.unprotect(address, LENGTH);
        match mapping.uffd.poison(address, LENGTH) {
            Outcome::Done | Outcome::Gone => true,
            // Either the page is poisoned already, for another thread; or it can be read but not
            // written here: then it is taken out for a moment.
            Outcome::AlreadyThere => self
                .segments
                .get(at.0)
                .is_some_and(|segment| poison_present(segment, mapping, at.1, address)),
            _ => false,
        }
    }

    /// Mappings that contain a page, with its address in each.
    pub(crate) fn mappings_of(&self, at: At) -> impl Iterator<Item = (&Mapping, u64)> {
        self.ids_of(at.0).iter().filter_map(move |id| {
            let mapping = self.mappings.get(*id)?;
            Some((mapping, mapping.place.address(at.1)?))
        })
    }

    /// The mappings of a segment.
    pub(crate) fn ids_of(&self, segment: SegmentId) -> &[MappingId] {
        let segment = self.segments.get(segment);
        segment.map_or(&[], |segment| &segment.mappings)
    }

    /// Removes a mapping.
    pub(crate) fn unmap(&mut self, id: MappingId) -> Option<Mapping> {
        let mapping = self.mappings.remove(id)?;
        if let Some(segment) = self.segments.get_mut(mapping.segment) {
            segment.mappings.retain(|other| *other != id);
        }
        Some(mapping)
    }
}

/// Writes contents into a frame, or keeps them unplaced until there is memory.
fn put((segments, waiting): (&mut Segments, &mut UnplacedContents), at: At, bytes: &PageBytes) {
    match write(segments, at, bytes) {
        Ok(()) => drop(waiting.leave(at)),
        Err(error) => {
            if waiting.enter(at, bytes) {
                tracing::error!(
                    segment = %at.0, page = %at.1,
                    "no memory for a page of the segment ({error:#}); free some, or close programs",
                );
            }
        }
    }
}

/// Writes contents into a frame.
fn write(segments: &mut Segments, at: At, bytes: &PageBytes) -> anyhow::Result<()> {
    Ok(segments.receive(at.0)?.write(at.1, bytes)?)
}

/// Bytes of new contents that need not be read from a frame.
fn fresh_bytes<'a>(
    rests: (&'a Stash, &'a Changes),
    at: At,
    fresh: &'a Fresh,
    payload: Payload<'a>,
) -> Option<&'a PageBytes> {
    match fresh {
        Fresh::From(source) => known(rests, at, *source, payload),
        Fresh::Merged(bytes) => Some(bytes),
    }
}

/// Contents from a source other than a frame.
fn known<'a>(
    (stash, changes): (&'a Stash, &'a Changes),
    at: At,
    source: Source,
    payload: Payload<'a>,
) -> Option<&'a PageBytes> {
    match source {
        Source::Payload => payload.page(),
        Source::Zero => Some(ZEROS),
        Source::Stash => stash.get(at.0, at.1),
        Source::Kept(slot) => stash.get(SegmentId::KEPT_FILES, slot),
        Source::Replica(place) => stash.get(at.0, place),
        Source::Twin => changes.twin_of(at).and_then(|twin| twin.try_into().ok()),
        Source::Frame | Source::Prefix(_) | Source::Disk => None,
    }
}

/// Maps the page in the frame. A private mapping copies at a store by itself; if it were protected,
/// its threads would fault for ever.
fn show(mapping: &Mapping, address: u64, write: bool) -> Outcome {
    match mapping.uffd.map(address, LENGTH, write || !mapping.write) {
        Outcome::AlreadyThere if write && mapping.write => {
            mapping.uffd.unprotect(address, LENGTH);
            Outcome::AlreadyThere
        }
        other => other,
    }
}

fn poison_present(segment: &Segment, mapping: &Mapping, page: PageIndex, address: u64) -> bool {
    if !segment.has_memory(page) {
        return true;
    }
    let mut bytes = [0; PAGE];
    if mapping.write {
        mapping.uffd.protect(address, LENGTH);
    }
    if segment.read(page, &mut bytes).is_err() || segment.punch(page).is_err() {
        return false;
    }
    mapping.uffd.unprotect(address, LENGTH);
    let outcome = mapping.uffd.poison(address, LENGTH);
    let poisoned = matches!(outcome, Outcome::Done | Outcome::AlreadyThere);
    segment.write(page, &bytes).is_ok() && poisoned
}
