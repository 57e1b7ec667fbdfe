//! Where twins and diffs rest: memory that outlives the daemon. Without them stores
//! of this node's programs would be lost, though the programs live on.
//!
//! Bytes lie in slots of a few sizes, each under a label that names them. A label is
//! written last, so that the next daemon finds all of something or nothing.

use pagemesh_os::memfd::PAGE;
use pagemesh_os::region::{Region, Shape};
use pagemesh_twins::{DiffKey, Full, Label, Slots, Store};
use pagemesh_wire::{NodeId, PageIndex, SegmentId};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Twins and diffs of this node.
pub(crate) type Changes = Store<DiffStore>;

/// Room for labelled bytes.
#[derive(Debug)]
pub(crate) struct DiffStore {
    region: Region,
    rows: [Row; SIZES.len()],
}

/// The slots of one size.
#[derive(Debug, Default)]
struct Row {
    /// Slots used before and free now.
    free: Vec<usize>,
    /// Free slots whose memory was given back.
    cold: Vec<usize>,
    /// Slots never used yet: this one and all behind it.
    fresh: usize,
    /// Slots before this one have had memory given to them.
    ready: usize,
}

/// A slot: which row, which slot of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    row: u8,
    slot: u32,
}

/// Bytes of the slots of each row, whole pages first, so that their memory can be
/// given back. Most diffs are short; the longest has a little more than a page.
const SIZES: [usize; 5] = [PAGE, 64, 256, 1024, 4736];

/// Slots of each row: address space for some 40 GiB, not memory. The core bounds the diffs that are
/// held by collecting them; but it needs a twin of each page that is written between two
/// synchronizations: 16 GiB of them.
const SLOTS: usize = 1 << 22;

/// Free slots of a page each that keep their memory, 256 MiB: a program that stores to an array in
/// each of its phases gets as many twins again in the next one, and twice as many where no
/// collection came between. Giving the memory back and getting it again takes longer than copying
/// a page. It is given back when a segment goes, or when the host is short of memory.
const WARM: usize = 1 << 16;

/// Of these, the ones that keep their memory when a segment goes.
const WARM_LEAST: usize = 1024;

/// Memory that is given to the next slots in advance, in bytes of each size in use: for a dozen
/// phases of a program, since not every phase has a long wait in which to give more.
const AHEAD: usize = 256 << 10;

/// Memory given at a time, in bytes: some 3 µs, for which a datagram may have to wait.
const STEP: usize = PAGE;

/// Once so many bytes of a size were in use, memory is given to this much more at a time: one call
/// takes less than a page fault for each page.
const BATCH: usize = 128 << 10;

/// Words of a label: the segment; the page and one, or zero if the slot is free; the
/// interval; and the rest: length, node, and what it is.
const LABEL: usize = 4;

/// In a label without these bits is a twin.
const DIFF: u64 = 1 << 63;
const BEFORE: u64 = 1 << 62;
const AFTER: u64 = 1 << 61;
const KINDS: u64 = DIFF | BEFORE | AFTER;

const SHAPE: Shape = Shape {
    words: SIZES.len() * SLOTS * LABEL,
    bytes: offset(SIZES.len(), 0),
};

/// Where a slot begins.
const fn offset(row: usize, slot: usize) -> usize {
    let (mut before, mut at) = (0, 0);
    while at < row {
        before += SIZES[at] * SLOTS;
        at += 1;
    }
    before
        + if row < SIZES.len() {
            SIZES[row] * slot
        } else {
            0
        }
}

const _: () = assert!(SIZES[SIZES.len() - 1] >= pagemesh_diff::LONGEST);

impl DiffStore {
    /// An empty diff store.
    pub(crate) fn create() -> io::Result<Self> {
        Ok(Self::over(Region::create("pagemesh-twins", SHAPE)?))
    }

