//! The effects on sequential segments as daemons carry them out, and their costs.

use super::Cluster;
use crate::engine::{Stuck, Turn};
use crate::host::State;
use crate::site::{self, Pending, host_of, nanos};
use core::time::Duration;
use pagemesh_core::{
    At, DiffWork, EffectExecutor, Event, Input, Mappings, PageRange, Reclaimed, Reply, Rights,
    Source,
};
use pagemesh_wire::header::Header;
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{Message, Refusal};
use pagemesh_wire::{ClientId, MappingId, PAGE_SIZE, SegmentId, SyncKey, Ticket};
use std::net::SocketAddr;

impl Turn<'_, Cluster> {
    fn takes(&mut self, time: Duration) {
        *self.end += nanos(time);
    }

    fn wake(&mut self, page: At) {
        let wake = nanos(self.world.costs.wake);
        if let State::Stopped(segment, index, _) = self.world.hosts[self.at].state
            && (segment, index) == page
        {
            self.world.hosts[self.at].state = State::Woken(segment, index);
            self.world.engine.resume_at(self.at, *self.end + wake);
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
        let (world, page) = (&mut *self.world, page.is_some());
        world.counts.datagrams += 1;
        world.counts.pages += u64::from(page);
        let way = if page {
            world.costs.page
        } else {
            world.costs.short
        };
        *self.end += nanos(way / 2);
        let mut bytes = Vec::new();
        message.encode(header, &mut bytes);
        if page {
            // Contents are not simulated.
            bytes.resize(bytes.len() + PAGE_SIZE, 0);
        }
        let to = host_of(address);
        let line = world.hosts[self.at].lines.entry(to).or_default();
        *line = (*line).max(*self.end) + nanos(world.costs.on_the_line(page));
        let arrives = *line;
        let source = site::address(self.at);
        world.engine.arrives_at(to, arrives, source, bytes);
        Ok(())
    }

    /// Strangers, of whom there are none here, get them.
    fn send_notice(&mut self, _: SocketAddr, _: Notice) -> Result<(), Stuck> {
        Ok(())
    }

    /// Its cost is part of mapping.
    fn fill(&mut self, _: PageRange, _: Source) -> Result<(), Stuck> {
        Ok(())
    }

    /// A host has one mapping.
    fn map(&mut self, _: Mappings, pages: PageRange, rights: Rights) -> Result<(), Stuck> {
        for at in pages.iter() {
            self.takes(self.world.costs.install);
            self.world.hosts[self.at].rights.insert(at, rights);
            self.wake(at);
        }
        Ok(())
    }

    fn protect(&mut self, _: Mappings, pages: PageRange) -> Result<(), Stuck> {
        for at in pages.iter() {
            let rights = self.world.hosts[self.at].rights.entry(at).or_default();
            *rights = (*rights).min(Rights::Read);
        }
        Ok(())
    }

    fn evict(&mut self, pages: PageRange, _: bool) -> Result<(), Stuck> {
        for at in pages.iter() {
            self.takes(self.world.costs.evict);
            self.world.hosts[self.at].rights.remove(&at);
        }
        Ok(())
    }

    fn stow(&mut self, _: At) -> Result<(), Stuck> {
        Ok(())
    }

    fn drop_stash(&mut self, _: At) -> Result<(), Stuck> {
        Ok(())
    }

    fn fail(&mut self, _: MappingId, at: At, why: Refusal) -> Result<(), Stuck> {
        Err(Stuck(format!("page {} fails: {why}", at.1.0)))
    }

    fn has_run(&mut self, (segment, page): At) -> Result<bool, Stuck> {
        Ok(self.world.hosts[self.at].state != State::Woken(segment, page))
    }

    fn forget(&mut self, _: SegmentId) -> Result<(), Stuck> {
        Ok(())
    }

    fn lend_lock(&mut self, key: SyncKey, _: ClientId, _: bool) -> Result<(), Stuck> {
        Err(Stuck(format!("no program here takes {key}")))
    }

    fn reclaim_lock(&mut self, key: SyncKey) -> Result<Reclaimed, Stuck> {
        Err(Stuck(format!("no program here takes {key}")))
    }

    fn reply(&mut self, ticket: Ticket, reply: Reply) -> Result<(), Stuck> {
        self.world.engine.replies.insert(ticket, reply);
        Ok(())
    }

    fn store(&mut self, pages: PageRange) -> Result<bool, Stuck> {
        Err(Stuck(format!("no segment here is private: {pages:?}")))
    }

    fn diff_work(&mut self, work: DiffWork) -> Result<(), Stuck> {
        Err(Stuck(format!("no segment here has diffs: {work:?}")))
    }

    fn emit(&mut self, event: Event) -> Result<(), Stuck> {
        let counts = &mut self.world.counts;
        match event {
            Event::ReadFault { .. } => counts.read_faults += 1,
            Event::WriteFault { .. } => counts.write_faults += 1,
            Event::Upgrade { .. } => counts.upgrades += 1,
            _ => {}
        }
        Ok(())
    }

    fn follow(&mut self, input: Input<'static>) {
        self.follow.push_back(Pending::Local(input));
    }
}
