//! The explorer's executor of effects: the kernel of one host, and what others see of it.

use super::super::lab;
use super::turn::Turn;
use super::{Outcome, Packet, Sight};
use crate::check::{Check, Violation, ensure};
use crate::kernel::{PageKey, Returned, append_page};
use crate::network::{is_sign_of_life, kind};
use pagemesh_core::{
    Afterwards, At, DiffBatch, DiffExecutor, DiffWork, EffectExecutor, Event, Input, Mappings,
    PageRange, Reclaimed, Reply, Rights, Source,
};
use pagemesh_wire::header::Header;
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{DiffName, Diffs, Message, Refusal, Rule};
use pagemesh_wire::{ClientId, MappingId, SegmentId, SyncKey, Ticket, VectorTime};
use std::net::SocketAddr;

impl EffectExecutor for Turn<'_> {
    type Error = Violation;

    fn send(
        &mut self,
        address: SocketAddr,
        header: Header,
        mut message: Box<Message>,
        page: Option<(At, Source)>,
    ) -> Check {
        if is_sign_of_life(kind(&message)) {
            return Ok(());
        }
        if let Some(canary) = self.site.canary {
            canary.tamper(&mut message);
        }
        if let Some(granted) = PageKey::granted_by(&message) {
            let rights = self.site.kernel.rights(granted);
            ensure!(
                rights < Rights::Write,
                ProtectBeforeGrant,
                "h{} grants {granted} while it may still be stored to: {message:?}",
                self.me + 1
            );
            if matches!(*message, Message::Pass(_)) {
                self.see(Sight::Passed(header.to, granted));
            }
        }
        let mut behind = Vec::new();
        if let Some((page, source)) = page {
            let payload = self.payload.as_deref();
            let words = self.site.kernel.contents(page.into(), source, payload)?;
            append_page(&words, &mut behind);
        }
        self.leaves(address, header, *message, &behind);
        Ok(())
    }

    /// Strangers, of whom there are none here, get them.
    fn send_notice(&mut self, _: SocketAddr, _: Notice) -> Check {
        Ok(())
    }

    fn fill(&mut self, pages: PageRange, source: Source) -> Check {
        ensure!(source != Source::Frame, Law, "{pages:?} fills itself");
        // The effects are those of one input, which brings one page at most.
        let payload = self.payload.as_deref().filter(|_| pages.count == 1);
        let kernel = &mut self.site.kernel;
        for key in pages.iter().map(PageKey::from) {
            let words = kernel.contents(key, source, payload)?;
            kernel.fill(key, words)?;
        }
        Ok(())
    }

    fn map(&mut self, mappings: Mappings, pages: PageRange, rights: Rights) -> Check {
        for mapping in self.site.kernel.mappings(mappings, pages.segment) {
            for key in pages.iter().map(PageKey::from) {
                let (kernel, clock) = (&mut self.site.kernel, self.site.clock);
                let words = kernel.map(clock, mapping, key, rights)?;
                self.see(Sight::Mapped(key, words, rights));
            }
        }
        Ok(())
    }

    fn protect(&mut self, mappings: Mappings, pages: PageRange) -> Check {
        for at in pages.iter() {
            self.site.kernel.protect(mappings, at.into());
        }
        Ok(())
    }

    fn evict(&mut self, pages: PageRange, keep: bool) -> Check {
        for at in pages.iter() {
            self.site.kernel.evict(self.site.clock, at.into(), keep)?;
            self.see(Sight::Dropped(at.into()));
        }
        Ok(())
    }

    fn stow(&mut self, at: At) -> Check {
        let payload = self.payload.as_deref();
        let kernel = &mut self.site.kernel;
        let words = kernel.contents(at.into(), Source::Payload, payload)?;
        kernel.stow(at.into(), words);
        Ok(())
    }

    fn drop_stash(&mut self, at: At) -> Check {
        self.site.kernel.drop_stash(at.into());
        self.see(Sight::Dropped(at.into()));
        Ok(())
    }

    fn fail(&mut self, mapping: MappingId, at: At, why: Refusal) -> Check {
        let threads = self.site.kernel.sleepers(mapping, at.into());
        self.see(Sight::Failed(at.into(), threads, why.to_string()));
        Ok(())
    }

    fn has_run(&mut self, at: At) -> Check<bool> {
        Ok(self.site.kernel.used(at.into()))
    }

    fn forget(&mut self, segment: SegmentId) -> Check {
        self.site.kernel.forget(segment)
    }

    fn lend_lock(&mut self, key: SyncKey, client: ClientId, wanted: bool) -> Check {
        self.site.kernel.lend(key, client, wanted)?;
        self.see(Sight::Lent(client));
        Ok(())
    }

    fn reclaim_lock(&mut self, key: SyncKey) -> Check<Reclaimed> {
        Ok(match self.site.kernel.reclaim(key) {
            Returned::Back => Reclaimed::Back,
            Returned::Marked => Reclaimed::Marked,
            Returned::UnderWay => {
                self.see(Sight::Awaited(key));
                Reclaimed::Marked
            }
        })
    }

    fn reply(&mut self, ticket: Ticket, reply: Reply) -> Check {
        self.see(Sight::Replied(ticket, reply));
        Ok(())
    }

    fn store(&mut self, pages: PageRange) -> Check<bool> {
        ensure!(false, Law, "no segment here has policy private: {pages:?}");
        Ok(true)
    }

    fn diff_work(&mut self, work: DiffWork) -> Check {
        self.execute_diff_work(work)
    }

    fn trap(&mut self, segment: SegmentId) -> Check<Vec<PageRange>> {
        Ok(self.site.kernel.trap(segment))
    }

    fn emit(&mut self, event: Event) -> Check {
        let sight = match event {
            Event::Owned {
                segment,
                page,
                version,
            } => Some(Sight::Owned(PageKey { segment, page }, version)),
            Event::Left { node } | Event::Died { node } => Some(Sight::Gone(node)),
            Event::Expelled {} => Some(Sight::Expelled),
            _ => None,
        };
        self.outcomes.extend(sight.map(Outcome::Seen));
        Ok(())
    }

    fn follow(&mut self, input: Input<'static>) {
        self.answers.push_back(input);
    }
}

