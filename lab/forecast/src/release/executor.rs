//! The effects on segments of policy `release` as daemons carry them out, and their costs.

use super::cluster::Cluster;
use super::costs::ReleaseCosts;
use super::host::{Asked, Host, State};
use crate::engine::{Stuck, Turn};
use crate::site::{self, Pending, host_of, nanos};
use core::time::Duration;
use pagemesh_core::{
    Afterwards, At, DiffBatch, DiffExecutor, DiffWork, EffectExecutor, Event, Input, Mappings,
    PageRange, Reclaimed, Reply, Rights, Source,
};
use pagemesh_wire::header::{Header, MAX_DATAGRAM};
use pagemesh_wire::lockword::LockWord;
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{DiffName, Diffs, Message, Refusal, Rule};
use pagemesh_wire::{
    ClientId, MappingId, PAGE_SIZE, PageIndex, SegmentId, SyncKey, Ticket, VectorTime,
};
use std::net::SocketAddr;

/// Bytes of diffs in one datagram.
const TOGETHER: usize = MAX_DATAGRAM - 2048;

/// Bytes of a diff beside the bytes that changed.
const FRAME: u32 = 16;

/// The longest diff there is.
const LONGEST: u32 = 4600;

impl Turn<'_, Cluster> {
    fn host(&mut self) -> &mut Host {
        &mut self.world.hosts[self.at]
    }

    fn costs(&self) -> &ReleaseCosts {
        self.world.costs(self.at)
    }

    fn takes(&mut self, time: Duration) {
        *self.end += nanos(time);
    }

    /// Copies, or goes through, as many pages.
    fn copies(&mut self, pages: usize) {
        *self.end += nanos(self.costs().copy) * pages as u64;
    }

    fn leaves(&mut self, (address, header): (SocketAddr, Header), message: &Message, tail: usize) {
        let mut bytes = Vec::new();
        message.encode(header, &mut bytes);
        bytes.resize(bytes.len() + tail, 0);
        self.world.counts.messages += 1;
        self.world.counts.bytes += bytes.len() as u64;
        self.takes(self.costs().half(bytes.len()));
        let source = site::address(self.at);
        let engine = &mut self.world.engine;
        engine.arrives_at(host_of(address), *self.end, source, bytes);
    }

    fn wake(&mut self, page: PageIndex) {
        if let State::Stopped(index, _) = self.host().state
            && index == page
        {
            let (now, end) = (self.world.engine.now, *self.end);
            let host = self.host();
            host.state = State::Runs;
            let since = host.fault_since;
            // No other node took part if it is still the same turn.
            if since < now {
                self.world.counts.fault_waits.push(end - since);
            }
            let wake = nanos(self.costs().wake);
            self.world.engine.resume_at(self.at, end + wake);
        }
    }
}

impl EffectExecutor for Turn<'_, Cluster> {
    type Error = Stuck;

    fn send(
        &mut self,
        address: SocketAddr,
        header: Header,
        message: Box<Message>,
        page: Option<(At, Source)>,
    ) -> Result<(), Stuck> {
        let tail = if page.is_some() { PAGE_SIZE } else { 0 };
        self.leaves((address, header), &message, tail);
        Ok(())
    }

    /// Strangers, of whom there are none here, get them.
    fn send_notice(&mut self, _: SocketAddr, _: Notice) -> Result<(), Stuck> {
        Ok(())
    }

    fn fill(&mut self, pages: PageRange, _: Source) -> Result<(), Stuck> {
        self.copies(pages.count as usize);
        Ok(())
    }

    /// A host has one mapping.
    fn map(&mut self, _: Mappings, pages: PageRange, rights: Rights) -> Result<(), Stuck> {
        for (_, page) in pages.iter() {
            self.takes(self.costs().place);
            self.host().rights.insert(page, rights);
            self.wake(page);
        }
        Ok(())
    }

    fn protect(&mut self, _: Mappings, pages: PageRange) -> Result<(), Stuck> {
        for (_, page) in pages.iter() {
            self.takes(self.costs().place);
            let rights = self.host().rights.entry(page).or_default();
            *rights = (*rights).min(Rights::Read);
        }
        Ok(())
    }

    fn evict(&mut self, pages: PageRange, _: bool) -> Result<(), Stuck> {
        for (_, page) in pages.iter() {
            self.takes(self.costs().evict);
            self.host().rights.remove(&page);
        }
        Ok(())
    }

    fn stow(&mut self, _: At) -> Result<(), Stuck> {
        Ok(())
    }

    fn drop_stash(&mut self, _: At) -> Result<(), Stuck> {
        Ok(())
    }

    fn fail(&mut self, _: MappingId, (_, page): At, why: Refusal) -> Result<(), Stuck> {
        Err(Stuck(format!("page {} fails: {why}", page.0)))
    }

    /// Pages of this policy are not taken away from their users.
    fn has_run(&mut self, _: At) -> Result<bool, Stuck> {
        Ok(true)
    }

    fn forget(&mut self, _: SegmentId) -> Result<(), Stuck> {
        Ok(())
    }

    fn lend_lock(&mut self, key: SyncKey, by: ClientId, wanted: bool) -> Result<(), Stuck> {
        let word = LockWord::Held { by, wanted };
        self.host().words.insert(key, word);
        Ok(())
    }

    fn reclaim_lock(&mut self, key: SyncKey) -> Result<Reclaimed, Stuck> {
        match self.host().words.get_mut(&key) {
            Some(word @ LockWord::Free) => {
                *word = LockWord::Absent;
                return Ok(Reclaimed::Back);
            }
            Some(LockWord::Held { wanted, .. }) => *wanted = true,
            _ => {}
        }
        Ok(Reclaimed::Marked)
    }

    fn reply(&mut self, ticket: Ticket, reply: Reply) -> Result<(), Stuck> {
        if self.host().state != State::Waits(ticket) {
            self.world.engine.replies.insert(ticket, reply);
            return Ok(());
        }
        if let Reply::Refused(why) = reply {
            return Err(Stuck(format!("a process is refused: {why}")));
        }
        self.takes(self.costs().call);
        let goes_on = *self.end + nanos(self.costs().wake);
        let host = self.host();
        host.state = State::Runs;
        let (what, since) = host.asked;
        let (waited, at) = (goes_on - since, self.at);
        let counts = &mut self.world.counts;
        match what {
            Asked::Lock => counts.lock_waits.push(waited),
            Asked::Barrier => counts.barrier_waits[at].push(waited),
            Asked::Relock => {}
        }
        self.world.engine.resume_at(at, goes_on);
        Ok(())
    }

    fn store(&mut self, pages: PageRange) -> Result<bool, Stuck> {
        Err(Stuck(format!("no segment here is private: {pages:?}")))
    }

    fn diff_work(&mut self, work: DiffWork) -> Result<(), Stuck> {
        self.execute_diff_work(work)
    }

    fn emit(&mut self, _: Event) -> Result<(), Stuck> {
        Ok(())
    }

    fn follow(&mut self, input: Input<'static>) {
        self.follow.push_back(Pending::Local(input));
    }
}

