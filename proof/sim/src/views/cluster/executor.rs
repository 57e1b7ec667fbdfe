//! Carries out the effects of a host's node.

use super::super::host::Memory;
use super::{Check, Cluster, Event, Step, host_of};
use crate::network::{Fate, kind, legible};
use core::net::SocketAddr;
use pagemesh_core::{
    At, DiffWork, Effect, EffectExecutor, Event as Seen, Input, Mappings, Next, PageRange,
    Reclaimed, Reply, Rights, Source,
};
use pagemesh_wire::header::Header;
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{Message, Refusal};
use pagemesh_wire::{ClientId, MappingId, SegmentId, SyncKey, Ticket};

/// The executor of one host, while one input is handled.
pub(super) struct Executor<'a> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) host: usize,
    /// The page behind the datagram, if it has one.
    pub(super) behind: &'a [u8],
    pub(super) follow: Vec<Input<'static>>,
}

impl Executor<'_> {
    fn memory(&mut self) -> &mut Memory {
        &mut self.cluster.hosts[self.host].memory
    }

    fn wake(&mut self) {
        let state = &self.cluster.hosts[self.host];
        if matches!(state.step, Some((Step::Access(..) | Step::PublishRun, _))) {
            let at = self.cluster.now.0 + 500;
            self.cluster.schedule(at, Event::Run(self.host));
        }
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
        let mut bytes = Vec::new();
        message.encode(header, &mut bytes);
        if let Some(((_, page), source)) = page {
            bytes.extend(self.memory().contents(page, source)?);
        }
        let (cluster, host, to) = (&mut *self.cluster, self.host, host_of(address));
        cluster.seen.datagrams += 1;
        cluster.note(host, || format!("-> h{} {}", to + 1, legible(&message)));
        let source = super::address(host);
        let fate = cluster.network.fate(cluster.now, host, to, kind(&message));
        if let Fate::Arrives(first, second) = fate {
            for delay in [Some(first), second].into_iter().flatten() {
                let at = cluster.now.0 + delay.max(1);
                cluster.schedule(at, Event::Arrival(to, source, bytes.clone()));
            }
        }
        Ok(())
    }

    fn send_notice(&mut self, _: SocketAddr, _: Notice) -> Check {
        Ok(())
    }

    fn fill(&mut self, pages: PageRange, source: Source) -> Check {
        let behind = self.behind;
        for (_, page) in pages.iter() {
            self.memory().fill(page, source, behind)?;
        }
        self.cluster.seen.runs += u64::from(pages.count > 1);
        Ok(())
    }

    fn map(&mut self, mappings: Mappings, pages: PageRange, rights: Rights) -> Check {
        for (_, page) in pages.iter() {
            for mapping in (1..=4).map(MappingId).filter(|id| mappings.contains(*id)) {
                self.memory().map(mapping, page, rights)?;
            }
            let hosts = self.cluster.hosts.iter();
            let living = hosts.filter(|host| !host.gone && !host.left);
            let writers = living.filter(|host| host.memory.is_writable(page)).count();
            if writers > 1 {
                return Err(format!("{writers} hosts may store to {page}"));
            }
        }
        self.wake();
        Ok(())
    }

    fn protect(&mut self, mappings: Mappings, pages: PageRange) -> Check {
        for (_, page) in pages.iter() {
            self.memory().protect(mappings, page);
        }
        Ok(())
    }

    fn evict(&mut self, pages: PageRange, keep: bool) -> Check {
        for (_, page) in pages.iter() {
            self.memory().evict(page, keep)?;
        }
        self.wake();
        Ok(())
    }

    fn stow(&mut self, at: At) -> Check {
        let behind = self.behind;
        self.memory().stow(at.1, behind)
    }

    fn drop_stash(&mut self, at: At) -> Check {
        self.memory().drop_stash(at.1);
        Ok(())
    }

    fn fail(&mut self, _: MappingId, at: At, why: Refusal) -> Check {
        if why == Refusal::NotMember {
            self.cluster.hosts[self.host].left = true;
            return Ok(());
        }
        Err(format!("h{} fails at {}: {why}", self.host + 1, at.1))
    }

    fn has_run(&mut self, _: At) -> Check<bool> {
        Ok(true)
    }

    fn forget(&mut self, _: SegmentId) -> Check {
        Ok(())
    }

    fn lend_lock(&mut self, key: SyncKey, _: ClientId, _: bool) -> Check {
        Err(format!("nobody asked for {key}"))
    }

    fn reclaim_lock(&mut self, key: SyncKey) -> Check<Reclaimed> {
        Err(format!("nobody has {key}"))
    }

    fn reply(&mut self, ticket: Ticket, reply: Reply) -> Check {
        if self.cluster.hosts[self.host].waits == Some(ticket) {
            self.cluster.hosts[self.host].waits = None;
            return self.cluster.replied(self.host, reply);
        }
        Ok(())
    }

    fn store(&mut self, pages: PageRange) -> Result<bool, String> {
        Err(format!("no segment here is private: {pages:?}"))
    }

    fn diff_work(&mut self, work: DiffWork) -> Check {
        Err(format!("views make no diffs: {work:?}"))
    }

    fn emit(&mut self, event: Seen) -> Check {
        match event {
            Seen::OwnershipGiven { .. } => self.cluster.seen.moves += 1,
            Seen::Regained { .. } => {
                self.cluster.seen.regained += 1;
                // The newest copy left may be older than what its readers saw of the holder.
                for host in &mut self.cluster.hosts {
                    host.seen.clear();
                }
            }
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
