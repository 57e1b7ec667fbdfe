//! The memory of one host: frames, twins, diffs, rights, as a driver keeps them,
//! in whole pages and with the real diffs.

use pagemesh_core::{Afterwards, DiffWork, Effect, Rights, Source};
use pagemesh_diff::{Diff, Page, encode};
use pagemesh_wire::peer::{DiffName, Diffs};
use pagemesh_wire::{MappingId, PageIndex};
use std::collections::BTreeMap;

/// What a simulated driver does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The last of the diffs to be merged is left out.
    MergeForgetsLast,
    /// Diffs are merged in the opposite order.
    MergeBackwards,
    /// A refreshed twin is what the frame is when the next store has come.
    TwinNotMade,
}

/// One page on one host.
#[derive(Default)]
struct Slot {
    frame: Option<Box<Page>>,
    stash: Option<Box<Page>>,
    twin: Option<Box<Page>>,
    rights: BTreeMap<MappingId, Rights>,
}

/// Everything a host keeps of the one segment.
#[derive(Default)]
pub(super) struct Memory {
    slots: BTreeMap<PageIndex, Slot>,
    pub(super) diffs: BTreeMap<DiffName, Vec<u8>>,
    /// Mappings and pages whose threads may run again.
    pub(super) woken: Vec<(Option<MappingId>, PageIndex)>,
    /// Refreshed twins that had not changed.
    pub(super) unchanged: Vec<PageIndex>,
    planted: Option<Planted>,
}

