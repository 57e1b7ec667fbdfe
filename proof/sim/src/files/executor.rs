//! What a daemon does: it carries out what its node decided.

use super::FilesMistake;
use super::cluster::Cluster;
use crate::small::{Check, Driver, Turn};
use pagemesh_core::{At, Effect, Event, Mappings, Node, PageRange, Reply, Rights, Source, Time};
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Message, Refusal};
use pagemesh_wire::{MappingId, PAGE_SIZE, PageIndex, SegmentId, Ticket};

/// A page with this value in front.
fn bytes_of(value: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE_SIZE];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    bytes
}

/// The contents behind the present datagram.
fn value(turn: Turn<'_>) -> Option<u64> {
    turn.behind.first_chunk().map(|it| u64::from_le_bytes(*it))
}

/// Only kept pages are in a stash here.
fn is_of_kept(segment: SegmentId) -> Check {
    let is_it = segment == SegmentId::KEPT_FILES;
    is_it
        .then_some(())
        .ok_or_else(|| format!("no contents wait here of {segment}"))
}

impl Cluster {
    /// A page that the host keeps for others; none if the planted mistake has misplaced it.
    fn kept(&self, host: usize, slot: PageIndex) -> Check<Option<u64>> {
        let value = self.hosts[host].stash.get(&slot.0).copied();
        if value.is_none() && !self.plants(FilesMistake::SlotMissed) {
            return Err(format!("{slot} is not in the stash"));
        }
        Ok(value.or(Some(0)))
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
        let mut behind = Vec::new();
        if let Some(((segment, page), source)) = page {
            let value = match source {
                Source::Frame => self.frame(turn.host, segment, page.0),
                Source::Stash if segment == SegmentId::KEPT_FILES => self.kept(turn.host, page)?,
                _ => None,
            };
            if matches!(*message, Message::SharedPage(_)) && source == Source::Stash {
                self.seen.returned += 1;
            }
            let value = value.ok_or_else(|| format!("{page:?} has no contents, and is sent"))?;
            behind = bytes_of(value);
        }
        self.transmit(turn.host, to, &message, &behind);
        Ok(())
    }

    fn fill(&mut self, turn: Turn<'_>, pages: PageRange, source: Source) -> Check {
        let value = match source {
            Source::Payload => value(turn),
            Source::Kept(slot) => {
                self.seen.taken += 1;
                self.kept(turn.host, slot)?
            }
            _ => None,
        };
        let value = value.ok_or_else(|| format!("{pages:?} are filled from {source:?}"))?;
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

    fn drop_stash(&mut self, host: usize, (segment, page): At) -> Check {
        is_of_kept(segment)?;
        self.hosts[host].stash.remove(&page.0);
        Ok(())
    }

    fn stow(&mut self, turn: Turn<'_>, (segment, page): At) -> Check {
        is_of_kept(segment)?;
        let value = value(turn).ok_or("a page is to be kept, and none came")?;
        let beside = u32::from(self.plants(FilesMistake::SlotMissed));
        let stash = &mut self.hosts[turn.host].stash;
        stash.insert(page.0 + beside, value);
        Ok(())
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
            Event::FilePagePut {} => self.seen.put += 1,
            Event::FilePageKept {} => self.seen.kept += 1,
            Event::PageSentOn {} => self.seen.sent_on += 1,
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
