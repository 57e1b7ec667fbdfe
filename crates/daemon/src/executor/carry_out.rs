//! The daemon's executor of effects.

use super::batch::EffectBatch;
use crate::pages::Fresh;
use core::convert::Infallible;
use pagemesh_core::{
    At, DiffExecutor as _, DiffWork, Effect, EffectExecutor, Event, Input, KeptEntry, Mappings,
    Next, PageRange, Reclaimed, Reply, Rights, Source,
};
use pagemesh_wire::header::Header;
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{Message, Refusal};
use pagemesh_wire::{ClientId, MappingId, NodeId, SegmentId, SyncKey, Term, Ticket};
use std::net::SocketAddr;

/// Failures are logged and reach the processes concerned; the daemon goes on.
pub(super) type Done<T = ()> = Result<T, Infallible>;

impl EffectExecutor for EffectBatch<'_> {
    type Error = Infallible;

    fn send(
        &mut self,
        address: SocketAddr,
        header: Header,
        message: Box<Message>,
        page: Option<(At, Source)>,
    ) -> Done {
        if page.is_some() {
            self.finish_fill();
            let payload = self.payload();
            self.executor
                .send((address, header), &message, page, payload);
        } else if message.is_receipt() {
            self.executor.receipts.push(address, header, message);
        } else {
            self.sent = true;
            let (network, counters) = (&mut self.executor.network, &mut self.executor.counters);
            network.send(address, header, &message, |_| true, counters);
        }
        Ok(())
    }

    fn send_notice(&mut self, address: SocketAddr, notice: Notice) -> Done {
        self.finish_fill();
        let (network, counters) = (&mut self.executor.network, &mut self.executor.counters);
        network.send_bytes(address, &notice.encode(), counters);
        Ok(())
    }

    fn fill(&mut self, pages: PageRange, source: Source) -> Done {
        if source == Source::Disk {
            self.load(pages);
            return Ok(());
        }
        self.begin_fill(pages, Fresh::From(source));
        Ok(())
    }

    fn map(&mut self, mappings: Mappings, pages: PageRange, rights: Rights) -> Done {
        self.show(mappings, pages, rights);
        Ok(())
    }

    fn protect(&mut self, mappings: Mappings, pages: PageRange) -> Done {
        self.finish_fill();
        let executor = &mut *self.executor;
        executor
            .pages
            .protect(mappings, pages, &mut executor.counters);
        Ok(())
    }

    fn evict(&mut self, pages: PageRange, keep: bool) -> Done {
        self.finish_fill();
        self.executor.evict(pages, keep);
        Ok(())
    }

    fn stow(&mut self, at: At) -> Done {
        self.finish_fill();
        match self.payload().page() {
            Some(page) => self.executor.pages.keep(at, page),
            None => tracing::error!(segment = %at.0, page = %at.1, "no page came to be kept"),
        }
        Ok(())
    }

    fn drop_stash(&mut self, (segment, page): At) -> Done {
        if matches!(&self.filling, Some(fill) if matches!(fill.fresh, Fresh::From(Source::Stash | Source::Kept(_) | Source::Replica(_))))
        {
            self.finish_fill();
        }
        self.executor.pages.stash.drop(segment, page);
        Ok(())
    }

    fn fail(&mut self, mapping: MappingId, at: At, why: Refusal) -> Done {
        self.finish_fill();
        self.executor.fail(mapping, at, &why);
        Ok(())
    }

    fn has_run(&mut self, at: At) -> Done<bool> {
        self.finish_fill();
        self.executor.write_down();
        Ok(self.executor.faults.threads.have_run(at))
    }

    fn forget(&mut self, segment: SegmentId) -> Done {
        self.finish_fill();
        self.executor.forget(segment);
        Ok(())
    }

    fn lend_lock(&mut self, key: SyncKey, client: ClientId, wanted: bool) -> Done {
        self.finish_fill();
        self.executor.lend_lock(key, client, wanted);
        Ok(())
    }

    fn reclaim_lock(&mut self, key: SyncKey) -> Done<Reclaimed> {
        self.finish_fill();
        Ok(self.executor.reclaim_lock(key))
    }

    fn reply(&mut self, ticket: Ticket, reply: Reply) -> Done {
        self.finish_fill();
        let executor = &mut *self.executor;
        // The process that is woken may take this processor, and datagrams not sent yet would wait
        // until it stops.
        executor.network.depart(&mut executor.counters);
        executor.priority.before_waking();
        executor.answer(ticket, reply);
        Ok(())
    }

    fn diff_work(&mut self, work: DiffWork) -> Done {
        self.execute_diff_work(work)
    }

    fn store(&mut self, pages: PageRange) -> Done<bool> {
        self.finish_fill();
        Ok(self.executor.store(pages))
    }

    fn keep(&mut self, batch: u64, entries: Vec<KeptEntry>) -> Done {
        if let Some(ledger) = &self.executor.ledger {
            ledger.keep(batch, entries);
        }
        Ok(())
    }

    fn renew(&mut self, term: Term) -> Done {
        if let Some(elections) = &self.executor.elections {
            elections.renew(term);
        }
        Ok(())
    }

    fn elect(&mut self, node: NodeId, fence: Term) -> Done {
        if let Some(elections) = &self.executor.elections {
            elections.elect(node, fence);
        }
        Ok(())
    }

    fn list_asking(&mut self, term: Term) -> Done {
        if let Some(elections) = &self.executor.elections {
            elections.list_asking(term);
        }
        Ok(())
    }

    fn seek(&mut self) -> Done {
        if let Some(elections) = &self.executor.elections {
            elections.seek();
        }
        Ok(())
    }

    fn trap(&mut self, segment: SegmentId) -> Done<Vec<PageRange>> {
        self.finish_fill();
        Ok(self.executor.trap(segment))
    }

    fn emit(&mut self, event: Event) -> Done {
        if matches!(event, Event::Resent {}) {
            self.executor.network.repeats(true);
        }
        if let Event::ViewChanged { segment } = event
            && !self.changed.contains(&segment)
        {
            self.changed.push(segment);
        }
        self.executor.events.push(event, self.acted);
        Ok(())
    }

    fn follow(&mut self, input: Input<'static>) {
        self.executor.follow(input);
    }

    fn before(&mut self, index: usize, rest: &[Effect]) -> Next {
        self.begin(index, rest)
    }

    fn after(&mut self, index: usize) {
        self.end(index);
    }
}
