//! The memory of one host: frames, twins, diffs, rights, as a driver keeps them, in
//! whole pages; twins and diffs in the daemon's own store.

use pagemesh_core::{Afterwards, Mappings, Rights, Source};
use pagemesh_diff::Page;
use pagemesh_reduce::{capture, merge, update_twin};
use pagemesh_sorted::SortedMap;
use pagemesh_twins::{At, DiffKey, Keep, REWRITTEN, Store};
use pagemesh_wire::peer::{DiffName, Diffs, Rule};
use pagemesh_wire::{MappingId, PageIndex, SegmentId, VectorTime};
use std::collections::{BTreeMap, BTreeSet};

/// What a simulated driver does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The last of the diffs to be merged is left out.
    MergeForgetsLast,
    /// Diffs are merged in the opposite order.
    MergeBackwards,
    /// What was done to numbers travels and is merged as bytes.
    RulesForgotten,
    /// A refreshed twin is what the frame is when the next store has come.
    TwinNotMade,
    /// Pages that stayed writable are said not to have changed, whatever is in them.
    LookedAway,
    /// A backup says that it has what it was named, and forgets it.
    KeptTooSoon,
}

/// One page on one host.
#[derive(Default)]
struct Slot {
    frame: Option<Box<Page>>,
    stash: Option<Box<Page>>,
    rights: SortedMap<MappingId, Rights>,
}

/// Everything a host keeps of the one segment.
#[derive(Default)]
pub(super) struct Memory {
    slots: BTreeMap<PageIndex, Slot>,
    /// Twins and diffs, in what the daemon keeps them in.
    changes: Store,
    /// Mappings and pages whose threads may run again.
    pub(super) woken: Vec<(Option<MappingId>, PageIndex)>,
    /// The most diffs there ever were.
    pub(super) most: usize,
    /// The kernel serves the first access to each page.
    pub(super) untrapped: bool,
    /// Pages whose first access it served, and that have no twin yet.
    served: BTreeSet<PageIndex>,
    planted: Option<Planted>,
}

pub(super) use crate::small::Check;

/// What came behind a datagram.
#[derive(Clone, Copy, Default)]
pub(super) struct Tail<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) diffs: Option<&'a Diffs>,
}

impl Memory {
    pub(super) fn new(planted: Option<Planted>) -> Self {
        Self {
            planted,
            ..Self::default()
        }
    }

    /// A thread accesses a page, perhaps one that the kernel gives it unseen.
    fn access(&mut self, mapping: MappingId, page: PageIndex) {
        if self.untrapped {
            let slot = self.slots.entry(page).or_default();
            slot.frame
                .get_or_insert_with(|| Box::new([0; pagemesh_diff::PAGE]));
            slot.rights.insert(mapping, Rights::Write);
            self.served.insert(page);
        }
    }

    /// From now on all first accesses fault. Returns the pages that have frames.
    pub(super) fn trap(&mut self) -> Vec<PageIndex> {
        self.untrapped = false;
        self.served.iter().copied().collect()
    }

    pub(super) fn load(&mut self, mapping: MappingId, page: PageIndex, at: usize) -> Option<u8> {
        self.access(mapping, page);
        let slot = self.slots.get(&page)?;
        let frame = slot.frame.as_ref()?;
        (*slot.rights.get(&mapping)? >= Rights::Read).then(|| frame[at])
    }

    pub(super) fn store(
        &mut self,
        mapping: MappingId,
        page: PageIndex,
        at: usize,
        value: u8,
    ) -> bool {
        self.access(mapping, page);
        let Some(slot) = self.slots.get_mut(&page) else {
            return false;
        };
        let may = slot.rights.get(&mapping) == Some(&Rights::Write);
        if let Some(frame) = slot.frame.as_mut().filter(|_| may) {
            frame[at] = value;
        }
        may && slot.frame.is_some()
    }

