//! What a daemon does: it carries out what its node decided.

use super::RejoinMistake;
use super::cluster::Cluster;
use super::memory::Word;
use crate::small::{Check, Driver, Turn};
use pagemesh_core::{
    At, Effect, Event, Mappings, Node, PageRange, Reclaimed, Reply, Rights, Source, Time,
};
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Message, Refusal};
use pagemesh_wire::{ClientId, MappingId, PAGE_SIZE, SegmentId, SyncKey, Ticket};

fn bytes_of(value: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE_SIZE];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    bytes
}

impl Cluster {
    fn contents(&mut self, turn: Turn<'_>, at: At, source: Source) -> Check<u64> {
        let memory = self.memory(turn.host);
        let value = match source {
            Source::Zero => Some(0),
            Source::Frame => memory.frames.get(&at).copied(),
            Source::Stash => memory.stash.get(&at).copied(),
            Source::Payload => turn.behind.first_chunk().map(|it| u64::from_le_bytes(*it)),
            other => return Err(format!("{at:?} comes from {other:?}")),
        };
        value.ok_or_else(|| format!("{at:?} has no contents in {source:?}"))
    }
}

impl Driver for Cluster {
    fn now(&self) -> Time {
        self.time()
    }

    fn node(&mut self, host: usize) -> Option<&mut Node> {
        Some(&mut self.hosts[host].node)
    }

    fn send(
        &mut self,
        turn: Turn<'_>,
        to: (usize, Header),
        message: Box<Message>,
        page: Option<(At, Source)>,
    ) -> Check {
        let behind = match page {
            Some((at, source)) => bytes_of(self.contents(turn, at, source)?),
            None => Vec::new(),
        };
        self.transmit(turn.host, to, &message, &behind);
        Ok(())
    }

    fn fill(&mut self, turn: Turn<'_>, pages: PageRange, source: Source) -> Check {
        for at in pages.iter() {
            let value = self.contents(turn, at, source)?;
            let memory = self.memory(turn.host);
            if memory.rights(at) != Rights::None {
                return Err(format!("INV-fill-before-map: {at:?} is mapped"));
            }
            memory.frames.insert(at, value);
        }
        Ok(())
    }

    fn map(&mut self, host: usize, mappings: Mappings, pages: PageRange, rights: Rights) -> Check {
        for at in pages.iter() {
            self.map_page(host, mappings, at, rights)?;
        }
        Ok(())
    }

    fn protect(&mut self, host: usize, _: Mappings, pages: PageRange) -> Check {
        let memory = self.memory(host);
        for at in pages.iter() {
            if let Some(rights) = memory.rights.get_mut(&at) {
                *rights = (*rights).min(Rights::Read);
            }
        }
        Ok(())
    }

    fn evict(&mut self, host: usize, pages: PageRange, keep: bool) -> Check {
        let forgets = self.plants(RejoinMistake::EvictForgotten);
        let memory = self.memory(host);
        for at in pages.iter() {
            let value = memory.frames.get(&at).copied();
            if keep {
                let value = value.ok_or_else(|| format!("{at:?} is kept without contents"))?;
                memory.stash.insert(at, value);
            }
            if !forgets || keep {
                memory.frames.remove(&at);
                memory.rights.remove(&at);
            }
        }
        Ok(())
    }

    fn drop_stash(&mut self, host: usize, at: At) -> Check {
        self.memory(host).stash.remove(&at);
        Ok(())
    }

    fn stow(&mut self, turn: Turn<'_>, at: At) -> Check {
        let value = self.contents(turn, at, Source::Payload)?;
        self.memory(turn.host).stash.insert(at, value);
        Ok(())
    }

    fn fail(&mut self, host: usize, mapping: MappingId, at: At, why: Refusal) -> Check {
        self.failed(host, mapping, at, &why);
        Ok(())
    }

    fn forget(&mut self, host: usize, segment: SegmentId) -> Check {
        self.memory(host).forget(segment);
        Ok(())
    }

    fn lend_lock(&mut self, host: usize, key: SyncKey, by: (ClientId, bool)) -> Check {
        self.lend(host, key, by)
    }

    fn reclaim_lock(&mut self, host: usize, key: SyncKey) -> Check<Reclaimed> {
        let returns = self.plants(RejoinMistake::HeldLockReturned);
        let memory = self.memory(host);
        Ok(match memory.words.get_mut(&key) {
            Some(Word::Held(wanted)) => {
                *wanted = true;
                if returns {
                    Reclaimed::Back
                } else {
                    Reclaimed::Marked
                }
            }
            Some(Word::Free) => {
                memory.words.remove(&key);
                Reclaimed::Back
            }
            // The input that gave it back is under way.
            None => Reclaimed::Marked,
        })
    }

    fn reply(&mut self, host: usize, ticket: Ticket, reply: Reply) -> Check {
        self.replied(host, ticket, reply)
    }

    fn emit(&mut self, host: usize, event: Event) -> Check {
        self.note(host, || format!("{event:?}"));
        self.told(host, event)
    }

    fn about_to(&mut self, host: usize, effect: &Effect) {
        self.note(host, || format!("{effect:?}"));
    }

    fn arm(&mut self, host: usize, due: Time) {
        self.call_at(host, due);
    }
}
