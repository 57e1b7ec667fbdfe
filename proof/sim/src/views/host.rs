//! The memory of a host: frames, the stash, and what each mapping may do.

use super::ViewsMistake;
use pagemesh_core::{Mappings, Rights, Source};
use pagemesh_sorted::SortedMap;
use pagemesh_wire::{MappingId, PAGE_SIZE, PageIndex};
use std::collections::BTreeMap;

/// The contents of a page: a number in its prefix, and one behind.
pub(super) type Words = [u64; 2];

/// Where the second number is.
const SECOND: usize = 2048;

/// A page on a host.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Slot {
    frame: Option<Words>,
    stash: Option<Words>,
    rights: SortedMap<MappingId, Rights>,
}

/// All pages of the segment on a host.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Memory {
    pub(super) slots: BTreeMap<PageIndex, Slot>,
    pub(super) mistake: Option<ViewsMistake>,
}

pub(super) fn encode(words: Words) -> Vec<u8> {
    let mut bytes = vec![0; PAGE_SIZE];
    bytes[..8].copy_from_slice(&words[0].to_le_bytes());
    bytes[SECOND..SECOND + 8].copy_from_slice(&words[1].to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<Words> {
    let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    Some([word(0)?, word(SECOND)?])
}

impl Memory {
    pub(super) fn rights(&self, mapping: MappingId, page: PageIndex) -> Rights {
        let slot = self.slots.get(&page);
        let rights = slot.and_then(|slot| slot.rights.get(&mapping));
        rights.copied().unwrap_or_default()
    }

    /// Whether any mapping may store.
    pub(super) fn is_writable(&self, page: PageIndex) -> bool {
        let slot = self.slots.get(&page);
        slot.is_some_and(|slot| slot.rights.values().any(|rights| *rights == Rights::Write))
    }

    pub(super) fn frame(&self, page: PageIndex) -> Option<Words> {
        self.slots.get(&page)?.frame
    }

    pub(super) fn store(&mut self, page: PageIndex, value: u64) {
        self.slots.entry(page).or_default().frame = Some([value; 2]);
    }

    /// The bytes behind a message.
    pub(super) fn contents(&self, page: PageIndex, source: Source) -> Result<Vec<u8>, String> {
        let slot = self.slots.get(&page);
        let words = match source {
            Source::Frame => slot.and_then(|slot| slot.frame),
            Source::Stash => slot.and_then(|slot| slot.stash),
            Source::Prefix(_) => slot.and_then(|slot| slot.frame).map(|frame| [frame[0], 0]),
            Source::Zero => Some([0; 2]),
            _ => None,
        };
        let words =
            words.ok_or_else(|| format!("{page} is sent from {source:?}: nothing there"))?;
        Ok(encode(words))
    }

    pub(super) fn fill(
        &mut self,
        page: PageIndex,
        source: Source,
        payload: &[u8],
    ) -> Result<(), String> {
        let slot = self.slots.entry(page).or_default();
        let words = match source {
            Source::Zero => Some([0; 2]),
            Source::Payload => decode(payload),
            Source::Prefix(_) => decode(payload).map(|words| {
                let rest = slot.frame.map_or(0, |frame| frame[1]);
                match self.mistake {
                    Some(ViewsMistake::PrefixFillsAll) => words,
                    _ => [words[0], rest],
                }
            }),
            Source::Stash => slot.stash,
            _ => None,
        };
        let words =
            words.ok_or_else(|| format!("{page} is filled from {source:?}: nothing there"))?;
        slot.frame = Some(words);
        Ok(())
    }

    pub(super) fn map(
        &mut self,
        mapping: MappingId,
        page: PageIndex,
        rights: Rights,
    ) -> Result<(), String> {
        let slot = self.slots.entry(page).or_default();
        if slot.frame.is_none() {
            return Err(format!("{page} is mapped, and its frame is empty"));
        }
        slot.rights.insert(mapping, rights);
        Ok(())
    }

    pub(super) fn protect(&mut self, mappings: Mappings, page: PageIndex) {
        for (mapping, rights) in &mut self.slots.entry(page).or_default().rights {
            if mappings.contains(*mapping) {
                *rights = (*rights).min(Rights::Read);
            }
        }
    }

    pub(super) fn evict(&mut self, page: PageIndex, keep: bool) -> Result<(), String> {
        if !keep && self.mistake == Some(ViewsMistake::PurgeForgotten) {
            return Ok(());
        }
        let slot = self.slots.entry(page).or_default();
        let writable = slot.rights.values().any(|rights| *rights == Rights::Write);
        if self.mistake != Some(ViewsMistake::StaysWritable) {
            slot.rights.clear();
        }
        let frame = slot.frame.take();
        if keep {
            let kept = frame.ok_or_else(|| format!("{page} is kept, and is empty"))?;
            let lost = match self.mistake {
                Some(ViewsMistake::StashForgotten) => true,
                Some(ViewsMistake::ReplicaPurged) => !writable,
                _ => false,
            };
            slot.stash = Some(if lost { [0; 2] } else { kept });
        }
        Ok(())
    }

    pub(super) fn stow(&mut self, page: PageIndex, payload: &[u8]) -> Result<(), String> {
        let words = decode(payload).ok_or_else(|| format!("{page} is stowed: nothing came"))?;
        let slot = self.slots.entry(page).or_default();
        slot.stash = Some(words);
        if self.mistake == Some(ViewsMistake::OneByOne) {
            slot.frame = Some(words);
        }
        Ok(())
    }

    pub(super) fn drop_stash(&mut self, page: PageIndex) {
        self.slots.entry(page).or_default().stash = None;
    }
}