    /// The diff store of a dead daemon, and the places of its diffs.
    pub(crate) fn adopt(fd: OwnedFd) -> io::Result<(Self, Vec<(Label, Place)>)> {
        let mut diff_store = Self::over(Region::map(fd, SHAPE)?);
        let mut found = Vec::new();
        for row in 0..SIZES.len() {
            let mut slot = 0;
            // Slots are used from the front, so behind the last label comes nothing.
            while slot < SLOTS && diff_store.word(row, slot, 0).load(Ordering::Acquire) != 0 {
                let place = Place {
                    row: row as u8,
                    slot: slot as u32,
                };
                match diff_store.label(place) {
                    Some(label) => found.push((label, place)),
                    None => diff_store.rows[row].free.push(slot),
                }
                slot += 1;
            }
            diff_store.rows[row].fresh = slot;
        }
        Ok((diff_store, found))
    }

    fn over(region: Region) -> Self {
        Self {
            region,
            rows: Default::default(),
        }
    }

    /// Gives memory to the next slots while no thread waits; otherwise it would be given at first
    /// touch, while a thread waits. Only for rows that are in use, a step for one of them at a
    /// time.
    pub(crate) fn look_ahead(&mut self) {
        let mut rows = self.rows.iter_mut().enumerate();
        let Some((number, row)) = rows.find(|(number, row)| row.wants(AHEAD / SIZES[*number]))
        else {
            return;
        };
        let first = row.ready.max(row.fresh);
        self.give_memory(number, first, STEP);
    }

    /// Gives memory to the slots from this one on, so many bytes of them.
    fn give_memory(&mut self, number: usize, first: usize, bytes: usize) {
        let ready = (first + (bytes / SIZES[number]).max(1)).min(SLOTS);
        self.rows[number].ready = ready;
        let bytes = offset(number, first)..offset(number, ready);
        if let Err(error) = self.region.populate(bytes) {
            // Then it gets its memory when it is touched.
            tracing::debug!(%error, "no memory is given ahead");
        }
    }

    /// Gives the memory of a free slot back.
    fn chill(&mut self, row: usize, slot: usize) {
        let start = offset(row, slot);
        if let Err(error) = self.region.clear(start..start + PAGE) {
            tracing::debug!(%error, "memory of twins stays taken");
        }
        self.rows[row].cold.push(slot);
    }

    fn word(&self, row: usize, slot: usize, index: usize) -> &AtomicU64 {
        self.region.word((row * SLOTS + slot) * LABEL + index)
    }

    fn label(&self, place: Place) -> Option<Label> {
        let load = |index| {
            let word = self.word(place.row.into(), place.slot as usize, index);
            word.load(Ordering::Acquire)
        };
        let page = u32::try_from(load(1).checked_sub(1)?).ok()?;
        let (segment, page) = (SegmentId(load(0)), PageIndex(page));
        let rest = load(3);
        let key = DiffKey {
            segment,
            page,
            node: NodeId((rest >> 32) as u16),
            interval: load(2),
        };
        Some(match rest & KINDS {
            DIFF => Label::Diff(key),
            BEFORE => Label::Before(key),
            AFTER => Label::After(key),
            _ => Label::Twin((segment, page)),
        })
    }

    fn write_label(&self, place: Place, label: Label, length: usize) {
        let word = |index| self.word(place.row.into(), place.slot as usize, index);
        let of =
            |key: DiffKey, kind| (key.at(), key.interval, kind | (u64::from(key.node.0) << 32));
        let (at, interval, rest) = match label {
            Label::Twin(at) => (at, 0, 0),
            Label::Diff(key) => of(key, DIFF),
            Label::Before(key) => of(key, BEFORE),
            Label::After(key) => of(key, AFTER),
        };
        word(2).store(interval, Ordering::Release);
        word(3).store(rest | length as u64, Ordering::Release);
        word(0).store(at.0.0, Ordering::Release);
        // Last of all, since it makes the rest believed.
        word(1).store(u64::from(at.1.0) + 1, Ordering::Release);
    }

    fn range(&self, place: Place) -> Range<usize> {
        let (row, slot) = (usize::from(place.row), place.slot as usize);
        let rest = self.word(row, slot, 3).load(Ordering::Relaxed);
        let length = (rest & u64::from(u32::MAX)) as usize;
        let start = offset(row, slot);
        start..start + length.min(SIZES[row])
    }
}

