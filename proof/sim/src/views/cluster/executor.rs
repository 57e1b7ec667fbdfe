//! Carries out the effects of a host's node.

use super::super::host::Memory;
use super::{Check, Cluster, Event, Step};
use crate::network::{kind, legible};
use crate::small::{Driver, Turn, address};
use pagemesh_core::{
    At, Effect, Event as Seen, Mappings, Node, PageRange, Reply, Rights, Source, Time,
};
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Health, Message, Refusal};
use pagemesh_wire::{MappingId, PageIndex, Ticket};

impl Cluster {
    fn memory(&mut self, host: usize) -> &mut Memory {
        &mut self.hosts[host].memory
    }

    /// Whether a host that this one takes for alive has a copy of a page.
    fn has_copy(&self, host: usize, page: PageIndex) -> bool {
        let members = &self.hosts[host].node.view().members;
        let alive = |id| {
            members
                .iter()
                .any(|m| m.id == id && m.health == Health::Alive)
        };
        let mut others = self.hosts.iter().filter(|other| !other.gone && !other.left);
        others.any(|other| {
            other.node.id().is_some_and(alive)
                && !other.renews
                && other.memory.frame(page).is_some()
        })
    }

    fn wake(&mut self, host: usize) {
        let state = &self.hosts[host];
        if matches!(state.step, Some((Step::Access(..) | Step::PublishRun, _))) {
            let at = self.queue.now().0 + 500;
            self.schedule(at, Event::Run(host));
        }
    }
}

impl Driver for Cluster {
    fn now(&self) -> Time {
        self.queue.now()
    }

    fn node(&mut self, host: usize) -> Option<&mut Node> {
        Some(&mut self.hosts[host].node)
    }

    fn send(
        &mut self,
        turn: Turn<'_>,
        (to, header): (usize, Header),
        message: Box<Message>,
        page: Option<(At, Source)>,
    ) -> Check {
        let host = turn.host;
        let mut bytes = Vec::new();
        message.encode(header, &mut bytes);
        if let Some(((_, page), source)) = page {
            bytes.extend(self.memory(host).contents(page, source)?);
        }
        self.seen.datagrams += 1;
        self.note(host, || format!("-> h{} {}", to + 1, legible(&message)));
        let now = self.queue.now();
        let fate = self.network.fate(now, host, to, kind(&message));
        for at in fate.arrivals(now) {
            self.schedule(at.0, Event::Arrival(to, address(host), bytes.clone()));
        }
        Ok(())
    }

    fn fill(&mut self, turn: Turn<'_>, pages: PageRange, source: Source) -> Check {
        for (_, page) in pages.iter() {
            self.memory(turn.host).fill(page, source, turn.behind)?;
            if source == Source::Zero {
                let host = &mut self.hosts[turn.host];
                host.seen.retain(|(at, _), _| *at != page);
                host.purged.retain(|(at, _), _| *at != page);
            }
        }
        self.seen.runs += u64::from(pages.count > 1);
        Ok(())
    }

    fn map(&mut self, host: usize, who: Mappings, pages: PageRange, rights: Rights) -> Check {
        for (_, page) in pages.iter() {
            for mapping in (1..=4).map(MappingId).filter(|id| who.contains(*id)) {
                self.memory(host).map(mapping, page, rights)?;
            }
            let living = self.hosts.iter().filter(|host| !host.gone && !host.left);
            let writers = living.filter(|host| host.memory.is_writable(page)).count();
            if writers > 1 {
                return Err(format!("{writers} hosts may store to {page}"));
            }
        }
        self.wake(host);
        Ok(())
    }

    fn protect(&mut self, host: usize, who: Mappings, pages: PageRange) -> Check {
        for (_, page) in pages.iter() {
            self.memory(host).protect(who, page);
        }
        Ok(())
    }

    fn evict(&mut self, host: usize, pages: PageRange, keep: bool) -> Check {
        for (_, page) in pages.iter() {
            self.memory(host).evict(page, keep)?;
        }
        self.wake(host);
        Ok(())
    }

    fn stow(&mut self, turn: Turn<'_>, at: At) -> Check {
        self.memory(turn.host).stow(at.1, turn.behind)
    }

    fn drop_stash(&mut self, host: usize, at: At) -> Check {
        self.memory(host).drop_stash(at.1);
        Ok(())
    }

    fn fail(&mut self, host: usize, _: MappingId, at: At, why: Refusal) -> Check {
        if why == Refusal::NotMember {
            self.hosts[host].left = true;
            return Ok(());
        }
        let died = self.seen.crashed > 0 && matches!(why, Refusal::NodeGone(_));
        if !died || self.hosts[host].renews || self.has_copy(host, at.1) {
            return Err(format!("h{} fails at {}: {why}", host + 1, at.1));
        }
        if self.sound && self.one_died() {
            let why = format!("h{} lost {}, which was on two nodes", host + 1, at.1);
            return Err(format!("INV-published-survives: {why}"));
        }
        self.seen.lost += 1;
        if matches!(self.hosts[host].step, Some((Step::Access(page, ..), _)) if page == at.1)
            || matches!(self.hosts[host].step, Some((Step::PublishRun, _)))
        {
            self.done(host);
        }
        Ok(())
    }

    fn reply(&mut self, host: usize, ticket: Ticket, reply: Reply) -> Check {
        if self.hosts[host].waits == Some(ticket) {
            self.hosts[host].waits = None;
            return self.replied(host, reply);
        }
        Ok(())
    }

    fn emit(&mut self, _: usize, event: Seen) -> Check {
        match event {
            Seen::OwnershipGiven { .. } => self.seen.moves += 1,
            Seen::Regained { .. } => {
                self.seen.regained += 1;
                // The newest copy left may be older than what its readers saw of the holder.
                for host in &mut self.hosts {
                    host.forget();
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn about_to(&mut self, host: usize, effect: &Effect) {
        self.note(host, || format!("{effect:?}"));
    }

    fn arm(&mut self, host: usize, due: Time) {
        let now = self.queue.now();
        let deadline = &mut self.hosts[host].deadline;
        if deadline.is_none_or(|at| due < at) {
            let at = due.max(Time(now.0 + 1));
            *deadline = Some(at);
            self.schedule(at.0, Event::Deadline(host));
        }
    }
}