/// Something broke the driver's law or the memory's.
pub(super) type Check<T = ()> = Result<T, String>;

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

    pub(super) fn load(&self, mapping: MappingId, page: PageIndex, at: usize) -> Option<u8> {
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
            Source::Stash => slot.and_then(|slot| slot.stash.clone()),
            Source::Twin => slot.and_then(|slot| slot.twin.clone()),
        };
        found.ok_or_else(|| format!("{page} is taken from {source:?}, where there is nothing"))
    }

    /// The bytes that go behind a message.
    pub(super) fn page_of(&self, page: PageIndex, source: Source) -> Check<Box<Page>> {
        self.contents(page, source, Tail::default())
    }

    fn fill(&mut self, page: PageIndex, contents: Box<Page>) -> Check {
        let slot = self.slots.entry(page).or_default();
        if !slot.rights.is_empty() {
            return Err(format!("{page} is filled while {:?}", slot.rights));
        }
        slot.frame = Some(contents);
        Ok(())
    }

    /// Carries out an effect on pages; others are none of its business.
    pub(super) fn carry_out(&mut self, effect: &Effect, tail: Tail<'_>) -> Check {
        match effect {
            Effect::Fill { page, source, .. } => {
                let contents = self.contents(*page, *source, tail)?;
                self.fill(*page, contents)
            }
            Effect::Map {
                mapping,
                page,
                rights,
                ..
            } => {
                let slot = self.slots.entry(*page).or_default();
                if slot.frame.is_none() {
                    return Err(format!("{page} is mapped, but its frame is empty"));
                }
                if *rights == Rights::Write && slot.twin.is_none() {
                    return Err(format!("{page} becomes writable without a twin"));
                }
                slot.rights.insert(*mapping, *rights);
                self.woken.push((Some(*mapping), *page));
                Ok(())
            }
            Effect::Protect { page, .. } => {
                for rights in self.slots.entry(*page).or_default().rights.values_mut() {
                    *rights = (*rights).min(Rights::Read);
                }
                Ok(())
            }
            Effect::Evict { page, keep, .. } => {
                let slot = self.slots.entry(*page).or_default();
                slot.rights.clear();
                let frame = slot.frame.take();
                if *keep {
                    slot.stash = Some(frame.ok_or(format!("{page} is kept, but is empty"))?);
                }
                self.woken.push((None, *page));
                Ok(())
            }
            Effect::DropStash { page, .. } => {
                self.slots.entry(*page).or_default().stash = None;
                Ok(())
            }
            Effect::Diffs(work) => self.work(work, tail),
            _ => Ok(()),
        }
    }

    fn work(&mut self, work: &DiffWork, tail: Tail<'_>) -> Check {
        match work {
            DiffWork::Twin { page, .. } => self.twin(*page),
            DiffWork::Diff { name, then, .. } => self.diff(*name, *then),
            DiffWork::DropTwin { page, .. } => {
                let slot = self.slots.entry(*page).or_default();
                nobody_writes(*page, slot)?;
                slot.twin
                    .take()
                    .map(|_| ())
                    .ok_or(format!("{page} has no twin to drop"))
            }
            DiffWork::Keep { names, .. } => {
                let mut rest = tail.bytes;
                for (name, length) in tail.diffs.into_iter().flat_map(|diffs| &diffs.diffs) {
                    let (encoded, after) = rest.split_at(usize::from(*length));
                    rest = after;
                    if names.contains(name) {
                        self.diffs.entry(*name).or_insert_with(|| encoded.to_vec());
                    }
                }
                let kept = |name: &DiffName| self.diffs.contains_key(name);
                match names.iter().find(|name| !kept(name)) {
                    Some(name) => Err(format!("{name:?} shall be kept, but did not come")),
                    None => Ok(()),
                }
            }
            DiffWork::Merge {
                page,
                source,
                names,
                ..
            } => {
                let mut contents = self.contents(*page, *source, tail)?;
                self.apply(names, &mut contents)?;
                self.fill(*page, contents)
            }
            DiffWork::Update { page, names, .. } => self.update(*page, names),
            DiffWork::Forget { upto, .. } => {
                self.diffs
                    .retain(|name, _| !upto.has(name.node, name.interval));
                Ok(())
            }
            DiffWork::Send { .. } => Ok(()),
            DiffWork::Compare { pairs, .. } => self.compare(pairs),
        }
    }

    /// These programs are properly labelled: nobody writes what somebody else writes
    /// without knowing of it.
    fn compare(&self, pairs: &[(DiffName, DiffName)]) -> Check {
        for (one, other) in pairs {
            let of = |name: &DiffName| {
                let encoded = self.diffs.get(name);
                encoded.ok_or_else(|| format!("{name:?} is compared, but not here"))
            };
            let (first, second) = (of(one)?, of(other)?);
            let malformed = |_| format!("{one:?} or {other:?} is no diff");
            let first = Diff::check(first).map_err(malformed)?;
            let second = Diff::check(second).map_err(malformed)?;
            let races = first.overlap(&second);
            if !races.is_empty() {
                return Err(format!(
                    "a race that is none: {one:?}, {other:?}, {races:?}"
                ));
            }
        }
        Ok(())
    }

    fn twin(&mut self, page: PageIndex) -> Check {
        let planted = self.planted == Some(Planted::TwinNotMade);
        let slot = self.slots.entry(page).or_default();
        nobody_writes(page, slot)?;
        if !(planted && slot.twin.is_some()) {
            slot.twin.clone_from(&slot.frame);
        }
        slot.twin
            .as_ref()
            .map(|_| ())
            .ok_or(format!("{page} has no frame to copy"))
    }

    fn diff(&mut self, name: DiffName, then: Afterwards) -> Check {
        let page = name.page;
        let planted = self.planted == Some(Planted::TwinNotMade);
        let slot = self.slots.entry(page).or_default();
        let (Some(twin), Some(frame)) = (&slot.twin, &slot.frame) else {
            return Err(format!(
                "{name:?} is made, but there is no twin or no frame"
            ));
        };
        let mut encoded = Vec::new();
        encode(twin, frame, &mut encoded);
        if self.diffs.insert(name, encoded).is_some() {
            return Err(format!("INV-diff-is-final: {name:?} is made twice"));
        }
        match then {
            Afterwards::Drop => {
                nobody_writes(page, slot)?;
                if !planted {
                    slot.twin = None;
                }
            }
            Afterwards::Refresh => {
                if slot.twin == slot.frame {
                    self.unchanged.push(page);
                }
                slot.twin.clone_from(&slot.frame);
            }
        }
        Ok(())
    }

    fn apply(&self, names: &[DiffName], contents: &mut Page) -> Check {
        let mut names = names.to_vec();
        match self.planted {
            Some(Planted::MergeForgetsLast) => {
                names.pop();
            }
            Some(Planted::MergeBackwards) => names.reverse(),
            _ => {}
        }
        for name in names {
            let encoded = self.diffs.get(&name);
            let encoded = encoded.ok_or_else(|| format!("{name:?} is merged, but not here"))?;
            Diff::check(encoded)
                .map_err(|why| why.to_string())?
                .apply(contents);
        }
        Ok(())
    }

    fn update(&mut self, page: PageIndex, names: &[DiffName]) -> Check {
        let mut slot = self.slots.remove(&page).unwrap_or_default();
        for contents in [&mut slot.frame, &mut slot.twin].into_iter().flatten() {
            self.apply(names, contents)?;
        }
        self.slots.insert(page, slot);
        Ok(())
    }

    /// The messages in which these diffs travel, each with its tail.
    pub(super) fn pack(
        &self,
        names: &[DiffName],
        at_most: u16,
        template: &Diffs,
    ) -> Check<Vec<(Diffs, Vec<u8>)>> {
        let mut packed = vec![(template.clone(), Vec::new())];
        for name in names {
            let encoded = self.diffs.get(name);
            let encoded = encoded.ok_or_else(|| format!("{name:?} is sent, but not here"))?;
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

fn nobody_writes(page: PageIndex, slot: &Slot) -> Check {
    if slot.rights.values().any(|rights| *rights == Rights::Write) {
        return Err(format!("{page} may still be stored to"));
    }
    Ok(())
}
