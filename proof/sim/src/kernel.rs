//! The simulated kernel of one host: frames, stash, rights, sleeping threads and lock words. It
//! carries out effects exactly as the driver's law says, and asserts that law.

mod changes;
mod words;

use crate::canary::Canary;
use crate::check::{Check, ensure};
use crate::golden::{WORDS, Words};
use pagemesh_core::{At, Mappings, PageRange, Rights, Source, Time};
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{Message, Pass, Subject};
use pagemesh_wire::{ClientId, MappingId, PAGE_SIZE, PageIndex, SegmentId, SyncKey};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One page of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PageKey {
    pub(crate) segment: SegmentId,
    pub(crate) page: PageIndex,
}

impl From<At> for PageKey {
    fn from((segment, page): At) -> Self {
        Self { segment, page }
    }
}

impl fmt::Display for PageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let serial = self.segment.0 & 0xffff_ffff_ffff;
        write!(f, "s{}.{serial}:{}", self.segment.home().0, self.page.0)
    }
}

impl PageKey {
    /// The page that a message grants or copies.
    pub(crate) fn granted_by(message: &Message) -> Option<Self> {
        let (segment, page) = match message {
            Message::Data(data) => (data.segment, data.page),
            Message::Pass(Pass {
                subject: Subject::Page { segment, page },
                ..
            }) => (*segment, *page),
            _ => return None,
        };
        Some(Self { segment, page })
    }
}

/// A thread of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ThreadId(pub(crate) usize);

/// A mapping of a segment in a process of this host.
#[derive(Clone, Copy, Debug, Hash)]
struct Mapping {
    segment: SegmentId,
    client: ClientId,
}

/// The state of one page on this host.
#[derive(Clone, Debug, Default, Hash)]
struct Slot {
    frame: Option<Words>,
    stash: Option<Words>,
    rights: Vec<(MappingId, Rights)>,
    /// Threads that sleep in a fault on the page.
    sleepers: Vec<(MappingId, ThreadId)>,
    /// Threads that a `Map` woke and that have not run since, with the time of the wake-up.
    users: Vec<(ThreadId, Time)>,
    /// Pins of the page, each with the time at which it ends at the latest.
    pins: Vec<Time>,
}

impl Slot {
    fn may(&self, mapping: MappingId) -> Rights {
        self.rights
            .iter()
            .find(|(id, _)| *id == mapping)
            .map_or(Rights::None, |(_, rights)| *rights)
    }

    fn most(&self) -> Rights {
        self.rights
            .iter()
            .map(|(_, rights)| *rights)
            .max()
            .unwrap_or_default()
    }
}

/// The result of reclaiming a lent token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Returned {
    /// The lock was free; the token is back now.
    Back,
    /// A client holds the lock and will tell the daemon when it releases it.
    Marked,
    /// The token came back already; the input that says so has not reached the node yet.
    UnderWay,
}

/// The kernel of one host.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Kernel {
    slots: BTreeMap<PageKey, Slot>,
    mappings: SortedMap<MappingId, Mapping>,
    words: SortedMap<SyncKey, u32>,
    changes: changes::Changes,
    /// Segments to whose pages this kernel gives all rights at the first access.
    untrapped: BTreeSet<SegmentId>,
    /// Pages whose first access this kernel served, and that have no twin yet.
    served: BTreeSet<PageKey>,
    /// Threads that an effect woke; the world schedules them.
    pub(crate) woken: Vec<ThreadId>,
    canary: Option<Canary>,
}

/// Memory, as effects change it.
impl Kernel {
    /// The kernel of a host without processes.
    pub(crate) fn new(canary: Option<Canary>) -> Self {
        Self {
            canary,
            ..Self::default()
        }
    }

    /// Puts contents into the frame of a page to which no mapping has rights.
    pub(crate) fn fill(&mut self, key: PageKey, words: Words) -> Check {
        let slot = self.slots.entry(key).or_default();
        ensure!(
            slot.most() == Rights::None,
            FillBeforeMap,
            "{key} is filled while mappings have {:?}",
            slot.rights
        );
        slot.frame = Some(words);
        Ok(())
    }