    fn contents(&self, page: PageIndex, source: Source, tail: Tail<'_>) -> Check<Box<Page>> {
        let slot = self.slots.get(&page);
        let found = match source {
            Source::Zero => Some(Box::new([0; pagemesh_diff::PAGE])),
            Source::Payload => tail.bytes.try_into().ok().map(Box::new),
            Source::Frame => slot.and_then(|slot| slot.frame.clone()),
            Source::Disk | Source::Kept(_) => None,
            Source::Replica(place) => self.slots.get(&place).and_then(|slot| slot.stash.clone()),
            Source::Stash => slot.and_then(|slot| slot.stash.clone()),
            Source::Twin => {
                let twin = self.changes.twin_of(at(page));
                twin.and_then(|twin| twin.try_into().ok()).map(Box::new)
            }
            // Only policy views sends parts of pages; `views` of this crate simulates it.
            Source::Prefix(_) => None,
        };
        found.ok_or_else(|| format!("{page} is taken from {source:?}, where there is nothing"))
    }

    /// The bytes that go behind a message.
    pub(super) fn page_of(&self, page: PageIndex, source: Source) -> Check<Box<Page>> {
        self.contents(page, source, Tail::default())
    }

    fn put(&mut self, page: PageIndex, contents: Box<Page>) -> Check {
        let slot = self.slots.entry(page).or_default();
        if !slot.rights.is_empty() {
            return Err(format!("{page} is filled while {:?}", slot.rights));
        }
        slot.frame = Some(contents);
        Ok(())
    }

    /// The frame gets contents. No mapping has rights to it now.
    pub(super) fn fill(&mut self, page: PageIndex, source: Source, tail: Tail<'_>) -> Check {
        let contents = self.contents(page, source, tail)?;
        self.put(page, contents)
    }

    /// Where there are `twins`, a page that may be stored to has one.
    pub(super) fn map(
        &mut self,
        mapping: MappingId,
        (page, rights): (PageIndex, Rights),
        twins: bool,
    ) -> Check {
        let twin = !twins || self.changes.twin_of(at(page)).is_some();
        let slot = self.slots.entry(page).or_default();
        if slot.frame.is_none() {
            return Err(format!("{page} is mapped, but its frame is empty"));
        }
        if rights == Rights::Write && !twin {
            return Err(format!("{page} becomes writable without a twin"));
        }
        slot.rights.insert(mapping, rights);
        self.woken.push((Some(mapping), page));
        Ok(())
    }

    pub(super) fn protect(&mut self, mappings: Mappings, page: PageIndex) {
        for (mapping, rights) in &mut self.slots.entry(page).or_default().rights {
            if mappings.contains(*mapping) {
                *rights = (*rights).min(Rights::Read);
            }
        }
    }

    pub(super) fn evict(&mut self, page: PageIndex, keep: bool) -> Check {
        let slot = self.slots.entry(page).or_default();
        slot.rights.clear();
        let frame = slot.frame.take();
        if keep {
            slot.stash = Some(frame.ok_or(format!("{page} is kept, but is empty"))?);
        }
        self.woken.push((None, page));
        Ok(())
    }

    pub(super) fn stow(&mut self, page: PageIndex, tail: Tail<'_>) -> Check {
        let contents = self.contents(page, Source::Payload, tail)?;
        self.slots.entry(page).or_default().stash = Some(contents);
        Ok(())
    }

    pub(super) fn drop_stash(&mut self, page: PageIndex) {
        self.slots.entry(page).or_default().stash = None;
    }

    /// Before twins and diffs change: there may be more of them than ever.
    pub(super) fn count(&mut self) {
        self.most = self.most.max(self.changes.counts().1);
    }

    pub(super) fn drop_twin(&mut self, page: PageIndex) -> Check {
        self.nobody_writes(page)?;
        let twin = self.changes.twin_of(at(page)).map(|_| ());
        self.changes.drop_twin(at(page));
        twin.ok_or(format!("{page} has no twin to drop"))
    }

