//! What a daemon does: it carries out what its node decided.

use super::PrivateMistake;
use super::cluster::Cluster;
use super::memory::{Memory, bytes_of, value_of};
use crate::small::{Check, Driver, Turn};
use pagemesh_core::{At, Effect, Event, Mappings, Node, PageRange, Reply, Rights, Source, Time};
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Got, Message, Refusal};
use pagemesh_wire::{MappingId, PAGE_SIZE, SegmentId, Ticket};

impl Cluster {
    fn memory(&mut self, host: usize) -> &mut Memory {
        &mut self.hosts[host].memory
    }

    fn stashed(&mut self, host: usize, at: At) -> Check<&[u8]> {
        let bytes = self.memory(host).stash.get(&at).map(|bytes| &bytes[..]);
        bytes.ok_or_else(|| format!("{at:?} is not in the stash"))
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
        mut message: Box<Message>,
        page: Option<(At, Source)>,
    ) -> Check {
        let host = turn.host;
        let mut behind = match page {
            Some((at, Source::Stash)) => self.stashed(host, at)?.to_vec(),
            Some((at, source)) => return Err(format!("{at:?} is sent from {source:?}")),
            None => Vec::new(),
        };
        match &mut *message {
            Message::Put(put) => put.seal = self.memory(host).seal(put.lent, &mut behind),
            Message::Got(got) => self.tamper(host, got, &mut behind),
            Message::Forward(on) => self.tamper_on(host, on, &mut behind)?,
            _ => {}
        }
        self.transmit(host, to, &message, &behind);
        Ok(())
    }

    fn fill(&mut self, turn: Turn<'_>, pages: PageRange, source: Source) -> Check {
        let host = turn.host;
        for at in pages.iter() {
            let value = match source {
                Source::Zero => 0,
                Source::Disk => {
                    self.remote.read += 1;
                    self.memory(host).read_disk(at)?
                }
                Source::Stash => value_of(self.stashed(host, at)?),
                Source::Payload if turn.behind.len() == PAGE_SIZE => value_of(turn.behind),
                other => return Err(format!("{at:?} is filled from {other:?}")),
            };
            self.memory(host).fill(at, value)?;
        }
        Ok(())
    }

    fn map(&mut self, host: usize, _: Mappings, pages: PageRange, rights: Rights) -> Check {
        for at in pages.iter() {
            self.memory(host).map(at, rights)?;
            self.woken(host, at.1);
        }
        Ok(())
    }

    fn evict(&mut self, host: usize, pages: PageRange, keep: bool) -> Check {
        let memory = self.memory(host);
        pages.iter().try_for_each(|at| memory.evict(at, keep))
    }

    fn drop_stash(&mut self, host: usize, at: At) -> Check {
        let dropped = self.memory(host).stash.remove(&at);
        dropped
            .map(drop)
            .ok_or_else(|| format!("{at:?} is not in the stash"))
    }

    fn fail(&mut self, host: usize, _: MappingId, at: At, why: Refusal) -> Check {
        self.failed(host, at, &why)
    }

    fn forget(&mut self, host: usize, segment: SegmentId) -> Check {
        self.memory(host).forget(segment);
        Ok(())
    }

    fn reply(&mut self, host: usize, ticket: Ticket, reply: Reply) -> Check {
        self.replied(host, ticket, reply)
    }

    fn stow(&mut self, turn: Turn<'_>, at: At) -> Check {
        let bytes = turn.behind.first_chunk().copied();
        let bytes = bytes.ok_or("a page is to be kept, and none came")?;
        self.memory(turn.host).stash.insert(at, Box::new(bytes));
        self.record(turn.host, at, &bytes);
        Ok(())
    }

    fn store(&mut self, host: usize, pages: PageRange) -> Check<bool> {
        let mut done = true;
        for at in pages.iter() {
            done &= self.memory(host).store_on_disk(at)?;
        }
        self.remote.written += u64::from(done) * u64::from(pages.count);
        Ok(done)
    }

    fn emit(&mut self, _: usize, event: Event) -> Check {
        let remote = &mut self.remote;
        match event {
            Event::PageLent { .. } => remote.lent += 1,
            Event::BytesArrived { .. } => remote.fetched += 1,
            Event::SoftFault { .. } => remote.soft += 1,
            Event::DiskFull {} => remote.full += 1,
            Event::EpochBegan {} => remote.epochs += 1,
            Event::BorrowedDropped {} => remote.dropped += 1,
            Event::PageSentOn {} => remote.sent_on += 1,
            _ => {}
        }
        Ok(())
    }

    fn about_to(&mut self, host: usize, effect: &Effect) {
        self.note(host, || format!("{effect:?}"));
    }

    fn handled(&mut self, host: usize) -> Check {
        if let Some(at) = self.hosts[host].memory.twice() {
            return Err(format!(
                "INV-one-authority: {at:?} is in its frame and in the stash"
            ));
        }
        self.budgets_hold(host)
    }

    fn arm(&mut self, host: usize, due: Time) {
        self.call_at(host, due);
    }
}

/// What a hostile donor sends instead of the page.
pub(super) fn forge(got: &mut Got, bytes: &mut Vec<u8>, kind: u64, older: Option<&(Got, Vec<u8>)>) {
    match (kind, older) {
        // A changed byte.
        (0, _) => bytes[100] ^= 1,
        // Contents of its own.
        (1, _) => *bytes = bytes_of(999).to_vec(),
        // An older version as if it were this one.
        (2, Some((older, contents))) => {
            got.seal = older.seal;
            bytes.clone_from(contents);
        }
        // An older version as what it is.
        (3, Some((older, contents))) => {
            *got = *older;
            bytes.clone_from(contents);
        }
        _ => got.seal.0[0] ^= 1,
    }
}

/// Whether the run plants the mistake of ignoring what is lent.
pub(super) fn ignores_budget(planted: Option<PrivateMistake>) -> bool {
    planted == Some(PrivateMistake::BudgetIgnored)
}