    /// Gives one mapping rights to a filled page and wakes its threads.
    /// Returns the contents.
    pub(crate) fn map(
        &mut self,
        now: Time,
        mapping: MappingId,
        key: PageKey,
        rights: Rights,
    ) -> Check<Words> {
        let known = self.mappings.get(&mapping);
        ensure!(
            known.is_some_and(|known| known.segment == key.segment),
            Law,
            "{key} is mapped into {mapping}, which is {known:?}"
        );
        ensure!(
            rights != Rights::None,
            Law,
            "{key} is mapped without rights"
        );
        let slot = self.slots.entry(key).or_default();
        let Some(words) = slot.frame else {
            ensure!(
                false,
                FillBeforeMap,
                "{key} is mapped, but its frame is empty"
            );
            unreachable!()
        };
        slot.rights.retain(|(id, _)| *id != mapping);
        slot.rights.push((mapping, rights));
        let mut woken = Vec::new();
        slot.sleepers.retain(|(id, thread)| {
            let wakes = *id == mapping;
            if wakes {
                woken.push(*thread);
            }
            !wakes
        });
        slot.users.extend(woken.iter().map(|thread| (*thread, now)));
        self.woken.append(&mut woken);
        Ok(words)
    }

    /// Takes away the right to store in mappings.
    pub(crate) fn protect(&mut self, mappings: Mappings, key: PageKey) {
        if self.canary == Some(Canary::ProtectForgotten) {
            return;
        }
        let Some(slot) = self.slots.get_mut(&key) else {
            return;
        };
        for (id, rights) in &mut slot.rights {
            if mappings.contains(*id) {
                *rights = (*rights).min(Rights::Read);
            }
        }
    }

    /// Takes away all rights, empties the frame, and wakes the threads that sleep in a fault
    /// there.
    pub(crate) fn evict(&mut self, now: Time, key: PageKey, keep: bool) -> Check {
        if self.canary == Some(Canary::InvalidateIgnored) && !keep {
            return Ok(());
        }
        let slot = self.slots.entry(key).or_default();
        check_pins(slot, now, key)?;
        if keep {
            ensure!(
                slot.frame.is_some(),
                StashBeforeSend,
                "{key} shall be kept, but its frame is empty"
            );
            slot.stash = slot.frame;
        }
        if self.canary == Some(Canary::EvictMissesMapping) && slot.rights.len() > 1 {
            slot.rights.truncate(1);
        } else {
            slot.rights.clear();
            slot.frame = None;
        }
        slot.users.clear();
        self.woken
            .extend(slot.sleepers.drain(..).map(|(_, thread)| thread));
        Ok(())
    }

    /// Puts contents that had no frame into the stash.
    pub(crate) fn stow(&mut self, key: PageKey, words: Words) {
        self.slots.entry(key).or_default().stash = Some(words);
    }

    /// Drops the stash of a page, which is not needed any more.
    pub(crate) fn drop_stash(&mut self, key: PageKey) {
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.stash = None;
        }
    }

    /// Drops all memory of a segment.
    pub(crate) fn forget(&mut self, segment: SegmentId) -> Check {
        for (key, slot) in of_segment_mut(&mut self.slots, segment) {
            ensure!(
                slot.most() == Rights::None,
                Law,
                "{key} is forgotten while mappings have {:?}",
                slot.rights
            );
            slot.frame = None;
            slot.stash = None;
        }
        Ok(())
    }

    /// The contents that `source` denotes, for a datagram or a frame.
    pub(crate) fn contents(
        &self,
        key: PageKey,
        source: Source,
        payload: Option<&[u8]>,
    ) -> Check<Words> {
        let slot = self.slots.get(&key);
        let words = match source {
            Source::Zero => Some([0; WORDS]),
            Source::Frame => slot.and_then(|slot| slot.frame),
            Source::Stash => slot.and_then(|slot| slot.stash),
            Source::Twin => self.twin_of(key),
            Source::Payload => payload.map(words_of),
            // Only policy views sends parts of pages; `views` of this crate simulates it.
            Source::Prefix(_) => None,
            Source::Disk | Source::Kept(_) => None,
            Source::Replica(page) => {
                let kept = self.slots.get(&PageKey { page, ..key });
                kept.and_then(|slot| slot.stash)
            }
        };
        let Some(words) = words else {
            ensure!(
                false,
                StashBeforeSend,
                "{key} is taken from {source:?}, where there is nothing"
            );
            unreachable!()
        };
        if self.canary == Some(Canary::StashForgotten) && source == Source::Stash {
            return Ok([0; WORDS]);
        }
        Ok(words)
    }
}