impl Row {
    /// Whether fewer slots than so many that come next have their memory.
    fn wants(&self, slots: usize) -> bool {
        let ready = self.ready.saturating_sub(self.fresh);
        let used = self.fresh > 0 && self.free.is_empty();
        used && ready < slots && self.ready.max(self.fresh) < SLOTS
    }

    /// Whether a slot that was just taken was never used, and has no memory yet.
    fn is_touched_first(&self, slot: usize) -> bool {
        slot + 1 == self.fresh && slot >= self.ready
    }

    fn take(&mut self) -> Option<usize> {
        let used = self.free.pop().or_else(|| self.cold.pop());
        used.or_else(|| {
            let slot = self.fresh;
            (slot < SLOTS).then(|| {
                self.fresh += 1;
                slot
            })
        })
    }
}

/// The smallest slot that holds so many bytes.
fn row_for(length: usize) -> Option<usize> {
    let fitting = (0..SIZES.len()).filter(|row| SIZES[*row] >= length);
    fitting.min_by_key(|row| SIZES[*row])
}

impl Slots for DiffStore {
    type Slot = Place;

    fn keep(&mut self, label: Label, bytes: &[u8]) -> Result<Place, Full> {
        let row = row_for(bytes.len()).ok_or(Full)?;
        let slot = self.rows[row].take().ok_or(Full)?;
        if self.rows[row].is_touched_first(slot) && slot * SIZES[row] >= BATCH {
            self.give_memory(row, slot, BATCH);
        }
        let start = offset(row, slot);
        self.region.bytes_mut()[start..start + bytes.len()].copy_from_slice(bytes);
        let place = Place {
            row: row as u8,
            slot: slot as u32,
        };
        self.write_label(place, label, bytes.len());
        Ok(place)
    }

    fn bytes(&self, place: Place) -> &[u8] {
        &self.region.bytes()[self.range(place)]
    }

    fn bytes_mut(&mut self, place: Place) -> &mut [u8] {
        let range = self.range(place);
        &mut self.region.bytes_mut()[range]
    }

    fn relabel(&mut self, place: Place, label: Label) -> Place {
        let length = self.range(place).len();
        // The page stays the same, and a twin has no interval; so the word that says what it is
        // changes everything at once.
        self.write_label(place, label, length);
        place
    }

    fn free(&mut self, place: Place) {
        let (row, slot) = (usize::from(place.row), place.slot as usize);
        self.word(row, slot, 1).store(0, Ordering::Release);
        if SIZES[row] != PAGE || self.rows[row].free.len() < WARM {
            self.rows[row].free.push(slot);
        } else {
            self.chill(row, slot);
        }
    }

    fn rest(&mut self) {
        for row in (0..SIZES.len()).filter(|row| SIZES[*row] == PAGE) {
            let free = &mut self.rows[row].free;
            for slot in free.split_off(free.len().min(WARM_LEAST)) {
                self.chill(row, slot);
            }
        }
    }
}

impl AsFd for DiffStore {
    /// The descriptor to keep for the next daemon.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.region.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_diff::{LONGEST, encode};
    use pagemesh_twins::{Keep, Store};

    fn key(page: u32, interval: u64) -> DiffKey {
        DiffKey {
            segment: SegmentId(1 << 48),
            page: PageIndex(page),
            node: NodeId(127),
            interval,
        }
    }

    fn restart(store: Store<DiffStore>) -> Store<DiffStore> {
        let fd = store.slots().as_fd().try_clone_to_owned().unwrap();
        drop(store);
        let (diff_store, found) = DiffStore::adopt(fd).unwrap();
        Store::adopt(diff_store, found)
    }

