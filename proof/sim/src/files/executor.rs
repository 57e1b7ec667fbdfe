//! What a daemon does: it carries out what its node decided.

use super::FilesMistake;
use super::cluster::Cluster;
use crate::small::{Check, Driver, Turn};
use pagemesh_core::{At, Effect, Event, Mappings, Node, PageRange, Reply, Rights, Source, Time};
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Message, Refusal};
use pagemesh_wire::{MappingId, PAGE_SIZE, SegmentId, Ticket};

/// A page with this value in front.
fn bytes_of(value: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE_SIZE];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    bytes
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
        let mut behind = Vec::new();
        if let Some(((segment, page), source)) = page {
            let frame = self.frame(turn.host, segment, page.0);
            let value = frame.filter(|_| source == Source::Frame);
            let value = value.ok_or_else(|| format!("{page:?} has no contents, and is sent"))?;
            behind = bytes_of(value);
        }
        self.transmit(turn.host, to, &message, &behind);
        Ok(())
    }

    fn fill(&mut self, turn: Turn<'_>, pages: PageRange, source: Source) -> Check {
        let value = turn.behind.first_chunk().map(|it| u64::from_le_bytes(*it));
        let (Source::Payload, Some(value)) = (source, value) else {
            return Err(format!("{pages:?} are filled from {source:?}"));
        };
        let beside = u32::from(self.plants(FilesMistake::FrameMissed));
        for (segment, page) in pages.iter() {
            self.put(turn.host, segment, page.0 + beside, value);
        }
        Ok(())
    }

    fn map(&mut self, _: usize, _: Mappings, pages: PageRange, _: Rights) -> Check {
        Err(format!("no program maps a cache: {pages:?}"))
    }

    fn protect(&mut self, _: usize, _: Mappings, pages: PageRange) -> Check {
        Err(format!("no program maps a cache: {pages:?}"))
    }

    fn evict(&mut self, host: usize, pages: PageRange, _: bool) -> Check {
        if !self.plants(FilesMistake::EvictForgotten) {
            for (segment, page) in pages.iter() {
                self.empty(host, segment, page.0);
            }
        }
        Ok(())
    }

    fn drop_stash(&mut self, _: usize, at: At) -> Check {
        Err(format!("no contents wait here: {at:?}"))
    }

    fn fail(&mut self, _: usize, _: MappingId, at: At, why: Refusal) -> Check {
        Err(format!("{at:?} fails: {why}"))
    }

    fn forget(&mut self, host: usize, segment: SegmentId) -> Check {
        self.lose(host, segment);
        Ok(())
    }

    fn reply(&mut self, host: usize, ticket: Ticket, reply: Reply) -> Check {
        self.replied(host, ticket, reply)
    }

    fn emit(&mut self, _: usize, event: Event) -> Check {
        match event {
            Event::FilePageDropped {} => self.seen.dropped += 1,
            Event::FilePageMissed {} => self.seen.stale += 1,
            _ => {}
        }
        Ok(())
    }

    fn about_to(&mut self, host: usize, effect: &Effect) {
        self.note(host, || format!("{effect:?}"));
    }

    fn handled(&mut self, host: usize) -> Check {
        self.budget_holds(host)
    }

    fn arm(&mut self, host: usize, due: Time) {
        self.call_at(host, due);
    }
}