fn check_pins(slot: &Slot, now: Time, key: PageKey) -> Check {
    ensure!(
        slot.pins.iter().all(|until| *until <= now),
        Pinned,
        "{key} is taken away although it is pinned until {:?}",
        slot.pins
    );
    Ok(())
}

fn of_segment_mut(
    slots: &mut BTreeMap<PageKey, Slot>,
    segment: SegmentId,
) -> impl Iterator<Item = (PageKey, &mut Slot)> {
    let first = PageKey {
        segment,
        page: PageIndex(0),
    };
    let last = PageKey {
        segment,
        page: PageIndex(u32::MAX),
    };
    slots
        .range_mut(first..=last)
        .map(|(key, slot)| (*key, slot))
}

/// Memory, as threads use it.
impl Kernel {
    /// A thread accesses a page, perhaps one of an untrapped segment. Returns the contents that it
    /// finds if it is given the page only now.
    pub(crate) fn access(&mut self, mapping: MappingId, key: PageKey) -> Option<Words> {
        if !self.untrapped.contains(&key.segment) {
            return None;
        }
        let slot = self.slots.entry(key).or_default();
        if slot.may(mapping) == Rights::Write {
            return None;
        }
        slot.rights.push((mapping, Rights::Write));
        self.served.insert(key);
        Some(*slot.frame.get_or_insert([0; WORDS]))
    }

    /// The kernel serves the accesses to a segment.
    pub(crate) fn leave_untrapped(&mut self, segment: SegmentId) {
        self.untrapped.insert(segment);
    }

    /// The accesses to a segment fault from now on. Returns the pages that have frames.
    pub(crate) fn trap(&mut self, segment: SegmentId) -> Vec<PageRange> {
        self.untrapped.remove(&segment);
        let unlisted = usize::from(self.canary == Some(Canary::FrameUnlisted));
        of_segment_mut(&mut self.slots, segment)
            .filter(|(_, slot)| slot.frame.is_some())
            .map(|(key, _)| (segment, key.page).into())
            .skip(unlisted)
            .collect()
    }

    /// A load; `None` if it faults.
    pub(crate) fn load(&self, mapping: MappingId, key: PageKey, word: usize) -> Option<u64> {
        let slot = self.slots.get(&key)?;
        let frame = slot.frame.as_ref()?;
        (slot.may(mapping) >= Rights::Read).then(|| frame[word])
    }

    /// A store; false if it faults.
    pub(crate) fn store(
        &mut self,
        mapping: MappingId,
        key: PageKey,
        word: usize,
        value: u64,
    ) -> bool {
        let Some(slot) = self.slots.get_mut(&key) else {
            return false;
        };
        let may = slot.may(mapping) == Rights::Write;
        match &mut slot.frame {
            Some(frame) if may => {
                frame[word] = value;
                true
            }
            _ => false,
        }
    }

    /// A thread sleeps at a page until it is woken.
    pub(crate) fn sleep(&mut self, mapping: MappingId, key: PageKey, thread: ThreadId) {
        self.slots
            .entry(key)
            .or_default()
            .sleepers
            .push((mapping, thread));
    }

    /// A woken thread has run.
    pub(crate) fn ran(&mut self, thread: ThreadId, key: PageKey) {
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.users.retain(|(user, _)| *user != thread);
        }
    }

    /// A thread is gone: it sleeps at the page no more, and the kernel does not wait for it to
    /// run.
    pub(crate) fn thread_gone(&mut self, thread: ThreadId, key: PageKey) {
        self.ran(thread, key);
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.sleepers.retain(|(_, sleeper)| *sleeper != thread);
        }
    }

    /// True if every thread that was woken for the page has run since.
    pub(crate) fn used(&self, key: PageKey) -> bool {
        self.slots
            .get(&key)
            .is_none_or(|slot| slot.users.is_empty())
    }

    /// When the first of the woken threads that have not run yet was woken.
    pub(crate) fn unused_since(&self, key: PageKey) -> Option<Time> {
        self.slots
            .get(&key)?
            .users
            .iter()
            .map(|(_, since)| *since)
            .min()
    }

    /// Pins the page until this time at the latest.
    pub(crate) fn pin(&mut self, key: PageKey, until: Time) {
        self.slots.entry(key).or_default().pins.push(until);
    }

    /// A thread unpins the page. Pins have no names, so this may end the pin of any thread: all
    /// pins of the page are forgotten, and nothing is asserted about them any more.
    pub(crate) fn unpin(&mut self, key: PageKey) {
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.pins.clear();
        }
    }

    /// The host leaves, with or without pins.
    pub(crate) fn unpin_all(&mut self) {
        for slot in self.slots.values_mut() {
            slot.pins.clear();
        }
    }

    /// Takes the threads that sleep at the page in this mapping; they get a SIGBUS.
    pub(crate) fn sleepers(&mut self, mapping: MappingId, key: PageKey) -> Vec<ThreadId> {
        let Some(slot) = self.slots.get_mut(&key) else {
            return Vec::new();
        };
        let failed = slot.sleepers.extract_if(.., |(id, _)| *id == mapping);
        failed.map(|(_, thread)| thread).collect()
    }
}