    #[test]
    fn memory_is_there_before_it_is_needed_where_more_is_to_come() {
        let mut diff_store = DiffStore::create().unwrap();
        diff_store.look_ahead();
        assert_eq!(
            diff_store.rows.each_ref().map(|row| row.ready),
            [0; SIZES.len()]
        );
        let mut kept = Vec::new();
        for number in 0..40 {
            let at = (SegmentId(1), PageIndex(number));
            kept.push(diff_store.keep(Label::Twin(at), &[7; PAGE]).unwrap());
            let before = diff_store.rows[0].ready.max(diff_store.rows[0].fresh);
            diff_store.look_ahead();
            let row = &diff_store.rows[0];
            assert!(row.ready <= before + 1, "a little at a time: {row:?}");
            (0..2 * AHEAD / PAGE).for_each(|_| diff_store.look_ahead());
            let row = &diff_store.rows[0];
            assert_eq!(row.ready, row.fresh + AHEAD / PAGE, "and no more");
        }
        let ready = diff_store.rows[0].ready;
        diff_store.free(kept[0]);
        diff_store.rows[0].fresh = ready;
        diff_store.look_ahead();
        assert_eq!(diff_store.rows[0].ready, ready, "a used slot comes first");
        assert!(
            kept.iter()
                .skip(1)
                .all(|place| diff_store.bytes(*place) == [7; PAGE])
        );
    }

    #[test]
    fn many_slots_get_their_memory_together_and_keep_it_until_a_segment_goes() {
        let mut store = Store::new(DiffStore::create().unwrap());
        let phase = |store: &mut Store<DiffStore>| {
            let pages = 0..2048;
            let twin = |page| store.twin(key(page, 1).at(), &[page as u8; PAGE]).unwrap();
            pages.clone().for_each(twin);
            let row = &store.slots().rows[0];
            let ahead = row.ready.saturating_sub(row.fresh);
            assert!(ahead < BATCH / PAGE, "{ahead} slots ahead");
            let kept =
                |page| store.twin_of(key(page, 1).at()) == Some([page as u8; PAGE].as_slice());
            assert!(pages.clone().all(kept));
            (row.fresh, pages)
        };
        let (fresh, pages) = phase(&mut store);
        assert!(
            store.slots().rows[0].ready >= fresh,
            "no slot was touched first"
        );
        pages.for_each(|page| store.drop_twin(key(page, 1).at()));
        assert!(store.slots().rows[0].cold.is_empty());
        assert_eq!(phase(&mut store).0, fresh, "the same slots");
        store.forget(SegmentId(1 << 48));
        let row = &store.slots().rows[0];
        assert_eq!(
            (row.free.len(), row.cold.len()),
            (WARM_LEAST, 2048 - WARM_LEAST)
        );
        let cold = Place {
            row: 0,
            slot: row.cold[0] as u32,
        };
        let start = offset(0, cold.slot as usize);
        assert_eq!(store.slots().region.bytes()[start..start + PAGE], [0; PAGE]);
        assert_eq!(phase(&mut store).0, fresh, "cold slots are used again");
    }

    #[test]
    fn bytes_of_every_length_are_kept() {
        let mut diff_store = DiffStore::create().unwrap();
        let lengths = [0, 8, 64, 65, 256, 257, 1024, 1025, 4096, 4097, LONGEST];
        let contents: Vec<Vec<u8>> = lengths
            .iter()
            .map(|length| (0..*length).map(|at| (at + length) as u8).collect())
            .collect();
        let mut places = Vec::new();
        for (interval, bytes) in (1..).zip(&contents) {
            places.push(
                diff_store
                    .keep(Label::Diff(key(0, interval)), bytes)
                    .unwrap(),
            );
        }
        for (place, bytes) in places.iter().zip(&contents) {
            assert_eq!(diff_store.bytes(*place), bytes);
        }
        let too_long = vec![0; LONGEST + PAGE];
        assert_eq!(
            diff_store.keep(Label::Diff(key(1, 1)), &too_long),
            Err(Full)
        );
    }