impl DiffExecutor for Turn<'_, Cluster> {
    fn twin(&mut self, (_, page): At, source: Source) -> Result<(), Stuck> {
        self.copies(usize::from(source == Source::Frame));
        self.host().changed.insert(page, 0);
        Ok(())
    }

    fn diff(
        &mut self,
        _: SegmentId,
        name: DiffName,
        _: Afterwards,
        _: &[Rule],
    ) -> Result<bool, Stuck> {
        self.copies(1);
        self.world.counts.diffs += 1;
        let host = self.host();
        let changed = host.changed.insert(name.page, 0).unwrap_or(0);
        let long = (changed + FRAME).min(LONGEST) as u16;
        host.diffs.insert(name, long);
        Ok(changed > 0)
    }

    fn drop_twin(&mut self, _: At) -> Result<(), Stuck> {
        Ok(())
    }

    fn keep_diffs(&mut self, _: SegmentId, names: &[DiffName]) -> Result<(), Stuck> {
        if let Ok((_, Message::Diffs(came), _)) = Message::decode(self.bytes) {
            let kept = came.diffs.iter().filter(|(name, _)| names.contains(name));
            self.host().diffs.extend(kept.copied());
        }
        Ok(())
    }

    fn merge(&mut self, _: At, _: Source, (names, _): (&[DiffName], &[Rule])) -> Result<(), Stuck> {
        self.copies(1 + names.len());
        Ok(())
    }

    fn update(&mut self, _: At, (names, _): (&[DiffName], &[Rule])) -> Result<(), Stuck> {
        self.copies(2 * names.len());
        Ok(())
    }

    fn send_diffs(&mut self, batch: &DiffBatch) -> Result<(), Stuck> {
        let to = (batch.address, batch.header);
        let template = Diffs {
            segment: batch.segment,
            request: batch.request,
            diffs: Vec::new(),
        };
        let mut together = template.clone();
        for name in &batch.names {
            let long = self.host().diffs.get(name).copied().unwrap_or(0);
            if long > batch.at_most {
                continue;
            }
            if together.bytes() + usize::from(long) > TOGETHER {
                let full = std::mem::replace(&mut together, template.clone());
                let tail = full.bytes();
                self.leaves(to, &Message::Diffs(full), tail);
            }
            together.diffs.push((*name, long));
        }
        if !together.diffs.is_empty() {
            let tail = together.bytes();
            self.leaves(to, &Message::Diffs(together), tail);
        }
        Ok(())
    }

    fn compare(&mut self, _: SegmentId, _: &[(DiffName, DiffName)]) -> Result<(), Stuck> {
        Ok(())
    }

    fn forget_diffs(&mut self, _: SegmentId, upto: &VectorTime) -> Result<(), Stuck> {
        let diffs = &mut self.host().diffs;
        diffs.retain(|name, _| !upto.has(name.node, name.interval));
        Ok(())
    }
}