/// Mappings.
impl Kernel {
    /// Adds a mapping.
    pub(crate) fn mapped(&mut self, mapping: MappingId, segment: SegmentId, client: ClientId) {
        self.mappings.insert(mapping, Mapping { segment, client });
    }

    /// The mappings of a segment that an effect concerns.
    pub(crate) fn mappings(&self, mappings: Mappings, segment: SegmentId) -> Vec<MappingId> {
        if let Mappings::One(mapping) = mappings {
            return vec![mapping];
        }
        let of_segment = |known: &(&MappingId, &Mapping)| known.1.segment == segment;
        let known = self.mappings.iter().filter(of_segment);
        known.map(|(id, _)| *id).collect()
    }

    /// Removes a mapping.
    pub(crate) fn unmapped(&mut self, mapping: MappingId) {
        let Some(gone) = self.mappings.remove(&mapping) else {
            return;
        };
        for (_, slot) in of_segment_mut(&mut self.slots, gone.segment) {
            slot.rights.retain(|(id, _)| *id != mapping);
            slot.sleepers.retain(|(id, _)| *id != mapping);
        }
    }

    /// Removes the mappings of a client that is gone.
    pub(crate) fn client_gone(&mut self, client: ClientId) {
        let theirs: Vec<MappingId> = self
            .mappings
            .iter()
            .filter(|(_, mapping)| mapping.client == client)
            .map(|(id, _)| *id)
            .collect();
        for mapping in theirs {
            self.unmapped(mapping);
        }
    }

    /// The highest rights that any mapping on this host has to a page.
    pub(crate) fn rights(&self, key: PageKey) -> Rights {
        self.slots.get(&key).map_or(Rights::None, Slot::most)
    }

    /// True if the frame of a page has contents.
    pub(crate) fn has_frame(&self, key: PageKey) -> bool {
        self.slots
            .get(&key)
            .is_some_and(|slot| slot.frame.is_some())
    }

    /// True if the frame or the stash of a page has these contents.
    pub(crate) fn holds(&self, key: PageKey, words: &Words) -> bool {
        let Some(slot) = self.slots.get(&key) else {
            return false;
        };
        [&slot.frame, &slot.stash]
            .into_iter()
            .flatten()
            .any(|held| held == words)
    }

    /// True if the frame of a page has these contents.
    pub(crate) fn shows(&self, key: PageKey, words: &Words) -> bool {
        let slot = self.slots.get(&key);
        slot.is_some_and(|slot| slot.frame.as_ref() == Some(words))
    }

    /// Pages that occupy memory on this host.
    pub(crate) fn resident(&self) -> impl Iterator<Item = PageKey> {
        let takes_memory = |slot: &Slot| slot.frame.is_some() || slot.stash.is_some();
        self.slots
            .iter()
            .filter(move |(_, slot)| takes_memory(slot))
            .map(|(key, _)| *key)
    }
}

/// Appends a compact page to a datagram, in the layout of the wire.
pub(crate) fn append_page(words: &Words, datagram: &mut Vec<u8>) {
    let start = datagram.len();
    for word in words {
        datagram.extend_from_slice(&word.to_le_bytes());
    }
    datagram.resize(start + PAGE_SIZE, 0);
}

/// The compact page in the payload of a datagram.
fn words_of(payload: &[u8]) -> Words {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(payload.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("chunks of eight are eight"));
    }
    words
}

#[cfg(test)]
pub(crate) mod tests;