    #[test]
    fn the_next_daemon_goes_on_with_twins_and_diffs() {
        let mut store = Store::new(DiffStore::create().unwrap());
        let mut page = [0; PAGE];
        for index in 0..2000 {
            page[8] = index as u8;
            store.twin(key(index, 1).at(), &page).unwrap();
            if index % 3 != 0 {
                page[9] = index as u8;
                let keep = if index % 3 == 1 {
                    Keep::Twin
                } else {
                    Keep::Nothing
                };
                store.capture(key(index, 7), &page, keep).unwrap();
            }
        }
        for index in 1000..2000 {
            store.drop_twin(key(index, 1).at());
        }
        let before = (store.counts(), store.bytes());
        let mut store = restart(store);
        assert_eq!((store.counts(), store.bytes()), before);
        for index in 0..1000u32 {
            let twin = store.twin_of(key(index, 1).at());
            let expected = (index % 3 != 2).then_some(index as u8);
            assert_eq!(twin.map(|twin| twin[8]), expected, "page {index}");
            assert_eq!(store.has_diff(key(index, 7)), index % 3 != 0);
        }
        store.forget(SegmentId(1 << 48));
        assert_eq!((store.counts(), store.bytes()), ((0, 0), 0));
        let fresh = store.slots().rows[0].fresh;
        store.twin(key(0, 1).at(), &page).unwrap();
        assert_eq!(
            store.slots().rows[0].fresh,
            fresh,
            "old slots are used again"
        );
        assert_eq!(restart(store).counts(), (1, 0));
    }

    #[test]
    fn a_diff_that_was_kept_before_the_end_is_not_made_again() {
        let mut store = Store::new(DiffStore::create().unwrap());
        let (twin, mut page) = ([0; PAGE], [0; PAGE]);
        store.twin(key(0, 1).at(), &twin).unwrap();
        page[5] = 1;
        let mut diff = Vec::new();
        encode(&twin, &page, &mut diff);
        // The daemon ended after it had kept the diff, before the twin followed.
        store.insert(key(0, 1), &diff).unwrap();
        let mut store = restart(store);
        page[6] = 1;
        assert_eq!(store.capture(key(0, 1), &page, Keep::Twin), Ok(1));
        assert_eq!(store.capture(key(0, 2), &page, Keep::Nothing), Ok(1));
        assert_eq!(store.diff(key(0, 1)), Ok(diff.as_slice()));
    }

    #[test]
    fn the_next_daemon_makes_what_was_deferred() {
        let at = key(0, 1).at();
        for dropped in [false, true] {
            let mut store = Store::new(DiffStore::create().unwrap());
            store.twin(at, &[1; PAGE]).unwrap();
            store.capture(key(0, 1), &[2; PAGE], Keep::Twin).unwrap();
            if dropped {
                store.drop_twin(at);
            }
            let held = (store.counts(), store.bytes());
            let mut store = restart(store);
            assert_eq!((store.counts(), store.bytes()), held);
            assert!(store.made(key(0, 1)).is_err(), "not yet");
            let again = store.capture(key(0, 1), &[3; PAGE], Keep::Twin);
            assert_eq!(again, Ok(PAGE), "its last operation once more");
            let twin = store.twin_of(at);
            assert_eq!(twin, (!dropped).then_some([2; PAGE].as_slice()));
            let mut page = [1; PAGE];
            store.merge([key(0, 1)].into_iter(), &mut page).unwrap();
            assert_eq!(page, [2; PAGE]);
        }
    }

    #[test]
    fn a_daemon_may_end_at_each_step_of_deferring() {
        let at = key(0, 1).at();
        // After the former twin got its new label: there is no twin.
        let mut store = Store::new(DiffStore::create().unwrap());
        store.twin(at, &[1; PAGE]).unwrap();
        let place = Place { row: 0, slot: 0 };
        store.slots_mut().relabel(place, Label::Before(key(0, 1)));
        let mut store = restart(store);
        store.capture(key(0, 1), &[3; PAGE], Keep::Twin).unwrap();
        assert_eq!(store.twin_of(at), Some([3; PAGE].as_slice()));
        // After the diff was made, and before what it was made of was dropped.
        let mut diff = Vec::new();
        encode(&[1; PAGE], &[3; PAGE], &mut diff);
        store
            .slots_mut()
            .keep(Label::Diff(key(0, 1)), &diff)
            .unwrap();
        let mut store = restart(store);
        assert_eq!(store.counts(), (1, 1));
        assert_eq!(store.diff(key(0, 1)), Ok(diff.as_slice()));
    }
}
