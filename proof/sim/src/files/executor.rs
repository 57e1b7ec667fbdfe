//! What a daemon does: it carries out what its node decided.

use super::FilesMistake;
use super::cluster::{Check, Cluster};
use pagemesh_core::{
    At, DiffWork, Effect, EffectExecutor, Event, Input, Mappings, Next, PageRange, Reclaimed,
    Reply, Rights, Source,
};
use pagemesh_wire::header::Header;
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{Message, Refusal};
use pagemesh_wire::{ClientId, MappingId, PAGE_SIZE, PageIndex, SegmentId, SyncKey, Ticket};
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

/// A page with this value in front.
fn bytes_of(value: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE_SIZE];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    bytes
}

fn nothing_of_it(what: &str) -> String {
    format!("no {what} is used here")
}

impl Executor<'_> {
    /// The contents behind the present datagram.
    fn value(&self) -> Option<u64> {
        self.payload.first_chunk().map(|it| u64::from_le_bytes(*it))
    }

    /// A page that the host keeps for others; none if the planted mistake has misplaced it.
    fn kept(&self, slot: PageIndex) -> Check<Option<u64>> {
        let value = self.cluster.hosts[self.host].stash.get(&slot.0).copied();
        if value.is_none() && !self.cluster.plants(FilesMistake::SlotMissed) {
            return Err(format!("{slot} is not in the stash"));
        }
        Ok(value.or(Some(0)))
    }
}

/// Only kept pages are in a stash here.
fn is_of_kept(segment: SegmentId) -> Check {
    let is_it = segment == SegmentId::KEPT_FILES;
    is_it.then_some(()).ok_or_else(|| nothing_of_it("stash"))
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
        let mut behind = Vec::new();
        if let Some(((segment, page), source)) = page {
            let value = match source {
                Source::Frame => self.cluster.frame(self.host, segment, page.0),
                Source::Stash if segment == SegmentId::KEPT_FILES => self.kept(page)?,
                _ => None,
            };
            if matches!(*message, Message::SharedPage(_)) && source == Source::Stash {
                self.cluster.seen.returned += 1;
            }
            let value = value.ok_or_else(|| format!("{page:?} has no contents, and is sent"))?;
            behind = bytes_of(value);
        }
        self.cluster
            .send(self.host, (address, header), &message, &behind);
        Ok(())
    }

    fn send_notice(&mut self, _: SocketAddr, _: Notice) -> Check {
        Ok(())
    }

    fn fill(&mut self, pages: PageRange, source: Source) -> Check {
        let value = match source {
            Source::Payload => self.value(),
            Source::Kept(slot) => {
                self.cluster.seen.taken += 1;
                self.kept(slot)?
            }
            _ => None,
        };
        let value = value.ok_or_else(|| format!("{pages:?} are filled from {source:?}"))?;
        let beside = u32::from(self.cluster.plants(FilesMistake::FrameMissed));
        for (segment, page) in pages.iter() {
            self.cluster
                .fill(self.host, segment, page.0 + beside, value);
        }
        Ok(())
    }

    fn map(&mut self, _: Mappings, _: PageRange, _: Rights) -> Check {
        Err(nothing_of_it("mapping"))
    }

    fn protect(&mut self, _: Mappings, _: PageRange) -> Check {
        Err(nothing_of_it("mapping"))
    }

    fn evict(&mut self, pages: PageRange, _: bool) -> Check {
        if !self.cluster.plants(FilesMistake::EvictForgotten) {
            for (segment, page) in pages.iter() {
                self.cluster.empty(self.host, segment, page.0);
            }
        }
        Ok(())
    }

    fn drop_stash(&mut self, (segment, page): At) -> Check {
        is_of_kept(segment)?;
        self.cluster.hosts[self.host].stash.remove(&page.0);
        Ok(())
    }

    fn fail(&mut self, _: MappingId, at: At, why: Refusal) -> Check {
        Err(format!("{at:?} fails: {why}"))
    }

    fn has_run(&mut self, _: At) -> Check<bool> {
        Ok(true)
    }

    fn forget(&mut self, segment: SegmentId) -> Check {
        self.cluster.forget(self.host, segment);
        Ok(())
    }

    fn lend_lock(&mut self, _: SyncKey, _: ClientId, _: bool) -> Check {
        Err(nothing_of_it("lock"))
    }

    fn reclaim_lock(&mut self, _: SyncKey) -> Check<Reclaimed> {
        Err(nothing_of_it("lock"))
    }

    fn reply(&mut self, ticket: Ticket, reply: Reply) -> Check {
        self.cluster.replied(self.host, ticket, reply)
    }

    fn diff_work(&mut self, _: DiffWork) -> Check {
        Err(nothing_of_it("diff"))
    }

    fn stow(&mut self, (segment, page): At) -> Check {
        is_of_kept(segment)?;
        let value = self.value().ok_or("a page is to be kept, and none came")?;
        let beside = u32::from(self.cluster.plants(FilesMistake::SlotMissed));
        let stash = &mut self.cluster.hosts[self.host].stash;
        stash.insert(page.0 + beside, value);
        Ok(())
    }

    fn store(&mut self, _: PageRange) -> Check<bool> {
        Err(nothing_of_it("file of private pages"))
    }

    fn emit(&mut self, event: Event) -> Check {
        let seen = &mut self.cluster.seen;
        match event {
            Event::FilePageDropped {} => seen.dropped += 1,
            Event::FilePagePut {} => seen.put += 1,
            Event::FilePageKept {} => seen.kept += 1,
            Event::PageSentOn {} => seen.sent_on += 1,
            Event::FilePageMissed {} => seen.stale += 1,
            _ => {}
        }
        Ok(())
    }

    fn follow(&mut self, input: Input<'static>) {
        self.follow.push(input);
    }

    fn before(&mut self, _: usize, rest: &[Effect]) -> Next {
        if let [effect, ..] = rest
            && !matches!(effect, Effect::Emit(_) | Effect::Send { .. })
        {
            self.cluster.note(self.host, || format!("{effect:?}"));
        }
        Next::Execute
    }
}
