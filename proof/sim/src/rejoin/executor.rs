//! What a daemon does: it carries out what its node decided.

use super::RejoinMistake;
use super::cluster::{Check, Cluster};
use super::memory::Word;
use pagemesh_core::{
    At, DiffWork, Effect, EffectExecutor, Event, Input, Mappings, Next, PageRange, Reclaimed,
    Reply, Rights, Source,
};
use pagemesh_wire::header::Header;
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{Message, Refusal};
use pagemesh_wire::{ClientId, MappingId, PAGE_SIZE, SegmentId, SyncKey, Ticket};
use std::net::SocketAddr;

/// Carries out the effects of one input of a host.
pub(super) struct Executor<'a> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) host: usize,
    /// The page behind the present datagram.
    pub(super) payload: &'a [u8],
    /// Inputs that effects gave rise to.
    pub(super) follow: Vec<Input<'static>>,
}

fn bytes_of(value: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE_SIZE];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    bytes
}

impl Executor<'_> {
    fn contents(&mut self, at: At, source: Source) -> Check<u64> {
        let memory = self.cluster.memory(self.host);
        let value = match source {
            Source::Zero => Some(0),
            Source::Frame => memory.frames.get(&at).copied(),
            Source::Stash => memory.stash.get(&at).copied(),
            Source::Payload => self.payload.first_chunk().map(|it| u64::from_le_bytes(*it)),
            other => return Err(format!("{at:?} comes from {other:?}")),
        };
        value.ok_or_else(|| format!("{at:?} has no contents in {source:?}"))
    }
}

impl EffectExecutor for Executor<'_> {
    type Error = String;

    fn send(
        &mut self,
        address: SocketAddr,
        header: Header,
        message: Box<Message>,
        page: Option<(At, Source)>,
    ) -> Check {
        let behind = match page {
            Some((at, source)) => bytes_of(self.contents(at, source)?),
            None => Vec::new(),
        };
        self.cluster
            .send(self.host, (address, header), &message, &behind);
        Ok(())
    }

    fn send_notice(&mut self, _: SocketAddr, _: Notice) -> Check {
        Ok(())
    }

    fn fill(&mut self, pages: PageRange, source: Source) -> Check {
        for at in pages.iter() {
            let value = self.contents(at, source)?;
            let memory = self.cluster.memory(self.host);
            if memory.rights(at) != Rights::None {
                return Err(format!("INV-fill-before-map: {at:?} is mapped"));
            }
            memory.frames.insert(at, value);
        }
        Ok(())
    }

    fn map(&mut self, mappings: Mappings, pages: PageRange, rights: Rights) -> Check {
        for at in pages.iter() {
            self.cluster.map(self.host, mappings, at, rights)?;
        }
        Ok(())
    }

    fn protect(&mut self, _: Mappings, pages: PageRange) -> Check {
        let memory = self.cluster.memory(self.host);
        for at in pages.iter() {
            if let Some(rights) = memory.rights.get_mut(&at) {
                *rights = (*rights).min(Rights::Read);
            }
        }
        Ok(())
    }

    fn evict(&mut self, pages: PageRange, keep: bool) -> Check {
        let forgets = self.cluster.plants(RejoinMistake::EvictForgotten);
        let memory = self.cluster.memory(self.host);
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

    fn drop_stash(&mut self, at: At) -> Check {
        self.cluster.memory(self.host).stash.remove(&at);
        Ok(())
    }

    fn stow(&mut self, at: At) -> Check {
        let value = self.contents(at, Source::Payload)?;
        self.cluster.memory(self.host).stash.insert(at, value);
        Ok(())
    }

    fn fail(&mut self, mapping: MappingId, at: At, why: Refusal) -> Check {
        self.cluster.failed(self.host, mapping, at, &why);
        Ok(())
    }

    fn has_run(&mut self, _: At) -> Check<bool> {
        Ok(true)
    }

    fn forget(&mut self, segment: SegmentId) -> Check {
        self.cluster.memory(self.host).forget(segment);
        Ok(())
    }

    fn lend_lock(&mut self, key: SyncKey, client: ClientId, wanted: bool) -> Check {
        self.cluster.lend(self.host, key, client, wanted)
    }

    fn reclaim_lock(&mut self, key: SyncKey) -> Check<Reclaimed> {
        let returns = self.cluster.plants(RejoinMistake::HeldLockReturned);
        let memory = self.cluster.memory(self.host);
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

    fn reply(&mut self, ticket: Ticket, reply: Reply) -> Check {
        self.cluster.replied(self.host, ticket, reply)
    }

    fn diff_work(&mut self, _: DiffWork) -> Check {
        Err("no diff is used here".into())
    }

    fn store(&mut self, _: PageRange) -> Check<bool> {
        Err("no file of private pages is used here".into())
    }

    fn emit(&mut self, event: Event) -> Check {
        self.cluster.told(self.host, event)
    }

    fn follow(&mut self, input: Input<'static>) {
        self.follow.push(input);
    }

    fn before(&mut self, _: usize, rest: &[Effect]) -> Next {
        if let [effect, ..] = rest
            && !matches!(effect, Effect::Send { .. })
        {
            self.cluster.note(self.host, || format!("{effect:?}"));
        }
        Next::Execute
    }
}