    pub(super) fn merge(
        &mut self,
        page: PageIndex,
        (source, tail): (Source, Tail<'_>),
        (names, rules): (&[DiffName], &[Rule]),
    ) -> Check {
        let mut contents = self.contents(page, source, tail)?;
        self.apply(names, rules, &mut contents)?;
        self.put(page, contents)
    }

    pub(super) fn forget(&mut self, upto: &VectorTime) {
        let through = |node| upto.get(node);
        self.changes.forget_through(SegmentId::default(), through);
    }

    /// These programs are properly labelled: nobody writes what somebody else writes
    /// without knowing of it.
    pub(super) fn compare(&mut self, pairs: &[(DiffName, DiffName)]) -> Check {
        for (one, other) in pairs {
            let races = self.changes.overlap(key(one), key(other));
            let races = races.map_err(|why| why.to_string())?;
            if !races.is_empty() {
                return Err(format!(
                    "a race that is none: {one:?}, {other:?}, {races:?}"
                ));
            }
        }
        Ok(())
    }

    /// Whether a page is as its twin is.
    pub(super) fn is_untouched(&self, page: PageIndex) -> bool {
        let twin = self.changes.twin_of(at(page));
        let frame = self.slots.get(&page).and_then(|slot| slot.frame.as_ref());
        let untouched = frame.is_some_and(|frame| twin == Some(&frame[..]));
        untouched || (twin.is_some() && self.planted == Some(Planted::LookedAway))
    }

    /// How many twins and how many diffs there are.
    pub(super) fn held(&self) -> (usize, usize) {
        self.changes.counts()
    }

    fn frame(&self, page: PageIndex) -> Check<Box<Page>> {
        self.contents(page, Source::Frame, Tail::default())
    }

    pub(super) fn twin(&mut self, page: PageIndex, source: Source) -> Check {
        if self.served.remove(&page) && source == Source::Zero {
            let made = self.changes.twin_of_zeros(at(page));
            return made.map_err(|why| why.to_string());
        }
        self.nobody_writes(page)?;
        if source == Source::Zero {
            if *self.frame(page)? != [0; pagemesh_diff::PAGE] {
                return Err(format!("{page} gets a twin of zeros, and is none"));
            }
            let made = self.changes.twin_of_zeros(at(page));
            return made.map_err(|why| why.to_string());
        }
        let planted = self.planted == Some(Planted::TwinNotMade);
        if planted && self.changes.twin_of(at(page)).is_some() {
            return Ok(());
        }
        let frame = self.frame(page)?;
        let made = self.changes.twin(at(page), &*frame);
        made.map_err(|why| why.to_string())
    }

    /// Writes down what changed since the twin was made; false if nothing did.
    pub(super) fn diff(&mut self, name: DiffName, then: Afterwards, rules: &[Rule]) -> Check<bool> {
        let page = name.page;
        if self.changes.has_diff(key(&name)) {
            return Err(format!("INV-diff-is-final: {name:?} is made twice"));
        }
        let frame = self.frame(page)?;
        let keep = match then {
            Afterwards::Drop => Keep::Nothing,
            Afterwards::Refresh => Keep::Twin,
        };
        if keep == Keep::Nothing {
            self.nobody_writes(page)?;
        }
        let twin = self.changes.twin_of(at(page)).map(<[u8]>::to_vec);
        // Whole pages are rarely rewritten here; so every other diff is deferred that can be.
        let even = name.interval.is_multiple_of(2);
        self.changes.defer_from(if even { 0 } else { REWRITTEN });
        let rules = self.heeded(rules).to_vec();
        let made = capture(&mut self.changes, key(&name), &frame, (keep, &rules));
        let changed = made.map_err(|why| why.to_string())?;
        if let Some(twin) = twin.filter(|_| self.planted == Some(Planted::TwinNotMade)) {
            let made = self.changes.twin(at(page), &twin);
            made.map_err(|why| why.to_string())?;
        }
        Ok(changed > 0)
    }

    /// The rules, unless it is planted that they are not heeded.
    fn heeded<'a>(&self, rules: &'a [Rule]) -> &'a [Rule] {
        match self.planted {
            Some(Planted::RulesForgotten) => &[],
            _ => rules,
        }
    }

    pub(super) fn keep(&mut self, names: &[DiffName], tail: Tail<'_>) -> Check {
        let mut rest = tail.bytes;
        for (name, length) in tail.diffs.into_iter().flat_map(|diffs| &diffs.diffs) {
            let (encoded, after) = rest.split_at(usize::from(*length));
            rest = after;
            if names.contains(name) {
                let kept = self.changes.insert(key(name), encoded);
                kept.map_err(|why| why.to_string())?;
            }
        }
        let lacks = |name: &&DiffName| !self.changes.has_diff(key(name));
        match names.iter().find(lacks) {
            Some(name) => Err(format!("{name:?} shall be kept, but did not come")),
            None => Ok(()),
        }
    }

    fn apply(&mut self, names: &[DiffName], rules: &[Rule], contents: &mut Page) -> Check {
        let mut names = names.to_vec();
        match self.planted {
            Some(Planted::MergeForgetsLast) => {
                names.pop();
            }
            Some(Planted::MergeBackwards) => names.reverse(),
            _ => {}
        }
        let keys = names.iter().map(key);
        let rules = self.heeded(rules).to_vec();
        let merged = merge(&mut self.changes, keys, &rules, contents);
        merged.map_err(|why| why.to_string())
    }

    pub(super) fn update(
        &mut self,
        page: PageIndex,
        (names, rules): (&[DiffName], &[Rule]),
    ) -> Check {
        let mut frame = self.frame(page)?;
        self.apply(names, rules, &mut frame)?;
        self.slots.entry(page).or_default().frame = Some(frame);
        for name in names {
            let rules = self.heeded(rules).to_vec();
            let updated = update_twin(&mut self.changes, key(name), &rules);
            updated.map_err(|why| why.to_string())?;
        }
        Ok(())
    }

    fn nobody_writes(&self, page: PageIndex) -> Check {
        let slot = self.slots.get(&page);
        let mut rights = slot.into_iter().flat_map(|slot| slot.rights.values());
        if rights.any(|rights| *rights == Rights::Write) {
            return Err(format!("{page} may still be stored to"));
        }
        Ok(())
    }

    /// The messages in which these diffs travel, each with its tail.
    pub(super) fn pack(
        &mut self,
        names: &[DiffName],
        at_most: u16,
        template: &Diffs,
    ) -> Check<Vec<(Diffs, Vec<u8>)>> {
        let mut packed = vec![(template.clone(), Vec::new())];
        for name in names {
            let encoded = self.changes.diff(key(name));
            let encoded = encoded.map_err(|why| format!("{name:?} is sent: {why}"))?;
            if encoded.len() > usize::from(at_most) {
                continue;
            }
            if packed
                .last()
                .is_some_and(|(_, tail)| tail.len() + encoded.len() > 12_000)
            {
                packed.push((template.clone(), Vec::new()));
            }
            if let Some((message, tail)) = packed.last_mut() {
                message.diffs.push((*name, encoded.len() as u16));
                tail.extend_from_slice(encoded);
            }
        }
        packed.retain(|(message, _)| !message.diffs.is_empty());
        Ok(packed)
    }
}

/// There is one segment here.
fn at(page: PageIndex) -> At {
    (SegmentId::default(), page)
}

fn key(name: &DiffName) -> DiffKey {
    DiffKey {
        segment: SegmentId::default(),
        page: name.page,
        node: name.node,
        interval: name.interval,
    }
}