impl DiffExecutor for Turn<'_> {
    fn twin(&mut self, at: At, source: Source) -> Check {
        self.site.kernel.twin(at.into(), source)
    }

    fn diff(
        &mut self,
        segment: SegmentId,
        name: DiffName,
        then: Afterwards,
        _: &[Rule],
    ) -> Check<bool> {
        self.site.kernel.diff(segment, name, then)
    }

    fn drop_twin(&mut self, at: At) -> Check {
        self.site.kernel.drop_twin(at.into())
    }

    fn keep_diffs(&mut self, _: SegmentId, names: &[DiffName]) -> Check {
        let Some(diffs) = &self.diffs else {
            ensure!(false, Law, "{names:?} are kept, but none came");
            unreachable!()
        };
        let behind = self.payload.as_deref().unwrap_or_default();
        self.site.kernel.keep(diffs, behind, names)
    }

    fn merge(&mut self, at: At, source: Source, (names, _): (&[DiffName], &[Rule])) -> Check {
        let contents = (source, self.payload.as_deref());
        self.site.kernel.merge(at.into(), contents, names)
    }

    fn update(&mut self, at: At, (names, _): (&[DiffName], &[Rule])) -> Check {
        self.site.kernel.update(at.into(), names)
    }

    fn send_diffs(&mut self, batch: &DiffBatch) -> Check {
        let diffs = Diffs {
            segment: batch.segment,
            request: batch.request,
            diffs: Vec::new(),
        };
        let (diffs, tail) = self.site.kernel.pack(diffs, &batch.names, batch.at_most)?;
        if !diffs.diffs.is_empty() {
            let message = Message::Diffs(diffs);
            self.leaves(batch.address, batch.header, message, &tail);
        }
        Ok(())
    }

    /// Races are not looked for here.
    fn compare(&mut self, _: SegmentId, _: &[(DiffName, DiffName)]) -> Check {
        Ok(())
    }

    fn forget_diffs(&mut self, segment: SegmentId, upto: &VectorTime) -> Check {
        self.site.kernel.forget_changes(segment, upto);
        Ok(())
    }
}

impl Turn<'_> {
    fn leaves(&mut self, address: SocketAddr, header: Header, message: Message, behind: &[u8]) {
        let mut bytes = Vec::new();
        message.encode(header, &mut bytes);
        bytes.extend_from_slice(behind);
        self.outcomes.push(Outcome::Sent(Packet {
            from: self.me,
            to: lab::host_at(address),
            bytes,
            message,
        }));
    }
}
